"""Fire: the answers of a group's due windows from its buckets.

    buckets ──► one matrix (queries × keys) for each slice ──► each query adds the slices of its windows ──► rest ──► answer

Going from classes to queries once for each slice, before windows are put together, costs a tenth of the other order; and
buckets of different versions meet only after that step, so versions need no alignment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.aggregate import identity, plane_kinds, ranked, stored
from millstream.kernels.answers import Part, Range
from millstream.kernels.batch import Evaluates
from millstream.kernels.bucket import Cells
from millstream.kernels.dense import Dense, Labels, Matrix, combine, lay_out, per_query, to_ranks
from millstream.kernels.group import Group
from millstream.kernels.keys import align, take
from millstream.kernels.rest import Shape, parameter_columns, run, shape_of
from millstream.kernels.results import finish
from millstream.model.expression import Literal
from millstream.model.group import Measure, Member, measures_of
from millstream.model.query import WINDOW_END, WINDOW_START, WindowSpec, aggregate_column, key_column
from millstream.model.types import DataType

IntArray = npt.NDArray[np.int64]

# Matrices of all slices of a fire together; keys are taken in blocks that stay below it.
BLOCK_BYTES = 256 << 20


@dataclass(frozen=True)
class Due:
    """A query whose windows with ``after`` < end ≤ ``upto`` are to be answered; those that start at or before
    ``partial_until`` are partial."""

    member: Member
    after: int
    upto: int
    partial_until: int | None


@dataclass(frozen=True)
class Piece:
    """A bucket: its version, slice, the watermark of its batch's plan, and its cells."""

    group: Group
    start: int
    end: int
    watermark: int | None
    cells: Cells


@dataclass
class Fired:
    parts: list[Part] = field(default_factory=list)
    windows: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    # Queries whose rest cannot be evaluated, with the reason.
    broken: dict[str, str] = field(default_factory=dict)


# (start, end, watermark): a bucket whose batch was planned when the slice was still open counts in every window (watermark None);
# a later one only in windows that end after its watermark.
SliceId = tuple[int, int, int | None]


