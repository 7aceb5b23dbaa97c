"""Rows kept for answers that consist of rows: each once, with an index for each group that may ask for it.

    chunk ──► row table   price  user_id  …        one for each file of buckets, whatever number of groups
                  0         7      12
                  1         9      40
    bucket ──► index      | 0 4 9 | 1 | 2 3 |      positions in the row table, one run for each cell

A second join attribute is another group with another index; the rows stay where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.batch import Codes
from millstream.kernels.bucket import Cells
from millstream.kernels.group import Group
from millstream.kernels.nulls import blanked

IntArray = npt.NDArray[np.int64]

# Where fewer rows than this share are wanted, leaving out the others first costs less than sorting them along.
_MOSTLY = 0.75


def order_by_cell(cells: Codes, count: int) -> IntArray:
    """The numbers of the rows ordered by their cell, below ``count``; inside a cell in their own order.

    Cell and row number are packed into one integer and sorted, since NumPy sorts integers with vector instructions: of
    a million rows each takes 5 ns where 32 bits are enough, else 11 (8 and 19 with AVX2 alone). Radix sort in passes of
    16 bits takes 12 ns, or 20 to 31 for two of them; a stable argsort 60 to 120.

    >>> order_by_cell(np.array([2, 0, 2, 1]), 3)
    array([1, 3, 0, 2])
    """
    bits, packed = _sorted_with_rows(cells, count)
    if packed is None:
        return np.argsort(cells, kind="stable")
    packed &= (1 << bits) - 1
    return packed.astype(np.int64, copy=False)


def number_cells(codes: IntArray, span: int) -> tuple[IntArray, IntArray, IntArray]:
    """The distinct codes, ascending, all below ``span``; for each row the place of its code among them; and the rows
    ordered by it. Half the time of ``np.unique``, which knows no order.

    >>> [list(map(int, part)) for part in number_cells(np.array([70, 5, 70]), 100)]
    [[5, 70], [1, 0, 1], [1, 0, 2]]
    """
    bits, packed = _sorted_with_rows(codes, span)
    if packed is None:
        order = np.argsort(codes, kind="stable")
        ordered = codes[order]
    else:
        ordered = (packed >> bits).astype(np.int64, copy=False)
        packed &= (1 << bits) - 1
        order = packed.astype(np.int64, copy=False)
    new = np.ones(len(codes), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    number = np.empty(len(codes), np.int64)
    number[order] = np.cumsum(new) - 1
    return ordered[new], number, order


def _sorted_with_rows(codes: Codes, span: int) -> tuple[int, npt.NDArray[Any] | None]:
    """The bits that a row number takes, and ``code · 2^bits + row`` in ascending order; None where 63 bits do not hold
    it."""
    bits = max(len(codes) - 1, 0).bit_length()
    width = bits + max(span - 1, 0).bit_length()
    if width > 63:
        return bits, None
    packed: npt.NDArray[Any] = codes.astype(np.uint32 if width <= 32 else np.int64)
    packed <<= bits
    packed |= np.arange(len(codes), dtype=packed.dtype)
    packed.sort()
    return bits, packed


def rows_of_spans(cells: Codes, rows: IntArray, spans: Sequence[tuple[int, int]]) -> list[IntArray]:
    """For each range of cells, ascending, the numbers of its rows, ordered by cell; ``rows`` counts the rows of each
    cell."""
    sizes = [int(rows[first:last].sum()) for first, last in spans]
    if sum(sizes) < _MOSTLY * len(cells):
        mine = np.zeros(len(rows), np.bool_)
        for first, last in spans:
            mine[first:last] = True
        wanted = np.flatnonzero(mine[cells])
        order = wanted[order_by_cell(cells[wanted], len(rows))]
        gaps = [0] * len(spans)
    else:
        order = order_by_cell(cells, len(rows))
        before = [0, *(last for _, last in spans)]
        gaps = [int(rows[last:first].sum()) for last, (first, _) in zip(before, spans, strict=False)]
    ends = np.cumsum([gap + size for gap, size in zip(gaps, sizes, strict=True)])
    return [order[end - size : end] for end, size in zip(ends, sizes, strict=True)]


class RowTable:
    """The row table of one file, filled chunk by chunk. It is an Arrow stream with a batch for each chunk.

    It is not compressed: encoding and writing 40 MB of a million rows to disk takes 47 ms, with LZ4 73 ms for half the
    size; and plain bytes are read in place, so that a page of an answer costs the rows it shows.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self.rows = 0
        self._sink = pa.BufferOutputStream()
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None

    def add(self, chunk: pa.Table, wanted: Sequence[IntArray]) -> list[IntArray]:
        """Keep the chunk's rows that occur anywhere in ``wanted``; gives the same lists as positions in the table."""
        if not wanted:
            return []
        keep = np.zeros(chunk.num_rows, np.bool_)
        for numbers in wanted:
            keep[numbers] = True
        first, kept = self.rows, int(keep.sum())
        self.rows += kept
        if kept == len(keep):
            self._write(chunk)
            return [numbers + first for numbers in wanted]
        self._write(chunk.select(self.columns).filter(pa.array(keep)))
        position = np.cumsum(keep)
        position += first - 1
        return [position[numbers] for numbers in wanted]

    def _write(self, rows: pa.Table) -> None:
        # Named anew, because what else a schema says may differ between the files of a stream.
        table = pa.table([rows.column(name) for name in self.columns], names=list(self.columns)).combine_chunks()
        clean = [pa.chunked_array([blanked(chunk) for chunk in c.chunks], c.type) for c in table.columns]
        table = pa.table(clean, names=list(self.columns))
        if self._writer is None:
            self._writer = pa.ipc.new_stream(self._sink, table.schema)
        self._writer.write_table(table)

    def encode(self) -> pa.Buffer | None:
        """The table's bytes once all chunks are in; None without rows."""
        if self._writer is None:
            return None
        self._writer.close()
        return self._sink.getvalue()


def read_rows(file: pa.Buffer, place: tuple[int, int]) -> pa.Table:
    """The row table at (offset, length) of a file of buckets; it shares the file's memory."""
    return pa.ipc.open_stream(file.slice(*place)).read_all()


def selected_positions(group: Group, query: str, cells: Cells) -> IntArray:
    """The positions in the row table, ascending, of the rows of a bucket that a member selects; none where the version
    lacks the query."""
    if cells.index is None:
        raise ValueError("this bucket was read without its index, or keeps no rows")
    member = group.position.get(query)
    if member is None:
        return np.empty(0, np.int64)
    mine = group.labels[member][cells.label]
    found: IntArray = cells.index[np.repeat(mine, cells.rows)]
    found.sort()
    return found


def selected_rows(group: Group, query: str, cells: Cells, table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The rows of a bucket that a member selects, in the order of the row table."""
    return rows_at(table, selected_positions(group, query, cells), columns)


def rows_at(table: pa.Table, positions: IntArray, columns: Sequence[str]) -> pa.Table:
    """Rows of a row table at ascending positions. Each batch is asked for its own, so that nothing else is copied."""
    chosen = table.select(list(columns))
    if not columns:
        return chosen.slice(0, len(positions))
    found: list[pa.RecordBatch] = []
    first = 0
    for batch in chosen.to_batches():
        low, high = np.searchsorted(positions, (first, first + batch.num_rows))
        if high - low == batch.num_rows:
            found.append(batch)
        elif low < high:
            found.append(batch.take(pa.array(positions[low:high] - first)))
        first += batch.num_rows
    return pa.Table.from_batches(found, chosen.schema)
