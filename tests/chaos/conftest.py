"""The queries compiled once, one fork server, and the undisturbed run of each workload.

``MILLSTREAM_CHAOS_METASTORE`` names a PostgreSQL database for all of it; it is emptied for each run.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine

from millstream.catalog import tables
from tests.chaos.compiled import compile_queries
from tests.chaos.forks import ForkServer
from tests.chaos.runs import Run, prepare, undisturbed

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
    """Makes runs, and counts the deaths of all of them by crash point."""

    server: ForkServer
    folder: Path
    queries: dict[str, str]
    url: str | None
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
        if self.url is not None:
            empty(self.url)
        return Run(self.server, self.folder / f"run-{self._runs}", prepared, self.url)

    def count(self, run: Run) -> None:
        self.deaths.update(death.partition(":")[0] for death in run.deaths)


def empty(url: str) -> None:
    """Drop the tables of a database."""
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    tables.metadata.drop_all(engine)
    engine.dispose()


@pytest.fixture(scope="session")
def chaos(fork_server: ForkServer, queries: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Chaos:
    url = os.environ.get("MILLSTREAM_CHAOS_METASTORE")
    return Chaos(fork_server, tmp_path_factory.mktemp("chaos"), queries, url)
