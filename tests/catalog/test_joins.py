"""Joins: a cut for each leg, one frontier for all, and files that answers are built from later."""

from __future__ import annotations

from dataclasses import replace

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
    join,
    new,
    new_join,
    plan,
    result,
    run,
    stream,
    version,
)

from millstream.catalog import batches
from millstream.catalog.metastore import (
    END_OF_TIME,
    START_OF_TIME,
    Change,
    Fire,
    Frontier,
    LegPlace,
    LegRecord,
    Metastore,
    NewQuery,
    Placement,
    joined_stream,
    leg_member,
    streams_of,
)
from millstream.errors import CatalogError, EngineError
from millstream.model import codec
from millstream.model.plan import AnswerFile, FireResult

BOTH = joined_stream([STREAM, ADS])
ALONE = joined_stream([STREAM])


@pytest.fixture
def two(store: Metastore) -> Metastore:
    """A metastore with two streams of two seconds' lateness."""
    store.add_stream(stream(ADS))
    return store


def fire(store: Metastore, moves: dict[str, tuple[int, int]], report: FireResult | None = None) -> None:
    store.commit_fire(Fire(BOTH, moves, report or FireResult()))


def times(store: Metastore, id: str = "j") -> tuple[int | None, int | None, int | None]:
    record = store.query(id)
    return record.fired_to, record.partial_until, record.closes_at


def referring(path: str, *refers: str) -> AnswerFile:
    return replace(answer_file(path), refers=refers)


# Names


@pytest.mark.parametrize("streams", [("b", "a"), ("a", "b", "a"), ("a",), ("a", "a"), ("c", "a", "b")])
def test_a_joined_name_gives_its_streams_and_is_no_streams_own(streams: tuple[str, ...]) -> None:
    name = joined_stream(streams)
    assert streams_of(name) == tuple(sorted(set(streams)))
    assert name not in streams
    assert [streams_of(own) for own in streams] == [(own,) for own in streams]


def test_a_join_needs_a_place_for_each_leg() -> None:
    places = (LegPlace(0, STREAM, "g1", 0), LegPlace(1, ADS, "g2", 0))
    assert NewQuery("j", "me", None, join(), "", 0, places).stream == BOTH
    for wrong in ((), places[:1], places[::-1], (places[0], LegPlace(1, STREAM, "g2", 0))):
        with pytest.raises(ValueError, match="places for the legs"):
            NewQuery("j", "me", None, join(), "", 0, wrong)
    with pytest.raises(ValueError, match="places for the legs"):
        replace(new("q"), legs=places)


# Creating


def test_each_leg_has_its_own_cut(two: Metastore, url: str) -> None:
    for batch in range(3):
        run(two, batch, max_time=12 + 10 * batch)
    run(two, 0, max_time=50, stream=ADS)
    epoch = two.seal(Change(creates=(new_join("j"),)))
    assert (epoch.cuts[STREAM].first_batch, epoch.cuts[ADS].first_batch) == (3, 1)
    legs = (
        LegRecord(0, STREAM, "g1", 0, 3, None, 30 * SECOND, 32 * SECOND, None),
        LegRecord(1, ADS, "g2", 1, 1, None, 48 * SECOND, 50 * SECOND, None),
    )
    record = two.query("j")
    assert (record.stream, record.group, record.slot, record.legs) == (BOTH, "", 0, legs)
    assert (record.first_batch, record.last_batch, record.query) == (3, None, join())
    assert times(two) == (30 * SECOND, 50 * SECOND, None)
    two.close()
    again = Metastore.open(url, holder="again")
    assert again.query("j") == record
    assert again.queries(stream=BOTH) == [record]
    again.close()


def test_a_stream_without_rows_holds_the_frontier_at_the_start(two: Metastore) -> None:
    run(two, 0, max_time=12)
    two.seal(Change(creates=(new_join("j"),)))
    assert times(two) == (START_OF_TIME, 12 * SECOND, None)


