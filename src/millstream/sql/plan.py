"""From Spark's analysed plan to a query.

The plan is read from the bottom up. Each attribute stands for an expression over columns named by leg (``0.price``), so
that subqueries in FROM, common table expressions and lateral aliases dissolve. Above the aggregation, attributes stand
for expressions over its results: ``#k…`` for keys, ``#a…`` for aggregates, ``#start`` and ``#end`` for the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from millstream.errors import SqlError
from millstream.model.expression import Call, Column, Expression, conjuncts
from millstream.model.join import MOST_LEGS, JoinQuery, leg_column, leg_of, legs_of
from millstream.model.query import LogicalQuery, Output, Ranking, WindowSpec
from millstream.sql.catalyst import Node, read_tree, to_expression
from millstream.sql.constructs import BELOW_JOIN, KEYWORDS, NESTED, OPERATORS, SECOND_WINDOW
from millstream.sql.drafts import UNMATCHED, Draft, Joined, Source, unmatched_to_null
from millstream.sql.finish import Read, finished
from millstream.sql.grouping import Grouping
from millstream.sql.joins import Named
from millstream.sql.leg_windows import leg_window
from millstream.sql.ranking import limited, not_a_ranking, rank_column, read_ranking
from millstream.sql.special import Special
from millstream.sql.text import Text
from millstream.sql.tokens import locate

# Operators that give their input's rows unchanged.
_TRANSPARENT = frozenset(["PipeOperator", "ResolvedHint", "UnresolvedHint", "CTERelationDef"])
_JOINS = {
    "Inner": "inner",
    "Cross": "inner",
    "LeftOuter": "left",
    "RightOuter": "right",
    "FullOuter": "full",
    "LeftSemi": "semi",
    "LeftAnti": "anti",
}
# The name Spark gives to a subquery that has none.
_NAMELESS = "__auto_generated_subquery_name"
_ONLY_SELECT = "write SELECT … FROM stream WHERE … GROUP BY keys, window(…) HAVING …"


class Attribute(NamedTuple):
    """A column of an operator's output: its name and its id in the plan."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class _Part:
    """What an operator gives: its columns, and the rows they are columns of."""

    attributes: list[Attribute]
    draft: Draft


def read_plan(root: Node, text: Text, specs: Sequence[WindowSpec]) -> LogicalQuery | JoinQuery:
    """The query of an analysed plan; ``specs`` are the windows of the text's window calls.

    :raises SqlError: for everything that Spark runs and Millstream does not, with the place in the text.
    """
    for construct in KEYWORDS:
        if locate(text.tokens, *construct.phrases):
            raise text.refusal(construct)
    try:
        return finished(_Reader(text).read(root), specs, text)
    except SqlError as error:
        raise text.positioned(error) from None


