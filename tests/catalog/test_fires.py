"""Fires: frontiers move by compare-and-set, with answers and compaction, all or nothing."""

from __future__ import annotations

import pytest
from tests.catalog.builders import (
    SECOND,
    STREAM,
    Clock,
    answer_file,
    bucket,
    bucket_file,
    create,
    new,
    run,
    stream,
    unwindowed,
)

from millstream.catalog.metastore import END_OF_TIME, START_OF_TIME, Change, Fire, Metastore
from millstream.errors import EngineError
from millstream.model.plan import FireResult


def fire(store: Metastore, moves: dict[str, tuple[int, int]], result: FireResult | None = None) -> None:
    store.commit_fire(Fire(STREAM, moves, result or FireResult()))


def frontiers(store: Metastore) -> dict[str, int | None]:
    return {query.id: query.fired_to for query in store.queries()}


def refused(store: Metastore, moves: dict[str, tuple[int, int]], result: FireResult | None = None) -> None:
    before = (store.queries(), store.buckets(STREAM), store.answers_after(STREAM, 0))
    with pytest.raises(EngineError) as error:
        fire(store, moves, result)
    assert error.value.code == "INTERNAL"
    assert (store.queries(), store.buckets(STREAM), store.answers_after(STREAM, 0)) == before


def test_a_fire_moves_frontiers_and_publishes(store: Metastore, clock: Clock) -> None:
    store.seal(create("q1"))
    run(store, 0, max_time=12)
    store.seal(create("q2"))
    run(store, 1, max_time=22)
    report = FireResult(
        answers=(answer_file("a1"),),
        windows_by_query={"q1": 2, "q2": 1},
        rows_by_query={"q1": 20, "q2": 5},
        failures_by_query={"q2": 1},
    )
    clock.now = 5
    fire(store, {"q1": (START_OF_TIME, 20 * SECOND), "q2": (10 * SECOND, 20 * SECOND)}, report)
    assert frontiers(store) == {"q1": 20 * SECOND, "q2": 20 * SECOND}
    (answer,) = store.answers_after(STREAM, 0)
    assert (answer.seq, answer.batch, answer.committed_at, answer.file) == (1, None, 5, answer_file("a1"))
    counters = [(q.windows, q.answer_rows, q.failures) for q in store.queries()]
    assert counters == [(2, 20, 0), (1, 5, 1)]


def test_a_fire_that_is_out_of_date_has_no_effect(store: Metastore) -> None:
    store.seal(create("q1", "q2"))
    run(store, 0, max_time=12)
    moves = {"q1": (START_OF_TIME, 10 * SECOND)}
    fire(store, moves)
    published = FireResult(answers=(answer_file("a1"),), windows_by_query={"q2": 1})
    refused(store, moves, published)
    refused(store, {"q2": (START_OF_TIME, 10 * SECOND), **moves}, published)
    refused(store, {"nobody": (START_OF_TIME, 10 * SECOND)}, published)
    refused(store, {"q2": (5 * SECOND, 10 * SECOND)}, published)
    assert frontiers(store) == {"q1": 10 * SECOND, "q2": START_OF_TIME}


def test_a_fire_stays_within_what_is_closed(store: Metastore) -> None:
    store.seal(create("q"))
    refused(store, {"q": (START_OF_TIME, 0)})
    run(store, 0, max_time=12)
    refused(store, {"q": (START_OF_TIME, 10 * SECOND + 1)})
    fire(store, {"q": (START_OF_TIME, 10 * SECOND)})
    refused(store, {"q": (10 * SECOND, 9 * SECOND)})


def test_a_fire_does_not_touch_queries_of_another_stream(store: Metastore) -> None:
    store.add_stream(stream("ads"))
    store.seal(create("q"))
    run(store, 0, max_time=12, stream="ads")
    with pytest.raises(EngineError):
        store.commit_fire(Fire("ads", {"q": (START_OF_TIME, SECOND)}, FireResult()))
    assert frontiers(store) == {"q": START_OF_TIME}


