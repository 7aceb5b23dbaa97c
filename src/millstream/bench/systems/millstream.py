"""Millstream under test: an engine on a fresh home for each run, all in one Spark session."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.bench.driving.model import Emission, QuerySpec
from millstream.bench.journal import Journal
from millstream.bench.systems.system import Queue, Seen
from millstream.catalog.records import Fire
from millstream.config import Settings, available_cores
from millstream.engine.engine import Engine
from millstream.engine.status import QueryRequest
from millstream.errors import EngineError, MillstreamError
from millstream.model.plan import BatchResult, IngestPlan
from millstream.runtime.session import build_session
from millstream.sources.source import ParquetFiles, Source
from millstream.version import VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class MillstreamSystem:
    """``frame``: the streams are handed in as Spark's own streaming DataFrames; ``rows``: with a condition in them, so
    that Spark has to make rows, and our workers cannot read the files themselves."""

    form = "parquet"

    def __init__(self, workspace: Path, cores: int, frame: bool = False, rows: bool = False) -> None:
        self._session = build_session("bench: millstream")
        self._frame, self._rows = frame, rows
        self._engine: Engine | None = None
        self._lock = threading.Lock()

    def deploy(self, folder: Path, queues: Sequence[Queue], queries: Sequence[QuerySpec]) -> None:
        self._specs = {query.id: query for query in queries}
        self._emissions: list[Emission] = []
        # Creates and deletes that no micro-batch has been planned with yet, by epoch.
        self._waiting: list[tuple[int, str]] = []
        self._skew = time.time() - time.monotonic()
        settings = Settings(parallelism=available_cores())
        self._engine = Engine(home=folder / "home", spark=self._session, settings=settings)
        self._journal = Journal(self._engine._core.metastore, self._fired, self._committed)
        self._streams = [queue.stream.name for queue in queues]
        for queue in queues:
            self._engine.create_stream(queue.stream.name, self._source(queue), time="time", lateness="0 seconds")
        if queries:
            self._create(queries)

    def _source(self, queue: Queue) -> Source | DataFrame:
        if not self._frame:
            return ParquetFiles(str(queue.directory), queue.stream.schema)
        frame = self._session.readStream.schema(queue.stream.schema).parquet(str(queue.directory))
        return frame.where("time IS NOT NULL") if self._rows else frame

    def create(self, queries: Sequence[QuerySpec]) -> None:
        with self._lock:
            self._specs |= {query.id: query for query in queries}
        self._create(queries)

    def _create(self, queries: Sequence[QuerySpec]) -> None:
        made = self._running.create_queries([QueryRequest(query.sql, id=query.id) for query in queries])
        for query, one in zip(queries, made, strict=True):
            if isinstance(one, MillstreamError):
                # Those who disturb the others may be refused.
                if query.watched:
                    raise one
                continue
            with self._lock:
                self._waiting.append((one.epoch, one.id))

    def delete(self, ids: Sequence[str]) -> None:
        for gone in self._running.delete_queries(list(ids)):
            if isinstance(gone, MillstreamError):
                raise gone
        epoch = self._running.status().epoch
        with self._lock:
            self._waiting += [(epoch, id) for id in ids]

    def collect(self) -> Seen:
        errors = [status.error for name in self._streams if (status := self._running.stream(name)).error]
        with self._lock:
            emissions, self._emissions = self._emissions, []
            effective = self._effective()
        return Seen(self._journal.rows, tuple(emissions), tuple(effective), tuple(str(error) for error in errors))

    def _effective(self) -> list[tuple[str, float]]:
        plans = list(self._journal.plans)
        found, left = [], []
        for epoch, id in self._waiting:
            at = next((plan.at for plan in plans if plan.epoch >= epoch), None)
            if at is None:
                left.append((epoch, id))
            else:
                found.append((id, at + self._skew))
        self._waiting = left
        return found

    def finish(self) -> dict[str, float]:
        phases = dict(self._running.status().phases)
        self._running.stop()
        self._engine = None
        return phases

    def describe(self) -> dict[str, str]:
        return {"name": "Millstream", "version": VERSION, "pyspark": version("pyspark")}

    def close(self) -> None:
        if self._engine is not None:
            self._engine.stop()
        self._session.stop()

    @property
    def _running(self) -> Engine:
        if self._engine is None:
            raise EngineError("INTERNAL", "no run has been deployed")
        return self._engine

    def _fired(self, fire: Fire) -> None:
        """After the transaction that published the answers: the moment at which they can be read."""
        at = time.time()
        counts: dict[int, int] = {}
        with self._lock:
            for id, number in fire.result.windows_by_query.items():
                spec = self._specs.get(id)
                if spec is None or not spec.watched or not spec.slide:
                    continue
                for end in window_ends(spec, fire.moves[id][1], number):
                    counts[end] = counts.get(end, 0) + 1
            self._emissions += [Emission(at, end, count) for end, count in sorted(counts.items())]

    def _committed(self, plan: IngestPlan, result: BatchResult, watermark: int | None) -> None:
        """Queries without a window are answered by the batch."""
        if watermark is None or not result.rows:
            return
        at = time.time()
        with self._lock:
            answered = sum(1 for spec in self._specs.values() if spec.watched and not spec.slide)
            if answered:
                self._emissions.append(Emission(at, watermark, answered))


def window_ends(spec: QuerySpec, to: int, number: int) -> list[int]:
    """The ends of the last ``number`` windows of a query that end at or before an event time.

    >>> window_ends(QuerySpec("q", "", length=8, slide=4), to=18, number=2)
    [12, 16]
    """
    last = (to - spec.length) // spec.slide * spec.slide + spec.length
    return [last - back * spec.slide for back in reversed(range(number))]
