"""Whether a rate is sustained: from the slopes of the queue and of the latency, not from their size, unless that is a
large part of the run."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

from millstream.bench.driving.model import WARM_UP, Latency, QuerySpec, QueueSample, RunSpec, Verdict
from millstream.bench.driving.pace import Pace

# A system that falls behind by more than this share of the time, beyond what could be noise, does not keep the rate.
MOST_SLOPE = 0.03
# However flat, a run whose newest row is so many seconds behind at its end, and so large a share of the run, has been
# cut too short to call it sustained. What was due before that must have been answered.
MOST_LAG, MOST_LAG_SHARE = 10.0, 0.25
# Microseconds of event time.
ROUNDING = 1000


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Of the line of least squares; None for fewer than three points.

    >>> slope([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)])
    2.0
    """
    if len(points) < 3:
        return None
    x, y = np.array(points, dtype=np.float64).T
    x = x - x.mean()
    spread = float(x @ x)
    return float(x @ y) / spread if spread else None


def noise(points: Sequence[tuple[float, float]], teeth: int) -> float:
    """How far from zero the slope of a line could be by chance: its standard error. Micro-batches make the queue a
    saw, so that not the samples count but its teeth.

    >>> noise([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)], 3)
    0.0
    """
    steep = slope(points)
    if steep is None:
        return 0.0
    x, y = np.array(points, dtype=np.float64).T
    x, y = x - x.mean(), y - y.mean()
    left = y - steep * x
    return float(np.sqrt((left @ left) / (x @ x) / max(1, min(teeth, len(points)) - 2)))


def judge(
    spec: RunSpec, pace: Pace, queue: Sequence[QueueSample], latencies: Sequence[Latency], errors: Sequence[str]
) -> Verdict:
    """The verdict over what came after the warm-up."""
    settled = [sample for sample in queue if sample.at >= WARM_UP * spec.seconds]
    rows = slope([(sample.at, float(sample.due - sample.taken)) for sample in settled])
    # In seconds, since the rate may change over the run: how long ago the newest row taken was due.
    lags = [(sample.at, sample.at - pace.moment(sample.taken)) for sample in settled]
    lag = slope(lags)
    events = [(one.at, one.event) for one in latencies if one.at >= WARM_UP * spec.seconds]
    # Left out, the slowest would make the latency of the others look flat.
    usual = median(event for _, event in events) if events else 0.0
    events += [(spec.seconds, wait) for wait in waits(spec, pace, latencies) if wait > usual]
    late = slope(events)
    teeth = len({sample.taken for sample in settled})
    # Twice the bound at most, or large batches would hide that a system falls behind.
    bounds = tuple(MOST_SLOPE + min(MOST_SLOPE, noise(points, teeth)) for points in (lags, events))
    most_lag = max(MOST_LAG, MOST_LAG_SHARE * spec.seconds)
    silent = 0 if latencies else windows_due(spec, pace, spec.seconds - most_lag)
    sustained, reason = _verdict(lag, lags[-1][1] if lags else None, late, bounds, most_lag, silent, errors)
    if sustained and not latencies and _have_windows(spec):
        sustained = False
        reason = f"not known to be sustained: no window was over in time; lower the density or run longer ({reason})"
    return Verdict(sustained, reason, rows or 0.0, late)


def _have_windows(spec: RunSpec) -> bool:
    """Whether all queries whose answers count have windows; the others answer at once."""
    created = [query for request in spec.requests for query in request.create]
    asked = [query for query in (*spec.initial, *created) if query.watched]
    return bool(asked) and all(query.slide for query in asked)


def waits(spec: RunSpec, pace: Pace, latencies: Sequence[Latency]) -> list[float]:
    """How long windows that are over after the last one answered have waited when the run ends; none without answers.

    It is the last of all queries: one that falls behind beside others who do not is not seen.
    """
    if not latencies:
        return []
    answered = max(one.at - one.event for one in latencies)
    # A rounding error must not bring back the window that was answered.
    after, upto = pace.event_time(answered) + ROUNDING, pace.event_time(spec.seconds)
    ends = {end for query in _asked(spec) for end in query.ends(after, upto)}
    return [spec.seconds - pace.moment_of(end) for end in ends]


def windows_due(spec: RunSpec, pace: Pace, until: float) -> int:
    """Windows of the initial queries, but for those who disturb the others, that are over by a moment of the run."""
    passed = pace.event_time(until) - pace.event_time(0.0)
    return sum(max(0, (passed - query.length) // query.slide + 1) for query in _asked(spec))


def _asked(spec: RunSpec) -> list[QuerySpec]:
    """The initial queries with windows that stay, but for those who disturb the others."""
    gone = {id for request in spec.requests for id in request.delete}
    return [query for query in spec.initial if query.watched and query.slide and query.id not in gone]


def _verdict(
    lag: float | None,
    last: float | None,
    late: float | None,
    bounds: tuple[float, ...],
    most_lag: float,
    silent: int,
    errors: Sequence[str],
) -> tuple[bool, str]:
    if errors:
        return False, f"not sustained: {errors[0].splitlines()[0]}"
    if lag is None or last is None:
        return False, "not sustained: too few samples after the warm-up"
    if silent:
        return False, f"not sustained: no answer, though {silent} windows were over long before the end"
    facts = f"the queue falls behind by {lag * 1000:.0f} ms a second (at most {bounds[0] * 1000:.0f})"
    if late is not None:
        facts += f", latency grows by {late * 1000:.0f} ms a second (at most {bounds[1] * 1000:.0f})"
    facts += f", and the newest row taken is {last:.1f} s old at the end"
    if lag > bounds[0] or last > most_lag:
        return False, f"not sustained: {facts}"
    if late is not None and late > bounds[1]:
        return False, f"not sustained: {facts}"
    return True, f"sustained: {facts}"
