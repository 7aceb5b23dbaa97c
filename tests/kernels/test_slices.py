"""Slices: no window edge lies inside one, and every time lies in exactly one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from millstream.kernels import slices as module
from millstream.kernels.slices import Slicer
from millstream.model.query import WindowSpec


def _windows(rng: random.Random) -> list[WindowSpec]:
    found = []
    for _ in range(rng.randint(1, 4)):
        size = rng.randint(1, 30)
        slide = rng.randint(1, size)
        found.append(WindowSpec(size, slide, rng.randrange(slide)))
    return found


def _edges(windows: list[WindowSpec], low: int, high: int) -> list[int]:
    """Every start and end of every window, one by one."""
    found = set()
    for w in windows:
        for k in range((low - w.size) // w.slide - 2, high // w.slide + 2):
            found |= {w.offset + k * w.slide, w.offset + k * w.slide + w.size}
    return sorted(found)


@pytest.mark.parametrize("limit", [1 << 20, 1])
def test_two_thousand_random_window_sets_against_their_edges(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TABLE_LIMIT", limit)
    for seed in range(1000):
        rng = random.Random(seed)
        windows = _windows(rng)
        times = np.array([rng.randint(-100, 100) for _ in range(rng.randint(1, 20))])
        slicer = Slicer.of(windows)
        starts, located = slicer.locate(times)
        edges = _edges(windows, -200, 200)
        for time, index in zip(times, located, strict=True):
            start = int(starts[index])
            assert start == max(e for e in edges if e <= time), (seed, windows, time)
            assert slicer.start(int(time)) == start
            assert slicer.end(start) == min(e for e in edges if e > time), (seed, windows, time)
        assert sorted(set(located)) == list(range(len(starts))), "no slice without a row"
        assert list(starts) == sorted(set(starts))


def test_the_rows_of_each_slice_where_times_ascend() -> None:
    for seed in range(500):
        rng = random.Random(seed)
        slicer = Slicer.of(_windows(rng))
        times = np.sort(np.array([rng.randint(-100, 100) for _ in range(rng.randint(0, 20))], np.int64))
        starts, located = slicer.locate(times)
        found, places = slicer.edges(times, most=len(starts))
        assert found.tolist() == starts.tolist()
        assert np.repeat(np.arange(len(found)), np.diff(places)).tolist() == located.tolist()
        if len(starts) > 1:
            assert len(slicer.edges(times, most=len(starts) - 2)[0]) == len(starts) - 1, "given up"


def test_window_ends_as_spark_aligns_them() -> None:
    """
    time          0   1   2   3   4   5
    window(5, 3)  |-------------------|            ends 2, 5, 8 …
    """
    assert [WindowSpec(5, 3).end_after(t) for t in (1, 2, 4, 5)] == [2, 5, 5, 8]
    assert WindowSpec(10, 10).end_after(-1) == 0
    assert WindowSpec(10, 10, 3).end_after(-8) == -7
    with pytest.raises(ValueError, match="slides by more than 0"):
        WindowSpec(5, 6)
    with pytest.raises(ValueError, match="offset"):
        WindowSpec(5, 5, 5)
