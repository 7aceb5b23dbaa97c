"""Micro-batches: a plan before the job, a commit after it, each exactly once; and the watermark that commits bring."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, and_, bindparam, delete, func, insert, or_, select, update

from millstream.catalog import tables as t
from millstream.catalog.database import Transaction
from millstream.catalog.files import add_answers, add_buckets, add_dead_letters
from millstream.catalog.frontier import end_deleting, stop_broken
from millstream.catalog.legs import brought, lowest_frontier
from millstream.catalog.records import DELETING, END_OF_TIME, LIVE, START_OF_TIME
from millstream.catalog.statements import add_counters
from millstream.catalog.trials import prune_trials
from millstream.errors import CatalogError, EngineError
from millstream.model.plan import BatchResult, IngestPlan

# Spark replays its newest batch only; the others are for people who look after an incident.
KEEP_PLANS = 100
# Pruning looks at the frontier of every live query, so it is not for every batch.
PRUNE_EVERY = 16

_q = t.queries.c

_STREAM = select(t.streams).where(t.streams.c.name == bindparam("at_stream"))
_PLAN = select(t.plans).where(t.plans.c.stream == bindparam("at_stream"), t.plans.c.batch == bindparam("at_batch"))
_SET_PLANNED = update(t.streams).where(t.streams.c.name == bindparam("at_stream")).values(planned=bindparam("at_batch"))
_ADVANCE = (
    update(t.streams)
    .where(t.streams.c.name == bindparam("at_stream"))
    .values(
        committed=bindparam("at_batch"),
        watermark=bindparam("new_watermark"),
        max_time=bindparam("new_max_time"),
        rows=t.streams.c.rows + bindparam("more_rows"),
        late_rows=t.streams.c.late_rows + bindparam("more_late"),
        rejected_rows=t.streams.c.rejected_rows + bindparam("more_rejected"),
        bytes=t.streams.c.bytes + bindparam("more_bytes"),
        batches=t.streams.c.batches + 1,
    )
)
_SET_CUT = (
    update(t.queries)
    .where(_q.stream == bindparam("at_stream"), _q.first_batch == bindparam("first"), _q.fired_to.is_(None))
    .values(fired_to=bindparam("new_fired_to"), partial_until=bindparam("new_partial_until"))
)
_SET_CLOSES = (
    update(t.queries)
    .where(_q.stream == bindparam("at_stream"), _q.state == DELETING, _q.last_batch == bindparam("last"))
    .where(_q.closes_at.is_(None))
    .values(closes_at=bindparam("new_closes_at"))
)


def plan_batch(tx: Transaction, stream: str, batch: int, offsets: str, clock: int) -> tuple[IngestPlan, bool]:
    """The plan of a batch and whether it is committed: the stored plan of a replay, a new one otherwise."""
    state = stream_row(tx, stream)
    if batch <= state.planned:
        return _planned_before(tx, stream, batch, offsets), batch <= state.committed
    if batch != state.planned + 1 or state.committed != state.planned:
        raise EngineError(
            "INTERNAL",
            f"batch {batch} of {stream!r} is planned out of turn",
            detail=f"the last batch planned is {state.planned}, the last committed {state.committed}",
            hint="the checkpoint of the stream and the metastore must belong together",
        )
    if state.closed_all:
        raise EngineError("STREAM_STOPPED", f"the stream {stream!r} has ended; batch {batch} would be late as a whole")
    plan = IngestPlan(stream, batch, tx.epoch, state.watermark, clock, offsets)
    row = {"batch": batch, "epoch": plan.epoch, "watermark": plan.watermark, "clock": clock, "offsets": offsets}
    tx.connection.execute(insert(t.plans), {"stream": stream, **row})
    tx.connection.execute(_SET_PLANNED, {"at_stream": stream, "at_batch": batch})
    return plan, False


def _planned_before(tx: Transaction, stream: str, batch: int, offsets: str) -> IngestPlan:
    plan = _stored_plan(tx, stream, batch)
    if plan is None or plan.offsets != offsets:
        raise EngineError(
            "REPLAY_MISMATCH",
            f"Spark plans batch {batch} of {stream!r} again, with other offsets than the first time",
            detail=f"now {offsets}; first {'forgotten, it is too old' if plan is None else plan.offsets}",
            hint="the stream's checkpoint was lost, replaced or damaged; restore it or begin with a new home",
        )
    return plan


def _stored_plan(tx: Transaction, stream: str, batch: int) -> IngestPlan | None:
    row = tx.connection.execute(_PLAN, {"at_stream": stream, "at_batch": batch}).one_or_none()
    if row is None:
        return None
    return IngestPlan(row.stream, row.batch, row.epoch, row.watermark, row.clock, row.offsets)


def commit_batch(tx: Transaction, plan: IngestPlan, result: BatchResult) -> int | None:
    """Record what a batch made, once; gives the stream's watermark after it."""
    state = stream_row(tx, plan.stream)
    if plan.batch <= state.committed:
        return _watermark(state)
    if plan != _stored_plan(tx, plan.stream, plan.batch):
        raise EngineError("INTERNAL", f"batch {plan.batch} of {plan.stream!r} ran with a plan that is not its own")
    max_time = _later(state.max_time, result.max_time)
    watermark = _later(state.watermark, None if result.max_time is None else result.max_time - state.lateness)
    values = {"at_batch": plan.batch, "new_watermark": watermark, "new_max_time": max_time, "more_rows": result.rows}
    values |= {"more_late": result.late_rows, "more_rejected": result.rejected_rows, "more_bytes": result.bytes}
    tx.connection.execute(_ADVANCE, {"at_stream": plan.stream, **values})
    _record(tx, plan, result)
    _brought(tx, plan.stream, plan.batch, watermark, max_time)
    if watermark is not None and watermark != state.watermark:
        _close(tx, plan.stream, plan.batch, 0, watermark)
    if plan.batch % PRUNE_EVERY == 0:
        _prune(tx, plan.stream, plan.batch, 0)
    return watermark


