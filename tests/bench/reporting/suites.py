"""Small suites made by hand."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from millstream.bench.driving.model import (
    Claim,
    Deployment,
    GeneratorProof,
    Latency,
    QuerySpec,
    QueueSample,
    Request,
    RunResult,
    RunSpec,
    Search,
    StreamSpec,
    Suite,
    Verdict,
)
from millstream.bench.machine import Machine

MACHINE = asdict(
    Machine("a processor", 2, 8 << 30, "a system", 0.1, {"python": "3.11", "pyspark": "4.3", "commit": "abc1234+"})
)
SQL = "SELECT key, SUM(field1) FROM tuples WHERE field2 < 3 AND note = \"<b>'x'\" GROUP BY key, window(t, '1 second')"
STREAM = StreamSpec("tuples", {"source": "astream", "keys": "1000"}, "key BIGINT, time TIMESTAMP")
SECONDS = 40.0


def queries(number: int, first: int = 1) -> tuple[QuerySpec, ...]:
    return tuple(QuerySpec(f"q{i}", SQL, 1_000_000, 1_000_000) for i in range(first, first + number))


def spec(**changes: Any) -> RunSpec:
    given: dict[str, Any] = {
        "workload": "astream-sc1",
        "system": "millstream",
        "streams": (STREAM,),
        "initial": queries(10),
        "requests": (),
        "rate": 1000.0,
        "seconds": SECONDS,
    }
    return RunSpec(**(given | changes))


def result(
    *,
    sustained: bool = True,
    taken: float | None = None,
    latencies: tuple[Latency, ...] | None = None,
    errors: tuple[str, ...] = (),
    deployments: tuple[Deployment, ...] = (),
    phases: dict[str, float] | None = None,
    running: tuple[int, ...] = (),
    **changes: Any,
) -> RunResult:
    """A run of 40 seconds with a sample each second, of which a system that does not sustain takes half of the rows;
    ``running`` is the number of queries, each for an equal part of the run."""
    asked = spec(**changes)
    speed = taken if taken is not None else asked.rate if sustained else asked.rate / 2
    counts = running or (len(asked.initial),)
    queue = tuple(
        QueueSample(
            float(at),
            int(at * asked.rate),
            int(at * asked.rate),
            int(at * speed),
            number,
            float(number),
        )
        for at in range(int(SECONDS) + 1)
        for number in (counts[min(int(at * len(counts) / SECONDS), len(counts) - 1)],)
    )
    samples = tuple(Latency(at + 0.5, 0.4 + at / 1000, 0.2, 10) for at in range(int(SECONDS)))
    reason = "the queue kept its length" if sustained else "the queue grew all the time"
    slope = asked.rate - speed
    return RunResult(
        spec=asked,
        began="2026-01-02T03:04:05+00:00",
        queue=queue,
        latencies=samples if latencies is None else latencies,
        deployments=deployments,
        generator=GeneratorProof(1_000_000, 0.1, 0.002),
        verdict=Verdict(sustained, reason, slope, 0.001 if sustained else None),
        taken_rate=speed,
        overall_rate=speed * len(asked.initial),
        answers=400,
        phases={"read": 1.0, "aggregate": 3.0} if phases is None else phases,
        errors=errors,
        system={"version": "1.2.3", "setting <x>": "a & b"},
    )


def deployed(*waits: float, first: float = 11.0) -> tuple[Deployment, ...]:
    """Creates due one second after the other: acknowledged after half of the wait, effective after all of it."""
    made = []
    for number, wait in enumerate(waits):
        due = first + number
        made.append(Deployment("create", f"q{number}", due, due + wait / 2, due + wait))
    return tuple(made)


def sweep() -> Suite:
    """Two systems at three numbers of queries, one of which gives up; a run with requests; claims of each kind."""
    searches = []
    for number in (1, 10, 100):
        ours = result(rate=4000.0 - number, initial=queries(number))
        too_much = result(rate=8000.0, sustained=False, initial=queries(number))
        searches.append(Search(f"millstream, {number} queries", (too_much, ours)))
        plain = {"system": "spark", "initial": queries(number)}
        if number < 100:
            searches.append(Search(f"spark, {number} queries", (result(rate=2000.0 / number, **plain),)))
        else:
            error = "java.lang.OutOfMemoryError: <script>alert('x')</script> & more\n  at Frame"
            gave_up = result(rate=10.0, sustained=False, errors=(error,), phases={}, **plain)
            searches.append(Search("spark, 100 queries", (gave_up,)))
    run = result(
        workload="astream-sc2",
        deployments=deployed(0.1, 0.2, 0.3),
        running=(10, 12, 8, 10),
        requests=(Request(11.0, create=queries(2, first=11), delete=("q1", "q2")),),
    )
    claims = (
        Claim("overall against plain Spark", 1000.0, 1240.0, False, "×", "astream-sc1 <100>"),
        Claim("deployment p99", 0.3, 0.45, True, "s"),
        Claim("not measured", 0.6, None, False, "×"),
        Claim("requests a second", 200.0, 230.0, False, "/s", "astream-churn", held=False),
    )
    options = {"seed": 1, "quick": True, "sections": ["single", "<b>"], "began": "2026-01-02T03:04:05+00:00"}
    return Suite("A <b>suite</b>", MACHINE, options, tuple(searches), (run,), claims, ("flink: not there\ntrace",))
