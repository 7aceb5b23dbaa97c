"""Buckets: the partial aggregates of one (group version, slice), by (key, label), as bytes.

A bucket is Arrow record batches, each an IPC stream, behind each other: the keys that occur, and the cells. Labels are
classes, or members where there are fewer queries than classes, so that a bucket never has more cells than the smaller
of both allows. A bucket in which most combinations occur is **full**: it has a cell for each of them, label by label,
and needs no numbers of keys and labels; read back it is a matrix already.

Where nearly every row has a combination of its own, a bucket has a cell for each row, in the order of the rows:
nothing is counted, and a combination may occur several times.

Where rows are kept, a third batch is the **index**: the positions of the cells' rows in the row table of the file. It
comes last, and who only adds up cells never looks at it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.aggregate import Plane, Planes
from millstream.kernels.checksum import Altered, checksum
from millstream.kernels.nulls import blanked

IntArray = npt.NDArray[np.int64]

# Changes with the bytes that the same cells give: who ingests a batch again must not expect those of another format.
FORMAT = 5


@dataclass(frozen=True)
class Cells:
    """``partials[m]`` are the planes of the group's m-th measure; None for a count that equals ``rows``. ``at`` gives
    each cell's key and label; None for full cells, where empty ones have no rows. ``index`` lists the rows of one cell
    after the other, as ascending positions in the row table, which is at ``place`` (offset, length) of the same
    file and has the checksum ``rows_checksum`` (None: not known). ``by_row``: each cell is one row, so that a key and
    label may occur several times."""

    keys: tuple[pa.Array, ...]
    rows: IntArray
    partials: tuple[Planes | None, ...]
    at: tuple[IntArray, IntArray] | None
    index: IntArray | None = None
    place: tuple[int, int] | None = None
    rows_checksum: int | None = None
    by_row: bool = False

    @classmethod
    def of_rows(
        cls,
        keys: tuple[pa.Array, ...],
        key: npt.NDArray[Any],
        label: npt.NDArray[Any],
        index: IntArray | None = None,
    ) -> Cells:
        """A cell for each row; keys and labels in any type of integer."""
        return cls(keys, np.ones(len(key), np.int64), (), (key, label), index, by_row=True)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def key_count(self) -> int:
        return len(self.keys[0]) if self.keys else 1

    @property
    def key(self) -> IntArray:
        return self.at[0] if self.at is not None else np.arange(len(self)) % self.key_count

    @property
    def label(self) -> IntArray:
        return self.at[1] if self.at is not None else np.arange(len(self)) // self.key_count


def _narrow(values: IntArray) -> pa.Array:
    """The smallest integer type that holds the values: most counts and labels need few bytes."""
    largest = int(values.max()) if len(values) else 0
    for dtype in (np.uint8, np.uint16, np.uint32):
        if largest <= np.iinfo(dtype).max:
            return pa.array(values.astype(dtype, copy=False))
    return pa.array(values)


def _stored(plane: Plane) -> pa.Array:
    if isinstance(plane, pa.Array):
        return blanked(plane)
    if plane.dtype == np.int64 and len(plane) and int(plane.min()) >= 0:
        return _narrow(plane.astype(np.int64, copy=False))
    return pa.array(plane)


def encode(cells: Cells) -> pa.Buffer:
    """The bucket's bytes; ``decode`` gives the cells back."""
    return encode_apart(cells)[0]


def encode_apart(cells: Cells) -> tuple[pa.Buffer, int]:
    """The bucket's bytes, and how many of them come before the index. The cells have the checksum of the index, so
    that who reads them alone need not look at it."""
    columns: dict[str, pa.Array] = {} if cells.by_row else {"rows": _narrow(cells.rows)}
    if cells.at is not None:
        columns |= {"key": _narrow(cells.at[0]), "label": _narrow(cells.at[1])}
    for index, planes in enumerate(cells.partials):
        for number, plane in enumerate(planes or ()):
            columns[f"{index}.{number}"] = _stored(plane)
    keys = pa.table({str(i): blanked(column) for i, column in enumerate(cells.keys)})
    table = pa.table(columns)
    if cells.index is None:
        alone = _streams(keys, table)
        return alone, len(alone)
    rows = _streams(_encode_index(cells.index, cells.place, cells.rows_checksum))
    body = _streams(keys, table.replace_schema_metadata({_CHECKSUM: str(checksum(rows))}))
    return pa.py_buffer(b"".join((body, rows))), len(body)


