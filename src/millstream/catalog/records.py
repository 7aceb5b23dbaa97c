"""What goes into the metastore and what comes out of it. All times are microseconds since 1970."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.model.plan import AnswerFile, FireResult
from millstream.model.query import LogicalQuery
from millstream.model.stream import Stream

# The watermark of a stream that has ended. Half of the 64-bit range, so that adding a window's size cannot overflow.
END_OF_TIME = (2**63 - 1) // 2
# The frontier of a query whose cut lies before the first row of its stream: every window is still to come.
START_OF_TIME = -END_OF_TIME

RUNNING = "running"
DELETING = "deleting"
DELETED = "deleted"
FAILED = "failed"
# The states in which a query can still fire windows.
LIVE = (RUNNING, DELETING)


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream and how far it has come. ``planned`` and ``committed`` are batch ids, -1 before the first."""

    stream: Stream
    watermark: int | None
    max_time: int | None
    planned: int
    committed: int
    rows: int
    late_rows: int
    rejected_rows: int
    batches: int
    bytes: int
    closed_all: bool


@dataclass(frozen=True, slots=True)
class NewQuery:
    """A create. A second create with the same owner and client key is the same query."""

    id: str
    owner: str
    client_key: str | None
    query: LogicalQuery
    group: str
    slot: int


@dataclass(frozen=True, slots=True)
class GroupVersionRef:
    """Where a group version is kept. A retired version says that the group has no query left."""

    group: str
    stream: str
    version: int
    path: str
    queries: int
    classes: int
    retired: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """A running query that the change moves to another group or slot."""

    query: str
    group: str
    slot: int


@dataclass(frozen=True, slots=True)
class Change:
    """One sealed step of the changelog: all of it or nothing."""

    creates: tuple[NewQuery, ...] = ()
    deletes: tuple[str, ...] = ()
    versions: tuple[GroupVersionRef, ...] = ()
    placements: tuple[Placement, ...] = ()


@dataclass(frozen=True, slots=True)
class Cut:
    """The first batch of a stream that an epoch sees, with watermark and largest event time committed so far."""

    first_batch: int
    watermark: int | None
    max_time: int | None


@dataclass(frozen=True, slots=True)
class Epoch:
    """A sealed change. Creates whose client key was known made no query: ``existing`` gives the query by client key,
    ``same_as`` the query by the id that the create asked for."""

    number: int
    sealed_at: int
    cuts: Mapping[str, Cut]
    existing: Mapping[str, str] = field(default_factory=dict)
    same_as: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """A query's life so far.

    ``fired_to`` is its frontier and ``partial_until`` the largest event time before its cut; both are None until all
    batches before the cut are committed. ``closes_at`` is the watermark brought by the last batch that a deleted query
    sees: once fired to there, it is gone.
    """

    id: str
    owner: str
    client_key: str | None
    query: LogicalQuery
    stream: str
    group: str
    slot: int
    epoch: int
    created_at: int
    first_batch: int
    last_batch: int | None
    fired_to: int | None
    partial_until: int | None
    closes_at: int | None
    state: str
    deleted_epoch: int | None
    ended_at: int | None
    reason: str | None
    windows: int
    answer_rows: int
    late_rows: int
    failures: int

    @property
    def sql(self) -> str:
        return self.query.sql


@dataclass(frozen=True, slots=True)
class Frontier:
    """How far a live windowed query has fired; what the decision to fire needs of its record."""

    query: str
    group: str
    fired_to: int | None
    partial_until: int | None
    closes_at: int | None


@dataclass(frozen=True, slots=True)
class Fire:
    """The windows of some queries of one stream, from each query's frontier up to a closed event time.

    ``moves`` gives (from, to) by query. ``to`` is best the watermark itself, not the last window's end: a deleted query
    is gone only when its frontier has reached ``closes_at``.
    """

    stream: str
    moves: Mapping[str, tuple[int, int]]
    result: FireResult


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """An answer file in the order of its publication; ``batch`` is None for a fire."""

    seq: int
    stream: str
    committed_at: int
    batch: int | None
    file: AnswerFile
