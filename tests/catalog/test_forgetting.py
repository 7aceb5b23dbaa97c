"""What is forgotten with time: never an id that buckets or answers still go by, never an answer before an older one."""

from __future__ import annotations

import pytest
from tests.catalog.builders import (
    ADS,
    SECOND,
    STREAM,
    Clock,
    answer_file,
    bucket,
    bucket_file,
    create,
    new_join,
    plan,
    result,
    run,
    stream,
    version,
)

from millstream.catalog import metastore
from millstream.catalog.metastore import START_OF_TIME, Change, Fire, Metastore
from millstream.errors import EngineError
from millstream.model.plan import FireResult

LATER = 10**9


@pytest.fixture
def two(store: Metastore) -> Metastore:
    store.add_stream(stream(ADS))
    return store


def fire_all(store: Metastore, id: str, upto: int) -> None:
    store.commit_fire(Fire(store.query(id).stream, {id: (START_OF_TIME, upto * SECOND)}, FireResult()))


#  batch    0 ─── 1 ─── 2 ─── 3
#  "q"         ├──┤
#  buckets  b0    b1    b2          "q" is in those of b1 alone
def test_a_query_stays_as_long_as_buckets_of_its_batches(store: Metastore) -> None:
    run(store, 0, max_time=12, files=(bucket_file("b0", 0, bucket(0)),))
    store.seal(create("q"))
    run(store, 1, max_time=22, files=(bucket_file("b1", 1, bucket(0)),))
    store.seal(Change(deletes=("q",)))
    store.commit_fire(Fire(STREAM, {"q": (10 * SECOND, 20 * SECOND)}, FireResult()))
    run(store, 2, max_time=32, files=(bucket_file("b2", 2, bucket(0)),))
    assert store.query("q").state == "deleted"
    assert store.expire_history(LATER) == []
    store.drop_files(["b1"])
    assert store.expire_history(LATER) == ["q"]


@pytest.mark.parametrize("kept", [STREAM, ADS])
def test_a_join_stays_as_long_as_buckets_of_one_of_its_legs(two: Metastore, kept: str) -> None:
    two.seal(Change(creates=(new_join("j"),)))
    for name in (STREAM, ADS):
        run(two, 0, max_time=12, stream=name, files=(bucket_file(name, 0, bucket(0), stream=name),))
    two.seal(Change(deletes=("j",)))
    fire_all(two, "j", 10)
    assert two.query("j").state == "deleted"
    two.drop_files([name for name in (STREAM, ADS) if name != kept])
    assert two.expire_history(LATER) == []
    two.drop_files([kept])
    assert two.expire_history(LATER) == ["j"]


def test_a_failed_query_stays_until_it_is_deleted_and_its_last_batch_has_run(store: Metastore) -> None:
    store.seal(create("q"))
    running = plan(store, 0)
    store.set_failed("q", "too slow")
    assert store.expire_history(LATER) == []
    store.seal(Change(deletes=("q",)))
    assert store.query("q").state == "deleted"
    assert store.expire_history(LATER) == [], "the batch that runs may still make buckets with it"
    store.commit_batch(running, result(12, files=(bucket_file("b0", 0, bucket(0)),)))
    assert store.expire_history(LATER) == []
    store.drop_files(["b0"])
    assert store.expire_history(LATER) == ["q"]


def test_a_query_stays_as_long_as_answers_of_its_time(store: Metastore, clock: Clock) -> None:
    """The clock is set back between its answer and its end."""
    store.seal(create("q"))
    clock.now = 9000
    run(store, 0, answers=(answer_file("a0"),))
    clock.now = 100
    store.seal(Change(deletes=("q",)))
    clock.now = 150
    run(store, 1, answers=(answer_file("a1"),))
    clock.now = 300
    assert store.query("q").state == "deleted"
    assert store.expire_history(200) == []
    assert store.expire_answers(before_time=200) == ["a0", "a1"]
    assert store.expire_history(200) == ["q"]


def test_a_deleted_query_that_breaks_stays_deleted(store: Metastore, clock: Clock) -> None:
    store.seal(create("q1", "q2", "q3"))
    run(store, 0, max_time=12)
    store.seal(Change(deletes=("q1", "q2")))
    clock.now = 77
    store.set_failed("q1", "too large")
    move = (START_OF_TIME, 8 * SECOND)
    store.commit_fire(Fire(STREAM, {"q2": move, "q3": move}, FireResult(broken={"q2": "broken", "q3": "broken"})))
    found = {query.id: (query.state, query.reason, query.ended_at) for query in store.queries()}
    assert found == {
        "q1": ("deleted", "too large", 77),
        "q2": ("deleted", "broken", 77),
        "q3": ("failed", "broken", 77),
    }
    assert [one.query for one in store.frontiers(STREAM)] == []
    assert sorted(store.expire_history(LATER)) == ["q1", "q2"]


def test_a_deleted_join_whose_leg_breaks_stays_deleted(two: Metastore) -> None:
    two.seal(Change(creates=(new_join("j"),)))
    run(two, 0, max_time=42)
    running = plan(two, 0, ADS)
    two.seal(Change(deletes=("j",)))
    assert two.query("j").state == "deleting"
    two.commit_batch(running, result(12, broken={metastore.leg_member("j", 1): "too slow"}))
    assert (two.query("j").state, two.query("j").reason) == ("deleted", "too slow")


@pytest.mark.parametrize(
    ("times", "now", "before", "gone"),
    [
        ((100, 200, 300, 400), 450, 300, 2),
        ((500, 600, 100, 200), 650, 300, 0),  # set back: younger ones lie before
        ((500, 600, 100, 200), 700, 550, 1),
        ((500, 600, 100, 200), 900, 700, 4),
        ((9000, 9000, 100, 400), 450, 300, 3),  # was ahead: those are as old as the next
        ((9000, 9000), 450, 300, 0),  # is behind
        ((400, 0, 400), 450, 300, 0),
    ],
)
def test_answers_expire_in_the_order_of_their_numbers(
    store: Metastore, clock: Clock, times: tuple[int, ...], now: int, before: int, gone: int
) -> None:
    for batch, time in enumerate(times):
        clock.now = time
        run(store, batch, answers=(answer_file(f"a{batch}"),))
    clock.now = now
    assert store.expire_answers(before_time=before) == [f"a{batch}" for batch in range(gone)]
    assert store.answer_bounds() == (gone + 1, len(times))


def test_versions_forgotten_before_a_step_that_fails_are_given(
    store: Metastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metastore, "FORGOTTEN_AT_ONCE", 1)
    for number in (1, 2, 3):
        store.seal(Change(versions=(version(number),)))
    steps, forget = [], store.forget_versions

    def second_fails(stream: str, versions: list[tuple[str, int, str]]) -> None:
        steps.append(versions)
        if len(steps) > 1:
            raise EngineError("METASTORE_AWAY", "away")
        forget(stream, versions)

    monkeypatch.setattr(store, "forget_versions", second_fails)
    [first] = store.expire_versions(STREAM)
    with pytest.raises(EngineError):
        store.expire_versions(STREAM)
    monkeypatch.undo()
    assert sorted([first, *store.expire_versions(STREAM)]) == [version(1).path, version(2).path]
