"""A batch of creates and deletes turned into new group versions. Pure: the caller writes the files and seals the
epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from millstream.model.group import GroupVersion, Member
from millstream.model.query import LogicalQuery
from millstream.model.selection import Selection
from millstream.optimizer.cost import Statistics
from millstream.optimizer.grouping import Candidate, Sketch, choose


@dataclass(frozen=True)
class Create:
    id: str
    query: LogicalQuery
    selection: Selection
    # Columns of the rows that must be kept for it.
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rewritten:
    """The groups that change, as they are after it, and where each new query was put: (group, slot) by query."""

    sketches: tuple[Sketch, ...]
    places: Mapping[str, tuple[str, int]]

    @property
    def versions(self) -> tuple[GroupVersion, ...]:
        return tuple(sketch.version for sketch in self.sketches)


@dataclass
class _Draft:
    """A group while it changes: ``sketch`` counts the members as they are now."""

    sketch: Sketch
    members: dict[str, Member]
    slots: set[int] = field(default_factory=set)
    # All slots below this one are taken, as far as is known.
    lowest: int = 0

    def __post_init__(self) -> None:
        self.slots.update(member.slot for member in self.members.values())

    def add(self, member: Member) -> None:
        self.members[member.query] = member
        self.slots.add(member.slot)
        self.sketch.add(member)

    def remove(self, query: str) -> None:
        member = self.members.pop(query)
        self.slots.remove(member.slot)
        self.lowest = min(self.lowest, member.slot)
        self.sketch.remove(member)

    def free_slot(self) -> int:
        """The lowest slot that no member has: slots of deleted queries are used again."""
        while self.lowest in self.slots:
            self.lowest += 1
        return self.lowest

    def next(self) -> Sketch:
        """The group after the change."""
        self.sketch.follow(self.members.values())
        return self.sketch


@dataclass
class _Plan:
    drafts: dict[str, _Draft]
    places: dict[str, tuple[str, int]] = field(default_factory=dict)


def rewrite(
    groups: Mapping[str, Sketch],
    group_of: Mapping[str, str],
    creates: Sequence[Create],
    deletes: Sequence[str],
    new_group: Callable[[], str],
    statistics: Statistics,
) -> Rewritten:
    """Apply deletes, then creates. ``groups`` are the current versions by group, ``group_of`` gives a query's group."""
    plan = _Plan({})
    for query in deletes:
        _draft(plan, groups, group_of[query]).remove(query)
    for create in creates:
        _place(plan, groups, create, new_group, statistics)
    return Rewritten(tuple(draft.next() for draft in plan.drafts.values()), plan.places)


def _draft(plan: _Plan, groups: Mapping[str, Sketch], group: str) -> _Draft:
    if group not in plan.drafts:
        sketch = groups[group]
        plan.drafts[group] = _Draft(sketch.copy(), {m.query: m for m in sketch.version.members})
    return plan.drafts[group]


def _place(
    plan: _Plan, groups: Mapping[str, Sketch], create: Create, new_group: Callable[[], str], statistics: Statistics
) -> None:
    query = create.query
    candidate = Candidate(query, create.selection, bool(create.columns))
    same_stream = {g: s for g, s in groups.items() if s.version.stream == query.stream}
    same_stream |= {g: d.sketch for g, d in plan.drafts.items() if d.sketch.version.stream == query.stream}
    chosen = choose(candidate, same_stream.values(), statistics)
    if chosen is None:
        group = new_group()
        empty = GroupVersion(group, 0, query.stream, candidate.keys, (), (), ())
        plan.drafts[group] = _Draft(Sketch.of(empty), {})
    else:
        group = chosen.version.group
    draft = _draft(plan, groups, group)
    slot = draft.free_slot()
    draft.add(member_of(create, slot))
    plan.places[create.id] = (group, slot)


def member_of(create: Create, slot: int) -> Member:
    """The query as a member of a group."""
    query = create.query
    return Member(
        create.id,
        slot,
        create.selection,
        query.window,
        query.aggregates,
        query.having,
        query.outputs,
        create.columns,
        query.ranking,
    )
