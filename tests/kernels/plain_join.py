"""Brute force for joins: rows as Python dicts, all pairs built one by one, expressions evaluated value by value."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.kernels.aggregate import identity, rank, ranked
from millstream.kernels.relation import Relation
from millstream.kernels.results import finish
from millstream.model.expression import Column, Expression, Literal
from millstream.model.group import Measure, measures_of
from millstream.model.join import JoinNode, Tree
from millstream.model.query import Aggregate

from .plain import aggregate, canonical

Row = dict[str, Any]


def value(expression: Expression, row: Row) -> Any:
    """An expression over a row that has all columns, those of unmatched legs being None."""
    if isinstance(expression, Column):
        return row.get(expression.name)
    if isinstance(expression, Literal):
        return expression.value
    arguments = [value(argument, row) for argument in expression.args]
    if expression.op == "Coalesce":
        return next((a for a in arguments if a is not None), None)
    if expression.op == "And":
        return False if False in arguments else None if None in arguments else True
    if None in arguments:
        return None
    return _OPERATORS[expression.op](*arguments)


def _less(left: Any, right: Any) -> bool:
    if isinstance(left, float) and math.isnan(left):
        return False
    return (isinstance(right, float) and math.isnan(right)) or left < right


_OPERATORS = {
    "Add": lambda a, b: a + b,
    "Multiply": lambda a, b: a * b,
    "Concat": lambda a, b: a + b,
    "LessThan": _less,
    "EqualTo": lambda a, b: canonical(a) == canonical(b),
}


class PlainEvaluator:
    """The evaluator's place, without its milliseconds."""

    def evaluate(self, table: pa.Table, expressions: Sequence[Expression]) -> list[pa.Array]:
        rows = table.to_pylist()
        return [pa.array([value(e, row) for row in rows], e.type.arrow) for e in expressions]


@dataclass(frozen=True)
class Source:
    """A leg: its rows, named by leg, and for each query which of them it selects."""

    rows: list[Row]
    selected: list[list[bool]]

    def of(self, query: int) -> list[Row]:
        return [row for row, mine in zip(self.rows, self.selected[query], strict=True) if mine]


def relation_of(source: Source, attributes: Sequence[Expression], measures: Sequence[Measure]) -> Relation:
    """What ingest and fire make of a leg, cell by cell."""
    columns: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for number, row in enumerate(source.rows):
        columns[tuple(canonical(value(e, row)) for e in attributes)].append(number)
    first = [source.rows[numbers[0]] for numbers in columns.values()]
    arrays = {e: pa.array([value(e, row) for row in first], e.type.arrow) for e in attributes}
    cells = [
        [[source.rows[n] for n in numbers if selected[n]] for numbers in columns.values()]
        for selected in source.selected
    ]
    shape = (len(source.selected), len(columns))
    rows = np.array([[len(cell) for cell in line] for line in cells], np.int64).reshape(shape)
    planes, values = {}, {}
    for measure in measures:
        known, values_of = _cells(measure, cells, source)
        planes[measure] = tuple(_planes(measure, known, shape))
        if values_of is not None:
            values[measure] = values_of
        if measure.kind == "count" and (planes[measure][0] == rows).all():
            planes[measure] = (rows,)
    return Relation(arrays, rows, planes, values)


def _cells(measure: Measure, cells: list[list[list[Row]]], source: Source) -> tuple[list[list[list[Any]]], Any]:
    """The values that are not NULL of each cell; for text their ranks."""
    ranks: dict[Any, int] | None = None
    values = None
    if measure.kind in ("min", "max") and ranked(measure.argument.type):
        every = [value(measure.argument, row) for row in source.rows]
        (found,), values = rank([pa.array(every, measure.argument.type.arrow)])
        ranks = dict(zip(every, (int(r) for r in found), strict=True))
    result = []
    for line in cells:
        known = [[v for row in cell if (v := value(measure.argument, row)) is not None] for cell in line]
        result.append(known if ranks is None else [[ranks[v] for v in cell] for cell in known])
    return result, values


