"""The slices of a group version one above the other: what windows are put together from.

    layers   0   s1   s1+s2   s1+s2+s3   …        labels summed up too, within each layer:
             window = layer[high] - layer[low]    query = row[stop] - row[start]

Integers are kept as running sums over slices and over labels, so a window of a query whose labels are neighbours is
four rows added and subtracted, however many slices and classes it has. Sums wrap around in 64 bits, and so do their
differences: exact as long as the window's own sum fits. Doubles, MIN and MAX have no inverse; their slices stay apart.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels import compiled
from millstream.kernels.aggregate import identity, plane_kinds, reducer
from millstream.kernels.batch import LIMB, LIMB_MASK
from millstream.kernels.bucket import Cells
from millstream.kernels.dense import Labels, Matrix, lay_out, reduce_labels
from millstream.kernels.group import Group
from millstream.kernels.keys import align
from millstream.model.group import Measure

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Answered:
    """Keys with rows, window after window: how many each window has, their numbers, their rows, and the planes of each
    measure, [] where they are the rows."""

    counts: IntArray
    keys: IntArray
    rows: IntArray
    planes: list[list[IntArray]]


# Layers that a stack has room for at first.
FIRST_LAYERS = 8

# (start, end, watermark): a bucket whose batch was planned when the slice was still open counts in every window
# (watermark None); a later one only in windows that end after its watermark.
SliceId = tuple[int, int, int | None]


def slice_id(start: int, end: int, watermark: int | None) -> SliceId:
    on_time = watermark is None or watermark < end
    return start, end, None if on_time else watermark


class Stack:
    """Slices in order of their start. ``keys`` are the values by number; new keys get the next numbers."""

    def __init__(self, group: Group, measures: Sequence[Measure], keys: tuple[pa.Array, ...], count: int) -> None:
        self.group = group
        self.measures = tuple(measures)
        self.keys = keys
        self.key_count = count
        self.slices: list[SliceId] = []
        # Slices dropped so far: their keys keep their numbers.
        self.dropped = 0
        # Slices that are known to come: room for them is made at once.
        self._coming = 0
        self._seconds_in_classes = 0.0
        labels = group.label_runs
        self._rows = Sums(labels, counts=True)
        # None where a count has always been the number of rows.
        self._planes: list[list[Sums | Apart] | None] = [None] * len(self.measures)

    @classmethod
    def empty(cls, group: Group) -> Stack:
        """A stack for all measures of a version, without keys yet."""
        keys = group.version.keys or ()
        return cls(group, group.version.measures, tuple(pa.nulls(0, e.type.arrow) for e in keys), 0 if keys else 1)

    @property
    def bytes(self) -> int:
        return self._rows.bytes + sum(plane.bytes for planes in self._planes if planes for plane in planes)

    def numbers(self, parts: Sequence[Cells]) -> list[IntArray]:
        """The numbers of the parts' keys, after new ones have been added."""
        numbers, values, count = align([self.keys, *(cells.keys for cells in parts)], len(self.keys))
        if not self.keys or (count == self.key_count == len(numbers[0]) and numbers[0] is numbers[-1]):
            return numbers[1:]
        mine = np.full(count, -1, np.int64)
        mine[numbers[0]] = np.arange(self.key_count)
        new = np.flatnonzero(mine < 0)
        mine[new] = self.key_count + np.arange(len(new))
        places = pa.array(new)
        self.keys = tuple(pa.concat_arrays([a, b.take(places)]) for a, b in zip(self.keys, values, strict=True))
        self.key_count = count
        return [mine[number] for number in numbers[1:]]

    def expect(self, slices: int) -> None:
        """So many slices will be pushed: growing step by step would copy all layers at each step."""
        self._coming = slices
        for plane in self._integers():
            plane.expect(slices)

    def _integers(self) -> list[Sums]:
        planes = [self._rows, *(plane for planes in self._planes if planes for plane in planes)]
        return [plane for plane in planes if isinstance(plane, Sums)]

    def push(self, slice_: SliceId, parts: Sequence[Cells], numbers: Sequence[IntArray]) -> None:
        """Add a slice above the others from its buckets, whose keys have these numbers."""
        labels = self.group.labels.shape[1]
        dense = lay_out(list(zip(parts, numbers, strict=True)), labels, self.key_count, self.measures)
        with self._in_classes(0.0 if self.group.label_runs.single else 1.0):
            for index, (measure, mine) in enumerate(zip(self.measures, dense.planes, strict=True)):
                if mine[0] is dense.rows and self._planes[index] is None:
                    continue
                self._push(index, measure, mine)
            self._rows.push(dense.rows, self.key_count)
        self.slices.append(slice_)

    @contextmanager
    def _in_classes(self, share: float) -> Iterator[None]:
        """A share of what is done here goes from classes to queries."""
        started = time.perf_counter()
        yield
        self._seconds_in_classes += share * (time.perf_counter() - started)

    def spent_in_classes(self) -> float:
        """Seconds since this was last asked, that go from classes to queries: what sharing costs here. All of the time
        in which a slice's sums over classes are made and added to those below, the most that it can be; and half of
        that in which windows are put together of four rows, where without classes two would do."""
        spent, self._seconds_in_classes = self._seconds_in_classes, 0.0
        return spent

    def _push(self, index: int, measure: Measure, mine: list[Matrix]) -> None:
        planes = self._planes[index]
        if measure.kind == "sum" and len(mine) == 1 and plane_kinds(measure, 1) == ("add",):
            mine = _safe(mine[0])
        if planes is None:
            # So far the count was the number of rows, or nothing has been pushed.
            planes = [self._rows.copy()] if measure.kind == "count" else []
            self._planes[index] = planes
        kinds = plane_kinds(measure, max(len(mine), len(planes)))
        for number, kind in enumerate(kinds):
            if number == len(planes):
                planes.append(self._new(kind))
            planes[number].push(mine[number] if number < len(mine) else None, self.key_count)

    def _new(self, kind: str) -> Sums | Apart:
        labels = self.group.label_runs
        plane: Sums | Apart = Sums(labels) if kind == "add" else Apart(kind, labels)
        if isinstance(plane, Sums):
            plane.expect(len(self.slices) + self._coming)
        for _ in self.slices:
            plane.push(None, self.key_count)
        return plane

    def drop_below(self, start: int) -> None:
        """Forget the slices that start before ``start``."""
        gone = sum(1 for s in self.slices if s[0] < start)
        if gone:
            self.slices = self.slices[gone:]
            self.dropped += gone
            for plane in [self._rows, *(p for planes in self._planes if planes for p in planes)]:
                plane.drop(gone)

    def range(self, starts: IntArray, ends: IntArray) -> tuple[IntArray, IntArray]:
        """Which slices lie in windows: slices of a version that has a query lie inside its windows or outside."""
        mine = np.array([s[0] for s in self.slices], np.int64)
        return np.searchsorted(mine, starts), np.searchsorted(mine, ends)

    def answered(
        self, measures: Sequence[Measure], members: IntArray, low: IntArray, high: IntArray
    ) -> Answered | None:
        """What `rows` and `planes` have where there are rows, by compiled loops; None where those cannot."""
        if not self.has_corners(measures, members):
            return None
        with self._in_windows():
            corners = self._rows.corners(members, low, high)
            counts, keys, found = compiled.answered(self._rows.flat, corners, self.key_count)
            planes = [
                [compiled.picked(one.flat, one.corners(members, low, high), counts, keys) for one in mine or ()]
                for mine in map(self._sums_of, measures)
            ]
        return Answered(counts, keys, found, planes)

    def _in_windows(self) -> AbstractContextManager[None]:
        return self._in_classes(0.5 if self._rows.is_over_labels else 0.0)

    def has_corners(self, measures: Sequence[Measure], members: IntArray) -> bool:
        """Whether all planes of these measures are running sums, and those of these members are of four rows."""
        summed = all(self._sums_of(measure) is not None for measure in measures)
        return summed and self._rows.has_corners(members)

    def _sums_of(self, measure: Measure) -> list[Sums] | None:
        """The planes of a measure where all are running sums, [] where they are the number of rows; else None."""
        if measure not in self.measures:
            return None
        planes = self._planes[self.measures.index(measure)] or []
        sums = [plane for plane in planes if isinstance(plane, Sums)]
        return sums if len(sums) == len(planes) else None

    def rows(self, members: IntArray, low: IntArray, high: IntArray) -> Matrix:
        """The number of rows of each (member, window) by key."""
        with self._in_windows():
            return self._rows.between(members, low, high, self.key_count)

    def planes(self, measure: Measure, members: IntArray, low: IntArray, high: IntArray) -> list[Matrix] | None:
        """The measure's planes by key: None where the version lacks it, [] where it is the number of rows."""
        if measure not in self.measures:
            return None
        planes = self._planes[self.measures.index(measure)]
        if planes is None:
            return []
        with self._in_windows():
            return [plane.between(members, low, high, self.key_count) for plane in planes]


