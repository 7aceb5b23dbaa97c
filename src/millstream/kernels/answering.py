"""From the partials of due windows to answers: aggregates finished, HAVING and expressions run, ranges noted.

Queries of one **shape** (same aggregates, same rest but for constants) are answered together, as one table; if that
fails, query by query, so that one breaks alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.aggregate import plane_kinds
from millstream.kernels.answers import Part, Range
from millstream.kernels.batch import Evaluates
from millstream.kernels.keys import take
from millstream.kernels.rest import Shape, parameter_columns, run, shape_of
from millstream.kernels.results import finish
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


@dataclass
class Fired:
    parts: list[Part] = field(default_factory=list)
    windows: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    # Queries whose rest cannot be evaluated, with the reason.
    broken: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cohort:
    """Due queries with the same window, times, aggregates and rest: handled as rows of one matrix."""

    window: WindowSpec
    after: int
    upto: int
    shape: Shape
    members: tuple[Due, ...]
    places: IntArray
    constants: tuple[tuple[Literal, ...], ...]


def cohorts_of(due: Sequence[Due]) -> list[Cohort]:
    found: dict[object, list[tuple[int, Due, tuple[Literal, ...]]]] = {}
    for place, one in enumerate(due):
        shape, constants = shape_of(one.member)
        found.setdefault((one.member.window, one.after, one.upto, shape), []).append((place, one, constants))
    cohorts = []
    for (window, after, upto, shape), mine in found.items():  # type: ignore[misc]
        places = np.array([place for place, _, _ in mine])
        members = tuple(one for _, one, _ in mine)
        cohorts.append(Cohort(window, after, upto, shape, members, places, tuple(c for _, _, c in mine)))  # type: ignore[has-type]
    return cohorts


@dataclass
class Collected:
    """A cohort's answer rows, window by window."""

    cohort: Cohort
    query: list[IntArray] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    key: list[IntArray] = field(default_factory=list)
    rows: list[IntArray] = field(default_factory=list)
    planes: dict[Measure, list[list[Matrix]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """What all shapes of a fire have in common: ranked values by measure, the keys by number, and where answers go."""

    values: dict[Measure, pa.Array]
    keys: tuple[pa.Array, ...]
    time_type: DataType
    evaluator: Evaluates
    fired: Fired


def answer(collected: Sequence[Collected], context: Context) -> None:
    by_shape: dict[Shape, list[Collected]] = {}
    for bag in collected:
        if bag.query:
            by_shape.setdefault(bag.cohort.shape, []).append(bag)
    for shape, bags in by_shape.items():
        context.fired.parts += _parts(shape, bags, context)


def _parts(shape: Shape, bags: list[Collected], context: Context) -> list[Part]:
    """The answers of all queries of a shape; if that fails, query by query, so that one breaks alone."""
    try:
        part = _shape_part(shape, bags, context)
        return [part] if part.ranges else []
    except Exception as error:
        queries = [(bag, place) for bag in bags for place in range(len(bag.cohort.members))]
        if len(queries) == 1:
            context.fired.broken[queries[0][0].cohort.members[0].member.query] = f"{type(error).__name__}: {error}"
            return []
        alone = [_only(bag, place) for bag, place in queries]
        found = (_parts(shape, [b], context) for b in alone if b.query)
        return [part for parts in found for part in parts]


def _only(bag: Collected, place: int) -> Collected:
    """The rows of one query of a cohort."""
    cohort = bag.cohort
    one = replace(
        cohort,
        members=cohort.members[place : place + 1],
        places=cohort.places[place : place + 1],
        constants=cohort.constants[place : place + 1],
    )
    mine = Collected(one)
    for index, query in enumerate(bag.query):
        where = np.flatnonzero(query == place)
        if len(where):
            mine.query.append(np.zeros(len(where), np.int64))
            mine.end.append(bag.end[index])
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
    rows: int


def _shape_part(shape: Shape, bags: list[Collected], context: Context) -> Part:
    """All answers of one shape as one table, and the range of each."""
    runs, order = _runs(bags)
    lengths = [one.rows for one in runs]
    key = _ordered(np.concatenate([k for bag in bags for k in bag.key]), order)
    rows = _ordered(np.concatenate([r for bag in bags for r in bag.rows]), order)
    asked = shape.columns
    taken = [i for i in range(len(context.keys)) if key_column(i) in asked]
    columns = dict(zip(map(key_column, taken), take([context.keys[i] for i in taken], key), strict=True))
    failures: IntArray | None = None
    for index, aggregate in enumerate(bags[0].cohort.members[0].member.aggregates):
        needed = measures_of(aggregate)
        parts = [_joined(m, [p for bag in bags for p in bag.planes[m]]) for m in needed]
        planes = [[_ordered(plane, order) for plane in part] for part in parts]
        column, failed = finish(aggregate, rows, planes, context.values.get(needed[0]) if needed else None)
        columns[aggregate_column(index)] = column
        failures = _added(failures, failed)
    if asked & {WINDOW_START, WINDOW_END}:
        ends = np.repeat(np.array([one.end for one in runs]), lengths)
        sizes = np.repeat(np.array([_size(one) for one in runs]), lengths)
        columns[WINDOW_START] = pa.array(ends - sizes).cast(context.time_type.arrow)
        columns[WINDOW_END] = pa.array(ends).cast(context.time_type.arrow)
    columns |= parameter_columns([one.constants for one in runs], lengths)
    rest = run(shape, columns, len(rows), context.evaluator)
    failures = _added(failures, rest.failures)
    return Part(rest.columns, tuple(_ranges(runs, rest.keep, failures, context.fired)))


def _ordered(values: Matrix, order: IntArray | None) -> Matrix:
    return values if order is None else values[order]


def _added(total: IntArray | None, more: npt.NDArray[Any] | None) -> IntArray | None:
    if more is None or not more.any():
        return total
    counts = more.astype(np.int64)
    return counts if total is None else total + counts


def _size(one: _Run) -> int:
    assert one.due.member.window is not None
    return one.due.member.window.size


def _runs(bags: list[Collected]) -> tuple[list[_Run], IntArray | None]:
    """The runs of rows of each (query, window), and the order that brings them together: None where they are, as long
    as keys come in one block."""
    found: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    first = 0
    for number, bag in enumerate(bags):
        for query, end in zip(bag.query, bag.end, strict=True):
            for place, count in enumerate(np.bincount(query).tolist()):
                if count:
                    found.setdefault((number, place, end), []).append((first, count))
                    first += count
    runs = []
    for (number, place, end), parts in found.items():
        cohort = bags[number].cohort
        total = sum(count for _, count in parts)
        runs.append(_Run(cohort.members[place], end, cohort.constants[place], total))
    if all(len(parts) == 1 for parts in found.values()):
        return runs, None
    ranges = [np.arange(at, at + count) for parts in found.values() for at, count in parts]
    return runs, np.concatenate(ranges)


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


def _ranges(runs: list[_Run], keep: IntArray | None, failures: IntArray | None, fired: Fired) -> Iterator[Range]:
    edges = np.cumsum([0, *(one.rows for one in runs)])
    places = edges if keep is None else np.searchsorted(keep, edges)
    failed = None if failures is None else np.add.reduceat(failures, edges[:-1])
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
