"""Which queries are evaluated together: AJoin's query groups, grown greedily as queries come.

A query joins the group whose cost grows least, if that is less than a group of its own would cost (AJoin equation 2).
Groups share
stream and keys, so a create looks at the sketches of a few groups and rewrites one; it never looks at all queries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from millstream.model.expression import Expression
from millstream.model.group import GroupVersion, Measure, Member, measures_of
from millstream.model.query import LogicalQuery, WindowSpec
from millstream.model.selection import Attribute, Bound, Selection, attributes, leaves
from millstream.optimizer.cost import Statistics, group_cost, slices_per_second

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

    @classmethod
    def of(cls, version: GroupVersion) -> Sketch:
        sketch = cls(version, members=len(version.members), measures=set(version.measures))
        for member in version.members:
            sketch._add(member)
        return sketch

    def extended(self, member: Member) -> Sketch:
        """With one more member, so that the next create of the same batch sees it."""
        more = Sketch(
            self.version,
            {attribute: set(bounds) for attribute, bounds in self.thresholds.items()},
            set(self.windows),
            self.members + 1,
            self.measures | {m for a in member.aggregates for m in measures_of(a)},
        )
        more._add(member)
        return more

    def _add(self, member: Member) -> None:
        _add_thresholds(self.thresholds, member.selection)
        if member.window is not None:
            self.windows.add(member.window)


def _add_thresholds(thresholds: dict[Attribute, set[Bound]], selection: Selection) -> None:
    for leaf in leaves(selection):
        known = thresholds.setdefault(leaf.attribute, set())
        known.update(bound for span in leaf.ranges for bound in span if bound is not None)


def _grid(thresholds: Mapping[Attribute, set[Bound]]) -> int:
    return math.prod(len(bounds) + 2 for bounds in thresholds.values())


@dataclass(frozen=True)
class Candidate:
    """A query about to be placed."""

    query: LogicalQuery
    selection: Selection

    @property
    def keys(self) -> tuple[Expression, ...] | None:
        return self.query.keys if self.query.window is not None else None

    @property
    def measures(self) -> tuple[Measure, ...]:
        return tuple(dict.fromkeys(m for a in self.query.aggregates for m in measures_of(a)))


def choose(candidate: Candidate, sketches: Sequence[Sketch], statistics: Statistics) -> Sketch | None:
    """The group that the query should join; None for a new one. ``sketches`` are those of the same stream."""
    alone = _cost(_sketch_alone(candidate), 1, len(candidate.measures), statistics)
    best: Sketch | None = None
    least = alone
    for sketch in sketches:
        if sketch.version.keys != candidate.keys or sketch.members >= MEMBER_LIMIT:
            continue
        union = _union(sketch, candidate)
        if union is None:
            continue
        grown = _cost(union, sketch.members + 1, len(sketch.measures | set(candidate.measures)), statistics)
        growth = grown - _cost(sketch, sketch.members, len(sketch.measures), statistics)
        if growth < least:
            best, least = sketch, growth
    return best


def _sketch_alone(candidate: Candidate) -> Sketch:
    thresholds: dict[Attribute, set[Bound]] = {}
    _add_thresholds(thresholds, candidate.selection)
    windows = set() if candidate.query.window is None else {candidate.query.window}
    return Sketch(GroupVersion("", 0, candidate.query.stream, candidate.keys, (), (), ()), thresholds, windows)


def _union(sketch: Sketch, candidate: Candidate) -> Sketch | None:
    """The group with the query in it; None where it would have too many classes or too narrow slices."""
    mine = _sketch_alone(candidate)
    thresholds = {a: bounds | mine.thresholds.get(a, set()) for a, bounds in sketch.thresholds.items()}
    thresholds |= {a: bounds for a, bounds in mine.thresholds.items() if a not in thresholds}
    if _grid(thresholds) > CLASS_LIMIT:
        return None
    windows = sketch.windows | mine.windows
    if windows != sketch.windows and _narrow(windows) and not _narrow(sketch.windows):
        return None
    return Sketch(sketch.version, thresholds, windows)


def _narrow(windows: Iterable[WindowSpec]) -> bool:
    return slices_per_second(windows) > 1_000_000 / NARROWEST_SLICE


def _cost(sketch: Sketch, members: int, planes: int, statistics: Statistics) -> float:
    classes = _expected(sketch.thresholds)
    return group_cost(sketch.thresholds, classes, min(classes, members), planes, sketch.windows, statistics)


def _expected(thresholds: Mapping[Attribute, set[Bound]]) -> int:
    """Classes to reckon with: queries to come will bring constants of their own, so an attribute that is compared has
    many intervals soon, and two of them span a large grid even if the first queries cut it only twice."""
    sizes = (
        len(bounds) + 2 if a.domain == "boolean" else max(len(bounds) + 2, EXPECTED_INTERVALS)
        for a, bounds in thresholds.items()
    )
    return math.prod(sizes)


def with_members(version: GroupVersion, members: Iterable[Member]) -> GroupVersion:
    """The next version, with these members and just the attributes and measures that they need."""
    kept = tuple(sorted(members, key=lambda m: m.slot))
    needed = tuple(dict.fromkeys(a for m in kept for a in attributes(m.selection)))
    measures = tuple(dict.fromkeys(x for m in kept for a in m.aggregates for x in measures_of(a)))
    return GroupVersion(version.group, version.version + 1, version.stream, version.keys, needed, measures, kept)


def free_slot(members: Iterable[Member]) -> int:
    """The lowest slot that no member has: slots of deleted queries are used again."""
    taken = {member.slot for member in members}
    return next(slot for slot in range(len(taken) + 1) if slot not in taken)
