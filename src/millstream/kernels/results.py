"""From partial aggregates to the values of COUNT, SUM, AVG, MIN and MAX, in Spark's types.

Where Spark's ANSI mode would stop (a sum out of range) the value is NULL and counted as a failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.aggregate import unrank
from millstream.kernels.batch import LIMB, LIMB_MASK
from millstream.model.query import Aggregate
from millstream.model.types import DataType

IntArray = npt.NDArray[np.int64]
Matrix = npt.NDArray[Any]
Result = tuple[pa.Array, npt.NDArray[np.bool_] | None]

_LONG = 1 << 63
# Enough digits for any product or quotient of two decimals of 38 digits.
_WIDE = Context(prec=100, rounding=ROUND_HALF_UP)


def finish(aggregate: Aggregate, rows: IntArray, planes: Sequence[Sequence[Matrix]], values: pa.Array | None) -> Result:
    """The aggregate's column and where it failed; ``planes`` are those of ``measures_of(aggregate)`` in order,
    ``values`` the ranked values of a MIN or MAX over text."""
    if aggregate.argument is None:
        return pa.array(rows), None
    if aggregate.function == "count":
        return pa.array(planes[0][0].astype(np.int64, copy=False)), None
    count = planes[1][0].astype(np.int64, copy=False)
    empty = count == 0
    if aggregate.function in ("min", "max"):
        return _extremum(aggregate, planes[0][0], empty, values), None
    if planes[0][0].dtype == np.float64:
        total = _float(planes[0])
        if aggregate.function == "avg":
            total = _divide(total, count)
        return _floating(total, aggregate.type, empty), None
    if aggregate.function == "avg":
        return _average(aggregate, planes[0], count, empty)
    return _exact(planes[0], aggregate.type, empty)


def _divide(total: npt.NDArray[np.float64], count: IntArray) -> npt.NDArray[np.float64]:
    with np.errstate(all="ignore"):
        result: npt.NDArray[np.float64] = total / count
    return result


def _float(planes: Sequence[Matrix]) -> npt.NDArray[np.float64]:
    """Put NaN and infinities back: NaN, or infinities of both signs, give NaN."""
    total: npt.NDArray[np.float64] = planes[0].astype(np.float64)
    if len(planes) > 1:
        nan, above, below = (plane > 0 for plane in planes[1:])
        total = np.where(above, np.inf, np.where(below, -np.inf, total))
        total = np.where(nan | (above & below), np.nan, total)
    return total


def _floating(values: npt.NDArray[np.float64], type_: DataType, empty: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.array(values, type=pa.float64(), mask=empty).cast(type_.arrow)


def _extremum(aggregate: Aggregate, plane: Matrix, empty: npt.NDArray[np.bool_], values: pa.Array | None) -> pa.Array:
    if values is not None:
        return unrank(aggregate.function, np.where(empty, _identity(aggregate.function), plane), values)
    type_ = aggregate.type
    if type_.floating:
        return pa.array(plane.astype(np.float64), mask=empty).cast(type_.arrow)
    plain = np.where(empty, 0, plane).astype(np.int64)
    if type_.kind == "decimal":
        return _decimals(plain, plain >> 63, type_, empty)
    if type_.kind == "boolean":
        return pa.array(plain.astype(bool), mask=empty)
    if type_.kind == "date":
        return pa.array(plain.astype(np.int32), mask=empty).cast(pa.date32())
    return pa.array(plain, mask=empty).cast(type_.arrow)


def _identity(function: str) -> int:
    limits = np.iinfo(np.int64)
    return int(limits.max if function == "min" else limits.min)


def _carry(limbs: Sequence[Matrix]) -> list[IntArray]:
    """Normalise to five limbs, all but the last in [0, 2^32)."""
    padded = [limb.astype(np.int64) for limb in limbs]
    padded += [np.zeros(len(padded[0]), np.int64)] * (5 - len(padded))
    carried: list[IntArray] = []
    carry: IntArray = np.zeros(len(padded[0]), np.int64)
    for limb in padded[:-1]:
        total = limb + carry
        carried.append(total & LIMB_MASK)
        carry = total >> LIMB
    return [*carried, padded[-1] + carry]


def _exact(limbs: Sequence[Matrix], type_: DataType, empty: npt.NDArray[np.bool_]) -> Result:
    """An integer or decimal sum; NULL and a failure where it does not fit the type."""
    if len(limbs) == 1 and type_.kind == "long":
        # With a mask, even an empty one, Arrow makes a copy.
        return pa.array(limbs[0].astype(np.int64, copy=False), mask=empty if empty.any() else None), None
    carried = _carry(limbs)
    low = carried[0] | (carried[1] << LIMB)
    high = carried[2] | (carried[3] << LIMB)
    fits = carried[4] == high >> 63
    if type_.kind == "long":
        failed = ~empty & ~(fits & (high == low >> 63))
        return pa.array(low, mask=empty | failed), failed
    failed = ~empty & ~(fits & _below(low, high, 10**type_.precision))
    return _decimals(low, high, type_, empty | failed), failed


def _below(low: IntArray, high: IntArray, limit: int) -> npt.NDArray[np.bool_]:
    """|value| < limit, exactly; only values near or above the limit are compared one by one."""
    rough = high.astype(np.float64) * 2.0**64 + low.view(np.uint64).astype(np.float64)
    below: npt.NDArray[np.bool_] = np.abs(rough) < limit * 0.999
    for index in np.flatnonzero(~below):
        below[index] = abs((int(high[index]) << 64) + int(low[index : index + 1].view(np.uint64)[0])) < limit
    return below


def _decimals(low: IntArray, high: IntArray, type_: DataType, null: npt.NDArray[np.bool_]) -> pa.Array:
    data = np.stack([low, high], axis=1)
    valid = None if not null.any() else pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(type_.arrow, len(low), [valid, pa.py_buffer(data)])


def _average(aggregate: Aggregate, limbs: Sequence[Matrix], count: IntArray, empty: npt.NDArray[np.bool_]) -> Result:
    assert aggregate.argument is not None
    if aggregate.type.kind != "decimal":
        total = np.sum([limb.astype(np.float64) * 2.0 ** (LIMB * i) for i, limb in enumerate(limbs)], axis=0)
        return _floating(_divide(total, count), aggregate.type, empty), None
    scale = 10 ** (aggregate.type.scale - aggregate.argument.type.scale)
    quick = _quick_average(limbs, count, scale)
    if quick is not None:
        return _decimals(quick, quick >> 63, aggregate.type, empty), None
    return _slow_average(aggregate, limbs, count, empty)


def _quick_average(limbs: Sequence[Matrix], count: IntArray, scale: int) -> IntArray | None:
    """HALF_UP division in 64 bits, where the scaled sum fits."""
    if len(limbs) > 1 or not len(limbs[0]):
        return None
    total = limbs[0].astype(np.int64)
    if int(np.abs(total).max()) >= _LONG // (4 * scale):
        return None
    divisor = np.maximum(count, 1)
    quotient = (2 * np.abs(total) * scale + divisor) // (2 * divisor)
    signed: IntArray = np.where(total < 0, -quotient, quotient)
    return signed


def _slow_average(
    aggregate: Aggregate, limbs: Sequence[Matrix], count: IntArray, empty: npt.NDArray[np.bool_]
) -> Result:
    assert aggregate.argument is not None
    unit = Decimal(1).scaleb(-aggregate.type.scale)
    # Spark adds up in decimal(p + 10, s): a sum beyond that fails before it is divided.
    limit = 10 ** min(38, aggregate.argument.type.precision + 10)
    values: list[Decimal | None] = []
    failed = np.zeros(len(count), np.bool_)
    for index, number in enumerate(count):
        total = sum(int(limb[index]) << (LIMB * i) for i, limb in enumerate(limbs))
        if empty[index] or abs(total) >= limit:
            failed[index] = not empty[index]
            values.append(None)
            continue
        exact = _WIDE.divide(Decimal(total).scaleb(-aggregate.argument.type.scale, _WIDE), Decimal(int(number)))
        values.append(exact.quantize(unit, context=_WIDE))
    return pa.array(values, type=aggregate.type.arrow), failed
