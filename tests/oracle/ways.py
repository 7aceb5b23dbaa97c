"""The ways in which rows come to the engine: answers do not depend on them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.model.plan import BatchResult
from millstream.runtime import jobs
from millstream.runtime.scans import Scan, exact_splits
from millstream.runtime.spark import Spark
from millstream.runtime.worker import IngestTask
from millstream.sources.splits import FileSplit, Split

# Workers read the source's own splits; a streaming DataFrame that only reads files, which workers then read; one whose
# rows Spark has to make.
SPLITS, SCANNED, ROWS = "splits", "scanned", "rows"
# So short that files have several row groups.
ROW_GROUP = 64

Ingest = Callable[[Spark, IngestTask, Sequence[list[Split]]], BatchResult]


def ingest_by(way: str, folder: Path) -> Ingest:
    """In the place of ``Spark.ingest``: the rows of a batch become files of its own in a folder, one for each task."""
    numbers = itertools.count()

    def ingest(spark: Spark, task: IngestTask, splits: Sequence[list[Split]]) -> BatchResult:
        if way == SPLITS or not splits:
            return jobs.ingest_splits(spark.session, task, splits)
        paths = tuple(_written(part, folder / f"{next(numbers):04}.parquet") for part in splits)
        columns = tuple(field.name for field in task.stream.fields)
        if way == SCANNED:
            found = exact_splits(Scan(columns, paths), task.stream.fields, spark.parallelism)
            assert found is not None, "these files have just the columns of the stream"
            return jobs.ingest_splits(spark.session, task, found, strict=True)
        # Settings for the way to Python are those of a streaming query's own session.
        return jobs.ingest_rows(task, spark.session.newSession().read.parquet(*paths))

    return ingest


def _written(splits: Sequence[Split], path: Path) -> str:
    tables = []
    for split in splits:
        assert isinstance(split, FileSplit)
        tables.append(pq.ParquetFile(split.path).read().slice(split.first_row, split.rows))
    pq.write_table(pa.concat_tables(tables), path, row_group_size=ROW_GROUP)
    return str(path)
