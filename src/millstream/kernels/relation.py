"""Relations: the rows of a source or a join, of one window, for all due queries at once, reduced to numbers.

A relation has one **column** for each combination of attribute values (what is joined on, grouped by or compared
further up) and matrices of shape (queries, columns): how many rows a query has there, and the planes of each measure
over them. Joining multiplies and adds such matrices, so rows are never paired.

Where a query has no rows, its planes hold their identity: 0 for counts and sums, no value for MIN and MAX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.model.expression import Column, Expression, columns, rewrite, walk
from millstream.model.group import Measure

IntArray = npt.NDArray[np.int64]
Matrix = npt.NDArray[Any]

# Half of what an int64 holds: estimates in doubles are safe up to here, and two such counts can be added.
MOST_ROWS = 1 << 62
# A query's row of so many columns stays in the first cache, so that picking from it costs less than turning the matrix.
NARROW = 1 << 12
# Pairs whose expressions are evaluated in one go: their columns take some tens of MB.
EVALUATED_TOGETHER = 1 << 20


class Computes(Protocol):
    """What relations need of the expression evaluator."""

    def evaluate(self, table: pa.Table, expressions: Sequence[Expression]) -> list[pa.Array]: ...


class TooManyPairs(Exception):
    """A join would pair more columns than allowed."""

    code = "LIMIT_EXCEEDED"

    def __init__(self, pairs: int, limit: int) -> None:
        super().__init__(f"a join pairs {pairs} combinations of values, more than the limit of {limit}")
        self.pairs = pairs
        self.limit = limit

    def __reduce__(self) -> tuple[type[TooManyPairs], tuple[int, int]]:
        return type(self), (self.pairs, self.limit)


class TooManyRows(OverflowError):
    """Joins of so many rows that they cannot be counted; ``queries`` are the places of the queries concerned."""

    def __init__(self, queries: tuple[int, ...]) -> None:
        super().__init__(f"the join has 2^62 rows or more for {len(queries)} of the queries")
        self.queries = queries

    def __reduce__(self) -> tuple[type[TooManyRows], tuple[tuple[int, ...]]]:
        return type(self), (self.queries,)


@dataclass(frozen=True)
class Relation:
    """``attributes`` and the arguments of ``measures`` are expressions over columns named by leg. No two columns have
    the same attributes.

    Planes are those of ``aggregate.plane_kinds``; a count that equals the number of rows is ``rows`` itself.
    ``values`` are the values behind the ranks of a MIN or MAX over text, in order.
    """

    attributes: dict[Expression, pa.Array]
    rows: Matrix
    measures: dict[Measure, tuple[Matrix, ...]]
    values: dict[Measure, pa.Array] = field(default_factory=dict)

    @property
    def queries(self) -> int:
        return int(self.rows.shape[0])

    @property
    def columns(self) -> int:
        return int(self.rows.shape[1])


def total_rows(relation: Relation) -> IntArray:
    """The number of rows of each query; raises TooManyRows where that is 2^62 or more."""
    check_rows(relation.rows.sum(axis=1, dtype=np.float64)[:, None])
    total: IntArray = relation.rows.sum(axis=1, dtype=np.int64)
    return total


def check_rows(estimate: Matrix) -> None:
    """Raise for the queries with a number of rows, estimated in doubles, that is too large."""
    over = (estimate >= MOST_ROWS).any(axis=1)
    if over.any():
        raise TooManyRows(tuple(int(query) for query in np.flatnonzero(over)))


def pick(matrix: Matrix, columns: IntArray) -> Matrix:
    """Some columns of a matrix."""
    if matrix.flags.c_contiguous and matrix.shape[1] <= NARROW:
        return matrix.take(columns, axis=1)
    picked: Matrix = np.ascontiguousarray(matrix.T).take(columns, axis=0)
    return picked.T


def only(relation: Relation, columns: IntArray) -> Relation:
    """Some columns of a relation."""
    at = pa.array(columns)
    return _picked(relation, columns, {e: array.take(at) for e, array in relation.attributes.items()})


def _picked(relation: Relation, columns: IntArray, attributes: dict[Expression, pa.Array]) -> Relation:
    rows = pick(relation.rows, columns)
    measures = {
        measure: (rows,) if planes[0] is relation.rows else tuple(pick(plane, columns) for plane in planes)
        for measure, planes in relation.measures.items()
    }
    return Relation(attributes, rows, measures, relation.values)


@dataclass(frozen=True)
class Pairs:
    """Paired columns of two relations: pair i is column ``left_at[i]`` of the left with ``right_at[i]`` of the right
    (None: column i). Without a right the pairs are the columns of the left."""

    left: Relation
    right: Relation | None
    left_at: IntArray | None
    right_at: IntArray | None
    count: int

    @classmethod
    def single(cls, relation: Relation) -> Pairs:
        return cls(relation, None, None, None, relation.columns)

    def __contains__(self, expression: object) -> bool:
        return expression in self.left.attributes or (self.right is not None and expression in self.right.attributes)

    def attribute(self, expression: Expression) -> pa.Array:
        if expression in self.left.attributes:
            return _take(self.left.attributes[expression], self.left_at, self.count)
        assert self.right is not None
        return _take(self.right.attributes[expression], self.right_at, self.count)

    def straightened(self) -> Pairs:
        """The same without attributes, each side's columns picked beforehand where that is cheap."""
        if self.count > NARROW or (self.left_at is None and self.right_at is None):
            return self
        left = self.left if self.left_at is None else _picked(self.left, self.left_at, {})
        right = self.right
        if right is not None and self.right_at is not None:
            right = _picked(right, self.right_at, {})
        return Pairs(left, right, None, None, self.count)

    def part(self, at: IntArray | slice) -> Pairs:
        """Some of the pairs."""
        numbers = np.arange(self.count)[at]
        left = numbers if self.left_at is None else self.left_at[at]
        right = None if self.right is None else numbers if self.right_at is None else self.right_at[at]
        return Pairs(self.left, self.right, left, right, len(numbers))

    def evaluate(self, expressions: Sequence[Expression], evaluator: Computes | None) -> list[pa.Array]:
        """The values of expressions over attributes, for each pair."""
        if all(expression in self for expression in expressions):
            return [self.attribute(expression) for expression in expressions]
        if evaluator is None:
            raise ValueError("expressions over attributes need an evaluator")
        if self.count <= EVALUATED_TOGETHER:
            return self._evaluate(expressions, evaluator)
        starts = range(0, self.count, EVALUATED_TOGETHER)
        parts = [self.part(slice(at, at + EVALUATED_TOGETHER))._evaluate(expressions, evaluator) for at in starts]
        return [pa.concat_arrays(arrays) for arrays in zip(*parts, strict=True)]

    def _evaluate(self, expressions: Sequence[Expression], evaluator: Computes) -> list[pa.Array]:
        names: dict[Expression, str] = {}

        def named(node: Expression) -> Expression | None:
            return Column(names.setdefault(node, f"#{len(names)}"), node.type) if node in self else None

        inner = [rewrite(expression, named) for expression in expressions]
        missing = {name for expression in inner for name in columns(expression)} - set(names.values())
        if missing:
            raise ValueError(f"no attribute of the relations gives {', '.join(sorted(missing))}")
        table = {name: self.attribute(node) for node, name in names.items()}
        return evaluator.evaluate(pa.table(table or {"#row": pa.nulls(self.count, pa.int8())}), inner)


