"""Ingest of one chunk: classify every row once for all queries of a group, accumulate by slice, class and key.

    code = (slice · (classes + 1) + class) · keys + key

Over ``code`` every partial aggregate is one ``np.bincount`` (10 times faster than grouping); the extra class collects
the rows that no query wants. Rows that come slice by slice are taken so, with no slice in their codes. Where codes
would span far more cells than there are rows, the codes that occur are numbered first. Groups that keep rows also get
them ordered by ``code``: what a bucket's index is made of. Where most of their cells would hold a single row, each row
is a cell of its own, and nothing is ordered or added up.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.aggregate import Planes, accumulate, accumulate_rows, stored, unrank
from millstream.kernels.batch import Arguments, Batch, Codes, Stretch
from millstream.kernels.bucket import Cells, pick
from millstream.kernels.dense import Labels, lay_out, per_query, to_ranks
from millstream.kernels.group import Group
from millstream.kernels.keys import Keys
from millstream.kernels.merge import FULL
from millstream.kernels.rows import number_cells, order_by_cell, rows_of_spans
from millstream.model.expression import Expression
from millstream.model.query import WindowSpec

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

# Dense accumulation is taken up to this many cells: 8 MB a plane stays near the caches.
DENSE_CELLS = 1 << 20
# … or up to this many cells for each row, where clearing the planes costs no more than numbering the codes.
DENSE_FACTOR = 8
# Rows for each combination below which a group that keeps rows has a cell for each row: adding up few rows costs more
# than reading them one by one.
ALONE = 2.0


@dataclass
class Tally:
    """Counts by query that a chunk adds to."""

    failures: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    # Queries that must be stopped, with the reason.
    broken: dict[str, str] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        self.failures.update(other.failures)
        self.rows.update(other.rows)
        self.broken = other.broken | self.broken


@dataclass(frozen=True)
class SliceCells:
    """``rows`` are the chunk's rows in these cells, one cell after the other, each in input order; None in groups that
    keep no rows."""

    start: int
    end: int
    cells: Cells
    rows: IntArray | None = None


def slice_cells(group: Group, batch: Batch, watermark: int | None, tally: Tally) -> list[SliceCells]:
    """The chunk's partial aggregates of a windowed group, slice by slice; slices that no open window contains are
    left out."""
    count_selection_failures(group, batch, tally)
    count_argument_failures(group, batch, tally)
    if not batch.rows or not group.table.classes:
        return []
    keys = batch.keys(group.version.keys or ())
    width = (group.table.classes + 1) * keys.count
    stretches = None if group.has_rows else batch.stretches(group.slicer)
    if stretches is not None and _few_cells(len(stretches) * width, batch.rows):
        return _slice_by_slice(group, batch, stretches, watermark, keys)
    starts, slice_of = batch.slices(group.slicer)
    open_ = np.array([watermark is None or group.last_end(int(s)) > watermark for s in starts])
    ends = [group.slicer.end(int(start)) for start in starts]
    if group.has_rows and not group.version.measures and batch.rows < ALONE * len(starts) * width:
        alone = _row_by_row(group, batch, slice_of, open_, keys)
        return [SliceCells(int(starts[i]), ends[i], cells, rows) for i, cells, rows in alone]
    code = batch.codes(group.table, keys)
    if len(starts) > 1:
        code = code + slice_of * width
    found = _accumulated(group, batch, code, open_, keys)
    return [SliceCells(int(starts[i]), ends[i], _relabel(group, cells), order) for i, cells, order in found]


def _slice_by_slice(
    group: Group, batch: Batch, stretches: Sequence[Stretch], watermark: int | None, keys: Keys
) -> list[SliceCells]:
    """Rows that come slice by slice, as most streams have them: no row needs the number of its slice."""
    code = batch.codes(group.table, keys)
    made = []
    for one in stretches:
        if watermark is None or group.last_end(one.start) > watermark:
            for _, cells, _ in _accumulated(group, one, code[one.places], np.ones(1, np.bool_), keys):
                made.append(SliceCells(one.start, group.slicer.end(one.start), _relabel(group, cells)))
    return made


# The number of a slice, its cells, and the rows in them where those are kept.
Found = Iterator[tuple[int, Cells, IntArray | None]]


def _row_by_row(group: Group, batch: Batch, slice_of: IntArray, open_: BoolArray, keys: Keys) -> Found:
    """A cell for each row, in input order."""
    label = batch.labels(group.table)
    wanted = label < group.table.classes
    if not open_.all():
        wanted &= open_[slice_of]
    rows = np.flatnonzero(wanted)
    mine = slice_of[rows]
    if (mine[1:] < mine[:-1]).any():
        rows = rows[order_by_cell(mine, len(open_))]
        mine = slice_of[rows]
    for index, (first, last) in enumerate(itertools.pairwise(np.searchsorted(mine, np.arange(len(open_) + 1)))):
        if first < last:
            here = rows[first:last]
            values, key = keys.values, keys.narrow[here]
            if len(here) < keys.count:
                values, key = _own_keys(values, key, keys.count)
            yield index, Cells.of_rows(values, key, label[here]), here


def _accumulated(group: Group, batch: Arguments, code: Codes, open_: BoolArray, keys: Keys) -> Found:
    """The cells of ``len(open_)`` slices."""
    width = (group.table.classes + 1) * keys.count
    dense = _few_cells(len(open_) * width, batch.rows)
    return (_dense if dense else _sparse)(group, batch, code, open_, keys)


def _few_cells(cells: int, rows: int) -> bool:
    return cells <= max(DENSE_CELLS, DENSE_FACTOR * rows)


def _dense(group: Group, batch: Arguments, code: Codes, open_: BoolArray, keys: Keys) -> Found:
    """Accumulate over every code there could be; the planes of a slice are a range of them."""
    width = (group.table.classes + 1) * keys.count
    wanted = group.table.classes * keys.count
    rows, partials = _accumulate(group, batch, code, len(open_) * width)
    firsts = [int(index) * width for index in np.flatnonzero(open_)]
    orders = _orders(group, code, rows, [(first, first + wanted) for first in firsts])
    for first, order in zip(firsts, orders, strict=True):
        mine = rows[first : first + wanted]
        # NumPy looks for what is not zero several times faster in Booleans.
        used = np.flatnonzero(mine != 0)
        if group.can_be_full and FULL * wanted <= len(used):
            planes = _stored(group, partials, slice(first, first + wanted))
            yield first // width, Cells(keys.values, mine, planes, None), order
        elif len(used):
            yield first // width, _cells(keys, used, mine[used], _stored(group, partials, first + used)), order


def _orders(group: Group, cells: Codes, rows: IntArray, spans: Sequence[tuple[int, int]]) -> Sequence[IntArray | None]:
    return rows_of_spans(cells, rows, spans) if group.has_rows else [None] * len(spans)


def _sparse(group: Group, batch: Arguments, code: Codes, open_: BoolArray, keys: Keys) -> Found:
    """Number the codes that occur; the rows nobody wants share one more number, which is left out."""
    width = (group.table.classes + 1) * keys.count
    wanted = np.zeros((len(open_), group.table.classes + 1), np.bool_)
    wanted[open_, : group.table.classes] = True
    keep = wanted.ravel()[code // keys.count]
    places = np.flatnonzero(keep)
    used, number, order = number_cells(code[places].astype(np.int64, copy=False), len(open_) * width)
    cells = np.full(batch.rows, len(used), np.int64)
    cells[places] = number
    rows, partials = _accumulate(group, batch, cells, len(used) + 1)
    edges = np.searchsorted(used, np.arange(len(open_) + 1) * width)
    kept = places[order] if group.has_rows else None
    end = np.append(0, np.cumsum(rows))
    for index, (first, last) in enumerate(itertools.pairwise(edges)):
        if first < last:
            where = np.arange(first, last)
            inside = used[first:last] - index * width
            mine = None if kept is None else kept[end[first] : end[last]]
            yield index, _cells(keys, inside, rows[first:last], _stored(group, partials, where)), mine


def _accumulate(group: Group, batch: Arguments, cells: Codes, count: int) -> tuple[IntArray, list[Planes | None]]:
    measures = group.version.measures
    rows, known = accumulate_rows(measures, batch, cells, count)
    if any(m not in known and m.kind != "count" for m in measures):
        # NumPy turns shorter ones into these, each time.
        cells = cells.astype(np.int64, copy=False)
    return rows, [known[m] if m in known else accumulate(m, batch, cells, count) for m in measures]


def _stored(group: Group, partials: list[Planes | None], where: IntArray | slice) -> tuple[Planes | None, ...]:
    measures = group.version.measures
    return tuple(
        None if planes is None else stored(measure, pick(planes, where))
        for measure, planes in zip(measures, partials, strict=True)
    )


def _cells(keys: Keys, codes: IntArray, rows: IntArray, partials: tuple[Planes | None, ...]) -> Cells:
    values, key = _own_keys(keys.values, codes % keys.count, keys.count)
    return Cells(values, rows, partials, (key, codes // keys.count))


def _own_keys(keys: tuple[pa.Array, ...], key: IntArray, count: int) -> tuple[tuple[pa.Array, ...], IntArray]:
    """Only the keys that occur, numbered anew."""
    used = np.zeros(count, np.bool_)
    used[key] = True
    if used.all():
        return keys, key
    places = pa.array(np.flatnonzero(used))
    return tuple(column.take(places) for column in keys), (np.cumsum(used) - 1)[key]


def _relabel(group: Group, cells: Cells) -> Cells:
    """From classes to members where those are fewer, so that a bucket has the smaller number of cells."""
    if not group.by_query:
        return cells
    measures = group.version.measures
    (plain,), values = to_ranks([cells], measures)
    keys = cells.key_count
    dense = lay_out([(plain, np.arange(keys))], group.table.classes, keys, measures)
    mine = per_query(dense, Labels.of(np.ascontiguousarray(group.table.queries.T)), measures)
    label, key = np.nonzero(mine.rows)
    partials: list[Planes | None] = []
    for index, (measure, planes) in enumerate(zip(measures, mine.planes, strict=True)):
        if cells.partials[index] is None:
            partials.append(None)
            continue
        flat = stored(measure, tuple(plane[label, key] for plane in planes))
        partials.append((unrank(measure.kind, flat[0], values[index]),) if index in values else flat)
    return Cells(cells.keys, mine.rows[label, key].astype(np.int64), tuple(partials), (key, label))


def count_selection_failures(group: Group, batch: Batch, tally: Tally) -> None:
    """WHERE is evaluated on every row."""
    for expression, members in group.users_of_selected.items():
        failed = batch.failures(expression)
        if failed is not None and failed.any():
            tally.failures.update(dict.fromkeys(members, int(failed.sum())))


def count_argument_failures(group: Group, batch: Batch, tally: Tally) -> None:
    """Keys and arguments of aggregates count on the rows that a query selects."""
    for expression, members in group.users_of_accumulated.items():
        failed = batch.failures(expression)
        if failed is not None and failed.any():
            classes = batch.classes(group.table)
            by_class = np.bincount(classes, weights=failed, minlength=group.table.classes + 1)[:-1]
            for member in members:
                count = int(by_class[group.table.queries[:, group.position[member]]].sum())
                tally.failures.update({member: count} if count else {})


def blame(group: Group, broken: Mapping[Expression, str], tally: Tally) -> None:
    """Find the queries of a group that use an expression which cannot be evaluated."""
    for expression, reason in broken.items():
        for users in (group.users_of_selected, group.users_of_accumulated, group.users_of_projected):
            for query in users.get(expression, ()):
                tally.broken.setdefault(query, reason)


def late_rows(
    times: IntArray, watermark: int | None, windows: Sequence[WindowSpec]
) -> tuple[dict[WindowSpec, int], int]:
    """How many rows lie in a closed window, for each window and for any of them.

    A row is late for a window iff the window's end is at or below the watermark; the first window to contain it
    closes first.
    """
    if watermark is None or not len(times) or int(times.min()) >= watermark:
        return {}, 0
    behind = times[times < watermark]
    anywhere = np.zeros(len(behind), np.bool_)
    counts: dict[WindowSpec, int] = {}
    for window in windows:
        ends = behind + window.slide - (behind - window.offset - window.size) % window.slide
        late = ends <= watermark
        counts[window] = int(late.sum())
        anywhere |= late
    return counts, int(anywhere.sum())
