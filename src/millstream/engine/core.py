"""The parts of an engine put together: stores, registry, pipelines and firing. Live engine and replay both stand on
it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from millstream.catalog.metastore import Metastore
from millstream.engine.answers import AnswerLog
from millstream.engine.firing import Firing
from millstream.engine.joining import Joining
from millstream.engine.pipeline import Pipeline
from millstream.engine.registry import NewRequest, Registry
from millstream.engine.repair import Repair
from millstream.errors import CatalogError, EngineError
from millstream.model.stream import Stream
from millstream.runtime.faults import faults_told
from millstream.runtime.home import Home, Lock, holder
from millstream.runtime.spark import Spark
from millstream.sql.frontend import FrontEnd

# The name that `window(…)` gives its column; a stream with such a column would make it ambiguous. Names with # are
# our own.
RESERVED_COLUMN = "window"


def wall_clock() -> int:
    return time.time_ns() // 1000


class Core:
    """Everything but threads. ``on_commit`` is called after a micro-batch is committed."""

    def __init__(
        self,
        home: Home,
        spark: Spark,
        metastore_url: str | None = None,
        on_commit: Callable[[Pipeline], None] = lambda pipeline: None,
        clock: Callable[[], int] = wall_clock,
    ) -> None:
        home.create()
        self.home = home
        self.spark = spark
        self._lock = Lock(home)
        try:
            with faults_told(home.root):
                self.metastore = Metastore.open(metastore_url or home.metastore_url(), holder=holder())
                self.registry = Registry(self.metastore, home)
                self.registry.load()
        except BaseException:
            self._lock.release()
            raise
        self.pipelines: dict[str, Pipeline] = {}
        self.repair = Repair(self.metastore, self.registry, home, spark.ingest, self.pipelines)
        self.answers = AnswerLog(self.metastore, home, self.repair.mend)
        # Half of the tasks: ingest and fire run side by side, and fewer workers make the same matrices.
        tasks = max(1, spark.parallelism // 2)
        self.firing = Firing(self.metastore, self.registry, home, spark.fire, tasks, self.repair.repair)
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
        pipeline = Pipeline(stream, self.metastore, self.registry, self.home, self._clock, self._on_commit)
        self.pipelines[stream.name] = pipeline
        self._streams = {**self._streams, stream.name: stream}
        return pipeline

    def compile(self, sql: str, id: str, owner: str = "", key: str | None = None) -> NewRequest:
        query = self.front_end.compile(sql)
        return NewRequest(id, owner, key, query, self.registry.selections_of(query))

    def warm_up(self, stream: Stream) -> None:
        """Let Spark's analyzer see queries before the first user waits for it: a cold JVM takes a second for the first
        and some tenths of a second for the next dozens. Nothing depends on it, so it gives way to any error."""
        for sql in _warm_up_queries(stream):
            try:
                self.front_end.compile(sql)
            except Exception:
                return

    def fire_all(self) -> None:
        """Fire until nothing is due."""
        for pipeline in list(self.pipelines.values()):
            while self.firing.fire(pipeline):
                self.answers.published()
        for name in self.metastore.joins():
            while self.joining.fire(name):
                self.answers.published()

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

    def tidy(self, retention: int) -> None:
        """Forget what is older than the retention (microseconds), and group versions that nothing needs."""
        before = self._clock() - retention
        removed = self.metastore.expire_answers(before_time=before)
        self.registry.forget_queries(self.metastore.expire_history(before))
        for name, pipeline in self.pipelines.items():
            with pipeline.firing:
                # Queries that were deleted leave buckets behind that no fire comes by to forget.
                self.firing.clean_up(pipeline)
                versions = self.metastore.expire_versions(name)
                self.registry.forget(versions)
                removed += versions
        self.metastore.expire_recipes()
        self.home.remove(removed)

    def sweep(self) -> int:
        """Remove files of jobs that never committed; only while no job runs."""
        named = self.metastore.referenced_files()
        orphans = [path for path in self.home.files() if path not in named]
        self.home.remove(orphans)
        return len(orphans)

    def close(self) -> None:
        self.answers.close()
        self.registry.close()
        self.metastore.close()
        self._lock.release()


# Queries that the analyzer sees at the start of a stream, in all.
WARM_UP_QUERIES = 24


def _warm_up_queries(stream: Stream) -> Iterator[str]:
    """Texts of the kind that users write, over the stream's own columns; the second of each pair differs in its
    literal only."""

    def quoted(name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    time_column = quoted(stream.time)
    numbers = [quoted(f.name) for f in stream.fields if f.type.integral or f.type.floating] or ["1"]
    for number in range(WARM_UP_QUERIES):
        column = numbers[number // 2 % len(numbers)]
        operator = ("<", ">", "=", "<=", ">=", "<>")[number // 2 % 6]
        yield (
            f"SELECT {quoted(stream.fields[0].name)}, count(*) AS n, sum({column}) AS total FROM {quoted(stream.name)} "
            f"WHERE {column} {operator} {100 + number} "
            f"GROUP BY {quoted(stream.fields[0].name)}, window({time_column}, '2 seconds', '1 second')"
        )
