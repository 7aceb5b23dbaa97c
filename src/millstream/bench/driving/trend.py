"""Whether a rate is sustained: from the slopes of the queue and of the latency, not from their size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millstream.bench.driving.model import WARM_UP, Latency, QueueSample, RunSpec, Verdict
from millstream.bench.driving.pace import Pace

# A system that falls behind by more than this share of the time, beyond what could be noise, does not keep the rate.
MOST_SLOPE = 0.03
# However flat, a run whose newest row is so many seconds behind at its end has been cut too short to call it sustained.
MOST_LAG = 10.0


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
    late = slope(events)
    teeth = len({sample.taken for sample in settled})
    # Twice the bound at most, or large batches would hide that a system falls behind.
    bounds = tuple(MOST_SLOPE + min(MOST_SLOPE, noise(points, teeth)) for points in (lags, events))
    sustained, reason = _verdict(lag, lags[-1][1] if lags else None, late, bounds, errors)
    return Verdict(sustained, reason, rows or 0.0, late)


def _verdict(
    lag: float | None, last: float | None, late: float | None, bounds: tuple[float, ...], errors: Sequence[str]
) -> tuple[bool, str]:
    if errors:
        return False, f"not sustained: {errors[0].splitlines()[0]}"
    if lag is None or last is None:
        return False, "not sustained: too few samples after the warm-up"
    facts = f"the queue falls behind by {lag * 1000:.0f} ms a second (at most {bounds[0] * 1000:.0f})"
    if late is not None:
        facts += f", latency grows by {late * 1000:.0f} ms a second (at most {bounds[1] * 1000:.0f})"
    facts += f", and the newest row taken is {last:.1f} s old at the end"
    if lag > bounds[0] or last > MOST_LAG:
        return False, f"not sustained: {facts}"
    if late is not None and late > bounds[1]:
        return False, f"not sustained: {facts}"
    return True, f"sustained: {facts}"
