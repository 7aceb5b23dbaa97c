"""Trials of a batch that fails, and fires that may end the engine: each is written down before it runs, so that a
process that dies in between goes on where it was, and none is held against a query that nobody saw fail."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import delete, func, insert, select, update

from millstream.catalog import tables as t
from millstream.catalog.database import Transaction
from millstream.catalog.records import FireTrial, GroupVersionRef, Trial
from millstream.model.plan import IngestPlan

PASSED = "passed"
FAILED = "failed"

_c = t.trials.c
_f = t.fire_trials.c


def of_batch(tx: Transaction, stream: str, batch: int) -> list[Trial]:
    rows = tx.connection.execute(
        select(t.trials).where(_c.stream == stream, _c.batch == batch).order_by(_c.number)
    ).all()
    return [
        Trial(
            row.number,
            tuple(json.loads(row.left_out)),
            None if row.outcome is None else row.outcome == PASSED,
            row.error,
        )
        for row in rows
    ]


def begin(tx: Transaction, plan: IngestPlan, left_out: Sequence[str], versions: Sequence[GroupVersionRef]) -> int:
    mine = (_c.stream == plan.stream, _c.batch == plan.batch)
    number = tx.connection.execute(select(func.count()).select_from(t.trials).where(*mine)).scalar_one()
    row = {"stream": plan.stream, "batch": plan.batch, "number": number, "left_out": json.dumps(list(left_out))}
    tx.connection.execute(insert(t.trials).values(**row))
    _add_versions(tx, plan, versions)
    return int(number)


def _add_versions(tx: Transaction, plan: IngestPlan, versions: Sequence[GroupVersionRef]) -> None:
    """Their range of epochs is empty, so no other batch runs with them. It lies above the epoch of this batch, so they
    are not taken for old ones while it runs; then they stay as long as its buckets do."""
    rows = [
        {
            "stream": version.stream,
            "group_name": version.group,
            "version": version.version,
            "epoch": plan.epoch + 1,
            "until": plan.epoch + 1,
            "path": version.path,
            "queries": version.queries,
            "classes": version.classes,
            "retired": False,
        }
        for version in versions
    ]
    if rows:
        tx.connection.execute(insert(t.group_versions), rows)


def end(tx: Transaction, plan: IngestPlan, number: int, error: str | None) -> None:
    mine = (_c.stream == plan.stream, _c.batch == plan.batch, _c.number == number)
    outcome = PASSED if error is None else FAILED
    tx.connection.execute(update(t.trials).where(*mine).values(outcome=outcome, error=error))


def forget(tx: Transaction, stream: str, batch: int) -> None:
    tx.connection.execute(delete(t.trials).where(_c.stream == stream, _c.batch == batch))


def prune_trials(tx: Transaction, stream: str, batch: int) -> None:
    """Forget the trials of old batches."""
    tx.connection.execute(delete(t.trials).where(_c.stream == stream, _c.batch <= batch))


def of_fires(tx: Transaction) -> list[FireTrial]:
    rows = tx.connection.execute(select(t.fire_trials).order_by(_f.number)).all()
    return [FireTrial(r.number, r.name, tuple(json.loads(r.queries)), bool(r.alone), bool(r.died)) for r in rows]


def begin_fire(tx: Transaction, name: str, queries: Sequence[str], alone: bool) -> int:
    tx.connection.execute(delete(t.fire_trials).where(_f.name == name, _f.died == 0))
    last = tx.connection.execute(select(func.max(_f.number))).scalar()
    number = 0 if last is None else int(last) + 1
    row = {"number": number, "name": name, "queries": json.dumps(list(queries)), "alone": int(alone), "died": 0}
    tx.connection.execute(insert(t.fire_trials).values(**row))
    return number


def end_fires(tx: Transaction, numbers: Sequence[int]) -> None:
    tx.connection.execute(delete(t.fire_trials).where(_f.number.in_(numbers)))


def settle_fires(tx: Transaction, died: bool) -> None:
    """What the engine before has begun and not ended was its death, or was cut short by its stop."""
    open_ones = _f.died == 0
    if died:
        tx.connection.execute(update(t.fire_trials).where(open_ones).values(died=1))
    else:
        tx.connection.execute(delete(t.fire_trials).where(open_ones))
