"""The figures of a run: latencies after its warm-up, and what it did over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import median
from typing import Literal

import numpy as np

from millstream.bench.driving.model import WARM_UP, Deployment, Latency, QueueSample, RunResult, RunSpec

LatencyKind = Literal["event", "processing"]
# Until a request was acknowledged, or was part of the running plan.
DeploymentKind = Literal["acknowledged", "effective"]

# The CDF leaves out the lower end, which nobody waits for, and the last percent, which few samples carry.
CDF_PERCENTS = range(40, 100)
# Over time a run is shown in at most this many steps, none shorter than the shortest: more is neither seen nor needed.
MOST_STEPS = 120
SHORTEST_STEP = 1.0
# A system that takes nothing for so many times its longest step before has come to a halt.
HALT = 2
# Of what systems count: Millstream's whole batches and fires, and Spark's whole trigger.
TOTALS = ("batch", "fire", "triggerExecution")


@dataclass(frozen=True, slots=True)
class Distribution:
    """Latencies in seconds, of ``count`` answers or requests."""

    count: int
    mean: float
    least: float
    most: float
    p50: float
    p90: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Rate:
    """Rows a second that a system took in the step that ends ``at``; ``overall`` counts one for each query."""

    at: float
    input: float
    overall: float


def percentiles(values: Sequence[float], weights: Sequence[int], percents: Sequence[int]) -> list[float]:
    """For each percent the smallest value that so much of the weight is not above.

    >>> percentiles([3.0, 1.0, 2.0], [1, 1, 98], [1, 50, 99])
    [1.0, 2.0, 2.0]
    """
    order = np.argsort(values, kind="stable")
    # In whole numbers, so that a percent of the weight is not missed by a rounding.
    reached = np.cumsum(np.asarray(weights, dtype=np.int64)[order]) * 100
    total = int(reached[-1]) // 100
    places = np.searchsorted(reached, [percent * total for percent in percents], side="left")
    return [float(value) for value in np.asarray(values, dtype=np.float64)[order][places]]


def distribution(values: Sequence[float], weights: Sequence[int] | None = None) -> Distribution | None:
    """None where nothing has weight."""
    pairs = [(value, weight) for value, weight in zip(values, weights or [1] * len(values), strict=True) if weight > 0]
    if not pairs:
        return None
    kept, counts = [value for value, _ in pairs], [weight for _, weight in pairs]
    total = sum(counts)
    mean = sum(value * weight for value, weight in pairs) / total
    return Distribution(total, mean, min(kept), max(kept), *percentiles(kept, counts, (50, 90, 95, 99)))


def warm_up_end(spec: RunSpec) -> float:
    """Seconds of the run that no figure counts."""
    return WARM_UP * spec.seconds


def latency(run: RunResult, kind: LatencyKind = "event") -> Distribution | None:
    """Of the answers that came after the warm-up."""
    return _weighted(_counted(run), kind)


def latency_over_time(run: RunResult, kind: LatencyKind = "event") -> list[tuple[float, Distribution]]:
    """By step, the warm-up included; a step without answers is missing."""
    steps: dict[int, list[Latency]] = defaultdict(list)
    step = step_of(run.spec)
    for sample in run.latencies:
        steps[int(sample.at / step)].append(sample)
    found = [((number + 1) * step, _weighted(samples, kind)) for number, samples in sorted(steps.items())]
    return [(at, one) for at, one in found if one is not None]


def cdf(run: RunResult, kind: LatencyKind = "event") -> list[tuple[float, int]]:
    """Latency and percent, from p40 to p99, after the warm-up."""
    kept = [sample for sample in _counted(run) if sample.answers > 0]
    if not kept:
        return []
    values = percentiles([getattr(s, kind) for s in kept], [s.answers for s in kept], CDF_PERCENTS)
    return list(zip(values, CDF_PERCENTS, strict=True))


def deployment(run: RunResult, until: DeploymentKind = "effective") -> Distribution | None:
    """Of the creates and deletes that were due after the warm-up.

    One that the run ended on has waited until then, and counts with that where it is longer than the median of those
    that did not: left out, the slowest would make the percentiles better. A shorter wait says nothing but that the run
    ended. Where no other finished, each counts.
    """
    return distribution([wait for _, wait in _waits(run, until)])


def deployment_over_time(run: RunResult, until: DeploymentKind) -> list[tuple[float, Distribution]]:
    """By step of the moment they were due, those of the warm-up too; counted as `deployment` does."""
    steps: dict[int, list[float]] = defaultdict(list)
    step = step_of(run.spec)
    for due, wait in _waits(run, until, since=0.0):
        steps[int(due / step)].append(wait)
    found = [((number + 1) * step, distribution(waits)) for number, waits in sorted(steps.items())]
    return [(at, one) for at, one in found if one is not None]


def unfinished(run: RunResult, until: DeploymentKind) -> int:
    """Creates and deletes of the whole run that were never acknowledged, or never seen in the running plan."""
    return sum(_end(one, until) is None for one in run.deployments)


def rates(run: RunResult) -> list[Rate]:
    """What the system took over time, by step. One that takes rows less often has longer steps: nothing, and then a
    micro-batch of several seconds, is no rate."""
    step = step_of(run.spec)
    # Rows served so far: those between two looks, for each query that ran at the first of them.
    between = ((b.taken - a.taken) * a.readers for a, b in pairwise(run.queue))
    served = accumulate(between, initial=0)
    ends = {int(sample.at / step): (sample, rows) for sample, rows in zip(run.queue, served, strict=False)}.values()
    found: list[Rate] = []
    before: tuple[QueueSample, float] | None = None
    longest = seconds = 0.0
    for sample, rows in ends:
        seconds = sample.at - before[0].at if before else 0.0
        if before is not None and sample.taken > before[0].taken:
            longest = max(longest, seconds)
            found.append(Rate(sample.at, (sample.taken - before[0].taken) / seconds, (rows - before[1]) / seconds))
        if before is None or sample.taken > before[0].taken:
            before, seconds = (sample, rows), 0.0
    if seconds > HALT * max(longest, step):
        # A system that has come to a halt must not look well.
        found.append(Rate(run.queue[-1].at, 0.0, 0.0))
    return found


def components(run: RunResult) -> dict[str, float]:
    """Seconds by component, without those that contain others."""
    return {name: spent for name, spent in run.phases.items() if name not in TOTALS}


def rows_counted(run: RunResult) -> int:
    """Rows that the system took after the warm-up, as its phases count them."""
    taken = [sample.taken for sample in run.queue if sample.at >= warm_up_end(run.spec)]
    return taken[-1] - taken[0] if taken else 0


def most_queries(spec: RunSpec) -> int:
    """The largest number of queries that the run asks for at once."""
    running = most = len(spec.initial)
    for request in sorted(spec.requests, key=lambda one: one.at):
        running += len(request.create) - len(request.delete)
        most = max(most, running)
    return most


def peak_rate(spec: RunSpec) -> float:
    """The highest rate that the generators had to keep."""
    return spec.rate * max((factor for _, factor in spec.rates), default=1.0)


def step_of(spec: RunSpec) -> float:
    return max(SHORTEST_STEP, spec.seconds / MOST_STEPS)


def _counted(run: RunResult) -> list[Latency]:
    first = warm_up_end(run.spec)
    return [sample for sample in run.latencies if sample.at >= first]


def _weighted(samples: Sequence[Latency], kind: LatencyKind) -> Distribution | None:
    return distribution([getattr(sample, kind) for sample in samples], [sample.answers for sample in samples])


def _waits(run: RunResult, until: DeploymentKind, since: float | None = None) -> list[tuple[float, float]]:
    """When those that count were due, after the warm-up unless ``since`` is given, and how long each waited."""
    first = warm_up_end(run.spec) if since is None else since
    times = [(one.due, _end(one, until)) for one in run.deployments if one.due >= first]
    finished = [(due, end - due) for due, end in times if end is not None]
    usual = median(wait for _, wait in finished) if finished else 0.0
    pending = [(due, run.spec.seconds - due) for due, end in times if end is None]
    return [*finished, *((due, wait) for due, wait in pending if wait > usual)]


def _end(one: Deployment, until: DeploymentKind) -> float | None:
    return one.acknowledged if until == "acknowledged" else one.effective
