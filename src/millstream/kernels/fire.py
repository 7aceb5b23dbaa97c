"""Fire: the answers of a group's due windows from its buckets.

    buckets ──► stacks of slices (one for each version) ──► partials of each (query, window) ──► rest ──► answer

Slices are stacked once, whatever number of windows they lie in; and buckets of different versions meet only in the
sums of a query's window, so versions need no alignment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.config import Limits
from millstream.kernels import compiled
from millstream.kernels.aggregate import identity, plane_kinds, ranked
from millstream.kernels.answering import Context, Due, Fired, Found, Pairs, answer, pairs_of
from millstream.kernels.batch import Evaluates
from millstream.kernels.bucket import Cells
from millstream.kernels.dense import Matrix, combine, to_ranks
from millstream.kernels.group import Group
from millstream.kernels.keys import align
from millstream.kernels.stack import SliceId, Stack, slice_id
from millstream.model.group import Measure
from millstream.model.types import DataType

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

# Stacks of all slices of a fire together; keys are taken in blocks that stay below it.
BLOCK_BYTES = 256 << 20
# (query, window) pairs are put together in blocks of about so many numbers, which stay in the caches.
BLOCK_NUMBERS = 1 << 17
# Compiled loops go through them once, so larger blocks only take memory: 24 MB for each plane.
COMPILED_NUMBERS = 1 << 20


@dataclass(frozen=True)
class Piece:
    """A bucket: its version, slice, and the watermark of its batch's plan."""

    group: Group
    start: int
    end: int
    watermark: int | None
    content: Cells

    @property
    def slice(self) -> SliceId:
        return slice_id(self.start, self.end, self.watermark)


def can_keep(group: Group, keys: int, limit: int) -> bool:
    """Whether a version's slices are worth keeping as a stack: one is not larger than ``limit`` bytes, and has no
    ranks in it, which hold for one fire only."""
    return group.can_be_full and 8 * group.labels.shape[1] * keys * (1 + len(group.version.measures)) <= limit


def fire(
    due: Sequence[Due],
    pieces: Sequence[Piece],
    time_type: DataType,
    evaluator: Evaluates,
    kept: Sequence[Stack] = (),
    limits: Limits | None = None,
) -> Fired:
    """Answer the due windows of queries that share their keys; ``pieces`` and ``kept`` stacks together hold all
    buckets that those windows need."""
    fired = Fired()
    if not due or not (pieces or kept):
        return fired
    slices = sorted({*(s for stack in kept for s in stack.slices), *(p.slice for p in pieces)}, key=by_start)
    shapes = pairs_of(due, slices)
    measures = tuple(dict.fromkeys(m for pairs in shapes for m in pairs.shape.measures))
    narrowed, values = with_ranks(pieces, measures)
    tables = [*(stack.keys for stack in kept), *(piece.content.keys for piece in narrowed)]
    numbers, key_values, key_count = align(tables, len(_keys(kept, pieces)))
    found: list[list[Found]] = [[] for _ in shapes]

    def members(group: Group) -> IntArray:
        return np.array([group.position.get(one.member.query, -1) for one in due], np.int64)

    stacked = (numbers[: len(kept)], numbers[len(kept) :])
    for first, last in _blocks(key_count, narrowed, measures):
        views = [*kept_views(members, kept, stacked[0], first, last)]
        loose = list(loose_views(members, narrowed, stacked[1], first, last, measures))
        views += loose
        for pairs, mine in zip(shapes, found, strict=True):
            mine += _windows(pairs, views, first, last)
        fired.seconds_in_classes += sum(view.stack.spent_in_classes() for view in loose)
    context = Context(values, key_values, time_type, evaluator, fired, limits or Limits())
    for pairs, mine in zip(shapes, found, strict=True):
        answer(pairs, mine, context)
    return fired


def _keys(kept: Sequence[Stack], pieces: Sequence[Piece]) -> tuple[object, ...]:
    return (kept[0].group if kept else pieces[0].group).version.keys or ()


def by_start(slice_: SliceId) -> tuple[int, int, int]:
    return slice_[0], slice_[1], slice_[2] or 0


