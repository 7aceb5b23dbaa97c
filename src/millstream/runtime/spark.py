"""Spark as the engine sees it: jobs, streaming queries, and the analyzer, behind one class."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millstream.config import available_cores
from millstream.errors import EngineError, SourceError
from millstream.model.plan import BatchResult, FireResult
from millstream.runtime import jobs
from millstream.runtime.analyzer import SparkAnalyzer
from millstream.runtime.checkpoint import mend_checkpoint, read_offsets, sync_batch
from millstream.runtime.disk import Backoff, disk_fault
from millstream.runtime.faults import raised_in_task
from millstream.runtime.fire import FireTask
from millstream.runtime.join_fire import JoinTask
from millstream.runtime.liveness import NO_ANSWER, Liveness
from millstream.runtime.scans import exact_splits, scanned_files
from millstream.runtime.session import build_session, check_session, quieten
from millstream.runtime.worker import IngestTask
from millstream.sources.recipes import splits_text
from millstream.sources.source import DataFrameSource, Source
from millstream.sources.splits import Split

# Failures in a row after which a stream waits longer and longer between its tries.
QUICK_TRIES = 3
# How often it is looked whether a stream that waits for the disk goes on, in seconds.
AWAIT_INTERVAL = 0.2

Ingest = Callable[[IngestTask], BatchResult]
# (batch id, offsets, how to run it, and what its tasks read, None where that cannot be read again)
OnBatch = Callable[[int, str, Ingest, str | None], None]


class Spark:
    """A session of our own, stopped with the engine, or the user's."""

    def __init__(self, session: SparkSession | None = None, parallelism: int | None = None) -> None:
        self._owned = session is None and SparkSession.getActiveSession() is None
        self.session = session if session is not None else build_session()
        if session is not None:
            check_session(session)
            quieten(session)
        cores = available_cores() if session is None else self.session.sparkContext.defaultParallelism
        self.parallelism = parallelism or cores
        self.analyzer = SparkAnalyzer(self.session)
        self.application = str(self.session.sparkContext.applicationId)
        self._liveness = Liveness(self.session)
        # Marks the jobs of this engine, which may share its session with others.
        self._tag = f"millstream-{uuid.uuid4().hex}"
        self._tagging = threading.local()

    def ingest(self, task: IngestTask, splits: Sequence[list[Split]]) -> BatchResult:
        with self.tagged():
            return jobs.ingest_splits(self.session, task, splits)

    def fire(self, tasks: Sequence[FireTask | JoinTask]) -> tuple[list[FireResult], dict[str, float]]:
        with self.tagged():
            return jobs.fire(self.session, tasks)

    def lost(self, after: Exception | None = None) -> EngineError | None:
        """The error that says why Spark is gone; None while it is there. ``after`` is that of a call that has
        failed."""
        return self._liveness.lost(after)

    @contextlib.contextmanager
    def tagged(self) -> Iterator[None]:
        """Jobs that this thread starts now are those that ``cancel_jobs`` ends; may be entered again inside."""
        context = self.session.sparkContext
        if getattr(self._tagging, "inside", False):
            yield
            return
        context.addJobTag(self._tag)
        self._tagging.inside = True
        try:
            yield
        finally:
            self._tagging.inside = False
            with contextlib.suppress(*NO_ANSWER):
                context.removeJobTag(self._tag)

    def cancel_jobs(self) -> None:
        """End the jobs that run; whoever waits for them gets an error."""
        with contextlib.suppress(*NO_ANSWER):
            self.session.sparkContext.cancelJobsWithTag(self._tag)

    def source_of(self, source: Source | DataFrame) -> Source:
        """A streaming DataFrame is a source too."""
        if isinstance(source, Source):
            return source
        if isinstance(source, DataFrame):
            return DataFrameSource(source)
        raise EngineError(
            "BAD_STREAM",
            f"a source is a streaming DataFrame or one of millstream.sources, not a {type(source).__name__}",
            hint="for example ParquetFiles('/data/purchases')",
        )

    def start(self, name: str, source: Source, checkpoint: str, on_batch: OnBatch, interval: int) -> Running:
        """Start the stream's one streaming query; Spark keeps its offsets, checkpoint and retries."""
        return Running(self, name, source, checkpoint, on_batch, interval)

    def stop(self) -> None:
        self.analyzer.close()
        if not self._owned:
            return
        with contextlib.suppress(*NO_ANSWER), warnings.catch_warnings():
            # PySpark warns of a JVM that is gone; whoever asked for something has been told.
            warnings.simplefilter("ignore")
            self.session.stop()
        self._liveness.forget()


