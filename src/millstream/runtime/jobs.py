"""The two kinds of Spark job, ingest and fire, seen from the driver: tasks go out as descriptions, and come back as
descriptions."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType, DateType, NumericType, TimestampNTZType, TimestampType

from millstream.errors import SourceError
from millstream.model.plan import BatchResult, FireResult
from millstream.runtime.entering import ASIDE_POOL, FIRE_POOL, INGEST_POOL, POOL_VARIABLE, enter
from millstream.runtime.fire import FireTask, run_fire
from millstream.runtime.join_fire import JoinTask, run_join_fire
from millstream.runtime.worker import IngestTask, merged, needed_columns, run_ingest, unread_times
from millstream.sources.chunk import Chunk, Origin
from millstream.sources.splits import Split, read_split

EMPTY = BatchResult(0, 0, None, 0, 0)

_environment = threading.Lock()

# The value that turns Spark's limit of bytes off, and rows of a batch: many where they are small, few where one may be
# a megabyte.
NO_LIMIT = 2**31 - 1
FIXED_ROWS, WIDE_ROWS = 65_536, 1_000
FIXED_WIDTH = (NumericType, BooleanType, DateType, TimestampType, TimestampNTZType)

Task = TypeVar("Task")
Result = TypeVar("Result")


@contextmanager
def _pool(context: SparkContext, name: str) -> Iterator[None]:
    """Functions handed to Spark inside this run in workers of the pool; the variables are read when they are handed
    over."""
    with _environment:
        context.environment[POOL_VARIABLE] = name
        try:
            yield
        finally:
            del context.environment[POOL_VARIABLE]


def _run(spark: SparkSession, function: Callable[[Task], Result], tasks: Sequence[Task], pool: str) -> list[Result]:
    context = spark.sparkContext
    rdd = context.parallelize(list(tasks), len(tasks)).map(function)
    with _pool(context, pool):
        _ = rdd._jrdd  # builds the JVM's side, with the environment of now
    return rdd.collect()


def ingest_splits(
    spark: SparkSession, task: IngestTask, splits: Sequence[list[Split]], strict: bool = False
) -> BatchResult:
    """Columnar path: each Spark task reads its splits itself, straight into Arrow. A file that cannot be read is a dead
    letter, or fails the job where it is ``strict``."""
    if not splits:
        return EMPTY
    return merged(_run(spark, partial(_ingest_splits, task, strict=strict), splits, INGEST_POOL))


def _ingest_splits(task: IngestTask, splits: list[Split], strict: bool = False) -> BatchResult:
    enter()
    return run_ingest(task, _read(task, splits, strict))


def _read(task: IngestTask, splits: Sequence[Split], strict: bool = False) -> Iterator[Chunk | SourceError]:
    wanted, unread = needed_columns(task), unread_times(task)
    fields = [f for f in task.stream.fields]
    for split in splits:
        try:
            yield from read_split(split, fields, wanted, unread)
        except SourceError as error:
            if strict:
                raise
            yield error


def ingest_rows(task: IngestTask, rows: DataFrame) -> BatchResult:
    """Row path: any streaming DataFrame, through ``mapInArrow``."""
    wanted = needed_columns(task)
    # PySpark's select makes a column of each name first, by calls into the JVM: 11 ms for eight, this takes 7.
    found = rows.selectExpr(*[f"`{name.replace('`', '``')}`" for name in wanted])
    _fast_batches(found)
    with _pool(rows.sparkSession.sparkContext, INGEST_POOL):
        mapped = found.mapInArrow(partial(_ingest_arrow, task), "result binary")
    packed = mapped.collect()
    return merged([pickle.loads(row.result) for row in packed]) if packed else EMPTY


def _fast_batches(rows: DataFrame) -> None:
    """Limit Arrow batches by rows alone. Spark checks a limit of bytes after each row, by asking every column for its
    size, which takes longer than all else it does for the row. The session is that of one streaming query: Spark gives
    each a clone."""
    fixed = all(isinstance(field.dataType, FIXED_WIDTH) for field in rows.schema.fields)
    for key, value in {"maxBytesPerBatch": NO_LIMIT, "maxRecordsPerBatch": FIXED_ROWS if fixed else WIDE_ROWS}.items():
        rows.sparkSession.conf.set(f"spark.sql.execution.arrow.{key}", value)


def _ingest_arrow(task: IngestTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    enter()
    result = run_ingest(task, _chunks(task, batches))
    yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(result)], pa.binary())], names=["result"])


def _chunks(task: IngestTask, batches: Iterator[pa.RecordBatch]) -> Iterator[Chunk]:
    types = {f.name: f.type.arrow for f in task.stream.fields}
    first = 1
    for batch in batches:
        wanted = pa.schema([pa.field(name, types[name]) for name in batch.schema.names])
        yield Chunk(pa.Table.from_batches([batch]).cast(wanted), None, Origin(task.stream.name, first))
        first += batch.num_rows


def _fire(task: FireTask | JoinTask) -> tuple[FireResult, dict[str, float]]:
    enter()
    return run_join_fire(task) if isinstance(task, JoinTask) else run_fire(task)


def fire(spark: SparkSession, tasks: Sequence[FireTask | JoinTask]) -> tuple[list[FireResult], dict[str, float]]:
    """Run fire tasks as one Spark job."""
    aside = any(isinstance(task, FireTask) and task.aside for task in tasks)
    found = _run(spark, _fire, tasks, ASIDE_POOL if aside else FIRE_POOL)
    seconds: dict[str, float] = {}
    for _, phases in found:
        for phase, value in phases.items():
            seconds[phase] = seconds.get(phase, 0.0) + value
    return [result for result, _ in found], seconds
