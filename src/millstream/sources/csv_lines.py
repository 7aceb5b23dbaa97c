"""Decoding CSV. The header names the columns; quotes are doubled inside quotes; empty values are NULL, as in Spark."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from millstream.errors import SourceError
from millstream.model.stream import Field
from millstream.sources.chunk import shortened
from millstream.sources.convert import ZONED
from millstream.sources.lines import BadLine, Decoded, Places, Shape, lines_of, typed_rows, without
from millstream.sources.schema import BOM, CSV_FALSE, CSV_TRUE

# Bytes looked at for the header and the first row.
_HEADER_BYTES = 1 << 20
_UNBALANCED = "unbalanced quotes"


@dataclass(frozen=True, slots=True)
class CsvDecoder:
    """``zoned`` names the timestamp columns whose first value has a zone: Arrow wants to know before it parses."""

    header: list[str]
    fields: Sequence[Field]
    zoned: frozenset[str] = frozenset()

    @classmethod
    def of(cls, path: str, source: Any, fields: Sequence[Field]) -> tuple[CsvDecoder, int]:
        """The decoder for a file, and the offset of its first row."""
        start = source.read(_HEADER_BYTES)
        line, _, rest = start.partition(b"\n")
        header = _cells(line.removeprefix(BOM))
        missing = [f.name for f in fields if header.count(f.name) != 1]
        if missing:
            hint = f"existing columns: {', '.join(header)}" if header else "a CSV file starts with a header"
            what = f"column {missing[0]!r} is " + ("there twice" if missing[0] in header else "missing")
            raise SourceError("BAD_FILE", f"cannot read {path}: {what}", hint=hint)
        values = dict(zip(header, _cells(rest.partition(b"\n")[0]), strict=False))
        zoned = frozenset(name for name, value in values.items() if ZONED.search(value.strip()))
        return cls(header, fields, zoned), len(line) + 1

    def decode(self, block: bytes) -> Decoded:
        if block.count(b"\r") != block.count(b"\r\n"):
            # To Arrow a lone carriage return ends a line; to us, as to Spark, it does not.
            return self._line_by_line(block)
        shape = Shape.of(block, quotes=True)
        numbers: Places | None = None
        bad: list[BadLine] = []
        if shape.blank is not None or shape.unbalanced is not None:
            none = np.zeros(shape.count, bool)
            unbalanced = none if shape.unbalanced is None else shape.unbalanced
            block, numbers, lines = without(block, unbalanced | (none if shape.blank is None else shape.blank))
            bad = [(int(i), _UNBALANCED, shortened(lines[i])) for i in np.flatnonzero(unbalanced)]
        count = shape.count if numbers is None else len(numbers)
        decoded = self._decode(block, count)
        if numbers is None:
            return decoded
        kept = numbers if decoded.lines is None else numbers[decoded.lines]
        bad += [(int(numbers[line]), reason, raw) for line, reason, raw in decoded.bad]
        return Decoded(decoded.table, kept, sorted(bad))

    def _decode(self, block: bytes, count: int) -> Decoded:
        # A quote that stays open swallows lines, so the count tells; only in the last line there is none to swallow.
        if b'"' in block and self._values(block.rstrip(b"\n").rpartition(b"\n")[2])[1] == _UNBALANCED:
            return self._line_by_line(block)
        types = {f.name: self._arrow(f) for f in self.fields}
        invalid: list[BadLine] = []
        try:
            table = self._parse(block, types, invalid)
        except pa.ArrowInvalid:
            return self._one_by_column(block, count)
        if table.num_rows + len(invalid) != count:
            return self._line_by_line(block)
        table = pa.table([c.cast(f.type.arrow) for c, f in zip(table.columns, self.fields, strict=True)], self._names())
        return Decoded(table, _remaining(count, invalid), _not_blank(invalid))

    def _names(self) -> list[str]:
        return [f.name for f in self.fields]

    def _arrow(self, wanted: Field) -> pa.DataType:
        if wanted.type.kind in ("timestamp", "timestamp_ntz"):
            return pa.timestamp("us", tz="UTC" if wanted.name in self.zoned else None)
        return wanted.type.arrow

    def _parse(self, block: bytes, types: dict[str, pa.DataType], invalid: list[BadLine]) -> pa.Table:
        def collect(row: Any) -> str:
            reason = f"{row.actual_columns} columns instead of {row.expected_columns}"
            invalid.append((row.number - 1, reason, shortened(row.text.encode("utf-8", "replace"))))
            return "skip"

        names = self._names()
        if not block.strip():
            return pa.schema([(name, types[name]) for name in names]).empty_table()
        return pa_csv.read_csv(
            io.BytesIO(block),
            read_options=pa_csv.ReadOptions(column_names=self.header, use_threads=False, block_size=len(block) + 1),
            parse_options=pa_csv.ParseOptions(invalid_row_handler=collect),
            convert_options=pa_csv.ConvertOptions(
                include_columns=names,
                column_types=types,
                null_values=[""],
                strings_can_be_null=True,
                true_values=CSV_TRUE,
                false_values=CSV_FALSE,
            ),
        )

    def _one_by_column(self, block: bytes, count: int) -> Decoded:
        """Some value cannot be converted: parse into plain bytes, then convert column by column."""
        invalid: list[BadLine] = []
        try:
            table = self._parse(block, {name: pa.binary() for name in self._names()}, invalid)
        except pa.ArrowInvalid:
            return self._line_by_line(block)
        if table.num_rows + len(invalid) != count:
            return self._line_by_line(block)
        return typed_rows(table, self.fields, _remaining(count, invalid), _not_blank(invalid), block)

    def _values(self, line: bytes) -> tuple[list[str], str]:
        """The values of a line, and what is wrong when they are not as many as the header's."""
        if line.count(b'"') % 2:
            return [], _UNBALANCED
        try:
            # One more value behind the line: a quote still open would swallow it.
            *values, last = next(csv.reader([line.decode("utf-8").rstrip("\r") + ",."]))
        except csv.Error:
            return [], "misplaced quotes or line ends"
        except UnicodeDecodeError:
            return [], "not UTF-8 text"
        if last != ".":
            return [], _UNBALANCED
        return values, f"{len(values)} columns instead of {len(self.header)}"

    def _line_by_line(self, block: bytes) -> Decoded:
        """Quotes that open in one line and close in another: take each line on its own."""
        rows: list[list[str | None]] = []
        kept: list[int] = []
        bad: list[BadLine] = []
        for i, line in enumerate(lines_of(block)):
            values, reason = self._values(line)
            if len(values) == len(self.header):
                rows.append([value or None for value in values])
                kept.append(i)
            elif line.strip():
                bad.append((i, reason, shortened(line)))
        columns = dict(zip(self.header, zip(*rows, strict=True), strict=True)) if rows else {}
        table = pa.table({name: pa.array(columns.get(name, ()), pa.string()) for name in self._names()})
        return typed_rows(table, self.fields, np.array(kept, np.int64), bad, block)


def _cells(line: bytes) -> list[str]:
    try:
        return next(csv.reader([line.decode("utf-8", "replace").rstrip("\r")]), [])
    except csv.Error:
        return []


def _remaining(count: int, invalid: Sequence[BadLine]) -> Places | None:
    if not invalid:
        return None
    kept = np.ones(count, bool)
    kept[[line for line, _, _ in invalid]] = False
    return np.flatnonzero(kept)


def _not_blank(invalid: list[BadLine]) -> list[BadLine]:
    """Spark skips lines of nothing but blanks."""
    return [row for row in invalid if row[2].strip()]
