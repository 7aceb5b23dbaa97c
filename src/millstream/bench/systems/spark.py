"""Plain Spark under test: one ``StreamingQuery`` for each query, or one for all with the same window, merged by hand.

Tuned as a good Spark engineer would: as many shuffle partitions as cores, no adaptive planning, the fast checkpoint
files of the engine's own session, append mode so that each window is written once. State is in RocksDB with a
changelog, or in Java's memory, Spark's default: figures are held against the faster.
"""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from millstream.bench.driving.model import Emission, Pull, QuerySpec
from millstream.bench.plain_run import STORE_SETTINGS
from millstream.bench.systems.spark_files import TIME, Later, read_log
from millstream.bench.systems.spark_jobs import Intake, Job
from millstream.bench.systems.spark_reports import Batch, batch_of, unseen
from millstream.bench.systems.system import Queue, Seen
from millstream.config import available_cores
from millstream.errors import EngineError
from millstream.runtime.session import build_session

# Reports that Spark keeps of each query. It is asked four times a second, and the shortest batches take a tenth of one:
# room for two seconds in which nobody comes to ask.
KEPT_PROGRESS = "20"
MERGEABLE = re.compile(
    r"SELECT (?P<keys>[\w, ]+), (?P<aggregate>\w+\([^()]*\)) AS \w+ FROM (?P<stream>\w+)"
    r"( WHERE (?P<condition>.+?))? GROUP BY (?P=keys), (?P<window>window\([^()]*\))"
)


class SparkSystem:
    """``merged``: questions that differ in their condition only become one job with filtered aggregates. ``store`` is
    one of `STORE_SETTINGS`."""

    form = "parquet"

    def __init__(self, workspace: Path, cores: int, merged: bool = False, store: str = "rocksdb") -> None:
        self._session = build_session("bench: plain Spark", spare_slots=False)
        conf = self._session.conf
        for name, value in STORE_SETTINGS[store].items():
            conf.set(name, value)
        conf.set("spark.sql.streaming.numRecentProgressUpdates", KEPT_PROGRESS)
        conf.set("spark.sql.shuffle.partitions", str(available_cores()))
        self._merged, self._store = merged, store
        self._jobs: list[Job] = []
        self._lock = threading.Lock()
        self._phases: dict[str, float] = {}
        self._numbers = 0

    def deploy(self, folder: Path, queues: Sequence[Queue], queries: Sequence[QuerySpec]) -> None:
        self._folder, self._queues = folder, list(queues)
        total = sum(queue.stream.share for queue in queues)
        self._shares = {queue.stream.name: queue.stream.share / total for queue in queues}
        self._phases, self._jobs, self._taken = {}, [], 0
        self._started: list[tuple[str, float]] = []
        self._later = Later({queue.stream.name: queue.directory for queue in queues})
        self._attach(self._later.sources)
        asked = merge(queries) if self._merged else [((query,), query.plain or query.sql) for query in queries]
        self._jobs = [Job(specs, text, self._place()) for specs, text in asked]
        for job in self._jobs:
            self._start(job)

    def create(self, queries: Sequence[QuerySpec]) -> None:
        if self._merged:
            raise EngineError("UNSUPPORTED", "queries that are merged by hand cannot be created at run time")
        with self._lock:
            # A new query begins with the rows that come from now on, as Millstream's do. It counts from now on too:
            # nobody has been told of more rows than have come by now, so what has been taken never goes back.
            directories, before = self._later.follow(self._place())
            jobs = [Job((query,), query.plain or query.sql, self._place(), before, late=True) for query in queries]
            self._jobs = self._jobs + jobs
        self._attach(directories)
        for job in jobs:
            self._start(job)

    def delete(self, ids: Sequence[str]) -> None:
        leaving = set(ids)
        with self._lock:
            gone = [job for job in self._jobs if {spec.id for spec in job.specs} <= leaving]
            self._jobs = [job for job in self._jobs if job not in gone]
        for job in gone:
            if job.query is not None:
                job.query.stop()
            with self._lock:
                self._started += [(spec.id, time.time()) for spec in job.specs]

    def collect(self) -> Seen:
        emissions: Counter[tuple[float, int]] = Counter()
        errors = []
        for job in list(self._jobs):
            if job.query is None:
                continue
            # One question to Java instead of two.
            found = None if job.query.isActive else job.query.exception()
            if found is not None:
                errors.append(str(found).strip().split("\n")[0])
            for report in unseen(job.query, job.batch):
                batch = batch_of(report)
                if batch is not None:
                    self._take(job, batch)
                    emissions.update((batch.ended, end) for end in job.answers(batch))
        seen = tuple(Emission(at, end, count) for (at, end), count in sorted(emissions.items()))
        with self._lock:
            effective, self._started = self._started, []
            pulls = self._advance()
            return Seen(self._taken, seen, tuple(effective), tuple(errors), pulls)

    def _take(self, job: Job, batch: Batch) -> None:
        if not job.intakes:
            job.intakes = tuple(Intake(stream, self._shares[stream]) for stream, _ in batch.entries)
        # Sources have their logs in the order of the report.
        for number, (intake, (_, entry)) in enumerate(zip(job.intakes, batch.entries, strict=True)):
            names = read_log(job.folder / "checkpoint" / "sources" / str(number), intake.entry, entry)
            intake.take(self._later.extents(intake.stream, names), entry)
        with self._lock:
            if job.late and job.batch < 0:
                self._started += [(spec.id, batch.began) for spec in job.specs]
            for phase, milliseconds in batch.milliseconds.items():
                self._phases[phase] = self._phases.get(phase, 0.0) + int(milliseconds) / 1000
        job.batch = batch.number
        job.pulls.append(Pull(batch.began, job.taken))

    def _advance(self) -> tuple[Pull, ...]:
        """Rows that all jobs have taken; not more than have come, which the part of one stream can be by a file."""
        taken = min([self._later.released(), *(job.taken for job in self._jobs)])
        if taken <= self._taken:
            return ()
        self._taken = taken
        begun = [at for job in self._jobs if (at := job.begun_with(taken)) is not None]
        return (Pull(max(begun), taken),) if begun else ()

    def phases(self) -> dict[str, float]:
        with self._lock:
            return dict(self._phases)

    def finish(self) -> dict[str, float]:
        self._later.close()
        for job in self._jobs:
            if job.query is not None:
                job.query.stop()
        self._jobs = []
        shutil.rmtree(self._folder, ignore_errors=True)
        return self.phases()

    def describe(self) -> dict[str, str]:
        return {
            "name": "plain Spark, merged by hand" if self._merged else "plain Spark",
            "version": version("pyspark"),
            "state store": self._store,
        }

    def close(self) -> None:
        for job in self._jobs:
            if job.query is not None:
                job.query.stop()
        self._session.stop()

    def _place(self) -> Path:
        self._numbers += 1
        return self._folder / str(self._numbers)

    def _attach(self, directories: Mapping[str, Path]) -> None:
        """Views of the streams whose files come to these directories."""
        for queue in self._queues:
            reader = self._session.readStream.schema(queue.stream.schema)
            rows = reader.parquet(str(directories[queue.stream.name])).withWatermark(TIME, "0 seconds")
            rows.createOrReplaceTempView(queue.stream.name)

    def _start(self, job: Job) -> None:
        writer = self._session.sql(job.text).writeStream.format("parquet").outputMode("append")
        writer = writer.option("path", str(job.folder / "out"))
        job.query = writer.option("checkpointLocation", str(job.folder / "checkpoint")).start()


