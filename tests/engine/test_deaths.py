"""Batches that end the whole engine, with nobody left to see it: who is found out, and who is not blamed.

engine 1, 2, 3   batch 0 ─X                               runs
engine 4, 5      batch 0, all, alone ─X                   trial 1, twice
engine 6         batch 0 without the newest ── passes     all, once more ─X
engine 7         batch 0 without the newest ── passes     and is committed
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from millstream.engine.isolation import Gate
from millstream.engine.quarantine import DEATHS_IN_TRIAL, MOST_DEATHS
from millstream.model.plan import BatchResult
from millstream.runtime.worker import IngestTask
from tests.catalog.builders import ADS, join

from .test_quarantine import STREAM, Killed, World, Worlds, expected, members, worlds

__all__ = ["worlds"]


def deadly(world: World, *culprits: str, error: BaseException | None = None) -> World:
    world.culprits, world.error = set(culprits), error or Killed()
    return world


def die(worlds: Worlds, *culprits: str, error: BaseException | None = None, most: int = 50) -> tuple[World, int]:
    """Start engines until one survives batch 0; gives it, and how many have died."""
    for deaths in range(most):
        world = deadly(worlds.start(), *culprits, error=error)
        try:
            world.process(0)
        except (Killed, Py4JNetworkError):
            continue
        return world, deaths
    raise AssertionError("no end")


@pytest.mark.parametrize("error", [Killed(), Py4JNetworkError("Answer from Java side is empty")])
def test_a_query_that_ends_the_engine_or_its_jvm_is_found(worlds: Worlds, error: BaseException) -> None:
    worlds.start().create(*"abcd")
    world, deaths = die(worlds, "c", error=error)
    assert {id: world.state(id) for id in "abcd"} == {"a": "running", "b": "running", "c": "failed", "d": "running"}
    assert deaths > MOST_DEATHS + DEATHS_IN_TRIAL
    reason = world.store.query("c").reason
    assert reason == "QUARANTINED: left out of batch 0 of purchases, which failed with the death of the engine"
    world.process(1)
    while world.firing.fire(world.pipelines[STREAM]):
        pass
    assert world.sums("a") == expected(0, 17)
    assert world.tried[-1] == set("abd")


def test_the_first_deaths_are_runs_and_then_everybody_is_tried_alone(worlds: Worlds) -> None:
    worlds.start().create("a")
    for _ in range(MOST_DEATHS + DEATHS_IN_TRIAL):
        world = deadly(worlds.start(), "a")
        with pytest.raises(Killed):
            world.process(0)
        assert world.tried == [{"a"}]
    world = deadly(worlds.start(), "a")
    with pytest.raises(Killed):
        world.process(0)
    assert world.tried == [set(), {"a"}]
    world = deadly(worlds.start(), "a")
    world.process(0)
    assert world.tried == [set()]
    assert world.state("a") == "failed"


def test_who_passes_once_the_kills_from_outside_are_over_is_not_stopped(worlds: Worlds) -> None:
    """Five engines are killed in the same batch: it passes without the newest query, and then with it as well."""
    worlds.start().create("a", "b")
    for _ in range(MOST_DEATHS + DEATHS_IN_TRIAL):
        with pytest.raises(Killed):
            deadly(worlds.start(), "a", "b").process(0)
    killed = worlds.start()
    calls = []

    def killed_before_the_commit(*arguments: Any) -> None:
        calls.append(arguments)
        raise Killed

    # The next one is killed too, between the trial with everybody, which passes, and the commit.
    killed.store.commit_batch = killed_before_the_commit  # type: ignore[method-assign, assignment]
    with pytest.raises(Killed):
        killed.process(0)
    assert calls
    assert killed.tried[-1] == {"a", "b"}
    world = worlds.start()
    world.process(0)
    assert (world.state("a"), world.state("b")) == ("running", "running")
    assert world.tried[-1] == {"a", "b"}


def test_a_failure_that_is_seen_says_more_than_deaths(worlds: Worlds) -> None:
    """Engines are killed from outside in a batch that fails anyway, and once more between two trials."""
    worlds.start().create(*"abcd")
    for _ in range(MOST_DEATHS):
        with pytest.raises(Killed):
            deadly(worlds.start(), "a").process(0)
    world = deadly(worlds.start(), "c", error=MemoryError("too much"))
    begin, begun = world.store.begin_trial, []

    def killed_at_the_third(*arguments: Any) -> int:
        begun.append(begin(*arguments))
        if len(begun) == 3:
            raise Killed
        return begun[-1]

    world.store.begin_trial = killed_at_the_third  # type: ignore[method-assign]
    with pytest.raises(Killed):
        world.process(0)
    world = deadly(worlds.start(), "c", error=MemoryError("too much"))
    world.process(0)
    reason = world.store.query("c").reason
    assert reason == "QUARANTINED: left out of batch 0 of purchases, which failed with MemoryError: too much"
    assert {world.state(id) for id in "abd"} == {"running"}


def test_deaths_from_outside_in_a_trial_stop_no_neighbour_of_the_culprit(worlds: Worlds) -> None:
    """The newest fails the batch while the engine lives. The trial without it would pass, but two engines are killed in
    it, so that it takes both to pass at first."""
    worlds.start().create("old")
    worlds.start().create("bad")
    world = deadly(worlds.start(), "bad", error=MemoryError("too much"))
    for _ in range(DEATHS_IN_TRIAL):
        ingest = world.ingest

        def killed(task: IngestTask, ingest: Any = ingest, world: World = world) -> BatchResult:
            if members(task) == {"old"}:
                raise Killed
            result: BatchResult = ingest(task)
            return result

        world.ingest = killed  # type: ignore[method-assign]
        with pytest.raises(Killed):
            world.process(0)
        world = deadly(worlds.start(), "bad", error=MemoryError("too much"))
    world.process(0)
    assert (world.state("old"), world.state("bad")) == ("running", "failed")
    assert world.tried == [{"bad"}, {"old"}]


def test_deaths_that_do_not_come_back_stop_nobody(worlds: Worlds) -> None:
    worlds.start().create("a", "b")
    for _ in range(MOST_DEATHS + DEATHS_IN_TRIAL - 1):
        with pytest.raises(Killed):
            deadly(worlds.start(), "a").process(0)
    world = worlds.start()
    world.process(0)
    assert (world.state("a"), world.state("b")) == ("running", "running")
    assert world.tried == [{"a", "b"}]


def test_orderly_stops_in_the_middle_of_a_batch_do_not_count(worlds: Worlds) -> None:
    worlds.start().create("a")
    for _ in range(12):
        world = deadly(worlds.start(), "a")
        with pytest.raises(Killed):
            world.process(0)
        world.store.record_stop()
    assert all(trial.passed is None for trial in world.store.trials(STREAM, 0))
    assert world.tried == [{"a"}]
    assert world.state("a") == "running"


def test_when_every_engine_dies_whoever_is_left_out_nobody_is_blamed(worlds: Worlds) -> None:
    worlds.start().create("a", "b")
    for _ in range(30):
        world = worlds.start()

        def killed(task: object) -> None:
            raise Killed

        world.ingest = killed  # type: ignore[method-assign, assignment]
        with pytest.raises((Killed, RuntimeError)):
            world.process(0)
    assert (world.state("a"), world.state("b")) == ("running", "running")


def test_the_batch_of_another_stream_that_dies_with_it_is_innocent(worlds: Worlds) -> None:
    """Both streams have a batch under way whenever the engine dies."""
    worlds.start().create("bad")
    worlds.start().create("both", query=join(ADS, ADS))
    for _ in range(MOST_DEATHS):
        world = worlds.start()
        for name in (ADS, STREAM):
            deadly(world, "bad", "both")
            with pytest.raises(Killed):
                world.process(0, name)
    world = worlds.start()
    world.process(0, ADS)
    assert world.tried == [{"both"}], "everybody is tried first, alone"
    assert world.state("both") == "running"
    world, _ = die(worlds, "bad")
    assert (world.state("bad"), world.state("both")) == ("failed", "running")


def test_a_batch_that_runs_for_the_first_time_is_not_written_down(worlds: Worlds) -> None:
    world = worlds.start()
    world.create("a")
    world.process(0)
    assert world.store.trials(STREAM, 0) == []


def test_whoever_is_alone_waits_for_the_others_and_keeps_them_out() -> None:
    gate, order = Gate(), list[str]()
    entered, may_leave, alone_waits = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with gate.shared():
            entered.set()
            may_leave.wait(10)
            order.append("first")

    def alone() -> None:
        alone_waits.set()
        with gate.alone():
            order.append("alone")

    def later() -> None:
        with gate.shared():
            order.append("later")

    threads = [threading.Thread(target=target) for target in (first, alone, later)]
    threads[0].start()
    entered.wait(10)
    threads[1].start()
    alone_waits.wait(10)
    while gate._alone == 0:
        pass
    threads[2].start()
    may_leave.set()
    for thread in threads:
        thread.join(10)
    assert order == ["first", "alone", "later"]