def _take(array: pa.Array, at: IntArray | None, count: int) -> pa.Array:
    return array if at is None else array.take(pa.array(at)) if len(array) else pa.nulls(count, array.type)


def attributes_in(expression: Expression, known: Callable[[Expression], bool]) -> list[Expression]:
    """The largest parts of an expression that are attributes."""
    found: dict[Expression, None] = {}

    def note(node: Expression) -> Expression | None:
        if known(node):
            found[node] = None
            return node
        return None

    rewrite(expression, note)
    return list(found)


def without_columns(expressions: Iterable[Expression], evaluator: Computes) -> dict[Expression, pa.Array]:
    """What expressions are for a source that an outer join left unmatched: all its columns are NULL. Most are NULL
    themselves, ``coalesce(x, 0)`` is not."""
    wanted = list(dict.fromkeys(expressions))
    plain: dict[Expression, pa.Array] = {e: pa.nulls(1, e.type.arrow) for e in wanted if isinstance(e, Column)}
    calls = [e for e in wanted if e not in plain]
    if not calls:
        return plain
    read = {node.name: node.type for e in calls for node in walk(e) if isinstance(node, Column)}
    table = {name: pa.nulls(1, type_.arrow) for name, type_ in read.items()} or {"#row": pa.nulls(1, pa.int8())}
    return plain | dict(zip(calls, evaluator.evaluate(pa.table(table), calls), strict=True))