#  purchases   0 ────────────── commit (10)
#  ads                 0 ─ commit (20)
#  create              │
@pytest.mark.parametrize("first", [STREAM, ADS])
def test_a_join_learns_its_cut_when_the_last_of_the_running_batches_is_committed(two: Metastore, first: str) -> None:
    plans = {STREAM: (plan(two, 0), 12), ADS: (plan(two, 0, ADS), 22)}
    two.seal(Change(creates=(new_join("j"), new("q"))))
    assert times(two) == (None, None, None)
    running, time = plans.pop(first)
    two.commit_batch(running, result(time))
    assert times(two) == (None, None, None)
    known = [leg.fired_to for leg in two.query("j").legs]
    assert known == [10 * SECOND if first == STREAM else None, 20 * SECOND if first == ADS else None]
    for running, time in plans.values():
        two.commit_batch(running, result(time))
    assert times(two) == (10 * SECOND, 22 * SECOND, None)
    assert two.query("q").fired_to == 10 * SECOND


def test_a_join_created_while_one_stream_runs_waits_for_that_one_alone(two: Metastore) -> None:
    run(two, 0, max_time=12)
    running = plan(two, 0, ADS)
    two.seal(Change(creates=(new_join("j"),)))
    run(two, 1, max_time=32)
    assert times(two) == (None, None, None)
    two.commit_batch(running, result(22))
    two.commit_batch(running, result(99))
    run(two, 1, max_time=42, stream=ADS)
    assert times(two) == (10 * SECOND, 22 * SECOND, None)
    assert [leg.first_batch for leg in two.query("j").legs] == [1, 1]


def test_a_stream_joined_with_itself_has_two_legs_on_it(two: Metastore) -> None:
    running = plan(two, 0)
    two.seal(Change(creates=(new_join("j", STREAM, STREAM),)))
    two.commit_batch(running, result(12))
    record = two.query("j")
    assert record.stream == ALONE
    assert [(leg.stream, leg.first_batch, leg.fired_to) for leg in record.legs] == [(STREAM, 1, 10 * SECOND)] * 2
    assert times(two) == (10 * SECOND, 12 * SECOND, None)
    assert [frontier.query for frontier in two.frontiers(STREAM)] == ["j#0", "j#1"]


def test_what_is_refused_for_queries_is_refused_for_joins(two: Metastore) -> None:
    two.seal(Change(creates=(new_join("j", key="k"),)))
    epoch = two.seal(Change(creates=(new_join("other", key="k"),)))
    assert (epoch.number, epoch.same_as) == (1, {"other": "j"})
    assert two.query_by_key("me", "k") == two.query("j")
    before = two.queries()
    for change, code in [
        (Change(creates=(new_join("j"),)), "DUPLICATE_QUERY"),
        (Change(creates=(new_join("x"), new("x"))), "DUPLICATE_QUERY"),
        (Change(creates=(new_join("x", STREAM, "nowhere"),)), "UNKNOWN_STREAM"),
        (Change(creates=(new_join("x", "nowhere", ADS),)), "UNKNOWN_STREAM"),
        (Change(deletes=("j", "j")), "QUERY_DELETED"),
        (Change(deletes=("j#0",)), "UNKNOWN_QUERY"),
    ]:
        with pytest.raises(CatalogError) as error:
            two.seal(change)
        assert error.value.code == code
    assert (two.queries(), two.current_epoch()) == (before, 1)


def test_a_leg_can_be_placed_anew(two: Metastore) -> None:
    two.seal(Change(creates=(new_join("j"), new("q"))))
    two.seal(Change(placements=(Placement("j#1", "g9", 7), Placement("q", "g8", 6))))
    assert [(leg.group, leg.slot) for leg in two.query("j").legs] == [("g1", 0), ("g9", 7)]
    assert (two.query("j").group, two.query("q").group) == ("", "g8")
    with pytest.raises(EngineError):
        two.seal(Change(placements=(Placement("j#2", "g9", 7),)))


