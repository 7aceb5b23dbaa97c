"""Flink SQL as a system under test: one cluster on this machine, one job for each query, as its users do it.

The cluster is a local one with all of its parts in one Java machine. Answers go to CSV files in a directory for each
window, exactly once: a window is readable when the checkpoint behind it is complete. Nothing starts a failed job again.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from millstream.bench.driving.model import Emission, QuerySpec
from millstream.bench.process import DRIVER_MEMORY
from millstream.bench.systems.flink_answers import Answers
from millstream.bench.systems.flink_feed import Feed
from millstream.bench.systems.flink_process import Cluster, JobState, Worker, interpreter
from millstream.bench.systems.flink_rows import create_tables, reads
from millstream.bench.systems.system import Queue, Seen
from millstream.errors import BenchError

# A slot is a share of memory, not a core. So many jobs would run out of cores long before.
SLOTS = 1024
# Memory for the sorting and buffering of one job; it is taken when it is needed.
SLOT_MEMORY_MB = 4
# Buffers between tasks, for all jobs together: some 20 of 32 kB each for a job, so enough for hundreds.
NETWORK_MEMORY = "256mb"
# Rows that a source reads at once. The default of 1 MB would hold back the rows of a slow stream.
FETCH = "64kb"
# Answers become readable with a checkpoint, so this bounds their latency; shorter ones cost every job more work.
CHECKPOINT = "1 s"
# How often watermarks are sent. The default is 200 ms.
WATERMARKS = "50 ms"
# Jobs start in a second or two each when the machine is idle.
START_LIMIT = 300.0
END_LIMIT = 60.0
LOOK = 0.05
# Flink's HTTP interface answers from a copy so old at most, in seconds: what has just ended shall have ended there.
REFRESH = 0.1
# The first who asks for figures of running tasks has them fetched. That has come by then, in seconds.
FETCHED = 0.5

CLUSTER_SETTINGS = {
    "rest.port": "0",
    "rest.bind-address": "127.0.0.1",
    "web.refresh-interval": f"{REFRESH * 1000:.0f} ms",
    # Nothing is fetched unless somebody asks. The default of 10 s would give him figures of an earlier moment.
    "metrics.fetcher.update-interval": "1 s",
    "taskmanager.memory.managed.size": f"{SLOTS * SLOT_MEMORY_MB}mb",
    "taskmanager.memory.network.min": NETWORK_MEMORY,
    "taskmanager.memory.network.max": NETWORK_MEMORY,
    "source.file.stream.io-fetch-size": FETCH,
}
RUN_SETTINGS = {
    "parallelism.default": "1",
    "table.local-time-zone": "UTC",
    "state.backend.type": "hashmap",
    "execution.checkpointing.interval": CHECKPOINT,
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "execution.checkpointing.storage": "filesystem",
    "pipeline.auto-watermark-interval": WATERMARKS,
    "pipeline.object-reuse": "true",
    # A file that a job has read is gone: what fails stays failed, and is reported.
    "restart-strategy.type": "none",
}


@dataclass(slots=True)
class _Job:
    """A query's job; ``effective`` when it has been told that it runs, ``over`` when that it does not."""

    query: str
    id: str
    answers: Answers
    effective: bool = False
    deleted: bool = False
    over: bool = False


