"""Sums over paired columns: matrices are multiplied pair by pair and added up by group, in blocks.

pairs sorted by group    p0 p1 p2 | p3 | p4 p5 …       rows       left · right
blocks of pairs          |--------|------|-------      sums       plane · rows of the other side
totals by group          g0       | g1 | g2            extrema    plane where the other side has rows
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millstream.kernels.aggregate import identity, plane_kinds, reducer
from millstream.kernels.relation import MOST_ROWS, Matrix, Pairs, check_rows
from millstream.kernels.relation_limbs import MOST_LIMBS, exact, fitted, product
from millstream.model.group import Measure

IntArray = npt.NDArray[np.int64]

# A block's matrices stay in the processor's cache: measured with 500 queries, 1 and 2 MB cost a third of 32 MB.
BLOCK_BYTES = 1 << 21


@dataclass(frozen=True)
class Groups:
    """Which pairs are added up: taken in ``order`` (None: as they are), group i begins at ``starts[i]`` (None: each
    pair is a group)."""

    order: IntArray | None
    starts: IntArray | None
    count: int

    @classmethod
    def apart(cls, pairs: int) -> Groups:
        return cls(None, None, pairs)

    @classmethod
    def together(cls) -> Groups:
        return cls(None, np.zeros(1, np.int64), 1)

    @classmethod
    def of(cls, codes: IntArray, count: int) -> Groups:
        """Groups by number; every number occurs."""
        order = None if (codes[1:] >= codes[:-1]).all() else np.argsort(codes, kind="stable")
        sizes = np.bincount(codes, minlength=count)
        return cls(order, np.cumsum(sizes) - sizes, count)

    def largest(self, pairs: int) -> int:
        return 1 if self.starts is None else int(np.diff(self.starts, append=pairs).max(initial=0))


@dataclass(frozen=True)
class _Block:
    """Neighbouring pairs: where their columns are, and the groups ``first`` to ``last`` they belong to, which begin at
    ``starts`` inside the block."""

    left_at: IntArray | slice
    right_at: IntArray | slice
    pair_at: IntArray | slice
    starts: IntArray | None
    first: int
    last: int


@dataclass(frozen=True)
class _Plan:
    """Pairs in the order of their groups, and how large the numbers can become."""

    groups: Groups
    left_at: IntArray | None
    right_at: IntArray | None
    pairs: int
    queries: int
    most_left: int
    most_right: int
    largest_group: int
    # Whether the columns of both sides are paired as they are: matrices can then stay as they lie in memory.
    straight: bool
    # Whether the result lies query by query too.
    by_query: bool

    @classmethod
    def of(cls, pairs: Pairs, groups: Groups) -> _Plan:
        straight = all(at is None for at in (pairs.left_at, pairs.right_at, groups.order))
        return cls(
            groups,
            _ordered(pairs.left_at, groups.order),
            _ordered(pairs.right_at, groups.order),
            pairs.count,
            pairs.left.queries,
            int(pairs.left.rows.max(initial=0)),
            1 if pairs.right is None else int(pairs.right.rows.max(initial=0)),
            groups.largest(pairs.count),
            straight,
            straight and groups.starts is None and pairs.left.rows.flags.c_contiguous,
        )

    def blocks(self) -> Iterator[_Block]:
        width = max(1, BLOCK_BYTES // (8 * max(1, self.queries)))
        starts = self.groups.starts
        for begin in range(0, self.pairs, width):
            span = slice(begin, min(begin + width, self.pairs))
            first, last, inside = span.start, span.stop, None
            if starts is not None:
                first = int(np.searchsorted(starts, span.start, side="right")) - 1
                last = int(np.searchsorted(starts, span.stop, side="left"))
                inside = np.maximum(starts[first:last] - span.start, 0)
            order = self.groups.order
            yield _Block(_at(self.left_at, span), _at(self.right_at, span), _at(order, span), inside, first, last)


def _ordered(at: IntArray | None, order: IntArray | None) -> IntArray | None:
    return at if order is None else order if at is None else at[order]


def _at(at: IntArray | None, span: slice) -> IntArray | slice:
    return span if at is None else at[span]


def _laid_out(matrix: Matrix, plan: _Plan) -> Matrix:
    """(columns, queries), copied only where columns will be picked out of order."""
    return matrix.T if plan.straight else np.ascontiguousarray(matrix.T)


def _pick(matrix: Matrix, at: IntArray | slice) -> Matrix:
    return matrix[at] if isinstance(at, slice) else matrix.take(at, axis=0)


@dataclass(frozen=True)
class _Counts:
    """The rows of a block's pairs on each side and in all; the planes of a side are multiplied by the other's rows."""

    left: Matrix
    right: Matrix | None
    both: Matrix


class _Total:
    """A plane of the result, as (groups, queries)."""

    def __init__(self, kind: str, dtype: type, plan: _Plan) -> None:
        self._ufunc: np.ufunc = reducer(kind) if kind in ("min", "max") else np.add
        groups, queries = plan.groups.count, plan.queries
        by_query = plan.by_query
        self._plane = nothing(kind, dtype, (queries, groups)).T if by_query else nothing(kind, dtype, (groups, queries))

    def place(self, block: _Block) -> Matrix | None:
        """Where a part of the result can be written at once, since nothing is added up."""
        return self._plane[block.first : block.last] if block.starts is None else None

    def add(self, part: Matrix, block: _Block) -> None:
        target = self._plane[block.first : block.last]
        if block.starts is None:
            if not np.may_share_memory(part, target):
                target[...] = part
            return
        with np.errstate(invalid="ignore"):  # NaN is a value here
            if len(block.starts) == 1:
                reduced = self._ufunc.reduce(part, axis=0, keepdims=True)
            else:
                reduced = self._ufunc.reduceat(part, block.starts, axis=0)
            self._ufunc(target, reduced, out=target)

    @property
    def matrix(self) -> Matrix:
        return self._plane.T


def nothing(kind: str, dtype: type, shape: tuple[int, ...]) -> Matrix:
    """The plane of no rows."""
    if kind in ("min", "max"):
        return identity(kind, dtype, math.prod(shape)).reshape(shape)
    return np.zeros(shape, dtype)


class _Term:
    """A measure on its way through the blocks. ``side`` says which of the pair has its planes: left, right, or the pair
    itself, whose planes are one row for all queries."""

    def __init__(self, measure: Measure, side: str, planes: tuple[Matrix, ...], plan: _Plan) -> None:
        counts = {"left": plan.most_right, "right": plan.most_left, "pair": plan.most_left * plan.most_right}[side]
        kinds, plain = plane_kinds(measure, len(planes)), True
        if exact(measure):
            planes, plain = fitted(planes, counts * plan.largest_group)
            kinds = ("add",) * (len(planes) if plain else MOST_LIMBS)
        self._side, self._kinds, self._plain = side, kinds, plain
        self._planes = [_laid_out(plane, plan) for plane in planes]
        types = [plane.dtype.type for plane in planes] + [np.int64] * (len(kinds) - len(planes))
        self._totals = [_Total(kind, type_, plan) for kind, type_ in zip(kinds, types, strict=True)]

    def add(self, block: _Block, rows: _Counts) -> None:
        at = {"left": block.left_at, "right": block.right_at, "pair": block.pair_at}[self._side]
        counts = {"left": rows.right, "right": rows.left, "pair": rows.both}[self._side]
        picked = [_pick(plane, at) for plane in self._planes]
        if counts is not None and not self._plain:
            for total, part in zip(self._totals, product(picked, counts), strict=True):
                total.add(part, block)
            return
        for total, kind, plane in zip(self._totals, self._kinds, picked, strict=False):
            total.add(plane if counts is None else _times(kind, plane, counts, total.place(block)), block)

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        return tuple(total.matrix for total in self._totals)


def _times(kind: str, plane: Matrix, counts: Matrix, out: Matrix | None) -> Matrix:
    if kind in ("min", "max"):
        return np.where(counts > 0, plane, identity(kind, plane.dtype.type, 1)[0])
    with np.errstate(over="ignore", invalid="ignore"):
        scaled: Matrix = np.multiply(plane, counts, out=out)
        if kind == "fadd" and np.isnan(scaled.sum()):
            # A sum of doubles that has overflowed must not become NaN where there are no rows.
            scaled[counts == 0] = 0.0
    return scaled


@dataclass(frozen=True)
class Sums:
    rows: Matrix
    measures: dict[Measure, tuple[Matrix, ...]]


def add_up(pairs: Pairs, groups: Groups, derived: dict[Measure, tuple[Matrix, ...]]) -> Sums:
    """Rows and measures of the groups. ``derived`` are planes of measures over the pairs themselves, of one row, as if
    each pair were one row."""
    plan = _Plan.of(pairs, groups)
    terms = _terms(pairs, plan, derived)
    total = _Total("add", np.int64, plan)
    risky = plan.most_left * plan.most_right * plan.largest_group >= MOST_ROWS
    estimate = _Total("fadd", np.float64, plan) if risky else None
    for block, rows in _counts(pairs, plan, total):
        total.add(rows.both, block)
        if estimate is not None:
            estimate.add(rows.left * (1.0 if rows.right is None else rows.right.astype(np.float64)), block)
        for term in terms.values():
            if term is not None:
                term.add(block, rows)
    if estimate is not None:
        check_rows(estimate.matrix)
    matrix = total.matrix
    return Sums(matrix, {m: (matrix,) if term is None else term.matrices for m, term in terms.items()})


def _terms(pairs: Pairs, plan: _Plan, derived: dict[Measure, tuple[Matrix, ...]]) -> dict[Measure, _Term | None]:
    """The measures of both sides and of the pairs; None for a count that equals the number of rows."""
    terms: dict[Measure, _Term | None] = {}
    for side, relation in (("left", pairs.left), ("right", pairs.right)):
        if relation is not None:
            for measure, planes in relation.measures.items():
                terms[measure] = None if planes[0] is relation.rows else _Term(measure, side, planes, plan)
    return terms | {measure: _Term(measure, "pair", planes, plan) for measure, planes in derived.items()}


def _counts(pairs: Pairs, plan: _Plan, total: _Total) -> Iterator[tuple[_Block, _Counts]]:
    left_rows = _laid_out(pairs.left.rows, plan)
    right_rows = None if pairs.right is None else _laid_out(pairs.right.rows, plan)
    for block in plan.blocks():
        left = _pick(left_rows, block.left_at)
        right = None if right_rows is None else _pick(right_rows, block.right_at)
        both = left if right is None else np.multiply(left, right, out=total.place(block))
        yield block, _Counts(left, right, both)
