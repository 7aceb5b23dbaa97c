"""Comparison of answers as multisets of rows, with a report that shows what is missing and what is too much.

Names, types and all values but floating-point numbers must be the same; for those NaN equals NaN, -0.0 equals 0.0, and
the last digits may differ, since the order of a sum is nobody's promise.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

# Sums of at most a thousand doubles of one size lose fewer digits than this.
RELATIVE = {pa.float64(): 1e-11, pa.float32(): 1e-6}
# Where summands cancel, the error is relative to their size, not to the sum.
ABSOLUTE_OF_BOUND = 1e-12
SHOWN_ROWS = 5

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """What distinguishes an answer from the expected one; rows are plain values, times in microseconds."""

    reason: str
    missing: tuple[Row, ...] = ()
    extra: tuple[Row, ...] = ()

    def __str__(self) -> str:
        lines = [self.reason]
        for word, rows in (("missing", self.missing), ("extra", self.extra)):
            lines += [f"  {word}: {row}" for row in rows[:SHOWN_ROWS]]
            if len(rows) > SHOWN_ROWS:
                lines.append(f"  … and {len(rows) - SHOWN_ROWS} more {word}")
        return "\n".join(lines)


def difference(expected: pa.Table, got: pa.Table, bounds: Sequence[float] = ()) -> Difference | None:
    """None if both hold the same rows. ``bounds[i]`` is the size of the values that column i was added up from."""
    if expected.column_names != got.column_names:
        return Difference(f"columns are called {got.column_names}, not {expected.column_names}")
    for field, other in zip(expected.schema, got.schema, strict=True):
        if not _same_type(field.type, other.type):
            return Difference(f"column {field.name!r} is of type {other.type}, not {field.type}")
    floats = [i for i, field in enumerate(expected.schema) if pa.types.is_floating(field.type)]
    slack = [(RELATIVE[expected.schema.field(i).type], _absolute(bounds, i)) for i in floats]
    missing: list[Row] = []
    extra: list[Row] = []
    theirs = _by_exact_part(rows_of(got), floats)
    for exact, ours in _by_exact_part(rows_of(expected), floats).items():
        _match(ours, theirs.pop(exact, []), floats, slack, missing, extra)
    for rest in theirs.values():
        extra += rest
    if not missing and not extra:
        return None
    return Difference(f"{got.num_rows} rows, expected {expected.num_rows}", tuple(missing), tuple(extra))


def rows_of(table: pa.Table) -> list[Row]:
    columns = [_plain(column.combine_chunks()) for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else []


def _plain(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_struct(column.type):
        valid = column.is_valid().to_pylist()
        parts = zip(*(_plain(part) for part in column.flatten()), strict=True)
        return [part if ok else None for ok, part in zip(valid, parts, strict=True)]
    if pa.types.is_timestamp(column.type):
        return list(column.cast(pa.int64()).to_pylist())
    if pa.types.is_date32(column.type):
        return list(column.cast(pa.int32()).to_pylist())
    if pa.types.is_floating(column.type):
        return [value + 0.0 if value is not None else None for value in column.to_pylist()]
    return list(column.to_pylist())


def _same_type(a: pa.DataType, b: pa.DataType) -> bool:
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        pairs = zip(a.fields, b.fields, strict=False)
        return a.num_fields == b.num_fields and all(x.name == y.name and _same_type(x.type, y.type) for x, y in pairs)
    return bool(a == b)


def _absolute(bounds: Sequence[float], place: int) -> float:
    bound = bounds[place] if place < len(bounds) else 0.0
    return bound * ABSOLUTE_OF_BOUND if math.isfinite(bound) else 0.0


def _by_exact_part(rows: list[Row], floats: list[int]) -> dict[Row, list[Row]]:
    groups: dict[Row, list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(value for place, value in enumerate(row) if place not in floats)].append(row)
    return dict(groups)


def _match(
    ours: list[Row],
    theirs: list[Row],
    floats: list[int],
    slack: list[tuple[float, float]],
    missing: list[Row],
    extra: list[Row],
) -> None:
    """Pair rows whose exact parts are equal; sorted order pairs nearly all, the rest is searched."""

    def order(row: Row) -> tuple[tuple[int, float], ...]:
        return tuple(_order(row[place]) for place in floats)

    def fits(a: Row, b: Row) -> bool:
        return all(_near(a[place], b[place], *slack[n]) for n, place in enumerate(floats))

    ours, theirs = sorted(ours, key=order), sorted(theirs, key=order)
    if len(ours) == len(theirs) and all(fits(a, b) for a, b in zip(ours, theirs, strict=True)):
        return
    left = list(theirs)
    for row in ours:
        found = next((other for other in left if fits(row, other)), None)
        if found is None:
            missing.append(row)
        else:
            left.remove(found) if not any(_is_nan(v) for v in found) else _remove_same(left, found)
    extra += left


def _remove_same(rows: list[Row], row: Row) -> None:
    del rows[next(place for place, other in enumerate(rows) if other is row)]


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _order(value: float | None) -> tuple[int, float]:
    if value is None:
        return 0, 0.0
    return (2, 0.0) if math.isnan(value) else (1, value)


def _near(a: float | None, b: float | None, relative: float, absolute: float) -> bool:
    if a is None or b is None:
        return a is b
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return math.isclose(a, b, rel_tol=relative, abs_tol=absolute)
