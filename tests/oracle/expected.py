"""What plain Spark answers: each query's twin over the rows of its cut, without the rows that are late for a window.

Micro-batch b holds the rows ``b * batch_rows …``; W(b) is the watermark before it. A row of batch b counts in a window
that ends at E iff W(b) < E. A query deleted at m has fired the windows with E <= W(m), and no others; one that lives to
the end is flushed.

A row of a join counts in a window if it does so on its own stream, so windows are made, and late rows left out, for
each source by itself. A join deleted at m has fired the windows with E <= W(m) of all its streams.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from .queries import END, QueryCase
from .streams import StreamCase
from .workload import Case, Workload

Marks = list[int | None]

# One thread for each core: planning of one query overlaps with the run of another.
THREADS = 2
# Small and interpreted: a workload's queries are run once each, and compiling one takes longer than running it.
SESSION_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@dataclass(frozen=True, slots=True)
class Expected:
    """The answers of a query, and what the summary should say of it; ``windows`` is None for a query without window."""

    table: pa.Table
    windows: int | None
    late_rows: int
    twin: str


class TwinMismatch(Exception):
    """The generator wrote two texts of different types: a mistake of the oracle, not of the engine."""


class Oracle:
    """Plain Spark over a workload's streams. The session's own settings and views stay as they are."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark.newSession()
        for name, value in SESSION_SETTINGS.items():
            self.spark.conf.set(name, value)

    def frame(self, table: pa.Table) -> DataFrame:
        """The table with Spark's types as Parquet files give them: a timestamp without zone is a timestamp_ntz."""
        return self.spark.createDataFrame(table, from_arrow_schema(table.schema, prefer_timestamp_ntz=True))

    def expected(self, workload: Workload) -> dict[str, Expected]:
        with self._views(workload), ThreadPoolExecutor(THREADS) as threads:
            answers = threads.map(lambda query: self._answer(query, workload), workload.queries)
            return dict(zip((q.id for q in workload.queries), answers, strict=True))

    @contextmanager
    def _views(self, workload: Workload) -> Iterator[None]:
        """For each stream a view with rows, batch and watermark before it; and an empty one that names the columns."""
        names = []
        for stream in workload.streams:
            marks = stream.watermarks(workload.rounds)
            batches = [row // stream.batch_rows for row in range(stream.rows)]
            table = stream.table.append_column("__batch", pa.array(batches, pa.int32()))
            moments = pa.array([marks[b] for b in batches], pa.int64()).cast(
                stream.table.schema.field(stream.time_name).type
            )
            frame = self.frame(table.append_column("__watermark", moments))
            # One partition: no query needs an exchange then.
            frame.coalesce(1).createOrReplaceTempView(f"{stream.name}_rows")
            self.frame(stream.table.slice(0, 0)).createOrReplaceTempView(stream.name)
            names += [stream.name, f"{stream.name}_rows"]
        try:
            yield
        finally:
            for name in names:
                self.spark.catalog.dropTempView(name)

    def _answer(self, query: Case, workload: Workload) -> Expected:
        streams = [workload.stream(name) for name in query.streams]
        marks = [stream.watermarks(workload.rounds) for stream in streams]
        late = [len(late_rows(query, stream, known)) for stream, known in zip(streams, marks, strict=True)]
        twin = self._twin(query, streams, late)
        schema = to_arrow_schema(self.spark.sql(query.sql).schema, timezone="UTC")
        answer = self.spark.sql(twin).toArrow()
        windows = None
        if query.window:
            answer = self.due(answer, query, marks)
            windows = pc.count_distinct(answer.column(END)).as_py()
            answer = answer.drop_columns([END])
        if [f.type for f in answer.schema] != [f.type for f in schema]:
            raise TwinMismatch(f"{query.sql}\n{schema}\n{twin}\n{answer.schema}")
        return Expected(answer.rename_columns(schema.names), windows, sum(late), twin)

    def _twin(self, query: Case, streams: list[StreamCase], late: list[int]) -> str:
        if isinstance(query, QueryCase):
            [stream] = streams
            columns = tuple(stream.table.column_names)
            return query.twin(cut_source(query, stream), columns, on_time("__window") if late[0] else None)
        sources = {stream.name: cut_source(query, stream) for stream in streams}
        return query.twin(sources, {s.name: on_time("w") if n else None for s, n in zip(streams, late, strict=True)})

    def due(self, answer: pa.Table, query: Case, marks: list[Marks]) -> pa.Table:
        """The windows that fire: all of a query that lives to the end, those closed by its batches of a deleted one."""
        if query.delete_at is None:
            return answer
        closed = [known[query.delete_at] for known in marks]
        if None in closed:
            return answer.slice(0, 0)
        return answer.filter(pc.less_equal(answer.column(END).cast(pa.int64()), self.last_end(closed)))

    def last_end(self, closed: list[int | None]) -> int:
        """The last window of a deleted query, given what each stream has closed."""
        return min(mark for mark in closed if mark is not None)


def cut_source(query: Case, stream: StreamCase) -> str:
    """The rows of the query's batches; rows without event time are dead letters, no query's input."""
    conditions = [f"`{stream.time_name}` IS NOT NULL", f"__batch >= {query.create_at}"]
    if query.delete_at is not None:
        conditions.append(f"__batch < {query.delete_at}")
    return f"(SELECT * FROM {stream.name}_rows WHERE {' AND '.join(conditions)})"


def on_time(window: str) -> str:
    return f"__watermark IS NULL OR __watermark < {window}.end"


def late_rows(query: Case, stream: StreamCase, marks: Marks) -> set[int]:
    """Rows (by place) of the cut that lie in some window of the query that was closed already."""
    late: set[int] = set()
    if query.window is None:
        return late
    for row, time in enumerate(stream.times()):
        batch = row // stream.batch_rows
        if time is None or batch < query.create_at or (query.delete_at is not None and batch >= query.delete_at):
            continue
        mark = marks[batch]
        if mark is not None and query.window.first_end(time) <= mark:
            late.add(row)
    return late


def late_rows_of_stream(stream: StreamCase, workload: Workload) -> int:
    """Rows that were late for some query; each counts once."""
    marks = stream.watermarks(workload.rounds)
    return len(set().union(*(late_rows(q, stream, marks) for q in workload.queries if stream.name in q.streams)))
