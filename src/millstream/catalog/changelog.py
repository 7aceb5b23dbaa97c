"""Sealing a change: creates, deletes and new group versions become the next epoch, and their cut is fixed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, insert, select, update

from millstream.catalog import tables as t
from millstream.catalog.database import Transaction
from millstream.catalog.frontier import end_deleting
from millstream.catalog.legs import add_legs, delete_joins, join_cut, known
from millstream.catalog.records import (
    DELETED,
    DELETING,
    FAILED,
    RUNNING,
    Change,
    Cut,
    Epoch,
    GroupVersionRef,
    NewQuery,
    Placement,
    is_joined,
    streams_of,
)
from millstream.catalog.statements import chunks
from millstream.errors import CatalogError, EngineError
from millstream.model.legs import query_of_member

_COUNTERS = {"windows": 0, "answer_rows": 0, "late_rows": 0, "failures": 0}

_POSITIONS = select(
    t.streams.c.name, t.streams.c.planned, t.streams.c.committed, t.streams.c.watermark, t.streams.c.max_time
)
_SUPERSEDE = (
    update(t.group_versions)
    .where(t.group_versions.c.stream == bindparam("at_stream"), t.group_versions.c.until == t.NEVER)
    .where(t.group_versions.c.group_name == bindparam("at_group"))
    .values(until=bindparam("at_epoch"))
)
_PLACE = (
    update(t.queries)
    .where(t.queries.c.id == bindparam("at_id"))
    .values(group_name=bindparam("at_group"), slot=bindparam("at_slot"))
)
_PLACE_LEG = (
    update(t.legs)
    .where(t.legs.c.query == bindparam("at_id"), t.legs.c.leg == bindparam("at_leg"))
    .values(group_name=bindparam("at_group"), slot=bindparam("at_slot"))
)


def seal(tx: Transaction, change: Change, definitions: Mapping[str, str]) -> Epoch:
    """Check and record the change. ``definitions``: the new queries' texts by id, made before the lock."""
    streams = {row.name: row for row in tx.connection.execute(_POSITIONS)}
    creates, existing, same_as = _known_keys(tx, change.creates)
    _refuse_unknown_streams(_named(creates, change.versions), streams)
    _refuse_duplicates(tx, creates)
    doomed = _deletable(tx, change.deletes)
    cuts = {name: Cut(row.planned + 1, row.watermark, row.max_time) for name, row in streams.items()}
    if not (creates or doomed or change.versions or change.placements):
        return Epoch(tx.epoch, tx.now, cuts, existing, same_as)
    tx.epoch += 1
    tx.connection.execute(update(t.engine).values(epoch=tx.epoch))
    _write_epoch(tx, cuts)
    _create(tx, creates, streams, definitions)
    _delete(tx, doomed, streams)
    _add_versions(tx, change.versions)
    _place(tx, change.placements)
    return Epoch(tx.epoch, tx.now, cuts, existing, same_as)


def read_cuts(text: str) -> dict[str, Cut]:
    return {name: Cut(*parts) for name, parts in json.loads(text).items()}


def _write_epoch(tx: Transaction, cuts: Mapping[str, Cut]) -> None:
    text = json.dumps({name: [c.first_batch, c.watermark, c.max_time] for name, c in sorted(cuts.items())})
    tx.connection.execute(insert(t.epochs).values(number=tx.epoch, sealed_at=tx.now, cuts=text))


def _known_keys(tx: Transaction, creates: Sequence[NewQuery]) -> tuple[list[NewQuery], dict[str, str], dict[str, str]]:
    """The creates that are really new, and those that are not: query by client key, query by the id asked for."""
    keys = sorted({create.client_key for create in creates if create.client_key is not None})
    columns = (t.queries.c.owner, t.queries.c.client_key, t.queries.c.id)
    known = {
        (row.owner, row.client_key): row.id
        for part in chunks(keys)
        for row in tx.connection.execute(select(*columns).where(t.queries.c.client_key.in_(part)))
    }
    new: list[NewQuery] = []
    existing: dict[str, str] = {}
    same_as: dict[str, str] = {}
    for create in creates:
        if create.client_key is not None and (create.owner, create.client_key) in known:
            same_as[create.id] = existing[create.client_key] = known[create.owner, create.client_key]
            continue
        if create.client_key is not None:
            known[create.owner, create.client_key] = create.id
        new.append(create)
    return new, existing, same_as


def _named(creates: Iterable[NewQuery], versions: Iterable[GroupVersionRef]) -> list[str]:
    return [name for c in creates for name in streams_of(c.stream)] + [v.stream for v in versions]


def _refuse_unknown_streams(names: Iterable[str], streams: Mapping[str, Any]) -> None:
    for name in names:
        if name not in streams:
            existing = ", ".join(sorted(streams)) or "none"
            raise CatalogError("UNKNOWN_STREAM", f"no stream {name!r}", hint=f"existing streams: {existing}")