def _blocks(keys: int, pieces: Sequence[Piece], measures: Sequence[Measure]) -> Iterator[tuple[int, int]]:
    """Ranges of keys. Only loose pieces are stacked here; what is kept has been small enough."""
    block = keys
    if pieces:
        height = max(max(piece.group.labels.shape) for piece in pieces) + 1
        slices = len({(piece.slice, id(piece.group)) for piece in pieces})
        block = max(1, BLOCK_BYTES // (8 * height * (slices + 2) * (2 + 2 * len(measures))))
    for first in range(0, keys, max(block, 1)):
        yield first, min(first + block, keys)


@dataclass(frozen=True)
class View:
    """A stack as a fire sees it: where its members are due, and which of the fire's keys its keys are (``inside``
    of its own, ``column`` of the fire's block; None: all of them, in order)."""

    stack: Stack
    member: IntArray
    late: SliceId | None
    inside: IntArray | None
    column: IntArray | None

    def asked(self, pairs: Pairs, places: slice) -> tuple[BoolArray, IntArray, IntArray, IntArray]:
        """Which pairs the stack contributes to, and their members and ranges of slices."""
        start, end = pairs.start[places], pairs.end[places]
        member = self.member[pairs.due_place[pairs.query[places]]]
        low, high = self.stack.range(start, end)
        mask = (member >= 0) & (low < high)
        if self.late is not None:
            assert self.late[2] is not None
            mask &= (self.late[1] <= end) & (self.late[2] < end)
        return mask, member[mask], low[mask], high[mask]

    def has_corners(self, pairs: Pairs) -> bool:
        """Whether compiled loops can put all of the pairs' windows together."""
        member = self.member[pairs.due_place]
        return self.stack.has_corners(pairs.shape.measures, member[member >= 0])

    def spread(self, kind: str, part: Matrix, mask: BoolArray, width: int) -> Matrix:
        """The part over all pairs and keys of the block."""
        if self.column is None and mask.all():
            return part
        whole = np.zeros((len(mask), width), part.dtype)
        if kind in ("min", "max"):
            whole[:] = identity(kind, part.dtype.type, 1)[0]
        if self.column is None:
            whole[mask] = part
        else:
            whole[np.ix_(np.flatnonzero(mask), self.column)] = part[:, self.inside]
        return whole

    def add(self, part: Matrix, mask: BoolArray, whole: Matrix) -> None:
        """Add the part to all pairs and keys of the block."""
        if self.column is None:
            whole[slice(None) if mask.all() else mask] += part
        else:
            whole[np.ix_(np.flatnonzero(mask), self.column)] += part[:, self.inside]


# For each due query its place among a group's members, -1 for none.
Members = Callable[[Group], IntArray]


def kept_views(
    members: Members, kept: Sequence[Stack], numbers: Sequence[IntArray], first: int, last: int
) -> Iterator[View]:
    """Stacks as the keys ``first`` to ``last`` see them."""
    for stack, number in zip(kept, numbers, strict=True):
        if first == 0 and len(number) == last and (number == np.arange(last)).all():
            yield View(stack, members(stack.group), None, None, None)
        else:
            inside = np.flatnonzero((number >= first) & (number < last))
            yield View(stack, members(stack.group), None, inside, number[inside] - first)


def loose_views(
    members: Members,
    pieces: Sequence[Piece],
    numbers: Sequence[IntArray],
    first: int,
    last: int,
    measures: Sequence[Measure],
) -> Iterator[View]:
    """Stacks of this fire alone, one for each version, and one for each slice that was closed when it got rows."""
    by_stack: dict[tuple[int, SliceId | None], dict[SliceId, list[tuple[Piece, IntArray]]]] = {}
    for piece, number in zip(pieces, numbers, strict=True):
        late = piece.slice if piece.slice[2] is not None else None
        by_stack.setdefault((id(piece.group), late), {}).setdefault(piece.slice, []).append((piece, number))
    for (_, late), slices in by_stack.items():
        group = next(iter(slices.values()))[0][0].group
        stack = Stack(group, asked(group, measures), (), last - first)
        stack.expect(len(slices))
        for slice_ in sorted(slices, key=by_start):
            parts = [(_within(piece.content, number, first, last), number - first) for piece, number in slices[slice_]]
            stack.push(slice_, [cells for cells, _ in parts], [number for _, number in parts])
        yield View(stack, members(group), late, None, None)


def _within(cells: Cells, number: IntArray, first: int, last: int) -> Cells:
    """The cells whose key lies in a block of keys."""
    if first == 0 and (not len(number) or int(number.max()) < last):
        return cells
    key = number[cells.key]
    where = np.flatnonzero((key >= first) & (key < last))
    partials = tuple(None if p is None else tuple(plane[where] for plane in p) for p in cells.partials)
    at = (cells.key[where], cells.label[where])
    return Cells(cells.keys, cells.rows[where], partials, at, by_row=cells.by_row)


# A view that contributes to some pairs, to which of them, and their members and ranges of slices.
Contribution = tuple[View, BoolArray, IntArray, IntArray, IntArray]


def _windows(pairs: Pairs, views: Sequence[View], first: int, last: int) -> Iterator[Found]:
    """Put the pairs' windows together and give the rows of their answers, block by block."""
    width = last - first
    many = len(views) == 1 and compiled.pays(len(pairs.end) * width)
    loop = many and views[0].column is None and views[0].has_corners(pairs)
    step = max(1, (COMPILED_NUMBERS if loop else BLOCK_NUMBERS) // max(width, 1))
    for begin in range(0, len(pairs.end), step):
        parts = contributions(pairs, views, slice(begin, min(begin + step, len(pairs.end))))
        if not parts:
            continue
        if loop:
            yield _by_loop(parts[0], pairs.shape.measures, begin, first)
            continue
        gathered = gather(parts, width)
        planes = {measure: gathered.planes(measure) for measure in pairs.shape.measures}
        yield Found.of(begin, first, gathered.rows, planes)


def contributions(pairs: Pairs, views: Sequence[View], places: slice) -> list[Contribution]:
    """The views that have something of some pairs."""
    parts = [(view, *view.asked(pairs, places)) for view in views]
    return [part for part in parts if part[1].any()]


def _by_loop(part: Contribution, measures: Sequence[Measure], begin: int, first_key: int) -> Found:
    """By compiled loops, where a single stack has all of the keys, and nothing but running sums."""
    view, mask, *at = part
    found = view.stack.answered(measures, *at)
    assert found is not None
    counts = np.zeros(len(mask), np.int64)
    counts[mask] = found.counts
    planes = {m: mine or [found.rows] for m, mine in zip(measures, found.planes, strict=True)}
    keys = found.keys + first_key if first_key else found.keys
    return Found(begin, counts, keys, found.rows, planes)


@dataclass(frozen=True)
class Gathered:
    """The numbers of some pairs by key, added up over all views that contribute."""

    rows: Matrix
    _parts: tuple[Contribution, ...]
    # Each view's own rows.
    _counted: tuple[Matrix, ...]

    def planes(self, measure: Measure) -> list[Matrix]:
        """A count that equals the number of rows has no plane of its own in a stack."""
        total: list[Matrix] = []
        width = self.rows.shape[1]
        for (view, mask, *at), rows in zip(self._parts, self._counted, strict=True):
            planes = view.stack.planes(measure, *at)
            if planes is None:
                continue
            kinds = plane_kinds(measure, max(len(planes), len(total), 1))
            mine = [view.spread(kind, p, mask, width) for kind, p in zip(kinds, planes or [rows], strict=False)]
            longer, shorter = (total, mine) if len(total) > len(mine) else (mine, total)
            total = [combine(kinds[i], p, shorter[i]) if i < len(shorter) else p for i, p in enumerate(longer)]
        return total


def gather(parts: Sequence[Contribution], width: int) -> Gathered:
    """The numbers of pairs from all views that have something of them."""
    counted = tuple(view.stack.rows(*at) for view, _, *at in parts)
    if len(parts) == 1:
        rows = parts[0][0].spread("add", counted[0], parts[0][1], width)
    else:
        rows = np.zeros((len(parts[0][1]), width), np.int64)
        for (view, mask, *_), mine in zip(parts, counted, strict=True):
            view.add(mine, mask, rows)
    return Gathered(rows, tuple(parts), counted)


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
        single = [replace(narrowed[i].content, partials=(narrowed[i].content.partials[at],)) for i, at in mine]
        changed, found = to_ranks(single, [measure])
        values[measure] = found[0]
        for (i, at), cells in zip(mine, changed, strict=True):
            old = narrowed[i].content.partials
            partials = (*old[:at], cells.partials[0], *old[at + 1 :])
            narrowed[i] = replace(narrowed[i], content=replace(narrowed[i].content, partials=partials))
    return narrowed, values


def _narrowed(piece: Piece, measures: Sequence[Measure]) -> Piece:
    own = piece.group.version.measures
    partials = tuple(piece.content.partials[own.index(measure)] for measure in asked(piece.group, measures))
    return replace(piece, content=replace(piece.content, partials=partials))
