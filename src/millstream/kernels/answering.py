"""From the partials of due windows to answers: aggregates finished, HAVING and expressions run, ranges noted.

Queries of one **shape** (same aggregates, same rest but for constants) are answered together, as one table; if that
fails, query by query, so that one breaks alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.config import Limits
from millstream.config.limits import over
from millstream.errors import reason_for
from millstream.kernels.aggregate import plane_kinds, stored
from millstream.kernels.answers import Part, Range
from millstream.kernels.batch import Evaluates
from millstream.kernels.guard import NOBODYS_FAULT
from millstream.kernels.keys import take
from millstream.kernels.rest import Shape, Shaped, parameter_columns, run, shape_of
from millstream.kernels.results import finish
from millstream.kernels.stack import SliceId
from millstream.model.expression import Literal
from millstream.model.group import Measure, Member, measures_of
from millstream.model.query import WINDOW_END, WINDOW_START, WindowSpec, aggregate_column, key_column
from millstream.model.types import DataType

IntArray = npt.NDArray[np.int64]
Matrix = npt.NDArray[Any]


@dataclass(frozen=True)
class Due:
    """A query whose windows with ``after`` < end ≤ ``upto`` are to be answered; those that start at or before
    ``partial_until`` are partial."""

    member: Member
    after: int
    upto: int
    partial_until: int | None
    # Known where the member's group is; it is the same in every fire.
    shaped: Shaped | None = None


@dataclass
class Fired:
    parts: list[Part] = field(default_factory=list)
    windows: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    # The most groups that a window of the query has.
    groups: dict[str, int] = field(default_factory=dict)
    # Queries whose rest cannot be evaluated, with the reason.
    broken: dict[str, str] = field(default_factory=dict)
    # See `Stack.spent_in_classes`; of the stacks that were made for this fire.
    seconds_in_classes: float = 0.0


@dataclass(frozen=True)
class Pairs:
    """The due windows of all queries of one shape. Window i of them is ``start[i]`` to ``end[i]`` of the query
    ``due[query[i]]``, which is the fire's ``due_place[query[i]]``-th."""

    shape: Shape
    due: tuple[Due, ...]
    constants: tuple[tuple[Literal, ...], ...]
    due_place: IntArray
    query: IntArray
    start: IntArray
    end: IntArray


def pairs_of(due: Sequence[Due], slices: Sequence[SliceId]) -> list[Pairs]:
    """The windows to answer, by shape: those that contain a slice."""
    by_shape: dict[Shape, list[tuple[int, Due, tuple[Literal, ...]]]] = {}
    for place, one in enumerate(due):
        shape, constants = one.shaped or shape_of(one.member)
        by_shape.setdefault(shape, []).append((place, one, constants))
    ends = _Ends(slices)
    found = []
    for shape, mine in by_shape.items():
        windows = [ends.of(one) for _, one, _ in mine]
        sizes = [_window(one).size for _, one, _ in mine]
        lengths = [len(w) for w in windows]
        end = np.concatenate(windows)
        found.append(
            Pairs(
                shape,
                tuple(one for _, one, _ in mine),
                tuple(constants for _, _, constants in mine),
                np.array([place for place, _, _ in mine], np.int64),
                np.repeat(np.arange(len(mine)), lengths),
                end - np.repeat(np.array(sizes, np.int64), lengths),
                end,
            )
        )
    return found


def _window(one: Due) -> WindowSpec:
    assert one.member.window is not None
    return one.member.window


# Windows that are looked at one by one before slices are: a stream may have been silent for years.
MOST_STEPS = 10_000


class _Ends:
    """Ends of windows that contain one of some slices, which come in order of their start."""

    def __init__(self, slices: Sequence[SliceId]) -> None:
        self._slices = slices
        self._starts = np.array([s[0] for s in slices], np.int64)
        self._first_stop = min(s[1] for s in slices)
        self._known: dict[tuple[WindowSpec, int, int], IntArray] = {}

    def of(self, one: Due) -> IntArray:
        """Ascending, with ``after`` < end ≤ ``upto``."""
        key = (_window(one), one.after, one.upto)
        if key not in self._known:
            self._known[key] = self._found(*key)
        return self._known[key]

    def _found(self, window: WindowSpec, after: int, upto: int) -> IntArray:
        starts = self._starts
        first = window.end_after(max(self._first_stop - 1, after))
        last = min(upto, int(starts[-1]) + window.size)
        if last - first > MOST_STEPS * window.slide:
            return self._sparse(window, after, upto)
        ends = np.arange(first, last + 1, window.slide, dtype=np.int64)
        return ends[np.searchsorted(starts, ends - window.size) < np.searchsorted(starts, ends)]

    def _sparse(self, window: WindowSpec, after: int, upto: int) -> IntArray:
        ends: set[int] = set()
        for start, stop, _ in self._slices:
            end = window.end_after(max(stop - 1, after))
            while end <= upto and end - window.size <= start:
                ends.add(end)
                end += window.slide
        return np.array(sorted(ends), np.int64)