def _refuse_duplicates(tx: Transaction, creates: Sequence[NewQuery]) -> None:
    ids = [create.id for create in creates]
    taken = [
        row.id
        for part in chunks(ids)
        for row in tx.connection.execute(select(t.queries.c.id).where(t.queries.c.id.in_(part)))
    ]
    taken += [id for position, id in enumerate(ids) if id in ids[:position]] if len(set(ids)) < len(ids) else []
    if taken:
        raise CatalogError(
            "DUPLICATE_QUERY",
            f"a query {taken[0]!r} exists already",
            hint="choose another id, or leave it out to be given one",
        )


def _deletable(tx: Transaction, deletes: Sequence[str]) -> list[Any]:
    columns = (t.queries.c.id, t.queries.c.stream, t.queries.c.state, t.queries.c.first_batch)
    found = {
        row.id: row
        for part in chunks(deletes)
        for row in tx.connection.execute(select(*columns).where(t.queries.c.id.in_(part)))
    }
    seen: set[str] = set()
    for id in deletes:
        if id not in found:
            raise CatalogError("UNKNOWN_QUERY", f"no query {id!r}", hint="`millstream query list` shows the queries")
        if found[id].state in (DELETING, DELETED) or id in seen:
            raise CatalogError("QUERY_DELETED", f"the query {id!r} was deleted before")
        seen.add(id)
    return list(found.values())


def _create(
    tx: Transaction, creates: Sequence[NewQuery], streams: Mapping[str, Any], definitions: Mapping[str, str]
) -> None:
    if creates:
        texts = [{"id": create.id, "definition": definitions[create.id]} for create in creates]
        tx.connection.execute(insert(t.definitions), texts)
        tx.connection.execute(insert(t.queries), [_row(tx, c, streams) for c in creates])
        add_legs(tx, creates, streams)


def _row(tx: Transaction, create: NewQuery, streams: Mapping[str, Any]) -> dict[str, Any]:
    # The batch before the cut may still run; then its commit tells what it brought.
    if create.legs:
        stream = streams[create.legs[0].stream]
        fired_to, partial_until = join_cut(create, streams)
    else:
        stream = streams[create.stream]
        fired_to, partial_until = known(stream, stream.watermark), known(stream, stream.max_time)
    return {
        "id": create.id,
        "owner": create.owner,
        "client_key": create.client_key,
        "stream": create.stream,
        "windowed": create.query.window is not None,
        "group_name": create.group,
        "slot": create.slot,
        "epoch": tx.epoch,
        "created_at": tx.now,
        "first_batch": stream.planned + 1,
        "state": RUNNING,
        "fired_to": fired_to,
        "partial_until": partial_until,
        **_COUNTERS,
    }


def _delete(tx: Transaction, doomed: Sequence[Any], streams: Mapping[str, Any]) -> None:
    delete_joins(tx, [row for row in doomed if is_joined(row.stream)], streams)
    for name in sorted({row.stream for row in doomed if not is_joined(row.stream)}):
        stream = streams[name]
        # A failed query fires no more, and one whose cut is empty has nothing to fire.
        gone = [r.id for r in doomed if r.stream == name and (r.state == FAILED or stream.planned < r.first_batch)]
        kept = [r.id for r in doomed if r.stream == name and r.id not in set(gone)]
        values = {
            "last_batch": stream.planned,
            "deleted_epoch": tx.epoch,
            "closes_at": known(stream, stream.watermark),
        }
        for part in chunks(gone):
            gone_values = {**values, "state": DELETED, "ended_at": tx.now}
            tx.connection.execute(update(t.queries).where(t.queries.c.id.in_(part)).values(**gone_values))
        for part in chunks(kept):
            tx.connection.execute(update(t.queries).where(t.queries.c.id.in_(part)).values(state=DELETING, **values))
        end_deleting(tx, name)


def _add_versions(tx: Transaction, versions: Sequence[GroupVersionRef]) -> None:
    if not versions:
        return
    columns = {"epoch": tx.epoch, "until": t.NEVER}
    tx.connection.execute(
        _SUPERSEDE, [{"at_stream": v.stream, "at_group": v.group, "at_epoch": tx.epoch} for v in versions]
    )
    tx.connection.execute(
        insert(t.group_versions),
        [
            {
                "stream": v.stream,
                "group_name": v.group,
                "version": v.version,
                "path": v.path,
                "queries": v.queries,
                "classes": v.classes,
                "retired": v.retired,
                **columns,
            }
            for v in versions
        ],
    )


def _place(tx: Transaction, placements: Sequence[Placement]) -> None:
    if not placements:
        return
    queries: list[dict[str, Any]] = []
    legs: list[dict[str, Any]] = []
    for p in placements:
        query = query_of_member(p.query)
        row = {"at_id": query, "at_group": p.group, "at_slot": p.slot}
        if query == p.query:
            queries.append(row)
        else:
            legs.append(row | {"at_leg": int(p.query[len(query) + 1 :])})
    for statement, rows in ((_PLACE, queries), (_PLACE_LEG, legs)):
        if rows and tx.connection.execute(statement, rows).rowcount != len(rows):
            raise EngineError("INTERNAL", "a change places a query that does not exist")
