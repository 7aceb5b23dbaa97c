"""Files that rows name: answers in order, retention, clean-up, cursors."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.catalog.builders import STREAM, Clock, answer_file, bucket, bucket_file, run, stream, version

from millstream.catalog.files import read_buckets, write_buckets
from millstream.catalog.metastore import Change, Fire, Metastore
from millstream.model.plan import Bucket, FireResult

LONGS = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.builds(Bucket, st.text(), LONGS, LONGS, LONGS, LONGS, LONGS, LONGS)))
def test_buckets_survive_their_text(buckets: list[Bucket]) -> None:
    assert read_buckets(write_buckets(buckets)) == tuple(buckets)


def test_answers_are_numbered_in_the_order_of_commits(store: Metastore) -> None:
    store.add_stream(stream("ads"))
    run(store, 0, answers=(answer_file("a1"), answer_file("a2")))
    run(store, 0, stream="ads", answers=(answer_file("a3"),))
    store.commit_fire(Fire(STREAM, {}, FireResult(answers=(answer_file("a4"),))))
    numbers = [(record.seq, record.file.path) for record in store.answers_after(STREAM, 0)]
    assert numbers == [(1, "a1"), (2, "a2"), (4, "a4")]
    assert [record.seq for record in store.answers_after(STREAM, 1, limit=1)] == [2]
    assert [record.seq for record in store.answers_after("ads", 0)] == [3]
    assert store.answers_after(STREAM, 4) == []


def test_answers_expire_by_age_or_number(store: Metastore, clock: Clock) -> None:
    assert store.answer_bounds() == (1, 0)
    for batch in range(4):
        clock.now = 100 * batch
        run(store, batch, answers=(answer_file(f"a{batch}"),))
    assert store.answer_bounds() == (1, 4)
    assert store.expire_answers() == []
    assert store.expire_answers(before_time=100) == ["a0"]
    assert store.expire_answers(before_seq=4) == ["a1", "a2"]
    assert [record.file.path for record in store.answers_after(STREAM, 0)] == ["a3"]
    assert store.answer_bounds() == (4, 4)
    store.expire_answers(before_seq=99)
    assert store.answer_bounds() == (5, 4)
    run(store, 4, answers=(answer_file("a4"),))
    assert [record.seq for record in store.answers_after(STREAM, 4)] == [5]


def test_every_path_that_a_row_names_is_referenced(store: Metastore) -> None:
    files = (bucket_file("b1", 0, bucket(0)), bucket_file("b2", 0, bucket(0)))
    run(store, 0, files=files, answers=(answer_file("a1"),), rejects=("dead/1",))
    store.seal(Change(versions=(version(1), version(1, group="g2", retired=True))))
    assert store.referenced_files() == {"b1", "b2", "a1", "dead/1", version(1).path}
    for _ in range(2):
        store.drop_files(["b1", "dead/1", "never there"])
    assert store.referenced_files() == {"b2", "a1", version(1).path}
    assert [file.path for file in store.buckets(STREAM)] == ["b2"]
    store.drop_files([])


def test_cursors_are_kept_by_name(store: Metastore, url: str) -> None:
    assert store.load_cursor("sink") is None
    store.save_cursor("sink", "1")
    store.save_cursor("sink", "2")
    store.save_cursor("other", "1")
    store.close()
    again = Metastore.open(url, holder="again")
    assert (again.load_cursor("sink"), again.load_cursor("other")) == ("2", "1")
    again.drop_cursor("sink")
    again.drop_cursor("sink")
    assert again.load_cursor("sink") is None
    again.close()
