"""Relations reduced to fewer attributes, filtered, put together, and measures over several sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.aggregate import identity, plane_kinds, rank, ranked, reducer
from millstream.kernels.batch import LIMB, LIMB_MASK, numbers, words
from millstream.kernels.keys import align, code_keys, take
from millstream.kernels.relation import MOST_ROWS, Computes, Matrix, Pairs, Relation, check_rows, only
from millstream.kernels.relation_limbs import exact, fitted
from millstream.kernels.relation_sums import Groups, add_up, nothing
from millstream.model.expression import Expression
from millstream.model.group import Measure
from millstream.model.types import LONG_DIGITS

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def group(relation: Relation, attributes: Iterable[Expression], evaluator: Computes | None = None) -> Relation:
    """Sum away all other attributes; without any, one column is left. Attributes may also be expressions over those of
    the relation."""
    wanted = tuple(dict.fromkeys(attributes))
    if set(wanted) == set(relation.attributes) and wanted:
        return replace(relation, attributes={e: relation.attributes[e] for e in wanted})
    return reduce(Pairs.single(relation), wanted, (), evaluator)


def where(relation: Relation, condition: Expression, evaluator: Computes) -> Relation:
    """The columns for which a condition over the attributes is TRUE."""
    kept = true_of(Pairs.single(relation).evaluate([condition], evaluator)[0])
    return relation if kept.all() else only(relation, np.flatnonzero(kept))


def derive(relation: Relation, measures: Iterable[Measure], evaluator: Computes) -> Relation:
    """Add measures whose arguments are expressions over the attributes: every row of a column has the same value."""
    pairs = Pairs.single(relation)
    planes, values = _derived(pairs, tuple(measures), evaluator)
    sums = add_up(pairs, Groups.apart(pairs.count), planes)
    return Relation(relation.attributes, sums.rows, sums.measures, relation.values | values)


def true_of(values: pa.Array) -> BoolArray:
    return np.asarray(values.fill_null(False))


def reduce(
    pairs: Pairs, keep: Sequence[Expression], derived: Sequence[Measure], evaluator: Computes | None
) -> Relation:
    """Add up pairs by what is kept, with the measures of both sides and those derived from the pairs."""
    attributes, groups = _group(pairs, keep, evaluator)
    planes, values = _derived(pairs, derived, evaluator)
    sums = add_up(pairs if groups.order is not None else pairs.straightened(), groups, planes)
    known = pairs.left.values | ({} if pairs.right is None else pairs.right.values)
    return Relation(attributes, sums.rows, sums.measures, known | values)


def _group(
    pairs: Pairs, keep: Sequence[Expression], evaluator: Computes | None
) -> tuple[dict[Expression, pa.Array], Groups]:
    """The groups of pairs with equal kept attributes. Attributes of one side are coded there and looked up by number,
    which is cheaper than coding them for every pair."""
    if not keep:
        return {}, Groups.together()
    codes: list[pa.Array] = []
    sources: list[tuple[list[Expression], list[pa.Array]]] = []
    for side, at in ((pairs.left, pairs.left_at), (pairs.right, pairs.right_at)):
        mine = [] if side is None else [e for e in keep if e in side.attributes]
        if side is not None and mine:
            keys = code_keys([side.attributes[e] for e in mine], side.columns)
            codes.append(pa.array(keys.codes if at is None else keys.codes[at]))
            sources.append((mine, list(keys.values)))
    computed = [e for e in keep if e not in pairs]
    codes += pairs.evaluate(computed, evaluator) if computed else []
    keys = code_keys(codes, pairs.count)
    attributes = dict(zip(computed, keys.values[len(sources) :], strict=True))
    for (mine, values), number in zip(sources, keys.values, strict=False):
        attributes.update(zip(mine, take(values, np.asarray(number)), strict=True))
    if keys.count == pairs.count:
        # Every pair is its own group: sort the few attributes instead of the matrices.
        at = pa.array(keys.codes)
        return {e: attributes[e].take(at) for e in keep}, Groups.apart(pairs.count)
    return {e: attributes[e] for e in keep}, Groups.of(keys.codes, keys.count)


def _derived(
    pairs: Pairs, measures: Sequence[Measure], evaluator: Computes | None
) -> tuple[dict[Measure, tuple[Matrix, ...]], dict[Measure, pa.Array]]:
    """The planes of measures for one row of each pair, and the values behind ranks."""
    if not measures:
        return {}, {}
    arguments = list(dict.fromkeys(measure.argument for measure in measures))
    found = dict(zip(arguments, pairs.evaluate(arguments, evaluator), strict=True))
    planes: dict[Measure, tuple[Matrix, ...]] = {}
    values: dict[Measure, pa.Array] = {}
    for measure in measures:
        column = found[measure.argument]
        if measure.kind in ("min", "max") and ranked(measure.argument.type):
            (ranks,), values[measure] = rank([column])
            flat = [np.where(ranks < 0, identity(measure.kind, np.int64, 1), ranks)]
        else:
            flat = _planes(measure, column)
        planes[measure] = tuple(plane[None, :] for plane in flat)
    return planes, values


def _planes(measure: Measure, column: pa.Array) -> list[Matrix]:
    if measure.kind == "count":
        return [np.asarray(column.is_valid()).astype(np.int64)]
    type_ = measure.argument.type
    if measure.kind == "sum" and type_.kind == "decimal" and type_.precision > LONG_DIGITS:
        return _long_limbs(column)
    plain = numbers(column)
    if measure.kind in ("min", "max"):
        values = plain.values.astype(np.float64 if type_.floating else np.int64, copy=False)
        none = identity(measure.kind, values.dtype.type, 1)
        return [values if plain.valid is None else np.where(plain.valid, values, none)]
    if measure.kind == "sum" and not type_.floating:
        return [plain.values.astype(np.int64, copy=False)]
    return _finite(plain.values.astype(np.float64))


def _finite(values: Matrix) -> list[Matrix]:
    finite = np.isfinite(values)
    if finite.all():
        return [values]
    odd = [np.isnan(values), np.isposinf(values), np.isneginf(values)]
    return [np.where(finite, values, 0.0), *(one.astype(np.int64) for one in odd)]


def _long_limbs(column: pa.Array) -> list[Matrix]:
    pairs = np.where(np.asarray(column.is_valid())[:, None], words(column), 0)
    low, high = pairs[:, 0], pairs[:, 1]
    return [low & LIMB_MASK, (low >> LIMB) & LIMB_MASK, high & LIMB_MASK, high >> LIMB]


def union(parts: Sequence[Relation]) -> Relation:
    """The rows of several relations with the same attributes. A measure that a part has not is NULL in all its
    rows."""
    if len(parts) == 1:
        return parts[0]
    attributes = tuple(parts[0].attributes)
    places, keys, count = align([tuple(part.attributes[e] for e in attributes) for part in parts], len(attributes))
    if sum(int(part.rows.max(initial=0)) for part in parts) >= MOST_ROWS:
        check_rows(_spread("fadd", [part.rows.astype(np.float64) for part in parts], places, count))
    rows = _spread("add", [part.rows for part in parts], places, count)
    measures: dict[Measure, tuple[Matrix, ...]] = {}
    values: dict[Measure, pa.Array] = {}
    for measure in dict.fromkeys(m for part in parts for m in part.measures):
        if all(measure in part.measures and part.measures[measure][0] is part.rows for part in parts):
            measures[measure] = (rows,)
            continue
        found = [part.measures.get(measure) for part in parts]
        if any(measure in part.values for part in parts):
            found, values[measure] = _same_ranks(measure, parts)
        measures[measure] = _together(measure, found, places, count)
    return Relation(dict(zip(attributes, keys, strict=True)), rows, measures, values)


def _same_ranks(measure: Measure, parts: Sequence[Relation]) -> tuple[list[tuple[Matrix, ...] | None], pa.Array]:
    """Ranks of several parts as ranks among the values of all."""
    mine = [part for part in parts if measure in part.measures]
    if any(measure not in part.values for part in mine):
        raise ValueError(f"ranks of {measure.kind} cannot be compared: a relation does not say what they stand for")
    maps, values = rank([part.values[measure] for part in mine])
    found: list[tuple[Matrix, ...] | None] = []
    for part in parts:
        if measure not in part.measures:
            found.append(None)
            continue
        plane, map_ = part.measures[measure][0], maps.pop(0)
        none = identity(measure.kind, np.int64, 1)[0]
        found.append((np.append(map_, none)[np.where(plane == none, len(map_), plane)],))
    return found, values


def _together(
    measure: Measure, found: Sequence[tuple[Matrix, ...] | None], places: Sequence[IntArray], count: int
) -> tuple[Matrix, ...]:
    """The planes of a measure from those of the parts that have it."""
    if exact(measure):
        found = [None if planes is None else fitted(planes, len(found))[0] for planes in found]
    width = max(len(planes) for planes in found if planes is not None)
    result = []
    for number, kind in enumerate(plane_kinds(measure, width)):
        having = [n for n, planes in enumerate(found) if planes is not None and number < len(planes)]
        result.append(_spread(kind, [found[n][number] for n in having], [places[n] for n in having], count))  # type: ignore[index]
    return tuple(result)


def _spread(kind: str, matrices: Sequence[Matrix], places: Sequence[IntArray], count: int) -> Matrix:
    """Add up matrices whose columns have these places, each at most once, among ``count`` columns."""
    plane = nothing(kind, matrices[0].dtype.type, (count, matrices[0].shape[0]))
    ufunc = reducer(kind) if kind in ("min", "max") else np.add
    with np.errstate(invalid="ignore"):  # NaN is a value here
        for number, (matrix, at) in enumerate(zip(matrices, places, strict=True)):
            plane[at] = matrix.T if number == 0 else ufunc(plane[at], matrix.T)
    return plane.T
