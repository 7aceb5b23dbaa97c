"""Joins of two relations, of every kind, for all queries at once.

Columns are paired by what is equal, rows never: a query's joined rows in a pair are the product of its rows on both
sides. Which columns have no match differs from query to query, because queries select different rows:

    left column      k=1   k=2   k=3        rows of query q:   2   1   4
    right column     k=1   k=2              rows of query q:   3   0
    inner            2·3   1·0              left, unmatched:       1   4
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.keys import code_keys
from millstream.kernels.relation import (
    Computes,
    Pairs,
    Relation,
    TooManyPairs,
    attributes_in,
    only,
    pick,
    without_columns,
)
from millstream.kernels.relation_group import group, reduce, true_of, union
from millstream.model.expression import Expression
from millstream.model.group import Measure
from millstream.model.join import JOIN_KINDS

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Equal = Sequence[tuple[Expression, Expression]]

# Pairs looked at together when it is found out which columns have a match: as Booleans, some MB at 500 queries.
_MATCHED_TOGETHER = 1 << 14
# Pairs looked at together when it is found out which have a query in common: as bits, some MB at 500 queries.
_TESTED_TOGETHER = 1 << 16


def join(
    left: Relation,
    right: Relation,
    kind: str,
    equal: Equal,
    residual: Expression | None,
    keep: Iterable[Expression],
    evaluator: Computes,
    limit: int,
    derived: Sequence[Measure] = (),
) -> Relation:
    """Join where attributes are equal (the first of each pair is the left's) and ``residual`` is TRUE.

    ``keep`` are the attributes of the result: attributes of either side, or expressions over them. ``derived`` are
    measures whose arguments are expressions over the attributes of both sides. NULL equals nothing. Raises
    TooManyPairs if more than ``limit`` columns would be paired.
    """
    if kind not in JOIN_KINDS:
        raise ValueError(f"unknown join {kind!r}; known: {', '.join(JOIN_KINDS)}")
    wanted = tuple(dict.fromkeys(keep))
    above = (*wanted, *(measure.argument for measure in derived))
    left = _project(left, [a for a, _ in equal], residual, above, evaluator)
    if kind in ("semi", "anti"):
        right = _project(replace(right, measures={}), [b for _, b in equal], residual, (), evaluator)
    else:
        right = _project(right, [b for _, b in equal], residual, above, evaluator)
    pairs = _match(left, right, equal, residual, evaluator, limit)
    if kind in ("semi", "anti"):
        matched = _matched(pairs.left_at, pairs.right_at, pairs.count, left, right)
        return reduce(_masked(left, matched if kind == "semi" else ~matched), wanted, derived, evaluator)
    parts = [reduce(pairs, wanted, derived, evaluator)]
    parts += _unmatched(_Outer(pairs, wanted, tuple(derived), evaluator), kind)
    return union(parts)


def _project(
    side: Relation,
    equal: Sequence[Expression],
    residual: Expression | None,
    above: Sequence[Expression],
    evaluator: Computes,
) -> Relation:
    """One side with no more attributes than this join and those above it need."""
    needed = dict.fromkeys(equal)
    for expression in (*above, *([] if residual is None else [residual])):
        needed.update(dict.fromkeys(attributes_in(expression, side.attributes.__contains__)))
    return group(side, needed, evaluator)


def pair_count(left: Relation, right: Relation, equal: Equal) -> int:
    """How many columns a join would pair."""
    left_codes, right_codes, count = _codes(left, right, equal)
    here = np.bincount(left_codes[left_codes >= 0], minlength=count)
    there = np.bincount(right_codes[right_codes >= 0], minlength=count)
    return int(here @ there)


def _codes(left: Relation, right: Relation, equal: Equal) -> tuple[IntArray, IntArray, int]:
    """One numbering for the values of both sides; -1 where one of them is NULL."""
    if not equal:
        return np.zeros(left.columns, np.int64), np.zeros(right.columns, np.int64), 1
    merged = [pa.concat_arrays([left.attributes[a], right.attributes[b]]) for a, b in equal]
    keys = code_keys(merged, left.columns + right.columns)
    codes = keys.codes
    for column in merged:
        if column.null_count:
            codes = np.where(np.asarray(column.is_null()), -1, codes)
    return codes[: left.columns], codes[left.columns :], keys.count


def _match(
    left: Relation, right: Relation, equal: Equal, residual: Expression | None, evaluator: Computes, limit: int
) -> Pairs:
    left_codes, right_codes, count = _codes(left, right, equal)
    sizes = np.bincount(right_codes[right_codes >= 0], minlength=count)
    if sizes.max(initial=0) <= 1:
        pairs = _look_up(left, right, left_codes, right_codes, count)
    else:
        matches = np.where(left_codes < 0, 0, sizes[left_codes])
        _check(int(matches.sum()), limit)
        pairs = _expand(left, right, left_codes, right_codes, sizes, matches)
    _check(pairs.count, limit)
    if pairs.count > left.columns + right.columns:
        pairs = _shared(pairs)
    if residual is None or not pairs.count:
        return pairs
    kept = true_of(pairs.evaluate([residual], evaluator)[0])
    return pairs if kept.all() else pairs.part(np.flatnonzero(kept))


def _check(pairs: int, limit: int) -> None:
    if pairs > limit:
        raise TooManyPairs(pairs, limit)


def _look_up(left: Relation, right: Relation, left_codes: IntArray, right_codes: IntArray, count: int) -> Pairs:
    """Pairs where no two columns of the right are equal: the matrices of the left stay as they are if all match."""
    place = np.full(count + 1, -1, np.int64)
    known = np.flatnonzero(right_codes >= 0)
    place[right_codes[known]] = known
    right_at = place[left_codes]
    left_at: IntArray | None = None
    if (right_at < 0).any():
        left_at = np.flatnonzero(right_at >= 0)
        right_at = right_at[left_at]
    pairs = len(right_at)
    same = pairs == right.columns and bool((right_at == np.arange(pairs)).all())
    return Pairs(left, right, left_at, None if same else right_at, pairs)


def _expand(
    left: Relation, right: Relation, left_codes: IntArray, right_codes: IntArray, sizes: IntArray, matches: IntArray
) -> Pairs:
    """Pairs in the order of the left: each of its columns with the run of equal columns of the right."""
    order = np.argsort(right_codes, kind="stable")[int((right_codes < 0).sum()) :]
    start = (np.cumsum(sizes) - sizes)[left_codes]
    left_at = np.repeat(np.arange(left.columns), matches)
    inside = np.arange(len(left_at)) - np.repeat(np.cumsum(matches) - matches, matches)
    return Pairs(left, right, left_at, order[np.repeat(start, matches) + inside], len(left_at))


def _shared(pairs: Pairs) -> Pairs:
    """The pairs in which some query has rows on both sides; told by one bit for each query, a hundredth of the cost of
    adding a pair up."""
    assert pairs.right is not None
    assert pairs.left_at is not None
    assert pairs.right_at is not None
    left, right = (np.packbits((side.rows > 0).T, axis=1) for side in (pairs.left, pairs.right))
    kept = np.empty(pairs.count, np.bool_)
    for begin in range(0, pairs.count, _TESTED_TOGETHER):
        span = slice(begin, begin + _TESTED_TOGETHER)
        kept[span] = (left.take(pairs.left_at[span], axis=0) & right.take(pairs.right_at[span], axis=0)).any(axis=1)
    return pairs if kept.all() else pairs.part(np.flatnonzero(kept))


def _matched(mine: IntArray | None, other: IntArray | None, count: int, side: Relation, partner: Relation) -> BoolArray:
    """For each query, the columns of a side that are paired with a column in which the query has rows."""
    matched = np.zeros((side.columns, side.queries), np.bool_)
    present = np.ascontiguousarray((partner.rows > 0).T)
    here = np.arange(count) if mine is None else mine
    there = np.arange(count) if other is None else other
    if len(here) > 1 and not (here[1:] >= here[:-1]).all():
        order = np.argsort(here, kind="stable")
        here, there = here[order], there[order]
    for begin in range(0, count, _MATCHED_TOGETHER):
        at = here[begin : begin + _MATCHED_TOGETHER]
        starts = np.flatnonzero(np.diff(at, prepend=-1))
        found = present.take(there[begin : begin + _MATCHED_TOGETHER], axis=0)
        if len(starts) < len(at):
            found = np.logical_or.reduceat(found, starts, axis=0)
        matched[at[starts]] |= found
    return matched.T


def _masked(relation: Relation, mask: BoolArray) -> Pairs:
    """A relation with the rows of some columns only, different ones for each query: joined with 0 or 1 rows."""
    columns = np.flatnonzero((mask & (relation.rows > 0)).any(axis=0))
    if len(columns) < relation.columns:
        relation, mask = only(relation, columns), pick(mask, columns)
    return Pairs(relation, Relation({}, mask.astype(np.int64), {}), None, None, relation.columns)


@dataclass(frozen=True)
class _Outer:
    """What the unmatched rows of an outer join need."""

    pairs: Pairs
    keep: tuple[Expression, ...]
    derived: tuple[Measure, ...]
    evaluator: Computes


def _unmatched(outer: _Outer, kind: str) -> list[Relation]:
    pairs = outer.pairs
    assert pairs.right is not None
    parts: list[Relation | None] = []
    if kind in ("left", "full"):
        matched = _matched(pairs.left_at, pairs.right_at, pairs.count, pairs.left, pairs.right)
        parts.append(_alone(outer, pairs.left, matched, pairs.right))
    if kind in ("right", "full"):
        matched = _matched(pairs.right_at, pairs.left_at, pairs.count, pairs.right, pairs.left)
        parts.append(_alone(outer, pairs.right, matched, pairs.left))
    return [part for part in parts if part is not None]


def _alone(outer: _Outer, side: Relation, matched: BoolArray, missing: Relation) -> Relation | None:
    """The unmatched rows of one side, with what the expressions of the missing side are when its columns are NULL."""
    masked = _masked(side, ~matched)
    if not masked.count:
        return None
    arguments = [measure.argument for measure in missing.measures]
    absent = without_columns((*missing.attributes, *arguments), outer.evaluator)
    # Most measures of the missing side have only NULLs here, and no planes are needed for them.
    known = [m for m in missing.measures if absent[m.argument][0].is_valid]
    constants = {*missing.attributes, *(measure.argument for measure in known)}
    added = {e: _constant(absent[e], masked.count) for e in constants}
    extended = replace(masked.left, attributes=masked.left.attributes | added)
    return reduce(replace(masked, left=extended), outer.keep, (*known, *outer.derived), outer.evaluator)


def _constant(value: pa.Array, count: int) -> pa.Array:
    return pa.repeat(value[0], count)