def merge(queries: Sequence[QuerySpec]) -> list[tuple[tuple[QuerySpec, ...], str]]:
    """One text for all questions over the same stream with the same keys and window.

    >>> import dataclasses
    >>> text = "SELECT key, SUM(x) AS total FROM s WHERE x < 3 GROUP BY key, window(time, '1 second')"
    >>> one = QuerySpec("a", text, 1, 1)
    >>> two = dataclasses.replace(one, id="b", sql=one.sql.replace("< 3", "> 5"))
    >>> merge([one, two])[0][1]
    "SELECT key, SUM(x) FILTER (WHERE x < 3) AS q0, SUM(x) FILTER (WHERE x > 5) AS q1 FROM s
     GROUP BY key, window(time, '1 second')"
    """
    groups: dict[tuple[str, str, str], list[tuple[QuerySpec, str]]] = {}
    for query in queries:
        found = MERGEABLE.fullmatch(query.sql)
        if found is None:
            raise EngineError("UNSUPPORTED", "the query cannot be merged by hand with others", detail=query.sql)
        condition = found["condition"]
        aggregate = found["aggregate"] + (f" FILTER (WHERE {condition})" if condition else "")
        groups.setdefault((found["keys"], found["stream"], found["window"]), []).append((query, aggregate))
    merged = []
    for (keys, stream, window), members in groups.items():
        columns = ", ".join(f"{aggregate} AS q{number}" for number, (_, aggregate) in enumerate(members))
        text = f"SELECT {keys}, {columns} FROM {stream} GROUP BY {keys}, {window}"
        merged.append((tuple(query for query, _ in members), text))
    return merged
