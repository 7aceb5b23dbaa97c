"""Replay: the real engine on recorded input, to the end, with every answer as Parquet.

    round k:   creates and deletes of k  ►  batch k of every stream  ►  …  ►  flush  ►  <id>.parquet, summary.json

Rows are taken in file-name and row order, ``batch_rows`` of each stream in a round. Answers do not depend on when
windows are fired, so firing waits until it is worth a Spark job.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.catalog.metastore import QueryRecord
from millstream.config import ReplayQuery, ReplaySpec, load_replay_spec
from millstream.engine.answers import schema_of
from millstream.engine.core import Core
from millstream.engine.registry import NewRequest
from millstream.errors import MillstreamError
from millstream.kernels.answers import AnswerReader, Place, Range
from millstream.model.join import JoinQuery
from millstream.model.stream import Stream
from millstream.runtime.home import Home
from millstream.runtime.spark import Spark
from millstream.sources.recorded import RecordedInput
from millstream.sources.schema import parse_ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Rounds, and rows, after which due windows are fired: often enough to bound the buckets kept, seldom enough to be
# worth a job.
FIRE_ROUNDS = 32
FIRE_ROWS = 2_000_000
# Progress is told at most this often, in seconds.
PROGRESS_INTERVAL = 0.1


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """How far a replay has come; ``stage`` is ``open``, ``run``, ``flush``, ``write`` or ``done``."""

    stage: str
    round: int
    rounds: int
    rows: int
    total_rows: int
    answers: int


Progress = Callable[[ReplayProgress], None]


def replay(
    spec: str | Path | Mapping[str, Any],
    out: str | Path,
    *,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Run a replay spec (a file, or the same as a dictionary) and write ``<id>.parquet`` for each query and
    ``summary.json``
    into ``out``; gives the summary. A query that is refused has its error there, and the others run."""
    loaded = load_replay_spec(spec)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="millstream-replay-") as folder:
        runtime = Spark(spark)
        try:
            core = Core(Home(folder, durable=False), runtime)
            try:
                run = _Replay(loaded, core, Path(out), progress or (lambda _: None), folder)
                return run.run(started)
            finally:
                core.close()
        finally:
            runtime.stop()