@dataclass(frozen=True)
class Found:
    """Answer rows of consecutive pairs from ``first`` on: how many each has, their keys, and their partials."""

    first: int
    counts: IntArray
    key: IntArray
    rows: IntArray
    planes: dict[Measure, list[Matrix]]

    @classmethod
    def of(cls, first: int, first_key: int, rows: Matrix, planes: Mapping[Measure, Sequence[Matrix]]) -> Found:
        """From matrices (pairs × keys) of rows and partials: the places that have rows. A plane that is the matrix of
        rows becomes the same array as ``rows``."""
        pairs, width = rows.shape
        # NumPy looks for what is not zero several times faster in Booleans, and one index picks faster than two.
        used = None if rows.size and rows.all() else np.flatnonzero(rows != 0)

        def picked(plane: Matrix) -> Matrix:
            flat = plane.reshape(-1)
            return flat if used is None else flat.take(used)

        kept = picked(rows)
        found = {
            measure: list(stored(measure, tuple(kept if plane is rows else picked(plane) for plane in mine)))
            for measure, mine in planes.items()
        }
        if used is None:
            key = np.tile(np.arange(first_key, first_key + width), pairs)
            return cls(first, np.full(pairs, width), key, kept, found)
        counts = np.diff(np.searchsorted(used, np.arange(pairs + 1) * width))
        return cls(first, counts, used % max(width, 1) + first_key, kept, found)

    def only(self, places: IntArray) -> Found | None:
        """The rows of some pairs, numbered as in ``places``."""
        here = (places >= self.first) & (places < self.first + len(self.counts))
        if not here.any():
            return None
        mine = places[here] - self.first
        wanted = np.zeros(len(self.counts), np.bool_)
        wanted[mine] = True
        rows = np.repeat(wanted, self.counts)
        planes = {m: [plane[rows] for plane in p] for m, p in self.planes.items()}
        return Found(int(np.flatnonzero(here)[0]), self.counts[mine], self.key[rows], self.rows[rows], planes)


@dataclass(frozen=True)
class Context:
    """What all shapes of a fire have in common: ranked values by measure, the keys by number, and where answers go."""

    values: dict[Measure, pa.Array]
    keys: tuple[pa.Array, ...]
    time_type: DataType
    evaluator: Evaluates
    fired: Fired
    limits: Limits = field(default_factory=Limits)


def answer(pairs: Pairs, found: Sequence[Found], context: Context) -> None:
    """The answers of all queries of a shape; if that fails, query by query, so that one breaks alone."""
    if not sum(len(one.rows) for one in found):
        return
    if _too_many_groups(pairs, found, context):
        _one_by_one(pairs, found, context)
        return
    try:
        part = _part(pairs, found, context)
        context.fired.parts += [part] if part.ranges else []
    except NOBODYS_FAULT:
        raise
    except Exception as error:
        if len(pairs.due) == 1:
            context.fired.broken[pairs.due[0].member.query] = reason_for(error)
        else:
            _one_by_one(pairs, found, context)


def _one_by_one(pairs: Pairs, found: Sequence[Found], context: Context) -> None:
    """Each query by itself, but for those that are known to break."""
    for place, due in enumerate(pairs.due):
        if due.member.query not in context.fired.broken:
            # The rows of one may be long, and those of another short.
            context.evaluator.weigh_anew()
            mine = np.flatnonzero(pairs.query == place)
            alone = [one.only(mine) for one in found]
            answer(_only(pairs, place, mine), [one for one in alone if one is not None], context)


def _too_many_groups(pairs: Pairs, found: Sequence[Found], context: Context) -> bool:
    """Note how many groups each query has in a window at most, and whether that is too many for one of them."""
    counts = np.zeros(len(pairs.end), np.int64)
    for one in found:
        counts[one.first : one.first + len(one.counts)] += one.counts
    most = np.zeros(len(pairs.due), np.int64)
    np.maximum.at(most, pairs.query, counts)
    fired, limit = context.fired, context.limits.query_groups
    for due, groups in zip(pairs.due, most.tolist(), strict=True):
        query = due.member.query
        fired.groups[query] = max(groups, fired.groups.get(query, 0))
        if groups > limit:
            fired.broken.setdefault(query, over("query_groups", "a window", groups, limit, "groups"))
    return bool((most > limit).any())


def _only(pairs: Pairs, place: int, mine: IntArray) -> Pairs:
    """The windows of one query."""
    return Pairs(
        pairs.shape,
        pairs.due[place : place + 1],
        pairs.constants[place : place + 1],
        pairs.due_place[place : place + 1],
        np.zeros(len(mine), np.int64),
        pairs.start[mine],
        pairs.end[mine],
    )


