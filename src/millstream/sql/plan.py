"""From Spark's analysed plan to a logical query.

The plan is read from the bottom up. Each attribute stands for an expression over the stream's columns, so that
subqueries in FROM, common table expressions and lateral aliases dissolve. Above the aggregation, attributes stand
for expressions over its results: ``#k…`` for keys, ``#a…`` for aggregates, ``#start`` and ``#end`` for the window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from millstream.errors import Position, SqlError
from millstream.model.expression import Call, Column, Expression, Literal, columns
from millstream.model.query import WINDOW_END, WINDOW_START, LogicalQuery, Output, WindowSpec, key_column
from millstream.model.stream import Stream
from millstream.model.types import BOOLEAN, DataType
from millstream.sql.aggregates import Aggregates
from millstream.sql.catalyst import Node, read_tree, to_expression
from millstream.sql.constructs import (
    KEYWORDS,
    LOOSE_WINDOW,
    NESTED,
    NONDETERMINISTIC,
    OPERATORS,
    SUBQUERIES,
    SUBQUERY,
    WHERE_WINDOW,
    unsupported,
)
from millstream.sql.functions import check
from millstream.sql.matching import canonical
from millstream.sql.tokens import Token, locate
from millstream.sql.windows import WindowCall

# Operators that give their input's rows unchanged.
_TRANSPARENT = frozenset(["SubqueryAlias", "PipeOperator", "ResolvedHint", "UnresolvedHint", "CTERelationDef"])
_WINDOW_COLUMNS = frozenset([WINDOW_START, WINDOW_END])

# A column of an operator's output: its name and its id in the plan.
Attribute = tuple[str, int]


def read_plan(
    root: Node,
    sql: str,
    tokens: Sequence[Token],
    calls: Sequence[WindowCall],
    spec: WindowSpec | None,
    streams: Mapping[str, Stream],
) -> LogicalQuery:
    """The logical query of an analysed plan.

    :raises SqlError: for everything that Spark runs and Millstream does not, with the place in ``sql``.
    """
    for construct in KEYWORDS:
        if locate(tokens, *construct.phrases):
            raise construct.refusal(sql, tokens)
    reader = _Reader(sql, tokens, calls, streams)
    try:
        return reader.query(root, spec)
    except SqlError as error:
        raise _positioned(error, sql, tokens) from None


def _positioned(error: SqlError, sql: str, tokens: Sequence[Token]) -> SqlError:
    """Errors about functions come from their table, which knows no text: point at the first call of that name."""
    if error.position is not None:
        return error
    words = error.message.replace("(", " ").split()
    name = words[2] if words[:2] == ["the", "function"] else words[0]
    found = locate(tokens, f"{name} (", name)
    position = Position.of(sql, *found) if found else None
    return SqlError(error.code, error.message, hint=error.hint, detail=error.detail, position=position, text=sql)


class _Reader:
    """Reads one plan. ``_meaning`` maps the ids of visible attributes to expressions."""

    def __init__(
        self, sql: str, tokens: Sequence[Token], calls: Sequence[WindowCall], streams: Mapping[str, Stream]
    ) -> None:
        self._sql = sql
        self._tokens = tokens
        self._calls = calls
        self._streams = {name.lower(): stream for name, stream in streams.items()}
        self._stream: Stream | None = None
        self._ctes: dict[int, Node] = {}
        self._meaning: dict[int, Expression] = {}
        self._window: Call | None = None
        self._where: list[Expression] = []
        self._having: list[Expression] = []
        self._keys: dict[Expression, int] = {}
        self._matches: dict[Expression, Column] = {}
        self._aggregates = Aggregates(sql, tokens)
        self._aggregated = False

    def query(self, root: Node, spec: WindowSpec | None) -> LogicalQuery:
        attributes = self._read(root)
        outputs = tuple(Output(name, self._meaning[at]) for name, at in attributes)
        if self._stream is None:
            raise self._no_stream()
        if not self._aggregated and any(self._of_window(output.expression) for output in outputs):
            raise LOOSE_WINDOW.refusal(self._sql, self._tokens)
        query = LogicalQuery(
            sql=self._sql,
            stream=self._stream.name,
            where=_all(self._where),
            window=spec if self._aggregated else None,
            keys=tuple(self._keys),
            aggregates=tuple(self._aggregates.found),
            having=_all(self._having),
            outputs=outputs,
        )
        check_query(query)
        return query

    # Operators.

    def _read(self, node: Node) -> list[Attribute]:
        if node.name in _TRANSPARENT:
            return self._read(node.children[0])
        reader = getattr(self, f"_read_{node.name.lower()}", None)
        if reader is not None:
            found: list[Attribute] = reader(node)
            return found
        if node.name in OPERATORS:
            raise OPERATORS[node.name].refusal(self._sql, self._tokens)
        if not node.children:
            raise self._no_stream()
        raise unsupported(self._sql, self._tokens, f"the operator {node.name} is not supported", _ONLY_SELECT)

    def _read_withcte(self, node: Node) -> list[Attribute]:
        body = node.children[-1]
        for child in node.children:
            if child.name == "CTERelationDef":
                self._ctes[int(child.fields["id"])] = child
            else:
                body = child
        return self._read(body)

    def _read_cterelationref(self, node: Node) -> list[Attribute]:
        if node.fields.get("recursive") or int(node.fields["cteId"]) not in self._ctes:
            raise OPERATORS["UnionLoop"].refusal(self._sql, self._tokens)
        inner = self._read(self._ctes[int(node.fields["cteId"])])
        attributes = [_attribute(read_tree(item)) for item in node.fields["output"]]
        for (_, outer_id), (_, inner_id) in zip(attributes, inner, strict=True):
            self._meaning[outer_id] = self._meaning[inner_id]
        return attributes

    def _read_view(self, node: Node) -> list[Attribute]:
        name = str(node.fields["desc"]["identifier"]["table"])
        stream = self._streams.get(name.lower())
        if stream is None or node.children[0].children:
            raise self._no_stream()
        self._stream = stream
        attributes = [_attribute(read_tree(item)) for item in node.children[0].fields["output"]]
        for column, at in attributes:
            self._meaning[at] = Column(column, stream.field(column).type)
        return attributes

    def _read_project(self, node: Node) -> list[Attribute]:
        self._read(node.children[0])
        items = [read_tree(item) for item in node.fields["projectList"]]
        meanings = [self._window_of(item) or self._expression(item) for item in items]
        attributes = [_attribute(item) for item in items]
        self._meaning.update((at, meaning) for (_, at), meaning in zip(attributes, meanings, strict=True))
        return attributes

    def _read_filter(self, node: Node) -> list[Attribute]:
        attributes = self._read(node.children[0])
        condition = self._expression(read_tree(node.fields["condition"]))
        if self._aggregated:
            self._having.append(condition)
        elif self._of_window(condition):
            raise WHERE_WINDOW.refusal(self._sql, self._tokens)
        elif not self._is_time_check(condition):
            self._where.append(condition)
        return attributes

    def _is_time_check(self, condition: Expression) -> bool:
        """Spark puts ``time IS NOT NULL`` under each window; rows without event time never get here."""
        return isinstance(condition, Call) and condition.op == "IsNotNull" and condition.args == (self._time(),)

    def _read_aggregate(self, node: Node) -> list[Attribute]:
        self._read(node.children[0])
        if self._aggregated:
            raise NESTED.refusal(self._sql, self._tokens)
        items = [read_tree(item) for item in node.fields["aggregateExpressions"]]
        grouping = [read_tree(item) for item in node.fields["groupingExpressions"]]
        self._group([self._expression(item) for item in grouping])
        meanings = [self._result(item) for item in items]
        attributes = [_attribute(item) for item in items]
        self._meaning = {at: meaning for (_, at), meaning in zip(attributes, meanings, strict=True)}
        self._aggregated = True
        return attributes

    def _group(self, grouping: Sequence[Expression]) -> None:
        if not any(self._is_window(expression) for expression in grouping):
            raise self._no_window(grouping)
        for expression in grouping:
            if not self._of_window(expression):
                if not isinstance(expression, Literal):
                    self._keys.setdefault(expression, len(self._keys))
            elif not columns(expression) <= _WINDOW_COLUMNS:
                message = "grouping by an expression of the window and other columns is not supported"
                raise unsupported(self._sql, self._tokens, message, "group by the window and the columns", "GROUP BY")
        self._matches = {canonical(key): Column(key_column(at), key.type) for key, at in self._keys.items()}

    # Expressions.

    def _expression(self, node: Node) -> Expression:
        """An expression over what the attributes below this operator stand for."""
        return to_expression(node, self._plain)

    def _plain(self, node: Node) -> Expression | None:
        if node.name == "AttributeReference":
            return self._meaning[_id(node)]
        if node.name == "GetStructField":
            whole = self._expression(node.children[0])
            if isinstance(whole, Call) and whole.op == "Window":
                return whole.args[int(node.fields["ordinal"])]
        construct = SUBQUERY if node.name in SUBQUERIES else NONDETERMINISTIC.get(node.name)
        if construct:
            raise construct.refusal(self._sql, self._tokens)
        return None

    def _result(self, item: Node) -> Expression:
        """An expression over the results of the aggregation."""

        def meaning(node: Node) -> Expression | None:
            if node.name == "Alias":
                return None
            if node.name == "AggregateExpression":
                return self._aggregates.column(node, self._argument)
            if not _contains(node, "AggregateExpression") and _closed(node):
                whole = self._expression(node)
                match = self._matches.get(canonical(whole))
                if match is not None or columns(whole) <= _WINDOW_COLUMNS:
                    return match or whole
            if node.name == "AttributeReference":
                message = f"{node.fields['name']} is used otherwise than in GROUP BY"
                hint = "write the expression exactly as in GROUP BY"
                raise unsupported(self._sql, self._tokens, message, hint, str(node.fields["name"]))
            return self._plain(node)

        return to_expression(item, meaning)

    def _argument(self, node: Node) -> Expression:
        expression = self._expression(node)
        if self._of_window(expression):
            message = "an aggregate of the window is not supported"
            raise unsupported(self._sql, self._tokens, message, "select window.start or window.end itself", "window")
        return expression

    # The window.

    def _time(self) -> Column:
        assert self._stream is not None
        return Column(self._stream.time, self._stream.field(self._stream.time).type)

    def _window_of(self, item: Node) -> Expression | None:
        """The window, when this is the projection that Spark computes it with."""
        time = _window_time(item) if item.name == "Alias" else None
        if time is None:
            return None
        if self._expression(time) != self._time():
            raise self._bad_window()
        if self._window is not None or self._aggregated:
            raise NESTED.refusal(self._sql, self._tokens)
        kind = self._time().type
        whole = DataType("window" if kind.kind == "timestamp" else "window_ntz")
        self._window = Call("Window", (Column(WINDOW_START, kind), Column(WINDOW_END, kind)), whole)
        return self._window

    def _is_window(self, expression: Expression) -> bool:
        """Whether grouping by the expression is grouping by the window: start or end tell which window it is."""
        return self._window is not None and (expression == self._window or expression in self._window.args)

    def _of_window(self, expression: Expression) -> bool:
        return self._window is not None and not columns(expression).isdisjoint(_WINDOW_COLUMNS)

    # Errors.

    def _bad_window(self) -> SqlError:
        place = self._calls[0].arguments[0] if self._calls else None
        stream = self._stream
        assert stream is not None
        written = self._sql[place.start : place.stop] if place else "the column"
        message = f"the window is over {written}, not over the event time of {stream.name}"
        hint = f"the event-time column of {stream.name} is {stream.time}: write window({stream.time}, …)"
        position = Position.of(self._sql, place.start, place.stop) if place else None
        return SqlError("BAD_WINDOW", message, hint=hint, position=position, text=self._sql)

    def _no_window(self, grouping: Sequence[Expression]) -> SqlError:
        time = self._time().name
        names = [key.name if isinstance(key, Column) else "…" for key in grouping]
        form = ", ".join([*names, f"window({time}, '10 seconds')"])
        found = locate(self._tokens, "GROUP BY", "count (", "sum (", "avg (", "min (", "max (", "HAVING", "SELECT")
        position = Position.of(self._sql, *found) if found else None
        message = "an aggregation over a stream needs a window"
        return SqlError("NO_WINDOW", message, hint=f"write GROUP BY {form}", position=position, text=self._sql)

    def _no_stream(self) -> SqlError:
        found = locate(self._tokens, "FROM", "VALUES", "SELECT")
        names = ", ".join(sorted(stream.name for stream in self._streams.values())) or "none yet"
        return SqlError(
            "UNKNOWN_STREAM",
            "the query does not read a stream",
            hint=f"streams: {names}",
            position=Position.of(self._sql, *found) if found else None,
            text=self._sql,
        )


_ONLY_SELECT = "write SELECT … FROM stream WHERE … GROUP BY keys, window(…) HAVING …"


def query_expressions(query: LogicalQuery) -> list[Expression]:
    """All expressions of a query."""
    arguments = [aggregate.argument for aggregate in query.aggregates]
    outputs = [output.expression for output in query.outputs]
    return [e for e in (query.where, *query.keys, *arguments, query.having, *outputs) if e is not None]


def check_query(query: LogicalQuery) -> None:
    """Refuse a query with an expression that is not in the verified table."""
    for expression in query_expressions(query):
        check(expression)


def _all(conditions: Sequence[Expression]) -> Expression | None:
    if not conditions:
        return None
    return reduce(lambda one, two: Call("And", (one, two), BOOLEAN), conditions)


def _id(node: Node) -> int:
    return int(node.fields["exprId"]["id"])


def _attribute(node: Node) -> Attribute:
    return str(node.fields["name"]), _id(node)


def _contains(node: Node, name: str) -> bool:
    return node.name == name or any(_contains(child, name) for child in node.children)


def _closed(node: Node) -> bool:
    """Whether the expression can be read alone: references to a common expression need the WITH node around them."""
    return not _contains(node, "CommonExpressionRef") or _contains(node, "With")


def _window_time(node: Node) -> Node | None:
    """The event-time expression inside Spark's computation of a window; nothing else uses this conversion."""
    if node.name == "PreciseTimestampConversion" and node.fields.get("toType") == "long":
        return node.children[0]
    return next((found for child in node.children if (found := _window_time(child))), None)
