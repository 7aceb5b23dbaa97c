"""The last step of reading a plan: a query over one stream, or a join in normal form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from millstream.model.expression import Call, Expression
from millstream.model.join import JoinQuery, of_leg
from millstream.model.query import Aggregate, LogicalQuery, Output, Ranking, WindowSpec
from millstream.model.types import BOOLEAN
from millstream.sql.constructs import LOOSE_WINDOW, WHERE_WINDOW
from millstream.sql.drafts import Draft, all_of
from millstream.sql.grouping import Grouping
from millstream.sql.joins import Named, normal_form
from millstream.sql.leg_windows import of_window, of_windows_only
from millstream.sql.slots import check_query
from millstream.sql.text import Text


@dataclass(frozen=True, slots=True)
class Read:
    """What was read from a plan. ``windowed`` are the legs that have a window."""

    draft: Draft
    named: tuple[Named, ...]
    windowed: frozenset[int]
    grouping: Grouping | None
    having: tuple[Expression, ...]
    outputs: tuple[Output, ...]
    ranking: Ranking | None


def finished(read: Read, specs: Sequence[WindowSpec], text: Text) -> LogicalQuery | JoinQuery:
    """The query, checked against the verified table."""
    joined = len(read.named) > 1
    for one, call in zip(specs, text.calls, strict=True):
        if one != specs[0]:
            raise text.several_windows(text.calls[0], call, joined)
    spec = specs[0] if specs else None
    query = _join(read, spec, text) if joined else _single(read, spec, text)
    check_query(query)
    return query


def _single(read: Read, spec: WindowSpec | None, text: Text) -> LogicalQuery:
    [source] = read.named
    # Spark puts `time IS NOT NULL` under each window; rows without event time never get here.
    has_time = Call("IsNotNull", (source.time,), BOOLEAN)
    where = [condition for condition in read.draft.above if condition != has_time]
    if any(of_window(condition) for condition in where):
        raise text.refusal(WHERE_WINDOW)
    if not read.grouping and any(of_window(output.expression) for output in read.outputs):
        raise text.refusal(LOOSE_WINDOW)
    outputs = read.outputs
    if not read.grouping:
        outputs = tuple(replace(output, expression=of_leg(output.expression)) for output in outputs)
    return LogicalQuery(
        sql=text.sql,
        stream=source.stream.name,
        where=all_of([of_leg(condition) for condition in where]),
        window=spec if read.grouping else None,
        keys=tuple(of_leg(key) for key in read.grouping.keys) if read.grouping else (),
        aggregates=tuple(_of_leg(one) for one in read.grouping.aggregates.found) if read.grouping else (),
        having=all_of(list(read.having)),
        outputs=outputs,
        ranking=read.ranking,
    )


def _of_leg(aggregate: Aggregate) -> Aggregate:
    return replace(aggregate, argument=aggregate.argument and of_leg(aggregate.argument))


def _join(read: Read, spec: WindowSpec | None, text: Text) -> JoinQuery:
    for leg, one in enumerate(read.named):
        if leg not in read.windowed or spec is None:
            sources = [(source.alias, source.stream) for source in (read.named[0], read.named[leg or 1])]
            message = f"the source {one.alias} of the join has no window"
            raise text.no_common_window(message, sources, wrong=min(leg, 1))
    assert spec is not None
    normal = normal_form(read.draft, read.named, text)
    where, having = list(normal.where), list(read.having)
    if read.grouping:
        # Of a group every row is in the same window: what is asked of the window alone can be asked of the group.
        of_groups = [one for one in where if of_windows_only(one) and not of_window(read.grouping.over_groups(one))]
        where = [one for one in where if one not in of_groups]
        having = [*map(read.grouping.over_groups, of_groups), *having]
    return JoinQuery(
        sql=text.sql,
        legs=normal.legs,
        tree=normal.tree,
        where=all_of(where),
        window=spec,
        grouped=read.grouping is not None,
        keys=tuple(read.grouping.keys) if read.grouping else (),
        aggregates=tuple(read.grouping.aggregates.found) if read.grouping else (),
        having=all_of(having),
        outputs=read.outputs,
        ranking=read.ranking,
    )
