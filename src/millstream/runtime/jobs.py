"""The two kinds of Spark job, ingest and fire, seen from the driver: tasks go out as descriptions, and come back as
descriptions."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from millstream.errors import SourceError
from millstream.model.plan import BatchResult, FireResult
from millstream.runtime.fire import FireTask, run_fire
from millstream.runtime.worker import IngestTask, merged, needed_columns, run_ingest
from millstream.sources.chunk import CHUNK_ROWS, Chunk, Origin
from millstream.sources.splits import Split, read_split

EMPTY = BatchResult(0, 0, None, 0, 0)


def ingest_splits(spark: SparkSession, task: IngestTask, splits: Sequence[list[Split]]) -> BatchResult:
    """Columnar path: each Spark task reads its splits itself, straight into Arrow."""
    if not splits:
        return EMPTY
    rdd = spark.sparkContext.parallelize(list(splits), len(splits))
    return merged(rdd.map(partial(_ingest_splits, task)).collect())


def _ingest_splits(task: IngestTask, splits: list[Split]) -> BatchResult:
    return run_ingest(task, _read(task, splits))


def _read(task: IngestTask, splits: Sequence[Split]) -> Iterator[Chunk | SourceError]:
    wanted = needed_columns(task)
    fields = [f for f in task.stream.fields]
    for split in splits:
        try:
            yield from read_split(split, fields, wanted)
        except SourceError as error:
            yield error


def ingest_rows(task: IngestTask, rows: DataFrame) -> BatchResult:
    """Row path: any streaming DataFrame, through ``mapInArrow``."""
    wanted = needed_columns(task)
    found = rows.select(*[f"`{name.replace('`', '``')}`" for name in wanted])
    packed = found.mapInArrow(partial(_ingest_arrow, task), "result binary").collect()
    return merged([pickle.loads(row.result) for row in packed]) if packed else EMPTY


def _ingest_arrow(task: IngestTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    result = run_ingest(task, _chunks(task, batches))
    yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(result)], pa.binary())], names=["result"])


def _chunks(task: IngestTask, batches: Iterator[pa.RecordBatch]) -> Iterator[Chunk]:
    """Arrow batches of 10,000 rows put together to chunks that are worth a kernel call."""
    held: list[pa.RecordBatch] = []
    rows, first = 0, 1
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= CHUNK_ROWS:
            yield _chunk(task, held, first)
            held, first, rows = [], first + rows, 0
    if rows:
        yield _chunk(task, held, first)


def _chunk(task: IngestTask, batches: list[pa.RecordBatch], first: int) -> Chunk:
    table = pa.Table.from_batches(batches)
    types = {f.name: f.type.arrow for f in task.stream.fields}
    wanted = pa.schema([pa.field(name, types[name]) for name in table.column_names])
    return Chunk(table.cast(wanted), None, Origin(task.stream.name, first))


def fire(spark: SparkSession, tasks: Sequence[FireTask]) -> tuple[list[FireResult], dict[str, float]]:
    """Run fire tasks as one Spark job."""
    found = spark.sparkContext.parallelize(list(tasks), len(tasks)).map(run_fire).collect()
    seconds: dict[str, float] = {}
    for _, phases in found:
        for phase, value in phases.items():
            seconds[phase] = seconds.get(phase, 0.0) + value
    return [result for result, _ in found], seconds
