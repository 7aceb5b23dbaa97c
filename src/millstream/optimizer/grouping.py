"""Which queries are evaluated together: AJoin's query groups, grown greedily as queries come.

A query joins the group whose cost grows least, if that is less than a group of its own would cost (AJoin equation 2).
Groups share
stream and keys, so a create looks at the sketches of a few groups and rewrites one; it never looks at all queries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from millstream.model.expression import Expression
from millstream.model.group import GroupVersion, Measure, Member, measures_of
from millstream.model.query import LogicalQuery, WindowSpec
from millstream.model.selection import Attribute, Bound, Selection, attributes, leaves
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
    """What placing a query needs to know of a group: kept up to date with each version, cheap to extend by one."""

    version: GroupVersion
    thresholds: dict[Attribute, set[Bound]] = field(default_factory=dict)
    windows: set[WindowSpec] = field(default_factory=set)
    members: int = 0
    measures: set[Measure] = field(default_factory=set)
    # Whether rows are kept for its members: each row that any of them selects.
    keeps_rows: bool = False

    @classmethod
    def of(cls, version: GroupVersion) -> Sketch:
        sketch = cls(version, members=len(version.members), measures=set(version.measures))
        for member in version.members:
            sketch._add(member)
        return sketch

    def copy(self) -> Sketch:
        thresholds = {attribute: set(bounds) for attribute, bounds in self.thresholds.items()}
        return Sketch(self.version, thresholds, set(self.windows), self.members, set(self.measures), self.keeps_rows)

    def add(self, member: Member) -> None:
        """Take in one more member, so that the next create of the same batch sees it."""
        self._add(member)
        self.members += 1
        self.measures.update(m for a in member.aggregates for m in measures_of(a))

    def _add(self, member: Member) -> None:
        _add_thresholds(self.thresholds, member.selection)
        if member.window is not None:
            self.windows.add(member.window)
        self.keeps_rows = self.keeps_rows or bool(member.columns)


def _add_thresholds(thresholds: dict[Attribute, set[Bound]], selection: Selection) -> None:
    for leaf in leaves(selection):
        known = thresholds.setdefault(leaf.attribute, set())
        known.update(bound for span in leaf.ranges for bound in span if bound is not None)


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
    _add_thresholds(mine, candidate.selection)
    window = candidate.query.window
    windows = set() if window is None else {window}
    measures = set(candidate.measures)
    sizes = {attribute: len(bounds) + 2 for attribute, bounds in mine.items()}
    best: Sketch | None = None
    least = _cost(sizes, 1, len(measures), windows, statistics, candidate.keeps_rows)
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
        both = sketch.windows | windows
        if len(both) > len(sketch.windows) and _narrow(both) and not _narrow(sketch.windows):
            continue
        before = {attribute: len(bounds) + 2 for attribute, bounds in sketch.thresholds.items()}
        rows = candidate.keeps_rows
        grown = _cost(union, sketch.members + 1, len(sketch.measures | measures), both, statistics, rows)
        growth = grown - _cost(before, sketch.members, len(sketch.measures), sketch.windows, statistics, rows)
        if growth < least:
            best, least = sketch, growth
    return best


def _union_sizes(known: Mapping[Attribute, set[Bound]], more: Mapping[Attribute, set[Bound]]) -> dict[Attribute, int]:
    """Intervals of each attribute with the constants of both; the larger sets are only looked into."""
    sizes = {attribute: len(bounds) + 2 for attribute, bounds in known.items()}
    for attribute, bounds in more.items():
        old = known.get(attribute, set())
        sizes[attribute] = sizes.get(attribute, 2) + sum(bound not in old for bound in bounds)
    return sizes


def _narrow(windows: Iterable[WindowSpec]) -> bool:
    return slices_per_second(windows) > 1_000_000 / NARROWEST_SLICE


def _cost(
    sizes: Mapping[Attribute, int],
    members: int,
    planes: int,
    windows: Iterable[WindowSpec],
    statistics: Statistics,
    keeps_rows: bool,
) -> float:
    """Cells are labelled by member where those are fewer than classes, but not where rows are kept: there each row lies
    in one cell."""
    classes = _expected(sizes)
    labels = classes if keeps_rows else min(classes, members)
    return group_cost(sizes, classes, labels, planes, windows, statistics)


def _expected(sizes: Mapping[Attribute, int]) -> int:
    """Classes to reckon with: queries to come will bring constants of their own, so an attribute that is compared has
    many intervals soon, and two of them span a large grid even if the first queries cut it only twice."""
    return math.prod(n if a.domain == "boolean" else max(n, EXPECTED_INTERVALS) for a, n in sizes.items())


def with_members(version: GroupVersion, members: Iterable[Member]) -> GroupVersion:
    """The next version, with these members and just the attributes and measures that they need."""
    kept = tuple(sorted(members, key=lambda m: m.slot))
    needed = tuple(dict.fromkeys(a for m in kept for a in attributes(m.selection)))
    measures = tuple(dict.fromkeys(x for m in kept for a in m.aggregates for x in measures_of(a)))
    return GroupVersion(version.group, version.version + 1, version.stream, version.keys, needed, measures, kept)


def with_more(version: GroupVersion, sketch: Sketch, members: Iterable[Member]) -> GroupVersion:
    """The next version when none has left: what there was, and what the new ones add."""
    needed = (*version.attributes, *(a for a in sketch.thresholds if a not in version.attributes))
    measures = (*version.measures, *sorted(sketch.measures - set(version.measures), key=repr))
    kept = tuple(sorted(members, key=lambda m: m.slot))
    return GroupVersion(version.group, version.version + 1, version.stream, version.keys, needed, measures, kept)


def free_slot(members: Iterable[Member]) -> int:
    """The lowest slot that no member has: slots of deleted queries are used again."""
    taken = {member.slot for member in members}
    return next(slot for slot in range(len(taken) + 1) if slot not in taken)
