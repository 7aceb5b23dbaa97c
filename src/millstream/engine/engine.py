"""The live engine: streams flow, queries come and go, answers are read, all at the same time.

Threads: Spark runs each stream's micro-batches on a thread of its own; one thread seals the changelog; one fires what
is due (`rounds`), and begins others for what is heavy. They meet in the metastore, and in the index of buckets that
mirrors it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.catalog.metastore import QueryRecord, StreamState
from millstream.catalog.outage import waiting
from millstream.catalog.reading import unknown_query
from millstream.config import Settings, parse_duration
from millstream.engine.changelog import Changelog, Sealed
from millstream.engine.core import Core
from millstream.engine.explain import Explanation, explain
from millstream.engine.handle import PAGE_ANSWERS, READ_INTERVAL, Query, check_id, cut_of, query_status
from millstream.engine.last_known import LastKnown
from millstream.engine.mending import Ingest
from millstream.engine.pipeline import Pipeline
from millstream.engine.registry import NewRequest
from millstream.engine.resumed import find_resumed
from millstream.engine.rounds import Rounds
from millstream.engine.status import (
    AnswerPage,
    EngineStatus,
    QueryRequest,
    QueryStatus,
    StreamStatus,
    moment,
)
from millstream.engine.warming import begin_warm_up
from millstream.errors import CatalogError, EngineError, MillstreamError
from millstream.model.statistics import Figures
from millstream.model.stream import Stream
from millstream.runtime.disk import faults_told
from millstream.runtime.home import Home, Lock
from millstream.runtime.spark import Running, Spark
from millstream.sources.source import Source, source_from
from millstream.version import VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A stream that is created while Spark's analyzer is cold waits for it so long at most, in seconds.
WARM_UP_WAIT = 3.0
# What is cancelled or only has to end gets this long at a stop; then it is left behind, in seconds.
LEAVE_SECONDS = 5.0
CANCEL_AGAIN_SECONDS = 0.5


class Engine:
    """Runs all queries of a home as one shared Spark pipeline.

    ``home`` keeps everything over restarts. ``spark`` is a session of yours with fit settings; without it the engine
    makes a local one. ``resumed`` says what it found in the home, None in a new one.
    """

    def __init__(
        self,
        home: str | Path | None = None,
        spark: SparkSession | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.home = Path(home if home is not None else self.settings.home).expanduser().absolute()
        self.started_at = datetime.now(UTC)
        self._commits = threading.Event()
        self._stopping = threading.Event()
        self._running: dict[str, Running] = {}
        self._lost: EngineError | None = None
        self._lock = threading.RLock()
        # Before Spark is started, which takes seconds: a home that cannot be used is refused at once.
        place = Home(str(self.home))
        place.create()
        lock = Lock(place)
        try:
            self._spark = Spark(spark, self.settings.parallelism)
        except BaseException:
            lock.release()
            raise
        try:
            self._core = Core(
                place,
                self._spark,
                self.settings.metastore_url,
                self._committed,
                metastore_wait=self.settings.metastore_wait / 1e6,
                limits=self.settings.limits,
                lock=lock,
            )
        except BaseException:
            lock.release()
            self._spark.stop()
            raise
        self._core.firing.ended = self._commits.set
        self._core.front_end.learn_ahead()
        self._warming = begin_warm_up(self._spark.analyzer, self._spark.application, self._stopping)
        self._known = LastKnown(self._core.metastore)
        self._core.sweep()
        self.resumed = find_resumed(self._core.metastore, self._core.registry.running)
        self._changelog = Changelog(
            self._core.registry,
            self.settings.seal_delay / 1e6,
            self.settings.seal_requests,
            self._core.metastore.outage,
        )
        self._rounds = Rounds(
            self._core, self.settings, self._running, self._known, self._commits, self._stopping, self._notice_loss
        )
        self._rounds.start()
        self._resume()

    # Streams

    def create_stream(
        self,
        name: str,
        source: Source | DataFrame,
        time: str,
        lateness: str = "0 seconds",
        max_skew: str | None = None,
        idle_timeout: str | None = None,
    ) -> StreamStatus:
        """Make a stream and start it. After a restart, a DataFrame stream is handed in again under the same name.

        A stream that brings no rows for ``idle_timeout`` no longer holds back the joins with it: its watermark follows
        that of the other streams, and rows that come behind it are late.
        """
        found = self._spark.source_of(source)
        with self._needs_spark(), self._lock, faults_told(str(self.home)):
            if name in self._core.pipelines and name not in self._running and not found.columnar:
                pipeline = self._core.pipelines[name]
            else:
                stream = self._stream(name, found, time, lateness, max_skew, idle_timeout)
                # What is wrong with a source is told before there is a stream that needs it.
                found.dataframe(self._spark.session)
                pipeline = self._core.add_stream(stream)
            self._start(pipeline, found)
        if self._warming is not None:
            self._warming.join(WARM_UP_WAIT)
        return self.stream(name)

    def _stream(
        self, name: str, source: Source, time: str, lateness: str, max_skew: str | None, idle_timeout: str | None
    ) -> Stream:
        if not name.isidentifier():
            raise EngineError("BAD_STREAM", f"{name!r} is not a name for a stream", hint="use letters, digits and _")
        fields = source.fields(self._spark.session)
        description = tuple(sorted(source.describe().items()))
        skew = None if max_skew is None else parse_duration(max_skew)
        idle = None if idle_timeout is None else parse_duration(idle_timeout)
        try:
            return Stream(name, fields, time, parse_duration(lateness), description, skew, idle)
        except ValueError as error:
            raise EngineError("BAD_STREAM", f"stream {name!r}: {error}") from None

    def _start(self, pipeline: Pipeline, source: Source) -> None:
        name = pipeline.stream.name
        interval = self.settings.trigger_interval
        checkpoint = self._core.home.checkpoint(name)

        def process(batch: int, offsets: str, ingest: Ingest, splits: str | None) -> None:
            with waiting(None):
                pipeline.process(batch, offsets, ingest, splits)

        self._running[name] = self._spark.start(name, source, checkpoint, process, interval)

    def _resume(self) -> None:
        """Start the streams that were there before; DataFrame streams wait for their DataFrame."""
        for pipeline in self._core.pipelines.values():
            description = dict(pipeline.stream.source)
            if description.get("source") != "dataframe":
                self._start(pipeline, source_from(description, self._spark.session))

    def stream(self, name: str) -> StreamStatus:
        for state in self._core.metastore.streams():
            if state.stream.name == name:
                return self._stream_status(state)
        names = ", ".join(self._core.pipelines) or "none"
        raise CatalogError("UNKNOWN_STREAM", f"no stream {name!r}", hint=f"existing streams: {names}")

    def streams(self) -> list[StreamStatus]:
        return [self._stream_status(state) for state in self._core.metastore.streams()]

    def statistics(self, name: str) -> Figures:
        """What was measured of a stream of late: delays, moments of aggregated values, rows by class."""
        return self._core.pipelines[self.stream(name).name].figures

    def _stream_status(self, state: StreamState) -> StreamStatus:
        stream = state.stream
        metrics = self._core.pipelines[stream.name].metrics
        running = self._running.get(stream.name)
        error = running.error if running else None
        word = "waiting for its DataFrame" if running is None else "stopped" if error else "running"
        if running is not None and running.retrying:
            word = "retrying"
        return StreamStatus(
            name=stream.name,
            fields=tuple((f.name, str(f.type)) for f in stream.fields),
            time=stream.time,
            lateness_seconds=stream.lateness / 1e6,
            source=dict(stream.source),
            state=word,
            watermark=moment(state.watermark),
            rows=state.rows,
            late_rows=state.late_rows,
            rejected_rows=state.rejected_rows,
            batches=state.batches,
            rows_per_second=metrics.rows_per_second,
            last_batch_seconds=metrics.last_batch_seconds,
            error=error,
            idle_timeout_seconds=None if stream.idle_timeout is None else stream.idle_timeout / 1e6,
        )

    # Queries

    def create_query(self, sql: str, owner: str = "", id: str | None = None, key: str | None = None) -> Query:
        """Add a query to the running pipeline; returns when its epoch is sealed."""
        (made,) = self.create_queries([QueryRequest(sql, owner, id, key)])
        if isinstance(made, MillstreamError):
            raise made
        return made

    def create_queries(self, requests: Sequence[QueryRequest]) -> list[Query | MillstreamError]:
        """Add several queries in one epoch; in place of a query that is refused stands its error."""
        registry = self._core.registry
        ids = [request.id or registry.new_id() for request in requests]
        try:
            with self._needs_spark():
                compiled = [self._compile(request, id) for request, id in zip(requests, ids, strict=True)]
            good = [one for one in compiled if isinstance(one, NewRequest)]
            futures = iter(zip(good, self._changelog.submit(good) if good else [], strict=True))
            return [one if isinstance(one, MillstreamError) else self._made(*next(futures)) for one in compiled]
        finally:
            registry.release(ids)

    def _compile(self, request: QueryRequest, id: str) -> NewRequest | MillstreamError:
        try:
            check_id(id)
            return self._core.compile(request.sql, id, request.owner, request.key)
        except MillstreamError as error:
            return error

    def _made(self, request: NewRequest, future: Future[Sealed]) -> Query | MillstreamError:
        try:
            sealed = self._changelog.sealed(future)
            cuts, streams = sealed.epoch.cuts, request.streams
            if sealed.id != request.id or not all(name in cuts for name in streams):
                return self.query(sealed.id)  # made before, under the same client key
            cut = {name: cuts[name].first_batch for name in streams}
            return Query(self, request.id, request.owner, sealed.epoch.number, cut, request.query)
        except MillstreamError as error:
            return error

    def query(self, id: str) -> Query:
        record = self._core.metastore.query(id)
        return Query(self, record.id, record.owner, record.epoch, cut_of(record), record.query)

    def queries(self, owner: str | None = None, state: str | None = None) -> list[QueryStatus]:
        states = None if state is None else (state,)
        incomplete = self._core.metastore.incomplete()
        records = self._core.metastore.queries(states, owner)
        return [query_status(record, incomplete.get(record.id, 0)) for record in records]

    def delete_query(self, id: str) -> QueryStatus:
        """Take a query out of the pipeline; it still fires the windows that its own batches have closed."""
        (gone,) = self.delete_queries([id])
        if isinstance(gone, MillstreamError):
            raise gone
        return gone

    def delete_queries(self, ids: Sequence[str]) -> list[QueryStatus | MillstreamError]:
        self.check()
        futures = self._changelog.submit(deletes=ids)
        self._commits.set()
        sealed = [self._sealed(future) for future in futures]
        try:
            records = self._core.metastore.queries_by_id([one.id for one in sealed if isinstance(one, Sealed)])
        except MillstreamError as error:
            return [error if isinstance(one, Sealed) else one for one in sealed]
        return [self._gone(records, one) if isinstance(one, Sealed) else one for one in sealed]

    def _gone(self, records: Mapping[str, QueryRecord], sealed: Sealed) -> QueryStatus | MillstreamError:
        """A record may have been forgotten meanwhile."""
        record = records.get(sealed.id)
        return unknown_query(sealed.id) if record is None else query_status(record)

    def _sealed(self, future: Future[Sealed]) -> Sealed | MillstreamError:
        try:
            return self._changelog.sealed(future)
        except MillstreamError as error:
            return error

    def explain(self, id: str) -> Explanation:
        """What a query shares with whom: its groups, buckets, join tree, and their sizes."""
        return explain(self._core, self._core.metastore.query(id))

    # Answers

    def read_answers(
        self,
        id: str,
        cursor: str | None = None,
        limit: int = PAGE_ANSWERS,
        wait: float = 0.0,
        rows: int | None = None,
    ) -> AnswerPage:
        """Answers after a cursor, until there are ``limit`` of them or so many ``rows`` (None: a page of 100,000);
        waits up to ``wait`` seconds for the first one."""
        deadline = time.monotonic() + wait
        while True:
            record = self._core.metastore.query(id)
            found, cursor = self._core.answers.read(record, cursor, limit, rows)
            remaining = deadline - time.monotonic()
            ended = record.state in ("deleted", "failed")
            if not found and not ended:
                self.check()
            if found or ended or remaining <= 0:
                return AnswerPage(found, cursor, ended and not found)
            self._core.answers.wait(min(remaining, READ_INTERVAL))

    # The engine itself

    def status(self) -> EngineStatus:
        core = self._core
        seen = self._known.look()
        streams = tuple(self._stream_status(state) for state in seen.streams)
        phases: dict[str, float] = dict(core.firing.seconds)
        for pipeline in core.pipelines.values():
            for phase, seconds in pipeline.metrics.seconds.items():
                phases[phase] = phases.get(phase, 0.0) + seconds
        return EngineStatus(
            home=str(self.home),
            version=VERSION,
            started_at=self.started_at,
            epoch=seen.epoch,
            queries=core.registry.running,
            groups=core.registry.groups,
            classes=core.registry.classes(),
            streams=streams,
            rows_per_second=sum(s.rows_per_second for s in streams),
            fire_seconds=core.firing.last_seconds,
            fires=core.firing.fires,
            answer_rows=core.firing.answer_rows,
            state_bytes=sum(p.buckets.bytes for p in core.pipelines.values()),
            phases=phases,
            error=f"{self._lost.code}: {self._lost.message}" if self._lost else self._rounds.error,
            rebuilt_files=core.repair.mended.rebuilt,
            lost_buckets=core.repair.mended.lost,
            metastore_away=seen.away,
        )

    def check(self) -> None:
        """Whether the engine can go on; Spark may have died under it.

        :raises EngineError: ``SPARK_LOST``, from then on.
        """
        if self._lost is not None:
            raise EngineError(self._lost.code, self._lost.message, hint=self._lost.hint, detail=self._lost.detail)

    @contextmanager
    def _needs_spark(self) -> Iterator[None]:
        """Around calls into Spark: one that fails because Spark is gone says so."""
        self.check()
        try:
            yield
        except MillstreamError:
            raise
        except Exception as error:
            if self._notice_loss(error):
                self.check()
            raise

    def _notice_loss(self, after: Exception | None = None) -> bool:
        lost = self._lost or self._spark.lost(after)
        if lost is None:
            return False
        self._lost = lost
        # Readers wait for answers that will not come.
        self._core.answers.published()
        return True

    def await_idle(self) -> None:
        """Wait until the input that is there now is processed and every window it closed has fired."""
        with self._needs_spark():
            for running in list(self._running.values()):
                running.await_batches()
            self._core.fire_all()

    def stop(self) -> None:
        """Finish what runs and stop; a later engine on the same home goes on from here. What is not finished after
        ``stop_grace`` is abandoned: the later engine repeats it."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._commits.set()
        self._core.metastore.stop_waiting()
        self._changelog.stop(LEAVE_SECONDS)
        for running in self._running.values():
            running.refuse()
        at_rest = self._at_rest(self.settings.stop_grace / 1e6)
        leave = time.monotonic() + LEAVE_SECONDS
        while not at_rest and time.monotonic() < leave:
            # Again and again: a micro-batch may be about to begin its next job.
            self._spark.cancel_jobs()
            at_rest = self._at_rest(CANCEL_AGAIN_SECONDS)
        for running in self._running.values():
            running.end()
        if self._warming is not None:
            self._warming.join(LEAVE_SECONDS)
        self._core.close(in_order=at_rest and self._lost is None)
        self._spark.stop()

    def abandon(self) -> None:
        """Stop nothing and finish nothing, as a kill would: a later ``stop`` returns at once, and the process may end.
        A later engine on the same home repeats what was not finished."""
        self._stopping.set()

    def _at_rest(self, seconds: float) -> bool:
        """Whether no micro-batch and no fire runs, at the latest after some time."""
        deadline = time.monotonic() + seconds
        resting = all([running.at_rest(deadline) for running in self._running.values()])
        resting &= self._rounds.ended(deadline - time.monotonic())
        asides = [one.aside.wait(max(0.0, deadline - time.monotonic())) for one in self._core.pipelines.values()]
        return resting and all(asides)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.stop()

    def _committed(self, pipeline: Pipeline) -> None:
        self._commits.set()
        self._core.answers.published()
