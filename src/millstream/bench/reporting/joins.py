"""Whether the rows of a join were counted when they were described, or only when they had been written."""

from __future__ import annotations

from typing import Literal

from millstream.bench.driving.model import QuerySpec, RunSpec, joins_rows
from millstream.bench.systems.kinds import MILLSTREAM, MILLSTREAM_DRAINED

Rows = Literal["answered", "drained"]

LEGEND = (
    "Joins without aggregates: 'answered' rows are described in files, and built when they are read; 'drained' rows are"
    " all built and written to a sink. A ratio of the one by the other is not of the same work."
)


def rows_of(system: str, sql: str) -> Rows | None:
    """What became of a join's rows; None where the query aggregates, or joins nothing: then they are all written.

    >>> rows_of("millstream", "SELECT a.x FROM a JOIN b ON a.x = b.x"), rows_of("spark", "SELECT 1 FROM a JOIN b")
    ('answered', 'drained')
    >>> rows_of("millstream", "SELECT a.x, COUNT(*) FROM a JOIN b ON a.x = b.x GROUP BY a.x")
    """
    if not joins_rows(sql):
        return None
    # Millstream describes the rows of a join, and builds them when they are read, unless each answer is drained.
    own = system == MILLSTREAM or system.startswith(f"{MILLSTREAM}-")
    return "answered" if own and system != MILLSTREAM_DRAINED else "drained"


def rows_of_run(spec: RunSpec) -> Rows | None:
    """Of the queries whose answers count, if any of them is such a join."""
    return next((found for query in _watched(spec) if (found := rows_of(spec.system, query.sql)) is not None), None)


def _watched(spec: RunSpec) -> list[QuerySpec]:
    created = (query for request in spec.requests for query in request.create)
    return [query for query in (*spec.initial, *created) if query.watched]
