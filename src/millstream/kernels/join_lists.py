"""A leg of a join as a list of cells: for combinations of attributes that are many, each with few rows.

A matrix of such a leg would be mostly empty. The list of a window is found by the slices' places in it; a query's part
of it is one look at each cell's label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millstream.kernels.aggregate import identity, plane_kinds, reduce_at
from millstream.kernels.fire import Piece, asked
from millstream.kernels.stack import Stack
from millstream.model.group import Measure

IntArray = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ListLeg:
    """Pieces and stacks of a leg; ``numbers`` gives the keys of each (of stacks, of pieces) their common number."""

    stacks: Sequence[Stack]
    pieces: Sequence[Piece]
    numbers: tuple[list[IntArray], list[IntArray]]

    def window(
        self, member: str, start: int, end: int, measures: Sequence[Measure]
    ) -> tuple[IntArray, Matrix, dict[Measure, tuple[Matrix, ...]]]:
        """The keys that the member has in a window, their rows and planes, as matrices of one row."""
        found = [*self._of_stacks(member, start, end, measures), *self._of_pieces(member, start, end, measures)]
        if not found:
            none = np.zeros(0, np.int64)
            empty = np.zeros((1, 0), np.int64)
            return none, empty, {m: (np.zeros((1, 0), _dtype(m, ())),) for m in measures}
        key, place = np.unique(np.concatenate([part.key for part in found]), return_inverse=True)
        places = np.split(place, np.cumsum([len(part.key) for part in found])[:-1])
        rows = np.zeros(len(key), np.int64)
        for part, at in zip(found, places, strict=True):
            np.add.at(rows, at, part.rows)
        planes = {m: _added(m, found, places, len(key)) for m in measures}
        return key, rows[None, :], planes

    def _of_pieces(self, member: str, start: int, end: int, measures: Sequence[Measure]) -> list[_Cells]:
        found = []
        for piece, number in zip(self.pieces, self.numbers[1], strict=True):
            position = piece.group.position.get(member)
            if position is None or not _inside(piece, start, end):
                continue
            cells = piece.content
            mine = np.flatnonzero(piece.group.labels[position][cells.label] & (cells.rows > 0))
            if not len(mine):
                continue
            planes: dict[Measure, tuple[Matrix, ...]] = {}
            for measure, partial in zip(asked(piece.group, measures), cells.partials, strict=True):
                planes[measure] = tuple(p[mine] for p in (partial or (cells.rows,)))
            found.append(_Cells(number[cells.key[mine]], cells.rows[mine], planes))
        return found

    def _of_stacks(self, member: str, start: int, end: int, measures: Sequence[Measure]) -> list[_Cells]:
        found = []
        for stack, number in zip(self.stacks, self.numbers[0], strict=True):
            position = stack.group.position.get(member)
            if position is None:
                continue
            low, high = stack.range(np.array([start]), np.array([end]))
            if low[0] >= high[0]:
                continue
            at = (np.array([position]), low, high)
            rows = stack.rows(*at)[0]
            mine = np.flatnonzero(rows)
            planes = {}
            for measure in asked(stack.group, measures):
                planes[measure] = tuple(p[0][mine] for p in stack.planes(measure, *at) or ()) or (rows[mine],)
            found.append(_Cells(number[mine], rows[mine], planes))
        return found


@dataclass(frozen=True)
class _Cells:
    key: IntArray
    rows: IntArray
    planes: dict[Measure, tuple[Matrix, ...]]


def _inside(piece: Piece, start: int, end: int) -> bool:
    late = piece.slice[2]
    return start <= piece.start and piece.end <= end and (late is None or late < end)


def _dtype(measure: Measure, planes: Sequence[Matrix]) -> type:
    if planes:
        return planes[0].dtype.type
    floating = measure.kind == "fsum" or (measure.argument.type.floating and measure.kind != "count")
    return np.float64 if floating else np.int64


def _added(measure: Measure, parts: Sequence[_Cells], places: Sequence[IntArray], count: int) -> tuple[Matrix, ...]:
    width = max((len(part.planes[measure]) for part in parts if measure in part.planes), default=1)
    total: list[Matrix] = []
    for number, kind in enumerate(plane_kinds(measure, width)):
        having = [
            (p.planes[measure][number], at) for p, at in zip(parts, places, strict=True) if _has(p, measure, number)
        ]
        dtype = np.float64 if kind == "fadd" else _dtype(measure, [h[0] for h in having]) if kind != "add" else np.int64
        plane = identity(kind, dtype, count) if kind in ("min", "max") else np.zeros(count, dtype)
        for values, at in having:
            if kind in ("min", "max"):
                reduce_at(kind, plane, at, values)
            else:
                np.add.at(plane, at, values)
        total.append(plane[None, :])
    return tuple(total)


def _has(part: _Cells, measure: Measure, number: int) -> bool:
    return measure in part.planes and len(part.planes[measure]) > number
