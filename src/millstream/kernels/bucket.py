"""Buckets: the partial aggregates of one (group version, slice), by (key, label), as bytes.

A bucket is two Arrow record batches behind each other in one IPC stream: the keys that occur, and the cells. A cell has the
number of its key, its **label**, the number of rows and the measures' planes. Labels are classes, or slots of
queries where there are fewer queries than classes, so that a bucket never has more cells than the smaller of both allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.aggregate import Plane, Planes

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Cells:
    """``partials[m]`` are the planes of the group's m-th measure; None for a count that equals ``rows``."""

    keys: tuple[pa.Array, ...]
    key: IntArray
    label: IntArray
    rows: IntArray
    partials: tuple[Planes | None, ...]

    def __len__(self) -> int:
        return len(self.rows)


def _narrow(values: IntArray) -> pa.Array:
    """The smallest integer type that holds the values: most counts and labels need few bytes."""
    largest = int(values.max()) if len(values) else 0
    for dtype in (np.uint8, np.uint16, np.uint32):
        if largest <= np.iinfo(dtype).max:
            return pa.array(values.astype(dtype))
    return pa.array(values)


def _stored(plane: Plane) -> pa.Array:
    if isinstance(plane, pa.Array):
        return plane
    if plane.dtype == np.int64 and len(plane) and int(plane.min()) >= 0:
        return _narrow(plane.astype(np.int64, copy=False))
    return pa.array(plane)


def encode(cells: Cells) -> pa.Buffer:
    """The bucket's bytes; ``decode`` gives the cells back."""
    columns: dict[str, pa.Array] = {
        "key": _narrow(cells.key),
        "label": _narrow(cells.label),
        "rows": _narrow(cells.rows),
    }
    for index, planes in enumerate(cells.partials):
        for number, plane in enumerate(planes or ()):
            columns[f"{index}.{number}"] = _stored(plane)
    keys = pa.table({str(i): column for i, column in enumerate(cells.keys)})
    sink = pa.BufferOutputStream()
    for table in (keys, pa.table(columns)):
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue()


def decode(data: pa.Buffer, measures: int) -> Cells:
    source = pa.BufferReader(data)
    keys = pa.ipc.open_stream(source).read_all()
    table = pa.ipc.open_stream(source).read_all()
    planes: list[list[Plane]] = [[] for _ in range(measures)]
    for name in table.column_names[3:]:
        planes[int(name.split(".")[0])].append(_loaded(table.column(name)))
    key, label, rows = (_integers(table.column(name)) for name in ("key", "label", "rows"))
    partials = tuple(tuple(part) if part else None for part in planes)
    return Cells(tuple(_whole(column) for column in keys.columns), key, label, rows, partials)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _integers(column: pa.ChunkedArray) -> IntArray:
    return np.asarray(_whole(column)).astype(np.int64)


def _loaded(column: pa.ChunkedArray) -> Plane:
    if pa.types.is_integer(column.type):
        return _integers(column)
    return np.asarray(_whole(column)) if pa.types.is_float64(column.type) else _whole(column)


def pick(planes: Sequence[Plane], where: IntArray) -> Planes:
    """The planes at some places."""
    return tuple(p.take(pa.array(where)) if isinstance(p, pa.Array) else p[where] for p in planes)
