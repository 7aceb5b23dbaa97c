"""The arithmetic of measuring: rates after the warm-up, and percentiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# The first quarter of every run is not reported (the driver's rule of the workloads).
WARM_UP = 0.25


@dataclass(frozen=True, slots=True)
class Commit:
    """A micro-batch: when it was committed (seconds of any clock) and the rows it took."""

    at: float
    rows: int


@dataclass(frozen=True, slots=True)
class Throughput:
    """``input_rate`` is rows a second of the stream; ``overall_rate`` counts a row once for each query it serves."""

    queries: int
    rows: int
    seconds: float

    @property
    def input_rate(self) -> float:
        return self.rows / self.seconds

    @property
    def overall_rate(self) -> float:
        return self.queries * self.input_rate


def throughput(commits: Sequence[Commit], readers: int, queries: int, end: float) -> Throughput:
    """The rate from the first commit at or after the end of the warm-up until ``end``, when all answers were published.

    ``readers`` is how many times the input is read: once for all queries by Millstream, once for each by plain Spark.
    Their commits are one sequence here, and ``rows`` is what is left of it after the warm-up, divided by the readers.

    >>> commits = [Commit(at, 100) for at in (10.0, 11.0, 12.0, 13.0)]
    >>> throughput(commits, readers=1, queries=5, end=13.5)
    Throughput(queries=5, rows=300, seconds=3.5)
    """
    ordered = sorted(commits, key=lambda commit: commit.at)
    total = sum(commit.rows for commit in ordered)
    seen = 0
    for commit in ordered:
        seen += commit.rows
        if commit.rows and seen >= WARM_UP * total and seen < total:
            return Throughput(queries, (total - seen) // readers, end - commit.at)
    raise ValueError("the input came in a single micro-batch: nothing is left after the warm-up")


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of all are not above.

    >>> percentile([5.0, 1.0, 4.0, 2.0, 3.0], 0.5), percentile([1.0, 2.0], 0.99)
    (3.0, 2.0)
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass(frozen=True, slots=True)
class Summary:
    """Latencies in seconds; ``values`` keeps every sample."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return percentile(self.values, 0.5)

    @property
    def p99(self) -> float:
        return percentile(self.values, 0.99)

    @property
    def most(self) -> float:
        return max(self.values)
