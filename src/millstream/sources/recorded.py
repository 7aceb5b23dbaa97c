"""Recorded input for replay: a file or a directory in file-name order, as one long sequence of numbered rows."""

from __future__ import annotations

import os
import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millstream.errors import SourceError
from millstream.model.stream import Field
from millstream.sources.chunk import CHUNK_ROWS, Origin
from millstream.sources.files import bad_file, format_of
from millstream.sources.lines import Decoded
from millstream.sources.parquet import MARKED, ORIGIN, RAW, REASON, Footer, read_footer
from millstream.sources.schema import infer_fields
from millstream.sources.splits import Split, split_rows
from millstream.sources.text import decode_file

_MARKS = [(REASON, pa.string()), (ORIGIN, pa.string()), (RAW, pa.string())]


class RecordedInput:
    """Every file is checked when the input is opened: a file that cannot be read, or is of another schema than the
    first, is a SourceError then, not in the middle of a replay.

    Text files are converted to Parquet once, into ``cache`` (a temporary directory by default), since rows must be
    found by number. Rows that cannot be decoded keep their number and come back as rejected when they are read.
    """

    def __init__(
        self,
        path: str | Path,
        fields: Sequence[Field] | None = None,
        time: str = "time",
        cache: str | Path | None = None,
    ) -> None:
        self.path = str(path)
        files = _input_files(self.path)
        self.fields: tuple[Field, ...] = tuple(fields) if fields is not None else infer_fields(*files[0])
        _check_time(self.path, self.fields, time)
        self.time = time
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._footers = [self._footer(i, file, cache) for i, file in enumerate(files)]
        self._starts = [0, *accumulate(footer.rows for footer in self._footers)]

    @property
    def rows(self) -> int:
        return self._starts[-1]

    def splits(self, start_row: int, stop_row: int, parallelism: int) -> list[list[Split]]:
        """The rows ``start_row … stop_row - 1``, as far as there are so many, divided among tasks."""
        stop_row = min(stop_row, self.rows)
        pieces: list[tuple[Footer, int, int]] = []
        index = bisect_right(self._starts, start_row) - 1
        while start_row < stop_row:
            begin, end = self._starts[index], self._starts[index + 1]
            if start_row < end:
                taken = min(stop_row, end) - start_row
                pieces.append((self._footers[index], start_row - begin, taken))
                start_row += taken
            index += 1
        return split_rows(pieces, parallelism)

    def close(self) -> None:
        """Remove the temporary copies, if any were made."""
        if self._temporary is not None:
            self._temporary.cleanup()

    def _footer(self, index: int, file: tuple[str, str], cache: str | Path | None) -> Footer:
        path, file_format = file
        if file_format != "parquet":
            path = self._converted(index, path, file_format, cache)
        try:
            return read_footer(path, self.fields)
        except OSError as error:
            # A replay is not repeated.
            raise bad_file(path, error) from None

    def _converted(self, index: int, path: str, file_format: str, cache: str | Path | None) -> str:
        if cache is None:
            self._temporary = self._temporary or tempfile.TemporaryDirectory(prefix="millstream-")
            cache = self._temporary.name
        os.makedirs(cache, exist_ok=True)
        target = os.path.join(cache, f"{index:06d}-{Path(path).name}.parquet")
        schema = pa.schema([(f.name, f.type.arrow) for f in self.fields] + _MARKS, {MARKED: b"in place"})
        with pq.ParquetWriter(target, schema, compression="lz4") as writer:
            for table in _tables(path, file_format, self.fields, schema):
                writer.write_table(table, row_group_size=CHUNK_ROWS)
        return target


def _tables(path: str, file_format: str, fields: Sequence[Field], schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of a text file, gathered to row groups of a good size."""
    waiting: list[pa.Table] = []
    for decoded, first, _ in _decoded(path, file_format, fields):
        waiting.append(_in_place(decoded, Origin(path, first), schema))
        if sum(table.num_rows for table in waiting) >= CHUNK_ROWS // 2:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _decoded(path: str, file_format: str, fields: Sequence[Field]) -> Iterator[tuple[Decoded, int, int]]:
    try:
        yield from decode_file(path, file_format, 0, None, fields)
    except OSError as error:
        raise bad_file(path, error) from None


def _in_place(decoded: Decoded, origin: Origin, schema: pa.Schema) -> pa.Table:
    """Good and bad rows together in line order, the bad ones marked."""
    good = decoded.table
    nothing = [pa.nulls(good.num_rows, pa.string())] * len(_MARKS)
    marked = pa.table([*good.columns, *nothing], schema=schema)
    if not decoded.bad:
        return marked
    lines, reasons, raws = zip(*decoded.bad, strict=True)
    empty = [pa.nulls(len(lines), field.type) for field in schema][: good.num_columns]
    marks = [pa.array(values, pa.string()) for values in (reasons, [origin.at(line) for line in lines], raws)]
    bad = pa.table([*empty, *marks], schema=schema)
    places = np.arange(good.num_rows) if decoded.lines is None else decoded.lines
    order = np.argsort(np.concatenate([places, np.array(lines, np.int64)]), kind="stable")
    return pa.concat_tables([marked, bad]).take(pa.array(order))


def _input_files(path: str) -> list[tuple[str, str]]:
    """(path, format) of the input files in file-name order."""
    if os.path.isdir(path):
        names = sorted(os.listdir(path))
        found = [(os.path.join(path, name), format_of(name)) for name in names]
        files = [(file, kind) for file, kind in found if kind is not None and os.path.isfile(file)]
        if not files:
            hint = "input files end in .parquet, .csv or .jsonl"
            raise SourceError("BAD_FILE", f"no input file in the directory {path}", hint=hint)
        return files
    if not os.path.exists(path):
        raise bad_file(path, "no such file")
    kind = format_of(path)
    if kind is None:
        raise SourceError(
            "BAD_FILE", f"{path} is of no known format", hint="input files end in .parquet, .csv or .jsonl"
        )
    return [(path, kind)]


def _check_time(path: str, fields: Sequence[Field], time: str) -> None:
    types = {field.name: field.type for field in fields}
    if time not in types:
        hint = f"existing columns: {', '.join(types)}"
        raise SourceError("BAD_STREAM", f"{path} has no column {time!r} for the event time", hint=hint)
    if types[time].kind not in ("timestamp", "timestamp_ntz"):
        stamps = [name for name, kind in types.items() if kind.kind in ("timestamp", "timestamp_ntz")]
        hint = f"columns with timestamps: {', '.join(stamps) or 'none'}"
        raise SourceError(
            "BAD_STREAM", f"the event-time column {time!r} of {path} is {types[time]}, not a timestamp", hint=hint
        )