def _part(pairs: Pairs, found: Sequence[Found], context: Context) -> Part:
    """All answers of one shape as one table, and the range of each."""
    pair, lengths, order = _runs(found)
    key = _ordered(_concatenate([one.key for one in found]), order)
    rows = _ordered(_concatenate([one.rows for one in found]), order)
    wanted = pairs.shape.columns
    taken = [i for i in range(len(context.keys)) if key_column(i) in wanted]
    columns = dict(zip(map(key_column, taken), take([context.keys[i] for i in taken], key), strict=True))
    failures: IntArray | None = None
    for index, aggregate in enumerate(pairs.shape.aggregates):
        needed = measures_of(aggregate)
        planes = [[rows] if _counts_rows(m, found) else _planes(m, found, order) for m in needed]
        column, failed = finish(aggregate, rows, planes, context.values.get(needed[0]) if needed else None)
        columns[aggregate_column(index)] = column
        failures = _added(failures, failed)
    if wanted & {WINDOW_START, WINDOW_END}:
        kind = context.time_type.arrow
        columns[WINDOW_START] = pa.array(np.repeat(pairs.start[pair], lengths)).cast(kind)
        columns[WINDOW_END] = pa.array(np.repeat(pairs.end[pair], lengths)).cast(kind)
    columns |= parameter_columns([pairs.constants[q] for q in pairs.query[pair]], lengths)
    windows = None if pairs.shape.ranking is None else np.repeat(np.arange(len(pair)), lengths)
    rest = run(pairs.shape, columns, len(rows), context.evaluator, windows)
    failures = _added(failures, rest.failures)
    return Part(rest.columns, tuple(_ranges(pairs, pair, lengths, rest.keep, failures, context)))


def _counts_rows(measure: Measure, found: Sequence[Found]) -> bool:
    return all(len(one.planes[measure]) == 1 and one.planes[measure][0] is one.rows for one in found)


def _planes(measure: Measure, found: Sequence[Found], order: IntArray | None) -> list[Matrix]:
    return [_ordered(plane, order) for plane in _joined(measure, [one.planes[measure] for one in found])]


def _concatenate(parts: list[IntArray]) -> IntArray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _ordered(values: Matrix, order: IntArray | None) -> Matrix:
    return values if order is None else values[order]


def _added(total: IntArray | None, more: npt.NDArray[Any] | None) -> IntArray | None:
    if more is None or not more.any():
        return total
    counts = more.astype(np.int64)
    return counts if total is None else total + counts


def _runs(found: Sequence[Found]) -> tuple[IntArray, IntArray, IntArray | None]:
    """The pairs that have rows, how many each has, and the order that brings the rows of a pair together: None where
    they are, as long as keys come in one block."""
    pair = np.concatenate([one.first + np.arange(len(one.counts)) for one in found])
    counts = np.concatenate([one.counts for one in found])
    pair, counts = pair[counts > 0], counts[counts > 0]
    if (np.diff(pair) > 0).all():
        return pair, counts, None
    order = np.argsort(np.repeat(pair, counts), kind="stable")
    distinct, owner = np.unique(pair, return_inverse=True)
    return distinct, np.bincount(owner, weights=counts).astype(np.int64), order


def _joined(measure: Measure, parts: list[list[Matrix]]) -> list[Matrix]:
    """Concatenate the planes of several blocks; shorter ones are padded with zeros."""
    if len(parts) == 1:
        return parts[0]
    width = max(len(planes) for planes in parts)
    kinds = plane_kinds(measure, width)
    zero = {"fadd": np.float64, "add": np.int64}
    return [
        np.concatenate([p[i] if i < len(p) else np.zeros(len(p[0]), zero[kinds[i]]) for p in parts])
        for i in range(width)
    ]


def _ranges(
    pairs: Pairs,
    pair: IntArray,
    lengths: IntArray,
    keep: IntArray | None,
    failures: IntArray | None,
    context: Context,
) -> Iterator[Range]:
    fired, limit = context.fired, context.limits.query_answer_rows
    edges = np.concatenate([[0], np.cumsum(lengths)])
    places = (edges if keep is None else np.searchsorted(keep, edges)).tolist()
    failed = None if failures is None else np.add.reduceat(failures, edges[:-1])
    queries, starts, ends = (array[pair].tolist() for array in (pairs.query, pairs.start, pairs.end))
    for index, (place, start, end) in enumerate(zip(queries, starts, ends, strict=True)):
        one = pairs.due[place]
        query = one.member.query
        if failed is not None and failed[index]:
            fired.failures[query] += int(failed[index])
        first, count = places[index], places[index + 1] - places[index]
        if count > limit:
            fired.broken.setdefault(query, over("query_answer_rows", "a window", count, limit, "answer rows"))
        elif count:
            partial = one.partial_until is not None and start <= one.partial_until
            fired.windows[query] += 1
            fired.rows[query] += count
            yield Range(query, start, end, partial, first, count)
