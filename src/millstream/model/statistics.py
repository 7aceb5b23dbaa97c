"""What is measured of a stream while it flows: delays, moments of aggregated values, and rows by class.

Later decisions stand on it: how groups are made, when a window can be answered early, which join goes first. Figures
fade, so that they tell of about the last batches, not of all time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# Delays are counted by powers of two of a millisecond: the last counts all that is longer than about a month.
DELAY_STEPS = 32
# Each batch takes this share away from what was measured before it.
FADING = 1 / 64


@dataclass(frozen=True, slots=True)
class Moments:
    """Of the values of an expression that are not NULL (nor NaN or infinite)."""

    count: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    @property
    def variance(self) -> float:
        return max(self.squares / self.count - self.mean**2, 0.0) if self.count else 0.0


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """Rows by label (class, or member where those are fewer) of one version, and the most keys that a slice had."""

    version: int
    keys: int
    rows: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """``delays[n]`` counts rows that were planned 2^(n-1) to 2^n milliseconds after their event time (n = 0: less than
    one). Moments are by the text of the expression."""

    rows: float = 0.0
    bytes: float = 0.0
    delays: tuple[float, ...] = ()
    moments: dict[str, Moments] = field(default_factory=dict)
    groups: dict[str, GroupFigures] = field(default_factory=dict)

    def delay(self, share: float) -> float:
        """The delay in milliseconds that this share of the rows stays below; an upper bound within a factor of two.

        >>> Figures(delays=(90.0, 0.0, 0.0, 10.0)).delay(0.5), Figures(delays=(90.0, 0.0, 0.0, 10.0)).delay(0.99)
        (1.0, 8.0)
        """
        left = share * sum(self.delays)
        for step, count in enumerate(self.delays):
            left -= count
            if left <= 0:
                return float(2**step)
        return 0.0


def together(parts: Iterable[Figures]) -> Figures:
    """The figures of the tasks of one batch."""
    total = Figures()
    for part in parts:
        total = _added(total, part, 1.0)
    return total


def faded(old: Figures, new: Figures) -> Figures:
    """What is known after one more batch."""
    return _added(old, new, 1.0 - FADING)


def _added(old: Figures, new: Figures, share: float) -> Figures:
    return Figures(
        old.rows * share + new.rows,
        old.bytes * share + new.bytes,
        _sum(old.delays, new.delays, share),
        _moments(old.moments, new.moments, share),
        _groups(old.groups, new.groups, share),
    )


def _sum(old: tuple[float, ...], new: tuple[float, ...], share: float) -> tuple[float, ...]:
    length = max(len(old), len(new))
    return tuple((old[i] * share if i < len(old) else 0.0) + (new[i] if i < len(new) else 0.0) for i in range(length))


def _moments(old: Mapping[str, Moments], new: Mapping[str, Moments], share: float) -> dict[str, Moments]:
    """Expressions that no query asks for any more are forgotten with the batch that has none of them."""
    found = {}
    for name, one in new.items():
        before = old.get(name, Moments())
        found[name] = Moments(
            before.count * share + one.count, before.total * share + one.total, before.squares * share + one.squares
        )
    return found or dict(old)


def _groups(old: Mapping[str, GroupFigures], new: Mapping[str, GroupFigures], share: float) -> dict[str, GroupFigures]:
    found = dict(old) if share == 1.0 else {name: old[name] for name in old if name in new}
    for name, one in new.items():
        before = found.get(name)
        if before is None or before.version != one.version:
            found[name] = one
        else:
            rows = _sum(before.rows, one.rows, share)
            found[name] = GroupFigures(one.version, max(one.keys, before.keys if share == 1.0 else 0), rows)
    return found
