"""Failures made small: one query, few clauses, few rows. Hypothesis cannot do this well, for it sees only the seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from .queries import QueryCase
from .workload import Workload

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
    if len(workload.streams) > 1 and len({q.stream for q in workload.queries}) == 1:
        yield replace(workload, streams=(workload.stream(workload.queries[0].stream),)).fitted()
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


def _simpler(query: QueryCase) -> Iterator[QueryCase]:
    if query.having:
        yield replace(query, having=None)
    if query.where:
        yield replace(query, where=None)
    for item in query.items:
        if len(query.items) > 1:
            yield replace(query, items=tuple(i for i in query.items if i is not item))
    for key in query.keys:
        if all(key.engine not in item.sql.engine for item in query.items):
            yield replace(query, keys=tuple(k for k in query.keys if k is not key))
    if query.create_at or query.delete_at is not None:
        yield replace(query, create_at=0, delete_at=None)
