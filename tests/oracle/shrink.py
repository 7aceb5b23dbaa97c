"""Failures made small: one query, few clauses, few rows. Hypothesis cannot do this well, for it sees only the seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from .joins import JoinCase, Joined, each_join
from .workload import Case, Workload

# Each attempt is a run of the engine and of Spark, some seconds.
ATTEMPTS = 40


def shrink(workload: Workload, fails: Callable[[Workload], bool], attempts: int = ATTEMPTS) -> Workload:
    """The smallest workload found that still fails; ``workload`` must fail."""
    progress = True
    while progress and attempts > 0:
        progress = False
        for candidate in _smaller(workload):
            attempts -= 1
            if attempts < 0:
                break
            if fails(candidate):
                workload, progress = candidate, True
                break
    return workload


def _smaller(workload: Workload) -> Iterator[Workload]:
    """Smaller workloads, those that save most first."""
    yield from _fewer_queries(workload)
    read = {name for query in workload.queries for name in query.streams}
    if len(workload.streams) > len(read):
        yield replace(workload, streams=tuple(s for s in workload.streams if s.name in read)).fitted()
    yield from _fewer_rows(workload)
    for place, query in enumerate(workload.queries):
        for simpler in _simpler(query):
            yield replace(workload, queries=(*workload.queries[:place], simpler, *workload.queries[place + 1 :]))


def _fewer_queries(workload: Workload) -> Iterator[Workload]:
    """Without half of them, then without single ones: a failure may need two queries that share something."""
    queries = workload.queries
    if len(queries) < 2:
        return
    half = len(queries) // 2
    for part in (queries[:half], queries[half:]):
        yield replace(workload, queries=part)
    if len(queries) > 2:
        for query in queries:
            yield replace(workload, queries=tuple(q for q in queries if q is not query))


def _fewer_rows(workload: Workload) -> Iterator[Workload]:
    for place, stream in enumerate(workload.streams):
        for share in (2, 4):
            size = stream.rows // share
            for first in range(0, stream.rows, size) if size else ():
                if stream.rows - size >= 1:
                    streams = list(workload.streams)
                    streams[place] = stream.without(first, size)
                    yield replace(workload, streams=tuple(streams)).fitted()


def _simpler(query: Case) -> Iterator[Case]:
    if isinstance(query, JoinCase):
        yield from _simpler_join(query)
    if query.ranking:
        yield replace(query, ranking=None)
    if query.having:
        yield replace(query, having=None)
    if query.where:
        yield replace(query, where=None)
    for item in query.items:
        if len(query.items) > 1 and not query.ranking and item.sql.type != "window":
            yield replace(query, items=tuple(i for i in query.items if i is not item))
    for key in query.keys:
        if all(key.engine not in item.sql.engine for item in query.items):
            yield replace(query, keys=tuple(k for k in query.keys if k is not key))
    if query.create_at or query.delete_at is not None:
        yield replace(query, create_at=0, delete_at=None)


def _simpler_join(query: JoinCase) -> Iterator[JoinCase]:
    if isinstance(query.tree, Joined) and isinstance(query.tree.left, Joined):
        # Plain Spark refuses it where the text still names the last source; such a candidate does not count as failing.
        yield replace(query, tree=query.tree.left, legs=query.legs[: _legs(query.tree.left)])
    if any(leg.where for leg in query.legs):
        yield replace(query, legs=tuple(replace(leg, where=None) for leg in query.legs))
    if any(leg.table for leg in query.legs):
        yield replace(query, legs=tuple(replace(leg, table=None) for leg in query.legs))
    for change in (_without_conditions, _with_one_equality):
        simpler = replace(query, tree=each_join(query.tree, change))
        if simpler != query:
            yield simpler


def _legs(tree: Joined | int) -> int:
    return 1 if isinstance(tree, int) else _legs(tree.left) + _legs(tree.right)


def _without_conditions(join: Joined) -> Joined:
    return replace(join, conditions=())


def _with_one_equality(join: Joined) -> Joined:
    return replace(join, equal=join.equal[:1])
