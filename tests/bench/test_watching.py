"""What the driver makes of what a system shows: latencies, requests, components. The system is a list of looks."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from millstream.bench.driving.feeding import Store
from millstream.bench.driving.model import Emission, Pull, QuerySpec, Request, RunResult, RunSpec, StreamSpec
from millstream.bench.driving.run import run
from millstream.bench.systems.system import Queue, Seen
from millstream.bench.workload import SCHEMA
from millstream.sources.generators import DEFAULT_START, MICROS

TUPLES = StreamSpec("tuples", {"source": "astream", "keys": "10", "fields_max": "500"}, SCHEMA)
RATE = 1000.0


@dataclass
class Shown:
    """A system that takes every row half a second after it was due, and answers each second half a second later.

    ``pulls``: whether it tells when it began with rows, a quarter of a second after they were due. ``slow`` requests
    are acknowledged after so many seconds."""

    pulls: bool = False
    slow: float = 0.0
    form: str = "parquet"
    name: str = "shown"
    pid: int | None = None
    created: list[str] = field(default_factory=list)
    began: float = 0.0
    told: int = 0
    ending: threading.Event = field(default_factory=threading.Event)

    def deploy(self, folder: Path, queues: Sequence[Queue], queries: Sequence[QuerySpec]) -> None: ...

    def create(self, queries: Sequence[QuerySpec]) -> None:
        self.ending.wait(self.slow)
        self.created += [query.id for query in queries]

    def delete(self, ids: Sequence[str]) -> None: ...

    def collect(self) -> Seen:
        now = time.time()
        self.began = self.began or now
        at = now - self.began
        taken = max(0, int((at - 0.5) * RATE))
        emissions = []
        while self.told + 1 <= at - 1.0:
            self.told += 1
            emissions.append(Emission(self.began + self.told + 1.0, DEFAULT_START + self.told * MICROS, 1))
        pulls = (Pull(now - 0.25, taken),) if self.pulls else ()
        return Seen(taken, tuple(emissions), (), (), pulls)

    def phases(self) -> dict[str, float]:
        return {"read": 10.0}

    def finish(self) -> dict[str, float]:
        self.ending.set()
        return {"read": 25.0, "write": 1.0}

    def describe(self) -> dict[str, str]:
        return {"version": "1"}


def watched(system: Shown, folder: Path, *requests: Request, seconds: float = 4.0) -> RunResult:
    (folder / "run").mkdir()
    asked = RunSpec("small", "shown", (TUPLES,), (), requests, RATE, seconds, density=int(RATE))
    found: Any = system
    return run(asked, found, Store(folder / "rows"), folder / "run", lambda share, words: None)


@pytest.mark.parametrize(("pulls", "processing"), [(False, 0.5), (True, 0.75)])
def test_processing_time_begins_when_the_system_began_with_a_row(
    tmp_path: Path, pulls: bool, processing: float
) -> None:
    """
    row due      pulled     taken                answer
       0 ─ ─ ─ ─ ─ 0.25 ─ ─ ─ 0.5 ─ ─ ─ ─ ─ ─ ─ ─ ─ 1.0
    """
    result = watched(Shown(pulls), tmp_path)
    assert [one.event for one in result.latencies] == pytest.approx([result.latencies[0].event] * 3, abs=0.02)
    # It is seen at looks, a quarter of a second apart, and never later than the answer.
    gaps = [one.event - one.processing for one in result.latencies]
    expected = result.latencies[0].event - processing
    assert all(expected - 0.02 <= gap <= expected + 0.3 for gap in gaps)


def test_components_are_those_after_the_warm_up(tmp_path: Path) -> None:
    assert watched(Shown(), tmp_path).phases == {"read": 15.0, "write": 1.0}


def test_requests_that_wait_for_another_until_the_end_are_noted_all_the_same(tmp_path: Path) -> None:
    queries = [QuerySpec(f"q{n}", "", 0, 0) for n in range(4)]
    requests = [Request(float(n), create=(queries[n],), delete=("old",)) for n in range(3)]
    system = Shown(slow=60.0)
    threading.Timer(6.0, system.ending.set).start()
    result = watched(system, tmp_path, *requests, Request(9.0, create=(queries[3],)))
    found = [(one.kind, one.query, one.due, one.acknowledged is not None) for one in result.deployments]
    # The first was on its way when the run ended; what is due after the end is nobody's loss.
    assert found == [
        ("create", "q0", 0.0, True), ("delete", "old", 0.0, True),
        ("create", "q1", 1.0, False), ("delete", "old", 1.0, False),
        ("create", "q2", 2.0, False), ("delete", "old", 2.0, False),
    ]  # fmt: skip
