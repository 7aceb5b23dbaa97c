"""What the engine tells about itself: frozen snapshots, the same in Python, over HTTP and on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """A create: ``key`` is the client's own, so that a retried request does not create twice."""

    sql: str
    owner: str = ""
    id: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class StreamStatus:
    name: str
    fields: tuple[tuple[str, str], ...]
    time: str
    lateness_seconds: float
    source: dict[str, str]
    state: str
    watermark: datetime | None
    rows: int
    late_rows: int
    rejected_rows: int
    batches: int
    rows_per_second: float
    last_batch_seconds: float
    error: str | None = None
    # After so long without rows its watermark follows the other streams'; None: never.
    idle_timeout_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """``cut`` is the first micro-batch the query sees, by stream; ``failures`` counts operators that gave NULL
    where plain Spark would have stopped."""

    id: str
    owner: str
    sql: str
    state: str
    epoch: int
    created_at: datetime
    cut: dict[str, int]
    schema: tuple[tuple[str, str], ...]
    windows: int
    answer_rows: int
    late_rows: int
    failures: int
    fired_to: datetime | None
    group: str
    reason: str | None = None
    # Windows that were answered without data that are lost.
    incomplete: int = 0


@dataclass(frozen=True, slots=True)
class EngineStatus:
    home: str
    version: str
    started_at: datetime
    epoch: int
    queries: int
    groups: int
    classes: int
    streams: tuple[StreamStatus, ...]
    rows_per_second: float
    fire_seconds: float
    fires: int
    answer_rows: int
    state_bytes: int
    phases: dict[str, float] = field(default_factory=dict)
    # Why the last fire failed, None when it did not; it is tried again.
    error: str | None = None
    # Damaged bucket files that were made again since the start, and buckets that could not be.
    rebuilt_files: int = 0
    lost_buckets: int = 0
    # Why the metastore does not answer, None while it does; epoch and streams are then as they were last known.
    metastore_away: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of one (query, window), or of one (query, micro-batch) for a query without a window. A large answer of a
    join comes in pieces: ``table`` are the rows from ``offset`` on, of ``total_rows`` in all. ``incomplete`` says which
    data it lacks because files were damaged, None where it has all."""

    query: str
    window_start: datetime | None
    window_end: datetime | None
    partial: bool
    batch: int | None
    table: pa.Table
    cursor: str
    total_rows: int
    offset: int = 0
    incomplete: str | None = None


@dataclass(frozen=True, slots=True)
class AnswerPage:
    answers: Sequence[Answer]
    cursor: str
    # No further answer will ever come: the query is deleted and has been read to its end.
    finished: bool = False


def moment(micros: int | None) -> datetime | None:
    """A time of the engine for people; None for none, or for times beyond the calendar (the flush of finite input)."""
    if micros is None or not -62_135_596_800_000_000 <= micros < 253_402_300_800_000_000:
        return None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
