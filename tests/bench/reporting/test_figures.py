"""The arithmetic of figures, against numpy."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from tests.bench.reporting.suites import deployed, queries, result, spec

from millstream.bench.driving.model import Deployment, Latency, QueueSample, Request
from millstream.bench.reporting import figures


@pytest.mark.parametrize("seed", range(5))
def test_percentiles_count_each_answer(seed: int) -> None:
    random = Random(seed)
    values = [random.choice([random.random(), 0.5]) for _ in range(random.randint(1, 200))]
    weights = [random.randint(1, 30) for _ in values]
    found = figures.distribution(values, weights)
    every = np.repeat(values, weights)
    wanted = [float(np.percentile(every, p, method="inverted_cdf")) for p in (50, 90, 95, 99)]
    assert found is not None
    assert [found.p50, found.p90, found.p95, found.p99] == wanted
    assert (found.count, found.least, found.most) == (len(every), every.min(), every.max())
    assert found.mean == pytest.approx(every.mean())


def test_what_has_no_weight_is_not_there() -> None:
    assert figures.distribution([]) is None
    assert figures.distribution([1.0], [0]) is None
    found = figures.distribution([1.0, 9.0], [3, 0])
    assert found is not None
    assert found.most == 1.0


def test_the_warm_up_does_not_count() -> None:
    """
    at        2     9.9 | 10    30        of 40 seconds
    latency   9 s   9 s | 1 s   3 s
    """
    samples = [(2.0, 9.0, 1), (9.9, 9.0, 1), (10.0, 1.0, 3), (30.0, 3.0, 1)]
    run = result(latencies=tuple(Latency(at, event, event / 2, n) for at, event, n in samples))
    found, processing = figures.latency(run), figures.latency(run, "processing")
    assert found is not None
    assert (found.count, found.mean, found.p50, found.most) == (4, 1.5, 1.0, 3.0)
    assert processing is not None
    assert processing.most == 1.5
    assert [at for at, _ in figures.latency_over_time(run)] == [3.0, 10.0, 11.0, 31.0]


def test_the_cdf_goes_from_p40_to_p99() -> None:
    run = result(latencies=tuple(Latency(20.0 + i / 100, float(i), 0.0, 1) for i in range(1, 101)))
    assert figures.cdf(run) == [(float(p), p) for p in range(40, 100)]
    assert figures.cdf(result(latencies=())) == []


def test_deployment_until_acknowledged_and_effective() -> None:
    never = Deployment("delete", "q9", 20.0, 20.5, None)
    early = Deployment("create", "q8", 1.0, 9.0, 9.0)
    run = result(deployments=(early, *deployed(0.25, 0.5), never))
    acknowledged, effective = figures.deployment(run, "acknowledged"), figures.deployment(run)
    assert acknowledged is not None
    assert effective is not None
    assert (acknowledged.count, acknowledged.most) == (3, 0.5)
    # The run ended 20 seconds after the one that never took effect was due.
    assert (effective.count, effective.least, effective.p50, effective.most) == (3, 0.25, 0.5, 20.0)
    assert (figures.unfinished(run, "acknowledged"), figures.unfinished(run, "effective")) == (0, 1)
    over_time = figures.deployment_over_time(run, "effective")
    assert [(at, one.most) for at, one in over_time] == [(2.0, 8.0), (12.0, 0.25), (13.0, 0.5), (21.0, 20.0)]


@pytest.mark.parametrize(
    ("waits", "dues", "counted"),
    [
        ((1.0, 2.0, 3.0), (), [1.0, 2.0, 3.0]),
        # Due 30 seconds before the end, and 1.5: the median is 2.
        ((1.0, 2.0, 3.0), (10.0, 38.5), [1.0, 2.0, 3.0, 30.0]),
        ((1.0, 2.0, 3.0), (38.0,), [1.0, 2.0, 3.0]),
        # Due in the warm-up.
        ((1.0, 2.0, 3.0), (9.0,), [1.0, 2.0, 3.0]),
        # Where none finished, whatever is known of the others counts.
        ((), (10.0, 39.5), [0.5, 30.0]),
        ((), (), []),
    ],
)
@pytest.mark.parametrize("until", ["acknowledged", "effective"])
def test_requests_that_the_run_ended_on_have_waited_until_then(
    waits: tuple[float, ...], dues: tuple[float, ...], counted: list[float], until: figures.DeploymentKind
) -> None:
    finished = [Deployment("create", "q", due, due + wait, due + wait) for due, wait in enumerate(waits, start=11)]
    never = [Deployment("create", "q", due, None, None) for due in dues]
    run = result(deployments=(*finished, *never))
    found = figures.deployment(run, until)
    every = [] if found is None else [found.count, found.least, found.most]
    assert every == ([len(counted), min(counted), max(counted)] if counted else [])
    assert figures.unfinished(run, until) == len(dues)


def test_rates_over_time() -> None:
    """Four samples a second are one step; rows count for the queries that ran when they began to be taken."""
    queue = tuple(QueueSample(i / 4, 0, 0, i * 100, 9, 1 if i < 8 else 5) for i in range(13))
    found = figures.rates(replace(result(), queue=queue))
    assert [(one.at, one.input, one.overall) for one in found] == [
        (1.75, 400.0, 400.0),
        # The first quarter of this step went to one query, the rest to five.
        (2.75, 400.0, 1600.0),
        (3.0, 400.0, 2000.0),
    ]


@pytest.mark.parametrize("halt", [[], [900] * 5])
def test_a_system_that_takes_rows_now_and_then_has_a_rate_until_it_halts(halt: list[int]) -> None:
    taken = [0, 0, 300, 300, 300, 900, 900, 900, *halt]
    queue = tuple(QueueSample(float(at), 0, 0, rows, 2, 2) for at, rows in enumerate(taken))
    found = figures.rates(replace(result(), queue=queue))
    assert [(one.at, one.input, one.overall) for one in found] == [
        (2.0, 150.0, 300.0),
        (5.0, 200.0, 400.0),
        *([(12.0, 0.0, 0.0)] if halt else []),
    ]


def test_components_leave_out_what_contains_them() -> None:
    run = result(phases={"read": 1.0, "fire": 5.0, "fire: read": 2.0, "batch": 9.0, "triggerExecution": 3.0})
    assert figures.components(run) == {"read": 1.0, "fire: read": 2.0}


def test_a_long_run_has_longer_steps() -> None:
    assert figures.step_of(spec(seconds=60.0)) == 1.0
    assert figures.step_of(spec(seconds=600.0)) == 5.0


def test_the_most_queries_at_once() -> None:
    grows = (Request(2.0, delete=("q1", "q2")), Request(1.0, create=queries(5, first=11)))
    assert figures.most_queries(spec(requests=grows)) == 15
    exchanged = (Request(1.0, create=queries(3, first=11), delete=("q1", "q2", "q3")),)
    assert figures.most_queries(spec(requests=exchanged)) == 10


def test_the_peak_of_a_rate_that_changes() -> None:
    assert figures.peak_rate(spec(rate=100.0, rates=((0.0, 0.5), (10.0, 1.2)))) == 120.0
