"""Planning and committing micro-batches: once, in turn, and the same again after a crash."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.catalog.builders import (
    SECOND,
    STREAM,
    answer_file,
    bucket,
    bucket_file,
    create,
    plan,
    result,
    run,
    stream,
)

from millstream.catalog import batches
from millstream.catalog.metastore import END_OF_TIME, Change, Fire, Metastore
from millstream.errors import CatalogError, EngineError
from millstream.model.plan import FireResult, IngestPlan


def test_streams_are_named_once(store: Metastore) -> None:
    with pytest.raises(CatalogError) as error:
        store.add_stream(stream())
    assert error.value.code == "DUPLICATE_STREAM"
    store.add_stream(stream("ads"))
    assert [state.stream for state in store.streams()] == [stream(), stream("ads")]


def test_an_unknown_stream_is_named_with_those_that_exist(store: Metastore) -> None:
    with pytest.raises(CatalogError) as error:
        store.plan_batch("purchase", 0, "", 0)
    assert error.value.code == "UNKNOWN_STREAM"
    assert error.value.hint == "existing streams: purchases"


def test_a_plan_takes_epoch_and_watermark_of_its_moment(store: Metastore) -> None:
    assert store.plan_batch(STREAM, 0, "a", 11) == (IngestPlan(STREAM, 0, 0, None, 11, "a"), False)
    store.commit_batch(IngestPlan(STREAM, 0, 0, None, 11, "a"), result(10))
    store.seal(create("q"))
    assert store.plan_batch(STREAM, 1, "b", 12) == (IngestPlan(STREAM, 1, 1, 8 * SECOND, 12, "b"), False)


def test_a_replay_gets_the_plan_of_the_first_time(store: Metastore, url: str) -> None:
    first = plan(store, 0)
    store.seal(create("q"))
    again = Metastore.open(url, holder="after a crash")
    assert again.plan_batch(STREAM, 0, "offsets 0", clock=999) == (first, False)
    again.commit_batch(first, result(10))
    assert again.plan_batch(STREAM, 0, "offsets 0", clock=9999) == (first, True)
    again.close()


def test_a_replay_with_other_offsets_is_refused(store: Metastore) -> None:
    run(store, 0, max_time=10)
    plan(store, 1)
    for batch in (0, 1):
        with pytest.raises(EngineError) as error:
            store.plan_batch(STREAM, batch, "other files", 0)
        assert error.value.code == "REPLAY_MISMATCH"


@pytest.mark.parametrize("batch", [2, 5])
def test_a_batch_planned_out_of_turn_is_refused(store: Metastore, batch: int) -> None:
    run(store, 0, max_time=10)
    plan(store, 1)
    with pytest.raises(EngineError) as error:
        plan(store, batch)
    assert error.value.code == "INTERNAL"
    assert store.streams()[0].planned == 1


def test_only_the_stored_plan_can_be_committed(store: Metastore) -> None:
    stored = plan(store, 0)
    for wrong in (replace(stored, epoch=7), replace(stored, batch=1), replace(stored, watermark=5)):
        with pytest.raises(EngineError):
            store.commit_batch(wrong, result(10))
    assert store.streams()[0].committed == -1


#  batch      0     1     2     3        lateness 2 s
#  max time  10     7     –    15
#  watermark  8     8     8    13        closings: (0, 8), (3, 13)
def test_the_watermark_never_goes_back(store: Metastore) -> None:
    watermarks = [run(store, batch, time) for batch, time in enumerate((10, 7, None, 15))]
    assert watermarks == [8 * SECOND, 8 * SECOND, 8 * SECOND, 13 * SECOND]
    assert store.closing(STREAM) == [(0, 8 * SECOND), (3, 13 * SECOND)]
    (state,) = store.streams()
    assert (state.watermark, state.max_time) == (13 * SECOND, 15 * SECOND)


def test_a_stream_without_rows_has_no_watermark(store: Metastore) -> None:
    assert run(store, 0) is None
    assert store.closing(STREAM) == []


def test_a_commit_records_everything_once(store: Metastore) -> None:
    store.seal(create("q1", "q2"))
    batch = plan(store, 0)
    report = result(
        10,
        late_rows=3,
        rejected_rows=2,
        files=(bucket_file("b1", 0, bucket(0), bucket(100)),),
        answers=(answer_file("a1"), answer_file("a2")),
        rejects=("dead/1",),
        late_by_query={"q1": 3},
        failures_by_query={"q1": 1, "unknown": 5},
        rows_by_query={"q2": 9},
    )
    for _ in range(3):
        assert store.commit_batch(batch, report) == 8 * SECOND
    (state,) = store.streams()
    assert (state.rows, state.bytes, state.batches, state.late_rows, state.rejected_rows) == (100, 1000, 1, 3, 2)
    assert (state.planned, state.committed) == (0, 0)
    assert store.buckets(STREAM) == list(report.files)
    assert [(a.seq, a.batch, a.file) for a in store.answers_after(STREAM, 0)] == [
        (1, 0, answer_file("a1")),
        (2, 0, answer_file("a2")),
    ]
    assert store.dead_letters(STREAM) == [(0, "dead/1")]
    counters = {q.id: (q.windows, q.answer_rows, q.late_rows, q.failures) for q in store.queries()}
    assert counters == {"q1": (0, 0, 3, 1), "q2": (0, 9, 0, 0)}


def test_a_commit_stops_the_queries_that_it_could_not_evaluate(store: Metastore) -> None:
    store.seal(create("q1", "q2"))
    run(store, 0, max_time=10, broken={"q1": "no such function"})
    assert [(query.state, query.reason) for query in store.queries()] == [
        ("failed", "no such function"),
        ("running", None),
    ]


def test_a_flush_closes_all_time_after_the_last_batch(store: Metastore) -> None:
    store.seal(create("q"))
    run(store, 0, max_time=10)
    for _ in range(2):
        store.flush_stream(STREAM)
    assert store.closing(STREAM) == [(0, 8 * SECOND), (0, END_OF_TIME)]
    (state,) = store.streams()
    assert (state.watermark, state.max_time, state.closed_all) == (END_OF_TIME, 10 * SECOND, True)
    with pytest.raises(EngineError) as error:
        plan(store, 1)
    assert error.value.code == "STREAM_STOPPED"
    assert store.plan_batch(STREAM, 0, "offsets 0", 0)[1]


def test_a_stream_without_batches_can_be_flushed(store: Metastore) -> None:
    store.flush_stream(STREAM)
    assert store.closing(STREAM) == [(-1, END_OF_TIME)]


def test_a_flush_waits_for_the_running_batch(store: Metastore) -> None:
    plan(store, 0)
    with pytest.raises(EngineError):
        store.flush_stream(STREAM)
    assert not store.streams()[0].closed_all


def test_a_query_deleted_before_the_flush_does_not_fire_it(store: Metastore) -> None:
    store.seal(create("q"))
    run(store, 0, max_time=10)
    store.seal(Change(deletes=("q",)))
    store.flush_stream(STREAM)
    assert store.query("q").closes_at == 8 * SECOND


def test_old_plans_and_closings_are_forgotten(store: Metastore) -> None:
    store.seal(create("q"))
    last = 2 * batches.KEEP_PLANS
    for batch in range(last):
        run(store, batch, max_time=batch)
    assert len(store.closing(STREAM)) == last  # the query has fired nothing yet and may need them all
    frontier = (last - 10) * SECOND
    start = store.query("q").fired_to
    assert start is not None
    store.commit_fire(Fire(STREAM, {"q": (start, frontier)}, FireResult()))
    for batch in range(last, last + batches.PRUNE_EVERY):
        run(store, batch, max_time=batch)
    kept = store.closing(STREAM)
    assert kept[0] == (last - 7, frontier + SECOND)
    with pytest.raises(EngineError) as error:
        plan(store, 0)
    assert error.value.code == "REPLAY_MISMATCH"
    assert store.plan_batch(STREAM, last, f"offsets {last}", 0)[1]


def test_closings_of_a_stream_without_queries_are_forgotten(store: Metastore) -> None:
    for batch in range(2 * batches.PRUNE_EVERY + 1):
        run(store, batch, max_time=batch)
    assert len(store.closing(STREAM)) == 1
