"""Light fires do not wait for heavy ones: groups of a stream fire in steps, each published by itself. No Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from millstream.engine import firing
from millstream.engine.firing import LIGHT, DueSet, in_steps
from millstream.model.plan import FireResult
from millstream.runtime.fire import DueQuery, FireTask
from millstream.runtime.join_fire import JoinTask

from .inprocess import PURCHASES, Small, count, sums


def due(**groups: int) -> DueSet:
    """Groups with so many queries each, named after their group."""
    by_group = {g: [DueQuery(f"{g}{n}", 0, 10, None) for n in range(many)] for g, many in groups.items()}
    return DueSet({one.query: (0, 10) for queries in by_group.values() for one in queries}, by_group)


@pytest.mark.parametrize(
    ("weights", "steps"),
    [
        ((1, 2, 3), [{"a0", "b0", "c0"}]),
        ((LIGHT, LIGHT, 3), [{"a0", "b0", "c0"}]),
        ((9 * LIGHT, 1, 2), [{"b0", "c0"}, {"a0"}]),
        ((9 * LIGHT, 4 * LIGHT, 1), [{"c0"}, {"b0"}, {"a0"}]),
        ((16 * LIGHT, 8 * LIGHT, 1), [{"c0"}, {"a0", "b0"}]),
    ],
)
def test_a_group_waits_for_nothing_heavier_than_all_that_fire_before(
    weights: tuple[int, int, int], steps: list[set[str]]
) -> None:
    found = in_steps(due(a=1, b=1, c=1), dict(zip("abc", weights, strict=True)))
    assert [set(step.moves) for step in found] == steps
    assert [{one.query for queries in step.by_group.values() for one in queries} for step in found] == steps


def test_queries_without_a_due_window_move_with_the_first_step() -> None:
    ended = DueSet({**due(a=2, b=1).moves, "gone": (0, 10)}, due(a=2, b=1).by_group)
    assert [sorted(step.moves) for step in in_steps(ended, {"a": 9 * LIGHT, "b": 1})] == [["b0", "gone"], ["a0", "a1"]]
    assert [sorted(step.moves) for step in in_steps(DueSet({"gone": (0, 10)}, {}), {})] == [["gone"]]
    assert [sorted(step.moves) for step in in_steps(due(a=1), {"a": 9 * LIGHT})] == [["a0"]]


def test_a_heavy_group_is_heavy_also_when_it_is_due_alone() -> None:
    """The light ones that are not due may be before it has been fired."""
    assert [sorted(step.moves) for step in in_steps(due(a=1), {"a": 9 * LIGHT, "b": 1})] == [[], ["a0"]]


def test_light_answers_are_published_while_a_heavy_fire_is_still_to_come(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firing, "LIGHT", 1)
    monkeypatch.setattr(firing, "HEAVIER", 0)
    small = Small(home, tmp_path / "in")
    small.create("light", count())
    small.create("heavy", sums())
    real, fired = small.core.firing._run, []

    def run(tasks: Sequence[FireTask | JoinTask]) -> tuple[list[FireResult], dict[str, float]]:
        queries = {one.query for task in tasks for item in task.items for one in item.due}
        fired.append(queries)
        if "heavy" in queries and len(fired) == 2:
            assert news, "readers have been told of the light ones"
            raise OSError(28, "no space left")
        return real(tasks)

    monkeypatch.setattr(small.core.firing, "_run", run)
    news: list[None] = []
    monkeypatch.setattr(small.core.firing, "published", lambda: news.append(None))
    small.batch(0)
    small.batch(1)
    with pytest.raises(OSError, match="no space left"):
        small.core.firing.fire(small.core.pipelines[PURCHASES])
    assert fired == [{"light"}, {"heavy"}]
    assert (len(small.answers("light")), len(small.answers("heavy"))) == (2, 0)
    small.core.fire_all()
    assert fired[2:] == [{"heavy"}], "what was published is not fired again"
    assert len(small.answers("heavy")) == 2
    small.close()