class _Replay:
    def __init__(self, spec: ReplaySpec, core: Core, out: Path, progress: Progress, folder: str) -> None:
        self.spec = spec
        self.core = core
        self.out = out
        self.progress = progress
        self.inputs = {name: self._open(name, folder) for name in spec.streams}
        self.total = sum(recorded.rows for recorded in self.inputs.values())
        self.rounds = max((-(-recorded.rows // spec.batch_rows) for recorded in self.inputs.values()), default=0)
        self.errors: dict[str, MillstreamError] = {refused.name: refused.error for refused in spec.refused}
        self.creates: dict[int, list[ReplayQuery]] = defaultdict(list)
        self.deletes: dict[int | None, list[str]] = defaultdict(list)
        for query in spec.queries:
            self.creates[query.create_at_batch].append(query)
            self.deletes[query.delete_at_batch].append(query.id)
        self.rows = 0
        self.unfired = 0
        self.told = 0.0

    def _open(self, name: str, folder: str) -> RecordedInput:
        given = self.spec.streams[name]
        fields = None if given.schema is None else parse_ddl(given.schema)
        recorded = RecordedInput(given.path, fields, given.time, Path(folder) / "converted" / name)
        description = (("source", "recorded"), ("path", given.path))
        self.core.add_stream(Stream(name, recorded.fields, given.time, given.lateness, description))
        return recorded

    def run(self, started: float) -> dict[str, Any]:
        self._tell("open", 0)
        for number in range(self.rounds):
            self._change(number)
            for name, recorded in self.inputs.items():
                self._batch(name, recorded, number)
            if number % FIRE_ROUNDS == FIRE_ROUNDS - 1 or self.unfired >= FIRE_ROWS:
                self.core.fire_all()
                self.unfired = 0
            self._tell("run", number + 1)
        self._change(None)
        self._tell("flush", self.rounds)
        for pipeline in self.core.pipelines.values():
            pipeline.flush()
        self.core.fire_all()
        self._tell("write", self.rounds)
        summary = self._write(started)
        self._tell("done", self.rounds)
        return summary

    def _change(self, number: int | None) -> None:
        """Seal the creates and deletes of a round in one epoch; None: creates that come after the last round."""
        if number is None:
            creates = [q for q in self.spec.queries if q.create_at_batch >= self.rounds]
        else:
            creates = self.creates.get(number, [])
        deletes = [] if number is None else [id for id in self.deletes.get(number, []) if id not in self.errors]
        requests = [request for q in creates if (request := self._compile(q)) is not None]
        if requests or deletes:
            self.core.registry.seal(requests, deletes)

    def _compile(self, query: ReplayQuery) -> NewRequest | None:
        try:
            return self.core.compile(query.sql, query.id)
        except MillstreamError as error:
            self.errors[query.id] = error
            return None

    def _batch(self, name: str, recorded: RecordedInput, number: int) -> None:
        first = number * self.spec.batch_rows
        last = min(first + self.spec.batch_rows, recorded.rows)
        parallelism = self.core.spark.parallelism
        splits = recorded.splits(first, last, parallelism) if first < last else []
        pipeline = self.core.pipelines[name]
        pipeline.process(number, f"rows {first} to {last}", lambda task: self.core.spark.ingest(task, splits))
        self.rows += max(0, last - first)
        self.unfired += max(0, last - first)

    def _tell(self, stage: str, number: int) -> None:
        now = time.monotonic()
        if stage != "run" or now - self.told >= PROGRESS_INTERVAL:
            self.told = now
            rows = self.core.firing.answer_rows
            self.progress(ReplayProgress(stage, number, self.rounds, self.rows, self.total, rows))

    def _write(self, started: float) -> dict[str, Any]:
        self.out.mkdir(parents=True, exist_ok=True)
        pieces = self._pieces()
        queries: dict[str, Any] = {}
        for query in self.spec.queries:
            if query.id not in self.errors:
                record = self.core.metastore.query(query.id)
                tables = (table for piece in pieces.get(query.id, ()) for table in self._built(record, piece))
                _write_parquet(self.out / f"{query.id}.parquet", schema_of(record.query), tables)
                queries[query.id] = _outcome(record)
        queries |= {name: {"error": error.as_dict()} for name, error in self.errors.items()}
        summary = self._summary(queries, time.monotonic() - started)
        (self.out / "summary.json").write_text(
            json.dumps(summary, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        return summary

    def _pieces(self) -> dict[str, list[_Piece]]:
        """Where every query's answers are, in one pass over the answer files; rows stay mapped until they are
        written."""
        found: dict[str, list[_Piece]] = defaultdict(list)
        for name in self.core.answers.streams():
            for reader in self.core.answers.everything(name):
                for query in reader.queries:
                    found[query] += [(reader, one) for one in reader.ranges(query)]
        return found

    def _built(self, record: QueryRecord, piece: _Piece) -> Iterator[pa.Table]:
        reader, one = piece
        if one[0].described:
            assert isinstance(record.query, JoinQuery)
            yield from self.core.answers.built(record.query, record.id, reader, one)
        elif one[0].rows:
            yield reader.read(one, _NAMELESS)

    def _summary(self, queries: dict[str, Any], seconds: float) -> dict[str, Any]:
        streams = {s.stream.name: s for s in self.core.metastore.streams()}
        states = streams.values()
        return {
            "rows_in": sum(s.rows for s in states),
            "late_rows": sum(s.late_rows for s in states),
            "rejected_rows": sum(s.rejected_rows for s in states),
            "batches": self.rounds,
            "seconds": round(seconds, 3),
            "streams": {
                name: {
                    "rows_in": s.rows,
                    "late_rows": s.late_rows,
                    "rejected_rows": s.rejected_rows,
                    "batches": s.batches,
                }
                for name, s in streams.items()
            },
            "queries": queries,
        }


def _outcome(record: QueryRecord) -> dict[str, Any]:
    """What the summary says of a query that ran; one that had to be stopped on the way has the reason."""
    found: dict[str, Any] = {
        "windows_fired": record.windows,
        "answer_rows": record.answer_rows,
        "late_rows": record.late_rows,
        "failures": record.failures,
    }
    return found if record.reason is None else found | {"stopped": record.reason}


_Piece = tuple[AnswerReader, tuple[Range, Place]]
_NAMELESS = pa.schema([])
# Rows that are written together: small answers would make small row groups.
GROUP_ROWS = 1 << 17


def _write_parquet(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    with pq.ParquetWriter(path, schema) as writer:
        held: list[pa.Table] = []
        rows = 0
        for table in tables:
            held.append(pa.Table.from_arrays(table.columns, schema=schema))
            rows += table.num_rows
            if rows >= GROUP_ROWS:
                writer.write_table(pa.concat_tables(held))
                held, rows = [], 0
        if held:
            writer.write_table(pa.concat_tables(held))
