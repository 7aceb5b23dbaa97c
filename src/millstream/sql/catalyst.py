"""Spark's analysed trees: from the JSON that Catalyst writes to typed expressions.

The analysed tree is the source of truth for names, types and coercions: every implicit cast is a ``Cast`` node. Two
things are missing in the JSON, the escape character of LIKE and whether a cast is a try_cast; :func:`restore` brings
them back from the JVM's own tree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from millstream.errors import SqlError
from millstream.model.expression import Call, Expression, Literal, Value
from millstream.model.types import INTEGER, DataType, parse_type
from millstream.sql import functions

ColumnOf = Callable[["Node"], Expression | None]

_MICROS_PER_DAY = 86_400_000_000
_EPOCH = date(1970, 1, 1).toordinal()

# Nodes that say nothing about the value.
_TRANSPARENT = ("Alias", "KnownNotNull", "KnownNullable", "TaggingExpression")
# Spark writes try_add(…) as a node with the plain operator below it.
_TRY = {
    "Add": "TryAdd",
    "Subtract": "TrySubtract",
    "Multiply": "TryMultiply",
    "Divide": "TryDivide",
    "Remainder": "TryMod",
}
_TRY_NODES = tuple(_TRY.values())
# Of these the result depends on when or where they run; no table can hold them.
_NOT_REPEATABLE = (
    "CurrentDate",
    "CurrentTimestamp",
    "Now",
    "LocalTimestamp",
    "Rand",
    "Randn",
    "Uuid",
    "MonotonicallyIncreasingID",
)
_PARSERS = {"ParseToDate": "date", "ParseToTimestamp": "timestamp"}


@dataclass(frozen=True)
class Node:
    """A plan or expression of Catalyst; ``name`` is its simple class name."""

    name: str
    fields: Mapping[str, Any]
    children: tuple[Node, ...] = ()


def read_tree(items: Sequence[Mapping[str, Any]]) -> Node:
    """Build the tree of a pre-order list.

    >>> tree = read_tree([{"class": "a.b.Not", "num-children": 1}, {"class": "a.b.Literal", "num-children": 0}])
    >>> tree.name, tree.children[0].name
    ('Not', 'Literal')
    """
    position = 0

    def node() -> Node:
        nonlocal position
        item = items[position]
        position += 1
        children = tuple(node() for _ in range(item["num-children"]))
        name = str(item["class"]).rsplit(".", 1)[-1].rstrip("$")
        return Node(name, {k: v for k, v in item.items() if k not in ("class", "num-children")}, children)

    return node()


def restore(node: Node, java: Any) -> Node:
    """Add what the JSON of an expression lacks, from the same expression in the JVM (a Py4J object).

    Only worth the calls when the query's text has ``try_cast`` or ``escape`` in it.
    """
    below = java.children()
    children = tuple(restore(child, below.apply(index)) for index, child in enumerate(node.children))
    fields = dict(node.fields)
    if node.name == "Cast":
        fields["evalMode"] = java.evalMode().toString()
    elif node.name in ("Like", "ILike"):
        fields["escapeChar"] = str(java.escapeChar())
    return Node(node.name, fields, children)


def to_expression(node: Node, column: ColumnOf) -> Expression:
    """The typed expression of an analysed tree.

    ``column`` is asked first about every node; what it gives is taken. Operators that are not in the verified table for
    their argument types are refused.
    """
    return _Reader(column).read(node)


class _Reader:
    """Methods ``_read_X`` read the nodes of class X that need more than their children."""

    def __init__(self, column: ColumnOf) -> None:
        self._column = column
        # The definitions that CommonExpressionRef stands for, innermost last. Their ids are not in the JSON.
        self._common: list[Expression] = []

    def read(self, node: Node) -> Expression:
        known = self._column(node)
        if known is not None:
            return known
        if node.name == "Literal":
            return literal(node)
        if node.name in _TRANSPARENT:
            return self.read(node.children[0])
        special = getattr(self, f"_read_{node.name}", None)
        if special is not None:
            return special(node)  # type: ignore[no-any-return]
        if node.name in _TRY_NODES:
            return self._try(node)
        if "replacement" in node.fields and len(node.children) == 1:
            return self.read(node.children[0])
        return self._call(node, node.children)

    def _call(self, node: Node, children: Sequence[Node], *options: tuple[str, str]) -> Expression:
        if node.name in _NOT_REPEATABLE:
            hint = "use the stream's event time, or a literal"
            raise SqlError(
                "UNSUPPORTED", f"the function {functions.pretty(node.name)} gives other values every time", hint=hint
            )
        if not functions.known(node.name):
            raise functions.unsupported_function(node.name)
        args = tuple(self.read(child) for child in children)
        return functions.typed(Call(node.name, args, functions.UNTYPED, options))

    def _try(self, node: Node) -> Expression:
        inner = self.read(node.children[0])
        if isinstance(inner, Call) and inner.op in _TRY:
            return functions.typed(replace(inner, op=_TRY[inner.op]))
        raise SqlError("UNSUPPORTED", f"{functions.pretty(node.name)} is supported for numbers only")

    def _read_Cast(self, node: Node) -> Expression:
        argument, target = self.read(node.children[0]), _type(node.fields["dataType"])
        return _cast("TryCast" if node.fields.get("evalMode") == "TRY" else "Cast", argument, target)

    def _parse(self, node: Node) -> Expression:
        if len(node.children) > 1:
            raise SqlError(
                "UNSUPPORTED",
                f"{functions.pretty(_PARSERS[node.name])} with a format is not supported",
                hint="write dates as yyyy-MM-dd and leave the format out",
            )
        argument = self.read(node.children[0])
        target = _type(node.fields.get("dataType") or _PARSERS[node.name])
        fails = node.fields.get("ansiEnabled", node.fields.get("failOnError", True))
        return _cast("Cast" if fails else "TryCast", argument, target)

    _read_ParseToDate = _parse
    _read_ParseToTimestamp = _parse

    def _like(self, node: Node) -> Expression:
        escape = node.fields.get("escapeChar") or "\\"
        options = [("escape", str(escape))] if escape != "\\" else []
        return self._call(node, node.children, *options)

    _read_Like = _like
    _read_ILike = _like

    def _read_With(self, node: Node) -> Expression:
        body, *definitions = node.children
        if len(definitions) != 1:
            raise functions.unsupported_function("With", "this combination of functions")
        self._common.append(self.read(definitions[0].children[0]))
        try:
            return self.read(body)
        finally:
            self._common.pop()

    def _read_CommonExpressionRef(self, node: Node) -> Expression:
        return self._common[-1]

    def _read_UnixTimestamp(self, node: Node) -> Expression:
        return self._call(node, node.children[:1])

    _read_ToUnixTimestamp = _read_UnixTimestamp

    def _unit(self, node: Node) -> Expression:
        return self._call(node, node.children, ("unit", str(node.fields["unit"]).upper()))

    _read_TimestampAdd = _unit
    _read_TimestampDiff = _unit

    def _read_TimestampAddInterval(self, node: Node) -> Expression:
        return self._call(node, node.children[:1], ("micros", str(_interval(node.children[1]))))

    def _months(self, node: Node) -> Expression:
        return self._call(node, node.children[:1], ("months", str(_interval(node.children[1]))))

    _read_DateAddYMInterval = _months
    _read_TimestampAddYMInterval = _months

    def _read_ExtractANSIIntervalDays(self, node: Node) -> Expression:
        micros = _interval(node.children[0])
        days = abs(micros) // _MICROS_PER_DAY
        return Literal(days if micros >= 0 else -days, INTEGER)


def _cast(op: str, argument: Expression, target: DataType) -> Expression:
    if argument.type == target:
        return argument
    # Only NULL is folded: the front end finds the other literals of a text again by their value.
    if isinstance(argument, Literal) and argument.value is None:
        return Literal(None, target)
    return functions.typed(Call(op, (argument,), target))


def _interval(node: Node) -> int:
    """The microseconds or months of a literal interval, its sign folded in."""
    if node.name == "UnaryMinus":
        return -_interval(node.children[0])
    if node.name == "Literal" and node.fields["value"] is not None:
        return int(node.fields["value"])
    raise SqlError("UNSUPPORTED", "an interval that is no literal is not supported", hint="write INTERVAL '1' DAY")


def _type(spark_json: object) -> DataType:
    try:
        return parse_type(spark_json)
    except ValueError as error:
        raise SqlError("UNSUPPORTED", f"the type is not supported: {error}") from None


def literal(node: Node) -> Literal:
    """The constant of a ``Literal`` node, whose value Spark writes as text.

    >>> literal(Node("Literal", {"value": "1970-01-02", "dataType": "date"})).value
    1
    """
    raw = node.fields["dataType"]
    if isinstance(raw, str) and raw.startswith("interval"):
        raise SqlError("UNSUPPORTED", "an interval as a value is not supported", hint="add it to a date or timestamp")
    type_ = _type(raw)
    text = node.fields["value"]
    return Literal(None if text is None else _value(str(text), type_), type_)


def _value(text: str, type_: DataType) -> Value:
    kind = type_.kind
    if kind == "boolean":
        return text == "true"
    if kind in ("float", "double"):
        return float(text.replace("Infinity", "inf").replace("NaN", "nan"))
    if kind == "decimal":
        return f"{Decimal(text):.{type_.scale}f}"
    if kind == "string":
        return text
    if kind == "date":
        return _days(text)
    if kind == "timestamp" and not re.fullmatch(r"-?\d+", text):
        return _micros(text)
    if kind == "binary":
        raise SqlError("UNSUPPORTED", "a literal of type binary is not supported", hint="write encode('…', 'utf-8')")
    return int(text)


def _days(text: str) -> int:
    try:
        return date.fromisoformat(text).toordinal() - _EPOCH
    except ValueError:
        raise SqlError("UNSUPPORTED", f"the date {text} lies outside the years 0001 to 9999") from None


def _micros(text: str) -> int:
    day, _, clock = text.partition(" ")
    moment = datetime.fromisoformat(f"1970-01-01 {clock.partition('.')[0]}")
    seconds = moment.hour * 3600 + moment.minute * 60 + moment.second
    fraction = clock.partition(".")[2].ljust(6, "0")
    return _days(day) * _MICROS_PER_DAY + seconds * 1_000_000 + int(fraction)
