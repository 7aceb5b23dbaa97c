"""Casts of literals, done before anything is evaluated.

Spark writes ``price > 10`` as a comparison with ``CAST(10 AS DECIMAL(10,2))``. Folded, such a cast cannot fail any
more, and is not counted on every row. What is not plainly exact is left to DuckDB.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from decimal import ROUND_HALF_UP, Context, Decimal

from millstream.model.expression import Call, Expression, Literal, Value
from millstream.model.types import DataType

_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_TIMES = ("timestamp", "timestamp_ntz")
_EPOCH = date(1970, 1, 1).toordinal()
_DAY = 86_400_000_000
# Wide enough that no decimal of Spark's is rounded on the way.
_CONTEXT = Context(prec=100)

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T]([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.(\d{1,6}))?)?)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?", re.ASCII)


def folded(expression: Expression) -> Expression:
    """The expression with the casts of its literals done."""
    if not isinstance(expression, Call):
        return expression
    args = tuple(folded(argument) for argument in expression.args)
    if expression.op in ("Cast", "TryCast") and isinstance(args[0], Literal):
        literal = fold_cast(args[0], expression.type)
        if literal is not None:
            return literal
    return expression if args == expression.args else replace(expression, args=args)


def fold_cast(literal: Literal, target: DataType) -> Literal | None:
    """The literal in the wanted type; None when the cast fails or is not folded.

    >>> from millstream.model.types import DATE, INTEGER, STRING, decimal
    >>> fold_cast(Literal("1970-01-02", STRING), DATE).value
    1
    >>> fold_cast(Literal(10, INTEGER), decimal(10, 2)).value
    '10.00'
    """
    if literal.value is None:
        return Literal(None, target)
    source = literal.type.kind
    value: Value = None
    if literal.type.integral:
        value = _from_integer(int(literal.value), target)
    elif source == "decimal":
        value = _from_decimal(Decimal(str(literal.value)), target)
    elif source == "string":
        value = _from_text(str(literal.value), target)
    elif source == "date" and target.kind in _TIMES:
        value = int(literal.value) * _DAY
    elif source in _TIMES and target.kind in _TIMES:
        value = literal.value
    return None if value is None else Literal(value, target)


def _from_integer(value: int, target: DataType) -> Value:
    if target.kind in _BITS:
        limit = 1 << (_BITS[target.kind] - 1)
        return value if -limit <= value < limit else None
    if target.kind == "double":
        return float(value)
    if target.kind == "string":
        return str(value)
    return _from_decimal(Decimal(value), target) if target.kind == "decimal" else None


def _from_decimal(value: Decimal, target: DataType) -> Value:
    if target.kind == "double":
        return float(value)
    if target.kind != "decimal":
        return None
    rounded = value.quantize(Decimal(1).scaleb(-target.scale), rounding=ROUND_HALF_UP, context=_CONTEXT)
    fits = abs(rounded) < Decimal(10) ** (target.precision - target.scale)
    # A negative zero is no decimal in Spark.
    return f"{rounded if rounded else abs(rounded):f}" if fits else None


def _from_text(value: str, target: DataType) -> Value:
    if target.kind == "date":
        return _days(value) if _DATE.fullmatch(value) else None
    if target.kind in _TIMES:
        return _micros(value)
    if target.kind in _BITS:
        return _from_integer(int(value), target) if _INTEGER.fullmatch(value) else None
    if target.kind == "double":
        return float(value) if _NUMBER.fullmatch(value) else None
    if target.kind == "decimal":
        return _from_decimal(Decimal(value), target) if _NUMBER.fullmatch(value) and len(value) < 40 else None
    return None


def _days(value: str) -> int | None:
    try:
        return date.fromisoformat(value).toordinal() - _EPOCH
    except ValueError:
        return None


def _micros(value: str) -> int | None:
    match = _TIMESTAMP.fullmatch(value)
    days = _days(match[1]) if match else None
    if match is None or days is None:
        return None
    hours, minutes, seconds = (int(part or 0) for part in match.group(2, 3, 4))
    return days * _DAY + ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + int((match[5] or "0").ljust(6, "0"))
