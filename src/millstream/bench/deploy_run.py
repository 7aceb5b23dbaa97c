"""How long a create takes while data flow: to the sealed epoch, and to the first micro-batch planned with it.

Requests are open loop: each has the moment at which it is due, and its latency counts from there, so a slow one does
not make the others look better by holding them back.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from millstream.bench.jobs import DeployJob, DeployResult, Level, Storm, Tell
from millstream.bench.journal import Journal
from millstream.bench.measure import WARM_UP, Summary
from millstream.bench.millstream_run import create
from millstream.bench.workload import FIELDS_MAX, KEYS, STREAM, draw_query
from millstream.config import Settings, available_cores
from millstream.engine.engine import Engine
from millstream.errors import EngineError, MillstreamError
from millstream.runtime.session import build_session
from millstream.sources.source import AStreamGenerator, Generator

# Creates a second while latency is sampled: few enough that one seldom meets another.
SAMPLE_RATE = 10.0
# Clients that wait at the same time at most; far more than wait when all is well.
CLIENTS = 128
# Queries are brought up to a level in epochs of this size, as a real load would come.
STEP = 100
# After the level is reached, the stream gets this long to catch up with its rate before sampling begins, in seconds.
SETTLE = 30.0
# A stream counts as caught up when it is behind by less than this: about two micro-batches.
CAUGHT_UP = 1.0
# Longer than any micro-batch; a create that waits so long for its batch has met a stopped stream.
PATIENCE = 60.0


def run_deploy(job: DeployJob, tell: Tell) -> DeployResult:
    session = build_session("bench: deployment")
    folder = Path(tempfile.mkdtemp(prefix="deploy-", dir=job.workspace))
    try:
        with Engine(home=folder / "home", spark=session, settings=Settings(parallelism=available_cores())) as engine:
            return _Deployment(engine, job, tell).run()
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class _Sampled:
    """What the clients of one level have seen, as (due, latency); appended to by many threads."""

    sealed: list[tuple[float, float]] = field(default_factory=list)
    planned: list[tuple[float, float]] = field(default_factory=list)
    refused: int = 0


class _Deployment:
    """One engine whose number of queries goes up level by level."""

    def __init__(self, engine: Engine, job: DeployJob, tell: Tell) -> None:
        self._engine = engine
        self._job = job
        self._tell = tell
        self._journal = Journal(engine._core.metastore)
        self._random = Random(job.seed)
        self._running: list[str] = []
        self._lock = threading.Lock()
        self._began = 0.0

    def run(self) -> DeployResult:
        job = self._job
        generator = {"rate": job.rate, "seed": job.seed, "keys": KEYS, "fields_max": FIELDS_MAX}
        self._began = time.monotonic()
        self._engine.create_stream(STREAM, Generator.live(AStreamGenerator, **generator), time="time")
        parts = len(job.levels) + 1
        # The first create of a shape asks Spark's analyzer; every later one finds its verdict.
        self._engine.create_query(draw_query(self._random).sql).delete()
        levels = []
        for number, level in enumerate(job.levels):
            self._tell(number / parts, f"{level} running, settling")
            self._raise_to(level)
            self._settle()
            self._tell(number / parts, f"{level} running, {job.samples} creates")
            levels.append(self._sample(level))
        self._tell(len(job.levels) / parts, f"{job.storm_rate} creates a second")
        storm = self._storm() if job.storm_seconds else None
        return DeployResult(job.rate, tuple(levels), storm)

    def _raise_to(self, level: int) -> None:
        while len(self._running) < level:
            number = min(STEP, level - len(self._running))
            texts = [draw_query(self._random).sql for _ in range(number)]
            self._running += create(self._engine, texts, first=len(self._running))

    def _settle(self) -> None:
        """Wait until the stream keeps its rate again, and the newest queries are part of a micro-batch."""
        deadline = time.monotonic() + SETTLE
        self._journal.await_plan(self._engine.status().epoch, SETTLE)
        while self._lag() > CAUGHT_UP and time.monotonic() < deadline:
            time.sleep(0.1)

    def _lag(self) -> float:
        """Seconds of the stream's rate between the rows that are due and those that are committed."""
        status = self._engine.stream(STREAM)
        if status.error:
            raise EngineError("STREAM_STOPPED", "the stream stopped during the benchmark", detail=status.error)
        return time.monotonic() - self._began - self._journal.rows / self._job.rate

    def _sample(self, level: int) -> Level:
        found = _Sampled()
        number = math.ceil(self._job.samples / (1 - WARM_UP))
        gaps = [self._random.expovariate(SAMPLE_RATE) for _ in range(number)]
        self._send(gaps, found, leave=True)
        if found.refused:
            raise EngineError("INTERNAL", f"{found.refused} creates of the benchmark were refused")
        return Level(level, _summary(found.sealed), _summary(found.planned), self._lag())

    def _storm(self) -> Storm:
        """Creates at a fixed rate; every second as many of the oldest queries are deleted, so that the number stays."""
        job = self._job
        number = round(job.storm_rate * job.storm_seconds)
        found = _Sampled()
        ended = threading.Event()
        level = len(self._running)
        with ThreadPoolExecutor(1) as cleaner:
            cleaning = cleaner.submit(self._keep_to, level, ended)
            begin = time.monotonic()
            try:
                self._send([1 / job.storm_rate] * number, found, leave=False)
            finally:
                ended.set()
        cleaning.result()
        achieved = len(found.sealed) / (max(due + latency for due, latency in found.sealed) - begin)
        return Storm(level, job.storm_rate, achieved, _summary(found.sealed), found.refused, self._lag())

    def _keep_to(self, level: int, ended: threading.Event) -> None:
        while not ended.wait(1.0):
            with self._lock:
                surplus = max(0, len(self._running) - level)
                leaving, self._running = self._running[:surplus], self._running[surplus:]
            for gone in self._engine.delete_queries(leaving) if leaving else ():
                if isinstance(gone, MillstreamError):
                    raise gone

    def _send(self, gaps: list[float], found: _Sampled, leave: bool) -> None:
        """Send creates with these gaps between them, whatever becomes of each; returns when all have ended."""
        texts = [draw_query(self._random).sql for _ in gaps]
        sent: list[Future[None]] = []
        with ThreadPoolExecutor(CLIENTS) as clients:
            due = time.monotonic()
            for gap, text in zip(gaps, texts, strict=True):
                time.sleep(max(0.0, due - time.monotonic()))
                sent.append(clients.submit(self._create, text, due, found, leave))
                due += gap
        for future in sent:
            future.result()

    def _create(self, text: str, due: float, found: _Sampled, leave: bool) -> None:
        """One client. ``leave``: it waits for its first micro-batch, then deletes its query."""
        try:
            query = self._engine.create_query(text)
        except MillstreamError:
            with self._lock:
                found.refused += 1
            return
        acknowledged = time.monotonic()
        with self._lock:
            found.sealed.append((due, acknowledged - due))
            if not leave:
                self._running.append(query.id)
        if leave:
            planned = self._journal.await_plan(query.epoch, PATIENCE)
            if planned is None:
                raise EngineError("STREAM_STOPPED", f"no micro-batch within {PATIENCE:.0f} s of a create")
            with self._lock:
                found.planned.append((due, planned - due))
            query.delete()


def _summary(samples: list[tuple[float, float]]) -> Summary:
    """The latencies of the requests that were due after the warm-up."""
    ordered = [latency for _, latency in sorted(samples)]
    return Summary(tuple(ordered[int(len(ordered) * WARM_UP) :]))