# The largest sum of one cell that windows of thousands of slices and labels can add up in 64 bits.
SAFE = 1 << 40


def _safe(plane: Matrix) -> list[Matrix]:
    """A sum in one limb, or in two where it could grow beyond 64 bits with the others of a window."""
    if not plane.size or max(-int(plane.min()), int(plane.max())) < SAFE:
        return [plane]
    return [plane & LIMB_MASK, plane >> LIMB]


Integers = npt.NDArray[np.signedinteger[Any]]
# Rows of a stack that 32 bits can count.
MOST_COUNTED = (1 << 31) - 1
# Bytes of memory kept for the next stack, the least that is worth keeping, since smaller pieces are handed out without
# new pages, and how much larger than needed one may be.
SPARE_BYTES = 384 << 20
SPARE_LEAST = 4 << 20
SPARE_FACTOR = 2


class Spare:
    """Memory of stacks that are gone. The system hands out new pages one fault at a time, which takes longer than
    filling them. Nothing is kept unless somebody asks for it."""

    def __init__(self, limit: int = 0, least: int = SPARE_LEAST) -> None:
        self._limit, self._least = limit, least
        self._free: list[npt.NDArray[np.uint8]] = []

    def keep(self, limit: int) -> None:
        """So many bytes from now on."""
        self._limit = limit
        self._trim()

    def take(self, shape: tuple[int, ...], kind: type[np.signedinteger[Any]]) -> Integers:
        """An array of any content."""
        size = math.prod(shape) * np.dtype(kind).itemsize
        fitting = [i for i, one in enumerate(self._free) if size <= one.size <= SPARE_FACTOR * size]
        flat = self._free.pop(min(fitting, key=lambda i: self._free[i].size)) if fitting else np.empty(size, np.uint8)
        return flat[:size].view(kind).reshape(shape)

    def give(self, data: Integers) -> None:
        """Of an array that was taken."""
        base = data.base
        while isinstance(base, np.ndarray) and base.base is not None:
            base = base.base
        if isinstance(base, np.ndarray) and base.dtype == np.uint8 and base.size >= self._least:
            self._free.append(base)
        self._trim()

    def _trim(self) -> None:
        while sum(one.nbytes for one in self._free) > self._limit:
            self._free.pop(0)


