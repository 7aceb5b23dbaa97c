"""Slices: half-open event-time intervals that no window edge of a group's queries cuts.

    window(8 s, 4 s)   |-------|-------|-------|
    window(5 s, 5 s)   |---------|---------|----
    slices             |-------|-|-----|---|---|     edges 0 4 5 8 10 12

An edge is a window's start or end: all ``offset + k * slide`` and all ``offset + size + k * slide``. Each slide gives
at most two arithmetic progressions; the slice of a time starts at the largest edge at or before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millstream.model.query import WindowSpec

IntArray = npt.NDArray[np.int64]

# A batch spanning at most this many units of the grid is located through a table, else through its distinct units.
TABLE_LIMIT = 1 << 20


@dataclass(frozen=True)
class Slicer:
    """The edges of a set of windows. ``progressions`` are (phase, step); ``unit`` divides every edge."""

    progressions: tuple[tuple[int, int], ...]
    unit: int

    @classmethod
    def of(cls, windows: Iterable[WindowSpec]) -> Slicer:
        found = set()
        for window in windows:
            found.add((window.offset % window.slide, window.slide))
            found.add(((window.offset + window.size) % window.slide, window.slide))
        # Where a progression contains another one (0 mod 2 contains 0 mod 4) the other adds no edge.
        kept = [p for p in found if not any(p != q and p[1] % q[1] == 0 and p[0] % q[1] == q[0] for q in found)]
        return cls(tuple(sorted(kept)), math.gcd(*(number for p in kept for number in p)))

    def starts(self, times: IntArray) -> IntArray:
        """The largest edge ≤ each time."""
        best = np.full(times.shape, np.iinfo(np.int64).min)
        for phase, step in self.progressions:
            np.maximum(best, times - (times - phase) % step, out=best)
        return best

    def start(self, time: int) -> int:
        """The largest edge ≤ one time."""
        return max(time - (time - phase) % step for phase, step in self.progressions)

    def end(self, start: int) -> int:
        """The smallest edge > ``start``."""
        return min(start + step - (start - phase) % step for phase, step in self.progressions)

    def locate(self, times: IntArray) -> tuple[IntArray, IntArray]:
        """The distinct slice starts, ascending, and for each time the index of its slice among them."""
        if not len(times):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        low, high = int(times.min()), int(times.max())
        first = low - low % self.unit
        span = (high - first) // self.unit + 1
        if span == 1:
            return self.starts(np.array([first])), np.zeros(len(times), np.int64)
        units = (times - first) // self.unit
        if span <= TABLE_LIMIT:
            starts, slice_of_unit = np.unique(self.starts(first + np.arange(span) * self.unit), return_inverse=True)
            return _used(starts, slice_of_unit[units])
        distinct, back = np.unique(units, return_inverse=True)
        starts, slice_of_unit = np.unique(self.starts(first + distinct * self.unit), return_inverse=True)
        return starts, slice_of_unit[back]

    def edges(self, times: IntArray, most: int) -> tuple[IntArray, IntArray]:
        """Of ascending times: the distinct slice starts, and the places at which their rows begin, with the number of
        times at last. After ``most`` slices it is given up: what is found then is one more than that.

        >>> Slicer(((0, 10),), 10).edges(np.array([3, 7, 12, 35, 36]), most=5)
        (array([ 0, 10, 30]), array([0, 2, 3, 5]))
        """
        starts: list[int] = []
        places = [0]
        while places[-1] < len(times) and len(starts) <= most:
            starts.append(self.start(int(times[places[-1]])))
            places.append(int(np.searchsorted(times, self.end(starts[-1]))))
        return np.array(starts, np.int64), np.array(places, np.int64)


def _used(starts: IntArray, located: IntArray) -> tuple[IntArray, IntArray]:
    """Leave out slices without a row."""
    used = np.bincount(located, minlength=len(starts)) > 0
    if used.all():
        return starts, located
    return starts[used], (np.cumsum(used) - 1)[located]
