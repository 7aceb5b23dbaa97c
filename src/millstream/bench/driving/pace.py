"""When each row is due. Generators keep this pace whatever the system does, so time in the queue counts."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from millstream.bench.driving.model import RunSpec
from millstream.sources.generators import DEFAULT_START, MICROS


@dataclass(frozen=True, slots=True)
class Pace:
    """Rows due against seconds of the run, a line with bends; ``density`` rows are a second of event time.

    >>> pace = Pace((0.0, 10.0), (100.0, 50.0), density=50)
    >>> pace.due(4.0), pace.due(12.0), pace.moment(1100)
    (400, 1100, 12.0)
    >>> pace.moment_of(DEFAULT_START + 2 * MICROS)
    1.0
    """

    begins: tuple[float, ...]
    rates: tuple[float, ...]
    density: int

    def due(self, at: float) -> int:
        """Rows due by a moment."""
        return round(self._until(at))

    def moment(self, row: float) -> float:
        """When a row is due."""
        totals = [self._until(begin) for begin in self.begins]
        piece = max(0, bisect_right(totals, row) - 1)
        return self.begins[piece] + (row - totals[piece]) / self.rates[piece]

    def moment_of(self, event_time: int) -> float:
        """When rows of an event time, in microseconds, are due."""
        return self.moment((event_time - DEFAULT_START) * self.density / MICROS)

    def event_time(self, at: float) -> int:
        """The event time, in microseconds, of the rows that are due at a moment."""
        return DEFAULT_START + round(self._until(at) * MICROS / self.density)

    def _until(self, at: float) -> float:
        ends = (*self.begins[1:], float("inf"))
        pieces = zip(self.begins, ends, self.rates, strict=True)
        return sum(max(0.0, min(at, end) - begin) * rate for begin, end, rate in pieces)


def pace_of(spec: RunSpec) -> Pace:
    return Pace(
        begins=tuple(at for at, _ in spec.rates),
        rates=tuple(spec.rate * factor for _, factor in spec.rates),
        density=spec.density or max(1, round(spec.rate)),
    )
