"""A query whose fires fail is stopped only while a fire without any query passes. No Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from millstream.engine.isolation import FireFailed, fire_by_halves

from .test_quarantine import STREAM, Fires, World, Worlds, expected


@pytest.fixture
def world(home: Path) -> Iterator[World]:
    made = Worlds(home)
    world = made.start()
    world.create(*"abc")
    for batch in range(2):
        world.process(batch)
    yield world
    world.close()


class Pressed(Fires):
    """All jobs fail, those without a query too, as when memory is taken by somebody else."""

    def __call__(self, tasks: Sequence[Any]) -> Any:
        if self.culprits:
            self.jobs.append({one.query for task in tasks for item in task.items for one in item.due})
            raise self.error
        return super().__call__(tasks)


def test_workers_that_die_without_any_query_stop_nobody(world: World) -> None:
    fires = Pressed({"outside"})
    firing = world.firing_of(fires)
    for _ in range(3):
        with pytest.raises(FireFailed, match="also without any query"):
            firing.fire(world.pipelines[STREAM])
    assert set() in fires.jobs
    assert {world.state(id) for id in "abc"} == {"running"}
    fires.culprits.clear()
    assert firing.fire(world.pipelines[STREAM])
    for id in "abc":
        assert world.sums(id) == expected(0, 17)
    assert not firing.fire(world.pipelines[STREAM])


def test_the_culprit_is_stopped_after_a_control_that_passes(world: World) -> None:
    fires = Fires({"b"})
    firing = world.firing_of(fires)
    assert firing.fire(world.pipelines[STREAM])
    assert {id: world.state(id) for id in "abc"} == {"a": "running", "b": "failed", "c": "running"}
    place = fires.jobs.index(set())
    assert fires.jobs[place - 2 : place] == [{"b"}, {"b"}], "right after it has failed alone, twice"


def test_a_control_that_fails_goes_to_the_caller_and_what_passed_stays() -> None:
    published: list[str] = []

    def fire(queries: Sequence[str]) -> None:
        if "bad" in queries:
            raise FireFailed("poison")
        published.extend(queries)

    def control() -> None:
        raise FireFailed("no memory")

    with pytest.raises(FireFailed, match="no memory"):
        fire_by_halves(["a", "bad"], fire, lambda query, _: pytest.fail(f"{query} is stopped"), control)
    assert published == ["a"]
