"""Fire of joins: each source reduced to relations by (query, window), joined without building pairs of rows.

    buckets of each leg ──► stacks or lists ──► relations (windows × attributes) ──► join tree ──► answers, or counts

The relations of all due windows of a shape are rows of one matrix, whatever group their legs are in. A leg whose
combinations of attributes are too many for a matrix (its runs are mostly single rows) is kept as a list, and its
windows are joined one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.config import Limits
from millstream.config.limits import over
from millstream.errors import reason_for
from millstream.kernels.aggregate import ranked, stored
from millstream.kernels.answering import Context, Due, Fired, Found, Pairs, answer, pairs_of
from millstream.kernels.answers import Range
from millstream.kernels.evaluate import Evaluator
from millstream.kernels.fire import (
    BLOCK_NUMBERS,
    Gathered,
    Piece,
    View,
    by_start,
    contributions,
    gather,
    kept_views,
    loose_views,
    with_ranks,
)
from millstream.kernels.group import Group
from millstream.kernels.guard import NOBODYS_FAULT
from millstream.kernels.join_lists import ListLeg
from millstream.kernels.keys import align
from millstream.kernels.relation import Relation, total_rows
from millstream.kernels.relation_tree import evaluate_tree
from millstream.kernels.stack import SliceId, Stack
from millstream.model.expression import Column, Expression
from millstream.model.group import Measure, Member, measures_of
from millstream.model.join import JoinQuery, leg_column, of_leg
from millstream.model.legs import leg_aggregates, leg_attributes, leg_member, reads_window
from millstream.model.query import WINDOW_END, WINDOW_START
from millstream.model.selection import EVERYTHING
from millstream.model.types import DataType

IntArray = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.int64]

# Combinations of values that one join may pair: some hundred MB and some seconds at most.
MOST_PAIRS = 50_000_000
# A loose leg is stacked up to so many bytes; beyond that it is a list.
LARGEST_STACK = 256 << 20


@dataclass(frozen=True)
class JoinDue:
    """A join whose windows with ``after`` < end ≤ ``upto`` are to be answered."""

    query: str
    form: int
    after: int
    upto: int
    partial_until: int | None


@dataclass(frozen=True)
class LegSource:
    """All buckets of a leg that the due windows need, as stacks and pieces, of any number of groups and versions."""

    stacks: tuple[Stack, ...]
    pieces: tuple[Piece, ...]

    @property
    def slices(self) -> set[SliceId]:
        return {*(s for stack in self.stacks for s in stack.slices), *(piece.slice for piece in self.pieces)}


@dataclass
class JoinFired(Fired):
    # Answers whose rows are built when somebody reads them.
    counted: list[Range] = field(default_factory=list)


@dataclass(frozen=True)
class Form:
    """A join without its sources' own conditions; ``key`` is what due windows that run together have in common."""

    query: JoinQuery

    @cached_property
    def key(self) -> object:
        query = self.query
        return query.tree, query.where, query.grouped, query.keys, query.aggregates

    @cached_property
    def attributes(self) -> tuple[tuple[Expression, ...], ...]:
        return tuple(leg_attributes(self.query, leg) for leg in range(len(self.query.legs)))

    @cached_property
    def measures(self) -> tuple[dict[Measure, Measure], ...]:
        """For each leg, the measure of its group by the measure named by leg."""
        found = []
        for leg in range(len(self.query.legs)):
            mine = (m for a in leg_aggregates(self.query, leg) for m in measures_of(a))
            found.append({m: Measure(m.kind, of_leg(m.argument)) for m in mine})
        return tuple(found)

    @cached_property
    def all_measures(self) -> tuple[Measure, ...]:
        return tuple(dict.fromkeys(m for a in self.query.aggregates for m in measures_of(a)))

    @cached_property
    def reads_window(self) -> bool:
        return reads_window(self.query)

    def due(self, one: JoinDue) -> Due:
        query = self.query
        outputs = query.outputs if query.grouped else ()
        member = Member(
            one.query, 0, EVERYTHING, query.window, query.aggregates, query.having, outputs, (), query.ranking
        )
        return Due(member, one.after, one.upto, one.partial_until)


def fire_joins(
    due: Sequence[JoinDue],
    forms: Sequence[JoinQuery],
    legs: Sequence[LegSource],
    time_type: DataType,
    evaluator: Evaluator,
    limits: Limits | None = None,
) -> JoinFired:
    """Answer the due windows of joins whose legs have the same attributes."""
    fired = JoinFired()
    slices = sorted({s for leg in legs for s in leg.slices}, key=by_start)
    if not due or not slices:
        return fired
    made = [Form(form) for form in forms]
    by_key: dict[object, list[JoinDue]] = {}
    for one in due:
        by_key.setdefault(made[one.form].key, []).append(one)
    for mine in by_key.values():
        form = made[mine[0].form]
        sides = [_Side.of(form, leg, legs[leg]) for leg in range(len(legs))]
        run = _Run(form, [one.query for one in mine], sides, time_type, evaluator, fired, limits or Limits())
        for pairs in pairs_of([made[one.form].due(one) for one in mine], slices):
            run.answer(pairs)
    return fired


