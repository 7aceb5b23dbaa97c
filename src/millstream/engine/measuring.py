"""How much a query has in its next window: counted in the buckets as they are now, for explanations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.engine.buckets import Stored
from millstream.engine.registry import Registry
from millstream.kernels import bucket
from millstream.kernels.evaluate import Evaluator
from millstream.kernels.keys import align
from millstream.kernels.relation import Computes, Relation, TooManyPairs, TooManyRows, total_rows
from millstream.kernels.relation_tree import evaluate_tree
from millstream.kernels.stack import slice_id
from millstream.model.expression import Column, Expression
from millstream.model.join import JoinQuery, Tree, leaves_of, leg_column, legs_of
from millstream.model.query import WINDOW_END, WINDOW_START, WindowSpec
from millstream.model.types import DataType
from millstream.runtime.home import Home
from millstream.runtime.loading import load_group

# Somebody waits for an explanation: so many cells are counted, and combinations of values paired, in some tenths of a
# second.
MOST_CELLS = 2_000_000
MOST_PAIRS = 2_000_000
# Of the rows that a condition other than equality meets, the part that optimizers expect it to keep when they know
# nothing of it.
SELECTIVITY = 1 / 3

Span = tuple[int, int]


@dataclass(frozen=True)
class Part:
    """What one source has of a query in a window: rows in ``runs`` cells, by attribute in ``relation``."""

    runs: int
    relation: Relation

    @property
    def rows(self) -> int:
        return int(self.relation.rows.sum())


def next_window(window: WindowSpec, fired_to: int | None, stored: Iterable[Stored]) -> Span | None:
    """The first window that some bucket lies in and that has not fired; None when there is none."""
    if fired_to is None:
        return None
    starts = [one.bucket.start for one in stored if one.bucket.end > fired_to]
    if not starts:
        return None
    end = window.end_after(max(fired_to, min(starts)))
    return end - window.size, end


def part_of(
    home: Home,
    registry: Registry,
    stored: Sequence[Stored],
    member: str,
    attributes: Sequence[Expression],
    span: Span,
) -> Part:
    """Count a member of groups in a window."""
    found = [one for one in (_cells(home, registry, s, member) for s in stored if _inside(s, span)) if one is not None]
    if not found:
        empty: dict[Expression, pa.Array] = {e: pa.nulls(0, e.type.arrow) for e in attributes}
        return Part(0, Relation(empty, np.zeros((1, 0 if attributes else 1), np.int64), {}))
    numbers, keys, count = align([cells.keys for cells, _ in found], len(attributes))
    rows = np.zeros((1, count), np.int64)
    for number, (cells, mine) in zip(numbers, found, strict=True):
        np.add.at(rows[0], number[cells.key[mine]], cells.rows[mine])
    runs = sum(len(mine) for _, mine in found)
    return Part(runs, Relation(dict(zip(attributes, keys, strict=True)), rows, {}))


def _inside(one: Stored, span: Span) -> bool:
    late = slice_id(one.bucket.start, one.bucket.end, one.watermark)[2]
    return span[0] <= one.bucket.start and one.bucket.end <= span[1] and (late is None or late < span[1])


def _cells(home: Home, registry: Registry, one: Stored, member: str) -> tuple[bucket.Cells, bucket.IntArray] | None:
    """A bucket, and which of its cells are the member's; None when its version did not have the member."""
    b = one.bucket
    group = load_group(home, registry.path(b.group, b.version))
    position = group.position.get(member)
    if position is None or b.lost is not None:
        return None
    data = home.open(one.path).checked(b.offset, b.body or b.length, b.checksum)
    cells = bucket.decode(data, len(group.version.measures))
    return cells, np.flatnonzero(group.labels[position][cells.label] & (cells.rows > 0))


class LazyEvaluator:
    """Opens its database, which takes longer than most explanations, for the first expression that needs it."""

    def __init__(self) -> None:
        self._made: Evaluator | None = None

    def evaluate(self, table: pa.Table, expressions: Sequence[Expression]) -> list[pa.Array]:
        self._made = self._made or Evaluator()
        return self._made.evaluate(table, expressions)

    def close(self) -> None:
        if self._made is not None:
            self._made.close()


def joined_rows(
    query: JoinQuery, tree: Tree, parts: Sequence[Part], span: Span, time: DataType, evaluator: Computes
) -> int | None:
    """The rows of a join of the query's tree in a window; None where counting them would take long."""
    relations = [_with_window(part.relation, leg, span, time) for leg, part in enumerate(parts)]
    where = query.where if tree == query.tree else None
    try:
        result = evaluate_tree(tree, relations, (), where, evaluator, MOST_PAIRS)
        return int(total_rows(result)[0])
    except (TooManyPairs, TooManyRows):
        return None


def _with_window(relation: Relation, leg: int, span: Span, time: DataType) -> Relation:
    bounds: dict[Expression, pa.Array] = {
        Column(leg_column(leg, name), time): pa.array(np.full(relation.columns, bound)).cast(time.arrow)
        for name, bound in zip((WINDOW_START, WINDOW_END), span, strict=True)
    }
    return Relation({**relation.attributes, **bounds}, relation.rows, {})


def estimated_rows(tree: Tree, parts: Sequence[Part]) -> float:
    """The rows of a join as optimizers estimate them: every key of the side with fewer keys has its match."""
    if isinstance(tree, int):
        return parts[tree].rows
    left, right = estimated_rows(tree.left, parts), estimated_rows(tree.right, parts)
    matches = left * right * (SELECTIVITY if tree.residual is not None else 1.0)
    shares = 1.0
    for one, other in tree.equal:
        mine = _distinct(one, tree.left, left, parts)
        theirs = _distinct(other, tree.right, right, parts)
        matches /= max(mine, theirs, 1.0)
        shares *= min(1.0, theirs / max(mine, 1.0))
    kept = left * shares if right else 0.0
    return {
        "inner": matches,
        "left": max(matches, left),
        "right": max(matches, right),
        "full": max(matches, left, right),
        "semi": kept,
        "anti": left - kept,
    }[tree.kind]


def _distinct(expression: Expression, tree: Tree, rows: float, parts: Sequence[Part]) -> float:
    """Distinct values of an expression on one side of a join: known where it is an attribute of a source."""
    for leg in legs_of(expression) & set(leaves_of(tree)):
        column = parts[leg].relation.attributes.get(expression)
        if column is not None:
            return min(rows, float(pc.count_distinct(column).as_py()))
    return rows
