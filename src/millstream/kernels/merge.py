"""Merging cells of the same version and slice: chunks of a task, or buckets that compaction brings together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.kernels.aggregate import Plane, Planes, identity, plane_kinds, reduce_at, unrank
from millstream.kernels.bucket import Cells
from millstream.kernels.dense import to_ranks
from millstream.kernels.keys import align
from millstream.kernels.rows import number_cells
from millstream.model.group import Measure

IntArray = npt.NDArray[np.int64]


# Rows for each combination from which cells of one row are brought together.
CROWDED = 4


def merge(parts: Sequence[Cells], measures: Sequence[Measure]) -> Cells:
    """One set of cells with the sums of all parts."""
    if len(parts) == 1:
        return parts[0]
    if any(part.by_row for part in parts):
        return _merge_rows(parts)
    if all(part.at is None and part.keys == parts[0].keys for part in parts):
        return _merge_full(parts, measures)
    numbers, keys, count = align([part.keys for part in parts], len(parts[0].keys))
    ranked, values = to_ranks(parts, measures)
    codes = np.concatenate([p.label * count + n[p.key] for p, n in zip(parts, numbers, strict=True)])
    used, cell, _ = number_cells(codes, int(codes.max(initial=0)) + 1)
    places = np.split(cell, np.cumsum([len(part) for part in parts])[:-1])
    rows = _add("add", [part.rows for part in parts], places, len(used))
    partials: list[Planes | None] = []
    for index, measure in enumerate(measures):
        if all(part.partials[index] is None for part in parts):
            partials.append(None)
            continue
        found: list[Planes] = [p.partials[index] or (p.rows,) for p in ranked]
        merged = _merge(measure, found, places, len(used))
        partials.append((unrank(measure.kind, merged[0], values[index]),) if index in values else merged)
    runs = _merge_index(parts, places, rows)
    return Cells(keys, rows.astype(np.int64), tuple(partials), (used % count, used // count), runs, parts[0].place)


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


def _merge_full(parts: Sequence[Cells], measures: Sequence[Measure]) -> Cells:
    """Full cells of the same keys: element by element."""
    everywhere = [np.arange(len(parts[0]))] * len(parts)
    partials: list[Planes | None] = []
    for index, measure in enumerate(measures):
        if all(part.partials[index] is None for part in parts):
            partials.append(None)
        else:
            found: list[Planes] = [part.partials[index] or (part.rows,) for part in parts]
            partials.append(_merge(measure, found, everywhere, len(parts[0])))
    rows = sum((part.rows for part in parts[1:]), start=parts[0].rows)
    runs = _merge_index(parts, everywhere, rows)
    return Cells(parts[0].keys, rows, tuple(partials), None, runs, parts[0].place)


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
