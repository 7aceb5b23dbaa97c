"""Killed at every crash point and at random moments, several times in a row, the engine gives the same answers.

    undisturbed   ───────────────────────────────────────────► report
    killed        ──X   ────X   ─X   ──────────X   ──────────► report, the same
                     start again each time

Most of it takes no Spark: the process that dies drives the engine's own callbacks and stores.
"""

from __future__ import annotations

import pytest

from millstream.crashpoints import POINTS
from millstream.runtime import home
from tests.chaos.conftest import Chaos
from tests.chaos.runs import Kill
from tests.chaos.schedule import AFTER_A_CRASH, ELSEWHERE, at_random, every_point
from tests.chaos.workload import POISON

SEED = 1
# Runs that die at every crash point, and at how many passes of each.
RUNS, EACH = 12, 1
# Workloads, runs of each, and deaths of a run at random.
OTHER_SEEDS, RANDOM_RUNS, RANDOM_DEATHS = (2, 3), 3, 7


def test_the_undisturbed_run_passes_every_crash_point(chaos: Chaos) -> None:
    reference = chaos.reference(SEED)
    missing = set(POINTS) - set(reference.names)
    assert ELSEWHERE <= missing <= {*AFTER_A_CRASH, *ELSEWHERE}


def test_the_workload_has_what_could_go_wrong(chaos: Chaos) -> None:
    reference = chaos.reference(SEED)
    report = reference.report
    figures = report["figures"].values()
    assert {one["state"] for one in figures} == {"running", "deleted", "failed"}
    assert sum(one["late_rows"] for one in figures) > 0
    assert sum(one["failures"] for one in figures) > 0
    assert report["dead"]
    assert any("compact" in about for _, about in reference.passes), "buckets are compacted"
    answers = [answer for mine in report["answers"].values() for answer in mine]
    assert any(partial for _, (partial, *_), *_ in answers), "windows that began before the cut"
    assert any(incomplete for _, (_, incomplete, _), *_ in answers), "windows whose data are lost"
    assert any(path.startswith(home.GROUPS) for name, path in reference.passes if name == "exchange.done")
    assert any(path.startswith(home.BUCKETS) for name, path in reference.passes if name == "exchange.done")
    assert report["figures"][POISON]["reason"].startswith("QUARANTINED")
    assert any(offset for _, _, _, offset, _, _ in answers), "answers that come in pieces"
    assert len(report["kept"]) < len(figures), "queries that are forgotten"
    assert any(len(report["kept"][query]) < len(report["answers"][query]) for query in report["kept"]), "old answers go"


def test_killed_at_every_crash_point(chaos: Chaos) -> None:
    chaos.kill(SEED, every_point(chaos.reference(SEED).names, SEED, EACH, RUNS))


@pytest.mark.parametrize("seed", OTHER_SEEDS)
def test_killed_at_random(chaos: Chaos, seed: int) -> None:
    reference = chaos.reference(seed)
    passes, seconds = len(reference.names), reference.seconds
    chaos.kill(seed, [at_random(passes, seconds, 100 * seed + n, RANDOM_DEATHS) for n in range(RANDOM_RUNS)])


def test_killed_at_every_start(chaos: Chaos) -> None:
    """Ten processes in a row that die before they have done anything new."""
    starts = [Kill("sweep.found"), Kill("endpoint.written")] * 5
    assert chaos.kill(SEED, [[Kill("commit_fire.after-commit:9"), *starts]]) == []
