"""Loops over rows and cells, compiled with Numba: in one pass what takes NumPy several.

Each has a counterpart in NumPy beside its caller, which gives the same numbers and is taken for few rows and for odd
ones. Importing this module loads what was compiled, 0.4 s, or compiles it, which takes some seconds. It is kept beside
this file, or in the user's cache where that is read-only. Only the types named here are compiled, and `compiled` hands
over no others: compiling one more would keep a task waiting.

Sums wrap around in their type, as NumPy's do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from numba import types

Integers = npt.NDArray[np.signedinteger[Any]]
Codes = npt.NDArray[np.integer[Any]]
IntArray = npt.NDArray[np.int64]
Loop = TypeVar("Loop", bound=Callable[..., Any])

SHORT, LONG, CODE = types.int32, types.int64, types.uint32


def _read(of: types.Type, dimensions: int = 1) -> types.Array:
    """Arrays of Arrow cannot be written to; those that can be are taken too."""
    return types.Array(of, dimensions, "C", readonly=True)


def _write(of: types.Type, dimensions: int = 1) -> types.Array:
    return types.Array(of, dimensions, "C")


def _compiled(*signatures: tuple[types.Type, ...]) -> Callable[[Loop], Loop]:
    """For the types of these arguments."""

    def compile_(loop: Loop) -> Loop:
        try:
            return cast(Loop, numba.njit(list(signatures), cache=True, nogil=True)(loop))
        except Exception as error:
            # No place to keep it, or what is kept there is damaged.
            logging.getLogger(__name__).warning("%s is compiled for this process alone: %r", loop.__name__, error)
            return cast(Loop, numba.njit(list(signatures), nogil=True)(loop))

    return compile_


@_compiled(*((_read(kind), LONG, _read(CODE), _read(LONG), _write(CODE)) for kind in (SHORT, LONG)))
def locate(values: Integers, low: int, table: Codes, keys: IntArray, codes: Codes) -> None:
    """The code of each row: what the table has for its value, the first of which is ``low``, and its key."""
    for row in range(len(values)):
        codes[row] = table[values[row] - low] + keys[row]


@_compiled(*((_read(kind), LONG, _write(LONG), _write(types.boolean)) for kind in (SHORT, LONG)))
def mark(values: Integers, low: int, codes: IntArray, used: npt.NDArray[np.bool_]) -> None:
    """How far each value is from the smallest, and which distances there are."""
    for row in range(len(values)):
        code = np.int64(values[row]) - low
        codes[row] = code
        used[code] = True


@_compiled(*((_read(kind), _read(LONG), _write(LONG)) for kind in (CODE, LONG)))
def add_up(codes: Codes, weights: IntArray, sums: IntArray) -> None:
    """Add the weight of each row to the cell of its code."""
    for row in range(len(codes)):
        sums[codes[row]] += weights[row]


@_compiled(*((_read(kind, 2), _read(LONG, 2), _write(kind, 2)) for kind in (SHORT, LONG)))
def pile(below: Integers, plane: Integers, here: Integers) -> None:
    """A layer of running sums over labels on the one below: row by row, the sums of a plane that has one row less, and
    perhaps fewer columns."""
    width = plane.shape[1]
    here[0] = 0
    running = np.zeros(width, here.dtype)
    for label in range(len(plane)):
        for key in range(width):
            running[key] += plane[label, key]
            here[label + 1, key] = below[label + 1, key] + running[key]
        here[label + 1, width:] = below[label + 1, width:]


@_compiled(
    *((_read(kind, 2), _read(LONG, 2), LONG, _write(LONG), _write(LONG), _write(kind)) for kind in (SHORT, LONG))
)
def answered(
    layers: Integers,
    corners: IntArray,
    width: int,
    counts: IntArray,
    keys: IntArray,
    found: Integers,
) -> int:
    """The rows of each window by key, where it has any; their number, their keys and themselves go to the last three.
    A window's corners are four rows of the layers, of which the first and the last are added."""
    at = 0
    for window in range(len(corners)):
        first = at
        a, b, c, d = corners[window]
        for key in range(width):
            found[at] = layers[a, key] - layers[b, key] - layers[c, key] + layers[d, key]
            keys[at] = key
            at += found[at] != 0
        counts[window] = at - first
    return at


@_compiled(*((_read(kind, 2), _read(LONG, 2), _read(LONG), _read(LONG), _write(kind)) for kind in (SHORT, LONG)))
def picked(layers: Integers, corners: IntArray, counts: IntArray, keys: IntArray, found: Integers) -> None:
    """The numbers of another plane for the windows and keys that were found to have rows."""
    at = 0
    for window in range(len(corners)):
        a, b, c, d = corners[window]
        for place in range(at, at + counts[window]):
            key = keys[place]
            found[place] = layers[a, key] - layers[b, key] - layers[c, key] + layers[d, key]
        at += counts[window]
