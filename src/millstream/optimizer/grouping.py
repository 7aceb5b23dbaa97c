"""Which queries are evaluated together: AJoin's query groups, grown greedily as queries come.

A query joins the group whose cost grows least, if that is less than a group of its own would cost (AJoin equation 2).
Groups share
stream and keys, so a create looks at the sketches of a few groups and rewrites one; it never looks at all queries.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.model.expression import Expression
from millstream.model.group import GroupVersion, Measure, Member, measures_of
from millstream.model.query import LogicalQuery, WindowSpec
from millstream.model.selection import Attribute, Bound, Leaf, Selection, leaves
from millstream.optimizer.cost import DENSE, Statistics, group_cost, slices_per_second

# More classes than this make partial aggregates by class a loss.
CLASS_LIMIT = 4096
# Intervals that an attribute compared with constants is reckoned to have in the long run.
EXPECTED_INTERVALS = 64
# A version is rewritten whole when a query comes or goes; this bounds the cost of that.
MEMBER_LIMIT = 1024
# Slices narrower than this (20 ms) hold too few rows to be worth a bucket: windows that would cut a group so get
# their own.
NARROWEST_SLICE = 20_000


@dataclass
class Sketch:
    """What placing a query needs to know of a group, counted over its members, so that a member more or less costs the
    same however many there are."""

    version: GroupVersion
    # How many members compare an attribute with a bound; and use an attribute, a window, a measure.
    thresholds: dict[Attribute, Counter[Bound]] = field(default_factory=dict)
    attributes: Counter[Attribute] = field(default_factory=Counter)
    windows: Counter[WindowSpec] = field(default_factory=Counter)
    measures: Counter[Measure] = field(default_factory=Counter)
    members: int = 0
    # Members that rows are kept for: each row that any of them selects.
    keeping: int = 0
    # What was reckoned from the above, until it changes.
    _slices: float | None = field(default=None, repr=False, compare=False)
    _cost: tuple[Statistics, float] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, version: GroupVersion) -> Sketch:
        sketch = cls(version)
        for member in version.members:
            sketch.add(member)
        return sketch

    @property
    def keeps_rows(self) -> bool:
        return self.keeping > 0

    @property
    def slices(self) -> float:
        """A second."""
        if self._slices is None:
            self._slices = slices_per_second(self.windows)
        return self._slices

    def cost(self, statistics: Statistics) -> float:
        if self._cost is None or self._cost[0] != statistics:
            sizes = {attribute: len(bounds) + 2 for attribute, bounds in self.thresholds.items()}
            found = _cost(sizes, self.members, len(self.measures), self.slices, statistics, self.keeps_rows)
            self._cost = (statistics, found)
        return self._cost[1]

    def copy(self) -> Sketch:
        thresholds = {attribute: Counter(bounds) for attribute, bounds in self.thresholds.items()}
        counted = (Counter(self.attributes), Counter(self.windows), Counter(self.measures))
        return Sketch(self.version, thresholds, *counted, self.members, self.keeping)

    def add(self, member: Member) -> None:
        self._count(member, 1)

    def remove(self, member: Member) -> None:
        self._count(member, -1)

    def _count(self, member: Member, by: int) -> None:
        for leaf in leaves(member.selection):
            known = self.thresholds.setdefault(leaf.attribute, Counter())
            for bound in bounds_of(leaf):
                _change(known, bound, by)
            _change(self.attributes, leaf.attribute, by)
            if leaf.attribute not in self.attributes:
                del self.thresholds[leaf.attribute]
        self._cost = None
        if member.window is not None:
            before = len(self.windows)
            _change(self.windows, member.window, by)
            self._slices = self._slices if len(self.windows) == before else None
        for measure in (m for a in member.aggregates for m in measures_of(a)):
            _change(self.measures, measure, by)
        self.members += by
        self.keeping += by if member.columns else 0

    def follow(self, members: Iterable[Member]) -> None:
        """Make the next version, of the members that are counted. Attributes and measures are in an order that depends
        on nothing but what they are: so the members alone tell what a version was."""
        kept = tuple(sorted(members, key=lambda m: m.slot))
        old = self.version
        self.version = GroupVersion(
            old.group,
            old.version + 1,
            old.stream,
            old.keys,
            tuple(sorted(self.attributes, key=repr)),
            tuple(sorted(self.measures, key=repr)),
            kept,
        )


def _change(counter: Counter[Any], item: object, by: int) -> None:
    counter[item] += by
    if not counter[item]:
        del counter[item]


def bounds_of(leaf: Leaf) -> Iterator[Bound]:
    """The constants that a leaf compares its attribute with."""
    return (bound for span in leaf.ranges for bound in span if bound is not None)


@dataclass(frozen=True)
class Candidate:
    """A query about to be placed."""

    query: LogicalQuery
    selection: Selection
    keeps_rows: bool = False

    @property
    def keys(self) -> tuple[Expression, ...] | None:
        return self.query.keys if self.query.window is not None else None

    @property
    def measures(self) -> tuple[Measure, ...]:
        return tuple(dict.fromkeys(m for a in self.query.aggregates for m in measures_of(a)))


def choose(candidate: Candidate, sketches: Iterable[Sketch], statistics: Statistics) -> Sketch | None:
    """The group that the query should join; None for a new one. ``sketches`` are those of the same stream."""
    mine: dict[Attribute, set[Bound]] = {}
    for leaf in leaves(candidate.selection):
        mine.setdefault(leaf.attribute, set()).update(bounds_of(leaf))
    window = candidate.query.window
    measures = candidate.measures
    sizes = {attribute: len(bounds) + 2 for attribute, bounds in mine.items()}
    best: Sketch | None = None
    alone = slices_per_second(() if window is None else (window,))
    least = _cost(sizes, 1, len(measures), alone, statistics, candidate.keeps_rows)
    for sketch in sketches:
        if sketch.version.keys != candidate.keys or sketch.members >= MEMBER_LIMIT:
            continue
        if sketch.members and sketch.keeps_rows != candidate.keeps_rows:
            continue  # rows would be kept for queries that need none
        union = _union_sizes(sketch.thresholds, mine)
        if math.prod(union.values()) > CLASS_LIMIT:
            continue
        if len(union) > len(sketch.thresholds) and _expected(union) * statistics.keys * DENSE > least:
            continue  # the planes of the larger grid alone cost more
        slices = sketch.slices
        if window is not None and window not in sketch.windows:
            slices = slices_per_second((*sketch.windows, window))
            if _narrow(slices) and not _narrow(sketch.slices):
                continue
        planes = len(sketch.measures) + sum(measure not in sketch.measures for measure in measures)
        grown = _cost(union, sketch.members + 1, planes, slices, statistics, candidate.keeps_rows)
        growth = grown - sketch.cost(statistics)
        if growth < least:
            best, least = sketch, growth
    return best


def _union_sizes(
    known: Mapping[Attribute, Counter[Bound]], more: Mapping[Attribute, set[Bound]]
) -> dict[Attribute, int]:
    """Intervals of each attribute with the constants of both; the larger sets are only looked into."""
    sizes = {attribute: len(bounds) + 2 for attribute, bounds in known.items()}
    for attribute, bounds in more.items():
        old = known.get(attribute, Counter[Bound]())
        sizes[attribute] = sizes.get(attribute, 2) + sum(bound not in old for bound in bounds)
    return sizes


def _narrow(slices: float) -> bool:
    return slices > 1_000_000 / NARROWEST_SLICE


def _cost(
    sizes: Mapping[Attribute, int],
    members: int,
    planes: int,
    slices: float,
    statistics: Statistics,
    keeps_rows: bool,
) -> float:
    """Cells are labelled by member where those are fewer than classes, but not where rows are kept: there each row lies
    in one cell."""
    classes = _expected(sizes)
    labels = classes if keeps_rows else min(classes, members)
    return group_cost(sizes, classes, labels, planes, slices, statistics)


def _expected(sizes: Mapping[Attribute, int]) -> int:
    """Classes to reckon with: queries to come will bring constants of their own, so an attribute that is compared has
    many intervals soon, and two of them span a large grid even if the first queries cut it only twice."""
    return math.prod(n if a.domain == "boolean" else max(n, EXPECTED_INTERVALS) for a, n in sizes.items())


def with_members(version: GroupVersion, members: Sequence[Member]) -> GroupVersion:
    """The next version of a group, with these members and no others."""
    sketch = Sketch(version)
    for member in members:
        sketch.add(member)
    sketch.follow(members)
    return sketch.version