def fire(due: Sequence[Due], pieces: Sequence[Piece], time_type: DataType, evaluator: Evaluates) -> Fired:
    """Answer the due windows of queries that share their keys; ``pieces`` hold all buckets those windows need."""
    fired = Fired()
    if not due or not pieces:
        return fired
    keys = pieces[0].group.version.keys or ()
    numbers, key_values, key_count = align([piece.cells.keys for piece in pieces], len(keys))
    cohorts = _cohorts(due)
    measures = tuple(dict.fromkeys(m for d in due for a in d.member.aggregates for m in measures_of(a)))
    slices = sorted({_slice_id(piece) for piece in pieces}, key=lambda s: (s[0], s[1], s[2] or 0))
    block = max(1, BLOCK_BYTES // (8 * len(due) * len(slices) * (2 + 2 * len(measures))))
    narrowed, values = _ranked(pieces, measures)
    collected = [_Collected(cohort) for cohort in cohorts]
    for first in range(0, key_count, block):
        last = min(first + block, key_count)
        matrices = _matrices(due, narrowed, numbers, slices, (first, last), measures)
        for cohort, bag in zip(cohorts, collected, strict=True):
            _windows(cohort, matrices, slices, measures, first, bag)
    _answer(collected, values, key_values, time_type, evaluator, fired)
    return fired


def _slice_id(piece: Piece) -> SliceId:
    on_time = piece.watermark is None or piece.watermark < piece.end
    return piece.start, piece.end, None if on_time else piece.watermark


@dataclass(frozen=True)
class _Cohort:
    """Due queries with the same window, times, aggregates and rest: handled as rows of one matrix."""

    window: WindowSpec
    after: int
    upto: int
    shape: Shape
    members: tuple[Due, ...]
    places: IntArray
    constants: tuple[tuple[Literal, ...], ...]


def _cohorts(due: Sequence[Due]) -> list[_Cohort]:
    found: dict[object, list[tuple[int, Due, tuple[Literal, ...]]]] = {}
    for place, one in enumerate(due):
        shape, constants = shape_of(one.member)
        found.setdefault((one.member.window, one.after, one.upto, shape), []).append((place, one, constants))
    cohorts = []
    for (window, after, upto, shape), mine in found.items():  # type: ignore[misc]
        places = np.array([place for place, _, _ in mine])
        members = tuple(one for _, one, _ in mine)
        cohorts.append(_Cohort(window, after, upto, shape, members, places, tuple(c for _, _, c in mine)))  # type: ignore[has-type]
    return cohorts


def _ranked(pieces: Sequence[Piece], measures: Sequence[Measure]) -> tuple[list[Piece], dict[Measure, pa.Array]]:
    """Only the partials that due queries ask for, with ranks of MIN and MAX over text that are comparable between all pieces."""
    narrowed = [_narrowed(piece, measures) for piece in pieces]
    values: dict[Measure, pa.Array] = {}
    for measure in measures:
        if measure.kind not in ("min", "max") or not ranked(measure.argument.type):
            continue
        mine = [
            (i, asked(piece.group, measures).index(measure)) for i, piece in enumerate(narrowed) if _has(piece, measure)
        ]
        single = [replace(narrowed[i].cells, partials=(narrowed[i].cells.partials[at],)) for i, at in mine]
        changed, found = to_ranks(single, [measure])
        values[measure] = found[0]
        for (i, at), cells in zip(mine, changed, strict=True):
            old = narrowed[i].cells.partials
            partials = (*old[:at], cells.partials[0], *old[at + 1 :])
            narrowed[i] = replace(narrowed[i], cells=replace(narrowed[i].cells, partials=partials))
    return narrowed, values


def _has(piece: Piece, measure: Measure) -> bool:
    return measure in piece.group.version.measures


def asked(group: Group, measures: Sequence[Measure]) -> list[Measure]:
    """Those of the measures that a version has: it lacks the ones of queries that came later or had gone."""
    return [measure for measure in measures if measure in group.version.measures]


def _narrowed(piece: Piece, measures: Sequence[Measure]) -> Piece:
    own = piece.group.version.measures
    partials = tuple(piece.cells.partials[own.index(measure)] for measure in asked(piece.group, measures))
    return replace(piece, cells=replace(piece.cells, partials=partials))


def _matrices(
    due: Sequence[Due],
    pieces: Sequence[Piece],
    numbers: Sequence[IntArray],
    slices: Sequence[SliceId],
    block: tuple[int, int],
    measures: Sequence[Measure],
) -> dict[SliceId, Dense]:
    """For each slice the partials by (due query, key of the block)."""
    by_slice: dict[SliceId, dict[int, list[tuple[Piece, IntArray]]]] = {}
    for piece, number in zip(pieces, numbers, strict=True):
        by_slice.setdefault(_slice_id(piece), {}).setdefault(id(piece.group), []).append((piece, number))
    found = {}
    for slice_id in slices:
        total: Dense | None = None
        for parts in by_slice[slice_id].values():
            mine = _version_matrix(due, parts, block, measures)
            total = mine if total is None or mine is None else _both(total, mine, measures)
        if total is not None:
            found[slice_id] = total
    return found


def _version_matrix(
    due: Sequence[Due], parts: list[tuple[Piece, IntArray]], block: tuple[int, int], measures: Sequence[Measure]
) -> Dense | None:
    group = parts[0][0].group
    first, last = block
    inside = [(_within(piece.cells, number, first, last), number - first) for piece, number in parts]
    own = asked(group, measures)
    dense = lay_out(inside, group.labels.shape[1], last - first, own)
    label_of = np.zeros((len(due), group.labels.shape[1]), np.bool_)
    for place, one in enumerate(due):
        position = group.position.get(one.member.query)
        if position is not None:
            label_of[place] = group.labels[position]
    mine = per_query(dense, Labels.of(label_of), own)
    return Dense(mine.rows, [_planes_of(own, mine, measure) for measure in measures])


def _planes_of(own: list[Measure], dense: Dense, measure: Measure) -> list[Matrix]:
    """The measure's planes; a version without it has none of the queries that need it."""
    if measure in own:
        return dense.planes[own.index(measure)]
    return [identity_plane(measure, dense.rows.shape)]


def identity_plane(measure: Measure, shape: tuple[int, ...]) -> Matrix:
    if measure.kind in ("min", "max"):
        dtype = np.float64 if measure.argument.type.floating else np.int64
        return np.full(shape, identity(measure.kind, dtype, 1)[0])
    floating = measure.kind == "fsum" or (measure.kind == "sum" and measure.argument.type.floating)
    return np.zeros(shape, np.float64 if floating else np.int64)


def _within(cells: Cells, number: IntArray, first: int, last: int) -> Cells:
    """The cells whose key lies in a block of keys."""
    key = number[cells.key]
    if first == 0 and (not len(key) or int(key.max()) < last):
        return cells
    where = np.flatnonzero((key >= first) & (key < last))
    partials = tuple(None if p is None else tuple(plane[where] for plane in p) for p in cells.partials)
    return Cells(cells.keys, cells.key[where], cells.label[where], cells.rows[where], partials)


def _both(left: Dense, right: Dense, measures: Sequence[Measure]) -> Dense:
    planes = [
        _add_planes(measure, mine, other)
        for measure, mine, other in zip(measures, left.planes, right.planes, strict=True)
    ]
    return Dense(left.rows + right.rows, planes)


def _add_planes(measure: Measure, left: list[Matrix], right: list[Matrix]) -> list[Matrix]:
    if len(left) < len(right):
        left, right = right, left
    kinds = plane_kinds(measure, len(left))
    return [combine(kinds[i], p, right[i]) if i < len(right) else p for i, p in enumerate(left)]


@dataclass
class _Collected:
    """A cohort's answer rows, window by window."""

    cohort: _Cohort
    query: list[IntArray] = field(default_factory=list)
    end: list[IntArray] = field(default_factory=list)
    key: list[IntArray] = field(default_factory=list)
    rows: list[IntArray] = field(default_factory=list)
    planes: dict[Measure, list[list[Matrix]]] = field(default_factory=dict)


def _windows(
    cohort: _Cohort,
    matrices: dict[SliceId, Dense],
    slices: Sequence[SliceId],
    measures: Sequence[Measure],
    first_key: int,
    bag: _Collected,
) -> None:
    needed = [m for m in dict.fromkeys(m for a in cohort.members[0].member.aggregates for m in measures_of(a))]
    for end in window_ends(cohort.window, slices, cohort.after, cohort.upto):
        inside = [s for s in slices if s in matrices and counts_in(s, end, cohort.window)]
        if not inside:
            continue
        rows = _total([matrices[s].rows[cohort.places] for s in inside])
        query, key = np.nonzero(rows)
        if not len(query):
            continue
        bag.query.append(query)
        bag.end.append(np.full(len(query), end))
        bag.key.append(key + first_key)
        bag.rows.append(rows[query, key].astype(np.int64))
        where = (cohort.places[query], key)
        for measure in needed:
            index = measures.index(measure)
            bag.planes.setdefault(measure, []).append(
                _sum_planes(measure, [matrices[s].planes[index] for s in inside], where)
            )


def window_ends(window: WindowSpec, slices: Sequence[SliceId], after: int, upto: int) -> Iterator[int]:
    """Ends of windows that contain a slice, ascending, with ``after`` < end ≤ ``upto``."""
    ends: set[int] = set()
    for start, stop, _ in slices:
        end = window.end_after(max(stop - 1, after))
        while end <= upto and end - window.size <= start:
            ends.add(end)
            end += window.slide
    return iter(sorted(ends))


def counts_in(slice_id: SliceId, end: int, window: WindowSpec) -> bool:
    start, stop, watermark = slice_id
    return end - window.size <= start and stop <= end and (watermark is None or watermark < end)


def _total(matrices: list[Matrix]) -> Matrix:
    total = matrices[0]
    for matrix in matrices[1:]:
        total = total + matrix
    return total


def _sum_planes(measure: Measure, parts: list[list[Matrix]], where: tuple[IntArray, IntArray]) -> list[Matrix]:
    """Add up the slices' planes at the answer's rows only; integers are integers from here on."""
    total = _at(measure, parts[0], where)
    for planes in parts[1:]:
        total = _add_planes(measure, total, _at(measure, planes, where))
    return total


def _at(measure: Measure, planes: list[Matrix], where: tuple[IntArray, IntArray]) -> list[Matrix]:
    return list(stored(measure, tuple(plane[where] for plane in planes)))


def _answer(
    collected: Sequence[_Collected],
    values: dict[Measure, pa.Array],
    key_values: tuple[pa.Array, ...],
    time_type: DataType,
    evaluator: Evaluates,
    fired: Fired,
) -> None:
    by_shape: dict[Shape, list[_Collected]] = {}
    for bag in collected:
        if bag.query:
            by_shape.setdefault(bag.cohort.shape, []).append(bag)
    for shape, bags in by_shape.items():
        fired.parts += _parts(shape, bags, values, key_values, time_type, evaluator, fired)


def _parts(
    shape: Shape,
    bags: list[_Collected],
    values: dict[Measure, pa.Array],
    key_values: tuple[pa.Array, ...],
    time_type: DataType,
    evaluator: Evaluates,
    fired: Fired,
) -> list[Part]:
    """The answers of all queries of a shape; if that fails, query by query, so that one breaks alone."""
    try:
        part = _shape_part(shape, bags, values, key_values, time_type, evaluator, fired)
        return [part] if part.ranges else []
    except Exception as error:
        queries = [(bag, place) for bag in bags for place in range(len(bag.cohort.members))]
        if len(queries) == 1:
            fired.broken[queries[0][0].cohort.members[0].member.query] = f"{type(error).__name__}: {error}"
            return []
        alone = [_only(bag, place) for bag, place in queries]
        found = (_parts(shape, [b], values, key_values, time_type, evaluator, fired) for b in alone if b.query)
        return [part for parts in found for part in parts]


def _only(bag: _Collected, place: int) -> _Collected:
    """The rows of one query of a cohort."""
    cohort = bag.cohort
    one = replace(
        cohort,
        members=cohort.members[place : place + 1],
        places=cohort.places[place : place + 1],
        constants=cohort.constants[place : place + 1],
    )
    mine = _Collected(one)
    for index, query in enumerate(bag.query):
        where = np.flatnonzero(query == place)
        if len(where):
            mine.query.append(np.zeros(len(where), np.int64))
            mine.end.append(bag.end[index][where])
            mine.key.append(bag.key[index][where])
            mine.rows.append(bag.rows[index][where])
            for measure, windows in bag.planes.items():
                mine.planes.setdefault(measure, []).append([plane[where] for plane in windows[index]])
    return mine


@dataclass(frozen=True)
class _Run:
    """Consecutive rows of one (query, window)."""

    due: Due
    end: int
    constants: tuple[Literal, ...]


def _shape_part(
    shape: Shape,
    bags: list[_Collected],
    values: dict[Measure, pa.Array],
    key_values: tuple[pa.Array, ...],
    time_type: DataType,
    evaluator: Evaluates,
    fired: Fired,
) -> Part:
    """All answers of one shape as one table, and the range of each."""
    order, runs, lengths = _runs(bags)
    key = np.concatenate([k for bag in bags for k in bag.key])[order]
    rows = np.concatenate([r for bag in bags for r in bag.rows])[order]
    columns = {key_column(i): column for i, column in enumerate(take(key_values, key))}
    failures = np.zeros(len(order), np.int64)
    for index, aggregate in enumerate(bags[0].cohort.members[0].member.aggregates):
        needed = measures_of(aggregate)
        planes = [[plane[order] for plane in _joined(m, [p for bag in bags for p in bag.planes[m]])] for m in needed]
        column, failed = finish(aggregate, rows, planes, values.get(needed[0]) if needed else None)
        columns[aggregate_column(index)] = column
        if failed is not None:
            failures += failed
    ends = np.repeat(np.array([r.end for r in runs]), lengths)
    sizes = np.repeat(np.array([_size(r) for r in runs]), lengths)
    columns[WINDOW_START] = pa.array(ends - sizes).cast(time_type.arrow)
    columns[WINDOW_END] = pa.array(ends).cast(time_type.arrow)
    columns |= parameter_columns([r.constants for r in runs], lengths)
    rest = run(shape, columns, len(order), evaluator)
    if rest.failures is not None:
        failures += rest.failures
    return Part(rest.columns, tuple(_ranges(runs, lengths, rest.keep, failures, fired)))


def _size(one: _Run) -> int:
    assert one.due.member.window is not None
    return one.due.member.window.size


def _runs(bags: list[_Collected]) -> tuple[IntArray, list[_Run], list[int]]:
    """Bring the rows of each (query, window) together: with many keys they come in several blocks."""
    owners: list[tuple[_Collected, int]] = [(bag, place) for bag in bags for place in range(len(bag.cohort.members))]
    base = np.cumsum([0, *(len(bag.cohort.members) for bag in bags)])
    owner = np.concatenate([q + base[i] for i, bag in enumerate(bags) for q in bag.query])
    end = np.concatenate([e for bag in bags for e in bag.end])
    order = np.lexsort((end, owner))
    owner, end = owner[order], end[order]
    first = np.flatnonzero(np.append(True, (owner[1:] != owner[:-1]) | (end[1:] != end[:-1])))
    lengths = np.diff(np.append(first, len(owner))).tolist()
    runs = []
    for start in first:
        bag, place = owners[owner[start]]
        runs.append(_Run(bag.cohort.members[place], int(end[start]), bag.cohort.constants[place]))
    return order, runs, lengths


def _joined(measure: Measure, parts: list[list[Matrix]]) -> list[Matrix]:
    """Concatenate planes of several windows; shorter ones are padded with zeros."""
    width = max(len(planes) for planes in parts)
    if width == 1:
        return [np.concatenate([planes[0] for planes in parts])]
    kinds = plane_kinds(measure, width)
    zero = {"fadd": np.float64, "add": np.int64}
    return [
        np.concatenate([p[i] if i < len(p) else np.zeros(len(p[0]), zero[kinds[i]]) for p in parts])
        for i in range(width)
    ]


def _ranges(
    runs: list[_Run], lengths: list[int], keep: IntArray | None, failures: IntArray, fired: Fired
) -> Iterator[Range]:
    edges = np.cumsum([0, *lengths])
    places = edges if keep is None else np.searchsorted(keep, edges)
    failed = np.add.reduceat(failures, edges[:-1]) if failures.any() else None
    for index, one in enumerate(runs):
        query = one.due.member.query
        if failed is not None and failed[index]:
            fired.failures[query] += int(failed[index])
        first, count = int(places[index]), int(places[index + 1] - places[index])
        if count:
            start = one.end - _size(one)
            partial = one.due.partial_until is not None and start <= one.due.partial_until
            fired.windows[query] += 1
            fired.rows[query] += count
            yield Range(query, start, one.end, partial, first, count)
