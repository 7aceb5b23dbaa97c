"""A fire that catches up goes through time in steps, and answers what it would answer at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.errors import DamagedFile
from millstream.kernels.stack import Stack
from millstream.model.types import TIMESTAMP
from millstream.runtime import join_fire
from millstream.runtime.fire import BucketRef
from millstream.runtime.home import Home
from millstream.runtime.join_fire import JoinDue, JoinItem, JoinLeg, LegSource, Pace, steps

from .inprocess import COPIES, PURCHASES, Small, pairs, rows

BATCHES = 12
Pages = dict[tuple[str, int], list[tuple[int, int]]]


def _caught_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> tuple[Pages, int]:
    """The rows of every window of three joins after one fire over all of the input, and the most slices that a stack
    was told to expect."""
    monkeypatch.setattr(join_fire, "PACE", Pace(step, 0))
    expected: list[int] = []
    known = Stack.expect

    def expect(self: Stack, slices: int) -> None:
        expected.append(slices)
        known(self, slices)

    monkeypatch.setattr(Stack, "expect", expect)
    small = Small(tmp_path / f"home-{step}", tmp_path, PURCHASES, COPIES)
    for size in (1, 2, 5):
        small.create(f"of-{size}", pairs(size))
    for number in range(BATCHES):
        small.batch(number)
        small.batch(number, COPIES)
    small.core.fire_all()
    found: Pages = {}
    for size in (1, 2, 5):
        for answer in small.answers(f"of-{size}"):
            assert answer.window_end is not None
            end = int(answer.window_end.timestamp())
            assert (f"of-{size}", end) not in found
            found[f"of-{size}", end] = sorted((row["price"], row["copy"]) for row in rows(answer.table))
    small.close()
    monkeypatch.undo()
    return found, max(expected)


def test_steps_answer_what_one_fire_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, slices = _caught_up(tmp_path, monkeypatch, 10**6)
    assert whole["of-5", 5] == [(number, number) for number in range(50)]
    assert len(whole) > 40
    assert slices > 20
    for step in (1, 4):
        found, slices = _caught_up(tmp_path, monkeypatch, step)
        assert found == whole
        assert slices <= max(step, 5) + 1, "no stack has more at once than a step needs"


def test_a_file_that_cannot_be_read_in_a_later_step_holds_back_the_whole_item(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a second look finds nothing wrong with it."""
    monkeypatch.setattr(join_fire, "PACE", Pace(1, 0))
    small = Small(tmp_path / "home", tmp_path, PURCHASES, COPIES)
    small.create("pairs", pairs())
    for number in range(4):
        small.batch(number)
        small.batch(number, COPIES)
    known, asked = join_fire._source, []

    def source(home: Home, leg: JoinLeg) -> LegSource:
        asked.append(leg)
        if len(asked) == 5:
            raise DamagedFile("buckets/x", "is altered")
        return known(home, leg)

    monkeypatch.setattr(join_fire, "_source", source)
    small.core.fire_all()
    assert len(asked) > 5, "it was tried again"
    ends = [answer.window_end.timestamp() for answer in small.answers("pairs") if answer.window_end]
    assert ends == sorted(set(ends)) == [2.0, 4.0, 6.0, 8.0]
    small.close()


def _item(ends: list[int], after: int, upto: int) -> JoinItem:
    form = pairs(1)
    refs = tuple(BucketRef(0, "f", 0, 1, end - 1, end, 0, None) for end in ends)
    return JoinItem((form,), (JoinDue("q", 0, after, upto, None),), (JoinLeg(("v",), refs, 0),), TIMESTAMP)


def test_steps_cover_the_time_from_the_earliest_to_the_latest_window() -> None:
    pace = Pace(3, 20)
    one = [_item(list(range(1, 9)), 0, 8)]
    assert list(steps(one, 1, 100, pace)) == [(0, 3), (3, 6), (6, 8)]
    assert list(steps(one, 1, 4, pace)) == [(0, 5), (5, 8)]
    assert list(steps(one, 1, 1, pace)) == [(0, 8)]
    assert list(steps([_item([], 0, 8)], 1, 100, pace)) == [(0, 8)]
    assert list(steps([_item([5], -(2**63), 8)], 1, 100, pace)) == [(-(2**63), 8)]
    # Items of one task share stacks, so they go in step; windows of four slices would be read again in shorter ones.
    both = [_item(list(range(1, 13)), 4, 12), _item([20], 10, 20)]
    assert list(steps(both, 4, 100, pace)) == [(4, 8), (8, 12), (12, 20)]
    assert list(steps([_item(list(range(1, 13)), -(2**63), 12)], 4, 100, pace)) == [(-(2**63), 4), (4, 8), (8, 12)]
