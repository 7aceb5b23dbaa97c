"""The legs of joins: each stream's own cut, and what the query learns from all of them together.

A window of a join is closed when every stream has closed it. So a join's frontier begins at the lowest of its legs, a
window is partial if it is so for one of them, and a deleted join fires up to the lowest.

A leg does not know where its cut begins while the batch before it runs, and the join does not until all its legs do.
Where the cut ends is different: the legs that know bound the join at once, else it would fire, while another leg's last
batch runs, windows that their streams close after the cut. That leg's stream itself is not closed any further before
its batch is committed, so the bound only falls to what has not been fired.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, case, delete, func, insert, select, union, update

from millstream.catalog import tables as t
from millstream.catalog.database import Transaction
from millstream.catalog.records import (
    DELETED,
    DELETING,
    FAILED,
    LIVE,
    START_OF_TIME,
    Frontier,
    LegRecord,
    NewQuery,
    streams_of,
)
from millstream.catalog.statements import chunks
from millstream.model.legs import leg_member

_q = t.queries.c
_l = t.legs.c
_j = t.joins.c


def _once_all_know(column: ColumnElement[Any], extreme: Any) -> ColumnElement[Any]:
    """Over the legs of the query that is updated; NULL while one of them does not know."""
    all_know = func.count() == func.count(column)
    return select(case((all_know, extreme(column)))).where(_l.query == _q.id).scalar_subquery()


_BEGINS = and_(_l.stream == bindparam("at_stream"), _l.first_batch == bindparam("first"), _l.fired_to.is_(None))
_ENDS = and_(_l.stream == bindparam("at_stream"), _l.last_batch == bindparam("last"), _l.closes_at.is_(None))
# Every commit asks this. A union, since SQLite would look for an OR among all legs of the stream.
_WAITING = union(select(_l.query).where(_BEGINS), select(_l.query).where(_ENDS))
_SET_LEG_CUT = (
    update(t.legs)
    .where(_BEGINS)
    .values(fired_to=bindparam("new_fired_to"), partial_until=bindparam("new_partial_until"))
)
_SET_LEG_CLOSES = update(t.legs).where(_ENDS).values(closes_at=bindparam("new_closes_at"))
_END_LEG = (
    update(t.legs)
    .where(_l.query == bindparam("at_query"), _l.leg == bindparam("at_leg"))
    .values(last_batch=bindparam("last"), closes_at=bindparam("new_closes_at"))
)
_CLOSES_AT = select(func.min(_l.closes_at)).where(_l.query == _q.id).scalar_subquery()
_SET_CUT = (
    update(t.queries)
    .where(_q.id.in_(bindparam("ids", expanding=True)), _q.fired_to.is_(None))
    .values(fired_to=_once_all_know(_l.fired_to, func.min), partial_until=_once_all_know(_l.partial_until, func.max))
)
_SET_CLOSES = (
    update(t.queries)
    .where(_q.id.in_(bindparam("ids", expanding=True)), _q.state == DELETING)
    .values(closes_at=_CLOSES_AT)
)
_END_DELETING = (
    update(t.queries)
    .where(_q.id.in_(bindparam("ids", expanding=True)), _q.state == DELETING, _q.fired_to >= _q.closes_at)
    .values(state=DELETED, ended_at=bindparam("now"))
)
_DELETE = (
    update(t.queries)
    .where(_q.id.in_(bindparam("ids", expanding=True)))
    .values(
        state=bindparam("new_state"),
        ended_at=bindparam("ended"),
        deleted_epoch=bindparam("at_epoch"),
        last_batch=select(_l.last_batch).where(_l.query == _q.id, _l.leg == 0).scalar_subquery(),
        closes_at=_CLOSES_AT,
    )
)
# From the stream to its joined names, to the live queries of those, to all their legs: history is never looked at, as
# it would be by way of the legs of the stream.
_LIVE_JOINS = and_(_j.stream == bindparam("at_stream"), _q.stream == _j.name, _q.state.in_(LIVE))
_FRONTIERS = select(_q.id, _l.leg, _l.stream, _l.group_name, _q.fired_to, _q.partial_until, _q.closes_at).where(
    _LIVE_JOINS, _l.query == _q.id
)
_LOWEST = select(func.min(func.coalesce(_q.fired_to, START_OF_TIME))).where(_LIVE_JOINS)
_JOINS = (
    select(_j.name)
    .distinct()
    .where(select(_q.id).where(_q.stream == _j.name, _q.state.in_(LIVE)).exists())
    .order_by(_j.name)
)


def known(stream: Any, time: int | None) -> int | None:
    """A time over all planned batches: None as long as one of them runs, and the start of time before the first row."""
    if stream.committed < stream.planned:
        return None
    return START_OF_TIME if time is None else time


def join_cut(create: NewQuery, streams: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """The frontier of a new join and the largest event time before its cut, as far as its streams know."""
    mine = [streams[leg.stream] for leg in create.legs]
    fired = [known(stream, stream.watermark) for stream in mine]
    partial = [known(stream, stream.max_time) for stream in mine]
    return (
        None if None in fired else min(time for time in fired if time is not None),
        None if None in partial else max(time for time in partial if time is not None),
    )


def add_legs(tx: Transaction, creates: Sequence[NewQuery], streams: Mapping[str, Any]) -> None:
    """Write the cut of every leg of the joins among the creates."""
    rows = [
        {
            "query": create.id,
            "leg": place.leg,
            "stream": place.stream,
            "group_name": place.group,
            "slot": place.slot,
            "first_batch": streams[place.stream].planned + 1,
            "fired_to": known(streams[place.stream], streams[place.stream].watermark),
            "partial_until": known(streams[place.stream], streams[place.stream].max_time),
        }
        for create in creates
        for place in create.legs
    ]
    if rows:
        tx.connection.execute(insert(t.legs), rows)
        _add_names(tx, {create.stream for create in creates if create.legs})


def _add_names(tx: Transaction, names: set[str]) -> None:
    new = names - set(tx.connection.execute(select(_j.name).distinct()).scalars())
    rows = [{"name": name, "stream": stream} for name in sorted(new) for stream in streams_of(name)]
    if rows:
        tx.connection.execute(insert(t.joins), rows)


def delete_joins(tx: Transaction, doomed: Sequence[Any], streams: Mapping[str, Any]) -> None:
    """End the cut of every leg. A join that failed, or of which no leg has seen a batch, is gone at once."""
    if not doomed:
        return
    seen = _end_legs(tx, [row.id for row in doomed], streams)
    gone = [row.id for row in doomed if row.state == FAILED or row.id not in seen]
    kept = [row.id for row in doomed if row.state != FAILED and row.id in seen]
    for ids, state, ended in ((gone, DELETED, tx.now), (kept, DELETING, None)):
        for part in chunks(ids):
            values = {"new_state": state, "ended": ended, "at_epoch": tx.epoch}
            tx.connection.execute(_DELETE, {"ids": part, **values})
    _end_deleting(tx, kept)


def _end_legs(tx: Transaction, ids: Sequence[str], streams: Mapping[str, Any]) -> set[str]:
    """Write where each leg's cut ends; gives the joins of which some leg has seen a batch."""
    rows: list[dict[str, Any]] = []
    seen: set[str] = set()
    for query, legs in legs_of_queries(tx, ids).items():
        for leg in legs:
            stream = streams[leg.stream]
            # Of a leg without batches this is its frontier, unless its stream has ended, or followed others, since:
            # then windows are closed that may have been fired, or not, and deleting must not depend on which.
            closes_at = known(stream, stream.watermark)
            rows.append({"at_query": query, "at_leg": leg.leg, "last": stream.planned, "new_closes_at": closes_at})
            if stream.planned >= leg.first_batch:
                seen.add(query)
    tx.connection.execute(_END_LEG, rows)
    return seen


