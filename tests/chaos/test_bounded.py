"""What runs for long does not grow: files, rows of the metastore, memory of driver and workers.

    0 ──────────── 1/4 ──────────── 1/2 ─────────────────────────────── end
                                     measured                            measured: not more than at half

By count and by bytes, never by time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Engine, MillstreamError
from millstream.config import Settings
from millstream.engine import engine as engine_module
from millstream.engine.status import QueryRequest
from millstream.model import codec
from millstream.runtime import worker
from millstream.sources.source import GamingGenerator, Generator
from tests.chaos.churn import ROUND, Churn, open_files
from tests.chaos.processes import memory_of, spark_of, workers_of
from tests.chaos.workload import OFFENDER, SECOND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = 3600 * SECOND
# What chance and the moment of measuring add, of things counted by the dozen and of bytes.
SOME, SOME_BYTES = 40, 1 << 20
# The share by which the end may lie above the half.
SHARE = 1.25
MEGABYTE = 1 << 20


def grown(half: Mapping[str, int], end: Mapping[str, int], some: int) -> dict[str, tuple[int, int]]:
    """What is larger at the end than it may be."""
    return {
        name: (half.get(name, 0), value) for name, value in end.items() if value > SHARE * half.get(name, 0) + some
    }


def test_an_hour_of_churn_leaves_nothing_behind(
    tmp_path: Path, queries: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small enough that the limits are reached.
    monkeypatch.setattr(worker, "UNUSED_SECONDS", 0.0)
    monkeypatch.setattr(worker, "KEPT_MEMBERS", 200)
    compiled: dict[str, Any] = {name: codec.loads(text) for name, text in queries.items() if name != OFFENDER}
    churn = Churn(tmp_path, compiled, seed=1)
    rounds = HOUR // ROUND
    churn.run(rounds // 2)
    half, half_bytes, half_objects, half_open = churn.counts(), churn.bytes(), churn.objects(), open_files()
    churn.run(rounds - rounds // 2)
    assert churn.core.pipelines["purchases"].watermark is not None
    assert half["rows of millstream_epochs"] > 0
    assert half["files in answers"] > 0
    assert half["groups of workers"] > 0
    assert grown(half, churn.counts(), SOME) == {}
    assert grown(half_bytes, churn.bytes(), SOME_BYTES) == {}
    assert churn.objects() < SHARE * half_objects
    assert open_files() < SHARE * half_open + SOME
    churn.close()
