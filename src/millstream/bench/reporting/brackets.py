"""How well a search knows its rate: between the highest that was sustained and the lowest that was not."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.bench.driving.model import Search
from millstream.bench.tables import NONE
from millstream.cli.output import count


@dataclass(frozen=True, slots=True)
class Bracket:
    """``low`` None: nothing was sustained; ``high`` None: nothing above it failed, so it is a lower bound.
    ``doubt`` is the lowest rate that failed although a higher one was sustained."""

    low: float | None = None
    high: float | None = None
    doubt: float | None = None

    @property
    def least(self) -> float:
        """The lowest that the sustainable rate may be."""
        return min(self.low or 0.0, self.doubt or float("inf"))

    @property
    def most(self) -> float:
        return float("inf") if self.high is None else self.high

    @property
    def width(self) -> float | None:
        """By what share of the lower end the upper is above it; None where an end is missing."""
        return self.high / self.low - 1 if self.low and self.high else None

    @property
    def words(self) -> str:
        """
        >>> Bracket(8.8e6, 9.7e6).words, Bracket(None, 2e6).words, Bracket(3e6).words, Bracket(3e6, 4e6, 2e6).words
        ('8.80M … 9.70M, 10 %', '0 … 2.00M', '3.00M … ?', '3.00M … 4.00M, 33 %, yet not 2.00M')
        """
        ends = f"{count(self.low or 0.0)} … {'?' if self.high is None else count(self.high)}"
        width = "" if self.width is None else f", {self.width * 100:.0f} %"
        return f"{ends}{width}{'' if self.doubt is None else f', yet not {count(self.doubt)}'}"


def bracket_of(search: Search) -> Bracket:
    low = search.best.spec.rate if search.best else None
    failed = sorted(run.spec.rate for run in search.runs if not run.verdict.sustained)
    above = next((rate for rate in failed if low is None or rate >= low), None)
    return Bracket(low, above, next((rate for rate in failed if low is not None and rate < low), None))


def bracket_words(search: Search | None) -> str:
    return NONE if search is None else bracket_of(search).words
