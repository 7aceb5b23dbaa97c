"""Ingest of a batch that a query may make fail: tried again without the queries under suspicion, until it passes.

    run ── fails ──► trial: all, expressions one by one ──► trial: without … ──► … ──► passes ──► commit stops whom
                                                                                               it was tried without

A trial is in the metastore before it runs, with the group versions made for it. Who was left out is stopped by the
transaction that commits the batch, never before.

A query may also end the JVM or this process, and nobody is left to see it. So a batch that is repeated after a restart
is written down before it runs; what has no outcome when an engine starts that follows no orderly stop, has ended the
one before. Batches in which several have ended are tried alone, while no other batch and no fire runs. Before anybody
is stopped, trials without fewer of them, of which nothing but deaths is known, run once more: whoever kills engines
from outside may have gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from millstream.catalog.metastore import Metastore, QueryRecord, Trial
from millstream.engine.isolation import gate
from millstream.engine.mending import Ingest
from millstream.engine.registry import Registry
from millstream.engine.suspects import MOST_TRIALS, Queries, Verdict, next_trial
from millstream.model.plan import BatchResult, IngestPlan
from millstream.runtime.faults import may_be_a_query, reason_of
from millstream.runtime.home import Home
from millstream.runtime.worker import IngestTask

# The outcome of a run or trial that an engine did not survive.
DIED = "the death of the engine"
# Engines that die in a batch before trials of it begin: machines fail, processes are killed, and each stream has a
# batch under way when that happens.
MOST_DEATHS = 3
# Deaths in a trial, which runs alone, that count as its failure: one may have come from outside.
DEATHS_IN_TRIAL = 2
# Runs of a batch after which its trials begin anew: each trial may take two deaths and one more, and some run again.
MOST_RUNS = 4 * MOST_TRIALS


class Quarantine:
    """For one stream. ``run`` is called for every batch, and does nothing but run it as long as batches pass."""

    def __init__(self, metastore: Metastore, registry: Registry, home: Home) -> None:
        self._metastore = metastore
        self._registry = registry
        self._home = home
        # Whether trials of the next batch may have been written down: by an engine before this one, or after a failure.
        self._look = True
        # The batch of each stream that an engine before this one has planned and not committed.
        self._repeated = {s.stream.name: s.planned for s in metastore.streams() if s.planned > s.committed}
        # Whether such a batch runs now, and the row that says so.
        self._repeats = False
        self._row: int | None = None

    def run(self, plan: IngestPlan, task: IngestTask, ingest: Ingest) -> tuple[IngestTask, BatchResult]:
        """Ingest a batch; gives what was run in the end, and its result, which names the queries to be stopped with its
        commit."""
        trials = self._trials(plan) if self._look else []
        self._look = True
        result = self._once(plan, task, ingest) if first_trial(trials) is None else None
        if not isinstance(result, BatchResult):
            trials = trials if result is None else self._metastore.trials(plan.stream, plan.batch)
            task, result = _Trials(self, plan, task, ingest, trials, result).run()
        self._look = self._repeats = False
        self._row = None
        return task, result

    def _once(self, plan: IngestPlan, task: IngestTask, ingest: Ingest) -> BatchResult | Exception:
        """A run beside others; gives the error of one that a query may be to blame for."""
        with gate.shared():
            if self._repeats and self._row is None:
                self._row = self._metastore.begin_trial(plan, (), ())
            try:
                return ingest(task)
            except Exception as error:
                if not may_be_a_query(error):
                    raise
                # The run that failed says that trials have begun, and why.
                row = self._metastore.begin_trial(plan, (), ()) if self._row is None else self._row
                self._metastore.end_trial(plan, row, reason_of(error))
                self._row = None
                return error

    def _trials(self, plan: IngestPlan) -> list[Trial]:
        """What is known of a batch; of one that is repeated after a restart, once, also how the last engine ended."""
        found = self._metastore.trials(plan.stream, plan.batch)
        if self._repeated.pop(plan.stream, None) != plan.batch:
            return found
        self._repeats = True
        if found and found[0].passed is None:
            self._metastore.forget_trials(plan.stream, plan.batch)
            found = []
        if self._metastore.stopped_at() is None:
            if not found:
                self._metastore.end_trial(plan, self._metastore.begin_trial(plan, (), ()), DIED)
            elif found[-1].passed is None:
                self._metastore.end_trial(plan, found[-1].number, DIED)
            found = self._metastore.trials(plan.stream, plan.batch)
        return found


def first_trial(rows: Sequence[Trial]) -> int | None:
    """The place of the first trial among the rows of a batch; before it are runs. None as long as no run has failed or
    ended too many engines.

    >>> died, cut_short = Trial(0, (), False, DIED), Trial(1, (), None, None)
    >>> first_trial([died, cut_short, died]), first_trial([died, cut_short, died, died])
    (None, 4)
    >>> first_trial([Trial(0, (), False, "MemoryError"), Trial(1, ("q",), True, None)])
    1
    """
    deaths = 0
    for place, row in enumerate(rows, 1):
        deaths += row.error == DIED
        if deaths == MOST_DEATHS or row.error not in (None, DIED):
            return place
    return None


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
        first = first_trial(trials) or 0
        self._reason = _reason(trials)
        self._count = len(trials)
        self._history = _outcomes(trials[first:])
        self._doubts = _doubts(trials[first:])
        self._enter = gate.alone if any(trial.error == DIED for trial in trials) else gate.shared
        self._results: dict[Queries, tuple[IngestTask, BatchResult]] = {}

    def run(self) -> tuple[IngestTask, BatchResult]:
        queries, new = self._suspects()
        while True:
            step = next_trial(self._history, queries, new)
            if not isinstance(step, Verdict):
                self._try(step)
            elif step.left_out is None or self._count > MOST_RUNS:
                raise self._failed()
            elif doubts := [doubt for doubt in self._doubts if _in_favour(doubt, step.left_out)]:
                # Deaths may have come from outside, and have ended by now.
                self._try(min(doubts, key=lambda doubt: (len(doubt), sorted(doubt))))
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
        self._count += 1
        task = replace(self._task, versions=versions, apart=True)
        self._doubts.discard(left_out)
        with self._enter():
            number = self._metastore.begin_trial(plan, sorted(left_out), made)
            try:
                result = self._ingest(task)
            except Exception as error:
                if not may_be_a_query(error):
                    raise
                self._error = error
                self._history[left_out] = False
                self._metastore.end_trial(plan, number, reason_of(error))
                self._reason = reason_of(error) if self._reason == DIED else self._reason
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


def _reason(rows: Sequence[Trial]) -> str:
    """Why a batch failed: what was seen says more than that an engine died, which may have come from outside.

    >>> died = Trial(0, (), False, DIED)
    >>> _reason([died, died, died]), _reason([died, Trial(1, (), False, "MemoryError")])
    ('the death of the engine', 'MemoryError')
    """
    seen = (row.error for row in rows if row.error and row.error != DIED)
    return next(seen, DIED)


def _outcomes(trials: Sequence[Trial]) -> dict[Queries, bool]:
    """Whether the batch passed without some queries, as far as that is known. Two engines have to die in a trial that
    has not passed since."""
    found: dict[Queries, bool] = {}
    deaths = Counter[Queries]()
    for one in trials:
        left_out = frozenset(one.left_out)
        if one.error == DIED:
            deaths[left_out] += 1
            if deaths[left_out] >= DEATHS_IN_TRIAL:
                found[left_out] = False
        elif one.passed is not None:
            found[left_out] = one.passed
            deaths[left_out] = 0
    return found


def _doubts(trials: Sequence[Trial]) -> set[Queries]:
    """Trials that have failed by so many deaths as count for a failure, and were not seen to fail. One that runs once
    more does so after others have passed.

    >>> died, passed = Trial(0, (), False, DIED), Trial(1, ("q",), True, None)
    >>> _doubts([died, died, passed]), _doubts([died, died, passed, died])
    ({frozenset()}, set())
    """
    deaths = Counter[Queries]()
    seen: set[Queries] = set()
    for one in trials:
        left_out = frozenset(one.left_out)
        if one.error == DIED:
            deaths[left_out] += 1
        elif one.passed:
            deaths[left_out] = 0
        elif one.passed is not None:
            seen.add(left_out)
    return {left_out for left_out, times in deaths.items() if 0 < times <= DEATHS_IN_TRIAL} - seen


def _in_favour(doubt: Queries, left_out: Queries) -> bool:
    """Whether the batch, if it passes without ``doubt``, acquits somebody who would be stopped. Who is alone could only
    be acquitted by the batch with everybody.

    >>> a, ad, cd = frozenset("a"), frozenset("ad"), frozenset("cd")
    >>> _in_favour(frozenset(), a), _in_favour(cd, a), _in_favour(cd, ad), _in_favour(ad | cd, ad)
    (True, False, True, False)
    """
    return doubt < left_out if len(left_out) == 1 else bool(left_out - doubt)


def _first_batch(record: QueryRecord, stream: str) -> int:
    """The first batch of the stream that the query sees."""
    return min((leg.first_batch for leg in record.legs if leg.stream == stream), default=record.first_batch)