class _Reader:
    """Reads one plan. ``_meaning`` maps the ids of visible attributes to expressions."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._streams = {name.lower(): stream for name, stream in text.streams.items()}
        self._named: list[Named] = []
        self._windowed: set[int] = set()
        self._ctes: dict[int, Node] = {}
        self._meaning: dict[int, Expression] = {}
        self._special = Special(text, self._meaning, self._named)
        self._grouping: Grouping | None = None
        self._having: list[Expression] = []
        self._ranking: Ranking | None = None

    def read(self, root: Node) -> Read:
        part = self._read(root)
        outputs = tuple(Output(name, self._meaning[at]) for name, at in part.attributes)
        named, windowed = tuple(self._named), frozenset(self._windowed)
        return Read(part.draft, named, windowed, self._grouping, tuple(self._having), outputs, self._ranking)

    # Operators.

    def _read(self, node: Node) -> _Part:
        if node.name in _TRANSPARENT:
            return self._read(node.children[0])
        reader = getattr(self, f"_read_{node.name.lower()}", None)
        if reader is not None:
            found: _Part = reader(node)
            self._special.draft = found.draft
            return found
        if node.name in OPERATORS:
            raise self._text.refusal(OPERATORS[node.name])
        if not node.children:
            raise self._text.no_stream()
        raise self._text.unsupported(f"the operator {node.name} is not supported", _ONLY_SELECT)

    def _read_subqueryalias(self, node: Node) -> _Part:
        part = self._read(node.children[0])
        name = str(node.fields["identifier"]["name"])
        if isinstance(part.draft, Source) and name != _NAMELESS:
            leg = part.draft.leg
            self._named[leg] = replace(self._named[leg], alias=name)
        return part

    def _read_withcte(self, node: Node) -> _Part:
        body = node.children[-1]
        for child in node.children:
            if child.name == "CTERelationDef":
                self._ctes[int(child.fields["id"])] = child
            else:
                body = child
        return self._read(body)

    def _read_cterelationref(self, node: Node) -> _Part:
        if node.fields.get("recursive") or int(node.fields["cteId"]) not in self._ctes:
            raise self._text.refusal(OPERATORS["UnionLoop"])
        outside = dict(self._meaning)
        part = self._read(self._ctes[int(node.fields["cteId"])])
        attributes = [_attribute(read_tree(item)) for item in node.fields["output"]]
        meanings = [self._meaning[at] for _, at in part.attributes]
        # The definition's own ids are those of its first reference, so another reading must not touch them.
        self._set({**outside, **{at: meaning for (_, at), meaning in zip(attributes, meanings, strict=True)}})
        return _Part(attributes, part.draft)

    def _read_view(self, node: Node) -> _Part:
        stream = self._streams.get(str(node.fields["desc"]["identifier"]["table"]).lower())
        if stream is None or node.children[0].children:
            raise self._text.no_stream()
        leg = len(self._named)
        if leg == MOST_LEGS:
            message = f"a join of more than {MOST_LEGS} sources is not supported"
            raise self._text.unsupported(
                message, f"join at most {MOST_LEGS} streams", f"JOIN {stream.name}", "JOIN", "FROM"
            )
        time = Column(leg_column(leg, stream.time), stream.field(stream.time).type)
        self._named.append(Named(stream.name, stream, time))
        attributes = [_attribute(read_tree(item)) for item in node.children[0].fields["output"]]
        for column, at in attributes:
            self._meaning[at] = Column(leg_column(leg, column), stream.field(column).type)
        return _Part(attributes, Source(leg))

    def _read_join(self, node: Node) -> _Part:
        kind = _JOINS.get(str(node.fields["joinType"].get("object", "")).rsplit(".", 1)[-1].rstrip("$"))
        if kind is None:
            raise self._text.unsupported(
                "this kind of join is not supported", f"use one of {', '.join(_JOINS)}", "JOIN"
            )
        outside = dict(self._meaning)
        left, left_meaning = self._side(node.children[0], outside)
        right, right_meaning = self._side(node.children[1], outside)
        self._set({**outside, **left_meaning, **right_meaning})
        joined = Joined(kind, left.draft, right.draft)
        self._special.draft = Joined("inner", left.draft, right.draft)
        if node.fields.get("condition"):
            joined.on += conjuncts(self._expression(read_tree(node.fields["condition"])))
        self._null_unmatched(joined, "left", left)
        self._null_unmatched(joined, "right", right)
        visible = left.attributes if kind in ("semi", "anti") else left.attributes + right.attributes
        return _Part(visible, joined)

    def _side(self, node: Node, outside: dict[int, Expression]) -> tuple[_Part, dict[int, Expression]]:
        """One side of a join, read alone: both may use the same ids inside."""
        self._set(dict(outside))
        part = self._read(node)
        if self._grouping is not None:
            raise self._text.refusal(BELOW_JOIN)
        return part, {at: self._meaning[at] for _, at in part.attributes}

    def _null_unmatched(self, joined: Joined, side: str, part: _Part) -> None:
        if side in UNMATCHED[joined.kind]:
            times = {leg: one.time for leg, one in enumerate(self._named)}
            for _, at in part.attributes:
                self._meaning[at] = unmatched_to_null(self._meaning[at], part.draft, joined, times)

    def _read_project(self, node: Node) -> _Part:
        part = self._read(node.children[0])
        items = [read_tree(item) for item in node.fields["projectList"]]
        meanings = [self._window_of(item) or self._expression(item) for item in items]
        attributes = [_attribute(item) for item in items]
        self._meaning.update((at, meaning) for (_, at), meaning in zip(attributes, meanings, strict=True))
        return _Part(attributes, part.draft)

    def _read_filter(self, node: Node) -> _Part:
        part = self._read(node.children[0])
        condition = self._expression(read_tree(node.fields["condition"]))
        if self._ranking is not None:
            self._ranking, having = limited(self._ranking, condition, self._text)
            self._having += having
        elif self._grouping is not None:
            self._having.append(condition)
        else:
            part.draft.above.append(condition)
        return part

    def _read_aggregate(self, node: Node) -> _Part:
        part = self._read(node.children[0])
        grouping = self._group(part, [self._expression(read_tree(item)) for item in node.fields["groupingExpressions"]])
        items = [read_tree(item) for item in node.fields["aggregateExpressions"]]
        meanings = [grouping.result(item, self._expression, self._special.meaning) for item in items]
        attributes = [_attribute(item) for item in items]
        self._set({at: meaning for (_, at), meaning in zip(attributes, meanings, strict=True)})
        self._grouping = grouping
        return _Part(attributes, part.draft)

    def _group(self, part: _Part, expressions: Sequence[Expression]) -> Grouping:
        if self._grouping is not None:
            raise self._text.refusal(NESTED)
        grouping = Grouping(self._text, part.draft, self._named)
        grouping.enter(expressions)
        return grouping

    def _read_distinct(self, node: Node) -> _Part:
        part = self._read(node.children[0])
        expressions = [self._meaning[at] for _, at in part.attributes]
        if self._grouping is not None or not any(map(self._special.is_window, expressions)):
            raise self._text.refusal(OPERATORS["Distinct"])
        grouping = self._group(part, expressions)
        self._set({at: grouping.distinct(self._meaning[at]) for _, at in part.attributes})
        self._grouping = grouping
        return part

    def _read_window(self, node: Node) -> _Part:
        part = self._read(node.children[0])
        if self._grouping is None:
            raise self._text.refusal(OPERATORS["Window"])
        if self._ranking is not None:
            raise not_a_ranking(self._text)
        ranked = read_ranking(node, self._expression, self._text)
        self._ranking = ranked.ranking
        self._meaning[ranked.at] = rank_column()
        return _Part([*part.attributes, Attribute(ranked.name, ranked.at)], part.draft)

    # Expressions.

    def _set(self, meaning: dict[int, Expression]) -> None:
        self._meaning = self._special.columns = meaning

    def _expression(self, node: Node) -> Expression:
        """An expression over what the attributes below this operator stand for."""
        return to_expression(node, self._special.meaning)

    def _window_of(self, item: Node) -> Call | None:
        """The window of a source, when this is the projection that Spark computes it with."""
        node = _window_time(item) if item.name == "Alias" else None
        if node is None:
            return None
        time = self._expression(node)
        if self._grouping is not None:
            raise self._text.refusal(NESTED)
        leg = min(legs_of(time), default=0)
        if time != self._named[leg].time:
            column = leg_of(time.name)[1] if isinstance(time, Column) else None
            raise self._text.bad_window(self._named[leg].stream, column)
        if leg in self._windowed:
            raise self._text.refusal(NESTED if len(self._named) == 1 else SECOND_WINDOW)
        self._windowed.add(leg)
        return leg_window(leg, time.type)


def _attribute(node: Node) -> Attribute:
    return Attribute(str(node.fields["name"]), int(node.fields["exprId"]["id"]))


def _window_time(node: Node) -> Node | None:
    """The event-time expression inside Spark's computation of a window; nothing else uses this conversion."""
    if node.name == "PreciseTimestampConversion" and node.fields.get("toType") == "long":
        return node.children[0]
    return next((found for child in node.children if (found := _window_time(child))), None)
