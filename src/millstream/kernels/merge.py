"""Merging cells of the same version and slice: chunks of a task, or buckets that compaction brings together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.aggregate import Plane, Planes, identity, plane_kinds, reduce_at, unrank
from millstream.kernels.bucket import Cells
from millstream.kernels.dense import Dense, lay_out, to_ranks
from millstream.kernels.keys import align
from millstream.kernels.rows import number_cells
from millstream.model.group import Measure

IntArray = npt.NDArray[np.int64]


# Rows for each combination from which cells of one row are brought together.
CROWDED = 4
# Cells are added up in matrices with at most so many places for each cell: clearing and searching them costs no more
# than numbering the cells. At least two, so that what becomes full is always added up in them, however it was divided.
DENSE_FACTOR = 4
# … and with at most so many places for the rows and all measures together: 256 MB, a small part of what a worker may
# take. It looks at no values, so that the same cells have the same layout however they were divided.
DENSE_PLACES = 32 << 20
# A slice in which this share of the combinations occurs keeps a cell for each of them.
FULL = 0.5


def merge(parts: Sequence[Cells], measures: Sequence[Measure], labels: int | None = None) -> Cells:
    """One set of cells with the sums of all parts. ``labels``: how many there are, where the cells may be full."""
    if len(parts) == 1:
        return parts[0]
    if any(part.by_row for part in parts):
        return _merge_rows(parts)
    numbers, keys, count = align([part.keys for part in parts], len(parts[0].keys))
    ranked, values = to_ranks(parts, measures)
    span = count * (labels or 1 + max(int(part.label.max(initial=0)) for part in parts))
    if span <= min(DENSE_FACTOR * sum(len(part) for part in parts), DENSE_PLACES // (1 + len(measures))):
        dense = lay_out(list(zip(ranked, numbers, strict=True)), span // count, count, measures)
        merged = _cells_of(dense, parts, keys, values, measures, full=labels is not None)
        if parts[0].index is None:
            return merged
        codes = _codes(parts, numbers, count)
        return replace(merged, index=_merge_index(parts, codes, dense.rows.ravel()), place=parts[0].place)
    used, cell, _ = number_cells(np.concatenate(_codes(parts, numbers, count)), span)
    places = np.split(cell, np.cumsum([len(part) for part in parts])[:-1])
    rows = _add("add", [part.rows for part in parts], places, len(used))
    partials: list[Planes | None] = []
    for index, measure in enumerate(measures):
        if all(part.partials[index] is None for part in parts):
            partials.append(None)
            continue
        found: list[Planes] = [p.partials[index] or (p.rows,) for p in ranked]
        planes = _merge(measure, found, places, len(used))
        partials.append((unrank(measure.kind, planes[0], values[index]),) if index in values else planes)
    runs = _merge_index(parts, places, rows)
    return Cells(keys, rows.astype(np.int64), tuple(partials), (used % count, used // count), runs, parts[0].place)


def _codes(parts: Sequence[Cells], numbers: Sequence[IntArray], count: int) -> list[IntArray]:
    return [part.label * count + number[part.key] for part, number in zip(parts, numbers, strict=True)]


def _cells_of(
    dense: Dense,
    parts: Sequence[Cells],
    keys: tuple[pa.Array, ...],
    values: Mapping[int, pa.Array],
    measures: Sequence[Measure],
    full: bool,
) -> Cells:
    """Matrices as cells: all of them where most have rows, and that is asked for."""
    rows = dense.rows.ravel()
    # NumPy looks for what is not zero several times faster in Booleans.
    used = np.flatnonzero(rows != 0)
    everywhere = full and FULL * len(rows) <= len(used)
    where: IntArray | slice = slice(None) if everywhere else used
    partials: list[Planes | None] = []
    for index, (measure, planes) in enumerate(zip(measures, dense.planes, strict=True)):
        if all(part.partials[index] is None for part in parts):
            partials.append(None)
            continue
        found = tuple(plane.ravel()[where] for plane in planes)
        partials.append((unrank(measure.kind, found[0], values[index]),) if index in values else found)
    count = dense.rows.shape[1]
    return Cells(keys, rows[where], tuple(partials), None if everywhere else (used % count, used // count))


def _merge_rows(parts: Sequence[Cells]) -> Cells:
    """Cells of one row each, behind each other; those of several rows become so many. Small chunks may add up to many
    rows of each combination: then they are counted after all."""
    numbers, keys, _ = align([part.keys for part in parts], len(parts[0].keys))
    key = np.concatenate([_by_row(part, n[part.key]) for part, n in zip(parts, numbers, strict=True)])
    label = np.concatenate([_by_row(part, part.label) for part in parts])
    found = [part.index for part in parts if part.index is not None]
    index = np.concatenate(found) if len(found) == len(parts) else None
    place = parts[0].place
    count = len(keys[0]) if keys else 1
    if len(key) < CROWDED * count * (int(label.max(initial=0)) + 1):
        return replace(Cells.of_rows(keys, key, label, index), place=place)
    codes = label.astype(np.int64) * count + key
    used, cell, order = number_cells(codes, int(codes.max()) + 1)
    index = None if index is None else index[order]
    return Cells(keys, np.bincount(cell), (), (used % count, used // count), index, place)


def _by_row(part: Cells, values: IntArray) -> IntArray:
    return values if part.by_row else np.repeat(values, part.rows)


def _merge_index(parts: Sequence[Cells], places: Sequence[IntArray], rows: IntArray) -> IntArray | None:
    """The parts' runs of a cell one after the other: parts come in the order of the row table, so positions still
    ascend. All parts refer to the same row table."""
    found = [part.index for part in parts if part.index is not None]
    if len(found) < len(parts):
        return None
    merged = np.empty(int(rows.sum()), np.int64)
    free = np.cumsum(rows) - rows
    for part, index, place in zip(parts, found, places, strict=True):
        own = np.cumsum(part.rows) - part.rows
        merged[np.repeat(free[place] - own, part.rows) + np.arange(len(index))] = index
        free[place] += part.rows
    return merged


def _merge(measure: Measure, found: list[Planes], places: list[IntArray], count: int) -> tuple[npt.NDArray[Any], ...]:
    width = max(len(planes) for planes in found)
    return tuple(
        _add(
            kind,
            [planes[number] for planes in found if len(planes) > number],
            [place for planes, place in zip(found, places, strict=True) if len(planes) > number],
            count,
        )
        for number, kind in enumerate(plane_kinds(measure, width))
    )


def _add(kind: str, planes: list[Plane], places: list[IntArray], count: int) -> npt.NDArray[Any]:
    if kind in ("min", "max"):
        total = identity(kind, planes[0].dtype.type, count)
        for plane, place in zip(planes, places, strict=True):
            reduce_at(kind, total, place, plane)
        return total
    total = np.zeros(count, np.float64 if kind == "fadd" else np.int64)
    for plane, place in zip(planes, places, strict=True):
        np.add.at(total, place, plane)
    return total