@dataclass(frozen=True)
class _Side:
    """A leg's buckets with one numbering of its attributes' values."""

    leg: int
    stacks: tuple[Stack, ...]
    pieces: tuple[Piece, ...]
    numbers: tuple[list[IntArray], list[IntArray]]
    keys: tuple[pa.Array, ...]
    count: int
    values: dict[Measure, pa.Array]
    listed: bool

    @classmethod
    def of(cls, form: Form, leg: int, source: LegSource) -> _Side:
        wanted = tuple(form.measures[leg].values())
        narrowed, values = with_ranks(source.pieces, wanted)
        tables = [*(stack.keys for stack in source.stacks), *(piece.content.keys for piece in narrowed)]
        width = len(form.attributes[leg])
        if not tables:
            empty = tuple(pa.nulls(0, a.type.arrow) for a in form.attributes[leg])
            return cls(leg, (), (), ([], []), empty, 0 if width else 1, {}, False)
        numbers, keys, count = align(tables, width)
        cut = len(source.stacks)
        listed = _too_large(narrowed, count, len(wanted))
        return cls(leg, source.stacks, tuple(narrowed), (numbers[:cut], numbers[cut:]), keys, count, values, listed)


def _too_large(pieces: Sequence[Piece], keys: int, measures: int) -> bool:
    """Whether loose pieces are better left as lists: their matrices would be large, and mostly empty."""
    if not pieces:
        return False
    cells = sum(len(piece.content) for piece in pieces)
    height = max(int(piece.group.labels.shape[1]) for piece in pieces) + 1
    slices = len({(piece.slice, id(piece.group)) for piece in pieces})
    size = 8 * height * keys * (slices + 1) * (1 + measures)
    return size > LARGEST_STACK or height * keys * slices > 64 * max(cells, 1)


