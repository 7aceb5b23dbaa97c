"""Keys: group-by values coded as small integers, for one chunk or across many buckets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.kernels import compiled

IntArray = npt.NDArray[np.int64]

# Numbers that span at most so many values, and not many times the rows, are coded by subtraction: four to ten times as
# fast as hashing.
DIRECT_SPAN = 1 << 23


@dataclass(frozen=True)
class Keys:
    """``codes[i]`` is the position in ``values`` (one array for each key column) of row i's key."""

    codes: IntArray
    values: tuple[pa.Array, ...]
    count: int

    @cached_property
    def narrow(self) -> npt.NDArray[Any]:
        """The codes in the smallest type that holds them."""
        return self.codes.astype(np.min_scalar_type(self.count))


def normalise(column: pa.Array) -> pa.Array:
    """Make equal keys identical: -0.0 becomes 0.0 and every NaN the same NaN, as Spark does before grouping."""
    if pa.types.is_floating(column.type):
        numbers = np.asarray(column.fill_null(0)) + np.array(0, dtype=column.type.to_pandas_dtype())
        numbers[np.isnan(numbers)] = np.nan
        mask = None if column.null_count == 0 else np.asarray(column.is_null())
        return pa.array(numbers, type=column.type, mask=mask)
    return column


def code_keys(columns: Sequence[pa.Array], rows: int) -> Keys:
    """Code the combinations of values that occur; NULL is a value like any other."""
    if not columns:
        return Keys(np.zeros(rows, np.int64), (), 1 if rows else 0)
    coded = [_code(normalise(column)) for column in columns]
    if len(coded) == 1:
        return Keys(coded[0][0], (coded[0][1],), len(coded[0][1]))
    codes, counts = coded[0][0], len(coded[0][1])
    places = [coded[0][0]]
    for more, values in coded[1:]:
        codes = codes * len(values) + more
        counts *= len(values)
        places.append(more)
        codes, first = _compress(codes, counts)
        counts = len(first)
        representative = first
    values_of = tuple(
        values.take(pa.array(place[representative])) for place, (_, values) in zip(places, coded, strict=True)
    )
    return Keys(codes, values_of, counts)


def _code(column: pa.Array) -> tuple[IntArray, pa.Array]:
    direct = _code_directly(column)
    if direct is not None:
        return direct
    coded = column.dictionary_encode(null_encoding="encode")
    return np.asarray(coded.indices, dtype=np.int64), coded.dictionary


def _code_directly(column: pa.Array) -> tuple[IntArray, pa.Array] | None:
    """Dense integer keys without hashing: the code is the distance from the smallest, then unused codes are closed
    up."""
    if not pa.types.is_integer(column.type) or column.null_count or not len(column):
        return None
    values = np.asarray(column)
    low, high = int(values.min()), int(values.max())
    span = high - low + 1
    if not _dense(span, len(values)):
        return None
    if compiled.pays(len(values)):
        codes, used = compiled.mark(values, low, span)
    else:
        codes = values.astype(np.int64) - low
        used = np.bincount(codes, minlength=span) > 0
    distinct = np.flatnonzero(used)
    if len(distinct) < span:
        codes = (np.cumsum(used) - 1).take(codes)
    return codes, pa.array(distinct + low, type=column.type)


def _dense(span: int, rows: int) -> bool:
    return span <= min(DIRECT_SPAN, 4 * rows + 1024)


def _compress(codes: IntArray, span: int) -> tuple[IntArray, IntArray]:
    """Renumber the codes that occur, and give for each the first row that has it."""
    if _dense(span, len(codes)):
        first = np.full(span, -1, np.int64)
        first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
        used = first >= 0
        return (np.cumsum(used) - 1).take(codes), first[used]
    _, first, back = np.unique(codes, return_index=True, return_inverse=True)
    return back, first


def align(tables: Sequence[tuple[pa.Array, ...]], columns: int) -> tuple[list[IntArray], tuple[pa.Array, ...], int]:
    """One numbering for the keys of several buckets: for each bucket its keys' numbers, and the keys."""
    if columns == 0:
        return [np.zeros(1, np.int64) for _ in tables], (), 1
    first = tables[0]
    if all(len(t[0]) == len(first[0]) and all(a.equals(b) for a, b in zip(t, first, strict=True)) for t in tables[1:]):
        same = np.arange(len(first[0]))
        return [same] * len(tables), first, len(first[0])
    merged = [_concatenate([table[c] for table in tables]) for c in range(columns)]
    lengths = [len(table[0]) for table in tables]
    keys = code_keys(merged, sum(lengths))
    ends = np.cumsum(lengths)
    return [keys.codes[end - n : end] for n, end in zip(lengths, ends, strict=True)], keys.values, keys.count


def _concatenate(arrays: Sequence[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def take(values: Sequence[pa.Array], numbers: IntArray) -> list[pa.Array]:
    indices = pa.array(numbers)
    return [pc.take(column, indices) for column in values]
