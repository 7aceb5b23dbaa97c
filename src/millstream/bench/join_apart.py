"""What is measured without Spark's workers: the engine's own stores and fires in this process, Spark only analyses.

So times are those of the kernels, and the memory of the process is that of the fire and of the reader.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, TypeVar

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.bench.jobs import Tell
from millstream.bench.join_jobs import Aggregation, ApartJob, ApartResult, Memory
from millstream.catalog.metastore import QueryRecord
from millstream.engine.core import Core
from millstream.engine.handle import PAGE_ANSWERS
from millstream.errors import EngineError
from millstream.model.plan import FireResult
from millstream.model.stream import Stream
from millstream.runtime.fire import FireTask
from millstream.runtime.home import Home
from millstream.runtime.jobs import _fire
from millstream.runtime.join_fire import JoinTask
from millstream.runtime.spark import Spark
from millstream.runtime.worker import run_ingest
from millstream.sources.chunk import Chunk, Origin
from millstream.sources.generators import DEFAULT_START, MICROS
from millstream.sources.schema import parse_ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")

SCHEMA = "k BIGINT, v BIGINT, time TIMESTAMP"
STREAMS = ("left_rows", "right_rows")
WINDOW_SECONDS = 10
# Windows that are fired and timed; the one before them is warm-up.
WINDOWS = 5
_SOURCES = ", ".join(
    f"{name} AS (SELECT *, window(time, '{WINDOW_SECONDS} seconds') AS w FROM {stream})"
    for name, stream in zip("lr", STREAMS, strict=True)
)
GROUPED = (
    f"WITH {_SOURCES} SELECT l.k, COUNT(*) AS n, SUM(l.v) AS a, SUM(r.v) AS b "
    "FROM l JOIN r ON l.k = r.k AND l.w = r.w GROUP BY l.k, l.w"
)
PAIRS = f"WITH {_SOURCES} SELECT l.k, l.v AS a, r.v AS b FROM l JOIN r ON l.k = r.k AND l.w = r.w"
IN_DUCKDB = "SELECT l.k, COUNT(*) AS n, SUM(l.v) AS a, SUM(r.v) AS b FROM l JOIN r ON l.k = r.k GROUP BY l.k"


def run_apart(job: ApartJob, tell: Tell) -> ApartResult:
    """Measure the aggregation, then the memory."""
    tell(0.0, "starting")
    spark = _Analysing()
    try:
        tell(0.2, "an aggregation over a join")
        aggregation = _in_home(job.workspace, spark, lambda core: _aggregation(core, job.keys, job.per_key))
        tell(0.6, f"an answer of {job.hot_rows**2:,} rows")
        memory = _in_home(job.workspace, spark, lambda core: _memory(core, job.hot_rows))
        return ApartResult(aggregation, memory)
    finally:
        spark.session.stop()


class _Analysing(Spark):
    """Spark for the analysis of queries alone: fires run in this process."""

    def __init__(self, session: SparkSession | None = None) -> None:
        super().__init__(session, parallelism=1)

    def fire(self, tasks: Sequence[FireTask | JoinTask]) -> tuple[list[FireResult], dict[str, float]]:
        found = [_fire(task) for task in tasks]
        seconds: dict[str, float] = {}
        for _, phases in found:
            for phase, value in phases.items():
                seconds[phase] = seconds.get(phase, 0.0) + value
        return [result for result, _ in found], seconds


def _in_home(workspace: str, spark: Spark, run: Callable[[Core], Result]) -> Result:
    with tempfile.TemporaryDirectory(prefix="apart-", dir=workspace) as folder:
        core = Core(Home(folder), spark)
        try:
            for name in STREAMS:
                core.add_stream(Stream(name, parse_ddl(SCHEMA), "time", 0, ()))
            return run(core)
        finally:
            core.close()


def window_rows(number: int, keys: int, per_key: int, seed: int) -> pa.Table:
    """The rows of one window of one side: so many of each key, in random order, values from 0 to 999."""
    rows = keys * per_key
    random = np.random.default_rng((seed, number))
    times = np.arange(rows, dtype=np.int64) * (WINDOW_SECONDS * MICROS) // rows
    times += DEFAULT_START + number * WINDOW_SECONDS * MICROS
    columns = [
        pa.array(random.permutation(rows) % keys),
        pa.array(random.integers(0, 1000, rows)),
        pa.array(times).view(pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC")),
    ]
    return pa.table(columns, names=["k", "v", "time"])


def _create(core: Core, sql: str) -> None:
    core.registry.seal([core.compile(sql, "q")], [])


def _ingest(core: Core, number: int, tables: Sequence[pa.Table]) -> None:
    for name, table in zip(STREAMS, tables, strict=True):
        given = partial(run_ingest, chunks=[Chunk(table, None, Origin(name, 1))])
        core.pipelines[name].process(number, f"window {number}", given)


def _aggregation(core: Core, keys: int, per_key: int) -> Aggregation:
    _create(core, GROUPED)
    fires, ingests = [], []
    for number in range(WINDOWS + 2):
        before = _spent(core)
        tables = [window_rows(number, keys, per_key, side) for side in range(2)]
        _ingest(core, number, tables)
        # The rows of this window close the one before.
        core.fire_all()
        fired, ingested = (after - then for after, then in zip(_spent(core), before, strict=True))
        fires.append(fired)
        ingests.append(ingested)
    answers, _ = core.answers.read(core.metastore.query("q"), None, 1)
    tables = [window_rows(0, keys, per_key, side) for side in range(2)]
    found, built, planned = _in_duckdb(tables)
    fire = median(fires[2:])
    whole = fire + median(ingests[2:])
    agree = _same(answers[0].table, found)
    return Aggregation(2 * keys * per_key, keys * per_key**2, fire, whole, built, planned, agree)


def _spent(core: Core) -> tuple[float, float]:
    """Seconds of fires without the writing of their files, and of ingest."""
    fires = sum(seconds for phase, seconds in core.firing.seconds.items() if phase in ("join: read", "join: answer"))
    batches = (p.metrics.seconds for p in core.pipelines.values())
    ingest = sum(seconds for phases in batches for name, seconds in phases.items() if name not in ("batch", "write"))
    return fires, ingest


def _in_duckdb(tables: Sequence[pa.Table]) -> tuple[pa.Table, float, float]:
    """The groups, and the seconds with all pairs built and as DuckDB plans it by itself; with one thread, as the
    kernels have, and the faster of two runs."""
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        for name, table in zip("lr", tables, strict=True):
            connection.register(f"given_{name}", table.select(["k", "v"]))
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given_{name}")
        _, planned = _timed(connection)
        # DuckDB would aggregate both sides before it joins them.
        connection.execute("SET disabled_optimizers = 'partial_aggregate_pushdown'")
        found, built = _timed(connection)
    return found, built, planned


def _timed(connection: duckdb.DuckDBPyConnection) -> tuple[pa.Table, float]:
    spent = []
    for _ in range(2):
        began = time.perf_counter()
        found = connection.sql(IN_DUCKDB).to_arrow_table()
        spent.append(time.perf_counter() - began)
    return found, min(spent)


def _same(ours: pa.Table, theirs: pa.Table) -> bool:
    def rows(table: pa.Table) -> list[tuple[int, ...]]:
        return sorted(zip(*([int(v) for v in column.to_pylist()] for column in table.columns), strict=True))

    return rows(ours) == rows(theirs)


def _memory(core: Core, hot_rows: int) -> Memory:
    _create(core, PAIRS)
    sides = [window_rows(0, 1, hot_rows, side) for side in range(2)]
    _ingest(core, 0, sides)
    for pipeline in core.pipelines.values():
        pipeline.flush()
    before = reset_peak()
    began = time.monotonic()
    core.fire_all()
    fired, fire_seconds = peak_memory(), time.monotonic() - began
    reset_peak()
    began = time.monotonic()
    record = core.metastore.query("q")
    if record.reason:
        raise EngineError("INTERNAL", "the join of one key was not answered", detail=record.reason)
    read, sums = _read(core, record)
    # Every row of a side stands beside each row of the other.
    agree = (read, *sums) == (hot_rows**2, *(hot_rows * (pc.sum(side["v"]).as_py() or 0) for side in sides))
    read_seconds = time.monotonic() - began
    return Memory(record.answer_rows, read, agree, before, fired, peak_memory(), fire_seconds, read_seconds)


def _read(core: Core, record: QueryRecord) -> tuple[int, list[int]]:
    """Read all answers as a reader who gives no limit is served: their number of rows, and the sums of both sides."""
    cursor, rows, sums = None, 0, [0, 0]
    while True:
        found, cursor = core.answers.read(record, cursor, PAGE_ANSWERS)
        if not found:
            return rows, sums
        for answer in found:
            rows += answer.table.num_rows
            sums = [total + (pc.sum(answer.table[name]).as_py() or 0) for total, name in zip(sums, "ab", strict=True)]


def peak_memory() -> int:
    """The most memory, in bytes, that this process has had since the last reset, where the system can reset."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) << 10
    except (OSError, StopIteration):
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return used if sys.platform == "darwin" else used << 10


def reset_peak() -> int:
    """Let the peak begin again at what is used now, and give that."""
    with suppress(OSError):
        # The value for "forget the peak" of proc(5).
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return peak_memory()
