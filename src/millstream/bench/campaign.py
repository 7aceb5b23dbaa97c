"""Runs of the driver for a report: systems started when they are needed, files shared, results gathered."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from millstream.bench.driving.feeding import MOST_KEPT, Store
from millstream.bench.driving.model import RunResult, RunSpec, Search
from millstream.bench.driving.profiling import find_profiler
from millstream.bench.driving.run import run
from millstream.bench.driving.search import MOST_RUNS, search
from millstream.bench.progress import Progress, Step
from millstream.bench.systems.kinds import system_kind
from millstream.bench.systems.remote import RemoteSystem
from millstream.bench.workloads.catalogue import find
from millstream.bench.workloads.load import STEADY
from millstream.cli.output import count
from millstream.config import available_cores

DEFAULT_SECONDS = 20.0
# Java compiles Spark's code for minutes, with a whole core at first: by then it takes a fifth of one.
WARM_UP_SECONDS = 20.0
WARM_UP_RATE = 1e6
# Bytes of rows that one run at the highest rates adds to those that are kept.
MOST_MADE = 16 * 10**9


@dataclass(frozen=True, slots=True)
class Asked:
    """A cell: a workload on a system. ``queries`` and ``seed`` None take the workload's own; ``density`` 0 is live."""

    workload: str
    system: str
    seconds: float = DEFAULT_SECONDS
    queries: int | None = None
    density: int = 1_000_000
    seed: int | None = None
    cores: int = 0
    warm_up: float = WARM_UP_SECONDS

    @property
    def title(self) -> str:
        number = "" if self.queries is None else f", {self.queries} {'query' if self.queries == 1 else 'queries'}"
        return f"{system_kind(self.system).title}: {self.workload}{number}"

    def spec(self, rate: float) -> RunSpec:
        """The run at a rate."""
        workload = find(self.workload)
        seed = workload.seed if self.seed is None else self.seed
        load = workload.make(seed, self.seconds, self.queries)
        return RunSpec(
            workload=self.workload,
            system=self.system,
            streams=workload.streams,
            initial=load.initial,
            requests=load.requests,
            rate=rate,
            seconds=self.seconds,
            rates=load.rates,
            density=self.density,
            seed=seed,
            cores=self.cores or available_cores(),
        )


@dataclass
class Campaign:
    """All runs of one report, one after the other. Each search and each single run has a fresh process. ``failures``:
    systems that could not begin."""

    out: Path
    screen: Console
    steps: int
    profile: bool = False
    runs: list[RunResult] = field(default_factory=list)
    searches: list[Search] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._progress = Progress(self.screen, self.steps)
        self._workspace: Path | None = None
        self._number = 0
        if self.profile:
            # Told now, not after the first run.
            find_profiler()

    @contextmanager
    def opened(self) -> Iterator[Campaign]:
        """Beside the results, not in a directory that may be memory: durability is part of what is measured."""
        self.out.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self.out).free
        if free < MOST_KEPT + MOST_MADE:
            needed = (MOST_KEPT + MOST_MADE) / 1e9
            self.screen.print(f"{free / 1e9:.0f} GB are free in {self.out}: rows of high rates take up to {needed:.0f}")
        self._workspace = Path(tempfile.mkdtemp(prefix="work-", dir=self.out)).absolute()
        self._store = Store(self._workspace / "rows")
        try:
            yield self
        finally:
            shutil.rmtree(self._workspace, ignore_errors=True)

    def search(self, asked: Asked, start: float, most_runs: int = MOST_RUNS) -> Search:
        """Find the rate that a system sustains."""
        with (
            self._progress.step(f"{asked.title}, sustainable rate") as step,
            closing(_Lease(self, profiled=False)) as lease,
        ):
            found = search(asked.title, start, lambda rate: lease.run(asked, rate, step), most_runs)
            best = found.best
            step.result = f"{count(best.spec.rate)} rows/s" if best else f"none; {found.runs[-1].verdict.reason}"
        self.searches.append(found)
        return found

    def run(self, asked: Asked, rate: float) -> RunResult:
        """One run at a rate."""
        (result,) = self.run_together([(asked, rate)])
        return result

    def run_together(self, cells: Iterable[tuple[Asked, float]]) -> list[RunResult]:
        """Runs of one system in one process, which is warmed up once."""
        done = []
        with closing(_Lease(self)) as lease:
            for asked, rate in cells:
                with self._progress.step(f"{asked.title}, {count(rate)} rows/s") as step:
                    done.append(lease.run(asked, rate, step))
                    self.runs.append(done[-1])
                    step.result = done[-1].verdict.reason
        return done

    @contextmanager
    def _system(self, asked: Asked) -> Iterator[RemoteSystem]:
        assert self._workspace is not None
        cores = asked.cores or available_cores()
        system = RemoteSystem(system_kind(asked.system), self._workspace, cores)
        try:
            yield system
        finally:
            system.close()

    def _run(self, spec: RunSpec, system: RemoteSystem, step: Step, profiled: bool = True) -> RunResult:
        assert self._workspace is not None
        folder = Path(tempfile.mkdtemp(prefix=f"{spec.system}-", dir=self._workspace))
        self._number += 1
        wanted = self.profile and profiled
        profile = self.out / f"profile-{self._number}-{spec.system}.svg" if wanted else None
        try:
            return run(spec, system, self._store, folder, step.tell, profile)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _warm_up(self, asked: Asked, rate: float, system: RemoteSystem, step: Step) -> RunResult:
        """A short run that nobody sees: it starts workers, and lets Java compile what rows and requests take."""
        spec = replace(asked, seconds=asked.warm_up).spec(min(rate, WARM_UP_RATE))
        # Who disturbs the others comes unforeseen.
        requests = tuple(one for one in spec.requests if all(query.watched for query in one.create))
        return self._run(replace(spec, requests=requests, rates=STEADY), system, step, profiled=False)


class _Lease:
    """The process of a system, warmed up by its first run; after one that failed, the next has a fresh process."""

    def __init__(self, campaign: Campaign, profiled: bool = True) -> None:
        self._campaign = campaign
        # Not those of a search: a profiler takes time, and the rate that is found would be that of a profiled system.
        self._profiled = profiled
        self._open = ExitStack()
        self._system: RemoteSystem | None = None

    def run(self, asked: Asked, rate: float, step: Step) -> RunResult:
        """If already the warm-up fails, its evidence is that of the run."""
        campaign, result = self._campaign, None
        if self._system is None:
            self._system = self._open.enter_context(campaign._system(asked))
            result = campaign._warm_up(asked, rate, self._system, step)
        if result is None or not result.errors:
            result = campaign._run(asked.spec(rate), self._system, step, self._profiled)
        if result.errors:
            self.close()
            if not result.queue:
                campaign.failures.append(f"{asked.title}: {result.errors[0]}")
        return replace(result, spec=asked.spec(rate))

    def close(self) -> None:
        self._system = None
        self._open.close()
