"""Fire: the answers of a group's due windows from its buckets.

    buckets ──► one matrix (queries × keys) for each slice ──► each query adds the slices of its windows ──► rest ──►
    answer

Going from classes to queries once for each slice, before windows are put together, costs a tenth of the other order;
and buckets of different versions meet only after that step, so versions need no alignment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from millstream.kernels.aggregate import stored
from millstream.kernels.answering import Cohort, Collected, Due, Fired, answer, cohorts_of
from millstream.kernels.batch import Evaluates
from millstream.kernels.dense import Matrix
from millstream.kernels.keys import align
from millstream.kernels.matrices import Piece, SliceId, Source, add_planes, sources_of, with_ranks
from millstream.model.group import Measure, measures_of
from millstream.model.query import WindowSpec
from millstream.model.types import DataType

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
    answer(collected, values, key_values, time_type, evaluator, fired)
    return fired


def _windows(
    cohort: Cohort, sources: dict[SliceId, list[Source]], slices: Sequence[SliceId], first_key: int, bag: Collected
) -> None:
    """Put the cohort's due windows together and collect the rows of their answers."""
    needed = list(dict.fromkeys(m for a in cohort.members[0].member.aggregates for m in measures_of(a)))
    for end in window_ends(cohort.window, slices, cohort.after, cohort.upto):
        inside = [source for s in slices if counts_in(s, end, cohort.window) for source in sources[s]]
        if not inside:
            continue
        counted = [source.rows(cohort.places) for source in inside]
        rows = sum(counted[1:], start=counted[0])
        query, key = np.nonzero(rows)
        if not len(query):
            continue
        bag.query.append(query)
        bag.end.append(np.full(len(query), end))
        bag.key.append(key + first_key)
        bag.rows.append(rows[query, key].astype(np.int64))
        for measure in needed:
            planes = _total(measure, [source.planes(measure, cohort.places) for source in inside], counted)
            bag.planes.setdefault(measure, []).append(list(stored(measure, tuple(p[query, key] for p in planes))))


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
