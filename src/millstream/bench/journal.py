"""When the engine's transactions happened: plans, commits and fires, noted around the metastore's own methods.

The engine needs no hook for this, and polling would compete with it for the two cores it is measured on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from millstream.bench.measure import Commit
from millstream.catalog.metastore import Fire, Metastore
from millstream.model.plan import BatchResult, IngestPlan, Recipe


@dataclass(frozen=True, slots=True)
class Planned:
    at: float
    stream: str
    batch: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Fired:
    """``answer_rows`` rows of answers were published by one transaction."""

    at: float
    answer_rows: int


class Journal:
    """Notes of one engine's run, on the monotonic clock; made before the stream starts.

    ``on_fire`` and ``on_commit`` are told each fire, and each batch with the watermark it brought, after its
    transaction.
    """

    def __init__(
        self,
        metastore: Metastore,
        on_fire: Callable[[Fire], None] = lambda fire: None,
        on_commit: Callable[[IngestPlan, BatchResult, int | None], None] = lambda plan, result, watermark: None,
    ) -> None:
        self._told_fire, self._told_commit = on_fire, on_commit
        self.plans: list[Planned] = []
        self.commits: list[Commit] = []
        self.fires: list[Fired] = []
        self.rows = 0
        self._changed = threading.Condition()
        self._plan_batch = metastore.plan_batch
        self._commit_batch = metastore.commit_batch
        self._commit_fire = metastore.commit_fire
        metastore.plan_batch = self._on_plan  # type: ignore[method-assign]
        metastore.commit_batch = self._on_commit  # type: ignore[method-assign]
        metastore.commit_fire = self._on_fire  # type: ignore[method-assign]

    def _on_plan(self, stream: str, batch: int, offsets: str, clock: int) -> tuple[IngestPlan, bool]:
        plan, committed = self._plan_batch(stream, batch, offsets, clock)
        with self._changed:
            self.plans.append(Planned(time.monotonic(), stream, plan.batch, plan.epoch))
            self._changed.notify_all()
        return plan, committed

    def _on_commit(self, plan: IngestPlan, result: BatchResult, recipe: Recipe | None = None) -> int | None:
        watermark = self._commit_batch(plan, result, recipe)
        with self._changed:
            self.commits.append(Commit(time.monotonic(), result.rows))
            self.rows += result.rows
            self._changed.notify_all()
        self._told_commit(plan, result, watermark)
        return watermark

    def _on_fire(self, fire: Fire) -> None:
        self._commit_fire(fire)
        with self._changed:
            self.fires.append(Fired(time.monotonic(), sum(fire.result.rows_by_query.values())))
            self._changed.notify_all()
        self._told_fire(fire)

    def await_rows(self, rows: int, seconds: float) -> bool:
        """Wait until so many rows are committed, at most so long; tells whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: self.rows >= rows, seconds)

    def await_plan(self, epoch: int, seconds: float) -> float | None:
        """When the first micro-batch with this epoch was planned; None if none is within so long."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self.plans) and self.plans[-1].epoch >= epoch, seconds)
            return next((plan.at for plan in self.plans if plan.epoch >= epoch), None)