def _record(tx: Transaction, plan: IngestPlan, result: BatchResult) -> None:
    add_buckets(tx, result.files)
    add_answers(tx, plan.stream, result.answers, plan.batch)
    add_dead_letters(tx, plan.stream, plan.batch, result.rejects)
    add_counters(tx, rows=result.rows_by_query, late=result.late_by_query, failures=result.failures_by_query)
    stop_broken(tx, result.broken)


def _brought(tx: Transaction, stream: str, batch: int, watermark: int | None, max_time: int | None) -> None:
    """Queries that begin after this batch learn what lies before their cut; those that end with it, what they fire."""
    fired_to = START_OF_TIME if watermark is None else watermark
    partial_until = START_OF_TIME if max_time is None else max_time
    cut = {"first": batch + 1, "new_fired_to": fired_to, "new_partial_until": partial_until}
    tx.connection.execute(_SET_CUT, {"at_stream": stream, **cut})
    tx.connection.execute(_SET_CLOSES, {"at_stream": stream, "last": batch, "new_closes_at": fired_to})
    end_deleting(tx, stream)
    brought(tx, stream, batch, fired_to, partial_until)


def flush_stream(tx: Transaction, stream: str) -> None:
    """The input has ended: after the last batch, the watermark goes to the end of time."""
    state = stream_row(tx, stream)
    if state.closed_all:
        return
    if state.committed != state.planned:
        raise EngineError("INTERNAL", f"{stream!r} is flushed while batch {state.planned} runs")
    tx.connection.execute(
        update(t.streams).where(t.streams.c.name == stream).values(watermark=END_OF_TIME, closed_all=True)
    )
    _close(tx, stream, state.committed, _next_step(tx, stream, state.committed), END_OF_TIME)


def advance_idle(tx: Transaction, stream: str, watermark: int) -> int | None:
    """An idle stream's watermark follows others, between its batches; gives the watermark after it. Nobody waits for
    this event: all that precedes a cut is known as long as no batch runs."""
    state = stream_row(tx, stream)
    if state.closed_all or state.committed != state.planned or _later(state.watermark, watermark) == state.watermark:
        return _watermark(state)
    tx.connection.execute(update(t.streams).where(t.streams.c.name == stream).values(watermark=watermark))
    step = _next_step(tx, stream, state.committed)
    _close(tx, stream, state.committed, step, watermark)
    if step % PRUNE_EVERY == 0:
        _prune(tx, stream, state.committed, step)
    return watermark


def closing(tx: Transaction, stream: str) -> list[tuple[int, int]]:
    """(batch, watermark) of the events that raised the watermark, in order, as far back as some query may need them."""
    c = t.closings.c
    rows = tx.connection.execute(select(c.batch, c.watermark).where(c.stream == stream).order_by(c.batch, c.step))
    return [(row.batch, row.watermark) for row in rows]


def stream_row(tx: Transaction, stream: str) -> Row[Any]:
    row = tx.connection.execute(_STREAM, {"at_stream": stream}).one_or_none()
    if row is None:
        names = ", ".join(tx.connection.execute(select(t.streams.c.name).order_by(t.streams.c.name)).scalars())
        raise CatalogError("UNKNOWN_STREAM", f"no stream {stream!r}", hint=f"existing streams: {names or 'none'}")
    return row


def _watermark(state: Row[Any]) -> int | None:
    watermark: int | None = state.watermark
    return watermark


def _later(old: int | None, new: int | None) -> int | None:
    return new if old is None else old if new is None else max(old, new)


def _close(tx: Transaction, stream: str, batch: int, step: int, watermark: int) -> None:
    tx.connection.execute(insert(t.closings), {"stream": stream, "batch": batch, "step": step, "watermark": watermark})


def _next_step(tx: Transaction, stream: str, batch: int) -> int:
    """The number of the next event after a batch's commit, which is step 0 even where it raised no watermark."""
    c = t.closings.c
    last = tx.connection.execute(select(func.max(c.step)).where(c.stream == stream, c.batch == batch)).scalar()
    return 1 if last is None else last + 1


def _prune(tx: Transaction, stream: str, batch: int, step: int) -> None:
    """Forget old plans, and closings before this one that lie below the frontier of every query: no window that still
    fires ends there."""
    tx.connection.execute(delete(t.plans).where(t.plans.c.stream == stream, t.plans.c.batch <= batch - KEEP_PLANS))
    prune_trials(tx, stream, batch - KEEP_PLANS)
    live = (_q.stream == stream, _q.state.in_(LIVE), _q.windowed.is_(True))
    lowest = tx.connection.execute(select(func.min(_q.fired_to)).where(*live)).scalar()
    frontiers = [time for time in (lowest, lowest_frontier(tx, stream)) if time is not None]
    c = t.closings.c
    old = [c.stream == stream, or_(c.batch < batch, and_(c.batch == batch, c.step < step))]
    if frontiers:
        old.append(c.watermark <= min(frontiers))
    tx.connection.execute(delete(t.closings).where(*old))
