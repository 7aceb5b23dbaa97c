"""The engine on Spark with its parts killed, one kind after the other; the answers are those of an undisturbed run.

driver      SIGKILL at crash points and at any moment; started again each time
worker      a Python process in the middle of a task; the engine goes on by itself
Spark       the JVM under the driver; the engine says so, a new one in the same program goes on
executor    of a cluster with a master and two workers; the engine goes on by itself
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.cluster import cluster
from tests.chaos.real_runs import RealRun, check, prepare
from tests.chaos.runs import Kill

SEED = 5
LEAST_KILLS = 20
# Each dies in one of its first rounds, so that there is work left for the next.
DRIVER_KILLS = (
    Kill("plan_batch.after-commit:1"),
    Kill("changelog.acknowledging:1"),
    Kill("fire.job-done:2"),
    Kill(after=0.4),
    Kill("join.job-done:1"),
)
# By round. The first round is left alone: it makes the workers that are killed later.
WORKER_KILLS = {
    "1": "worker:ingest",
    "2": "crash:buckets.written",
    "3": "worker:fire",
    "4": "daemon:ingest",
    "5": "crash:answers.created",
    "6": "worker:fire",
    "7": "worker:ingest",
    "8": "worker:fire",
    "9": "daemon:fire",
}
# By the process that is left when the driver has been killed often enough.
SPARK_KILLS = {"7": "spark", "9": "spark"}
EXECUTOR_KILLS = dict.fromkeys(("2", "4", "6", "8", "9"), "executor:")


@dataclass
class Kills:
    """Makes runs, and counts the kills of all of them."""

    folder: Path
    prepared: Path
    expected: dict[str, Any]
    count: Counter[str] = field(default_factory=Counter)

    def run(self, name: str) -> RealRun:
        return RealRun(self.folder / name, self.prepared)


@pytest.fixture(scope="module")
def kills(tmp_path_factory: pytest.TempPathFactory) -> Kills:
    folder = tmp_path_factory.mktemp("real")
    prepared = prepare(folder / "prepared", SEED)
    run = RealRun(folder / "undisturbed", prepared)
    run.finish()
    report = run.report()
    check(report, report)
    return Kills(folder, prepared, report)


@pytest.mark.slow
def test_the_workload_has_what_could_go_wrong(kills: Kills) -> None:
    figures = kills.expected["figures"].values()
    assert {one["state"] for one in figures} == {"running", "deleted"}
    assert all(kills.expected["answers"].values()), "every query has answers"
    assert sum(one["late_rows"] for one in figures) > 0
    assert sum(one["failures"] for one in figures) > 0
    assert any(one["legs"] for one in figures)
    assert kills.expected["dead"]


@pytest.mark.slow
def test_the_driver_is_killed_and_spark_under_it(kills: Kills) -> None:
    run = kills.run("driver")
    run.finish(DRIVER_KILLS, disturb=SPARK_KILLS)
    check(run.report(), kills.expected)
    assert run.killed() == ["spark"] * len(SPARK_KILLS)
    kills.count["driver"] += len(run.deaths)
    kills.count["spark"] += len(SPARK_KILLS)


@pytest.mark.slow
def test_python_workers_are_killed(kills: Kills) -> None:
    run = kills.run("workers")
    run.finish(disturb=WORKER_KILLS)
    check(run.report(), kills.expected)
    killed = run.killed()
    assert {"worker ingest", "worker fire", "daemon ingest", "daemon fire", "worker at buckets.written"} <= set(killed)
    kills.count["worker"] += len(killed)


@pytest.mark.slow
def test_executors_of_a_cluster_are_killed(kills: Kills, tmp_path: Path) -> None:
    run = kills.run("executors")
    with cluster(tmp_path / "cluster") as found:
        run.finish(disturb=EXECUTOR_KILLS, master=found.master, hosts=found.hosts)
    check(run.report(), kills.expected)
    assert run.killed() == ["executor"] * len(EXECUTOR_KILLS)
    kills.count["executor"] += len(EXECUTOR_KILLS)


@pytest.mark.slow
def test_enough_was_killed(kills: Kills) -> None:
    print(dict(kills.count))
    assert set(kills.count) == {"driver", "worker", "spark", "executor"}
    assert kills.count.total() >= LEAST_KILLS
