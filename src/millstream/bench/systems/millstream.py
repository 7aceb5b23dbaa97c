"""Millstream under test: an engine on a fresh home for each run, all in one Spark session."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.bench.driving.model import Emission, Pull, QuerySpec, StreamSpec
from millstream.bench.journal import Journal, Planned
from millstream.bench.systems.draining import Drain
from millstream.bench.systems.system import Queue, Seen
from millstream.catalog.records import Fire
from millstream.config import Settings, available_cores
from millstream.engine.engine import Engine
from millstream.engine.status import QueryRequest
from millstream.errors import EngineError, MillstreamError
from millstream.model.plan import BatchResult, IngestPlan
from millstream.runtime.session import build_session
from millstream.sources.generators import DEFAULT_START
from millstream.sources.source import ParquetFiles, Source
from millstream.version import VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class MillstreamSystem:
    """``frame``: the streams are handed in as Spark's own streaming DataFrames; ``rows``: with a condition in them, so
    that Spark has to make rows, and our workers cannot read the files themselves. ``drained``: an answer counts when a
    sink has written it."""

    form = "parquet"

    def __init__(
        self, workspace: Path, cores: int, frame: bool = False, rows: bool = False, drained: bool = False
    ) -> None:
        self._session = build_session("bench: millstream")
        self._frame, self._rows, self._drained = frame, rows, drained
        self._engine: Engine | None = None
        self._drain: Drain | None = None
        self._lock = threading.Lock()

    def deploy(self, folder: Path, queues: Sequence[Queue], queries: Sequence[QuerySpec]) -> None:
        self._specs = {query.id: query for query in queries}
        self._deleted: set[str] = set()
        self._emissions: list[Emission] = []
        self._pulls: list[Pull] = []
        # Creates and deletes that not all of their streams have been planned with yet, by epoch.
        self._waiting: list[tuple[int, str]] = []
        self._skew = time.time() - time.monotonic()
        self._stream_specs = [queue.stream for queue in queues]
        # The newest event time of each stream.
        self._newest = {one.name: DEFAULT_START for one in self._stream_specs}
        settings = Settings(parallelism=available_cores())
        engine = self._engine = Engine(home=folder / "home", spark=self._session, settings=settings)
        self._drain = Drain(engine, folder / "drained", available_cores(), self._emit) if self._drained else None
        self._journal = Journal(engine._core.metastore, self._fired, self._committed)
        for queue in queues:
            engine.create_stream(queue.stream.name, self._source(queue), time="time", lateness="0 seconds")
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
            self._deleted.update(ids)
            self._waiting += [(epoch, id) for id in ids]

    def collect(self) -> Seen:
        errors = [status.error for one in self._stream_specs if (status := self._running.stream(one.name)).error]
        errors += self._drain.errors if self._drain else []
        with self._lock:
            emissions, self._emissions = self._emissions, []
            pulls, self._pulls = self._pulls, []
            effective = self._effective()
        told = tuple(str(error) for error in errors)
        return Seen(self._journal.rows, tuple(emissions), tuple(effective), told, tuple(pulls))

    def _effective(self) -> list[tuple[str, float]]:
        plans = list(self._journal.plans)
        found, left = [], []
        for epoch, id in self._waiting:
            at = effective_at(self._specs[id], epoch, self._stream_specs, plans)
            if at is None:
                left.append((epoch, id))
            else:
                found.append((id, at + self._skew))
        self._waiting = left
        return found

    def phases(self) -> dict[str, float]:
        return dict(self._running.status().phases)

    def finish(self) -> dict[str, float]:
        phases = self.phases()
        if self._drain:
            self._drain.close()
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
        """After the transaction that published the answers. Windows without rows count too, as plain Spark's do."""
        moves = {id: move for id, move in fire.moves.items() if self._counts(id, windowed=True)}
        # A frontier begins long before the first row.
        ends = {id: self._specs[id].ends(max(after, DEFAULT_START), upto) for id, (after, upto) in moves.items()}
        self._answered(ends)

    def _committed(self, plan: IngestPlan, result: BatchResult, watermark: int | None) -> None:
        """Queries without a window are answered by the batch: of its rows, the oldest and the newest count."""
        rows = self._journal.rows
        started = next(p.at for p in reversed(self._journal.plans) if (p.stream, p.batch) == (plan.stream, plan.batch))
        with self._lock:
            self._pulls.append(Pull(started + self._skew, rows))
        if watermark is None or not result.rows:
            return
        ends = [self._newest[plan.stream], watermark]
        self._newest[plan.stream] = watermark
        stream = [one for one in self._stream_specs if one.name == plan.stream]
        mine = [id for id in list(self._specs) if self._counts(id, windowed=False) and self._specs[id].reads(stream[0])]
        self._answered({id: ends for id in mine})

    def _counts(self, id: str, windowed: bool) -> bool:
        """A deleted query still answers the windows of its cut."""
        spec = self._specs.get(id)
        return (
            spec is not None and spec.watched and bool(spec.slide) is windowed and (windowed or id not in self._deleted)
        )

    def _answered(self, ends: Mapping[str, Sequence[int]]) -> None:
        """These answers can be read."""
        if self._drain:
            self._drain.follow({id: mine for id, mine in ends.items() if mine})
        else:
            self._emit(ends)

    def _emit(self, ends: Mapping[str, Sequence[int]]) -> None:
        at = time.time()
        counts = Counter(end for mine in ends.values() for end in mine)
        with self._lock:
            self._emissions += [Emission(at, end, count) for end, count in sorted(counts.items())]


def effective_at(query: QuerySpec, epoch: int, streams: Sequence[StreamSpec], plans: Sequence[Planned]) -> float | None:
    """When the last of the query's streams was first planned with an epoch."""
    mine = [one.name for one in streams if query.reads(one)]
    found = [next((plan.at for plan in plans if plan.stream == name and plan.epoch >= epoch), None) for name in mine]
    known = [at for at in found if at is not None]
    return max(known, default=None) if len(known) == len(mine) else None