# Frontiers


def test_a_stream_shows_its_queries_and_the_legs_on_it(two: Metastore) -> None:
    two.seal(Change(creates=(new_join("j"), new("q"), new_join("gone"), new_join("self", ADS, ADS))))
    run(two, 0, max_time=12)
    two.set_failed("gone", "broken")
    known = (START_OF_TIME, START_OF_TIME, None)
    own, first = Frontier("q", "g1", *known), Frontier("j#0", "g1", *known, leg=0)
    assert two.frontiers(STREAM) == [own, first]
    legs = [Frontier("j#1", "g2", *known, leg=1), Frontier("self#0", "g1", *known, leg=0)]
    assert set(two.frontiers(ADS)) == {*legs, Frontier("self#1", "g2", *known, leg=1)}
    assert two.frontiers(BOTH) == [Frontier("j", "", *known)]
    assert two.joins() == ["ads&", BOTH]
    two.seal(Change(deletes=("self",)))
    assert two.joins() == [BOTH]


def test_a_fire_of_a_join_stays_within_what_all_streams_have_closed(two: Metastore) -> None:
    two.seal(Change(creates=(new_join("j"),)))
    run(two, 0, max_time=32)
    with pytest.raises(EngineError, match="not closed"):
        fire(two, {"j": (START_OF_TIME, SECOND)})
    run(two, 0, max_time=12, stream=ADS)
    with pytest.raises(EngineError, match="not closed"):
        fire(two, {"j": (START_OF_TIME, 10 * SECOND + 1)})
    report = FireResult((referring("a1", "b1"),), {"j": 1}, {"j": 5})
    fire(two, {"j": (START_OF_TIME, 10 * SECOND)}, report)
    assert times(two)[0] == 10 * SECOND
    assert (two.query("j").windows, two.query("j").answer_rows) == (1, 5)
    (answer,) = two.answers_after(BOTH, 0)
    assert (answer.stream, answer.batch, answer.file) == (BOTH, None, answer_file("a1"))
    assert two.answers_after(STREAM, 0) == []
    with pytest.raises(EngineError, match="elsewhere"):
        fire(two, {"j": (START_OF_TIME, 10 * SECOND)}, report)
    with pytest.raises(EngineError, match="elsewhere"):
        two.commit_fire(Fire(STREAM, {"j": (10 * SECOND, 10 * SECOND)}, FireResult()))
    assert [f.fired_to for f in two.frontiers(ADS)] == [10 * SECOND]


def test_a_flush_of_one_stream_leaves_the_join_to_the_other(two: Metastore) -> None:
    two.seal(Change(creates=(new_join("j"),)))
    run(two, 0, max_time=12)
    run(two, 0, max_time=22, stream=ADS)
    two.flush_stream(STREAM)
    with pytest.raises(EngineError):
        fire(two, {"j": (START_OF_TIME, END_OF_TIME)})
    fire(two, {"j": (START_OF_TIME, 20 * SECOND)})
    two.flush_stream(ADS)
    fire(two, {"j": (20 * SECOND, END_OF_TIME)})
    two.seal(Change(deletes=("j",)))
    assert two.query("j").state == "deleted"


# Stopping and counting


def test_what_happens_to_a_leg_happens_to_its_join(two: Metastore) -> None:
    two.seal(Change(creates=(new_join("j"), new_join("self", STREAM, STREAM), new_join("fails"))))
    late = {"j#0": 3, "self#0": 1, "self#1": 2}
    run(two, 0, max_time=12, late_by_query=late, failures_by_query={"self#1": 4}, broken={"fails#1": "no", "j#7x": "?"})
    assert [two.query(id).late_rows for id in ("j", "self")] == [3, 3]
    assert two.query("self").failures == 4
    assert (two.query("fails").state, two.query("fails").reason) == ("failed", "no")
    two.set_failed(leg_member("self", 1), "too slow")
    assert (two.query("self").state, two.query("self").reason) == ("failed", "too slow")


