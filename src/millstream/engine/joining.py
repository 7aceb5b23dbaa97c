"""Fires of joins: a window is due when each of its streams has closed it.

What a window's answer is made of depends on the watermarks in the plans of its streams' batches alone, so it does not
matter how the micro-batches of the streams interleave, nor when the fire runs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from millstream.catalog.metastore import Fire, Metastore, streams_of
from millstream.crashpoints import crash_point
from millstream.engine.firing import LEAST_QUERIES, DueSet, Firing, due_queries, lowest_needed, reference
from millstream.engine.leftovers import no_leftovers_of_fire
from millstream.engine.pipeline import Pipeline
from millstream.engine.registry import Registry
from millstream.kernels.join_fire import JoinDue
from millstream.model.join import JoinQuery
from millstream.model.legs import leg_member, query_of_member
from millstream.model.plan import Damage
from millstream.runtime.fire import DueQuery, stem_of
from millstream.runtime.join_fire import JoinItem, JoinLeg, JoinTask


class Joining:
    """Fires the due windows of joins over the same streams; ``firing`` runs the jobs and cleans up."""

    def __init__(
        self, metastore: Metastore, registry: Registry, firing: Firing, pipelines: Mapping[str, Pipeline]
    ) -> None:
        self._metastore = metastore
        self._registry = registry
        self._firing = firing
        self._pipelines = pipelines

    def fire(self, name: str) -> bool:
        """Fire what is due of the joins over some streams, given by their joined name; False when nothing is."""
        pipelines = {stream: self._pipelines[stream] for stream in streams_of(name)}
        with ExitStack() as locks:
            for stream in sorted(pipelines):
                locks.enter_context(pipelines[stream].firing)
            watermarks = [pipeline.watermark for pipeline in pipelines.values()]
            closed = [watermark for watermark in watermarks if watermark is not None]
            if len(closed) < len(watermarks):
                return False
            due = due_queries(self._metastore.frontiers(name), min(closed), self._registry.window)
            if not due.moves:
                return False
            for pipeline in pipelines.values():
                self._await_aside(pipeline)
            damaged = self._firing.by_halves(name, due, lambda some: self._fire(name, some, pipelines))
            self._firing.published()
            for pipeline in pipelines.values():
                self._firing.clean_up(pipeline)
            crash_point("join.done")
            self._firing.mend(damaged, *pipelines.values())
            return True

    def _await_aside(self, pipeline: Pipeline) -> None:
        """A group that a join has come into while it fires aside; that does not happen to it again."""
        if pipeline.aside.taken:
            legs = (one for one in self._metastore.frontiers(pipeline.stream.name) if one.leg is not None)
            if any(pipeline.aside.has(leg) for leg in legs):
                pipeline.aside.wait()

    def _fire(self, name: str, due: DueSet, pipelines: Mapping[str, Pipeline]) -> Sequence[Damage]:
        started = time.monotonic()
        with no_leftovers_of_fire(self._metastore, self._firing.home, name, stem_of(aside=False)):
            result = self._firing.run(self._tasks(name, due, pipelines))
            crash_point("join.job-done")
            fire = self._firing.commit(Fire(name, due.moves, result))
        self._firing.drop_broken(fire)
        self._firing.count(result, time.monotonic() - started)
        return result.damaged

    def _tasks(self, name: str, due: DueSet, pipelines: Mapping[str, Pipeline]) -> list[JoinTask]:
        """Joins with the same attributes are fired together; many of them are divided among tasks."""
        together: dict[object, list[DueQuery]] = {}
        for queries in due.by_group.values():
            for one in queries:
                together.setdefault(self._registry.join(one.query).attributes, []).append(one)
        frontiers = [one for stream in pipelines for one in self._metastore.frontiers(stream)]
        group_of = {frontier.query: frontier.group for frontier in frontiers}
        moves = {one.query: due.moves[of] for one in frontiers if (of := query_of_member(one.query)) in due.moves}
        lowest = lowest_needed(frontiers, moves, self._registry.window)
        tasks: list[list[JoinItem]] = [[] for _ in range(self._firing.parallelism)]
        for queries in together.values():
            parts = max(1, min(len(tasks), len(queries) // LEAST_QUERIES))
            for part in range(parts):
                item = self._item(queries[part::parts], group_of, lowest, pipelines)
                if any(leg.buckets or leg.lost for leg in item.legs):
                    min(tasks, key=lambda items: sum(len(i.due) for i in items)).append(item)
        return [JoinTask(self._firing.home, name, tuple(items), self._firing.limits) for items in tasks if items]

    def _item(
        self,
        queries: Sequence[DueQuery],
        group_of: Mapping[str, str],
        lowest: Mapping[str, int],
        pipelines: Mapping[str, Pipeline],
    ) -> JoinItem:
        forms: dict[JoinQuery, int] = {}
        due = []
        sources = range(len(self._registry.join(queries[0].query).query.legs))
        # Windows run in blocks: a block of the same groups adds up nothing of others.
        for one in sorted(queries, key=lambda one: [group_of[leg_member(one.query, leg)] for leg in sources]):
            form = self._registry.join(one.query).form
            due.append(JoinDue(one.query, forms.setdefault(form, len(forms)), one.after, one.upto, one.partial_until))
        first = self._registry.join(queries[0].query).query
        low = min(self._firing.first_start(one) for one in queries)
        high = max(one.upto for one in queries)
        legs = []
        for number, leg in enumerate(first.legs):
            groups = dict.fromkeys(group_of[leg_member(one.query, number)] for one in queries)
            needed_from = min(lowest.get(group, low) for group in groups)
            legs.append(self._leg(pipelines[leg.stream], groups, (low, high), needed_from))
        stream = pipelines[first.legs[0].stream].stream
        return JoinItem(tuple(forms), tuple(due), tuple(legs), stream.field(stream.time).type)

    def _leg(self, pipeline: Pipeline, groups: Mapping[str, None], span: tuple[int, int], needed_from: int) -> JoinLeg:
        stored = [one for group in groups for one in pipeline.buckets.between(group, *span)]
        paths: dict[str, int] = {}
        refs = []
        for one in (s for s in stored if s.bucket.lost is None):
            path = self._registry.path(one.bucket.group, one.bucket.version)
            refs.append(reference(one, paths.setdefault(path, len(paths))))
        return JoinLeg(tuple(paths), tuple(refs), needed_from, self._firing.lost(stored))
