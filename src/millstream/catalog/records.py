"""What goes into the metastore and what comes out of it. All times are microseconds since 1970."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from millstream.model.join import JoinQuery
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

# Between the names of joined streams. No stream's own name has it: they are identifiers.
_AND = "&"


def joined_stream(streams: Iterable[str]) -> str:
    """The name under which joins of these streams publish. That of a stream joined with itself alone ends in ``&``, so
    that it is never a stream's own.

    >>> joined_stream(["purchases", "ads"]), joined_stream(["ads", "ads"])
    ('ads&purchases', 'ads&')
    """
    names = sorted(set(streams))
    return names[0] + _AND if len(names) == 1 else _AND.join(names)


def streams_of(name: str) -> tuple[str, ...]:
    """The streams behind a joined name, or a stream's own name alone.

    >>> streams_of("ads&purchases"), streams_of("ads&"), streams_of("ads")
    (('ads', 'purchases'), ('ads',), ('ads',))
    """
    return tuple(part for part in name.split(_AND) if part)


def is_joined(name: str) -> bool:
    return _AND in name


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
class LegPlace:
    """Where a source of a join is evaluated."""

    leg: int
    stream: str
    group: str
    slot: int


@dataclass(frozen=True, slots=True)
class NewQuery:
    """A create. A second create with the same owner and client key is the same query. A join has a place for each of
    its legs and none of its own: its group is empty."""

    id: str
    owner: str
    client_key: str | None
    query: LogicalQuery | JoinQuery
    group: str
    slot: int
    legs: tuple[LegPlace, ...] = ()

    def __post_init__(self) -> None:
        wanted = [(n, leg.stream) for n, leg in enumerate(self.query.legs)] if isinstance(self.query, JoinQuery) else []
        if [(place.leg, place.stream) for place in self.legs] != wanted:
            raise ValueError(f"the query {self.id!r} needs places for the legs {wanted}, not {self.legs}")

    @property
    def stream(self) -> str:
        """The name under which the query publishes."""
        return joined_stream(self.query.streams) if isinstance(self.query, JoinQuery) else self.query.stream


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
class VersionPlace:
    """Which group version a file is: sealed with ``epoch``, at the time ``sealed_at``; None where the epoch has been
    forgotten."""

    group: str
    version: int
    stream: str
    epoch: int
    sealed_at: int | None


@dataclass(frozen=True, slots=True)
class Trial:
    """An attempt at a batch that has failed before, without some queries. ``passed`` is None for one that was cut
    short, which says nothing of any query."""

    number: int
    left_out: tuple[str, ...]
    passed: bool | None
    error: str | None


@dataclass(frozen=True, slots=True)
class FireTrial:
    """A fire of some queries of a stream, or of joined streams, that was written down before it ran. ``alone``: while
    nothing else ran; ``died``: the engine did not survive it."""

    number: int
    name: str
    queries: tuple[str, ...]
    alone: bool
    died: bool


@dataclass(frozen=True, slots=True)
class Placement:
    """A running query, or a leg of a running join by its member's name, that the change moves to another group or
    slot."""

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
class LegRecord:
    """A source of a join and its own cut. ``fired_to``, ``partial_until`` and ``closes_at`` are what this stream alone
    would give; the join goes by the lowest, the highest and the lowest of its legs."""

    leg: int
    stream: str
    group: str
    slot: int
    first_batch: int
    last_batch: int | None
    fired_to: int | None
    partial_until: int | None
    closes_at: int | None


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """A query's life so far.

    ``fired_to`` is its frontier and ``partial_until`` the largest event time before its cut; both are None until all
    batches before the cut are committed. ``closes_at`` is the watermark brought by the last batch that a deleted query
    sees: once fired to there, it is gone. The ``stream`` of a join is the joined name of its streams, and its batches
    are those of its first leg; ``legs`` has them all. Its ``closes_at`` is the lowest of the legs that know theirs.
    """

    id: str
    owner: str
    client_key: str | None
    query: LogicalQuery | JoinQuery
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
    legs: tuple[LegRecord, ...] = ()

    @property
    def sql(self) -> str:
        return self.query.sql


@dataclass(frozen=True, slots=True)
class Frontier:
    """How far a live windowed query has fired; what the decision to fire needs of its record. For a leg of a join
    ``query`` is its member's name, the group is the leg's, and the times are the join's."""

    query: str
    group: str
    fired_to: int | None
    partial_until: int | None
    closes_at: int | None
    leg: int | None = None


@dataclass(frozen=True, slots=True)
class Fire:
    """The windows of some queries of one stream, or joined name, from each query's frontier up to a closed event time.

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
