"""The search for the sustainable throughput: start high, lower to what the system took, then bisect."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from millstream.bench.driving.model import RunResult, Search

# A candidate below what an overloaded system took: it also needs room for answering.
BELOW_TAKEN = 0.9
# … but not far below the rate: an overloaded system makes few, large batches, and the last is never counted.
LEAST_STEP = 0.25
# A system that takes nothing at so few rows a second takes nothing at all.
FLOOR = 1000.0
# The search ends when the highest sustained and the lowest unsustained rate are this close.
CLOSE = 1.12
MOST_RUNS = 6
# So many more for a system whose first rate is hundreds of times too high.
MOST_LOWERED = 3


@dataclass(frozen=True, slots=True)
class Bounds:
    """The highest rate known to be sustained, and the lowest known not to be."""

    low: float | None = None
    high: float | None = None

    @property
    def close(self) -> bool:
        return self.low is not None and self.high is not None and self.high / self.low <= CLOSE

    def with_run(self, run: RunResult) -> Bounds:
        rate = run.spec.rate
        if run.verdict.sustained:
            return Bounds(max(rate, self.low or 0.0), self.high if self.high and self.high > rate else None)
        return Bounds(self.low if self.low and self.low < rate else None, min(rate, self.high or rate))

    def next_rate(self, run: RunResult) -> float:
        """After a run: above it where nothing higher has failed, between the bounds where both are known."""
        if self.high is None:
            return run.spec.rate * 2
        if self.low is None:
            taken = max(run.taken_rate * BELOW_TAKEN, run.spec.rate * LEAST_STEP)
            return taken if taken < run.spec.rate else run.spec.rate / 2
        return math.sqrt(self.low * self.high)


def search(title: str, start: float, attempt: Callable[[float], RunResult], most_runs: int = MOST_RUNS) -> Search:
    """Try rates from ``start`` on; ends when the bounds are close, or a run shows that none will be sustained: nothing
    is taken at hardly any rows, or the system could not even begin. All candidates but one that come before the first
    that is sustained are extra, `MOST_LOWERED` of them.

    ``attempt`` runs one candidate.
    """
    runs: list[RunResult] = []
    bounds, rate, lowered = Bounds(), start, 0
    while len(runs) < most_runs + min(MOST_LOWERED, max(0, lowered - 1)):
        run = attempt(rate)
        runs.append(run)
        bounds = bounds.with_run(run)
        lowered += bounds.low is None
        nothing = run.taken_rate <= 0 and not run.verdict.sustained
        if bounds.close or (nothing and (rate <= FLOOR or not run.queue)):
            break
        rate = bounds.next_rate(run)
    return Search(title, tuple(runs))