# Deleting


def test_a_join_that_has_seen_no_batch_is_gone_at_once(two: Metastore, clock: Clock) -> None:
    run(two, 0, max_time=12)
    run(two, 0, max_time=12, stream=ADS)
    two.seal(Change(creates=(new_join("j"), new("q"))))
    clock.now = 77
    two.seal(Change(deletes=("j", "q")))
    record = two.query("j")
    assert (record.state, record.ended_at, record.deleted_epoch, record.last_batch) == ("deleted", 77, 2, 0)
    assert [(leg.last_batch, leg.closes_at) for leg in record.legs] == [(0, 10 * SECOND)] * 2
    assert (two.joins(), two.frontiers(STREAM)) == ([], [])


def test_a_failed_join_is_gone_at_once(two: Metastore) -> None:
    two.seal(Change(creates=(new_join("j"),)))
    running = plan(two, 0)
    two.set_failed("j", "too slow")
    two.seal(Change(deletes=("j",)))
    assert (two.query("j").state, two.query("j").reason) == ("deleted", "too slow")
    two.commit_batch(running, result(12))
    assert two.query("j").state == "deleted"


#  purchases   0 (10)          │           1 (40)
#  ads                 0 (20)  │  1 (50)
#  the join fires up to 10: of what purchases closed before the deletion
def test_a_deleted_join_fires_what_its_batches_closed_and_no_more(two: Metastore, clock: Clock) -> None:
    two.seal(Change(creates=(new_join("j"),)))
    run(two, 0, max_time=12)
    run(two, 0, max_time=22, stream=ADS)
    two.seal(Change(deletes=("j",)))
    record = two.query("j")
    assert (record.state, record.closes_at, record.last_batch) == ("deleting", 10 * SECOND, 0)
    assert [leg.closes_at for leg in record.legs] == [10 * SECOND, 20 * SECOND]
    run(two, 1, max_time=52, stream=ADS)
    run(two, 1, max_time=42)
    assert [f.closes_at for name in (STREAM, ADS, BOTH) for f in two.frontiers(name)] == [10 * SECOND] * 3
    with pytest.raises(EngineError):
        fire(two, {"j": (START_OF_TIME, 40 * SECOND)})
    clock.now = 55
    fire(two, {"j": (START_OF_TIME, 10 * SECOND)})
    assert (two.query("j").state, two.query("j").ended_at) == ("deleted", 55)


#  purchases   0 (40)      1 ─────────────────── commit (60)
#  ads         0 (20)          │   1 (50)
#  delete                      │
#  while batch 1 of purchases runs, both have closed 40; but the join's ads end at 20
def test_a_join_deleted_while_one_stream_runs_is_bound_by_the_other_at_once(two: Metastore) -> None:
    two.seal(Change(creates=(new_join("j"),)))
    run(two, 0, max_time=42)
    run(two, 0, max_time=22, stream=ADS)
    running = plan(two, 1)
    two.seal(Change(deletes=("j",)))
    assert [leg.closes_at for leg in two.query("j").legs] == [None, 20 * SECOND]
    run(two, 1, max_time=52, stream=ADS)
    with pytest.raises(EngineError):
        fire(two, {"j": (START_OF_TIME, 40 * SECOND)})
    fire(two, {"j": (START_OF_TIME, 12 * SECOND)})
    two.commit_batch(running, result(62))
    record = two.query("j")
    assert (record.state, record.closes_at, record.last_batch) == ("deleting", 20 * SECOND, 1)
    assert [leg.closes_at for leg in record.legs] == [60 * SECOND, 20 * SECOND]
    fire(two, {"j": (12 * SECOND, 20 * SECOND)})
    assert two.query("j").state == "deleted"


