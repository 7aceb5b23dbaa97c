"""Plain Spark under test: one ``StreamingQuery`` for each query, or one for all with the same window, merged by hand.

Tuned as a good Spark engineer would: as many shuffle partitions as cores, no adaptive planning, RocksDB state with a
changelog, the fast checkpoint files of the engine's own session, append mode so that each window is written once.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.bench.driving.model import Emission, QuerySpec
from millstream.bench.plain_run import STORE_SETTINGS, progress_end
from millstream.bench.systems.system import Queue, Seen
from millstream.config import available_cores
from millstream.errors import EngineError
from millstream.runtime.session import build_session

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

STATE_STORE = "rocksdb"
# Reports that Spark keeps of each query; read several times a second, so few are enough.
KEPT_PROGRESS = "100"
MERGEABLE = re.compile(
    r"SELECT (?P<keys>[\w, ]+), (?P<aggregate>\w+\([^()]*\)) AS \w+ FROM (?P<stream>\w+)"
    r"( WHERE (?P<condition>.+?))? GROUP BY (?P=keys), (?P<window>window\([^()]*\))"
)
MICROS = 1_000_000
# How often new files are looked for on behalf of queries that came later, in seconds.
LATER_LOOK = 0.05


@dataclass
class _Job:
    """A running query for one or several of the questions; ``before`` rows came before it was started, at run time if
    ``late``."""

    query: StreamingQuery
    specs: tuple[QuerySpec, ...]
    before: int
    late: bool
    batch: int = -1
    rows: int = 0
    watermark: int | None = None


class Later:
    """Directories for queries that come later: Spark's file source always begins with the oldest file, so they get
    links to the files that come after them."""

    def __init__(self, sources: Mapping[str, Path]) -> None:
        self.sources = sources
        self._known: dict[str, set[str]] = {name: set() for name in sources}
        self._followers: list[Path] = []
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="bench-later", daemon=True)
        self._thread.start()

    def follow(self, folder: Path) -> dict[str, Path]:
        """New directories, by stream, for files from now on."""
        made = {name: folder / name for name in self.sources}
        for directory in made.values():
            directory.mkdir(parents=True)
        with self._lock:
            self._look()
            self._followers.append(folder)
        return made

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(LATER_LOOK):
            with self._lock:
                self._look()

    def _look(self) -> None:
        for name, directory in self.sources.items():
            for file in sorted(set(os.listdir(directory)) - self._known[name]):
                for folder in self._followers:
                    os.link(directory / file, folder / name / file)
                self._known[name].add(file)


class SparkSystem:
    """``merged``: questions that differ in their condition only become one job with filtered aggregates."""

    form = "parquet"

    def __init__(self, workspace: Path, cores: int, merged: bool = False) -> None:
        self._session = build_session("bench: plain Spark", spare_slots=False)
        conf = self._session.conf
        for name, value in STORE_SETTINGS[STATE_STORE].items():
            conf.set(name, value)
        conf.set("spark.sql.streaming.numRecentProgressUpdates", KEPT_PROGRESS)
        conf.set("spark.sql.shuffle.partitions", str(available_cores()))
        self._merged = merged
        self._jobs: list[_Job] = []
        self._lock = threading.Lock()
        self._phases: dict[str, float] = {}
        self._numbers = 0

    def deploy(self, folder: Path, queues: Sequence[Queue], queries: Sequence[QuerySpec]) -> None:
        self._folder, self._queues = folder, list(queues)
        self._phases, self._jobs = {}, []
        self._started: list[tuple[str, float]] = []
        self._later = Later({queue.stream.name: queue.directory for queue in queues})
        self._attach(self._later.sources)
        if self._merged:
            for specs, text in merge(queries):
                self._start(specs, text)
        else:
            for query in queries:
                self._start((query,), query.plain or query.sql)

    def create(self, queries: Sequence[QuerySpec]) -> None:
        if self._merged:
            raise EngineError("UNSUPPORTED", "queries that are merged by hand cannot be created at run time")
        # A new query begins with the rows that come from now on, as Millstream's do.
        self._numbers += 1
        self._attach(self._later.follow(self._folder / f"later-{self._numbers}"))
        for query in queries:
            self._start((query,), query.plain or query.sql, late=True)

    def delete(self, ids: Sequence[str]) -> None:
        leaving = set(ids)
        with self._lock:
            gone = [job for job in self._jobs if {spec.id for spec in job.specs} <= leaving]
            self._jobs = [job for job in self._jobs if job not in gone]
        for job in gone:
            job.query.stop()
            with self._lock:
                self._started += [(spec.id, time.time()) for spec in job.specs]

    def collect(self) -> Seen:
        with self._lock:
            jobs = list(self._jobs)
            effective, self._started = self._started, []
        emissions: dict[tuple[float, int], int] = {}
        errors = []
        for job in jobs:
            found = job.query.exception()
            if found is not None:
                errors.append(str(found).strip().split("\n")[0])
            for report in job.query.recentProgress:
                self._take(job, report, emissions)
        with self._lock:
            # With those that have come meanwhile, since they begin where the others were known to be.
            taken = min((job.before + job.rows for job in self._jobs), default=0)
        seen = tuple(Emission(at, end, count) for (at, end), count in sorted(emissions.items()))
        return Seen(taken, seen, tuple(effective), tuple(errors))

    def _take(self, job: _Job, report: Any, emissions: dict[tuple[float, int], int]) -> None:
        """A batch that was not seen before. It writes the windows that end by the watermark it began with."""
        if report["batchId"] <= job.batch or "addBatch" not in report["durationMs"]:
            return
        first = job.batch < 0
        job.batch = int(report["batchId"])
        job.rows += int(report["numInputRows"])
        at = progress_end(report)
        if first and job.late:
            with self._lock:
                self._started += [(spec.id, at) for spec in job.specs]
        for phase, milliseconds in report["durationMs"].items():
            self._phases[phase] = self._phases.get(phase, 0.0) + int(milliseconds) / 1000
        watermark = _micros(report.get("eventTime", {}).get("watermark"))
        before, job.watermark = job.watermark, watermark if watermark else job.watermark
        if not watermark or before is None:
            return
        for spec in job.specs:
            for end in _ends(spec, before, watermark):
                emissions[at, end] = emissions.get((at, end), 0) + 1

    def finish(self) -> dict[str, float]:
        self._later.close()
        for job in self._jobs:
            job.query.stop()
        self._jobs = []
        shutil.rmtree(self._folder, ignore_errors=True)
        return dict(self._phases)

    def describe(self) -> dict[str, str]:
        return {
            "name": "plain Spark, merged by hand" if self._merged else "plain Spark",
            "version": version("pyspark"),
            "state store": STATE_STORE,
        }

    def close(self) -> None:
        for job in self._jobs:
            job.query.stop()
        self._session.stop()

    def _attach(self, directories: Mapping[str, Path]) -> None:
        """Views of the streams whose files come to these directories."""
        for queue in self._queues:
            reader = self._session.readStream.schema(queue.stream.schema)
            rows = reader.parquet(str(directories[queue.stream.name])).withWatermark("time", "0 seconds")
            rows.createOrReplaceTempView(queue.stream.name)

    def _start(self, specs: tuple[QuerySpec, ...], text: str, late: bool = False) -> None:
        self._numbers += 1
        folder = self._folder / str(self._numbers)
        writer = self._session.sql(text).writeStream.format("parquet").outputMode("append")
        writer = writer.option("path", str(folder / "out")).option("checkpointLocation", str(folder / "checkpoint"))
        running = writer.start()
        with self._lock:
            # What the furthest query has taken: where a new one begins, about. Looked up when it has started, so that
            # nobody has been told of more.
            before = max((job.before + job.rows for job in self._jobs), default=0) if late else 0
            self._jobs.append(_Job(running, specs, before, late))


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


def _ends(spec: QuerySpec, after: int, until: int) -> list[int]:
    """Ends of a query's windows in (after, until]."""
    if not spec.slide or not spec.watched:
        return []
    first = (after - spec.length) // spec.slide * spec.slide + spec.length + spec.slide
    return list(range(first, until + 1, spec.slide))


def _micros(text: str | None) -> int:
    """Microseconds of Spark's text of a time; 0 for the beginning of time, which stands for no watermark."""
    if not text:
        return 0
    return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * MICROS)
