"""Fires: moving frontiers by compare-and-set, together with the answers and the compaction that go with them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from sqlalchemy import bindparam, case, or_, select, update

from millstream.catalog import tables as t
from millstream.catalog.database import Transaction
from millstream.catalog.files import add_answers, add_buckets, remove_buckets
from millstream.catalog.legs import leg_frontiers
from millstream.catalog.records import DELETED, DELETING, FAILED, LIVE, Fire, Frontier, is_joined, streams_of
from millstream.catalog.repairs import add_incomplete, keep_origins
from millstream.catalog.statements import add_counters, chunks
from millstream.errors import EngineError
from millstream.model.legs import query_of_member

_q = t.queries.c

_MOVE = (
    update(t.queries)
    # The stream is not looked up: its index has all queries that ever were on it, and SQLite would go through them.
    .where(_q.id.in_(bindparam("ids", expanding=True)), _q.stream.concat("") == bindparam("at_stream"))
    .where(_q.fired_to == bindparam("source"))
    # A deleted query answers no window that its own batches did not close.
    .where(or_(_q.closes_at.is_(None), _q.closes_at >= bindparam("target")))
    .values(fired_to=bindparam("target"))
)
_END_DELETING = (
    update(t.queries)
    .where(_q.stream == bindparam("at_stream"), _q.state == DELETING, _q.closes_at.is_not(None))
    .where(or_(_q.windowed.is_(False), _q.fired_to >= _q.closes_at))
    .values(state=DELETED, ended_at=bindparam("now"))
)
# Whoever deleted a query was told so: it does not come back as failed.
_STOP = (
    update(t.queries)
    .where(_q.id == bindparam("at_id"), _q.state.in_(LIVE))
    .values(
        state=case((_q.state == DELETING, DELETED), else_=FAILED),
        reason=bindparam("why"),
        ended_at=bindparam("now"),
    )
)
_WATERMARKS = select(t.streams.c.watermark).where(t.streams.c.name.in_(bindparam("names", expanding=True)))
_FRONTIERS = select(_q.id, _q.group_name, _q.fired_to, _q.partial_until, _q.closes_at).where(
    _q.stream == bindparam("at_stream"), _q.state.in_(LIVE), _q.windowed.is_(True)
)


def frontiers(tx: Transaction, stream: str) -> list[Frontier]:
    """Of a stream: its windowed queries and the legs of joins on it. Of a joined name: the joins themselves."""
    own = [Frontier(*row) for row in tx.connection.execute(_FRONTIERS, {"at_stream": stream})]
    return own if is_joined(stream) else own + leg_frontiers(tx, stream)


def commit_fire(tx: Transaction, fire: Fire) -> None:
    """Publish a fire's answers and move its queries' frontiers; refused as a whole if one of them is elsewhere."""
    _check_closed(tx, fire)
    _move(tx, fire.stream, fire.moves)
    result = fire.result
    add_answers(tx, fire.stream, result.answers)
    add_counters(tx, windows=result.windows_by_query, rows=result.rows_by_query, failures=result.failures_by_query)
    stop_broken(tx, result.broken)
    remove_buckets(tx, result.replaced)
    add_buckets(tx, result.compacted)
    keep_origins(tx, result.origins)
    add_incomplete(tx, result.incomplete_by_query)
    end_deleting(tx, fire.stream)


def stop_broken(tx: Transaction, broken: Mapping[str, str]) -> None:
    """Stop queries that cannot be evaluated; each keeps its first reason, and its answers so far. A leg that cannot
    stops its join."""
    for member, reason in broken.items():
        stop(tx, query_of_member(member), reason)


def stop(tx: Transaction, query: str, reason: str) -> bool:
    """Stop a query for good; False if it is gone, or was stopped before."""
    found = tx.connection.execute(_STOP, {"at_id": query, "why": reason, "now": tx.now})
    return found.rowcount > 0


def end_deleting(tx: Transaction, stream: str) -> None:
    """Queries that were deleted and have fired all that the batches of their cut closed are gone."""
    tx.connection.execute(_END_DELETING, {"at_stream": stream, "now": tx.now})


def _check_closed(tx: Transaction, fire: Fire) -> None:
    watermark = _closed_by_all(tx, streams_of(fire.stream))
    for id, (source, target) in fire.moves.items():
        if target < source:
            raise EngineError("INTERNAL", f"a fire moves the query {id!r} back, from {source} to {target}")
        if watermark is None or target > watermark:
            raise EngineError(
                "INTERNAL",
                f"a fire moves the query {id!r} to {target}, which {fire.stream!r} has not closed",
                detail=f"the watermark is {watermark}",
            )


def _closed_by_all(tx: Transaction, streams: tuple[str, ...]) -> int | None:
    """The lowest watermark; None if one of the streams has none."""
    marks = list(tx.connection.execute(_WATERMARKS, {"names": streams}).scalars())
    return None if None in marks or len(marks) < len(streams) else min(marks)


def _move(tx: Transaction, stream: str, moves: Mapping[str, tuple[int, int]]) -> None:
    # Most queries of a fire share their move, so this is one statement for a thousand of them.
    together: dict[tuple[int, int], list[str]] = defaultdict(list)
    for id, move in moves.items():
        together[move].append(id)
    for (source, target), ids in together.items():
        for part in chunks(ids):
            values = {"ids": part, "at_stream": stream, "source": source, "target": target}
            if tx.connection.execute(_MOVE, values).rowcount != len(part):
                raise _stale(tx, part, source, target)


def _stale(tx: Transaction, ids: object, source: int, target: int) -> EngineError:
    return EngineError(
        "INTERNAL",
        f"a fire from {source} to {target} finds the frontier of a query elsewhere",
        detail=f"one of {ids}; the fire has no effect",
    )
