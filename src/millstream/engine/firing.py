"""Deciding what to fire, and doing it: due windows of a stream become Spark jobs, light ones first, each with one
transaction, and heavy ones aside.

A window is due when the stream has closed its end. Its answer depends on the batches up to the closing one, never on
when the fire runs: buckets know the watermark of their batch, and a bucket counts in a window that ends at E iff that
watermark is below E.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from millstream.catalog.metastore import Fire, Metastore
from millstream.catalog.records import Frontier
from millstream.config import Limits
from millstream.crashpoints import crash_point
from millstream.engine.aside import Turns
from millstream.engine.buckets import Stored
from millstream.engine.fire_trials import FireTrials
from millstream.engine.isolation import FireFailed, fire_by_halves
from millstream.engine.leftovers import no_leftovers_of_fire
from millstream.engine.owners import over_in_fire
from millstream.engine.pipeline import Pipeline
from millstream.engine.quarantine import DIED
from millstream.engine.registry import Registry
from millstream.model.plan import Damage, FireResult
from millstream.model.query import WindowSpec
from millstream.model.types import TIMESTAMP
from millstream.runtime.damage import Lost
from millstream.runtime.faults import may_be_a_query, reason_of
from millstream.runtime.fire import BucketRef, DueQuery, FireItem, FireTask, stem_of
from millstream.runtime.home import Home
from millstream.runtime.join_fire import JoinTask

# Bytes of buckets that are not worth a Spark job of their own, which takes a tenth of a second; and how many times all
# lighter groups together a group must weigh to get one.
LIGHT = 4 << 20
HEAVIER = 2
# A group is divided among tasks by its queries when each part still has this many: reading its buckets twice must pay.
LEAST_QUERIES = 32

RunFire = Callable[[Sequence[FireTask | JoinTask]], tuple[list[FireResult], dict[str, float]]]


@dataclass(frozen=True)
class _View:
    """What a fire goes by: the frontiers of a stream at a moment, and what it had closed then. A fire that runs aside
    is of these groups alone."""

    mark: int
    frontiers: Sequence[Frontier]
    watermark: int
    aside: frozenset[str] | None = None


@dataclass(frozen=True)
class DueSet:
    """Queries that move their frontier: those with a due window, and deleted ones that have nothing left to fire."""

    moves: dict[str, tuple[int, int]]
    by_group: dict[str, list[DueQuery]]

    def only(self, queries: Sequence[str]) -> DueSet:
        """Some of the queries."""
        if len(queries) == len(self.moves):
            return self
        wanted = set(queries)
        by_group = {group: [one for one in due if one.query in wanted] for group, due in self.by_group.items()}
        return DueSet(
            {query: self.moves[query] for query in queries}, {group: due for group, due in by_group.items() if due}
        )


def due_queries(frontiers: Iterable[Frontier], watermark: int, window: Callable[[str], WindowSpec | None]) -> DueSet:
    """What can fire now. Pure: frontiers and a watermark in, a decision out."""
    moves: dict[str, tuple[int, int]] = {}
    by_group: dict[str, list[DueQuery]] = defaultdict(list)
    for one in frontiers:
        spec = window(one.query)
        if one.fired_to is None or spec is None:
            continue
        upto = watermark if one.closes_at is None else min(watermark, one.closes_at)
        if upto <= one.fired_to:
            continue
        due = spec.end_after(one.fired_to) <= upto
        if due or one.closes_at is not None:
            moves[one.query] = (one.fired_to, upto)
        if due:
            by_group[one.group].append(DueQuery(one.query, one.fired_to, upto, one.partial_until))
    return DueSet(moves, dict(by_group))


def lowest_needed(
    frontiers: Iterable[Frontier], moves: Mapping[str, tuple[int, int]], window: Callable[[str], WindowSpec | None]
) -> dict[str, int]:
    """For each group the start of the earliest window that is still to fire: below it no slice is needed."""
    lowest: dict[str, int] = {}
    for one in frontiers:
        spec = window(one.query)
        fired_to = moves[one.query][1] if one.query in moves else one.fired_to
        if spec is None or (one.closes_at is not None and fired_to is not None and fired_to >= one.closes_at):
            continue
        start = _NEVER if fired_to is None else spec.end_after(fired_to) - spec.size
        lowest[one.group] = min(start, lowest.get(one.group, start))
    return lowest


# A query whose cut is not known yet may need any slice of its group.
_NEVER = -(2**63)


class Firing:
    """Fires the due windows of a stream; ``run`` is the Spark job."""

    def __init__(
        self,
        metastore: Metastore,
        registry: Registry,
        home: Home,
        run: RunFire,
        parallelism: int,
        repair: Callable[[Sequence[Damage]], None],
        limits: Limits | None = None,
        published: Callable[[], None] = lambda: None,
    ) -> None:
        self._metastore = metastore
        self._repair = repair
        # Called when there are answers to read.
        self.published = published
        self._trials = FireTrials(metastore)
        self._registry = registry
        self.home = home
        self._run = run
        self.parallelism = parallelism
        self.limits = limits or Limits()
        self.seconds: dict[str, float] = defaultdict(float)
        self.fires = 0
        self.last_seconds = 0.0
        self.answer_rows = 0
        # Fires run side by side, and all are counted.
        self._counting = threading.Lock()
        self._turns = Turns()
        # Called when a fire aside has ended: there may be more to do.
        self.ended: Callable[[], None] = lambda: None

    def fire(self, pipeline: Pipeline, *, aside: bool = False) -> bool:
        """Fire what is due on the stream; False when nothing is. One at a time for each stream, but for heavy groups if
        they may go ``aside``: then this only begins their fire, and what comes of it is seen by a later call."""
        with pipeline.firing:
            if not aside:
                pipeline.aside.wait()
            before = pipeline.aside.take()
            self.mend(before.damaged, pipeline)
            try:
                fired = self._fire_due(pipeline, aside)
            except BaseException:
                # Whoever fails does not keep the others from their turn.
                self._turns.forgo(pipeline.stream.name)
                raise
            if before.error is not None:
                raise before.error
            return fired

    def _fire_due(self, pipeline: Pipeline, aside: bool) -> bool:
        name, watermark = pipeline.stream.name, pipeline.watermark
        if watermark is None:
            return False
        view = _View(pipeline.buckets.mark(), self._metastore.frontiers(name), watermark)
        mine = [one for one in view.frontiers if one.leg is None and not pipeline.aside.has(one)]
        due = due_queries(mine, watermark, self._registry.window)
        if not due.moves:
            self._turns.forgo(name)
            return False
        # After a death all that is due must be written down at once.
        watched = self._trials.watches(name)
        steps = [due] if watched else in_steps(due, self._weights(pipeline, due, view.frontiers))
        read_by_joins = {one.group for one in view.frontiers if one.leg is not None}
        now, later = steps[:1], list[DueSet]()
        for step in steps[1:]:
            (now if not aside or read_by_joins.intersection(step.by_group) else later).append(step)
        self.mend(self._fire_steps(pipeline, now, view), pipeline)
        if not later:
            self._turns.forgo(name)
        elif not pipeline.aside.taken and self._turns.take(name):
            self._begin_aside(pipeline, later, view)
        return True

    def _begin_aside(self, pipeline: Pipeline, steps: Sequence[DueSet], view: _View) -> None:
        groups = frozenset(group for step in steps for group in step.by_group)
        queries = frozenset(query for step in steps for query in step.moves)

        def ended() -> None:
            self._turns.leave()
            self.ended()

        theirs = replace(view, aside=groups)
        pipeline.aside.start(groups, queries, lambda: self._fire_steps(pipeline, steps, theirs), ended)

    def _fire_steps(self, pipeline: Pipeline, steps: Sequence[DueSet], view: _View) -> list[Damage]:
        damaged: list[Damage] = []
        for step in steps:
            if step.moves:
                damaged += self.by_halves(pipeline.stream.name, step, lambda some: self._fire(pipeline, some, view))
                crash_point("fire.done")
                self.published()
        return damaged

    def _weights(self, pipeline: Pipeline, due: DueSet, frontiers: Iterable[Frontier]) -> Mapping[str, int]:
        """The bytes of each group's buckets that no fire has read before: workers keep the others. Of groups that are
        not due, what they had the last time."""
        there = {one.group for one in frontiers}
        found = {group: weight for group, weight in pipeline.weights.items() if group in there}
        for group, queries in due.by_group.items():
            fired = min(one.after for one in queries)
            stored = pipeline.buckets.between(group, *self._span(queries))
            found[group] = sum(one.bucket.length for one in stored if one.bucket.end > fired)
        pipeline.weights = found
        return found

    def _span(self, queries: Sequence[DueQuery]) -> tuple[int, int]:
        return min(self.first_start(one) for one in queries), max(one.upto for one in queries)

    def by_halves(self, name: str, due: DueSet, fire: Callable[[DueSet], Sequence[Damage]]) -> list[Damage]:
        """Fire what is due; a query that makes it fail, or ends the engine, is stopped, and the others' windows are
        published. Gives what was found damaged, to be mended when all are."""
        damaged: list[Damage] = []

        def some_of(queries: Sequence[str]) -> None:
            fire_by_halves(queries, lambda some: damaged.extend(fire(due.only(some))), stop, self._control)

        def stop(query: str, error: object) -> None:
            self._metastore.set_failed(query, f"QUARANTINED: its windows cannot be fired: {error}")
            self._registry.remove([query])

        self._trials.fire(name, list(due.moves), some_of, lambda query: stop(query, DIED), self._control)
        return damaged

    def _control(self) -> None:
        """A fire of nothing, by as many tasks as others have; if it fails too, the workers are at fault."""
        try:
            self.run([FireTask(self.home, "", TIMESTAMP, (), self.limits)] * self.parallelism)
        except FireFailed as error:
            raise FireFailed(f"{error}, also without any query") from error

    def mend(self, damaged: Sequence[Damage], *pipelines: Pipeline) -> None:
        """Have damaged files of streams mended, or declared lost: then the queries that wait for them fire."""
        if damaged:
            for pipeline in pipelines:
                pipeline.aside.wait()
            self._repair(tuple(dict.fromkeys(damaged)))

    def _fire(self, pipeline: Pipeline, due: DueSet, view: _View) -> Sequence[Damage]:
        started = time.monotonic()
        name, aside = pipeline.stream.name, view.aside is not None
        lowest = lowest_needed(view.frontiers, due.moves, self._registry.window)
        items = [self._item(pipeline, *one, lowest, view.watermark) for one in due.by_group.items()]
        with no_leftovers_of_fire(self._metastore, self.home, name, stem_of(aside)):
            result = self._answers(pipeline, [item for item in items if item.buckets or item.lost], aside)
            crash_point("fire.job-done")
            fire = self.commit(Fire(name, due.moves, result))
        if result.held:
            lowest = lowest_needed(view.frontiers, fire.moves, self._registry.window)
        # First what must not be missed if a later step fails: the compacted buckets are in force.
        self._clean_up(pipeline, result, lowest, view)
        self.drop_broken(fire)
        self.count(result, time.monotonic() - started)
        return result.damaged

    def commit(self, fire: Fire) -> Fire:
        """Publish a fire, but for the queries that wait until damaged files are mended; gives what was published, with
        all queries that are stopped by it: those that it found broken, or too large."""
        too_large = over_in_fire(fire.result, self._registry.owners.owner, self.limits)
        result = replace(fire.result, broken={**too_large, **fire.result.broken}) if too_large else fire.result
        published = replace(fire, moves=not_held(fire.moves, result), result=result)
        if published.moves:
            self._metastore.commit_fire(published)
        return published

    def drop_broken(self, fire: Fire) -> None:
        """Take the queries that a fire has stopped out of their groups."""
        if fire.result.broken:
            self._registry.remove(list(fire.result.broken))

    def count(self, result: FireResult, seconds: float) -> None:
        """Keep account of a fire."""
        with self._counting:
            self.last_seconds = seconds
            self.seconds["fire"] += seconds
            self.fires += 1
            self.answer_rows += sum(result.rows_by_query.values())

    def _item(
        self, pipeline: Pipeline, group: str, queries: list[DueQuery], lowest: dict[str, int], watermark: int
    ) -> FireItem:
        stored = pipeline.buckets.between(group, *self._span(queries))
        whole = [s for s in stored if s.bucket.lost is None]
        paths = {s.bucket.version: self._registry.path(group, s.bucket.version) for s in whole}
        number = {version: index for index, version in enumerate(paths)}
        refs = tuple(reference(s, number[s.bucket.version]) for s in whole)
        gone = self.lost(stored)
        needed_from = lowest.get(group, watermark)
        return FireItem(tuple(paths.values()), tuple(queries), refs, needed_from, watermark, lost=gone)

    def lost(self, stored: Iterable[Stored]) -> tuple[Lost, ...]:
        """Those of the buckets that are lost, as a task is told of them."""
        return tuple(
            Lost(self._registry.path(b.group, b.version), b.start, b.end, s.watermark, b.lost)
            for s in stored
            if (b := s.bucket).lost is not None
        )

    def first_start(self, one: DueQuery) -> int:
        spec = self._registry.window(one.query)
        assert spec is not None
        return spec.end_after(one.after) - spec.size

    def _answers(self, pipeline: Pipeline, items: list[FireItem], aside: bool) -> FireResult:
        if not items:
            return FireResult()
        stream = pipeline.stream
        shares = share_out(items, self.parallelism)
        kind = stream.field(stream.time).type
        return self.run([FireTask(self.home, stream.name, kind, tuple(share), self.limits, aside) for share in shares])

    def run(self, tasks: Sequence[FireTask | JoinTask]) -> FireResult:
        """One Spark job, and its results as one."""
        if not tasks:
            return FireResult()
        try:
            results, seconds = self._run(tasks)
        except Exception as error:
            if may_be_a_query(error):
                raise FireFailed(reason_of(error)) from error
            raise
        with self._counting:
            for phase, spent in seconds.items():
                self.seconds[phase] += spent
        return _together(results)

    def clean_up(self, pipeline: Pipeline) -> None:
        """Forget the buckets of a stream that no query needs any more."""
        mark = pipeline.buckets.mark()
        frontiers = self._metastore.frontiers(pipeline.stream.name)
        lowest = lowest_needed(frontiers, {}, self._registry.window)
        self._clean_up(pipeline, FireResult(), lowest, _View(mark, frontiers, 0))

    def _clean_up(self, pipeline: Pipeline, result: FireResult, lowest: dict[str, int], view: _View) -> None:
        """First the transaction, then the files. No other fire reads buckets of these groups now, only readers of
        answers do, whose files stay."""
        emptied = pipeline.buckets.replace(result.replaced, result.compacted)

        def concerned(group: str) -> bool:
            return group not in pipeline.aside.groups if view.aside is None else group in view.aside

        # Of these, too, the metastore may name buckets that nobody needed before.
        unneeded = [*emptied, *pipeline.buckets.below(lowest, view.mark, concerned)]
        if unneeded:
            self.home.remove(self._metastore.drop_files(unneeded))


def reference(stored: Stored, version: int) -> BucketRef:
    """A bucket as a task is told of it."""
    b = stored.bucket
    return BucketRef(
        version, stored.path, b.offset, b.length, b.start, b.end, stored.batch, stored.watermark, b.checksum, b.body
    )


def not_held(moves: Mapping[str, tuple[int, int]], result: FireResult) -> dict[str, tuple[int, int]]:
    """The moves of the queries that were answered: others wait until damaged files are mended."""
    held = set(result.held)
    return {query: move for query, move in moves.items() if query not in held}


def share_out(items: Sequence[FireItem], tasks: int) -> list[list[FireItem]]:
    """Divide the work evenly: the largest first, each to the task that has least; large groups are divided by
    queries."""
    total = sum(_weight(item) for item in items)
    pieces: list[FireItem] = []
    for item in items:
        parts = min(round(tasks * _weight(item) / max(total, 1)), len(item.due) // LEAST_QUERIES)
        for part in range(max(1, parts)):
            due = item.due[part :: max(1, parts)]
            pieces.append(replace(item, due=due, compact=part == 0))
    shares: list[list[FireItem]] = [[] for _ in range(min(tasks, len(pieces)))]
    loads = [0] * len(shares)
    for piece in sorted(pieces, key=_weight, reverse=True):
        lightest = loads.index(min(loads))
        shares[lightest].append(piece)
        loads[lightest] += _weight(piece)
    return shares


def in_steps(due: DueSet, weights: Mapping[str, int]) -> list[DueSet]:
    """Light groups first, each step a fire of its own: no group waits for one that is much heavier than all lighter
    ones together. The first step is that of the light ones, if there are any or not; ``weights`` may have more groups
    than are due.

    >>> one = lambda query: [DueQuery(query, 0, 1, None)]
    >>> due = DueSet({q: (0, 1) for q in "abcd"}, {"g1": one("a"), "g2": one("b"), "g3": one("c")})
    >>> [sorted(step.moves) for step in in_steps(due, {"g1": 2 * LIGHT, "g2": 1, "g3": LIGHT // 2})]
    [['b', 'c', 'd'], ['a']]
    """
    in_group = {one.query for queries in due.by_group.values() for one in queries}
    light = [query for query in due.moves if query not in in_group]
    heavy: list[list[str]] = []
    step, lighter = light, 0
    for group in sorted(weights, key=lambda group: weights[group]):
        if lighter and weights[group] > max(LIGHT, HEAVIER * lighter):
            heavy.append(step := [])
        step += [one.query for one in due.by_group.get(group, ())]
        lighter += weights[group]
    return [due.only(light), *(due.only(step) for step in heavy if step)]


def _weight(item: FireItem) -> int:
    return sum(ref.length for ref in item.buckets) * (16 + len(item.due))


def _together(results: Sequence[FireResult]) -> FireResult:
    def added(name: str) -> dict[str, int]:
        total: Counter[str] = Counter()
        for result in results:
            total.update(getattr(result, name))
        return dict(total)

    return FireResult(
        tuple(a for r in results for a in r.answers),
        added("windows_by_query"),
        added("rows_by_query"),
        added("failures_by_query"),
        {query: reason for r in results for query, reason in r.broken.items()},
        tuple(f for r in results for f in r.compacted),
        tuple(b for r in results for b in r.replaced),
        {path: batches for r in results for path, batches in r.origins.items()},
        tuple(dict.fromkeys(d for r in results for d in r.damaged)),
        tuple(query for r in results for query in r.held),
        added("incomplete_by_query"),
        {query: groups for r in results for query, groups in r.groups_by_query.items()},
    )
