"""Expressions as people write them, for explanations."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from millstream.model.expression import Call, Column, Expression, Literal
from millstream.model.query import WindowSpec
from millstream.model.types import DATE, TIMESTAMP, TIMESTAMP_NTZ, DataType

# Sign and how strongly it binds.
_SIGNS = {
    "Or": ("OR", 1), "And": ("AND", 2), "EqualTo": ("=", 4), "EqualNullSafe": ("<=>", 4), "LessThan": ("<", 4),
    "LessThanOrEqual": ("<=", 4), "GreaterThan": (">", 4), "GreaterThanOrEqual": (">=", 4), "Add": ("+", 5),
    "Subtract": ("-", 5), "Multiply": ("*", 6), "Divide": ("/", 6), "Remainder": ("%", 6),
}  # fmt: skip
_NOT, _IS = 3, 4
_AFTER = {"IsNull": "IS NULL", "IsNotNull": "IS NOT NULL"}
_WHOLE = 9


def written(expression: Expression, name: Callable[[str], str] = str) -> str:
    """The expression as SQL-like text; ``name`` says how columns are called.

    >>> from millstream.model.types import BOOLEAN, INTEGER, LONG
    >>> price = Column("price", LONG)
    >>> cheap = Call("LessThan", (price, Call("Cast", (Literal(9, INTEGER),), LONG)), BOOLEAN)
    >>> none = Call("IsNull", (price,), BOOLEAN)
    >>> written(Call("And", (Call("Or", (cheap, none), BOOLEAN), Call("Not", (none,), BOOLEAN)), BOOLEAN))
    '(price < 9 OR price IS NULL) AND NOT price IS NULL'
    """
    return _written(expression, name)[0]


def _written(expression: Expression, name: Callable[[str], str]) -> tuple[str, int]:
    """The text, and how strongly its outermost sign binds."""
    if isinstance(expression, Column):
        return name(expression.name), _WHOLE
    if isinstance(expression, Literal):
        return _literal(expression), _WHOLE
    parts = [_written(argument, name) for argument in expression.args]
    if expression.op in _SIGNS and len(parts) == 2:
        sign, strength = _SIGNS[expression.op]
        # The right side of a - b binds more strongly, unless the order does not matter.
        right = strength if expression.op in ("And", "Or", "Add", "Multiply") else strength + 1
        return f"{_inside(parts[0], strength)} {sign} {_inside(parts[1], right)}", strength
    if expression.op == "Not":
        return f"NOT {_inside(parts[0], _NOT)}", _NOT
    if expression.op in _AFTER:
        return f"{_inside(parts[0], _IS + 1)} {_AFTER[expression.op]}", _IS
    if expression.op == "In" and len(parts) > 1:
        listed = ", ".join(text for text, _ in parts[1:])
        return f"{_inside(parts[0], _IS + 1)} IN ({listed})", _IS
    return _call(expression, [text for text, _ in parts]), _WHOLE


def _inside(part: tuple[str, int], strength: int) -> str:
    return part[0] if part[1] >= strength else f"({part[0]})"


def _call(expression: Call, parts: list[str]) -> str:
    if expression.op == "Cast":
        # A cast of a literal is Spark's, not the user's.
        literal = isinstance(expression.args[0], Literal)
        return parts[0] if literal else f"cast({parts[0]} AS {expression.type})"
    return f"{expression.op.lower()}({', '.join(parts)})"


def _literal(literal: Literal) -> str:
    """
    >>> from millstream.model.types import STRING, decimal
    >>> [_literal(one) for one in (Literal("it's", STRING), Literal("1.50", decimal(3, 2)), Literal(0, TIMESTAMP))]
    ["'it''s'", '1.50', "'1970-01-01 00:00:00'"]
    """
    value, kind = literal.value, literal.type
    if value is None or isinstance(value, bool):
        return "NULL" if value is None else str(value).upper()
    if isinstance(value, str) and kind.kind != "decimal":
        quoted = value.replace("'", "''")
        return f"'{quoted}'"
    if isinstance(value, int) and kind in (DATE, TIMESTAMP, TIMESTAMP_NTZ):
        return _moment(value, kind)
    return str(value)


def _moment(value: int, kind: DataType) -> str:
    since = timedelta(days=value) if kind == DATE else timedelta(microseconds=value)
    try:
        shown = str(datetime(1970, 1, 1) + since)
    except OverflowError:
        # Spark's calendar is longer than Python's.
        return str(value)
    return f"'{shown.split()[0] if kind == DATE else shown}'"


def duration(micros: int) -> str:
    """
    >>> duration(8_000_000), duration(1_500)
    ('8 s', '1.5 ms')
    """
    for unit, size in (("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000)):
        if micros % size == 0:
            return f"{micros // size} {unit}"
    return f"{micros / 1000:g} ms"


def window_text(window: WindowSpec) -> str:
    if window.slide == window.size:
        return f"windows of {duration(window.size)}"
    return f"windows of {duration(window.size)} every {duration(window.slide)}"
