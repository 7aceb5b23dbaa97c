"""When loops are compiled ones, and what hands them their arrays."""

from __future__ import annotations

import logging
import os
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
Integers = npt.NDArray[np.signedinteger[Any]]
Codes = npt.NDArray[np.integer[Any]]

# Rows or cells from which compiled loops are used: below, NumPy takes less than a millisecond, and a process that never
# has more need not load them, 0.4 s and 110 MB. The random oracle sets the variable, so that workers take them for few.
MANY = int(os.environ.get("MILLSTREAM_COMPILED_FROM", 1 << 16))
# Codes have 32 bits, half the memory to go through.
MOST_CODES = 1 << 32


def pays(count: int) -> bool:
    """Whether so many rows or cells are gone through by a compiled loop."""
    return count >= MANY and _usable()


@cache
def _usable() -> bool:
    """Where Numba is missing, or does not go with the NumPy there is, NumPy does everything."""
    try:
        from millstream.kernels import loops  # noqa: F401
    except Exception as error:
        logging.getLogger(__name__).warning("loops are not compiled, NumPy takes about a quarter longer: %r", error)
        return False
    return True


def _plain(values: Integers) -> Integers:
    """As loops take them: 32 or 64 bits, one after the other."""
    narrow = np.can_cast(values.dtype, np.int32)
    return np.ascontiguousarray(values, np.int32 if narrow else np.int64)


def locate(values: Integers, low: int, table: IntArray, keys: IntArray) -> Codes:
    """``table[values - low] + keys``, which are below `MOST_CODES`."""
    from millstream.kernels import loops

    codes = np.empty(len(values), np.uint32)
    loops.locate(_plain(values), low, table.astype(np.uint32), keys, codes)
    return codes


def mark(values: Integers, low: int, span: int) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """``values - low``, and which of ``span`` numbers occur among them."""
    from millstream.kernels import loops

    codes, used = np.empty(len(values), np.int64), np.zeros(span, np.bool_)
    loops.mark(_plain(values), low, codes, used)
    return codes, used


def add_up(codes: Codes, weights: IntArray, count: int) -> IntArray:
    """The sum of the weights of each of ``count`` codes."""
    from millstream.kernels import loops

    sums = np.zeros(count, np.int64)
    short = codes.dtype == np.uint32
    loops.add_up(np.ascontiguousarray(codes, np.uint32 if short else np.int64), weights, sums)
    return sums


def pile(below: Integers, plane: Integers, here: Integers) -> None:
    """See `loops.pile`."""
    from millstream.kernels import loops

    loops.pile(below, np.ascontiguousarray(plane, np.int64), here)


def answered(layers: Integers, corners: IntArray, width: int) -> tuple[IntArray, IntArray, IntArray]:
    """Of windows with these corners, by key: how many keys have rows, which, and how many rows."""
    from millstream.kernels import loops

    counts = np.empty(len(corners), np.int64)
    keys = np.empty(len(corners) * width, np.int64)
    found = np.empty(len(corners) * width, layers.dtype)
    number = loops.answered(layers, corners, width, counts, keys, found)
    return counts, _first(keys, number), _first(found, number).astype(np.int64, copy=False)


def _first(values: Integers, number: int) -> Integers:
    """Without the rest, where that is more than half: a part would keep the whole."""
    return values[:number].copy() if 2 * number < len(values) else values[:number]


def picked(layers: Integers, corners: IntArray, counts: IntArray, keys: IntArray) -> IntArray:
    """The numbers of another plane at the keys that were found."""
    from millstream.kernels import loops

    # In the type of the layers, in which what has wrapped around in them does so back.
    found = np.empty(len(keys), layers.dtype)
    loops.picked(layers, corners, counts, keys, found)
    return found.astype(np.int64, copy=False)
