"""One run: the queues fill at their pace, requests are sent when they are due, and everything is seen from outside."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from millstream.bench.driving.feeding import Feeder, Store, Supply
from millstream.bench.driving.model import (
    WARM_UP,
    Deployment,
    Emission,
    GeneratorProof,
    Latency,
    Pull,
    QuerySpec,
    QueueSample,
    Request,
    RunResult,
    RunSpec,
)
from millstream.bench.driving.pace import Pace, pace_of
from millstream.bench.driving.profiling import Profile
from millstream.bench.driving.trend import judge
from millstream.bench.systems.remote import RemoteSystem, SystemFailed
from millstream.bench.systems.system import Queue

# How often the system is asked what it has taken and answered, in seconds.
LOOK = 0.25
# Between the last preparation and the first row, in seconds: the feeder must not begin late.
LEAD = 0.3
# The supply goes on a little after the end, so that the last look still sees a full queue.
SURPLUS_SECONDS = 1.0

Tell = Callable[[float, str], None]


def run(
    spec: RunSpec, system: RemoteSystem, store: Store, folder: Path, tell: Tell, profile: Path | None = None
) -> RunResult:
    """Run a spec on a system whose process is there; ``folder`` is empty and belongs to the run.

    ``profile`` is where a flame graph of its processes goes.
    """
    pace = pace_of(spec)
    supplies = _supplies(spec, pace, system.form, store, tell)
    queues = []
    for supply in supplies:
        directory = folder / "queues" / supply.stream.name
        directory.mkdir(parents=True)
        queues.append(Queue(supply.stream, directory))
    tell(0.0, f"{len(spec.initial)} queries")
    watch = _Watch(spec, pace)
    home = folder / "system"
    home.mkdir()
    try:
        system.deploy(home, queues, spec.initial)
    except SystemFailed as error:
        watch.errors.append(str(error))
    feeder = Feeder(supplies, [queue.directory for queue in queues], pace)
    watch.began = time.time() + LEAD
    feeder.start(watch.began)
    sender = _Sender(spec.requests, system, watch)
    recording = Profile(system.pid, spec.seconds, profile) if profile and system.pid and not watch.errors else None
    try:
        if not watch.errors:
            sender.start()
            watch.look_until_end(system, feeder, tell)
    finally:
        proof = feeder.stop()
    sender.stop()
    made = recording.finish() if recording else (None, None)
    phases = watch.guarded(system.finish)
    result = watch.result(proof, phases, watch.guarded(system.describe))
    picture, trouble = made
    profiles = (picture.name,) if picture else ()
    said = {"profile": trouble} if trouble else {}
    return replace(result, profiles=profiles, system=result.system | said)


def _supplies(spec: RunSpec, pace: Pace, form: str, store: Store, tell: Tell) -> list[Supply]:
    rows = pace.due(spec.seconds + SURPLUS_SECONDS)
    total = sum(stream.share for stream in spec.streams)
    fastest = max(pace.rates)
    supplies = []
    store.trim()
    for number, stream in enumerate(spec.streams):
        share = stream.share / total
        density = max(1, round(pace.density * share))
        # A different seed for each stream, as the papers have it.
        seed = spec.seed * len(spec.streams) + number
        rate, wanted = fastest * share, int(rows * share)
        supplies.append(store.supply(stream, density, seed, rate, wanted, form, lambda words: tell(0.0, words)))
    return supplies


@dataclass
class _Watch:
    """What is seen of one run."""

    spec: RunSpec
    pace: Pace
    began: float = 0.0
    queue: list[QueueSample] = field(default_factory=list)
    emissions: list[Emission] = field(default_factory=list)
    deployments: list[Deployment] = field(default_factory=list)
    effective: dict[str, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    # Moments on the run's own clock.
    pulls: list[Pull] = field(default_factory=list)
    # Seconds by component when the warm-up was over.
    warm_phases: dict[str, float] | None = None
    # Those that run, by the part of all rows that each reads.
    queries: dict[str, float] = field(default_factory=dict)

    def look_until_end(self, system: RemoteSystem, feeder: Feeder, tell: Tell) -> None:
        self.came(self.spec.initial)
        while not self.errors:
            now = time.time() - self.began
            if now >= self.spec.seconds:
                return
            time.sleep(max(0.0, LOOK - now % LOOK))
            self._look(system, feeder, tell)
            if self.warm_phases is None and now >= WARM_UP * self.spec.seconds:
                self.warm_phases = self.guarded(system.phases)

    def _look(self, system: RemoteSystem, feeder: Feeder, tell: Tell) -> None:
        try:
            seen = system.collect()
        except SystemFailed as error:
            self.errors.append(str(error))
            return
        at = time.time() - self.began
        feeder.forget(seen.taken)
        due = self.pace.due(at)
        running = list(self.queries.values())
        self.queue.append(QueueSample(at, due, feeder.released, seen.taken, len(running), sum(running)))
        self.emissions += seen.emissions
        for query, moment in seen.effective:
            self.effective.setdefault(query, []).append(moment - self.began)
        self.pulls += [Pull(pull.at - self.began, pull.rows) for pull in seen.pulls]
        self.errors += seen.errors
        behind = max(0.0, at - self.pace.moment(seen.taken))
        tell(min(1.0, at / self.spec.seconds), f"{seen.taken / 1e6:.1f} M rows, {behind:.1f} s behind")

    def came(self, queries: Sequence[QuerySpec]) -> None:
        self.queries = self.queries | {query.id: query.share(self.spec.streams) for query in queries}

    def went(self, ids: Sequence[str]) -> None:
        gone = set(ids)
        self.queries = {id: share for id, share in self.queries.items() if id not in gone}

    def guarded(self, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            return ask()
        except SystemFailed as error:
            self.errors.append(str(error))
            return {}

    def result(self, proof: GeneratorProof, phases: dict[str, Any], system: dict[str, Any]) -> RunResult:
        spec = self.spec
        latencies = self._latencies()
        settled = [sample for sample in self.queue if sample.at >= WARM_UP * spec.seconds]
        taken, overall = _rates(settled)
        return RunResult(
            spec=spec,
            began=datetime.fromtimestamp(self.began, UTC).isoformat(),
            queue=tuple(self.queue),
            latencies=latencies,
            deployments=tuple(self._deployed()),
            generator=proof,
            verdict=judge(spec, self.pace, self.queue, latencies, self.errors),
            taken_rate=taken,
            overall_rate=overall,
            answers=sum(one.answers for one in self.emissions),
            phases=self._after_warm_up(phases),
            errors=tuple(self.errors),
            system={name: str(value) for name, value in system.items()},
        )

    def _after_warm_up(self, phases: dict[str, Any]) -> dict[str, float]:
        before = self.warm_phases or {}
        # A system that estimates what is under way may have estimated too much.
        return {name: max(0.0, float(value) - float(before.get(name, 0.0))) for name, value in phases.items()}

    def _latencies(self) -> tuple[Latency, ...]:
        """In the order of emission. The last row of a window is due when its end is, up to the gap between two rows."""
        if not self.emissions:
            return ()
        # Of a system that cannot tell when it began with rows, the looks at which it had taken them: somewhat late.
        seen = self.pulls or [Pull(sample.at, sample.taken) for sample in self.queue]
        taken = np.maximum.accumulate(np.array([0.0, *(float(pull.rows) for pull in seen)]))
        times = np.array([0.0, *(pull.at for pull in seen)])
        found = []
        for one in sorted(self.emissions, key=lambda emission: emission.at):
            at = one.at - self.began
            due = self.pace.moment_of(one.end)
            # The first pull with the rows up to the end.
            index = int(np.searchsorted(taken, self.pace.due(due)))
            ingested = min(at, float(times[index])) if index < len(times) else at
            found.append(Latency(at, at - due, max(0.0, at - max(ingested, due)), one.answers))
        return tuple(found)

    def _deployed(self) -> list[Deployment]:
        made = []
        for one in self.deployments:
            moments = [moment for moment in self.effective.get(one.query, ()) if moment >= one.due]
            effective = min(moments, default=None)
            made.append(Deployment(one.kind, one.query, one.due, one.acknowledged, effective))
        return made


def _rates(settled: Sequence[QueueSample]) -> tuple[float, float]:
    """Rows a second that were taken, and the same with each row counted once for each query there was that reads it."""
    if len(settled) < 2 or settled[-1].at <= settled[0].at:
        return 0.0, 0.0
    seconds = settled[-1].at - settled[0].at
    served = sum((after.taken - before.taken) * before.readers for before, after in itertools.pairwise(settled))
    return (settled[-1].taken - settled[0].taken) / seconds, served / seconds


class _Sender:
    """Sends requests when they are due, one batch at a time: the next waits until the one before is acknowledged."""

    def __init__(self, requests: Sequence[Request], system: RemoteSystem, watch: _Watch) -> None:
        self._requests = sorted(requests, key=lambda request: request.at)
        self._system = system
        self._watch = watch
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-requests", daemon=True)
        self._started = False

    def start(self) -> None:
        self._started = True
        self._thread.start()

    def stop(self) -> None:
        """What is on its way is waited for; what was due and still waited for it is noted as never acknowledged."""
        self._stop.set()
        if self._started:
            self._thread.join()

    def _run(self) -> None:
        rest = deque(self._requests)
        while rest and self._is_next(rest[0]) and self._send(rest[0]):
            rest.popleft()
        for request in rest:
            if request.at < self._watch.spec.seconds:
                self._note("create", [query.id for query in request.create], request.at, None)
                self._note("delete", request.delete, request.at, None)

    def _is_next(self, request: Request) -> bool:
        """Waits until it is due; False where the run ends before."""
        wait = self._watch.began + request.at - time.time()
        ended = (wait > 0 and self._stop.wait(wait)) or self._stop.is_set()
        return not ended and not self._watch.errors

    def _send(self, request: Request) -> bool:
        """False where the system fails."""
        watch = self._watch
        try:
            if request.create:
                self._system.create(request.create)
                watch.came(request.create)
                self._note("create", [query.id for query in request.create], request.at, time.time() - watch.began)
            if request.delete:
                self._system.delete(request.delete)
                watch.went(request.delete)
                self._note("delete", request.delete, request.at, time.time() - watch.began)
        except SystemFailed as error:
            watch.errors.append(str(error))
            return False
        return True

    def _note(self, kind: str, queries: Sequence[str], due: float, acknowledged: float | None) -> None:
        self._watch.deployments += [Deployment(kind, query, due, acknowledged, None) for query in queries]
