"""What a whole run shows: how many requests it bore, what sharing costs in it, and what newcomers cost the others."""

from __future__ import annotations

from itertools import pairwise

from millstream.bench.driving.model import WARM_UP, RunResult
from millstream.bench.driving.trend import MOST_SLOPE, noise, slope

# What a task's time is made of; "batch" and "fire" are the whole of it once more.
TASK_PHASES = (
    "read", "evaluate", "classes", "aggregate", "keep rows", "write", "fire: read", "fire: classes", "fire: answer",
    "fire: write", "join: read", "join: answer", "join: write",
)  # fmt: skip
SHARING_PHASES = ("evaluate", "classes", "fire: classes")


def requests_a_second(run: RunResult) -> float | None:
    """Creates and deletes of those due after the warm-up that were acknowledged within the run, over the time since the
    first of them was due."""
    begin, end = WARM_UP * run.spec.seconds, run.spec.seconds
    first = min((request.at for request in run.spec.requests if request.at >= begin), default=None)
    if first is None:
        return None
    mine = [one.acknowledged for one in run.deployments if one.due >= begin]
    return sum(at is not None and at <= end for at in mine) / (end - first)


def requests_wait_longer(run: RunResult) -> bool:
    """Whether the time until they are acknowledged grows, by the measure of rows."""
    mine = [one for one in run.deployments if one.due >= WARM_UP * run.spec.seconds]
    waits = [(one.due, (one.acknowledged or run.spec.seconds) - one.due) for one in mine]
    steep = slope(waits)
    return steep is not None and steep > MOST_SLOPE + min(MOST_SLOPE, noise(waits, len(waits)))


def sharing_share(run: RunResult) -> float | None:
    """The most of the tasks' time that can have gone from rows to classes, and from classes to queries."""
    total = sum(run.phases.get(phase, 0.0) for phase in TASK_PHASES)
    return sum(run.phases.get(phase, 0.0) for phase in SHARING_PHASES) / total if total else None


def visitors_effect(run: RunResult, arrival: float) -> float | None:
    """The share of the rate that was lost: a quarter of the run before the newcomers, against the last quarter."""
    before = _taken(run, 0.0, arrival / 2, arrival)
    after = _taken(run, arrival, (arrival + run.spec.seconds) / 2, run.spec.seconds)
    return None if before is None or after is None else 1 - after / before


def _taken(run: RunResult, after: float, since: float, until: float) -> float | None:
    """Rows a second, from the end of one micro-batch to that of another: an overloaded system takes seconds for each,
    and says what it has taken when it is done. None of them ended before the moment ``after``."""
    ends = [sample for before, sample in pairwise(run.queue) if sample.taken > before.taken and sample.at > after]
    first = next((sample for sample in reversed(ends) if sample.at <= since), None)
    last = next((sample for sample in reversed(ends) if sample.at <= until), None)
    if first is None or last is None or first == last:
        return None
    return (last.taken - first.taken) / (last.at - first.at)
