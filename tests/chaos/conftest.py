"""The queries compiled once, one fork server, and the undisturbed run of each workload."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.chaos.compiled import compile_queries
from tests.chaos.forks import ForkServer
from tests.chaos.runs import Run, prepare, undisturbed
from tests.support.postgres import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def queries(spark: SparkSession) -> dict[str, str]:
    return compile_queries(spark)


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer() as server:
        yield server


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

    server: ForkServer
    folder: Path
    queries: dict[str, str]
    new_url: Callable[[], str | None] = lambda: None
    deaths: Counter[str] = field(default_factory=Counter)
    _references: dict[int, Reference] = field(default_factory=dict)
    _runs: int = 0

    def reference(self, seed: int) -> Reference:
        if seed not in self._references:
            prepared = prepare(self.folder / f"seed-{seed}", self.queries, seed)
            started = time.monotonic()
            run = self.run(prepared)
            report = undisturbed(run)
            self._references[seed] = Reference(prepared, report, run.passes()[0], time.monotonic() - started)
        return self._references[seed]

    def run(self, prepared: Path) -> Run:
        self._runs += 1
        return Run(self.server, self.folder / f"run-{self._runs}", prepared, self.new_url())

    def count(self, run: Run) -> None:
        self.deaths.update(death.partition(":")[0] for death in run.deaths)


@pytest.fixture(scope="session")
def chaos(fork_server: ForkServer, queries: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Chaos:
    return Chaos(fork_server, tmp_path_factory.mktemp("chaos"), queries)


@pytest.fixture(scope="session")
def chaos_on_postgres(
    fork_server: ForkServer, queries: dict[str, str], tmp_path_factory: pytest.TempPathFactory, postgres: Server
) -> Chaos:
    """With the metastore in PostgreSQL, a database of its own for each run."""
    return Chaos(fork_server, tmp_path_factory.mktemp("chaos-postgres"), queries, postgres.new_database)
