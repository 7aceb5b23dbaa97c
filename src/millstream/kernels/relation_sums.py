"""Sums over paired columns: matrices are multiplied pair by pair and added up by group, in blocks.

pairs sorted by group    p0 p1 p2 | p3 | p4 p5 …       rows       left · right
blocks of pairs          |--------|------|-------      sums       plane · rows of the other side
totals by group          g0       | g1 | g2            extrema    plane where the other side has rows
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millstream.kernels.aggregate import identity, plane_kinds, reducer
from millstream.kernels.relation import MOST_ROWS, Matrix, Pairs, check_rows, largest
from millstream.kernels.relation_limbs import MOST_LIMBS, fitted, product
from millstream.model.group import Measure

IntArray = npt.NDArray[np.int64]

# A block's matrices stay in the processor's cache; measured with 500 queries, 1 MB to 4 MB are alike, 32 MB cost half
# as much again.
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


def _blocks(pairs: Pairs, groups: Groups, width: int) -> Iterator[_Block]:
    order = groups.order
    left_at = _ordered(pairs.left_at, order)
    right_at = _ordered(pairs.right_at, order)
    for begin in range(0, pairs.count, width):
        span = slice(begin, min(begin + width, pairs.count))
        first, last, starts = span.start, span.stop, None
        if groups.starts is not None:
            first = int(np.searchsorted(groups.starts, span.start, side="right")) - 1
            last = int(np.searchsorted(groups.starts, span.stop, side="left"))
            starts = np.maximum(groups.starts[first:last] - span.start, 0)
        yield _Block(_at(left_at, span), _at(right_at, span), _at(order, span), starts, first, last)


def _ordered(at: IntArray | None, order: IntArray | None) -> IntArray | None:
    return at if order is None else order if at is None else at[order]


def _at(at: IntArray | None, span: slice) -> IntArray | slice:
    return span if at is None else at[span]


def _pick(matrix: Matrix, at: IntArray | slice) -> Matrix:
    return matrix[:, at] if isinstance(at, slice) else matrix.take(at, axis=1)


@dataclass(frozen=True)
class _Scaled:
    """The rows of a block's pairs, of each side and of both; a side's planes are multiplied by those of the other."""

    block: _Block
    left: Matrix
    right: Matrix | None
    both: Matrix


class _Total:
    """A plane of the result."""

    def __init__(self, kind: str, dtype: type, shape: tuple[int, int]) -> None:
        self.kind = kind
        if kind in ("min", "max"):
            self.plane: Matrix = identity(kind, dtype, shape[0] * shape[1]).reshape(shape)
        else:
            self.plane = np.zeros(shape, dtype)

    def add(self, part: Matrix, block: _Block) -> None:
        target = self.plane[:, block.first : block.last]
        if block.starts is None:
            target[...] = part
            return
        ufunc: np.ufunc = reducer(self.kind) if self.kind in ("min", "max") else np.add
        with np.errstate(invalid="ignore"):  # NaN is a value here
            reduced = (
                part.sum(axis=1, keepdims=True) if self._plain(block) else ufunc.reduceat(part, block.starts, axis=1)
            )
            ufunc(target, reduced, out=target)

    def _plain(self, block: _Block) -> bool:
        assert block.starts is not None
        return len(block.starts) == 1 and self.kind not in ("min", "max")


class _Term:
    """A measure on its way through the blocks. ``side`` says which of the pair has its planes: left, right, or the pair
    itself, whose planes are one row for all queries."""

    def __init__(
        self, measure: Measure, side: str, planes: tuple[Matrix, ...], factor: int, shape: tuple[int, int]
    ) -> None:
        self.side = side
        self.kinds = plane_kinds(measure, len(planes))
        self.planes, self.plain = planes, True
        if _exact(measure):
            self.planes, self.plain = fitted(planes, factor)
            self.kinds = ("add",) * (len(self.planes) if self.plain else MOST_LIMBS)
        types = [plane.dtype.type for plane in self.planes]
        types += [np.int64] * (len(self.kinds) - len(types))
        self.totals = [_Total(kind, type_, shape) for kind, type_ in zip(self.kinds, types, strict=True)]

    def add(self, scaled: _Scaled) -> None:
        block = scaled.block
        at, counts = {
            "left": (block.left_at, scaled.right),
            "right": (block.right_at, scaled.left),
            "pair": (block.pair_at, scaled.both),
        }[self.side]
        picked = [_pick(plane, at) for plane in self.planes]
        if counts is not None and not self.plain:
            parts = list(product(picked, counts))
        else:
            parts = [_times(kind, plane, counts) for kind, plane in zip(self.kinds, picked, strict=False)]
        for total, part in zip(self.totals, parts, strict=False):
            total.add(part, block)


def _exact(measure: Measure) -> bool:
    return measure.kind == "sum" and not measure.argument.type.floating


def _times(kind: str, plane: Matrix, counts: Matrix | None) -> Matrix:
    if counts is None:
        return plane
    if kind in ("min", "max"):
        return np.where(counts > 0, plane, identity(kind, plane.dtype.type, 1)[0])
    with np.errstate(over="ignore", invalid="ignore"):
        scaled: Matrix = plane * counts
        if kind == "fadd" and np.isnan(scaled.sum()):
            # A sum of doubles that has overflowed must not become NaN where there are no rows.
            scaled[np.broadcast_to(counts == 0, scaled.shape)] = 0.0
    return scaled


@dataclass(frozen=True)
class Sums:
    rows: Matrix
    measures: dict[Measure, tuple[Matrix, ...]]


def add_up(pairs: Pairs, groups: Groups, derived: dict[Measure, tuple[Matrix, ...]]) -> Sums:
    """Rows and measures of the groups. ``derived`` are planes of measures over the pairs themselves, of one row, as if
    each pair were one row."""
    terms = _terms(pairs, groups, derived)
    shape = (pairs.left.queries, groups.count)
    total = _Total("add", np.int64, shape)
    estimate = _Total("fadd", np.float64, shape) if _could_overflow(pairs, groups) else None
    for scaled in _scale(pairs, groups):
        total.add(scaled.both, scaled.block)
        if estimate is not None:
            other = 1.0 if scaled.right is None else scaled.right
            estimate.add(scaled.left.astype(np.float64) * other, scaled.block)
        for term in terms.values():
            if term is not None:
                term.add(scaled)
    if estimate is not None:
        check_rows(estimate.plane)
    found = {m: (total.plane,) if t is None else tuple(one.plane for one in t.totals) for m, t in terms.items()}
    return Sums(total.plane, found)


def _terms(pairs: Pairs, groups: Groups, derived: dict[Measure, tuple[Matrix, ...]]) -> dict[Measure, _Term | None]:
    """The measures of both sides and of the pairs; None for a count that equals the number of rows."""
    left, right = pairs.left, pairs.right
    size, shape = groups.largest(pairs.count), (left.queries, groups.count)
    most_left, most_right = largest(left.rows), 1 if right is None else largest(right.rows)
    terms: dict[Measure, _Term | None] = {}

    def note(side: str, measures: dict[Measure, tuple[Matrix, ...]], rows: Matrix | None, counts: int) -> None:
        for measure, planes in measures.items():
            if measure not in terms:
                same = planes[0] is rows
                terms[measure] = None if same else _Term(measure, side, planes, counts * size, shape)

    note("left", left.measures, left.rows, most_right)
    if right is not None:
        note("right", right.measures, right.rows, most_left)
    note("pair", derived, None, most_left * most_right)
    return terms


def _could_overflow(pairs: Pairs, groups: Groups) -> bool:
    right = 1 if pairs.right is None else largest(pairs.right.rows)
    return largest(pairs.left.rows) * right * groups.largest(pairs.count) >= MOST_ROWS


def _scale(pairs: Pairs, groups: Groups) -> Iterator[_Scaled]:
    width = max(1, BLOCK_BYTES // (8 * max(1, pairs.left.queries)))
    for block in _blocks(pairs, groups, width):
        left = _pick(pairs.left.rows, block.left_at)
        right = None if pairs.right is None else _pick(pairs.right.rows, block.right_at)
        yield _Scaled(block, left, right, left if right is None else left * right)
