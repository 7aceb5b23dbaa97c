"""Ingest of a batch that a query may make fail: tried again without the queries under suspicion, until it passes.

    run ── fails ──► trial: all, expressions one by one ──► trial: without … ──► … ──► passes ──► commit stops whom
                                                                                               it was tried without

A trial is in the metastore before it runs, with the group versions made for it. Who was left out is stopped by the
transaction that commits the batch, never before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millstream.catalog.metastore import Metastore, QueryRecord, Trial
from millstream.engine.mending import Ingest
from millstream.engine.registry import Registry
from millstream.engine.suspects import MOST_TRIALS, Queries, Verdict, next_trial
from millstream.model.plan import BatchResult, IngestPlan
from millstream.runtime.faults import may_be_a_query, reason_of
from millstream.runtime.home import Home
from millstream.runtime.worker import IngestTask


class Quarantine:
    """For one stream. ``run`` is called for every batch, and does nothing but run it as long as batches pass."""

    def __init__(self, metastore: Metastore, registry: Registry, home: Home) -> None:
        self._metastore = metastore
        self._registry = registry
        self._home = home
        # Whether trials of the next batch may have been written down: by an engine before this one, or after a failure.
        self._look = True

    def run(self, plan: IngestPlan, task: IngestTask, ingest: Ingest) -> tuple[IngestTask, BatchResult]:
        """Ingest a batch; gives what was run in the end, and its result, which names the queries to be stopped with its
        commit."""
        trials = self._trials(plan) if self._look else []
        self._look = True
        if trials:
            task, result = _Trials(self, plan, task, ingest, trials, None).run()
        else:
            try:
                result = ingest(task)
            except Exception as error:
                if not may_be_a_query(error):
                    raise
                # The run that failed is number 0: it says that trials have begun, and why.
                self._metastore.end_trial(plan, self._metastore.begin_trial(plan, (), ()), reason_of(error))
                task, result = _Trials(self, plan, task, ingest, self._trials(plan), error).run()
        self._look = False
        return task, result

    def _trials(self, plan: IngestPlan) -> list[Trial]:
        found = self._metastore.trials(plan.stream, plan.batch)
        if found and found[0].error is None:
            self._metastore.forget_trials(plan.stream, plan.batch)
            return []
        return found


class _Trials:
    def __init__(
        self,
        quarantine: Quarantine,
        plan: IngestPlan,
        task: IngestTask,
        ingest: Ingest,
        trials: Sequence[Trial],
        error: Exception | None,
    ) -> None:
        self._metastore = quarantine._metastore
        self._registry = quarantine._registry
        self._home = quarantine._home
        self._plan = plan
        self._task = task
        self._ingest = ingest
        self._error = error
        self._reason = trials[0].error or ""
        self._count = len(trials)
        self._history: dict[Queries, bool] = {
            frozenset(trial.left_out): trial.passed for trial in trials[1:] if trial.passed is not None
        }
        self._results: dict[Queries, tuple[IngestTask, BatchResult]] = {}

    def run(self) -> tuple[IngestTask, BatchResult]:
        queries, new = self._suspects()
        while True:
            step = next_trial(self._history, queries, new)
            if not isinstance(step, Verdict):
                self._try(step)
            elif step.left_out is None or self._count > 2 * MOST_TRIALS:
                raise self._failed()
            elif step.left_out in self._results:
                return self._chosen(step.left_out)
            else:
                # It passed before this process began, and what it wrote is gone.
                self._try(step.left_out)

    def _suspects(self) -> tuple[list[str], list[str]]:
        """The batch's queries, newest first, and those of them that no batch of the stream has seen before."""
        plan = self._plan
        members = self._registry.queries_of(plan.epoch, plan.stream)
        records = [record for record in reversed(self._metastore.queries()) if record.id in members]
        new = [record.id for record in records if _first_batch(record, plan.stream) == plan.batch]
        return [record.id for record in records], new

    def _try(self, left_out: Queries) -> None:
        plan = self._plan
        versions, made = self._registry.without(plan.epoch, plan.stream, left_out)
        number = self._metastore.begin_trial(plan, sorted(left_out), made)
        self._count += 1
        task = replace(self._task, versions=versions, apart=True)
        try:
            result = self._ingest(task)
        except Exception as error:
            if not may_be_a_query(error):
                raise
            self._error = error
            self._history[left_out] = False
            self._metastore.end_trial(plan, number, reason_of(error))
        else:
            self._history[left_out] = True
            self._results[left_out] = task, result
            self._metastore.end_trial(plan, number, None)

    def _chosen(self, left_out: Queries) -> tuple[IngestTask, BatchResult]:
        task, chosen = self._results.pop(left_out)
        for _, result in self._results.values():
            self._home.remove([*(f.path for f in result.files), *(a.path for a in result.answers), *result.rejects])
        why = f"left out of batch {self._plan.batch} of {self._plan.stream}, which failed with {self._reason}"
        stopped = dict.fromkeys(sorted(left_out), f"QUARANTINED: {why}")
        return task, replace(chosen, broken={**chosen.broken, **stopped})

    def _failed(self) -> Exception:
        """Nobody is at fault. The next attempt at the batch begins anew."""
        self._metastore.forget_trials(self._plan.stream, self._plan.batch)
        return self._error or RuntimeError(self._reason)


def _first_batch(record: QueryRecord, stream: str) -> int:
    """The first batch of the stream that the query sees."""
    return min((leg.first_batch for leg in record.legs if leg.stream == stream), default=record.first_batch)
