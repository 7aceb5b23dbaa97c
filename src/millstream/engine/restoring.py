"""Group versions made again from the definitions of their queries, where the file is damaged.

A version is its members by slot, and attributes and measures in the order in which they came; when a query leaves,
they are put in order anew. Which queries have left is forgotten after a while, so every place where the order may have
been made anew is tried; the checksum in the file's name tells which one is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from millstream.catalog.metastore import QueryRecord, VersionPlace
from millstream.model.expression import Expression
from millstream.model.group import GroupVersion, Member
from millstream.optimizer.changelog import Create, member_of
from millstream.optimizer.grouping import Sketch, with_members, with_more


@dataclass(frozen=True)
class Joined:
    """A member, and the epoch in which it came."""

    member: Member
    epoch: int


def members_at(place: VersionPlace, record: QueryRecord, creates: Sequence[Create]) -> Iterator[Joined]:
    """The members that a query has in a version: it came by then, and was neither deleted nor stopped."""
    deleted = record.deleted_epoch is not None and record.deleted_epoch <= place.epoch
    failed = record.state == "failed" and record.ended_at is not None and record.ended_at < place.sealed_at
    if record.epoch > place.epoch or deleted or failed:
        return
    slots = [(leg.group, leg.slot) for leg in record.legs] or [(record.group, record.slot)]
    for create, (group, slot) in zip(creates, slots, strict=True):
        if group == place.group:
            yield Joined(member_of(create, slot), record.epoch)


def candidates(
    place: VersionPlace, keys: tuple[Expression, ...] | None, joined: Sequence[Joined]
) -> Iterator[GroupVersion]:
    """What the version may have been: its order made anew with the members of each epoch, newest first, or never."""
    epochs = sorted({one.epoch for one in joined})
    empty = GroupVersion(place.group, 0, place.stream, keys, (), (), ())
    for first in range(len(epochs), -1, -1):
        version = with_members(empty, [one.member for one in joined if one.epoch in epochs[:first]])
        for epoch in epochs[first:]:
            sketch = Sketch.of(version)
            new = [one.member for one in joined if one.epoch == epoch]
            for member in sorted(new, key=lambda m: m.slot):
                sketch.add(member)
            version = with_more(version, sketch, [*version.members, *new])
        yield replace(version, version=place.version)
