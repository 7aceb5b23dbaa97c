"""GROUP BY: the keys beside the window, and what stands above the aggregation in terms of its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.errors import SqlError
from millstream.model.expression import Column, Expression, Literal, columns
from millstream.model.join import leg_of
from millstream.model.query import WINDOW_END, WINDOW_START, key_column
from millstream.model.types import TIMESTAMP, DataType
from millstream.sql.aggregates import Aggregates
from millstream.sql.catalyst import Node, to_expression
from millstream.sql.drafts import Draft, Source, always, patterns
from millstream.sql.joins import Named
from millstream.sql.leg_windows import of_window, of_windows_only, over_groups, start_of, window_of
from millstream.sql.matching import canonical
from millstream.sql.text import Text

_WINDOW = frozenset([WINDOW_START, WINDOW_END])

Read = Callable[[Node], Expression]
Meaning = Callable[[Node], Expression | None]


class Grouping:
    """The grouping of a query over the rows of ``draft``: ``keys`` over columns named by leg, and ``result`` for
    expressions over ``#k…``, ``#a…``, ``#start`` and ``#end``."""

    def __init__(self, text: Text, draft: Draft, named: Sequence[Named]) -> None:
        self._text = text
        self._draft = draft
        self._named = named
        self._matches: dict[Expression, Column] = {}
        self._kind: DataType = TIMESTAMP
        self.keys: dict[Expression, int] = {}
        self.aggregates = Aggregates(text.sql, text.tokens)

    def enter(self, grouping: Sequence[Expression]) -> None:
        """Take the grouping expressions."""
        windows = [(expression, found) for expression in grouping if (found := window_of(expression))]
        if not windows:
            raise self._no_window(grouping)
        for _, found in windows:
            if not self._always(found.legs):
                raise self._window_can_be_null(found.legs)
        self._kind = start_of(windows[0][0]).type
        for expression in grouping:
            self._enter_key(expression)
        self._matches = {canonical(key): Column(key_column(at), key.type) for key, at in self.keys.items()}

    def _enter_key(self, expression: Expression) -> None:
        if of_window(expression):
            if not columns(self.over_groups(expression)) <= _WINDOW:
                message = "grouping by an expression of the window and other columns is not supported"
                raise self._text.unsupported(message, "group by the window and the columns", "GROUP BY")
        elif not isinstance(expression, Literal):
            self.keys.setdefault(expression, len(self.keys))

    def over_groups(self, expression: Expression) -> Expression:
        return over_groups(expression, self._kind, self._always)

    def _always(self, legs: tuple[int, ...]) -> bool:
        return always(self._draft, legs)

    def distinct(self, expression: Expression) -> Expression:
        """A grouping expression itself, above the aggregation."""
        if isinstance(expression, Literal):
            return expression
        return self._matches.get(canonical(expression)) or self.over_groups(expression)

    def result(self, item: Node, read: Read, plain: Meaning) -> Expression:
        """An expression over the results; ``read`` gives it over the rows, ``plain`` what is special about a node."""

        def argument(node: Node) -> Expression:
            return self._argument(read(node))

        def meaning(node: Node) -> Expression | None:
            if node.name == "Alias":
                return None
            if node.name == "AggregateExpression":
                return self.aggregates.column(node, argument)
            if not contains(node, "AggregateExpression") and _closed(node):
                whole = read(node)
                match = self._matches.get(canonical(whole))
                if match is not None:
                    return match
                if of_windows_only(whole):
                    return self.over_groups(whole)
            if node.name == "AttributeReference":
                name = str(node.fields["name"])
                message = f"{name} is used otherwise than in GROUP BY"
                raise self._text.unsupported(message, "write the expression exactly as in GROUP BY", name)
            return plain(node)

        return to_expression(item, meaning)

    def _argument(self, expression: Expression) -> Expression:
        if of_window(expression):
            message = "an aggregate of the window is not supported"
            hint = "select window.start or window.end itself"
            raise self._text.unsupported(message, hint, "window", "GROUP BY")
        return expression

    def _no_window(self, grouping: Sequence[Expression]) -> SqlError:
        names = [self._name(key) if isinstance(key, Column) else "…" for key in grouping]
        if isinstance(self._draft, Source):
            return self._text.no_window(", ".join([*names, f"window({self._named[0].stream.time}, '10 seconds')"]))
        windows = [f"the window column of {one.alias}" for one in self._named[:1]]
        return self._text.no_window(", ".join([*names, *windows]))

    def _name(self, column: Column) -> str:
        leg, name = leg_of(column.name)
        return name if isinstance(self._draft, Source) else f"{self._named[leg].alias}.{name}"

    def _window_can_be_null(self, legs: tuple[int, ...]) -> SqlError:
        one = self._named[legs[0]].alias
        message = f"the window of {one} is NULL in rows that the outer join leaves without {one}"
        common = sorted(frozenset.intersection(*patterns(self._draft)))
        if common:
            hint = f"grouping by it would mix windows: group by the window of {self._named[common[0]].alias}"
        else:
            hint = "grouping by it would mix windows: group by the coalesce of the windows, which USING (w) gives as w"
        return self._text.error("NO_WINDOW", message, hint, "GROUP BY", "SELECT DISTINCT")


def contains(node: Node, name: str) -> bool:
    return node.name == name or any(contains(child, name) for child in node.children)


def _closed(node: Node) -> bool:
    """Whether the expression can be read alone: references to a common expression need the WITH node around them."""
    return not contains(node, "CommonExpressionRef") or contains(node, "With")
