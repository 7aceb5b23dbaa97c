"""Reading queries and group versions, and forgetting those that nothing needs any more."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, and_, bindparam, delete, func, or_, select, tuple_

from millstream.catalog import tables as t
from millstream.catalog.batches import stream_row
from millstream.catalog.database import Transaction
from millstream.catalog.files import referred
from millstream.catalog.legs import forget_legs, legs_of_queries
from millstream.catalog.records import (
    DELETED,
    START_OF_TIME,
    GroupVersionRef,
    LegRecord,
    QueryRecord,
    is_joined,
)
from millstream.catalog.statements import chunks
from millstream.errors import CatalogError
from millstream.model import codec
from millstream.model.join import JoinQuery
from millstream.model.query import LogicalQuery

# Decoding a definition costs more than all else about reading a query. Some kilobytes each.
CACHED_DEFINITIONS = 20_000

_COLUMN_OF = {"group": "group_name"}

_q = t.queries.c
_v = t.group_versions.c
_l = t.legs.c

# The columns of a record, by position: to look up twenty names a thousand times takes longer than the reading.
_NAMES = [field.name for field in fields(QueryRecord)]
_DEFINITION = _NAMES.index("query")
_RECORD = [_q[_COLUMN_OF.get(name, name)] for name in _NAMES if name not in ("query", "legs")]

_EPOCH_PLAN = (
    select(t.group_versions)
    .where(_v.stream == bindparam("at_stream"), _v.until > bindparam("at_epoch"), _v.epoch <= bindparam("at_epoch"))
    .where(_v.retired.is_(False))
    .order_by(_v.group_name)
)


class Definitions:
    """The decoded definitions of queries, the last used ones kept. A query's definition never changes."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, LogicalQuery | JoinQuery] = OrderedDict()

    def keep(self, id: str, query: LogicalQuery | JoinQuery) -> None:
        self._kept[id] = query
        while len(self._kept) > CACHED_DEFINITIONS:
            self._kept.popitem(last=False)

    def forget(self, ids: Iterable[str]) -> None:
        for id in ids:
            self._kept.pop(id, None)

    def of(self, tx: Transaction, ids: Sequence[str]) -> dict[str, LogicalQuery | JoinQuery]:
        """The definitions of all these queries."""
        found = {id: query for id in ids if (query := self._kept.get(id)) is not None}
        for part in chunks([id for id in ids if id not in found]):
            for row in tx.connection.execute(select(t.definitions).where(t.definitions.c.id.in_(part))):
                found[row.id] = codec.loads(row.definition)
                self.keep(row.id, found[row.id])
        return found


def query(tx: Transaction, definitions: Definitions, id: str) -> QueryRecord:
    records = _records(tx, definitions, select(*_RECORD).where(_q.id == id))
    if not records:
        raise unknown_query(id)
    return records[0]


def unknown_query(id: str) -> CatalogError:
    return CatalogError("UNKNOWN_QUERY", f"no query {id!r}", hint="`millstream query list` shows the queries")


def queries_by_id(tx: Transaction, definitions: Definitions, ids: Sequence[str]) -> dict[str, QueryRecord]:
    """Those of them that there are."""
    found: dict[str, QueryRecord] = {}
    for part in chunks(ids):
        found |= {one.id: one for one in _records(tx, definitions, select(*_RECORD).where(_q.id.in_(part)))}
    return found


def query_by_key(tx: Transaction, definitions: Definitions, owner: str, key: str) -> QueryRecord | None:
    records = _records(tx, definitions, select(*_RECORD).where(_q.owner == owner, _q.client_key == key))
    return records[0] if records else None


def queries(
    tx: Transaction, definitions: Definitions, states: Sequence[str] | None, owner: str | None, stream: str | None
) -> list[QueryRecord]:
    """In the order of creation, those of one epoch by id."""
    statement = select(*_RECORD).order_by(_q.epoch, _q.id)
    if states is not None:
        statement = statement.where(_q.state.in_(states))
    if owner is not None:
        statement = statement.where(_q.owner == owner)
    if stream is not None:
        statement = statement.where(_q.stream == stream)
    return _records(tx, definitions, statement)


def _records(tx: Transaction, definitions: Definitions, statement: Select[Any]) -> list[QueryRecord]:
    rows = tx.connection.execute(statement).all()
    texts = definitions.of(tx, [row.id for row in rows])
    legs = legs_of_queries(tx, [row.id for row in rows if is_joined(row.stream)])
    return [_record(row, texts[row.id], legs.get(row.id, ())) for row in rows]


def _record(row: Row[Any], definition: LogicalQuery | JoinQuery, legs: tuple[LegRecord, ...]) -> QueryRecord:
    values = [*row, legs]
    values.insert(_DEFINITION, definition)
    return QueryRecord(*values)