def _streams(*tables: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    for table in tables:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue()


# Names in the metadata of an index.
_FIRST, _COUNT, _OFFSET, _LENGTH, _CHECKSUM = b"first", b"count", b"offset", b"length", b"checksum"


def _encode_index(index: IntArray, place: tuple[int, int] | None, rows_checksum: int | None) -> pa.Table:
    """Positions from the smallest on: the rows of a slice are mostly neighbours, so two bytes are often enough; all of
    them, one after the other, need none."""
    if place is None:
        raise ValueError("an index needs the place of its row table")
    first = int(index.min()) if len(index) else 0
    metadata = {_FIRST: str(first), _OFFSET: str(place[0]), _LENGTH: str(place[1])}
    if rows_checksum is not None:
        metadata[_CHECKSUM] = str(rows_checksum)
    offsets = index - first
    if len(index) and int(index[-1]) - first == len(index) - 1 and (offsets == np.arange(len(index))).all():
        metadata[_COUNT] = str(len(index))
        offsets = offsets[:0]
    return pa.table({"index": _narrow(offsets)}).replace_schema_metadata(metadata)


def _decode_index(source: pa.BufferReader) -> tuple[IntArray | None, tuple[int, int] | None, int | None]:
    if source.tell() == source.size():
        return None, None, None
    table = pa.ipc.open_stream(source).read_all()
    metadata = table.schema.metadata
    count = int(metadata.get(_COUNT, 0))
    index = np.arange(count) if count else _integers(table.column("index"))
    index += int(metadata[_FIRST])
    return index, (int(metadata[_OFFSET]), int(metadata[_LENGTH])), _checksum_in(metadata)


def _checksum_in(metadata: dict[bytes, bytes] | None) -> int | None:
    return int(metadata[_CHECKSUM]) if metadata and _CHECKSUM in metadata else None


def decode(data: pa.Buffer, measures: int, *, index: bool = False) -> Cells:
    """The cells; with their index and the place of its row table only if asked for. Altered if that index is not what
    was written."""
    source = pa.BufferReader(data)
    keys = pa.ipc.open_stream(source).read_all()
    table = pa.ipc.open_stream(source).read_all()
    names = table.column_names
    planes: list[list[Plane]] = [[] for _ in range(measures)]
    for name in names:
        if name[0].isdigit():
            planes[int(name.split(".")[0])].append(_loaded(table.column(name)))
    partials = tuple(tuple(part) if part else None for part in planes)
    at = (_integers(table.column("key")), _integers(table.column("label"))) if "key" in names else None
    expected = _checksum_in(table.schema.metadata) if index else None
    if expected is not None and checksum(data.slice(source.tell())) != expected:
        raise Altered("the index of a bucket is altered")
    positions, place, rows_checksum = _decode_index(source) if index else (None, None, None)
    values = tuple(_whole(column) for column in keys.columns)
    by_row = "rows" not in names
    rows = np.ones(table.num_rows, np.int64) if by_row else _integers(table.column("rows"))
    return Cells(values, rows, partials, at, positions, place, rows_checksum, by_row)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _integers(column: pa.ChunkedArray) -> IntArray:
    return np.asarray(_whole(column)).astype(np.int64)


def _loaded(column: pa.ChunkedArray) -> Plane:
    if pa.types.is_integer(column.type):
        return _integers(column)
    return np.asarray(_whole(column)) if pa.types.is_float64(column.type) else _whole(column)


def pick(planes: Sequence[Plane], where: IntArray | slice) -> Planes:
    """The planes at some places."""
    return tuple(_values_at(p, where) if isinstance(p, pa.Array) else p[where] for p in planes)


def _values_at(plane: pa.Array, where: IntArray | slice) -> pa.Array:
    return plane[where] if isinstance(where, slice) else plane.take(pa.array(where))
