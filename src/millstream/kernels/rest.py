"""What a query does after the shared part: HAVING and expressions over keys, aggregates and the window.

It runs once for each **shape**, the expressions with their constants taken out, over the rows of all queries of that
shape; the constants come back as columns. Five hundred answers then cost about as much as ten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.batch import Evaluates
from millstream.kernels.ranking import ranks
from millstream.model.expression import Call, Column, Expression, Literal, columns
from millstream.model.group import Measure, Member, measures_of
from millstream.model.query import RANK, Aggregate, Ranking
from millstream.model.types import DataType

IntArray = npt.NDArray[np.int64]

# Operators whose constant operands may as well be columns of the same type.
_OPEN = frozenset(
    [
        "Add",
        "Subtract",
        "Multiply",
        "Divide",
        "Remainder",
        "LessThan",
        "LessThanOrEqual",
        "GreaterThan",
        "GreaterThanOrEqual",
        "EqualTo",
        "And",
        "Or",
        "Not",
        "Cast",
    ]
)


@dataclass(frozen=True)
class Shape:
    """HAVING and outputs with parameters ``#p0…`` for constants, and the aggregates they stand on."""

    aggregates: tuple[Aggregate, ...]
    having: Expression | None
    outputs: tuple[Expression, ...]
    ranking: Ranking | None = None

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Every due query asks for it in every fire."""
        return hash((self.aggregates, self.having, self.outputs, self.ranking))

    @cached_property
    def measures(self) -> tuple[Measure, ...]:
        return tuple(dict.fromkeys(m for a in self.aggregates for m in measures_of(a)))

    @cached_property
    def columns(self) -> set[str]:
        """The columns that the rest reads."""
        parts = self.outputs if self.having is None else (self.having, *self.outputs)
        if self.ranking is not None:
            parts = (*parts, *self.ranking.partition, *(order.expression for order in self.ranking.order))
        return {name for part in parts for name in columns(part)}


Shaped = tuple[Shape, tuple[Literal, ...]]


def shape_of(member: Member) -> Shaped:
    """The shape and the constants taken out of it."""
    constants: list[Literal] = []
    having = None if member.having is None else _open(member.having, constants)
    outputs = tuple(_open(out.expression, constants) for out in member.outputs)
    return Shape(member.aggregates, having, outputs, member.ranking), tuple(constants)


def _open(expression: Expression, constants: list[Literal]) -> Expression:
    if not isinstance(expression, Call) or expression.op not in _OPEN:
        return expression
    return Call(expression.op, tuple(_take(a, constants) for a in expression.args), expression.type, expression.options)


def _take(expression: Expression, constants: list[Literal]) -> Expression:
    if isinstance(expression, Literal) and expression.value is not None:
        constants.append(expression)
        return Column(f"#p{len(constants) - 1}", expression.type)
    return _open(expression, constants)


@dataclass(frozen=True)
class Rest:
    """``keep`` are the rows that HAVING lets through (None: all); ``failures`` counts failed operators by row."""

    columns: tuple[pa.Array, ...]
    keep: IntArray | None
    failures: npt.NDArray[np.int64] | None


def run(
    shape: Shape, inputs: dict[str, pa.Array], rows: int, evaluator: Evaluates, windows: IntArray | None = None
) -> Rest:
    """Evaluate a shape over rows whose columns are named as ``model.query`` says, parameters included. ``windows``
    numbers the answer that each row belongs to, which a ranking needs."""
    failures: npt.NDArray[np.int64] | None = None
    keep: IntArray | None = None
    table = pa.Table.from_arrays(list(inputs.values()), names=list(inputs))
    if shape.having is not None:
        (truth,) = evaluator.evaluate_counted(table, [shape.having])
        failures = _add(failures, truth.failures)
        keep = np.flatnonzero(np.asarray(truth.values.fill_null(False)))
    source = table if keep is None else table.take(pa.array(keep))
    if shape.ranking is not None:
        assert windows is not None
        kept, source = _ranked(shape.ranking, source, windows if keep is None else windows[keep], evaluator)
        keep = kept if keep is None else keep[kept]
    derived = [e for e in dict.fromkeys(shape.outputs) if not isinstance(e, Column)]
    values: dict[Expression, pa.Array] = {}
    if derived:
        for expression, found in zip(derived, evaluator.evaluate_counted(source, derived), strict=True):
            values[expression] = found.values
            failed = found.failures
            failures = _add(failures, failed if keep is None or failed is None else _spread(failed, keep, rows))
    return Rest(tuple(_output(e, values, source) for e in shape.outputs), keep, failures)


def _ranked(ranking: Ranking, table: pa.Table, windows: IntArray, evaluator: Evaluates) -> tuple[IntArray, pa.Table]:
    """The rows whose rank is low enough, and the table of them with their rank."""
    asked = [*ranking.partition, *(order.expression for order in ranking.order)]
    found = dict(zip(asked, (one.values for one in evaluator.evaluate_counted(table, asked)), strict=True))
    order = [(found[one.expression], one.ascending, one.nulls_first) for one in ranking.order]
    ranked = ranks(ranking.function, windows, [found[e] for e in ranking.partition], order)
    kept = np.flatnonzero(ranked <= ranking.limit)
    rest = table.take(pa.array(kept))
    return kept, rest.append_column(RANK, pa.array(ranked[kept].astype(np.int32)))


def _output(expression: Expression, values: dict[Expression, pa.Array], source: pa.Table) -> pa.Array:
    if isinstance(expression, Column):
        column = source.column(expression.name)
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return values[expression]


def _spread(failed: npt.NDArray[np.int32], keep: IntArray, rows: int) -> npt.NDArray[np.int64]:
    spread = np.zeros(rows, np.int64)
    spread[keep] = failed
    return spread


def _add(total: npt.NDArray[np.int64] | None, more: npt.NDArray[Any] | None) -> npt.NDArray[np.int64] | None:
    if more is None:
        return total
    return more.astype(np.int64) if total is None else total + more.astype(np.int64)


def parameter_columns(constants: Sequence[Sequence[Literal]], lengths: IntArray) -> dict[str, pa.Array]:
    """Each query's constants repeated over its rows; all queries have the same number and types of them."""
    if not constants:
        return {}
    columns = {}
    for index in range(len(constants[0])):
        values = pa.array(
            [scalar(mine[index].value, mine[index].type) for mine in constants], constants[0][index].type.arrow
        )
        columns[f"#p{index}"] = values.take(pa.array(np.repeat(np.arange(len(constants)), lengths)))
    return columns


def scalar(value: object, type_: DataType) -> object:
    """A model value as Arrow takes it: decimals from text, dates and timestamps from numbers."""
    if value is None or type_.kind not in ("decimal", "date", "timestamp", "timestamp_ntz"):
        return value
    if type_.kind == "decimal":
        return pa.scalar(str(value)).cast(type_.arrow)
    if type_.kind == "date":
        return pa.scalar(value, pa.int32()).cast(type_.arrow)
    return pa.scalar(value, pa.int64()).cast(type_.arrow)