def brought(tx: Transaction, stream: str, batch: int, fired_to: int, partial_until: int) -> None:
    """A batch is committed: legs that begin after it, or end with it, learn their times, and joins from their legs."""
    at = {"at_stream": stream, "first": batch + 1, "last": batch}
    waiting = list(tx.connection.execute(_WAITING, at).scalars())
    if not waiting:
        return
    cut = {"first": batch + 1, "new_fired_to": fired_to, "new_partial_until": partial_until}
    tx.connection.execute(_SET_LEG_CUT, {"at_stream": stream, **cut})
    tx.connection.execute(_SET_LEG_CLOSES, {"at_stream": stream, "last": batch, "new_closes_at": fired_to})
    for part in chunks(waiting):
        tx.connection.execute(_SET_CUT, {"ids": part})
        tx.connection.execute(_SET_CLOSES, {"ids": part})
    _end_deleting(tx, waiting)


def _end_deleting(tx: Transaction, ids: Sequence[str]) -> None:
    for part in chunks(ids):
        tx.connection.execute(_END_DELETING, {"ids": part, "now": tx.now})


def leg_frontiers(tx: Transaction, stream: str) -> list[Frontier]:
    """The legs of live joins on a stream."""
    rows = tx.connection.execute(_FRONTIERS, {"at_stream": stream})
    return [
        Frontier(leg_member(id, leg), group, fired_to, partial_until, closes_at, leg)
        for id, leg, on, group, fired_to, partial_until, closes_at in rows
        if on == stream
    ]


def joins(tx: Transaction) -> list[str]:
    return list(tx.connection.execute(_JOINS).scalars())


def lowest_frontier(tx: Transaction, stream: str) -> int | None:
    """The lowest frontier of the live joins on a stream. That of a join which does not know its cut yet can be anywhere
    below what this stream has closed."""
    lowest: int | None = tx.connection.execute(_LOWEST, {"at_stream": stream}).scalar()
    return lowest


def legs_of_queries(tx: Transaction, ids: Sequence[str]) -> dict[str, tuple[LegRecord, ...]]:
    """The legs of these joins, in order."""
    found: dict[str, list[LegRecord]] = defaultdict(list)
    for part in chunks(ids):
        rows = tx.connection.execute(select(t.legs).where(_l.query.in_(part)).order_by(_l.query, _l.leg))
        for query, *values in rows:
            found[query].append(LegRecord(*values))
    return {query: tuple(legs) for query, legs in found.items()}


def forget_legs(tx: Transaction, ids: Iterable[str]) -> None:
    for part in chunks(list(ids)):
        tx.connection.execute(delete(t.legs).where(_l.query.in_(part)))
