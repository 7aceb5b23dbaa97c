"""Partial aggregates: how a measure is accumulated over rows, added up over cells, and kept in planes.

A measure's partial is a tuple of **planes**, arrays with one element for each cell:

========  ===========================================================================================
measure   planes
========  ===========================================================================================
count     one of int64; left out of a bucket when it equals the number of rows
sum       integers and decimals: 1 to 4 **limbs** of int64, value = Σ limb[i] · 2^(32 i), exact without
          overflow; doubles: the sum of the finite values, then how many were NaN, +inf and -inf (left out when none)
fsum      as sum of doubles
min, max  one, of int64 or float64; of Arrow values for text, binary and long decimals
========  ===========================================================================================

Limbs are added without carrying, so they can also be subtracted and multiplied by 0/1 matrices. NaN and
infinities are counted apart because 0 · NaN in such a product would leak them into other queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.kernels import compiled
from millstream.kernels.batch import Arguments, Codes, Numbers
from millstream.model.group import Measure
from millstream.model.types import LONG_DIGITS, DataType

IntArray = npt.NDArray[np.int64]
# NumPy for numbers, Arrow for values that are ranked.
Plane = Any
Planes = tuple[Plane, ...]


def ranked(type_: DataType) -> bool:
    """Whether MIN and MAX work on ranks of Arrow values instead of numbers."""
    return type_.kind in ("string", "binary") or (type_.kind == "decimal" and type_.precision > LONG_DIGITS)


def accumulate(measure: Measure, batch: Arguments, cells: Codes, count: int) -> Planes | None:
    """The measure's planes over ``count`` cells; None for a count that equals the number of rows."""
    if measure.kind == "count":
        return _count(batch, measure, cells, count)
    if measure.kind in ("min", "max"):
        return (_extremum(measure, batch, cells, count),)
    if measure.kind == "fsum" or measure.argument.type.floating:
        return _float_sum(batch.number(measure.argument), cells, count)
    return _exact_sum(measure, batch, cells, count)


def accumulate_rows(
    measures: Sequence[Measure], batch: Arguments, cells: Codes, count: int
) -> tuple[IntArray, dict[Measure, Planes]]:
    """The number of rows of each cell, and the sums that came along in the same pass over the rows."""
    for measure in measures:
        if measure.kind == "sum" and not measure.argument.type.floating:
            packed = batch.packed(measure.argument)
            if packed is not None:
                weights, shift = packed
                if weights.dtype == np.int64:
                    both = compiled.add_up(cells, weights, count)
                else:
                    both = np.bincount(cells, weights=weights, minlength=count).astype(np.int64)
                return both & ((1 << shift) - 1), {measure: (both >> shift,)}
    return np.bincount(cells, minlength=count), {}


def stored(measure: Measure, planes: Planes) -> Planes:
    """Counts and limbs as the integers they are; on the way they were doubles where that is exact."""
    kinds = plane_kinds(measure, len(planes))
    return tuple(p.astype(np.int64, copy=False) if kind == "add" else p for kind, p in zip(kinds, planes, strict=True))


def _count(batch: Arguments, measure: Measure, cells: Codes, count: int) -> Planes | None:
    valid = batch.value(measure.argument)
    if valid.null_count == 0:
        return None
    return (np.bincount(cells[np.asarray(valid.is_valid())], minlength=count),)


def _exact_sum(measure: Measure, batch: Arguments, cells: Codes, count: int) -> Planes:
    weights = batch.weights(measure.argument)
    return tuple(np.bincount(cells, weights=limb, minlength=count) for limb in weights)


def _float_sum(column: Numbers, cells: Codes, count: int) -> Planes:
    values = column.values.astype(np.float64, copy=False)
    finite = np.isfinite(values)
    if finite.all():
        return (np.bincount(cells, weights=values, minlength=count),)
    tally = [np.isnan(values), np.isposinf(values), np.isneginf(values)]
    total = np.bincount(cells, weights=np.where(finite, values, 0.0), minlength=count)
    return (total, *(np.bincount(cells[odd], minlength=count) for odd in tally))


def _extremum(measure: Measure, batch: Arguments, cells: Codes, count: int) -> Plane:
    if ranked(measure.argument.type):
        (ranks,), values = rank([batch.value(measure.argument)])
        plane = identity("min" if measure.kind == "min" else "max", np.int64, count)
        known = ranks >= 0
        reduce_at(measure.kind, plane, cells[known], ranks[known])
        return unrank(measure.kind, plane, values)
    column = batch.number(measure.argument)
    values = column.values
    if values.dtype.kind != "f":
        values = values.astype(np.int64, copy=False)
    plane = identity(measure.kind, values.dtype.type, count)
    if column.valid is not None:
        cells, values = cells[column.valid], values[column.valid]
    reduce_at(measure.kind, plane, cells, values)
    return plane


def identity(kind: str, dtype: type, count: int) -> npt.NDArray[Any]:
    """The plane of no values. For doubles NaN is the largest value: MIN ignores it (fmin) unless alone, MAX keeps
    it."""
    if dtype is np.float64:
        return np.full(count, np.nan if kind == "min" else -np.inf)
    limits = np.iinfo(np.int64)
    return np.full(count, limits.max if kind == "min" else limits.min, np.int64)


def reducer(kind: str) -> np.ufunc:
    return np.fmin if kind == "min" else np.maximum


def reduce_at(kind: str, plane: npt.NDArray[Any], cells: Codes, values: npt.NDArray[Any]) -> None:
    with np.errstate(invalid="ignore"):  # NaN is a value here, not a mistake
        reducer(kind).at(plane, cells, values)


def rank(columns: Sequence[pa.Array]) -> tuple[list[IntArray], pa.Array]:
    """Number the values of several columns in Spark's order (bytes for text); NULL is -1."""
    merged = columns[0] if len(columns) == 1 else pa.concat_arrays(columns)
    coded = merged.dictionary_encode()
    order = np.asarray(pc.sort_indices(coded.dictionary))
    rank_of_code = np.append(np.argsort(order), -1)
    codes = np.asarray(coded.indices.fill_null(len(order)), dtype=np.int64)
    ranks = rank_of_code[codes]
    ends = np.cumsum([len(column) for column in columns])
    parts = [ranks[end - len(column) : end] for column, end in zip(columns, ends, strict=True)]
    return parts, coded.dictionary.take(pa.array(order))


def unrank(kind: str, ranks: npt.NDArray[Any], values: pa.Array) -> pa.Array:
    """The values of ranks; NULL where a plane still holds its identity."""
    none = ranks == identity(kind, np.int64, 1)[0]
    return (
        values.take(pa.array(np.where(none, 0, ranks), mask=none)) if len(values) else pa.nulls(len(ranks), values.type)
    )


def plane_kinds(measure: Measure, planes: int) -> tuple[str, ...]:
    """How each plane of a partial is added up: ``add`` (int64), ``fadd`` (float64), ``min`` or ``max``."""
    if measure.kind in ("min", "max"):
        return (measure.kind,)
    if measure.kind == "fsum" or (measure.kind == "sum" and measure.argument.type.floating):
        return ("fadd", "add", "add", "add")[:planes]
    return ("add",) * planes
