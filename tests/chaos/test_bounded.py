"""What runs for long does not grow: files, rows of the metastore, memory of driver and workers.

    0 ──────────── 1/4 ──────────── 1/2 ─────────────────────────────── end
                                     measured                            measured: not more than at half

By count and by bytes, never by time.
"""

from __future__ import annotations

import gc
import os
import random
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Engine, MillstreamError
from millstream.catalog import batches
from millstream.config import Settings
from millstream.engine import answers, rounds
from millstream.engine.status import QueryRequest
from millstream.model import codec
from millstream.runtime import loading
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
    return {name: (half.get(name, 0), value) for name, value in end.items() if value > SHARE * half.get(name, 0) + some}


def test_an_hour_of_churn_leaves_nothing_behind(
    tmp_path: Path, queries: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small enough that the limits are reached.
    monkeypatch.setattr(loading, "UNUSED_SECONDS", 0.0)
    monkeypatch.setattr(loading, "KEPT_MEMBERS", 200)
    monkeypatch.setattr(batches, "KEEP_PLANS", 20)
    monkeypatch.setattr(answers, "OPEN_FILES", 32)
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


# Of the streams on the real engine: rows for each second of event time, and event time of a micro-batch.
DENSITY, BATCH_SECONDS = 200, 90
RETENTION = 2 * SECOND
_SOURCES = (
    "WITH p AS (SELECT *, window(time, '{n} seconds') AS w FROM purchases), "
    "a AS (SELECT *, window(time, '{n} seconds') AS w FROM ads) "
)
TEXTS = (
    "SELECT gem_pack, sum(price) AS total FROM purchases WHERE user_id < {n}000 "
    "GROUP BY gem_pack, window(time, '{n} seconds')",
    "SELECT gem_pack, count(*) AS n, max(price) AS best FROM purchases WHERE price > {n} "
    "GROUP BY gem_pack, window(time, '60 seconds', '{n} seconds') HAVING count(*) > 2",
    "SELECT count(*) AS n FROM ads WHERE gem_pack <> {n} GROUP BY window(time, '{n} seconds')",
    "SELECT user_id, price FROM purchases WHERE user_id = {n}",
    _SOURCES + "SELECT p.gem_pack, count(*) AS n FROM p JOIN a ON p.gem_pack = a.gem_pack AND p.w = a.w "
    "GROUP BY p.gem_pack, p.w",
    _SOURCES + "SELECT p.price, a.gem_pack FROM p JOIN a ON p.user_id = a.user_id AND p.w = a.w",
    "SELECT nonsense_{n} FROM purchases",
)


class Crowd:
    """Users of an engine who create and delete all the time, one of them nonsense."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self._engine = engine
        self._chance = random.Random(seed)
        self._alive: deque[str] = deque()

    def change(self) -> None:
        texts = [text.format(n=self._chance.randrange(5, 60)) for text in self._chance.sample(TEXTS, 4)]
        for made in self._engine.create_queries([QueryRequest(text) for text in texts]):
            if not isinstance(made, MillstreamError):
                self._alive.append(made.id)
        leaving = [self._alive.popleft() for _ in range(len(self._alive) - 20)]
        self._engine.delete_queries(leaving)
        self._engine.read_answers(self._alive[-1], "newest")
        self._engine.status()


def counts(engine: Engine) -> dict[str, int]:
    """What could grow, by count."""
    core = engine._core
    found = {f"registry {name}": len(one) for name, one in vars(core.registry).items() if hasattr(one, "__len__")}
    for path in core.home.files():
        folder = f"files in {path.partition('/')[0]}"
        found[folder] = found.get(folder, 0) + 1
    found["checkpoint files"] = sum(1 for path in (engine.home / "checkpoints").rglob("*") if path.is_file())
    found["queries"] = len(core.metastore.queries())
    found["buckets"] = sum(len(one) for p in core.pipelines.values() for one in p.buckets._groups.values())
    gc.collect()
    found["objects"] = len(gc.get_objects())
    return found


def memory(spark: SparkSession) -> dict[str, int]:
    """Bytes of the driver, of Spark's heap in use, and of the worker that has most, by pool."""
    jvm: Any = spark._jvm
    runtime = jvm.java.lang.Runtime.getRuntime()
    used = []
    # What one collection only finds to be garbage, the next one frees.
    for _ in range(3):
        jvm.System.gc()
        used.append(runtime.totalMemory() - runtime.freeMemory())
    found = {"driver": memory_of(os.getpid()), "heap": min(used)}
    for pool in ("ingest", "fire"):
        workers = workers_of(spark_of(os.getpid()), pool)
        found[f"worker of {pool}"] = max(map(memory_of, workers), default=0)
    return found


class Housekeeping:
    """Counts the engine's own rounds of it."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self._real = engine._core.tidy
        self._done = 0
        monkeypatch.setattr(engine._core, "tidy", self._tidy)

    def _tidy(self, *retention: int) -> None:
        self._real(*retention)
        self._done += 1

    def wait(self) -> None:
        """Until a round that has begun after now is over."""
        wanted, deadline = self._done + 2, time.monotonic() + 120
        while self._done < wanted:
            assert time.monotonic() < deadline, "the engine keeps no house"
            time.sleep(0.1)


@pytest.mark.slow
def test_an_hour_on_spark_stays_within_its_memory(
    spark: SparkSession, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "HOUSEKEEPING_INTERVAL", 1.0)
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "5")
    rows = DENSITY * HOUR // SECOND
    try:
        with Engine(home=home, spark=spark, settings=Settings(answer_retention=RETENTION)) as engine:
            for seed, name in enumerate(("purchases", "ads")):
                generator = GamingGenerator(seed=seed, density=DENSITY, users=2000, table=name)
                source = Generator(generator, rows=rows, max_rows_per_batch=DENSITY * BATCH_SECONDS)
                engine.create_stream(name, source, time="time")
            crowd, housekeeping = Crowd(engine, seed=1), Housekeeping(engine, monkeypatch)
            measured = []
            for share in (0.5, 1.0):
                while any(stream.rows < share * rows for stream in engine.streams()):
                    crowd.change()
                    assert [stream.error for stream in engine.streams()] == [None, None]
                    time.sleep(0.1)
                # How far fires and housekeeping are behind is a matter of the machine.
                engine._core.fire_all()
                housekeeping.wait()
                measured.append((counts(engine), memory(spark)))
            engine.await_idle()
    finally:
        spark.conf.unset("spark.sql.streaming.minBatchesToRetain")
    (half, half_memory), (end, end_memory) = measured
    assert half["files in answers"] > 0
    assert min(half_memory.values()) > 0
    assert grown(half, end, SOME) == {}
    assert grown(half_memory, end_memory, 30 * MEGABYTE) == {}
