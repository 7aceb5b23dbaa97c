"""Hundreds of engines that die in one batch: who is stopped in the end, after how many.

The metastore is a list of trials, so that a death takes no time; ``test_deaths.py`` has the real one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.catalog.records import Trial
from millstream.engine.quarantine import DEATHS_IN_TRIAL, Quarantine
from millstream.model.plan import BatchResult
from millstream.runtime.home import Home
from millstream.runtime.worker import IngestTask
from tests.catalog.builders import STREAM, stream

from .test_quarantine import Killed

# Batch 5 is planned again and again; nobody is new to it.
PLAN = SimpleNamespace(epoch=1, stream=STREAM, batch=5)
Left = frozenset[str]


@dataclass
class Books:
    """What the quarantine asks of metastore and registry. Queries are named in the order of their creation."""

    ids: list[str]
    rows: list[Trial] = field(default_factory=list)
    forgotten: int = 0

    def trials(self, *_: Any) -> list[Trial]:
        return list(self.rows)

    def begin_trial(self, _: Any, left_out: Sequence[str], made: Any) -> int:
        self.rows.append(Trial(len(self.rows), tuple(left_out), None, None))
        return len(self.rows) - 1

    def end_trial(self, _: Any, number: int, error: str | None) -> None:
        self.rows[number] = Trial(number, self.rows[number].left_out, error is None, error)

    def forget_trials(self, *_: Any) -> None:
        self.rows, self.forgotten = [], self.forgotten + 1

    def stopped_at(self) -> None:
        return None

    def streams(self) -> list[Any]:
        return [SimpleNamespace(stream=stream(), planned=5, committed=4)]

    def queries(self) -> list[Any]:
        return [SimpleNamespace(id=id, legs=(), first_batch=0) for id in self.ids]

    def queries_of(self, *_: Any) -> set[str]:
        return set(self.ids)

    def without(self, epoch: int, name: str, left_out: Left) -> tuple[tuple[str, ...], tuple[()]]:
        return tuple(id for id in self.ids if id not in left_out), ()


def stopped(number: int, killers: Left, outside: Callable[[Left], bool] = lambda left_out: False) -> set[str]:
    """Start engines until one commits the batch. ``outside`` says whether a run without some is killed from outside."""
    books = Books([f"q{i:03d}" for i in range(number)])

    def ingest(task: IngestTask) -> BatchResult:
        here = frozenset(task.versions)
        if here & killers or outside(frozenset(books.ids) - here):
            raise Killed
        return BatchResult(0, 0, None, 0, 0)

    task = IngestTask(Home("nowhere"), stream(), 5, None, 0, tuple(books.ids))
    for _ in range(300):
        quarantine = Quarantine(books, books, Home("nowhere"))  # type: ignore[arg-type]
        try:
            return set(quarantine.run(PLAN, task, ingest)[1].broken)  # type: ignore[arg-type]
        except Killed:
            assert not books.forgotten
    raise AssertionError("no end")


@pytest.mark.parametrize(("number", "killers"), [(1, 1), (20, 1), (20, 3), (1000, 1), (1000, 4), (24, 24), (100, 40)])
def test_killers_are_found_however_many(number: int, killers: int) -> None:
    chosen = random.Random(number + killers).sample(range(number), killers)
    guilty = frozenset(f"q{i:03d}" for i in chosen)
    found = stopped(number, guilty)
    # After so many trials the smallest set that has passed is taken as it is.
    assert found == guilty if killers <= 4 else found >= guilty


class Outside:
    """Kills the engines that run without these, from the ``first`` such run on, as often as makes a trial fail."""

    def __init__(self, left_out: Left, first: int = 0) -> None:
        self._left_out, self._skip, self.hits = left_out, first, 0

    def __call__(self, left_out: Left) -> bool:
        if left_out != self._left_out or self.hits == DEATHS_IN_TRIAL:
            return False
        self._skip -= 1
        self.hits += self._skip < 0
        return self._skip < 0


@pytest.mark.parametrize(
    ("number", "guilty", "outside"),
    [
        # In the trial without the culprit, which would pass.
        (2, "q001", Outside(frozenset({"q001"}))),
        # In the same when it is repeated, after it has passed once.
        (2, "q001", Outside(frozenset({"q001"}), first=1)),
        # In a trial without the culprit and another one.
        (4, "q000", Outside(frozenset({"q000", "q001"}))),
    ],
)
def test_kills_from_outside_on_the_way_stop_no_neighbour(number: int, guilty: str, outside: Outside) -> None:
    assert stopped(number, frozenset({guilty}), outside) == {guilty}
    assert outside.hits == DEATHS_IN_TRIAL
