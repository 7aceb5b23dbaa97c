"""Answer files: the answers of all queries of one task, each stored once, with an index by query.

    part 0 | part 1 | … | index

A part is an Arrow IPC stream of answers with the same column types, one behind the other; the index says for every
(query, window) which rows of which part are its answer. Columns have no names in a part: queries name them differently.
Long integers are stored as narrow as their values allow.
The answers of joins without grouping are not stored as rows: their part is a **description** (JSON) of the buckets
that a reader builds the rows from, and the index has their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from millstream.kernels.checksum import checksum

INDEX = pa.schema(
    [
        ("query", pa.string()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("partial", pa.bool_()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
        ("first", pa.int64()),
        ("rows", pa.int64()),
        ("described", pa.bool_()),
        ("checksum", pa.int64()),
        ("incomplete", pa.string()),
    ]
)


@dataclass(frozen=True)
class Range:
    """Rows ``first … first + rows`` of a part are the answer of a query for a window (None, None for a micro-batch).
    ``incomplete`` says which data it lacks, None where it has all."""

    query: str
    start: int | None
    end: int | None
    partial: bool
    first: int
    rows: int
    described: bool = False
    incomplete: str | None = None


@dataclass(frozen=True)
class Part:
    """Rows, or a description of them."""

    columns: tuple[pa.Array, ...]
    ranges: tuple[Range, ...]
    description: bytes | None = None


@dataclass(frozen=True)
class Encoded:
    data: list[pa.Buffer]
    index_offset: int
    index_length: int
    rows: int
    queries: int
    index_checksum: int

    @property
    def size(self) -> int:
        return sum(len(buffer) for buffer in self.data)


# A range, and offset, length and checksum of its part.
Entry = tuple[Range, int, int, int]


def encode(parts: Sequence[Part]) -> Encoded:
    """The file's bytes, in pieces to be written in order."""
    data: list[pa.Buffer] = []
    position = 0
    entries: list[Entry] = []
    for part in parts:
        buffer = _data(part)
        check = checksum(buffer)
        entries += [(r, position, len(buffer), check) for r in part.ranges]
        data.append(buffer)
        position += len(buffer)
    entries.sort(key=lambda entry: (entry[0].query, entry[0].end or 0))
    index = _stream(_index(entries))
    data.append(index)
    rows = sum(r.rows for part in parts for r in part.ranges)
    return Encoded(data, position, len(index), rows, len({entry[0].query for entry in entries}), checksum(index))


def _data(part: Part) -> pa.Buffer:
    if part.description is not None:
        return pa.py_buffer(part.description)
    found = [_narrow(column) for column in part.columns]
    fields = [
        pa.field(str(i), small.type, metadata=None if small is column else _LONG)
        for i, (small, column) in enumerate(zip(found, part.columns, strict=True))
    ]
    return _stream(pa.Table.from_arrays(found, schema=pa.schema(fields)))


# What says of a column that it was one of 64 bits.
_LONG = {b"type": b"int64"}


def _narrow(column: pa.Array) -> pa.Array:
    """A column of 64 bits in the fewest that hold its values: LZ4 takes ten times as long where most bytes are zeros
    that say nothing, and makes no less of the few that do."""
    if column.type != pa.int64() or column.null_count == len(column):
        return column
    found = pc.min_max(column).as_py()
    for small in (pa.int8(), pa.int16(), pa.int32()):
        limit = 1 << (small.bit_width - 1)
        if -limit <= found["min"] and found["max"] < limit:
            return column.cast(small)
    return column


def _whole(table: pa.Table) -> list[pa.ChunkedArray]:
    """The columns as they were before they were made narrow."""
    return [
        column.cast(pa.int64()) if field.metadata == _LONG else column
        for field, column in zip(table.schema, table.columns, strict=True)
    ]


def _index(entries: Sequence[Entry]) -> pa.Table:
    """Column by column: a thousand queries have many windows in one fire."""
    ranges, offset, length, check = zip(*entries, strict=True) if entries else ((), (), (), ())
    columns: dict[str, Sequence[object]] = {"offset": offset, "length": length, "checksum": check}
    for field in fields(Range):
        columns[field.name] = [getattr(r, field.name) for r in ranges]
    return pa.table([pa.array(columns[name], INDEX.field(name).type) for name in INDEX.names], schema=INDEX)


# Answers repeat their keys in every window: compressed, a fifth of the bytes has to reach the disk before they count.
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def _stream(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
        writer.write_table(table)
    return sink.getvalue()


class Ranges(Protocol):
    """A file as its reader sees it: the bytes of ranges, with their checksum verified where there is one."""

    def checked(self, offset: int, length: int, expected: int | None) -> pa.Buffer: ...


# A part's place in the file, and its checksum.
Place = tuple[int, int, int | None]


class AnswerReader:
    """An open answer file; parts are read when first asked for, and slices of them share their memory."""

    def __init__(self, data: Ranges, index_offset: int, index_length: int, index_checksum: int | None = None) -> None:
        self._data = data
        self._parts: dict[int, pa.Table] = {}
        index = pa.ipc.open_stream(data.checked(index_offset, index_length, index_checksum)).read_all()
        self._by_query: dict[str, list[dict[str, Any]]] = {}
        for entry in index.to_pylist():
            self._by_query.setdefault(entry["query"], []).append(entry)

    @property
    def queries(self) -> Sequence[str]:
        return list(self._by_query)

    def ranges(self, query: str) -> list[tuple[Range, Place]]:
        """The query's answers in order of window end, each with its part's place in the file."""
        return [(_range(e), (e["offset"], e["length"], e.get("checksum"))) for e in self._by_query.get(query, ())]

    def description(self, found: tuple[Range, Place]) -> bytes:
        """What the rows of an answer are built from."""
        data: bytes = self._data.checked(*found[1]).to_pybytes()
        return data

    def verified_descriptions(self) -> Iterator[bytes]:
        """Read every part, which verifies it; gives the descriptions among them."""
        parts = {
            (e["offset"], e["length"], e.get("checksum"), e.get("described", False))
            for es in self._by_query.values()
            for e in es
        }
        for *place, described in sorted(parts, key=lambda part: part[0]):
            data = self._data.checked(*place)
            if described:
                yield data.to_pybytes()
            else:
                pa.ipc.open_stream(data).read_all()

    def read(self, found: tuple[Range, Place], schema: pa.Schema) -> pa.Table:
        """An answer's rows with the query's own column names."""
        r, place = found
        if not r.rows:
            return schema.empty_table()
        offset = place[0]
        if offset not in self._parts:
            self._parts[offset] = pa.ipc.open_stream(self._data.checked(*place)).read_all()
        rows = self._parts[offset].slice(r.first, r.rows)
        columns = _whole(rows)
        if schema.names:
            return pa.Table.from_arrays(columns, schema=schema)
        return pa.Table.from_arrays(columns, rows.column_names)


def _range(e: dict[str, Any]) -> Range:
    r = Range(e["query"], e["start"], e["end"], e["partial"], e["first"], e["rows"], e.get("described", False))
    # Files of earlier versions know no such answers.
    return r if e.get("incomplete") is None else replace(r, incomplete=e["incomplete"])
