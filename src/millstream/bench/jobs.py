"""What a benchmark asks of a process of its own, and what it gets back. All of it pickles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from millstream.bench.dataset import Dataset
from millstream.bench.journal import Fired
from millstream.bench.measure import Commit, Summary, Throughput

# How plain Spark can keep its state: maps in the driver's heap with snapshots, or RocksDB with a changelog.
STATE_STORES = ("memory", "rocksdb")

# Called with the share of the work that is done, and a few words.
Tell = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class Cell:
    """A number of queries over the first ``files`` files of a dataset, ``files_per_batch`` at a time, ``repeats``times.

    ``checked_files``: how many of the files the first query's digest is about, where another system has fewer.
    """

    dataset: Dataset
    files: int
    files_per_batch: int
    queries: int
    seed: int
    repeats: int
    checked_files: int | None = None

    @property
    def rows(self) -> int:
        return self.files * self.dataset.file_rows

    @property
    def checked_rows(self) -> int:
        files = self.files if self.checked_files is None else min(self.files, self.checked_files)
        return files * self.dataset.file_rows


@dataclass(frozen=True, slots=True)
class MillstreamJob:
    cells: tuple[Cell, ...]
    workspace: str


@dataclass(frozen=True, slots=True)
class PlainJob:
    """``state_store`` is one of ``STATE_STORES``."""

    cells: tuple[Cell, ...]
    workspace: str
    state_store: str


@dataclass(frozen=True, slots=True)
class DeployJob:
    """Creates while a generator brings ``rate`` rows a second: ``samples`` of them at each level of running queries,
    then a storm of ``storm_rate`` creates a second for ``storm_seconds`` at the last level."""

    levels: tuple[int, ...]
    rate: int
    samples: int
    storm_rate: int
    storm_seconds: float
    seed: int
    workspace: str


@dataclass(frozen=True, slots=True)
class Digest:
    """What one query answered, in short: equal digests of the two systems mean that they did the same work."""

    rows: int
    total: int


@dataclass(frozen=True, slots=True)
class StateSize:
    """Buckets of closed slices against what the two obvious layouts would hold; ``open_cells`` still grow."""

    cells: int
    bytes: int
    open_cells: int
    slices: int
    keys: int
    by_classes: int
    by_queries: int

    @property
    def least(self) -> int:
        """Cells of the smaller of both layouts."""
        return min(self.by_classes, self.by_queries)


@dataclass(frozen=True, slots=True)
class Run:
    """One measurement of a cell; the best of several is its result."""

    throughput: Throughput
    commits: tuple[Commit, ...]
    end: float
    first_query: Digest
    phases: dict[str, float] = field(default_factory=dict)
    fires: tuple[Fired, ...] = ()
    answer_rows: int = 0
    groups: int = 0
    classes: int = 0
    state: StateSize | None = None


@dataclass(frozen=True, slots=True)
class CellResult:
    cell: Cell
    runs: tuple[Run, ...]

    @property
    def best(self) -> Run:
        return max(self.runs, key=lambda run: run.throughput.input_rate)


@dataclass(frozen=True, slots=True)
class Level:
    """Deployment latency beside ``running`` queries; ``lag``: seconds the stream was behind its rate at the end."""

    running: int
    sealed: Summary
    planned: Summary
    lag: float


@dataclass(frozen=True, slots=True)
class Storm:
    """Creates that came at a fixed rate, whatever became of those before."""

    running: int
    asked_rate: float
    achieved_rate: float
    sealed: Summary
    refused: int
    lag: float


@dataclass(frozen=True, slots=True)
class DeployResult:
    rate: int
    levels: tuple[Level, ...]
    storm: Storm | None
