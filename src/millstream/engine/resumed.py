"""What an engine found in its home when it started: how the last one ended, and where everything goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from millstream.catalog.metastore import Metastore, StreamState
from millstream.engine.status import moment


@dataclass(frozen=True, slots=True)
class ResumedStream:
    """``repeats`` is the micro-batch that was begun and not finished; it runs again, as it was planned."""

    name: str
    batches: int
    rows: int
    watermark: datetime | None
    repeats: int | None

    def __str__(self) -> str:
        watermark = "no watermark" if self.watermark is None else f"watermark {self.watermark:%Y-%m-%d %H:%M:%S}"
        repeats = "" if self.repeats is None else f", repeats batch {self.repeats}"
        return f"{self.name}: {self.batches} batches, {self.rows} rows, {watermark}{repeats}"


@dataclass(frozen=True, slots=True)
class Resumed:
    """``stopped_at``: when the engine before was stopped in order; None if it was killed or lost its machine."""

    stopped_at: datetime | None
    streams: tuple[ResumedStream, ...]
    queries: int

    def lines(self) -> Iterator[str]:
        """For people: how it ended, a line for each stream, the queries."""
        if self.stopped_at is None:
            yield "resumed after a crash: the last engine was not stopped in order"
        else:
            yield f"resumed after a clean stop at {self.stopped_at:%Y-%m-%d %H:%M:%S}"
        yield from (f"  {stream}" for stream in self.streams)
        yield f"  {self.queries} queries running"


def find_resumed(metastore: Metastore, queries: int) -> Resumed | None:
    """Asked at the start, before anything runs; None if no engine has used this metastore before."""
    if metastore.incarnation == 1:
        return None
    streams = tuple(_resumed(state) for state in metastore.streams())
    return Resumed(moment(metastore.stopped_at()), streams, queries)


def _resumed(state: StreamState) -> ResumedStream:
    repeats = state.planned if state.planned > state.committed else None
    return ResumedStream(state.stream.name, state.batches, state.rows, moment(state.watermark), repeats)
