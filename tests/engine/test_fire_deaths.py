"""Fires that end the whole engine, with nobody left to see it: who is found out, and who is not blamed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from py4j.protocol import Py4JNetworkError

from millstream.catalog.metastore import joined_stream
from millstream.engine import firing
from millstream.engine.joining import Joining
from millstream.engine.quarantine import DEATHS_IN_TRIAL, MOST_DEATHS
from millstream.model.expression import Column
from millstream.model.plan import FireResult
from millstream.model.types import LONG
from millstream.runtime.fire import FireTask
from millstream.runtime.join_fire import JoinTask
from tests.catalog.builders import ADS, join, windowed

from .test_quarantine import STREAM, Killed, World, Worlds, _run, expected, worlds

__all__ = ["worlds"]

Fired = list[set[str]]


def due_in(tasks: Sequence[FireTask | JoinTask]) -> set[str]:
    return {one.query for task in tasks for item in task.items for one in item.due}


def deadly(world: World, *culprits: str, error: BaseException | None = None) -> Fired:
    """Let fires of these queries end the engine; gives the queries of each fire, as they come."""
    fired: Fired = []

    def run(tasks: Sequence[FireTask | JoinTask]) -> tuple[list[FireResult], dict[str, float]]:
        fired.append(due_in(tasks))
        if fired[-1] & set(culprits):
            raise error or Killed()
        return _run(tasks)

    world.firing._run = run
    return fired


def fire_all(world: World) -> None:
    while world.firing.fire(world.pipelines[STREAM]):
        pass


def begun(worlds: Worlds, *ids: str) -> World:
    """An engine with some queries and two batches, so that windows are due."""
    world = worlds.start()
    world.create(*ids)
    world.process(0)
    world.process(1)
    return world


def die(worlds: Worlds, *culprits: str, error: BaseException | None = None) -> tuple[World, list[Fired]]:
    """Start engines until one survives its fires; gives it, and what each has fired."""
    lives: list[Fired] = []
    for _ in range(50):
        world = worlds.start()
        lives.append(deadly(world, *culprits, error=error))
        try:
            fire_all(world)
        except (Killed, Py4JNetworkError):
            continue
        return world, lives
    raise AssertionError("no end")


@pytest.mark.parametrize("error", [Killed(), Py4JNetworkError("Answer from Java side is empty")])
def test_a_query_whose_fire_ends_the_engine_or_its_jvm_is_found(worlds: Worlds, error: BaseException) -> None:
    begun(worlds, *"abcdef")
    world, lives = die(worlds, "d", error=error)
    assert {id: world.state(id) for id in "abcdef"} == {id: "failed" if id == "d" else "running" for id in "abcdef"}
    assert world.store.query("d").reason == "QUARANTINED: its windows cannot be fired: the death of the engine"
    assert world.sums("d") == {}
    for id in "abcef":
        assert world.sums(id) == expected(0, 17)
    assert world.store.fire_trials() == []
    assert all(life[0] == set("abcdef") for life in lives[:MOST_DEATHS])
    assert lives[MOST_DEATHS][0] == set("abc"), "then halves, and what passes is published"
    world.process(2)
    fire_all(world)
    assert world.sums("a") == expected(0, 27)


def test_two_culprits_are_found_one_after_the_other(worlds: Worlds) -> None:
    begun(worlds, *"abcd")
    world, _ = die(worlds, "b", "c")
    assert {id: world.state(id) for id in "abcd"} == {"a": "running", "b": "failed", "c": "failed", "d": "running"}
    assert world.sums("a") == world.sums("d") == expected(0, 17)


def test_the_only_query_needs_two_deaths_alone_and_one_after_a_fire_of_nothing(worlds: Worlds) -> None:
    begun(worlds, "a")
    world, lives = die(worlds, "a")
    assert world.state("a") == "failed"
    assert len(lives) == MOST_DEATHS + DEATHS_IN_TRIAL + 2
    assert lives[-2:] == [[set(), {"a"}], []]


@pytest.mark.parametrize("ids", ["a", "ab"])
def test_who_passes_once_the_kills_from_outside_are_over_is_not_stopped(worlds: Worlds, ids: str) -> None:
    """Engines are killed in the fire of the first until it would be stopped."""
    begun(worlds, *ids)
    for _ in range(MOST_DEATHS + DEATHS_IN_TRIAL):
        world = worlds.start()
        deadly(world, "a")
        with pytest.raises(Killed):
            fire_all(world)
    world, lives = die(worlds)
    assert lives == [[set(ids) - {"a"}, {"a"}]]
    for id in ids:
        assert world.state(id) == "running"
        assert world.sums(id) == expected(0, 17)
    assert world.store.fire_trials() == []


def test_windows_that_come_due_between_deaths_do_not_hide_the_culprit(worlds: Worlds) -> None:
    begun(worlds, "a", "bad")
    for batch in range(2, 2 + MOST_DEATHS):
        world = worlds.start()
        world.create(f"new{batch}")
        world.process(batch)
        deadly(world, "bad")
        with pytest.raises(Killed):
            fire_all(world)
    assert len({row.queries for row in world.store.fire_trials()}) > 1
    world, lives = die(worlds, "bad")
    before = set().union(*(fired for life in lives[:-2] for fired in life))
    assert before <= {"a", "bad", "new2"}, "only those in all the deaths are under suspicion"
    assert (world.state("a"), world.state("bad")) == ("running", "failed")
    assert {world.state(f"new{batch}") for batch in range(2, 2 + MOST_DEATHS)} == {"running"}


def test_deaths_that_do_not_come_back_stop_nobody(worlds: Worlds) -> None:
    begun(worlds, "a", "b")
    for _ in range(MOST_DEATHS + DEATHS_IN_TRIAL - 1):
        world = worlds.start()
        deadly(world, "a")
        with pytest.raises(Killed):
            fire_all(world)
    world, lives = die(worlds)
    assert (world.state("a"), world.state("b")) == ("running", "running")
    assert world.sums("a") == world.sums("b") == expected(0, 17)
    assert lives == [[{"a"}, {"b"}]]
    assert world.store.fire_trials() == []


def test_orderly_stops_in_the_middle_of_a_fire_do_not_count(worlds: Worlds) -> None:
    begun(worlds, "a")
    for _ in range(12):
        world = worlds.start()
        deadly(world, "a")
        with pytest.raises(Killed):
            fire_all(world)
        world.store.record_stop()
    world, lives = die(worlds)
    assert lives == [[{"a"}]]
    assert world.state("a") == "running"


def test_a_fire_that_fails_and_is_repeated_is_no_death(worlds: Worlds) -> None:
    begun(worlds, "a")
    world = worlds.start()
    deadly(world, "a", error=OSError(28, "No space left on device"))
    for _ in range(5):
        with pytest.raises(OSError, match="No space"):
            fire_all(world)
        assert world.store.fire_trials() == []
    deadly(world)
    fire_all(world)
    assert world.store.fire_trials() == []
    assert world.sums("a") == expected(0, 17)


@pytest.mark.parametrize("ids", ["a", "abc"])
def test_engines_that_die_whatever_they_fire_stop_nobody(worlds: Worlds, ids: str) -> None:
    """As when the memory of the machine has been cut: a fire of nothing is as deadly."""
    begun(worlds, *ids)
    for _ in range(60):
        world = worlds.start()

        def run(tasks: Sequence[FireTask | JoinTask]) -> tuple[list[FireResult], dict[str, float]]:
            raise Killed

        world.firing._run = run
        with pytest.raises(Killed):
            fire_all(world)
        assert len(world.store.fire_trials()) <= MOST_DEATHS + 2 * DEATHS_IN_TRIAL * len(ids) + 1
    world, _ = die(worlds)
    for id in ids:
        assert world.state(id) == "running"
        assert world.sums(id) == expected(0, 17)


def test_others_that_come_due_between_deaths_alone_do_not_hide_the_culprit(worlds: Worlds) -> None:
    """New queries, and halves that have passed, make each half another one."""
    rng = random.Random(5)
    ids = [f"q{number:02}" for number in range(16)]
    begun(worlds, *ids)
    batch = 1
    for starts in range(1, 20):
        world = worlds.start()
        deadly(world, "q11")
        try:
            fire_all(world)
            break
        except Killed:
            world.create(f"r{starts:02}")
            if rng.random() < 0.5:
                batch += 1
                world.process(batch)
    assert starts <= MOST_DEATHS + 2 * DEATHS_IN_TRIAL * 4
    assert [id for id in ids if world.state(id) != "running"] == ["q11"]


def test_without_a_death_nothing_is_written(worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    def written(self: object, *args: object) -> int:
        raise AssertionError("written down")

    monkeypatch.setattr("millstream.catalog.metastore.Metastore.begin_fire_trial", written)
    world = begun(worlds, "a")
    fire_all(world)
    world.store.record_stop()
    world = worlds.start()
    world.process(2)
    fire_all(world)
    assert world.sums("a") == expected(0, 27)


def test_joins_are_judged_by_their_streams(worlds: Worlds) -> None:
    world = begun(worlds, "sum")
    for id in ("j", "bad"):
        world.create(id, query=join(STREAM, ADS))
    for batch in (0, 1, 2):
        world.process(batch, ADS)
    for batch in (2, 3):
        world.process(batch)
    name = joined_stream([STREAM, ADS])
    for _ in range(50):
        world = worlds.start()
        fired = deadly(world, "bad")
        fire_all(world)
        try:
            while Joining(world.store, world.registry, world.firing, world.pipelines).fire(name):
                pass
            break
        except Killed:
            assert fired[-1] & {"bad"}
    assert {id: world.state(id) for id in ("sum", "j", "bad")} == {"sum": "running", "j": "running", "bad": "failed"}
    assert world.store.query("j").windows > 0


def test_after_a_death_all_that_is_due_fires_at_once(worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    """A light step that passes would say that fires of the stream are harmless, before the heavy one has come."""
    monkeypatch.setattr(firing, "LIGHT", 1)
    monkeypatch.setattr(firing, "HEAVIER", 0)
    world = begun(worlds, "light")
    world.create("heavy", "bad", query=replace(windowed(), keys=(Column("price", LONG),)))
    world.process(2)
    world.process(3)
    world, lives = die(worlds, "bad")
    assert [fired[0] for fired in lives[:MOST_DEATHS]] == [{"light", "heavy", "bad"}] * MOST_DEATHS
    assert [world.state(id) for id in ("heavy", "light", "bad")] == ["running", "running", "failed"]
    fired = deadly(world)
    world.process(4)
    world.process(5)
    fire_all(world)
    assert fired == [{"light"}, {"heavy"}], "in steps again"
