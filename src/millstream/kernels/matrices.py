"""Slices as matrices (queries × keys): what windows are put together from.

A slice's matrix of a whole group version is worth keeping: every window that contains the slice adds it again. It is
made once, with the
slice's own keys; where a fire numbers the keys otherwise, or asks for some of the queries, a **source** says how to
look it up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.aggregate import identity, plane_kinds, ranked
from millstream.kernels.bucket import Cells
from millstream.kernels.dense import Dense, Labels, Matrix, combine, lay_out, per_query, to_ranks
from millstream.kernels.group import Group
from millstream.kernels.keys import align
from millstream.model.group import Measure

IntArray = npt.NDArray[np.int64]

# (start, end, watermark): a bucket whose batch was planned when the slice was still open counts in every window
# (watermark None); a later one only in windows that end after its watermark.
SliceId = tuple[int, int, int | None]


def slice_id(start: int, end: int, watermark: int | None) -> SliceId:
    on_time = watermark is None or watermark < end
    return start, end, None if on_time else watermark


@dataclass(frozen=True)
class SliceMatrix:
    """All members of a version by the keys that occur in the slice."""

    keys: tuple[pa.Array, ...]
    dense: Dense

    @property
    def bytes(self) -> int:
        matrices = {id(m): m.nbytes for m in [self.dense.rows, *(p for planes in self.dense.planes for p in planes)]}
        return sum(matrices.values())


@dataclass(frozen=True)
class Piece:
    """A bucket, or all buckets of a slice made into a matrix: its version, slice, and the watermark of its batch's
    plan."""

    group: Group
    start: int
    end: int
    watermark: int | None
    content: Cells | SliceMatrix

    @property
    def slice(self) -> SliceId:
        return slice_id(self.start, self.end, self.watermark)


def can_keep(group: Group, keys: int, limit: int) -> bool:
    """Whether a slice's matrix is worth keeping: not larger than ``limit`` bytes, and no ranks in it, which hold for
    one fire only."""
    return group.can_be_full and 8 * len(group.version.members) * keys * (1 + len(group.version.measures)) <= limit


def slice_matrix(group: Group, parts: Sequence[Cells]) -> SliceMatrix:
    """The matrix of a slice from its buckets."""
    numbers, keys, count = align([cells.keys for cells in parts], len(group.version.keys or ()))
    labels = group.labels
    dense = lay_out(list(zip(parts, numbers, strict=True)), labels.shape[1], count, group.version.measures)
    return SliceMatrix(keys, per_query(dense, group.label_runs, group.version.measures))


@dataclass(frozen=True)
class Source:
    """A matrix and how to look up due queries (``row``, -1 for none) and keys (``column``, -1 for none; None: as they
    are)."""

    measures: Sequence[Measure]
    dense: Dense
    row: IntArray
    column: IntArray | None

    def rows(self, queries: IntArray) -> Matrix:
        """The number of rows of some due queries, by key."""
        return self._look_up("add", self.dense.rows, queries)

    def planes(self, measure: Measure, queries: IntArray) -> list[Matrix] | None:
        """The measure's planes of some due queries, by key; None where no due query of this matrix has it, and ``[]``
        where it is the number of rows."""
        if measure not in self.measures:
            return None
        planes = self.dense.planes[self.measures.index(measure)]
        if planes[0] is self.dense.rows:
            return []
        kinds = plane_kinds(measure, len(planes))
        return [self._look_up(kind, plane, queries) for kind, plane in zip(kinds, planes, strict=True)]

    def _look_up(self, kind: str, plane: Matrix, queries: IntArray) -> Matrix:
        row = self.row[queries]
        found = plane[row]
        nothing = identity(kind, plane.dtype.type, 1)[0] if kind in ("min", "max") else 0
        if (row < 0).any():
            found[row < 0] = nothing
        if self.column is None:
            return found
        found = found[:, self.column]
        found[:, self.column < 0] = nothing
        return found


def sources_of(
    queries: Sequence[str],
    pieces: Sequence[Piece],
    numbers: Sequence[IntArray],
    block: tuple[int, int],
    measures: Sequence[Measure],
) -> dict[SliceId, list[Source]]:
    """For each slice the matrices of its versions, for a block of keys; ``numbers`` gives each piece's keys their
    number."""
    found: dict[SliceId, list[Source]] = {}
    loose: dict[tuple[SliceId, int], list[tuple[Piece, IntArray]]] = {}
    for piece, number in zip(pieces, numbers, strict=True):
        if isinstance(piece.content, SliceMatrix):
            found.setdefault(piece.slice, []).append(_kept_source(queries, piece.group, piece.content, number, block))
        else:
            loose.setdefault((piece.slice, id(piece.group)), []).append((piece, number))
    for (slice_, _), parts in loose.items():
        found.setdefault(slice_, []).append(_source(queries, parts, block, measures))
    return found


def _kept_source(
    queries: Sequence[str], group: Group, matrix: SliceMatrix, number: IntArray, block: tuple[int, int]
) -> Source:
    row = np.array([group.position.get(query, -1) for query in queries])
    first, last = block
    if first == 0 and len(number) == last and (number == np.arange(last)).all():
        return Source(group.version.measures, matrix.dense, row, None)
    column = np.full(last - first, -1)
    inside = (number >= first) & (number < last)
    column[number[inside] - first] = np.flatnonzero(inside)
    return Source(group.version.measures, matrix.dense, row, column)


def _source(
    queries: Sequence[str], parts: list[tuple[Piece, IntArray]], block: tuple[int, int], measures: Sequence[Measure]
) -> Source:
    group = parts[0][0].group
    first, last = block
    inside = [(_within(_cells(piece), number, first, last), number - first) for piece, number in parts]
    own = asked(group, measures)
    dense = lay_out(inside, group.labels.shape[1], last - first, own)
    labels = np.zeros((len(queries), group.labels.shape[1]), np.bool_)
    for place, query in enumerate(queries):
        if query in group.position:
            labels[place] = group.labels[group.position[query]]
    return Source(own, per_query(dense, Labels.of(labels), own), np.arange(len(queries)), None)


def _cells(piece: Piece) -> Cells:
    assert isinstance(piece.content, Cells)
    return piece.content


def _within(cells: Cells, number: IntArray, first: int, last: int) -> Cells:
    """The cells whose key lies in a block of keys."""
    key = number[cells.key]
    if first == 0 and (not len(key) or int(key.max()) < last):
        return cells
    where = np.flatnonzero((key >= first) & (key < last))
    partials = tuple(None if p is None else tuple(plane[where] for plane in p) for p in cells.partials)
    return Cells(cells.keys, cells.rows[where], partials, (cells.key[where], cells.label[where]))


def asked(group: Group, measures: Sequence[Measure]) -> list[Measure]:
    """Those of the measures that a version has: it lacks the ones of queries that came later or had gone."""
    return [measure for measure in measures if measure in group.version.measures]


def with_ranks(pieces: Sequence[Piece], measures: Sequence[Measure]) -> tuple[list[Piece], dict[Measure, pa.Array]]:
    """Only the partials that due queries ask for, with ranks of MIN and MAX over text that are comparable between all
    pieces."""
    narrowed = [_narrowed(piece, measures) for piece in pieces]
    values: dict[Measure, pa.Array] = {}
    for measure in measures:
        if measure.kind not in ("min", "max") or not ranked(measure.argument.type):
            continue
        having = [i for i, piece in enumerate(narrowed) if measure in piece.group.version.measures]
        mine = [(i, asked(narrowed[i].group, measures).index(measure)) for i in having]
        single = [replace(_cells(narrowed[i]), partials=(_cells(narrowed[i]).partials[at],)) for i, at in mine]
        changed, found = to_ranks(single, [measure])
        values[measure] = found[0]
        for (i, at), cells in zip(mine, changed, strict=True):
            old = _cells(narrowed[i]).partials
            partials = (*old[:at], cells.partials[0], *old[at + 1 :])
            narrowed[i] = replace(narrowed[i], content=replace(_cells(narrowed[i]), partials=partials))
    return narrowed, values


def _narrowed(piece: Piece, measures: Sequence[Measure]) -> Piece:
    if isinstance(piece.content, SliceMatrix):
        return piece
    own = piece.group.version.measures
    partials = tuple(piece.content.partials[own.index(measure)] for measure in asked(piece.group, measures))
    return replace(piece, content=replace(piece.content, partials=partials))


def add_planes(measure: Measure, left: list[Matrix], right: list[Matrix]) -> list[Matrix]:
    if len(left) < len(right):
        left, right = right, left
    kinds = plane_kinds(measure, len(left))
    return [combine(kinds[i], p, right[i]) if i < len(right) else p for i, p in enumerate(left)]
