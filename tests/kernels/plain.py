"""Test doubles and a brute-force reference for the kernels: rows as Python values, windows one by one."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.kernels.batch import Batch, Evaluates
from millstream.kernels.evaluate import Evaluated
from millstream.model.expression import Column, Expression
from millstream.model.group import GroupVersion, Measure, Member, measures_of
from millstream.model.query import Aggregate, Output, WindowSpec, aggregate_column, key_column
from millstream.model.selection import AllOf, Leaf, Selection, attributes
from millstream.model.types import TIMESTAMP, DataType

# Decimal arithmetic without rounding: the default context keeps 28 digits.
WIDE = Context(prec=100, rounding=ROUND_HALF_UP)


class ColumnsOnly:
    """An evaluator for expressions that are plain columns."""

    def evaluate_counted(self, table: pa.Table, expressions: Sequence[Expression]) -> list[Evaluated]:
        assert all(isinstance(e, Column) for e in expressions)
        return [Evaluated(table.column(e.name).combine_chunks(), None) for e in expressions]  # type: ignore[union-attr]

    def weigh_anew(self) -> None: ...


def batch_of(table: pa.Table, time: str = "time", evaluator: Evaluates | None = None) -> Batch:
    times = np.asarray(table.column(time).combine_chunks().cast(pa.int64()))
    return Batch(table, times, evaluator or ColumnsOnly())


def version_of(members: Sequence[Member], keys: tuple[Expression, ...] | None, version: int = 1) -> GroupVersion:
    found = tuple(dict.fromkeys(a for m in members for a in attributes(m.selection)))
    measures: tuple[Measure, ...] = tuple(
        dict.fromkeys(x for m in members for a in m.aggregates for x in measures_of(a))
    )
    return GroupVersion("g", version, "s", keys, found, measures, tuple(members))


def plain_outputs(keys: Sequence[Expression], aggregates: Sequence[Aggregate]) -> tuple[Output, ...]:
    named = [Output(f"k{i}", Column(key_column(i), k.type)) for i, k in enumerate(keys)]
    named += [Output(f"a{i}", Column(aggregate_column(i), a.type)) for i, a in enumerate(aggregates)]
    return (*named, Output("end", Column("#end", TIMESTAMP)))


def is_true(selection: Selection, row: dict[str, Any]) -> bool:
    if isinstance(selection, Leaf):
        return _leaf(selection, row)
    truth = [is_true(item, row) for item in selection.items]
    return all(truth) if isinstance(selection, AllOf) else any(truth)


def _leaf(leaf: Leaf, row: dict[str, Any]) -> bool:
    assert isinstance(leaf.attribute.expression, Column)
    value = row[leaf.attribute.expression.name]
    if value is None:
        return leaf.null
    if isinstance(value, Decimal):
        value = int(value.scaleb(leaf.attribute.scale))
    return any((a is None or _le(a, value)) and (b is None or not _le(b, value)) for a, b in leaf.ranges)


def _le(left: Any, right: Any) -> bool:
    """left ≤ right where NaN is the largest value."""
    if isinstance(right, float) and math.isnan(right):
        return True
    return not (isinstance(left, float) and math.isnan(left)) and left <= right


def window_ends(window: WindowSpec, time: int) -> Iterable[int]:
    end = window.end_after(time)
    while end - window.size <= time:
        yield end
        end += window.slide


def reference(
    member: Member, keys: Sequence[Expression], rows: Iterable[tuple[dict[str, Any], int | None]]
) -> list[tuple[Any, ...]]:
    """Answer rows (keys, aggregates, window end) over rows with their batch's watermark."""
    assert member.window is not None
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row, watermark in rows:
        if not is_true(member.selection, row):
            continue
        for end in window_ends(member.window, row["time"]):
            if watermark is None or watermark < end:
                groups[(*(canonical(row[k.name]) for k in keys), end)].append(row)  # type: ignore[union-attr]
    return [
        (*group[:-1], *(aggregate(a, mine) for a in member.aggregates), group[-1]) for group, mine in groups.items()
    ]


def canonical(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def aggregate(call: Aggregate, rows: list[dict[str, Any]]) -> Any:
    if call.argument is None:
        return len(rows)
    assert isinstance(call.argument, Column)
    values = [row[call.argument.name] for row in rows if row[call.argument.name] is not None]
    if call.function == "count":
        return len(values)
    if not values:
        return None
    if call.function in ("min", "max"):
        order = sorted(values, key=lambda v: (isinstance(v, float) and math.isnan(v), v))
        return canonical(order[0] if call.function == "min" else order[-1])
    return _sum(call, values)


def _sum(call: Aggregate, values: list[Any]) -> Any:
    floating = isinstance(values[0], float)
    total = math.fsum(v for v in values if math.isfinite(v)) if floating else _exact(values)
    odd = {("nan" if math.isnan(v) else v) for v in values if isinstance(v, float) and not math.isfinite(v)}
    if odd:
        total = math.nan if "nan" in odd or len(odd) > 1 else odd.pop()
    if call.function == "sum":
        return canonical(total) if floating else _fits(total, call.type)
    if call.type.kind == "decimal":
        return WIDE.divide(Decimal(total), Decimal(len(values))).quantize(
            Decimal(1).scaleb(-call.type.scale), context=WIDE
        )
    return canonical(float(total) / len(values))


def _exact(values: list[Any]) -> Any:
    total = values[0]
    for value in values[1:]:
        total = WIDE.add(total, value) if isinstance(total, Decimal) else total + value
    return total


def _fits(total: Any, type_: DataType) -> Any:
    if type_.kind == "long":
        return total if -(2**63) <= total < 2**63 else None
    return total if abs(total.scaleb(type_.scale, WIDE)) < Decimal(10) ** type_.precision else None
