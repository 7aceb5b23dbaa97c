"""The rows of a task on their way in: those without a usable event time go to the dead letters, small chunks are put
together."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.errors import SourceError
from millstream.model.stream import Stream
from millstream.sources.chunk import CHUNK_ROWS, REJECTED, Chunk

IntArray = npt.NDArray[np.int64]

# Rows up to which chunks are put together, bytes where rows have a fixed width, and rows where they have not. All of it
# is known from the stream: a batch that is ingested again for some of its groups, and so with fewer columns, must be
# divided alike to give the same bytes.
GATHERED_ROWS = CHUNK_ROWS
GATHERED_BYTES = 128 << 20
GATHERED_TEXTS = 1 << 17

# Rows in Arrow and their event times.
Admitted = tuple[pa.Table, IntArray]


class Admission:
    """Lets the rows of a task in; ``clock`` is the time of its micro-batch. Whether event times are columns of theirs
    is the same for all of them (``keeps_times``), since rows of several chunks are put together."""

    def __init__(self, stream: Stream, clock: int, keeps_times: bool = True) -> None:
        self._stream = stream
        self._clock = clock
        self._keeps_times = keeps_times
        self.rows = 0
        self.bytes = 0
        self.rejected: list[pa.Table] = []

    @property
    def rejected_rows(self) -> int:
        return sum(table.num_rows for table in self.rejected)

    def admitted(self, chunks: Iterable[Chunk | SourceError]) -> Iterator[Admitted]:
        for chunk in chunks:
            if isinstance(chunk, SourceError):
                row = [[chunk.message], [chunk.detail or ""], [""]]
                self.rejected.append(pa.table(row, schema=REJECTED))
            elif chunk.span is not None:
                self._count(chunk)
                yield chunk.table, spread(*chunk.span, chunk.table.num_rows)
            else:
                table, times = self._admit(chunk)
                yield table if self._keeps_times else table.drop_columns(self._stream.time), times

    def _count(self, chunk: Chunk) -> None:
        self.rows += chunk.rows
        self.bytes += chunk.table.nbytes

    def _admit(self, chunk: Chunk) -> Admitted:
        """Count the chunk's rows, and send those without a usable event time to the dead letters."""
        table = chunk.table
        self._count(chunk)
        if chunk.rejected is not None:
            self.rejected.append(chunk.rejected)
        column = table.column(self._stream.time)
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        whole = not column.null_count
        times = np.asarray(column.view(pa.int64()) if whole else column.view(pa.int64()).fill_null(0))
        latest = latest_time(self._stream, self._clock)
        if whole and (latest is None or not len(times) or int(times.max()) <= latest):
            return table, times
        valid = np.asarray(column.is_valid())
        good = valid if latest is None else valid & (times <= latest)
        self._reject(chunk, np.flatnonzero(~good), valid)
        kept = np.flatnonzero(good)
        return table.take(pa.array(kept)), times[kept]

    def _reject(self, chunk: Chunk, places: IntArray, valid: npt.NDArray[np.bool_]) -> None:
        time = self._stream.time
        reasons = [
            f"the event time {time!r} is ahead of the clock" if valid[i] else f"the event time {time!r} is missing"
            for i in places
        ]
        rows = _readable(chunk.table.take(pa.array(places))).to_pylist()
        raw = [json.dumps(row, default=str, ensure_ascii=False) for row in rows]
        origins = [chunk.origin_of(int(i)) for i in places]
        self.rejected.append(pa.table([reasons, origins, raw], schema=REJECTED))


def latest_time(stream: Stream, clock: int) -> int | None:
    """The largest event time that is let in; None for any."""
    return None if stream.max_skew is None else clock + stream.max_skew


def spread(low: int, high: int, rows: int) -> IntArray:
    """Times of rows of which nothing is known but the smallest and the largest time.

    >>> spread(10, 20, 4)
    array([10, 13, 16, 20])
    """
    times = np.arange(rows, dtype=np.int64)
    times *= (high - low) // max(rows - 1, 1)
    times += low
    times[-1:] = high
    return times


def _readable(table: pa.Table) -> pa.Table:
    """Dates and timestamps as text: rows are here because a time is odd, and Python's calendar ends with the year
    9999."""
    columns = [c.cast(pa.string()) if pa.types.is_temporal(c.type) else c for c in table.columns]
    return pa.table(columns, names=table.column_names)


def rows_together(stream: Stream, most: int) -> int:
    """How many rows of a stream are put together, at most."""
    try:
        width = sum(field.type.arrow.bit_width for field in stream.fields) / 8
    except ValueError:
        return min(most, GATHERED_TEXTS)
    return min(most, int(GATHERED_BYTES / width))


def gathered(pieces: Iterable[Admitted], most_rows: int) -> Iterator[list[Admitted]]:
    """Neighbours put together as long as they are small: what a group does for each of its cells is done once for all
    rows, and many streams come in small files."""
    held: list[Admitted] = []
    rows = 0
    for piece in pieces:
        count = len(piece[1])
        if held and rows + count > most_rows:
            yield held
            held, rows = [], 0
        if count:
            held.append(piece)
            rows += count
        if held and rows >= most_rows:
            yield held
            held, rows = [], 0
        # Not kept while the next is read.
        del piece
    if held:
        yield held


def divided(pieces: Sequence[Admitted]) -> list[Admitted]:
    """Each in parts of rows that would be put together whatever they are."""
    return [
        (table.slice(first, GATHERED_TEXTS), times[first : first + GATHERED_TEXTS])
        for table, times in pieces
        for first in range(0, len(times), GATHERED_TEXTS)
    ]


def together(pieces: Sequence[Admitted]) -> Admitted:
    if len(pieces) == 1:
        return pieces[0]
    return pa.concat_tables([table for table, _ in pieces]), np.concatenate([times for _, times in pieces])