spare = Spare()


class Sums:
    """Running sums of an integer plane over slices; over labels too where a query owns few runs of them. The layers
    lie in a ring: the lowest go and new ones come without moving the others.

    ``counts``: the numbers are counts of rows. As long as all rows of the stack could be counted in 32 bits, so can
    those of any window, and half the memory is enough.
    """

    def __init__(self, labels: Labels, counts: bool = False) -> None:
        self._labels = labels
        self._type: type[np.signedinteger[Any]] = np.int32 if counts else np.int64
        # The rows of each layer, lowest first, where they are counted.
        self._counted: list[int] = []
        self._summed = labels.few_runs and not labels.single
        own = labels.member.shape[1] if labels.single else len(labels.member)
        self._height = labels.member.shape[1] + 1 if self._summed else own
        self._data: Integers = np.zeros((FIRST_LAYERS, self._height, 0), self._type)
        self._base = 0
        self._top = 0
        # Layers that there will be, as far as is known.
        self._layers = FIRST_LAYERS

    @property
    def bytes(self) -> int:
        return self._data.nbytes

    def expect(self, layers: int) -> None:
        """So many more will be pushed."""
        self._layers = self._top + layers + 1

    def copy(self) -> Sums:
        other = Sums(self._labels)
        other._type, other._counted = self._type, list(self._counted)
        other._data, other._base, other._top = self._data.copy(), self._base, self._top
        return other

    def _place(self, layer: IntArray) -> IntArray:
        return (self._base + layer) % len(self._data)

    def push(self, plane: Matrix | None, width: int) -> None:
        """A slice's plane, ``width`` keys wide; None for zeros."""
        if self._type is np.int32:
            self._counted.append(0 if plane is None else int(plane.sum()))
            if sum(self._counted) > MOST_COUNTED:
                self._widen()
        self._make_room(width)
        below = self._data[(self._base + self._top) % len(self._data)]
        self._top += 1
        here = self._data[(self._base + self._top) % len(self._data)]
        if plane is None:
            here[:] = below
        elif self._summed and compiled.pays(plane.size):
            compiled.pile(below, plane, here)
        elif self._summed:
            here[0] = 0
            # Row by row, each of one type: half the time of NumPy's own running sums.
            for label, row in enumerate(plane.astype(self._type, copy=False)):
                np.add(here[label, :width], row, out=here[label + 1, :width])
            here[1:, :width] += below[1:, :width]
            here[1:, width:] = below[1:, width:]
        else:
            mine = plane if self._labels.single else reduce_labels("add", self._labels, plane)
            here[:, width:] = below[:, width:]
            np.add(below[:, :width], mine, out=here[:, :width], casting="unsafe")

    def _make_room(self, width: int) -> None:
        layers, height, room = self._data.shape
        if self._top + 1 < layers and width <= room:
            return
        # Keys keep coming where they come at all.
        wide = room if width <= room else width if room == 0 else width + width // 4
        used = self._top + 1
        # A quarter more than is known of: the next fire may bring a few slices more than this one.
        known = self._layers + self._layers // 4 if self._layers > used else 2 * used
        grown = spare.take((layers if used < layers and room else known, height, wide), self._type)
        # The ring is unrolled: what lies before its end, then what lies at its beginning.
        first = min(used, layers - self._base)
        grown[:first, :, :room] = self._data[self._base : self._base + first]
        grown[first:used, :, :room] = self._data[: used - first]
        grown[:used, :, room:] = 0
        spare.give(self._data)
        self._data, self._base = grown, 0

    def _widen(self) -> None:
        """To 64 bits: the differences to the lowest layer are what counts, and they are right in 32 still."""
        below = self._data[self._base].copy()
        wide = spare.take(self._data.shape, np.int64)
        np.subtract(self._data, below, out=wide, dtype=np.int32, casting="unsafe")
        spare.give(self._data)
        self._data, self._type, self._counted = wide, np.int64, []

    def __del__(self) -> None:
        # Nobody holds a part of it: what windows get are copies. At the end of a process there is no pool any more.
        if spare is not None:
            spare.give(self._data)

    def drop(self, number: int) -> None:
        """The lowest layers go; what is left are still differences."""
        del self._counted[:number]
        self._base = (self._base + number) % len(self._data)
        self._top -= number

    @property
    def is_over_labels(self) -> bool:
        """Whether sums run over labels too."""
        return self._summed

    @property
    def flat(self) -> Integers:
        """All layers as rows below each other."""
        return self._data.reshape(-1, self._data.shape[2])

    def has_corners(self, members: IntArray) -> bool:
        """Whether the sums of each member are those of four rows: not where its labels are several runs."""
        return not self._summed or bool((self._labels.run_count[members] <= 1).all())

    def corners(self, members: IntArray, low: IntArray, high: IntArray) -> IntArray:
        """For each window of a member four rows of ``flat``: its sums are the first, less the second and the third, and
        the fourth."""
        below, above = self._place(low) * self._height, self._place(high) * self._height
        if not self._summed:
            row = self._row(members)
            return np.stack([above + row, below + row, above + row, above + row], axis=1)
        run = self._labels.run_first[members]
        none = self._labels.run_count[members] == 0
        start, stop = (np.where(none, 0, np.append(edge, 0)[run]) for edge in (self._labels.start, self._labels.stop))
        return np.stack([above + stop, above + start, below + stop, below + start], axis=1)

    def _row(self, members: IntArray) -> IntArray:
        """Where there are no sums over labels: the row of each member in a layer."""
        return self._labels.start[members] if self._labels.single else members

    def between(self, members: IntArray, low: IntArray, high: IntArray, width: int) -> Matrix:
        """The window's sums of each member: slices ``low`` to ``high``."""
        flat = self.flat
        below, above = self._place(low) * self._height, self._place(high) * self._height
        if not self._summed:
            row = self._row(members)
            found = _take(flat, above + row, width)
            found -= _take(flat, below + row, width)
            return found.astype(np.int64, copy=False)
        first, count = self._labels.run_first[members], self._labels.run_count[members]
        if (count == 1).all():
            return self._runs(flat, first, below, above, width).astype(np.int64, copy=False)
        result = np.zeros((len(members), width), np.int64)
        for number in range(int(count.max(initial=0))):
            having = np.flatnonzero(count > number)
            result[having] += self._runs(flat, first[having] + number, below[having], above[having], width)
        return result

    def _runs(self, flat: Integers, run: IntArray, below: IntArray, above: IntArray, width: int) -> Integers:
        start, stop = self._labels.start[run], self._labels.stop[run]
        found = _take(flat, above + stop, width)
        found -= _take(flat, above + start, width)
        found -= _take(flat, below + stop, width)
        found += _take(flat, below + start, width)
        return found


