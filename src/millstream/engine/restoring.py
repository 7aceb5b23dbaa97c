"""Group versions made again from the definitions of their queries, where the file is damaged.

A version follows from its members, and they from the queries that had come and not gone when it was sealed. Of a query
that was stopped it is known when that was, but not with which epoch it left its group, a moment later: what may be is
tried, and the checksum in the file's name tells which is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from millstream.catalog.metastore import QueryRecord, VersionPlace
from millstream.catalog.records import FAILED
from millstream.model.expression import Expression
from millstream.model.group import GroupVersion, Member
from millstream.optimizer.changelog import Create, member_of
from millstream.optimizer.grouping import with_members

# Queries of one group that may have been stopped and still been in a version.
MOST_STOPPED = 16


@dataclass(frozen=True)
class Joined:
    """A query's member in the group, and when the query was stopped, if that may have been before the version was
    sealed."""

    member: Member
    keys: tuple[Expression, ...] | None
    stopped: int | None = None


def concerns(place: VersionPlace, record: QueryRecord) -> bool:
    """Whether the query, or a leg of it, was in the group when the version was sealed, or was stopped before."""
    groups = [leg.group for leg in record.legs] or [record.group]
    deleted = record.deleted_epoch is not None and record.deleted_epoch <= place.epoch
    return place.group in groups and record.epoch <= place.epoch and not deleted


def members_at(place: VersionPlace, record: QueryRecord, creates: Sequence[Create]) -> Iterator[Joined]:
    """The members that a query has in the group of a version."""
    failed = record.ended_at if record.state == FAILED else None
    # At the same moment by the clock, it may have left with this version, or with the next.
    before = failed is not None and (place.sealed_at is None or failed <= place.sealed_at)
    stopped = failed if before else None
    slots = [(leg.group, leg.slot) for leg in record.legs] or [(record.group, record.slot)]
    for create, (group, slot) in zip(creates, slots, strict=True):
        if group == place.group:
            keys = create.query.keys if create.query.window is not None else None
            yield Joined(member_of(create, slot), keys, stopped)


def candidates(place: VersionPlace, joined: Sequence[Joined]) -> Iterator[GroupVersion]:
    """What the version may have been: without the queries that were stopped before, then with the one stopped last, the
    last two …"""
    if not joined or place.version < 0:
        return  # versions for one batch alone have nothing that says who was left out
    members = [one.member for one in joined if one.stopped is None]
    stopped = sorted((one for one in joined if one.stopped is not None), key=lambda one: one.stopped or 0, reverse=True)
    before = GroupVersion(place.group, place.version - 1, place.stream, joined[0].keys, (), (), ())
    for count in range(min(len(stopped), MOST_STOPPED) + 1):
        yield with_members(before, [*members, *(one.member for one in stopped[:count])])
