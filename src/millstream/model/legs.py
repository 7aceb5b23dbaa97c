"""What each source of a join is asked for: the join taken apart into legs that run like queries of their own.

A leg is a member of a windowed group of its stream, under the name ``query#leg``. Its keys are its **attributes**: all
that the join compares, groups by or computes from this source. Partials by attribute are enough for every aggregate,
and for the number of rows of an answer; the rows themselves are kept only where they are the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from millstream.model.expression import Column, Expression, conjuncts, walk
from millstream.model.join import JoinQuery, joins_of, leg_of, legs_of, of_leg
from millstream.model.query import WINDOW_END, WINDOW_START, Aggregate, LogicalQuery
from millstream.model.stream import Field

_WINDOW = frozenset([WINDOW_START, WINDOW_END])


def leg_member(query: str, leg: int) -> str:
    """The name of a leg among the members of its group."""
    return f"{query}#{leg}"


def query_of_member(member: str) -> str:
    """The query that a member belongs to."""
    return member.partition("#")[0]


def conditions(query: JoinQuery) -> Iterator[Expression]:
    """All that decides which rows meet; each part of a conjunction by itself, since inner joins take them apart."""
    for node in joins_of(query.tree):
        for pair in node.equal:
            yield from pair
        yield from conjuncts(node.residual)
    yield from conjuncts(query.where)


def _arguments(query: JoinQuery) -> Iterator[Expression]:
    yield from query.keys
    yield from (a.argument for a in query.aggregates if a.argument is not None and len(legs_of(a.argument)) > 1)


def leg_attributes(query: JoinQuery, leg: int) -> tuple[Expression, ...]:
    """The attributes of a leg, named by leg, always in the same order. An expression over this leg alone is one; of one
    over several legs, the columns of this leg are."""
    found: dict[Expression, None] = {}
    for expression in (*conditions(query), *_arguments(query)):
        if legs_of(expression) == {leg} and not _reads_window(expression):
            found[expression] = None
        else:
            found.update(dict.fromkeys(c for c in _columns(expression, leg)))
    return tuple(sorted(found, key=repr))


def _columns(expression: Expression, leg: int) -> list[Column]:
    nodes = (node for node in walk(expression) if isinstance(node, Column))
    return [c for c in nodes if leg_of(c.name)[0] == leg and leg_of(c.name)[1] not in _WINDOW]


def _reads_window(expression: Expression) -> bool:
    return any(isinstance(node, Column) and leg_of(node.name)[1] in _WINDOW for node in walk(expression))


def reads_window(query: JoinQuery) -> bool:
    """Whether the bounds of the window decide which rows meet, or what is grouped by."""
    return any(_reads_window(expression) for expression in (*conditions(query), *_arguments(query)))


def leg_aggregates(query: JoinQuery, leg: int) -> tuple[Aggregate, ...]:
    """The aggregates over columns of this leg alone, named by leg."""
    return tuple(dict.fromkeys(a for a in query.aggregates if a.argument is not None and legs_of(a.argument) == {leg}))


def leg_fields(query: JoinQuery, leg: int) -> tuple[Field, ...]:
    """The columns of the stream that building this leg's part of the answer's rows takes; none where answers are
    aggregates."""
    if query.grouped:
        return ()
    parts = (*conditions(query), *(out.expression for out in query.outputs))
    found = {leg_of(c.name)[1]: c.type for part in parts for c in _columns(part, leg)}
    time = query.legs[leg].time
    if not found and time is not None:
        # Rows are rows even where the answer takes nothing from them.
        found[time.name] = time.type
    return tuple(Field(name, found[name]) for name in sorted(found))


def leg_query(query: JoinQuery, leg: int) -> LogicalQuery:
    """The leg as a query of its own, which its stream's groups can take in."""
    mine = query.legs[leg]
    aggregates = tuple(
        replace(a, argument=of_leg(a.argument)) for a in leg_aggregates(query, leg) if a.argument is not None
    )
    keys = tuple(of_leg(attribute) for attribute in leg_attributes(query, leg))
    return LogicalQuery("", mine.stream, mine.where, query.window, keys, aggregates, None, ())


def form_of(query: JoinQuery) -> JoinQuery:
    """What is left of a join for its fire: its sources' own conditions are in the groups."""
    return replace(query, sql="", legs=tuple(replace(leg, where=None, alias="") for leg in query.legs))
