"""What is no news: the range in which another measurement of the same thing may lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

# A cell that was measured once has this band to either side: what runs of one cell differ by on a quiet machine.
DEFAULT_BAND = 0.10
# Several runs have the band of their spread, yet never less than this: a few can agree by chance.
LEAST_BAND = 0.03
# Latencies at rates that differ by more are those of different loads.
SAME_RATE = 0.01


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure, and what it may be in truth: of a search anything in its bracket, of a run the figure itself.
    ``rate`` is what a run was asked for; None where the rate is what was searched."""

    value: float
    least: float
    most: float
    rate: float | None = None

    @classmethod
    def exactly(cls, value: float, rate: float | None = None) -> Figure:
        return cls(value, value, value, rate)


@dataclass(frozen=True, slots=True)
class Band:
    """What the measurements of one cell gave: their median, ``least`` and ``most`` that it may be in truth, and the
    range from ``low`` to ``high``, with noise, in which another is no news."""

    middle: float
    least: float
    most: float
    low: float
    high: float
    runs: int
    rates: tuple[float, ...] = ()

    @classmethod
    def of(cls, found: Sequence[Figure]) -> Band:
        """
        >>> once, more = [Figure.exactly(100.0)], [Figure.exactly(value) for value in (90.0, 100.0, 120.0)]
        >>> [(band.low, band.middle, band.high) for band in map(Band.of, (once, more))]
        [(90.0, 100.0, 110.0), (90.0, 100.0, 120.0)]
        >>> searched = Band.of([Figure(100.0, 100.0, 120.0)])
        >>> searched.low, searched.high
        (90.0, 132.0)
        """
        middle, least, most = (
            float(median(values)) for values in zip(*((one.value, one.least, one.most) for one in found), strict=True)
        )
        noise = DEFAULT_BAND if len(found) == 1 else LEAST_BAND
        low = min([*(one.least for one in found), least - abs(least) * noise])
        high = max([*(one.most for one in found), most + abs(most) * noise])
        rates = sorted({one.rate for one in found if one.rate is not None})
        return cls(middle, least, most, low, high, len(found), tuple(rates))

    def holds(self, other: Band) -> bool:
        """Whether the other may in truth be within this noise."""
        return self.low <= other.most and other.least <= self.high

    def at_rate_of(self, other: Band) -> bool:
        """Whether both were asked for the same; also where neither was asked for a rate."""
        if not self.rates or not other.rates:
            return True
        ends = (*self.rates, *other.rates)
        return max(ends) <= min(ends) * (1 + SAME_RATE)
