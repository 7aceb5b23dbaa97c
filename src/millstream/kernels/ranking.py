"""Ranks inside windows: row_number, rank and dense_rank over the rows of many answers at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.aggregate import rank as numbered
from millstream.kernels.keys import normalise

IntArray = npt.NDArray[np.int64]


def ranks(
    function: str, windows: IntArray, partition: Sequence[pa.Array], order: Sequence[tuple[pa.Array, bool, bool]]
) -> IntArray:
    """Each row's rank among the rows of its window and partition; ``order`` are (values, ascending, nulls first). Rows
    that tie in all of it keep their order."""
    same = [windows, *(_codes(column, True, True) for column in partition)]
    by = [_codes(column, ascending, nulls_first) for column, ascending, nulls_first in order]
    sorted_ = np.lexsort([*reversed(by), *reversed(same)])
    first = _changes(same, sorted_)
    tied = first | _changes(by, sorted_)
    place: IntArray = np.arange(len(sorted_), dtype=np.int64)
    start: IntArray = np.maximum.accumulate(np.where(first, place, 0))
    result = np.empty(len(sorted_), np.int64)
    if function == "row_number":
        result[sorted_] = place - start + 1
    elif function == "rank":
        result[sorted_] = np.maximum.accumulate(np.where(tied, place, 0)) - start + 1
    else:
        distinct = np.cumsum(tied)
        result[sorted_] = distinct - distinct[start] + 1
    return result


def _codes(column: pa.Array, ascending: bool, nulls_first: bool) -> IntArray:
    """Numbers in the order of the values, as Spark sorts them: NaN is the largest."""
    plain = column.cast(pa.int8()) if pa.types.is_boolean(column.type) else normalise(column)
    (codes,), values = numbered([plain])
    placed = codes if ascending else len(values) - 1 - codes
    return np.where(codes < 0, -1 if nulls_first else len(values), placed)


def _changes(columns: Sequence[IntArray], order: IntArray) -> npt.NDArray[np.bool_]:
    """Where, in this order, a row differs from the one before it."""
    changed = np.zeros(len(order), np.bool_)
    changed[:1] = True
    for column in columns:
        mine = column[order]
        changed[1:] |= mine[1:] != mine[:-1]
    return changed