#  purchases   0 (40)        │
#  ads              0 ───────│──── commit (20, or none at all)
#  delete                    │
def test_a_deleted_join_waits_for_the_batch_that_runs(two: Metastore) -> None:
    two.seal(Change(creates=(new_join("j"), new_join("k"))))
    run(two, 0, max_time=42)
    running = plan(two, 0, ADS)
    two.seal(Change(deletes=("j",)))
    assert (two.query("j").state, times(two)) == ("deleting", (START_OF_TIME, START_OF_TIME, 40 * SECOND))
    two.commit_batch(running, result(22))
    assert (two.query("j").state, times(two)) == ("deleting", (START_OF_TIME, START_OF_TIME, 20 * SECOND))
    assert times(two, "k") == (START_OF_TIME, START_OF_TIME, None)


def test_a_deleted_join_is_gone_when_the_batch_that_runs_closes_nothing(two: Metastore) -> None:
    two.seal(Change(creates=(new_join("j"),)))
    run(two, 0, max_time=42)
    running = plan(two, 0, ADS)
    two.seal(Change(deletes=("j",)))
    two.commit_batch(running, result(None))
    assert (two.query("j").state, times(two)[2]) == ("deleted", START_OF_TIME)


#  ads         0 ──────────────────────────────── commit (20)
#  purchases        │  0 (40)   │
#  create, delete   │           │
def test_a_leg_without_batches_bounds_its_join_at_its_own_cut(two: Metastore) -> None:
    running = plan(two, 0, ADS)
    two.seal(Change(creates=(new_join("j"),)))
    run(two, 0, max_time=42)
    two.seal(Change(deletes=("j",)))
    assert (two.query("j").state, times(two)) == ("deleting", (None, None, 40 * SECOND))
    two.commit_batch(running, result(22))
    assert (two.query("j").state, times(two)) == ("deleting", (START_OF_TIME, 22 * SECOND, 20 * SECOND))
    fire(two, {"j": (START_OF_TIME, 20 * SECOND)})
    assert two.query("j").state == "deleted"


def test_a_leg_without_batches_whose_stream_has_ended_bounds_nothing(two: Metastore) -> None:
    two.seal(Change(creates=(new_join("j"),)))
    run(two, 0, max_time=42)
    two.flush_stream(ADS)
    two.seal(Change(deletes=("j",)))
    assert (two.query("j").state, times(two)[2]) == ("deleting", 40 * SECOND)


def test_history_forgets_legs(two: Metastore, clock: Clock) -> None:
    two.seal(Change(creates=(new_join("j"), new_join("k"))))
    two.seal(Change(deletes=("j",)))
    clock.now += 1
    assert two.expire_history(clock.now) == ["j"]
    two.seal(Change(creates=(new_join("j"),)))
    assert [len(record.legs) for record in two.queries()] == [2, 2]


def test_a_deletion_goes_on_after_a_restart(two: Metastore, url: str) -> None:
    two.seal(Change(creates=(new_join("j"),)))
    run(two, 0, max_time=42)
    running = plan(two, 0, ADS)
    two.seal(Change(deletes=("j",)))
    again = Metastore.open(url, holder="again")
    with pytest.raises(EngineError, match="taken over"):
        two.commit_batch(running, result(22))
    assert again.plan_batch(ADS, 0, "offsets 0", clock=9) == (running, False)
    again.commit_batch(running, result(22))
    assert times(again) == (START_OF_TIME, START_OF_TIME, 20 * SECOND)
    fire(again, {"j": (START_OF_TIME, 20 * SECOND)})
    assert (again.query("j").state, again.joins()) == ("deleted", [])
    again.close()


# Idle streams and closings


