"""The engine against plain Spark on random workloads: ``ORACLE_RUNS`` of them, from ``ORACLE_SEED`` on if set."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import millstream
from millstream.engine import firing, replay
from millstream.engine.core import Core
from millstream.kernels import compiled
from millstream.runtime import join_fire, worker
from millstream.runtime.spark import Spark

from .expected import Oracle
from .shrink import shrink
from .verdict import Engine, Mismatch, mismatches, report
from .ways import ingest_by
from .workload import Workload, workloads

# Half of the workloads have joins.
RUNS = int(os.environ.get("ORACLE_RUNS", "50"))
SEED = os.environ.get("ORACLE_SEED")

# Hypothesis runs a failing workload once more to be sure; the report is not made twice.
_reports: dict[str, str] = {}


def replay_with(spark: SparkSession, workload: Workload) -> Engine:
    def run(spec: dict[str, Any], out: Path) -> object:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(replay, "FIRE_ROUNDS", workload.fire_rounds)
            patch.setattr(join_fire, "PACE", workload.pace)
            patch.setattr(worker, "GATHERED_ROWS", workload.gathered_rows)
            patch.setattr(firing, "LIGHT", workload.light[0])
            patch.setattr(firing, "HEAVIER", workload.light[1])
            folder = out.with_name("batches")
            folder.mkdir()
            patch.setattr(Spark, "ingest", ingest_by(workload.way, folder))
            if workload.compiled:
                # Spark starts other workers where the environment is another.
                patch.setitem(spark.sparkContext.environment, "MILLSTREAM_COMPILED_FROM", "1")
                patch.setattr(compiled, "MANY", 1)
            if workload.aside:
                patch.setattr(Core, "fire_all", fire_beside)
            return millstream.replay(spec, out, spark=spark)

    return run


def fire_beside(core: Core, fire_all: Callable[[Core], None] = Core.fire_all) -> None:
    """Fire as a live engine does, heavy groups aside of light ones and joins; then what is left."""
    for pipeline in core.pipelines.values():
        core.firing.fire(pipeline, aside=True)
    for name in core.metastore.joins():
        core.joining.fire(name)
    fire_all(core)


def refused(found: list[Mismatch]) -> bool:
    return any(mismatch.text.startswith("refused") for mismatch in found)


def check(workload: Workload, spark: SparkSession) -> None:
    if workload.token in _reports:
        pytest.fail(_reports[workload.token], pytrace=False)
    oracle, engine = Oracle(spark), replay_with(spark, workload)
    found = mismatches(workload, oracle, engine)
    if not found:
        return

    def fails(smaller: Workload) -> bool:
        try:
            again = mismatches(smaller, oracle, engine)
        except PySparkException:
            # A smaller text that plain Spark refuses.
            return False
        return bool(again) and refused(again) == refused(found)

    smallest = shrink(workload, fails)
    _reports[workload.token] = report(workload, smallest, mismatches(smallest, oracle, engine), oracle)
    pytest.fail(_reports[workload.token], pytrace=False)


@pytest.mark.slow
@pytest.mark.skipif(SEED is not None, reason="ORACLE_SEED names the workloads")
# No shrinking by hypothesis: a smaller seed is another workload, not a smaller one.
@settings(
    max_examples=RUNS, phases=(Phase.generate,), database=None, suppress_health_check=list(HealthCheck), deadline=None
)
@given(workload=workloads())
def test_answers_are_those_of_plain_spark(workload: Workload, spark: SparkSession) -> None:
    check(workload, spark)


@pytest.mark.slow
# 280: bounds of a window in a condition, of a stream whose times have another type than those it is joined with.
@pytest.mark.parametrize("seed", [280])
def test_workloads_that_were_wrong_once(seed: int, spark: SparkSession) -> None:
    check(Workload.parse(str(seed)), spark)


@pytest.mark.slow
@pytest.mark.skipif(SEED is None, reason="runs the workloads that ORACLE_SEED names")
def test_answers_of_the_named_workloads(spark: SparkSession) -> None:
    assert SEED is not None
    first, _, knobs = SEED.partition(",")
    for place in range(RUNS):
        print(f"workload {place + 1} of {RUNS}", flush=True)
        check(Workload.parse(f"{int(first) + place}{',' if knobs else ''}{knobs}"), spark)
