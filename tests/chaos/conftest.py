"""The queries compiled once, fork servers, and the undisturbed run of each workload."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.chaos.compiled import compile_queries
from tests.chaos.forks import ForkServers
from tests.chaos.runs import AT_ONCE, Kill, Run, check, prepare, together, undisturbed
from tests.support.postgres import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def queries(spark: SparkSession) -> dict[str, str]:
    return compile_queries(spark)


@pytest.fixture(scope="session")
def fork_servers() -> Iterator[ForkServers]:
    with ForkServers(AT_ONCE) as servers:
        yield servers


@dataclass(frozen=True)
class Reference:
    """The undisturbed run of a workload."""

    prepared: Path
    report: dict[str, Any]
    passes: list[tuple[str, str]]
    seconds: float

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.passes]


@dataclass
class Chaos:
    """Makes runs, and counts the deaths of all of them by crash point. ``new_url`` gives the URL of an empty metastore
    for each run, or None for one inside the home."""

    servers: ForkServers
    folder: Path
    queries: dict[str, str]
    new_url: Callable[[], str | None] = lambda: None
    deaths: Counter[str] = field(default_factory=Counter)
    _references: dict[int, Reference] = field(default_factory=dict)
    _runs: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def reference(self, seed: int) -> Reference:
        if seed not in self._references:
            prepared = prepare(self.folder / f"seed-{seed}", self.queries, seed)
            started = time.monotonic()
            run = self.run(prepared)
            report = undisturbed(run)
            self._references[seed] = Reference(prepared, report, run.passes()[0], time.monotonic() - started)
        return self._references[seed]

    def run(self, prepared: Path) -> Run:
        with self._lock:
            self._runs += 1
            return Run(self.servers, self.folder / f"run-{self._runs}", prepared, self.new_url())

    def kill(self, seed: int, plans: Iterable[Sequence[Kill]]) -> list[Kill]:
        """A run of a workload for each plan, which dies as the plan says; all must give the answers of the undisturbed
        one. Gives the kills that came too late."""
        reference = self.reference(seed)
        late: list[Kill] = []

        def killed(plan: Sequence[Kill]) -> Run:
            run = self.run(reference.prepared)
            late.extend(run.finish(plan))
            check(run.report(), reference.report)
            return run

        self.count(together(partial(killed, plan) for plan in plans))
        return late

    def count(self, runs: Iterable[Run]) -> None:
        for run in runs:
            self.deaths.update(death.partition(":")[0] for death in run.deaths)


@pytest.fixture(scope="session")
def chaos(fork_servers: ForkServers, queries: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Chaos:
    return Chaos(fork_servers, tmp_path_factory.mktemp("chaos"), queries)


@pytest.fixture(scope="session")
def chaos_on_postgres(
    fork_servers: ForkServers, queries: dict[str, str], tmp_path_factory: pytest.TempPathFactory, postgres: Server
) -> Chaos:
    """With the metastore in PostgreSQL, a database of its own for each run."""
    return Chaos(fork_servers, tmp_path_factory.mktemp("chaos-postgres"), queries, postgres.new_database)