def test_an_idle_streams_watermark_follows(two: Metastore) -> None:
    assert two.advance_idle(STREAM, 5 * SECOND) == 5 * SECOND
    assert run(two, 0, max_time=12) == 10 * SECOND
    assert two.advance_idle(STREAM, 8 * SECOND) == 10 * SECOND
    assert two.advance_idle(STREAM, 30 * SECOND) == 30 * SECOND
    assert two.advance_idle(STREAM, 30 * SECOND) == 30 * SECOND
    assert two.advance_idle(STREAM, 40 * SECOND) == 40 * SECOND
    running = plan(two, 1)
    assert running.watermark == 40 * SECOND
    assert two.advance_idle(STREAM, 50 * SECOND) == 40 * SECOND
    assert two.commit_batch(running, result(22)) == 40 * SECOND
    two.advance_idle(STREAM, 50 * SECOND)
    two.flush_stream(STREAM)
    assert two.advance_idle(STREAM, 60 * SECOND) == END_OF_TIME
    (state, _) = two.streams()
    assert (state.max_time, state.planned) == (22 * SECOND, 1)
    marks = [(-1, 5), (0, 10), (0, 30), (0, 40), (1, 50)]
    # Batch 0 forgets what no query needs.
    assert two.closing(STREAM) == [*((b, m * SECOND) for b, m in marks[1:]), (1, END_OF_TIME)]
    with pytest.raises(CatalogError):
        two.advance_idle("nowhere", 0)


def test_an_idle_stream_lets_its_joins_fire(two: Metastore) -> None:
    run(two, 0, max_time=12, stream=ADS)
    two.seal(Change(creates=(new_join("j"),)))
    run(two, 0, max_time=52)
    two.advance_idle(ADS, 30 * SECOND)
    fire(two, {"j": (START_OF_TIME, 20 * SECOND)})
    two.seal(Change(deletes=("j",)))
    assert (two.query("j").state, times(two)[2]) == ("deleting", 30 * SECOND)
    two.advance_idle(ADS, 40 * SECOND)
    with pytest.raises(EngineError):
        fire(two, {"j": (20 * SECOND, 40 * SECOND)})
    fire(two, {"j": (20 * SECOND, 30 * SECOND)})
    assert two.query("j").state == "deleted"


def test_closings_that_a_join_needs_are_kept(two: Metastore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "PRUNE_EVERY", 1)
    two.seal(Change(creates=(new_join("j"), new("q"))))
    for batch in range(3):
        run(two, batch, max_time=12 + 10 * batch)
    run(two, 0, max_time=22, stream=ADS)
    two.commit_fire(Fire(STREAM, {"q": (START_OF_TIME, 30 * SECOND)}, FireResult()))
    run(two, 3, max_time=42)
    assert two.closing(STREAM) == [(n, (10 + 10 * n) * SECOND) for n in range(4)]
    fire(two, {"j": (START_OF_TIME, 20 * SECOND)})
    running = plan(two, 1, ADS)
    two.seal(Change(creates=(new_join("k"),), deletes=("j",)))
    run(two, 4, max_time=52)
    assert two.closing(STREAM)[0] == (0, 10 * SECOND)  # nobody knows yet what k needs
    two.commit_batch(running, result(32))
    run(two, 5, max_time=62)
    assert two.closing(STREAM)[0] == (2, 30 * SECOND)  # j has yet to fire up to there
    fire(two, {"j": (20 * SECOND, 30 * SECOND)})
    run(two, 6, max_time=72)
    assert two.closing(STREAM)[0] == (3, 40 * SECOND)


def test_closings_of_an_idle_stream_do_not_pile_up(two: Metastore) -> None:
    two.seal(Change(creates=(new_join("j"),)))
    run(two, 0, max_time=1002)
    fired = START_OF_TIME
    for second in range(1, 200):
        two.advance_idle(ADS, second * SECOND)
        fire(two, {"j": (fired, second * SECOND)})
        fired = second * SECOND
    assert len(two.closing(ADS)) <= batches.PRUNE_EVERY + 1
    assert two.closing(ADS)[-1] == (-1, 199 * SECOND)


# Files that answers refer to