@dataclass(frozen=True)
class _Run:
    """One shape of joins on its way from buckets to answers."""

    form: Form
    queries: list[str]
    sides: list[_Side]
    time_type: DataType
    evaluator: Evaluator
    fired: JoinFired
    limits: Limits

    def answer(self, pairs: Pairs) -> None:
        views = [self._views(side) for side in self.sides]
        for places in self._blocks(pairs):
            try:
                self._block(pairs, places, views)
            except NOBODYS_FAULT:
                raise
            except Exception as error:
                if places.stop - places.start == 1:
                    query = pairs.due[int(pairs.query[places.start])].member.query
                    self.fired.broken.setdefault(query, reason_for(error))
                    continue
                for place in range(places.start, places.stop):
                    self._alone(pairs, place, views)

    def _alone(self, pairs: Pairs, place: int, views: list[list[View]]) -> None:
        query = pairs.due[int(pairs.query[place])].member.query
        if query in self.fired.broken:
            return
        try:
            self._block(pairs, slice(place, place + 1), views)
        except NOBODYS_FAULT:
            raise
        except Exception as error:
            self.fired.broken[query] = reason_for(error)

    def _blocks(self, pairs: Pairs) -> Iterator[slice]:
        """Ranges of pairs that run together: of one window where the window's bounds take part in the join."""
        if any(side.listed for side in self.sides):
            step = 1
        else:
            step = max(1, BLOCK_NUMBERS // max(1, sum(side.count for side in self.sides)))
        first = 0
        while first < len(pairs.end):
            last = min(first + step, len(pairs.end))
            if self.form.reads_window:
                same = (pairs.start[first:last] == pairs.start[first]) & (pairs.end[first:last] == pairs.end[first])
                last = first + int(np.argmin(same)) if not same.all() else last
            yield slice(first, last)
            first = last

    def _views(self, side: _Side) -> list[View]:
        if side.listed:
            return []

        def members(group: Group) -> IntArray:
            position = group.position
            return np.array([position.get(leg_member(query, side.leg), -1) for query in self.queries], np.int64)

        wanted = tuple(self.form.measures[side.leg].values())
        found = [*kept_views(members, side.stacks, side.numbers[0], 0, side.count)]
        return [*found, *loose_views(members, side.pieces, side.numbers[1], 0, side.count, wanted)]

    def _block(self, pairs: Pairs, places: slice, views: list[list[View]]) -> None:
        relations = [
            self._listed(side, pairs, places) if side.listed else self._dense(side, pairs, places, views[side.leg])
            for side in self.sides
        ]
        query = self.form.query
        keep = query.keys if query.grouped else ()
        measures = self.form.all_measures if query.grouped else ()
        result = evaluate_tree(query.tree, relations, keep, query.where, self.evaluator, MOST_PAIRS, measures)
        block = _part_of(pairs, places)
        if not query.grouped:
            self._count(block, total_rows(result))
            return
        planes = {measure: result.measures[measure] for measure in self.form.all_measures}
        keys = tuple(result.attributes[key] for key in query.keys)
        context = Context(result.values, keys, self.time_type, self.evaluator, self.fired, self.limits)
        answer(block, [Found.of(0, 0, result.rows, planes)], context)

    def _count(self, pairs: Pairs, totals: IntArray) -> None:
        limit = self.limits.query_answer_rows
        for place, total in enumerate(totals.tolist()):
            one = pairs.due[int(pairs.query[place])]
            if total > limit:
                reason = over("query_answer_rows", "a window", total, limit, "answer rows")
                self.fired.broken.setdefault(one.member.query, reason)
            elif total:
                start, end = int(pairs.start[place]), int(pairs.end[place])
                partial = one.partial_until is not None and start <= one.partial_until
                self.fired.windows[one.member.query] += 1
                self.fired.rows[one.member.query] += total
                self.fired.counted.append(Range(one.member.query, start, end, partial, 0, total, described=True))

    def _dense(self, side: _Side, pairs: Pairs, places: slice, views: list[View]) -> Relation:
        parts = contributions(pairs, views, places)
        number = places.stop - places.start
        if not parts:
            empty = np.zeros((number, 0), np.int64)
            return self._relation(side, tuple(key.slice(0, 0) for key in side.keys), empty, {}, pairs, places)
        gathered = gather(parts, side.count)
        rows, keys = gathered.rows, side.keys
        planes: dict[Measure, tuple[Matrix, ...]] = {}
        for named, plain in self.form.measures[side.leg].items():
            planes[named] = self._planes(gathered, named, plain)
        if number == 1:
            # A window that is too large is tried again alone: values of other windows and queries must not count.
            mine = np.flatnonzero(rows[0])
            planes = {named: tuple(plane[:, mine] for plane in found) for named, found in planes.items()}
            rows, keys = rows[:, mine], tuple(key.take(pa.array(mine)) for key in keys)
        return self._relation(side, keys, rows, planes, pairs, places)

    def _planes(self, gathered: Gathered, named: Measure, plain: Measure) -> tuple[Matrix, ...]:
        return stored(named, tuple(gathered.planes(plain))) or (gathered.rows,)

    def _listed(self, side: _Side, pairs: Pairs, places: slice) -> Relation:
        assert places.stop - places.start == 1
        query = self.queries[int(pairs.due_place[int(pairs.query[places.start])])]
        start, end = int(pairs.start[places.start]), int(pairs.end[places.start])
        lists = ListLeg(side.stacks, side.pieces, side.numbers)
        wanted = tuple(self.form.measures[side.leg].values())
        key, rows, planes = lists.window(leg_member(query, side.leg), start, end, wanted)
        keys = tuple(column.take(pa.array(key)) for column in side.keys)
        named = {m: planes[plain] for m, plain in self.form.measures[side.leg].items()}
        return self._relation(side, keys, rows, named, pairs, places)

    def _relation(
        self,
        side: _Side,
        keys: tuple[pa.Array, ...],
        rows: Matrix,
        planes: dict[Measure, tuple[Matrix, ...]],
        pairs: Pairs,
        places: slice,
    ) -> Relation:
        attributes = dict(zip(self.form.attributes[side.leg], keys, strict=True))
        if self.form.reads_window:
            bounds = {WINDOW_START: int(pairs.start[places.start]), WINDOW_END: int(pairs.end[places.start])}
            # Streams may differ in it.
            time = self.form.query.legs[side.leg].time
            type_ = self.time_type if time is None else time.type
            for name, bound in bounds.items():
                column = pa.array(np.full(rows.shape[1], bound, np.int64)).cast(type_.arrow)
                attributes[Column(leg_column(side.leg, name), type_)] = column
        plain = self.form.measures[side.leg]
        values = {m: side.values[plain[m]] for m in plain if plain[m] in side.values}
        for measure in plain:
            if measure not in planes:
                planes[measure] = _none(measure, rows)
        return Relation(attributes, rows, planes, values)


def _none(measure: Measure, rows: Matrix) -> tuple[Matrix, ...]:
    """The planes of a relation without columns."""
    floating = measure.argument.type.floating and measure.kind != "count"
    integral = not floating or (measure.kind in ("min", "max") and ranked(measure.argument.type))
    return (np.zeros(rows.shape, np.int64 if integral and measure.kind != "fsum" else np.float64),)


def _part_of(pairs: Pairs, places: slice) -> Pairs:
    """Some of the pairs, as if there were no others."""
    return Pairs(
        pairs.shape,
        pairs.due,
        pairs.constants,
        pairs.due_place,
        pairs.query[places],
        pairs.start[places],
        pairs.end[places],
    )