def _take(flat: Integers, rows: IntArray, width: int) -> Integers:
    found = flat.take(rows, axis=0)
    return found if found.shape[1] == width else found[:, :width]


class Apart:
    """A plane of doubles or extrema by query, slice by slice."""

    def __init__(self, kind: str, labels: Labels) -> None:
        self._kind = kind
        self._labels = labels
        self._layers: list[Matrix | None] = []

    @property
    def bytes(self) -> int:
        return sum(layer.nbytes for layer in self._layers if layer is not None)

    def push(self, plane: Matrix | None, width: int) -> None:
        """A slice's plane; None where it has no values."""
        self._layers.append(None if plane is None else reduce_labels(self._kind, self._labels, plane))

    def drop(self, number: int) -> None:
        del self._layers[:number]

    def between(self, members: IntArray, low: IntArray, high: IntArray, width: int) -> Matrix:
        dtype = next((layer.dtype.type for layer in self._layers if layer is not None), np.float64)
        result = np.zeros((len(members), width), dtype)
        if self._kind != "fadd":
            result[:] = identity(self._kind, dtype, 1)[0]
        spans = np.stack([low, high], axis=1)
        distinct, owner = np.unique(spans, axis=0, return_inverse=True)
        owner = owner.reshape(-1)
        for number, (first, last) in enumerate(distinct):
            places = np.flatnonzero(owner == number)
            total = result[places]
            for layer in self._layers[first:last]:
                if layer is not None:
                    mine = layer[members[places]]
                    part = total[:, : mine.shape[1]]
                    with np.errstate(invalid="ignore"):
                        (np.add if self._kind == "fadd" else reducer(self._kind))(part, mine, out=part)
            result[places] = total
        return result