class FlinkSystem:
    """Implements `System`. Starts Flink with its first run and keeps it for those after it."""

    # The driver writes the queues in this form, with `flink_rows.write_rows`.
    form = "csv"

    def __init__(self, cores: int = 2, python: Path | None = None) -> None:
        self._cores = cores
        self._python = python or interpreter()
        self._home = Path(tempfile.mkdtemp(prefix="millstream-flink-"))
        self._worker: Worker | None = None
        self._cluster: Cluster | None = None
        self._about: dict[str, str] = {}
        self._folder = Path()
        self._queues: tuple[Queue, ...] = ()
        self._feed: Feed | None = None
        self._jobs: list[_Job] = []
        self._submitted = 0

    def deploy(self, folder: Path, queues: Sequence[Queue], queries: Sequence[QuerySpec]) -> None:
        _check_texts(queries)
        self._end_run()
        worker = self._running_worker()
        self._folder, self._queues = folder, tuple(queues)
        checkpoints = (folder / "checkpoints").resolve().as_uri()
        worker.ask("begin", settings=RUN_SETTINGS | {"execution.checkpointing.dir": checkpoints})
        self._feed = Feed(self._queues)
        self._submit(queries, from_start=True)
        self._await_running()

    def create(self, queries: Sequence[QuerySpec]) -> None:
        _check_texts(queries)
        self._submit(queries, from_start=False)

    def delete(self, ids: Sequence[str]) -> None:
        active = {job.query: job for job in self._jobs if not job.deleted}
        for query in ids:
            if query not in active:
                raise BenchError("UNKNOWN_QUERY", f"no query {query!r} runs in Flink")
            self._cancel(active[query])

    def collect(self) -> Seen:
        # Of jobs that are submitted meanwhile nothing is known yet.
        jobs = list(self._jobs)
        states = self._required_cluster().jobs()
        effective: list[tuple[str, float]] = []
        errors: list[str] = []
        for job in jobs:
            if not job.over:
                self._follow(job, states[job.id], effective, errors)
        taken, pulls = self._feed.progress() if self._feed else (0, ())
        return Seen(taken, self._emissions(), tuple(effective), tuple(errors), pulls)

    def phases(self) -> dict[str, float]:
        """A task's idleness is counted when it is over: the figures of one that waits are too large by so much."""
        if self._jobs:
            self._busy_of(self._jobs[:1])
            time.sleep(FETCHED)
        return self._busy_of(list(self._jobs))

    def finish(self) -> dict[str, float]:
        self._end_jobs()
        time.sleep(REFRESH)
        busy = self._busy_of(self._jobs)
        self._end_run()
        return busy

    def describe(self) -> dict[str, str]:
        return {
            **self._about,
            "memory": DRIVER_MEMORY,
            "queue": "CSV, in order; the package has no Parquet",
            "jobs": f"one for each query; a single query has {self._cores} sources for each stream",
            "answers": f"CSV files, exactly once; checkpoint every {CHECKPOINT}, state on the heap",
            "watermarks": f"every {WATERMARKS}",
        }

    def close(self) -> None:
        if self._feed:
            self._feed.close()
            self._feed = None
        if self._worker:
            self._worker.close()
            self._worker = None
        shutil.rmtree(self._home, ignore_errors=True)

    def _running_worker(self) -> Worker:
        if self._worker is None:
            environment = {"FLINK_LOG_DIR": str(self._home), "JVM_ARGS": f"-Xmx{DRIVER_MEMORY}"}
            self._worker = Worker(self._python, self._home / "worker.log", environment)
            settings = CLUSTER_SETTINGS | {"io.tmp.dirs": str(self._home)}
            told = self._worker.ask("start", settings=settings, slots=SLOTS)
            self._cluster = Cluster(told["port"])
            self._about = {"version": f"Flink {told['version']}", "java": told["java"]}
        return self._worker

    def _required_cluster(self) -> Cluster:
        if self._cluster is None:
            raise BenchError("FLINK_FAILED", "no run has begun", hint="call deploy first")
        return self._cluster

    def _submit(self, queries: Sequence[QuerySpec], from_start: bool) -> None:
        if self._worker is None or self._feed is None:
            raise BenchError("FLINK_FAILED", "no run has begun", hint="call deploy first")
        active = sum(not job.deleted for job in self._jobs) + len(queries)
        for query in queries:
            # Cores that other queries do not need can read a stream in parts.
            lanes = max(1, self._cores // active)
            self._submitted += 1
            name = f"job{self._submitted}"
            folder = self._folder / name
            # A stream that the job does not read would wait for ever.
            read = [queue.stream for queue in self._queues if reads(_text(query), queue.stream.name)]
            inputs = self._feed.add(query.id, folder / "in", [stream.name for stream in read], lanes, from_start)
            tables = [
                statement
                for stream in read
                for statement in create_tables(stream.name, stream.schema, inputs[stream.name])
            ]
            answers = folder / "answers"
            where = answers.resolve().as_uri()
            try:
                told = self._worker.ask(
                    "submit", name=query.id, database=name, tables=tables, query=_text(query), answers=where
                )
            except BenchError:
                self._feed.remove(query.id)
                raise
            self._jobs.append(_Job(query.id, told["job"], Answers(answers, query.length > 0)))

    def _await_running(self) -> None:
        """A run begins with all of its queries at work, or not at all."""
        deadline = time.monotonic() + START_LIMIT
        while True:
            states = self._required_cluster().jobs()
            mine = [states[job.id] for job in self._jobs]
            for job, state in zip(self._jobs, mine, strict=True):
                if state.failed:
                    raise BenchError("FLINK_FAILED", self._failure(job))
            if all(state.running for state in mine):
                break
            if time.monotonic() > deadline:
                count = sum(state.running for state in mine)
                raise BenchError("FLINK_FAILED", f"{count} of {len(mine)} jobs run after {START_LIMIT:.0f} seconds")
            time.sleep(LOOK)
        for job in self._jobs:
            job.effective = True

    def _follow(self, job: _Job, state: JobState, effective: list[tuple[str, float]], errors: list[str]) -> None:
        """What has become of a job since the last look."""
        if state.running and not job.effective and not job.deleted:
            job.effective = True
            effective.append((job.query, self._required_cluster().running_since(job.id)))
        if job.deleted and state.state == "CANCELED" and state.ended is not None:
            job.over = True
            effective.append((job.query, state.ended))
        elif state.failed or (not job.deleted and state.ended is not None):
            job.over = True
            errors.append(self._failure(job))

    def _failure(self, job: _Job) -> str:
        return f"query {job.query!r}: {self._required_cluster().failure(job.id)}"

    def _busy_of(self, jobs: Sequence[_Job]) -> dict[str, float]:
        """Seconds that tasks were busy, by the name of their first operator, over all of these jobs."""
        busy: dict[str, float] = {}
        for job in jobs:
            for name, seconds in self._required_cluster().busy(job.id).items():
                busy[name] = busy.get(name, 0.0) + seconds
        return busy

    def _emissions(self) -> tuple[Emission, ...]:
        """One answer for each query and window."""
        fresh = [Emission(at, end, 1) for job in list(self._jobs) for at, end in job.answers.fresh()]
        return tuple(sorted(fresh, key=lambda emission: emission.at))

    def _cancel(self, job: _Job) -> None:
        self._required_cluster().cancel(job.id)
        job.deleted = True
        if self._feed:
            self._feed.remove(job.query)

    def _end_run(self) -> None:
        self._end_jobs()
        self._jobs = []
        if self._feed:
            self._feed.close()
            self._feed = None

    def _end_jobs(self) -> None:
        """Cancel what runs, and wait until it is gone: the next run shall have the machine for itself."""
        if not self._jobs:
            return
        cluster = self._required_cluster()
        states = cluster.jobs()
        for job in self._jobs:
            if not job.deleted and states[job.id].ended is None:
                self._cancel(job)
        deadline = time.monotonic() + END_LIMIT
        while any(states[job.id].ended is None for job in self._jobs):
            if time.monotonic() > deadline:
                raise BenchError("FLINK_FAILED", f"jobs do not end within {END_LIMIT:.0f} seconds of being cancelled")
            time.sleep(LOOK)
            states = cluster.jobs()


def _check_texts(queries: Sequence[QuerySpec]) -> None:
    for query in queries:
        _text(query)


def _text(query: QuerySpec) -> str:
    if query.flink is None:
        hint = "leave Flink out of this workload, or give the query's `flink` text"
        raise BenchError("UNSUPPORTED", f"query {query.id!r} has no text in Flink's SQL", hint=hint)
    return query.flink