def epoch_plan(tx: Transaction, epoch: int, stream: str) -> tuple[GroupVersionRef, ...]:
    rows = tx.connection.execute(_EPOCH_PLAN, {"at_stream": stream, "at_epoch": epoch})
    return tuple(_reference(row) for row in rows)


def group_versions(tx: Transaction, stream: str) -> list[GroupVersionRef]:
    rows = tx.connection.execute(
        select(t.group_versions).where(_v.stream == stream).order_by(_v.group_name, _v.version)
    )
    return [_reference(row) for row in rows]


def _reference(row: Row[Any]) -> GroupVersionRef:
    return GroupVersionRef(row.group_name, row.stream, row.version, row.path, row.queries, row.classes, row.retired)


def old_versions(tx: Transaction, stream: str) -> list[tuple[str, int, str]]:
    """Group, version and path of group versions that no batch will run with, no bucket was made with and no answer
    refers to. None of that can change for them any more, so they may be forgotten at any later time."""
    state = stream_row(tx, stream)
    oldest = tx.epoch
    if state.committed < state.planned:
        running = select(t.plans.c.epoch).where(t.plans.c.stream == stream, t.plans.c.batch == state.planned)
        oldest = tx.connection.execute(running).scalar_one()
    superseded = or_(_v.until <= oldest, and_(_v.retired.is_(True), _v.epoch <= oldest))
    rows = tx.connection.execute(
        select(_v.group_name, _v.version, _v.path).where(_v.stream == stream, superseded)
    ).all()
    used = _used_versions(tx, stream) if rows else set()
    needed = referred(tx, [row.path for row in rows])
    return [
        (row.group_name, row.version, row.path)
        for row in rows
        if (row.group_name, row.version) not in used and row.path not in needed
    ]


def forget_versions(tx: Transaction, stream: str, versions: Sequence[tuple[str, int, str]]) -> None:
    pairs = [(group, version) for group, version, _ in versions]
    tx.connection.execute(
        delete(t.group_versions).where(_v.stream == stream, tuple_(_v.group_name, _v.version).in_(pairs))
    )


def _used_versions(tx: Transaction, stream: str) -> set[tuple[str, int]]:
    texts = tx.connection.execute(select(t.bucket_files.c.buckets).where(t.bucket_files.c.stream == stream)).scalars()
    return {(bucket[0], bucket[1]) for text in texts for bucket in json.loads(text)}


def _seen(stream: ColumnElement[str], first: ColumnElement[int], last: ColumnElement[int]) -> ColumnElement[bool]:
    """Whether there are buckets of a stream's batches from the first to the last, or a batch runs that makes some."""
    b, s = t.bucket_files.c, t.streams.c
    made = select(b.path).where(b.stream == stream, b.batch.between(first, last)).exists()
    return or_(made, select(s.name).where(s.name == stream, s.committed < last).exists())


def _oldest_answers(tx: Transaction) -> dict[str, int]:
    """When the oldest answer of each stream was committed. One whose time has not come yet, since the clock was set
    back, may be of any time."""
    a = t.answers.c
    times = select(a.stream, func.min(a.committed_at), func.max(a.committed_at)).group_by(a.stream)
    found = tx.connection.execute(times)
    return {stream: START_OF_TIME if newest > tx.now else oldest for stream, oldest, newest in found}


def expire_history(tx: Transaction, before: int) -> list[str]:
    """Forget queries that were gone, and epochs that were sealed, before a time; gives the ids forgotten.

    Buckets and answers know queries by their ids alone, so an id is not free for another query as long as there may be
    some of this one. Epochs of queries that are kept stay, so that every query's epoch can be looked up, and those of
    group versions: who was in a version follows from when it was sealed.
    """
    leg_seen = select(_l.query).where(_l.query == _q.id, _seen(_l.stream, _l.first_batch, _l.last_batch)).exists()
    old = (_q.state == DELETED, _q.ended_at < before)
    unseen = (~_seen(_q.stream, _q.first_batch, _q.last_batch), ~leg_seen)
    rows = tx.connection.execute(select(_q.id, _q.stream, _q.ended_at).where(*old, *unseen)).all()
    oldest = _oldest_answers(tx)
    ids = [row.id for row in rows if row.stream not in oldest or row.ended_at < oldest[row.stream]]
    for part in chunks(ids):
        tx.connection.execute(delete(t.definitions).where(t.definitions.c.id.in_(part)))
        tx.connection.execute(delete(t.queries).where(_q.id.in_(part)))
    forget_legs(tx, ids)
    e = t.epochs.c
    unnamed = (e.number.not_in(select(_q.epoch)), e.number.not_in(select(t.group_versions.c.epoch)))
    tx.connection.execute(delete(t.epochs).where(e.sealed_at < before, e.number < tx.epoch, *unnamed))
    return ids
