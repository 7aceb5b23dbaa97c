"""Fire: the answers of a group's due windows from its buckets.

    buckets ──► one matrix (queries × keys) for each slice ──► each query adds the slices of its windows ──► rest ──►
    answer

Going from classes to queries once for each slice, before windows are put together, costs a tenth of the other order;
and buckets of different versions meet only after that step, so versions need no alignment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from millstream.kernels.aggregate import identity, plane_kinds, reducer, stored
from millstream.kernels.answering import Cohort, Collected, Context, Due, Fired, answer, cohorts_of
from millstream.kernels.batch import EXACT, Evaluates
from millstream.kernels.dense import Matrix
from millstream.kernels.keys import align
from millstream.kernels.matrices import Piece, SliceId, Source, add_planes, sources_of, with_ranks
from millstream.model.group import Measure, measures_of
from millstream.model.query import WindowSpec
from millstream.model.types import DataType

IntArray = npt.NDArray[np.int64]

# Matrices of all slices of a fire together; keys are taken in blocks that stay below it.
BLOCK_BYTES = 256 << 20


def fire(due: Sequence[Due], pieces: Sequence[Piece], time_type: DataType, evaluator: Evaluates) -> Fired:
    """Answer the due windows of queries that share their keys; ``pieces`` hold all buckets those windows need."""
    fired = Fired()
    if not due or not pieces:
        return fired
    keys = pieces[0].group.version.keys or ()
    numbers, key_values, key_count = align([piece.content.keys for piece in pieces], len(keys))
    queries = [one.member.query for one in due]
    measures = tuple(dict.fromkeys(m for one in due for a in one.member.aggregates for m in measures_of(a)))
    slices = sorted({piece.slice for piece in pieces}, key=lambda s: (s[0], s[1], s[2] or 0))
    block = max(1, BLOCK_BYTES // (8 * len(due) * len(slices) * (2 + 2 * len(measures))))
    narrowed, values = with_ranks(pieces, measures)
    collected = [Collected(cohort) for cohort in cohorts_of(due)]
    for first in range(0, key_count, block):
        last = min(first + block, key_count)
        sources = sources_of(queries, narrowed, numbers, (first, last), measures)
        for bag in collected:
            _windows(bag.cohort, sources, slices, first, bag)
    answer(collected, Context(values, key_values, time_type, evaluator, fired))
    return fired


def _windows(
    cohort: Cohort, sources: dict[SliceId, list[Source]], slices: Sequence[SliceId], first_key: int, bag: Collected
) -> None:
    """Put the cohort's due windows together and collect the rows of their answers."""
    needed = list(dict.fromkeys(m for a in cohort.members[0].member.aggregates for m in measures_of(a)))
    ends = list(window_ends(cohort.window, slices, cohort.after, cohort.upto))
    if not ends:
        return
    low, high = ends[0] - cohort.window.size, ends[-1]
    near = [s for s in slices if s[0] >= low and s[1] <= high]
    stack = Stack([s for s in near if s[2] is None], sources, cohort.places, needed)
    late = [(s, source) for s in near if s[2] is not None for source in sources[s]]
    for end in ends:
        extra = [source for s, source in late if counts_in(s, end, cohort.window)]
        counted = [*stack.rows(end - cohort.window.size, end), *(source.rows(cohort.places) for source in extra)]
        if not counted:
            continue
        rows = sum(counted[1:], start=counted[0])
        query, key = np.nonzero(rows)
        if not len(query):
            continue
        bag.query.append(query)
        bag.end.append(end)
        bag.key.append(key + first_key)
        bag.rows.append(rows[query, key].astype(np.int64))
        for measure in needed:
            parts = stack.planes(measure, end - cohort.window.size, end)
            parts += [source.planes(measure, cohort.places) for source in extra]
            planes = _total(measure, parts, counted)
            bag.planes.setdefault(measure, []).append(list(stored(measure, tuple(p[query, key] for p in planes))))


