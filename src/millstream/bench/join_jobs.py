"""What the join benchmark asks of a process of its own, and what it gets back. All of it pickles."""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.bench.jobs import Digest
from millstream.bench.join_data import Feed
from millstream.bench.join_workload import WORKLOADS, Workload
from millstream.bench.measure import Commit, Throughput

# Answer rows to be read of a cell: all there are.
EVERYTHING = 1 << 62


@dataclass(frozen=True, slots=True)
class JoinCell:
    """A number of queries of a workload over the first ``files`` of each stream of a feed.

    At most ``drain_rows`` rows of answers, or ``seconds`` of plain Spark's time, are spent on it.
    """

    workload: str
    feed: Feed
    files: int
    files_per_batch: int
    queries: int
    seed: int
    drain_rows: int = 0
    seconds: float = 0.0

    @property
    def kind(self) -> Workload:
        return WORKLOADS[self.workload]

    @property
    def rows(self) -> int:
        """Rows of all streams together."""
        return self.feed.rows(self.files, self.kind.ways)

    @property
    def texts(self) -> list[str]:
        return self.kind.queries(self.queries, self.seed)


@dataclass(frozen=True, slots=True)
class JoinJob:
    cells: tuple[JoinCell, ...]
    workspace: str


@dataclass(frozen=True, slots=True)
class PlainJoinJob:
    """``state_store`` is one of ``STATE_STORES``."""

    cells: tuple[JoinCell, ...]
    workspace: str
    state_store: str


@dataclass(frozen=True, slots=True)
class ApartJob:
    """Measured without Spark's workers, in one process: an aggregation over ``keys`` × ``per_key`` rows on both sides
    against the pairs in DuckDB, and the memory of a window of one key with ``hot_rows`` rows on both sides."""

    keys: int
    per_key: int
    hot_rows: int
    workspace: str


@dataclass(frozen=True, slots=True)
class Drained:
    """``rows`` of ``of_rows`` answer rows, read and written to Parquet in ``seconds``."""

    rows: int
    of_rows: int
    seconds: float

    @property
    def complete(self) -> bool:
        return self.rows >= self.of_rows

    @property
    def all_seconds(self) -> float:
        """What all answers would take at the pace of those that were read."""
        return self.seconds * self.of_rows / self.rows if self.rows else 0.0


@dataclass(frozen=True, slots=True)
class JoinResult:
    """``finished`` is False where plain Spark's time was up: its rate is what it reached until then."""

    cell: JoinCell
    throughput: Throughput
    commits: tuple[Commit, ...]
    first_query: Digest | None
    phases: dict[str, float] = field(default_factory=dict)
    answer_rows: int = 0
    fires: int = 0
    drained: Drained | None = None
    finished: bool = True

    @property
    def answered_rate(self) -> float:
        """Input rows a second, of all streams together."""
        return self.throughput.input_rate

    @property
    def drained_rate(self) -> float | None:
        """The same when the time to read and write every answer is added."""
        if self.drained is None:
            return None
        return 1 / (1 / self.answered_rate + self.drained.all_seconds / self.cell.rows)


@dataclass(frozen=True, slots=True)
class CellFailed:
    """A cell without a result; the others of its job go on."""

    cell: JoinCell
    reason: str


@dataclass(frozen=True, slots=True)
class Aggregation:
    """Seconds for the same groups: our fire, our ingest and fire, DuckDB with all pairs built, and DuckDB as it plans
    by itself, which aggregates before it joins where the aggregates allow it."""

    rows: int
    pairs: int
    fire: float
    whole: float
    built: float
    planned: float
    agree: bool


@dataclass(frozen=True, slots=True)
class Memory:
    """Peak memory in bytes of the process that fired a window and read its answer to the end; ``before`` is what it
    had before. ``agree``: the rows that were read are as many as they should be, and have the right sums."""

    answer_rows: int
    read_rows: int
    agree: bool
    before: int
    fired: int
    read: int
    fire_seconds: float
    read_seconds: float


@dataclass(frozen=True, slots=True)
class ApartResult:
    aggregation: Aggregation
    memory: Memory