class Running:
    """A stream's streaming query. The callback is the point at which all workers learn the new epoch."""

    def __init__(
        self, spark: Spark, name: str, source: Source, checkpoint: str, on_batch: OnBatch, interval: int
    ) -> None:
        self._spark = spark
        self._source = source
        self._checkpoint = Path(checkpoint)
        self._on_batch = on_batch
        self._stopping = False
        # Held while the query is begun again, so that none begins behind the back of ``stop``.
        self._life = threading.Lock()
        # Held while the callback runs: stopping a query in the middle of a job can end in a StackOverflowError inside
        # Spark. Never held while Spark stops the query: Spark waits for the callback then.
        self._busy = threading.Lock()
        self._error: str | None = None
        # A fault of the disk behind the last failure; and when to try again after one.
        self._fault: str | None = None
        self._backoff = Backoff()
        self._final = False
        self._failures = 0
        # Unique in the session, which engines on other homes may share.
        self._name = f"millstream {name} {uuid.uuid4().hex[:8]}"
        self._interval = interval
        self._query: StreamingQuery | None = None
        self._begin_again()

    def _begin_again(self) -> None:
        """Begin; later, if that fails: the disk cannot be written, or the source is away."""
        self._error = None
        try:
            self._query = self._begin()
        except Exception as error:
            if self._spark.lost(error) is not None:
                raise
            self._query = None
            self._fault = self._told(error)
            self._error = _described(error)
            self._backoff.failed()

    def _told(self, error: BaseException) -> str | None:
        found = disk_fault(error, str(self._checkpoint))
        return None if found is None else found.message

    @property
    def _active(self) -> bool:
        return self._query is not None and bool(self._query.isActive)

    def _begin(self) -> StreamingQuery:
        mend_checkpoint(self._checkpoint)
        frame = self._source.dataframe(self._spark.session)
        writer = frame.writeStream.foreachBatch(self._callback).queryName(self._name)
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        return writer.trigger(processingTime=f"{self._interval // 1000} milliseconds").start()

    def keep_alive(self) -> None:
        """Begin again after a failure: Spark repeats the batch, and its plan makes it the same batch. Soon at first,
        then after longer and longer waits; never after errors that another try cannot change."""
        with self._life:
            if self._stopping or self._final or self._active:
                return
            if self._query is not None:
                self._failures += 1
                self._fault = self._fault or self._cause()
                if self._fault is not None or self._failures > QUICK_TRIES:
                    # The query that failed has been seen; the next one begins when its time has come.
                    self._error, self._query = self.error, None
                    self._backoff.failed()
                    return
            elif not self._backoff.due:
                return
            self._begin_again()

    def _cause(self) -> str | None:
        """The fault of the disk that Spark itself has met, as when it writes its checkpoint."""
        found = None if self._query is None else self._query.exception()
        return None if found is None else self._told(found)

    def _callback(self, rows: DataFrame, batch: int) -> None:
        with self._busy:
            if self._stopping:
                # Returning would tell Spark that the batch is done.
                raise EngineError("NOT_RUNNING", "the engine is stopping")
            try:
                with self._spark.tagged():
                    self._run(rows, batch)
            except Exception as error:
                self._error = _described(error)
                self._fault = self._told(error)
                self._final = isinstance(error, EngineError) and self._fault is None
                raise
            self._error = self._fault = None
            self._failures = 0
            self._backoff.succeeded()

    def _run(self, rows: DataFrame, batch: int) -> None:
        offsets = read_offsets(self._checkpoint, batch)
        sync_batch(self._checkpoint, batch)
        if not self._source.columnar:
            self._on_batch(batch, offsets, lambda task: self._ingest(lambda: self._ingest_rows(task, rows)), None)
            return
        descriptors = sorted(tuple(row) for row in rows.collect())
        splits = self._source.splits(descriptors, self._spark.parallelism)
        # After a power loss Spark may plan the same offset with other files: the descriptors are part of the identity.
        offsets = f"{offsets} {_digest(descriptors)}"

        def ingest(task: IngestTask) -> BatchResult:
            return self._ingest(lambda: self._spark.ingest(task, splits))

        self._on_batch(batch, offsets, ingest, splits_text(splits))

    def _ingest(self, run: Callable[[], BatchResult]) -> BatchResult:
        """A batch that fails is run several times, which is no reason to keep a stop waiting."""
        if self._stopping:
            raise EngineError("NOT_RUNNING", "the engine is stopping")
        return run()

    def _ingest_rows(self, task: IngestTask, rows: DataFrame) -> BatchResult:
        """Rows that are just those of files are read from these; whatever is odd about a file is left to Spark."""
        files = scanned_files(self._spark.session, rows, self._name, task.batch)
        splits = None if files is None else exact_splits(files, task.stream.fields, self._spark.parallelism)
        if splits is not None:
            try:
                return jobs.ingest_splits(self._spark.session, task, splits, strict=True)
            except Exception as error:
                if not raised_in_task(error, SourceError):
                    raise
        return jobs.ingest_rows(task, rows)

    @property
    def error(self) -> str | None:
        """Why the query has ended by itself, None while it runs; a fault of the disk until a batch has passed."""
        if self._stopping:
            return None
        if self._fault is not None:
            return self._fault
        try:
            if self._active:
                return None
            found = None if self._error or self._query is None else self._query.exception()
        except NO_ANSWER as error:
            lost = self._spark.lost(error)
            return str(error) if lost is None else lost.message
        if self._error or self._query is None:
            return self._error
        return "the streaming query has ended" if found is None else self._told(found) or _first_line(found)

    @property
    def retrying(self) -> bool:
        """Whether the last batch has failed and is repeated, now or later; nothing is, once Spark is gone."""
        return not (self._stopping or self._final) and self.error is not None and self._spark.lost() is None

    def refuse(self) -> None:
        """Let no further micro-batch begin."""
        with self._life:
            self._stopping = True

    def at_rest(self, deadline: float) -> bool:
        """Whether no micro-batch runs, or the one that runs ends before a time of the monotonic clock."""
        if not self._busy.acquire(timeout=max(0.0, deadline - time.monotonic())):
            return False
        self._busy.release()
        return True

    def end(self) -> None:
        """End the query, after ``refuse``. One whose micro-batch hangs is left behind: what it does is refused."""
        if self._query is not None and self.at_rest(0.0):
            with contextlib.suppress(*NO_ANSWER):
                self._query.stop()

    def await_batches(self) -> None:
        """Wait until all input that is there now has been processed."""
        try:
            self._process_all()
        except StreamingQueryException:
            if self._final or self._failures >= QUICK_TRIES:
                raise
            self.keep_alive()
            self._process_all()

    def _process_all(self) -> None:
        """Through faults of the disk, as long as they take."""
        while not self._stopping:
            query = self._query
            try:
                if query is not None:
                    query.processAllAvailable()
                    return
            except StreamingQueryException:
                if not (self._fault or self._cause()):
                    raise
            self.keep_alive()
            time.sleep(AWAIT_INTERVAL)


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _first_line(error: StreamingQueryException) -> str:
    return str(error).strip().split("\n")[0]


def _digest(descriptors: Sequence[tuple[Any, ...]]) -> str:
    return hashlib.sha256(repr(descriptors).encode()).hexdigest()[:16]