#  batch          0          1     delete     2
#  watermark     10         20       │       30
#  the query fires up to 20, then it is gone
def test_a_deleted_query_fires_what_its_batches_closed_and_no_more(store: Metastore, clock: Clock) -> None:
    store.seal(create("q"))
    run(store, 0, max_time=12)
    run(store, 1, max_time=22)
    store.seal(Change(deletes=("q",)))
    run(store, 2, max_time=32)
    refused(store, {"q": (START_OF_TIME, 30 * SECOND)})
    fire(store, {"q": (START_OF_TIME, 10 * SECOND)})
    assert store.query("q").state == "deleting"
    clock.now = 123
    fire(store, {"q": (10 * SECOND, 20 * SECOND)})
    assert (store.query("q").state, store.query("q").ended_at) == ("deleted", 123)
    refused(store, {"q": (20 * SECOND, 30 * SECOND)})


def test_a_fire_under_way_may_finish_for_a_query_that_failed(store: Metastore) -> None:
    store.seal(create("q1", "q2"))
    run(store, 0, max_time=12)
    store.set_failed("q1", "too slow")
    fire(store, {"q1": (START_OF_TIME, 10 * SECOND), "q2": (START_OF_TIME, 10 * SECOND)})
    assert [query.state for query in store.queries()] == ["failed", "running"]


def test_a_fire_stops_the_queries_that_it_could_not_evaluate(store: Metastore) -> None:
    store.seal(create("q1", "q2", "q3"))
    run(store, 0, max_time=12)
    store.set_failed("q3", "first reason")
    moves = dict.fromkeys(("q1", "q2"), (START_OF_TIME, 10 * SECOND))
    fire(store, moves, FireResult(broken={"q1": "no such function", "q3": "later reason", "nobody": "?"}))
    states = {query.id: (query.state, query.reason, query.fired_to) for query in store.queries()}
    assert states == {
        "q1": ("failed", "no such function", 10 * SECOND),
        "q2": ("running", None, 10 * SECOND),
        "q3": ("failed", "first reason", START_OF_TIME),
    }


def test_frontiers_are_those_of_live_queries_with_windows(store: Metastore) -> None:
    store.seal(Change(creates=(new("f", unwindowed()), new("q1"), new("q2"), new("q3"))))
    run(store, 0, max_time=12)
    store.set_failed("q3", "broken")
    store.seal(Change(deletes=("q2",)))
    found = {frontier.query: (frontier.fired_to, frontier.closes_at) for frontier in store.frontiers(STREAM)}
    assert found == {"q1": (START_OF_TIME, None), "q2": (START_OF_TIME, 10 * SECOND)}


def test_a_flush_fires_everything(store: Metastore) -> None:
    store.seal(create("q"))
    run(store, 0, max_time=12)
    store.flush_stream(STREAM)
    fire(store, {"q": (START_OF_TIME, END_OF_TIME)})
    assert frontiers(store) == {"q": END_OF_TIME}
    store.seal(Change(deletes=("q",)))
    assert store.query("q").state == "deleted"


def test_thousands_of_queries_move_at_once(store: Metastore) -> None:
    ids = [f"q{number}" for number in range(2500)]
    store.seal(create(*ids))
    run(store, 0, max_time=12)
    targets = {id: (number % 3 + 1) * SECOND for number, id in enumerate(ids)}
    fire(store, {id: (START_OF_TIME, target) for id, target in targets.items()})
    assert frontiers(store) == targets


def test_compaction_replaces_buckets(store: Metastore) -> None:
    old = (bucket_file("b1", 0, bucket(0), bucket(100)), bucket_file("b2", 0, bucket(0), bucket(100)))
    run(store, 0, max_time=12, files=old)
    merged = bucket_file("c1", 0, bucket(7))
    fire(store, {}, FireResult(compacted=(merged,), replaced=(("b1", 0), ("b1", 100), ("b2", 100))))
    assert store.buckets(STREAM) == [bucket_file("b2", 0, bucket(0)), merged]
    assert store.referenced_files() == {"b2", "c1"}
    again = FireResult(compacted=(bucket_file("c2", 0, bucket(0)),), replaced=(("b2", 0), ("b2", 100)))
    refused(store, {}, again)
    refused(store, {}, FireResult(replaced=(("b1", 0),)))
