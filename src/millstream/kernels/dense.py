"""Cells laid out densely as (label, key) matrices, and the step from classes to queries.

    cells by class   (classes × keys)          M[q, c] = 1 iff class c belongs to query q
    per query        (queries × keys) = M · cells

This is done once for each slice, whatever number of windows the slice lies in. Classes are numbered along the grid,
so a query's classes
are mostly one run, and its sum is the difference of two prefix sums: exact for integers. Doubles are added over the
query's own classes; MIN and MAX take the extremum over them, never an inverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.aggregate import Plane, identity, plane_kinds, rank, ranked, reducer
from millstream.kernels.batch import EXACT
from millstream.kernels.bucket import Cells
from millstream.model.group import Measure

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Matrix = npt.NDArray[Any]


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
    shape = (labels, keys)
    places = [_places(cells, number, keys) for cells, number in parts]
    if any(cells.by_row for cells, _ in parts):
        rows = _count([cells for cells, _ in parts], places, shape)
    else:
        rows = _fill("add", [(cells.rows, place) for (cells, _), place in zip(parts, places, strict=True)], shape)
    planes: list[list[Matrix]] = []
    for index, measure in enumerate(measures):
        if all(cells.partials[index] is None for cells, _ in parts):
            planes.append([rows])
            continue
        found = [cells.partials[index] or (cells.rows,) for cells, _ in parts]
        width = max(len(part) for part in found)
        planes.append(
            [
                _fill(kind, [(p[n], place) for p, place in zip(found, places, strict=True) if len(p) > n], shape)
                for n, kind in enumerate(plane_kinds(measure, width))
            ]
        )
    return Dense(rows, planes)


def _places(cells: Cells, number: IntArray, keys: int) -> IntArray | None:
    """Where each cell goes; None for full cells whose keys are numbered alike: they are the matrix."""
    if cells.at is None and cells.key_count == keys and (number == np.arange(keys)).all():
        return None
    return cells.label.astype(np.int64, copy=False) * keys + number[cells.key]


def _count(parts: Sequence[Cells], places: Sequence[IntArray | None], shape: tuple[int, int]) -> Matrix:
    """The rows of each cell, which may occur several times in a part."""
    size = shape[0] * shape[1]
    every = np.concatenate([np.arange(size) if place is None else place for place in places])
    weights = None if all(part.by_row for part in parts) else np.concatenate([part.rows for part in parts])
    return np.bincount(every, weights, minlength=size).astype(np.int64, copy=False).reshape(shape)


def _fill(kind: str, parts: list[tuple[Plane, IntArray | None]], shape: tuple[int, int]) -> Matrix:
    """One plane. A cell occurs once in a part."""
    size = shape[0] * shape[1]
    plane: Matrix
    if len(parts) == 1 and parts[0][1] is None:
        plane = parts[0][0]
        return plane.reshape(shape)
    if kind in ("min", "max"):
        plane = identity(kind, next((values.dtype.type for values, _ in parts), np.int64), size)
        for values, place in parts:
            where = slice(None) if place is None else place
            plane[where] = reducer(kind)(plane[where], values)
        return plane.reshape(shape)
    plane = np.zeros(size, np.float64 if kind == "fadd" else np.int64)
    for values, place in parts:
        plane[slice(None) if place is None else place] += values
    return plane.reshape(shape)


@dataclass(frozen=True)
class Labels:
    """Which labels belong to each query, also as runs of neighbouring labels: a query that compares one attribute with
    constants owns one or two runs."""

    member: BoolArray
    query: IntArray
    start: IntArray
    stop: IntArray

    @classmethod
    def of(cls, member: BoolArray) -> Labels:
        padded = np.zeros((member.shape[0], member.shape[1] + 2), np.int8)
        padded[:, 1:-1] = member
        step = np.diff(padded, axis=1)
        query, start = np.nonzero(step == 1)
        return cls(member, query, start, np.nonzero(step == -1)[1])

    @cached_property
    def single(self) -> bool:
        """Every query owns exactly one label."""
        ones = bool((self.stop - self.start == 1).all())
        return ones and len(self.query) == len(self.member) and bool((np.diff(self.query) == 1).all())

    @cached_property
    def few_runs(self) -> bool:
        """Prefix sums over runs cost less than a product: measured up to about four runs a query."""
        return len(self.query) <= 4 * len(self.member)

    @cached_property
    def run_first(self) -> IntArray:
        """Each query's first run; runs of a query are neighbours."""
        return np.searchsorted(self.query, np.arange(len(self.member)))

    @cached_property
    def run_count(self) -> IntArray:
        return np.bincount(self.query, minlength=len(self.member))


def per_query(dense: Dense, labels: Labels, measures: Sequence[Measure]) -> Dense:
    """From labels to queries."""
    rows = reduce_labels("add", labels, dense.rows)
    planes: list[list[Matrix]] = []
    for measure, mine in zip(measures, dense.planes, strict=True):
        kinds = plane_kinds(measure, len(mine))
        planes.append(
            [rows if p is dense.rows else reduce_labels(kind, labels, p) for kind, p in zip(kinds, mine, strict=True)]
        )
    return Dense(rows, planes)


def reduce_labels(kind: str, labels: Labels, plane: Matrix) -> Matrix:
    """One plane from labels to queries."""
    if labels.single:
        picked: Matrix = plane[labels.start]
        return picked
    if kind in ("min", "max"):
        return _extremum(kind, labels.member, plane)
    if kind == "fadd":
        if np.isfinite(plane).all():
            return _product(labels, plane)
        return np.stack([plane[mine].sum(axis=0) for mine in labels.member])
    # Integers are exact here: differences of prefix sums lose nothing.
    if labels.few_runs:
        return _sum_runs(labels, plane)
    if float(np.abs(plane).sum(dtype=np.float64)) < EXACT:
        # As doubles the product is ten times faster.
        return _product(labels, plane.astype(np.float64)).astype(np.int64)
    return _product(labels, plane)


def _product(labels: Labels, plane: Matrix) -> Matrix:
    product: Matrix = labels.member.astype(plane.dtype) @ plane
    return product


def _sum_runs(labels: Labels, plane: Matrix) -> Matrix:
    prefix = np.zeros((plane.shape[0] + 1, plane.shape[1]), plane.dtype)
    np.cumsum(plane, axis=0, out=prefix[1:])
    runs = prefix[labels.stop]
    runs -= prefix[labels.start]
    if len(runs) == len(labels.member) and (labels.run_count == 1).all():
        return runs
    result = np.zeros((len(labels.member), plane.shape[1]), plane.dtype)
    if len(runs):
        owners, first = np.unique(labels.query, return_index=True)
        result[owners] = np.add.reduceat(runs, first, axis=0)
    return result


def _extremum(kind: str, member: BoolArray, plane: Matrix) -> Matrix:
    result = np.empty((len(member), plane.shape[1]), plane.dtype)
    for query, mine in enumerate(member):
        picked = plane[mine]
        result[query] = reducer(kind).reduce(picked, axis=0) if len(picked) else identity(kind, plane.dtype.type, 1)[0]
    return result


def combine(kind: str, left: Matrix, right: Matrix) -> Matrix:
    """Add the planes of two versions or slices."""
    return reducer(kind)(left, right) if kind in ("min", "max") else left + right