def test_what_a_kept_answer_refers_to_is_kept(two: Metastore, url: str) -> None:
    files = tuple(bucket_file(path, 0, bucket(0)) for path in ("b1", "b2", "b3"))
    run(two, 0, max_time=12, files=files, rejects=("dead/1",))
    fire(two, {}, FireResult((referring("a1", "b1", "b2", "b1"), referring("a2", "b2"))))
    assert two.drop_files(["b3", "b1", "dead/1", "forgotten before"]) == ["b3", "dead/1", "forgotten before"]
    assert two.drop_files(["b1", "b2"]) == []
    assert two.buckets(STREAM) == []
    assert two.referenced_files() == {"a1", "a2", "b1", "b2"}
    two.close()
    again = Metastore.open(url, holder="again")
    assert again.buckets(STREAM) == []
    assert again.expire_answers(before_seq=2) == ["a1", "b1"]
    assert again.referenced_files() == {"a2", "b2"}
    assert again.expire_answers(before_seq=3) == ["a2", "b2"]
    assert again.referenced_files() == set()
    again.close()


def test_a_bucket_file_in_use_outlives_the_answers_that_refer_to_it(two: Metastore) -> None:
    run(two, 0, max_time=12, files=(bucket_file("b1", 0, bucket(0)),))
    fire(two, {}, FireResult((referring("a1", "b1"),)))
    assert two.expire_answers(before_seq=9) == ["a1"]
    assert [file.path for file in two.buckets(STREAM)] == ["b1"]
    assert two.drop_files(["b1"]) == ["b1"]


def test_a_file_that_compaction_empties_is_kept_for_its_answers(two: Metastore) -> None:
    old = (bucket_file("b1", 0, bucket(0)), bucket_file("b2", 0, bucket(0)))
    run(two, 0, max_time=12, files=old)
    merged = bucket_file("c1", 0, bucket(0))
    report = FireResult((referring("a1", "b1"),), compacted=(merged,), replaced=(("b1", 0), ("b2", 0)))
    fire(two, {}, report)
    assert two.drop_files(["b1", "b2"]) == ["b2"]
    assert two.buckets(STREAM) == [merged]
    assert two.referenced_files() == {"a1", "b1", "c1"}
    assert two.expire_answers(before_seq=9) == ["a1", "b1"]
    assert two.referenced_files() == {"c1"}


def test_group_versions_are_kept_for_answers(two: Metastore) -> None:
    two.seal(Change(versions=(version(1), version(1, group="g2"))))
    two.seal(Change(versions=(version(2), version(2, group="g2"))))
    fire(two, {}, FireResult((referring("a1", version(1).path),)))
    assert two.expire_versions(STREAM) == [version(1, group="g2").path]
    assert version(1).path in two.referenced_files()
    assert two.expire_versions(STREAM) == []
    assert two.expire_answers(before_seq=9) == ["a1"]
    assert two.expire_versions(STREAM) == [version(1).path]


def test_a_fire_that_is_refused_refers_to_nothing(two: Metastore) -> None:
    two.seal(create("q"))
    with pytest.raises(EngineError):
        fire(two, {"q": (START_OF_TIME, 0)}, FireResult((referring("a1", "b1"),)))
    assert two.drop_files(["b1"]) == ["b1"]


def test_what_an_answer_refers_to_survives_its_text() -> None:
    assert codec.loads(codec.dumps(referring("a", "b", "c"))) == referring("a", "b", "c")
    assert "refers" not in codec.dumps(answer_file("a"))


def test_hundreds_of_joins_are_created_and_deleted_together(two: Metastore) -> None:
    ids = [f"j{number}" for number in range(1500)]
    running = plan(two, 0)
    two.seal(Change(creates=tuple(new_join(id) for id in ids)))
    two.commit_batch(running, result(12))
    assert {record.fired_to for record in two.queries()} == {START_OF_TIME}
    assert len(two.frontiers(STREAM)) == len(ids)
    run(two, 1, max_time=22)
    two.seal(Change(deletes=tuple(ids)))
    assert {record.state for record in two.queries()} == {"deleted"}  # ads have closed nothing
