"""Cells laid out densely as (label, key) matrices, and the step from classes to queries.

    cells by class   (classes × keys)          M[q, c] = 1 iff class c belongs to query q
    per query        (queries × keys) = M · cells

The product is done once for each slice, whatever number of windows the slice lies in. Integers go through doubles while that
is exact; MIN and MAX take the extremum over the query's classes, never an inverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.aggregate import EXACT, Plane, identity, plane_kinds, rank, ranked, reducer
from millstream.kernels.bucket import Cells
from millstream.model.group import Measure

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Matrix = npt.NDArray[np.generic]


@dataclass
class Dense:
    """Matrices of shape (labels, keys): the number of rows, and each measure's planes."""

    rows: Matrix
    planes: list[list[Matrix]]


def to_ranks(parts: Sequence[Cells], measures: Sequence[Measure]) -> tuple[list[Cells], dict[int, pa.Array]]:
    """Replace Arrow planes by ranks that are comparable over all parts; gives the ranked values by measure."""
    cells = list(parts)
    values: dict[int, pa.Array] = {}
    for index, measure in enumerate(measures):
        if measure.kind in ("min", "max") and ranked(measure.argument.type):
            columns = [part.partials[index][0] for part in cells]  # type: ignore[index]
            ranks, values[index] = rank(columns) if columns else ([], pa.nulls(0, measure.argument.type.arrow))
            missing = identity(measure.kind, np.int64, 1)[0]
            for number, found in enumerate(ranks):
                plane = np.where(found < 0, missing, found)
                partials = list(cells[number].partials)
                partials[index] = (plane,)
                cells[number] = replace(cells[number], partials=tuple(partials))
    return cells, values


def lay_out(parts: Sequence[tuple[Cells, IntArray]], labels: int, keys: int, measures: Sequence[Measure]) -> Dense:
    """Add up parts of one slice and version; each part comes with the numbers of its keys among ``keys``."""
    rows = np.zeros(labels * keys, np.int64)
    planes: list[list[Matrix]] = []
    places = [cells.label * keys + number[cells.key] for cells, number in parts]
    for (cells, _), place in zip(parts, places, strict=True):
        rows[place] += cells.rows
    for index, measure in enumerate(measures):
        found = [_planes(cells, index) for cells, _ in parts]
        width = max((len(part) for part in found), default=1)
        flat = [_fill(kind, p, found, places, labels * keys) for p, kind in enumerate(plane_kinds(measure, width))]
        planes.append([plane.reshape(labels, keys) for plane in flat])
    return Dense(rows.reshape(labels, keys), planes)


def _planes(cells: Cells, index: int) -> tuple[Plane, ...]:
    found = cells.partials[index]
    return (cells.rows,) if found is None else found


def _fill(kind: str, number: int, found: list[tuple[Plane, ...]], places: list[IntArray], size: int) -> Matrix:
    mine = [(part[number], place) for part, place in zip(found, places, strict=True) if len(part) > number]
    if kind in ("min", "max"):
        dtype = next((plane.dtype.type for plane, _ in mine), np.int64)
        plane = identity(kind, dtype, size)
        for values, place in mine:
            plane[place] = reducer(kind)(plane[place], values)
        return plane
    total: Matrix = np.zeros(size, np.float64 if kind == "fadd" else np.int64)
    for values, place in mine:
        total[place] += values
    return total


def per_query(dense: Dense, member: BoolArray, measures: Sequence[Measure]) -> Dense:
    """From labels to queries; ``member[q, label]`` tells which labels belong to query q."""
    rows = _sum(member, dense.rows)
    planes: list[list[Matrix]] = []
    for measure, mine in zip(measures, dense.planes, strict=True):
        kinds = plane_kinds(measure, len(mine))
        planes.append([_reduce(kind, member, plane) for kind, plane in zip(kinds, mine, strict=True)])
    return Dense(rows, planes)


def _reduce(kind: str, member: BoolArray, plane: Matrix) -> Matrix:
    if kind in ("min", "max"):
        return _extremum(kind, member, plane)
    return _sum(member, plane)


def _sum(member: BoolArray, plane: Matrix) -> Matrix:
    if plane.dtype == np.float64:
        if np.isfinite(plane).all():
            return member.astype(np.float64) @ plane
        return np.stack([plane[mine].sum(axis=0) for mine in member])
    if plane.size == 0 or float(np.abs(plane).sum(axis=0, dtype=np.float64).max()) < EXACT:
        return (member.astype(np.float64) @ plane.astype(np.float64)).astype(np.int64)
    return member.astype(np.int64) @ plane


def _extremum(kind: str, member: BoolArray, plane: Matrix) -> Matrix:
    result = np.empty((len(member), plane.shape[1]), plane.dtype)
    for query, mine in enumerate(member):
        picked = plane[mine]
        result[query] = reducer(kind).reduce(picked, axis=0) if len(picked) else identity(kind, plane.dtype.type, 1)[0]
    return result


def combine(kind: str, left: Matrix, right: Matrix) -> Matrix:
    """Add a later slice's plane to an earlier one's."""
    return reducer(kind)(left, right) if kind in ("min", "max") else left + right
