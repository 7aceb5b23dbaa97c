"""Decoding JSON lines. Missing keys are NULL, unknown keys are not read, values are taken as by Spark's reader."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.json as pa_json

from millstream.model.stream import Field
from millstream.sources.chunk import shortened
from millstream.sources.convert import Scalar, json_value
from millstream.sources.lines import BadLine, Decoded, Places, Shape, lines_of, typed_rows, without

# Lines of a broken block below which they are read one by one instead of halving again.
_ONE_BY_ONE = 64
# Types that Arrow's JSON reader would take in another form than Spark's; they are read as text and converted.
_AS_TEXT = ("date", "timestamp", "timestamp_ntz", "binary")


@dataclass(frozen=True, slots=True)
class JsonDecoder:
    fields: Sequence[Field]

    def decode(self, block: bytes) -> Decoded:
        shape = Shape.of(block, quotes=False)
        numbers = None
        if shape.blank is not None:
            block, numbers, _ = without(block, shape.blank)
        count = shape.count if numbers is None else len(numbers)
        parts: list[tuple[int, Decoded]] = []
        self._decode(block, 0, count, parts)
        return self._joined(parts, count, numbers)

    def _decode(self, block: bytes, first: int, count: int, parts: list[tuple[int, Decoded]]) -> None:
        """Halve a block that fails until the bad lines stand almost alone."""
        table = self._parse(block, count)
        if table is not None:
            parts.append((first, typed_rows(table, self.fields, None, [], block)))
        elif count <= _ONE_BY_ONE:
            parts.append((first, self._line_by_line(block)))
        else:
            lines, middle = lines_of(block), count // 2
            self._decode(b"\n".join(lines[:middle]), first, middle, parts)
            self._decode(b"\n".join(lines[middle:]), first + middle, count - middle, parts)

    def _joined(self, parts: list[tuple[int, Decoded]], count: int, numbers: Places | None) -> Decoded:
        table = pa.concat_tables([part.table for _, part in parts]) if parts else self._empty()
        if table.num_rows == count and numbers is None:
            return Decoded(table)
        places = [first + (np.arange(p.table.num_rows) if p.lines is None else p.lines) for first, p in parts]
        lines = np.concatenate(places) if places else np.array([], np.int64)
        bad = [(first + line, reason, raw) for first, part in parts for line, reason, raw in part.bad]
        if numbers is not None:
            lines, bad = numbers[lines], [(int(numbers[line]), reason, raw) for line, reason, raw in bad]
        return Decoded(table, lines, bad)

    def _text_schema(self) -> pa.Schema:
        return pa.schema([(f.name, pa.string() if f.type.kind in _AS_TEXT else f.type.arrow) for f in self.fields])

    def _empty(self) -> pa.Table:
        return pa.schema([(f.name, f.type.arrow) for f in self.fields]).empty_table()

    def _parse(self, block: bytes, count: int) -> pa.Table | None:
        """None when Arrow refuses the block, or sees other rows in it than its lines."""
        parse = pa_json.ParseOptions(explicit_schema=self._text_schema(), unexpected_field_behavior="ignore")
        read = pa_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
        if not count:
            return self._text_schema().empty_table()
        try:
            # Arrow does not check the encoding.
            block.decode("utf-8")
            table = pa_json.read_json(io.BytesIO(block), read, parse)
            # Nor the digits of decimals.
            for field in self.fields:
                if field.type.kind == "decimal":
                    table[field.name].validate(full=True)
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return None
        return table if table.num_rows == count else None

    def _line_by_line(self, block: bytes) -> Decoded:
        rows: list[list[Scalar]] = []
        good: list[int] = []
        bad: list[BadLine] = []
        for i, line in enumerate(lines_of(block)):
            try:
                if line.strip():
                    rows.append(self._row(line))
                    good.append(i)
            except (ValueError, RecursionError) as error:
                bad.append((i, _reason(error), shortened(line)))
        schema = self._text_schema()
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self.fields)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
        return typed_rows(pa.table(arrays, schema.names), self.fields, np.array(good, np.int64), bad, block)

    def _row(self, line: bytes) -> list[Scalar]:
        row = json.loads(line, parse_float=Decimal)
        if not isinstance(row, dict):
            raise ValueError("not a JSON object")
        values = []
        for wanted in self.fields:
            try:
                values.append(json_value(row.get(wanted.name), wanted.type))
            except ValueError as error:
                raise ValueError(f"column {wanted.name!r}: {error}") from None
        return values


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg} at column {error.colno}"
    return "not UTF-8 text" if isinstance(error, UnicodeError) else str(error)
