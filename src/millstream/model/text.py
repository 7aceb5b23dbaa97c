"""Expressions as people write them, for explanations."""

from __future__ import annotations

from collections.abc import Callable

from millstream.model.expression import Column, Expression, Literal
from millstream.model.query import WindowSpec

_SIGNS = {
    "EqualTo": "=", "EqualNullSafe": "<=>", "LessThan": "<", "LessThanOrEqual": "<=", "GreaterThan": ">",
    "GreaterThanOrEqual": ">=", "And": "AND", "Or": "OR", "Add": "+", "Subtract": "-", "Multiply": "*", "Divide": "/",
    "Remainder": "%",
}  # fmt: skip


def written(expression: Expression, name: Callable[[str], str] = str) -> str:
    """The expression as SQL-like text; ``name`` says how columns are called.

    >>> from millstream.model.types import LONG
    >>> written(Column("price", LONG))
    'price'
    """
    if isinstance(expression, Column):
        return name(expression.name)
    if isinstance(expression, Literal):
        return repr(expression.value) if isinstance(expression.value, str) else str(expression.value)
    parts = [written(argument, name) for argument in expression.args]
    if expression.op in _SIGNS and len(parts) == 2:
        return f"{parts[0]} {_SIGNS[expression.op]} {parts[1]}"
    if expression.op == "Cast":
        return f"cast({parts[0]} AS {expression.type})"
    return f"{expression.op.lower()}({', '.join(parts)})"


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
