"""The parts of an engine put together: stores, registry, pipelines and firing. Live engine and replay both stand on
it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from millstream.catalog.metastore import Metastore
from millstream.catalog.outage import DEFAULT_LIMIT
from millstream.catalog.records import FAILED
from millstream.config import Limits
from millstream.crashpoints import crash_point
from millstream.engine.answers import AnswerLog
from millstream.engine.firing import Firing
from millstream.engine.joining import Joining
from millstream.engine.owners import check_text
from millstream.engine.pipeline import Pipeline
from millstream.engine.registry import NewRequest, Registry
from millstream.engine.repair import Repair
from millstream.engine.state_shares import over_state, shares
from millstream.errors import CatalogError, EngineError
from millstream.model.stream import Stream
from millstream.runtime.disk import faults_told
from millstream.runtime.home import Home, Lock, holder
from millstream.runtime.spark import Spark
from millstream.sql.frontend import FrontEnd

# The name that `window(…)` gives its column; a stream with such a column would make it ambiguous. Names with # are
# our own.
RESERVED_COLUMN = "window"


def wall_clock() -> int:
    return time.time_ns() // 1000


class Core:
    """Everything but threads. ``on_commit`` is called after a micro-batch is committed; ``lock`` is that of the home,
    where the caller has it already."""

    def __init__(
        self,
        home: Home,
        spark: Spark,
        metastore_url: str | None = None,
        on_commit: Callable[[Pipeline], None] = lambda pipeline: None,
        clock: Callable[[], int] = wall_clock,
        metastore_wait: float = DEFAULT_LIMIT,
        limits: Limits | None = None,
        lock: Lock | None = None,
    ) -> None:
        home.create()
        self.home = home
        self.spark = spark
        self._lock = lock or Lock(home)
        try:
            with faults_told(home.root):
                url = metastore_url or home.metastore_url()
                self.metastore = Metastore.open(url, holder=holder(), clock=clock, limit=metastore_wait)
                self.registry = Registry(self.metastore, home, limits)
                self.registry.load()
            crash_point("start.loaded")
        except BaseException:
            self._lock.release()
            raise
        self.limits = limits or Limits()
        self.pipelines: dict[str, Pipeline] = {}
        self.repair = Repair(self.metastore, self.registry, home, spark.ingest, self.pipelines, self.limits)
        self.answers = AnswerLog(self.metastore, home, self.repair.mend)
        # Half of the tasks: ingest and fire run side by side, and fewer workers make the same matrices.
        tasks = max(1, spark.parallelism // 2)
        repair, published = self.repair.repair, self.answers.published
        run = spark.fire
        self.firing = Firing(self.metastore, self.registry, home, run, tasks, repair, self.limits, published)
        self.joining = Joining(self.metastore, self.registry, self.firing, self.pipelines)
        self._streams: Mapping[str, Stream] = {}
        self.front_end = FrontEnd(spark.analyzer, lambda: self._streams)
        self._on_commit = on_commit
        self._clock = clock
        for state in self.metastore.streams():
            self._attach(state.stream)

    def add_stream(self, stream: Stream) -> Pipeline:
        for field in stream.fields:
            if field.name.lower() == RESERVED_COLUMN or field.name.startswith("#"):
                hint = "rename it where the stream is made, or leave it out of the schema"
                raise EngineError(
                    "BAD_STREAM", f"the stream {stream.name!r} has a column named {field.name!r}", hint=hint
                )
        if any(name.lower() == stream.name.lower() for name in self.pipelines):
            raise CatalogError("DUPLICATE_STREAM", f"a stream {stream.name!r} exists already")
        self.metastore.add_stream(stream)
        return self._attach(stream)

    def _attach(self, stream: Stream) -> Pipeline:
        self.spark.analyzer.register(stream)
        shared = (self.metastore, self.registry, self.home, self._clock, self._on_commit)
        pipeline = Pipeline(stream, *shared, self.limits)
        self.pipelines[stream.name] = pipeline
        self._streams = {**self._streams, stream.name: stream}
        return pipeline

    def compile(self, sql: str, id: str, owner: str = "", key: str | None = None) -> NewRequest:
        check_text(sql, self.limits)
        query = self.front_end.compile(sql)
        return NewRequest(id, owner, key, query, self.registry.selections_of(query))

    def fire_all(self) -> None:
        """Fire until nothing is due."""
        for pipeline in list(self.pipelines.values()):
            while self.firing.fire(pipeline):
                pass
        for name in self.metastore.joins():
            while self.joining.fire(name):
                pass

    def idle_streams(self) -> list[str]:
        """Streams that have brought no rows for longer than their idle timeout."""
        now = self._clock()
        return [
            name
            for name, pipeline in self.pipelines.items()
            if pipeline.stream.idle_timeout is not None and now - pipeline.last_rows > pipeline.stream.idle_timeout
        ]

    def follow(self, name: str) -> bool:
        """Bring an idle stream's watermark to that of the slowest other stream that is not idle; False if it is
        there."""
        idle = set(self.idle_streams())
        others = [p.watermark for n, p in self.pipelines.items() if n != name and n not in idle]
        known = [watermark for watermark in others if watermark is not None]
        pipeline = self.pipelines[name]
        if not known or (pipeline.watermark is not None and pipeline.watermark >= min(known)):
            return False
        watermark = self.metastore.advance_idle(name, min(known))
        moved = watermark != pipeline.watermark
        pipeline.watermark = watermark
        return moved

    def enforce_limits(self) -> None:
        """Stop queries that hold more state than they may."""
        total = sum(pipeline.buckets.bytes for pipeline in self.pipelines.values())
        if total <= min(self.limits.query_state_bytes, self.limits.owner_state_bytes):
            return
        held: Counter[str] = Counter()
        for name, pipeline in self.pipelines.items():
            held.update(shares(pipeline.buckets.sizes(), self.metastore.frontiers(name), self.registry.window))
        stopped = over_state(held, self.registry.owners.owner, self.limits)
        for query, reason in stopped.items():
            self.metastore.set_failed(query, reason)
        self.registry.remove(list(stopped))

    def tidy(self, retention: int, dead_letters: int) -> None:
        """Forget answers, queries that are gone and dead letters that are older than their retention (microseconds),
        and group versions that nothing needs; take failed queries that still run out of their groups."""
        before = self._clock() - retention
        self._remove_forgotten(self.metastore.expire_answers(before_time=before))
        for name, pipeline in self.pipelines.items():
            self._remove_forgotten(self._old_dead_letters(name, self._clock() - dead_letters))
            with pipeline.firing:
                # Queries that were deleted leave buckets behind that no fire comes by to forget.
                self.firing.clean_up(pipeline)
                versions = self.metastore.expire_versions(name)
                self.registry.forget(versions)
                self._remove_forgotten(versions)
        # After the buckets, which keep the ids of queries from being used again.
        self.registry.forget_queries(self.metastore.expire_history(before))
        self.metastore.expire_recipes()
        self._remove_failed()
        crash_point("tidy.done")

    def _remove_forgotten(self, paths: Sequence[str]) -> None:
        """At once: nobody names these files any more, so what fails later must not keep them."""
        crash_point("tidy.forgotten")
        self.home.remove(paths)

    def _remove_failed(self) -> None:
        """Take failed queries out of their groups that could not be when they failed: that writes files."""
        self.registry.remove([record.id for record in self.metastore.queries((FAILED,))])

    def _old_dead_letters(self, stream: str, before: int) -> list[str]:
        paths = [path for _, path in self.metastore.dead_letters(stream)]
        old = [path for path in paths if self.home.written_at(path) < before]
        return self.metastore.drop_files(old) if old else []

    def sweep(self) -> int:
        """Remove files of jobs that never committed; only while no job runs."""
        named = self.metastore.referenced_files()
        orphans = [path for path in self.home.files() if path not in named]
        crash_point("sweep.found")
        self.home.remove(orphans)
        crash_point("sweep.done")
        return len(orphans)

    def close(self, *, in_order: bool = True) -> None:
        """``in_order``: nothing runs any more. That is the last thing noted, for the next start."""
        if in_order:
            # A stop that cannot be noted, because the disk is full or another engine has taken over, counts as none.
            with suppress(Exception):
                self.metastore.record_stop()
        self.front_end.close()
        self.answers.close()
        self.registry.close()
        self.metastore.close()
        self._lock.release()
