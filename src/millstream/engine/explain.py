"""Explain: what a query shares with whom, and how much it has, from registry, buckets and metastore as they are now."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace

from millstream.catalog.metastore import QueryRecord
from millstream.engine.buckets import Stored
from millstream.engine.core import Core
from millstream.engine.explanation import NAMED, Explanation, Joined, Source, draw
from millstream.engine.measuring import (
    MOST_CELLS,
    LazyEvaluator,
    Part,
    Span,
    estimated_rows,
    joined_rows,
    next_window,
    part_of,
)
from millstream.engine.status import moment
from millstream.kernels.classes import table_of
from millstream.model.expression import Expression
from millstream.model.join import JoinNode, JoinQuery, Tree, leg_of
from millstream.model.legs import leg_attributes, leg_fields, leg_member, query_of_member
from millstream.model.query import LogicalQuery
from millstream.model.text import window_text, written

__all__ = ["Explanation", "explain"]


@dataclass(frozen=True)
class _Place:
    """Where a source of a query is evaluated: as which member of which group, by which attributes."""

    stream: str
    group: str
    member: str
    attributes: tuple[Expression, ...]


@dataclass(frozen=True)
class _Measured:
    """The next window of a query and what each source has in it."""

    span: Span
    parts: tuple[Part, ...]


def explain(core: Core, record: QueryRecord) -> Explanation:
    """What the query shares, and what it has in its next window so far."""
    query = record.query
    places = _places(record)
    measured = _measured(core, record, places)
    sources = [_source(core, query, number, place) for number, place in enumerate(places)]
    span = None
    if measured is not None:
        sources = [
            replace(source, window_rows=part.rows, window_runs=part.runs)
            for source, part in zip(sources, measured.parts, strict=True)
        ]
        start, end = map(moment, measured.span)
        span = None if start is None or end is None else (start, end)
    join = None
    if isinstance(query, JoinQuery):
        with closing(LazyEvaluator()) as evaluator:
            join = _joined(core, query, query.tree, measured, evaluator)
    about = Explanation(
        query=record.id,
        sql=record.sql,
        state=record.state,
        window=None if query.window is None else window_text(query.window),
        grouped_by=_grouped_by(query),
        sources=tuple(sources),
        join=join,
        fired_with=_fired_with(core, record) if isinstance(query, JoinQuery) else 0,
        next_window=span,
        windows=record.windows,
        answer_rows=record.answer_rows,
    )
    return replace(about, tree=draw(about))


def _places(record: QueryRecord) -> list[_Place]:
    query = record.query
    if isinstance(query, LogicalQuery):
        return [_Place(query.stream, record.group, record.id, query.keys)]
    return [
        _Place(leg.stream, leg.group, leg_member(record.id, leg.leg), leg_attributes(query, leg.leg))
        for leg in record.legs
    ]


def _grouped_by(query: LogicalQuery | JoinQuery) -> tuple[str, ...] | None:
    grouped = query.grouped if isinstance(query, JoinQuery) else query.window is not None
    return tuple(map(_writer(query), query.keys)) if grouped else None


def _writer(query: LogicalQuery | JoinQuery) -> Callable[[Expression], str]:
    if isinstance(query, LogicalQuery):
        return written

    def name(column: str) -> str:
        leg, plain = leg_of(column)
        return f"{query.legs[leg].alias}.{plain.replace('#', 'window.')}"

    return lambda expression: written(expression, name)


def _joined(core: Core, query: JoinQuery, tree: Tree, measured: _Measured | None, evaluator: LazyEvaluator) -> Joined:
    """A join of the tree with those below it."""
    assert isinstance(tree, JoinNode)
    write = _writer(query)
    on = [f"{write(left)} = {write(right)}" for left, right in tree.equal]
    on += [write(e) for e in (tree.residual, query.where if tree == query.tree else None) if e is not None]
    left, right = (
        side if isinstance(side, int) else _joined(core, query, side, measured, evaluator)
        for side in (tree.left, tree.right)
    )
    if measured is None:
        return Joined(tree.kind, tuple(on), left, right)
    stream = core.pipelines[query.legs[0].stream].stream
    rows = joined_rows(query, tree, measured.parts, measured.span, stream.field(stream.time).type, evaluator)
    return Joined(tree.kind, tuple(on), left, right, round(estimated_rows(tree, measured.parts)), rows)


def _fired_with(core: Core, record: QueryRecord) -> int:
    """Joins over the same streams with the same attributes are answered in one pass."""
    mine = core.registry.join(record.id).attributes
    others = (one.query for one in core.metastore.frontiers(record.stream) if one.query != record.id)
    return sum(1 for query in others if core.registry.join(query).attributes == mine)


def _measured(core: Core, record: QueryRecord, places: list[_Place]) -> _Measured | None:
    """None for queries without a window, or with nothing stored, and where counting would take long."""
    window = record.query.window
    if window is None or record.state in ("deleted", "failed"):
        return None
    stored = [_stored(core, place) for place in places]
    span = next_window(window, record.fired_to, (one for mine in stored for one in mine))
    if span is None or sum(one.bucket.cells for mine in stored for one in mine) > MOST_CELLS:
        return None
    try:
        parts = [
            part_of(core.home, core.registry, mine, place.member, place.attributes, span)
            for place, mine in zip(places, stored, strict=True)
        ]
    except FileNotFoundError:
        # A fire has moved the frontier on and removed buckets meanwhile.
        return None
    return _Measured(span, tuple(parts))


def _stored(core: Core, place: _Place) -> list[Stored]:
    return core.pipelines[place.stream].buckets.between(place.group, -(2**63), 2**63 - 1)


def _source(core: Core, query: LogicalQuery | JoinQuery, number: int, place: _Place) -> Source:
    join = query if isinstance(query, JoinQuery) else None
    where = query.where if join is None else join.legs[number].where
    version = core.registry.version(place.group)
    own = query_of_member(place.member)
    members = version.members if version is not None else ()
    others = list(dict.fromkeys(q for m in members if (q := query_of_member(m.query)) != own))
    stored = _stored(core, place)
    return Source(
        stream=place.stream,
        alias=place.stream if join is None else join.legs[number].alias,
        where=None if where is None else written(where),
        keys=tuple(written(e, _plain if join is not None else str) for e in place.attributes),
        keeps=() if join is None else tuple(field.name for field in leg_fields(join, number)),
        group=place.group,
        version=version.version if version is not None else 0,
        shared_queries=len(others),
        shared_with=tuple(others[:NAMED]),
        classes=0 if version is None else table_of(version).classes,
        measures=len(version.measures) if version is not None else 0,
        buckets=len(stored),
        slices=len({(one.bucket.start, one.bucket.end) for one in stored}),
        bytes=sum(one.bucket.length for one in stored),
        runs=sum(one.bucket.cells for one in stored),
    )


def _plain(name: str) -> str:
    """The column of a leg without the leg's number."""
    return leg_of(name)[1]