def _planes(measure: Measure, cells: list[list[list[Any]]], shape: tuple[int, int]) -> Iterator[np.ndarray]:
    def matrix(of: Any, dtype: Any) -> np.ndarray:
        return np.array([[of(cell) for cell in line] for line in cells], dtype).reshape(shape)

    type_ = measure.argument.type
    if measure.kind == "count":
        yield matrix(len, np.int64)
    elif measure.kind in ("min", "max"):
        floating = type_.floating
        nothing = identity(measure.kind, np.float64 if floating else np.int64, 1)[0]
        order = (lambda v: (math.isnan(v), v)) if floating else None
        best = min if measure.kind == "min" else max
        yield matrix(lambda cell: best(cell, key=order) if cell else nothing, np.float64 if floating else np.int64)
    elif measure.kind == "fsum" or type_.floating:
        yield matrix(lambda cell: sum(float(v) for v in cell if math.isfinite(v)), np.float64)
        odd = [math.isnan, lambda v: v == math.inf, lambda v: v == -math.inf]
        if any(not math.isfinite(v) for line in cells for cell in line for v in cell):
            for test in odd:
                yield matrix(lambda cell, test=test: sum(1 for v in cell if test(v)), np.int64)
    else:
        yield from _limbs(matrix(lambda cell: sum(_integer(v, type_.scale) for v in cell), object))


def _integer(number: Any, scale: int) -> int:
    return int(number.scaleb(scale)) if isinstance(number, Decimal) else int(number)


def _limbs(totals: np.ndarray) -> Iterator[np.ndarray]:
    """One limb where it fits, else as many as needed, all but the last in [0, 2^32)."""
    while totals.size and max(abs(t) for t in totals.flat) >= 2**62:
        yield (totals & 0xFFFFFFFF).astype(np.int64)
        totals = totals >> 32
    yield totals.astype(np.int64)


def joined(tree: Tree, legs: Sequence[list[Row]]) -> list[Row]:
    """All rows of a tree, for one query."""
    if isinstance(tree, int):
        return legs[tree]
    left, right = joined(tree.left, legs), joined(tree.right, legs)
    if tree.kind == "right":
        return joined(replace(tree, kind="left", left=tree.right, right=tree.left, equal=_turned(tree)), legs)
    found: list[Row] = []
    taken: set[int] = set()
    for row in left:
        matches = [n for n, other in enumerate(right) if _match(tree, row | other)]
        taken.update(matches)
        if tree.kind in ("semi", "anti"):
            found += [row] if bool(matches) == (tree.kind == "semi") else []
        else:
            found += [row | right[n] for n in matches]
            found += [row] if not matches and tree.kind in ("left", "full") else []
    if tree.kind == "full":
        found += [other for n, other in enumerate(right) if n not in taken]
    return found


def _turned(tree: JoinNode) -> tuple[tuple[Expression, Expression], ...]:
    return tuple((b, a) for a, b in tree.equal)


def _match(tree: JoinNode, row: Row) -> bool:
    for first, second in tree.equal:
        a, b = value(first, row), value(second, row)
        if a is None or b is None or canonical(a) != canonical(b):
            return False
    return tree.residual is None or value(tree.residual, row) is True


def expected(
    tree: Tree,
    sources: Sequence[Source],
    query: int,
    where: Expression | None,
    keep: Sequence[Expression],
    aggregates: Sequence[Aggregate],
) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Aggregates by key; the first is the number of rows."""
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in joined(tree, [source.of(query) for source in sources]):
        if where is None or value(where, row) is True:
            groups[tuple(canonical(value(e, row)) for e in keep)].append(row)
    return {key: (len(rows), *(_aggregate(a, rows) for a in aggregates)) for key, rows in groups.items()}


def _aggregate(call: Aggregate, rows: list[Row]) -> Any:
    assert call.argument is not None
    flat = Column("v", call.argument.type)
    found = aggregate(replace(call, argument=flat), [{"v": value(call.argument, row)} for row in rows])
    return close(found)


def answers(
    relation: Relation, query: int, keep: Sequence[Expression], aggregates: Sequence[Aggregate]
) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """The same from a relation."""
    rows = relation.rows[query]
    columns = [pa.array(rows)]
    for call in aggregates:
        needed = measures_of(call)
        planes = [[plane[query] for plane in relation.measures[measure]] for measure in needed]
        columns.append(finish(call, rows, planes, relation.values.get(needed[0]))[0])
    keys = [relation.attributes[e].to_pylist() for e in keep]
    result: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    values = [column.to_pylist() for column in columns]
    for number in np.flatnonzero(rows):
        key = tuple(canonical(column[number]) for column in keys)
        assert key not in result, f"two columns for {key}"
        result[key] = tuple(close(canonical(column[number])) for column in values)
    return result


def close(number: Any) -> Any:
    """Doubles as far as the order of addition leaves them equal."""
    return float(f"{number:.9g}") + 0.0 if isinstance(number, float) and math.isfinite(number) else number