class Stack:
    """The slices of a cohort one above the other, by start. A window is a range of them: slices of versions that have
    the queries lie inside it or outside, and the others hold nothing of theirs. Integers are summed up once, so that a
    window is the difference of two sums, however many slices it has."""

    def __init__(
        self,
        slices: Sequence[SliceId],
        sources: dict[SliceId, list[Source]],
        places: IntArray,
        measures: Sequence[Measure],
    ) -> None:
        self._starts = np.array([s[0] for s in slices], np.int64)
        found = [(source, source.rows(places)) for s in slices for source in sources[s]]
        self._owner = np.array([n for n, s in enumerate(slices) for _ in sources[s]], np.int64)
        self._rows = _prefix([rows for _, rows in found]) if found else None
        self._planes: dict[Measure, list[Matrix]] = {}
        self._as_rows: set[Measure] = set()
        for measure in measures:
            parts = [(source.planes(measure, places), rows) for source, rows in found]
            known = [planes for planes, _ in parts if planes is not None]
            if known and all(planes == [] for planes in known):
                self._as_rows.add(measure)
            elif known:
                self._planes[measure] = self._stacked(measure, parts)

    def _stacked(self, measure: Measure, parts: list[tuple[list[Matrix] | None, Matrix]]) -> list[Matrix]:
        """Each plane over all slices."""
        full = [planes if planes else [rows] if planes == [] else [] for planes, rows in parts]
        width = max(len(planes) for planes in full)
        like = next(planes for planes in full if len(planes) == width)
        kinds = plane_kinds(measure, width)
        stacks = []
        for number, kind in enumerate(kinds):
            empty = np.zeros_like(like[number])
            if kind in ("min", "max"):
                empty[:] = identity(kind, empty.dtype.type, 1)[0]
            layers = [planes[number] if len(planes) > number else empty for planes in full]
            stacks.append(_prefix(layers) if kind == "add" else np.stack(layers))
        return stacks

    def _range(self, start: int, end: int) -> tuple[int, int]:
        first, last = np.searchsorted(self._starts, (start, end))
        low, high = np.searchsorted(self._owner, (first, last))
        return int(low), int(high)

    def rows(self, start: int, end: int) -> list[Matrix]:
        """The number of rows in a window; nothing where it has no slice."""
        low, high = self._range(start, end)
        return [] if self._rows is None or low == high else [self._rows[high] - self._rows[low]]

    def planes(self, measure: Measure, start: int, end: int) -> list[list[Matrix] | None]:
        low, high = self._range(start, end)
        if self._rows is None or low == high:
            return []
        if measure in self._as_rows:
            return [[]]
        stacks = self._planes.get(measure)
        if stacks is None:
            return [None]
        kinds = plane_kinds(measure, len(stacks))
        return [[_between(kind, stack, low, high) for kind, stack in zip(kinds, stacks, strict=True)]]


def _prefix(layers: list[Matrix]) -> Matrix:
    """Sums of the first n layers; in doubles while those are exact."""
    exact = all(layer.dtype == np.float64 for layer in layers)
    if exact and sum(float(np.abs(layer).max(initial=0.0)) for layer in layers) >= EXACT:
        exact = False
    total = np.zeros((len(layers) + 1, *layers[0].shape), np.float64 if exact else np.int64)
    for number, layer in enumerate(layers):
        np.add(total[number], layer, out=total[number + 1], casting="unsafe")
    return total


def _between(kind: str, stack: Matrix, low: int, high: int) -> Matrix:
    if kind == "add":
        difference: Matrix = stack[high] - stack[low]
        return difference
    reduced: Matrix = (np.add if kind == "fadd" else reducer(kind)).reduce(stack[low:high], axis=0)
    return reduced


def window_ends(window: WindowSpec, slices: Sequence[SliceId], after: int, upto: int) -> Iterator[int]:
    """Ends of windows that contain a slice, ascending, with ``after`` < end ≤ ``upto``."""
    ends: set[int] = set()
    for start, stop, _ in slices:
        end = window.end_after(max(stop - 1, after))
        while end <= upto and end - window.size <= start:
            ends.add(end)
            end += window.slide
    return iter(sorted(ends))


def counts_in(slice_: SliceId, end: int, window: WindowSpec) -> bool:
    start, stop, watermark = slice_
    return end - window.size <= start and stop <= end and (watermark is None or watermark < end)


def _total(measure: Measure, parts: list[list[Matrix] | None], rows: list[Matrix]) -> list[Matrix]:
    """Add up the slices' planes; a count that equals the number of rows has none of its own."""
    known = [part or [count] for part, count in zip(parts, rows, strict=True) if part is not None]
    total = known[0]
    for part in known[1:]:
        total = add_planes(measure, total, part)
    return total
