"""Typed scalar expressions: what Spark's analyzer made of the user's text, with every coercion explicit.

``op`` is the simple class name of the Catalyst expression (``Add``, ``Cast``, ``Like`` …). Which of them run, and
how, is the business of the verified table in ``millstream.sql.functions``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from millstream.model.types import DataType

# int: integers, days since 1970 for dates, microseconds since 1970 for timestamps; Decimal values as str.
Value = int | float | str | bytes | bool | None


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: DataType


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. Decimals are kept as their plain text (``"-1.50"``), so that equality and JSON are exact."""

    value: Value
    type: DataType


@dataclass(frozen=True, slots=True)
class Call:
    op: str
    args: tuple[Expression, ...]
    type: DataType
    options: tuple[tuple[str, str], ...] = ()

    def option(self, name: str, default: str = "") -> str:
        return dict(self.options).get(name, default)


Expression = Column | Literal | Call


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and all below it, parents first."""
    yield expression
    if isinstance(expression, Call):
        for argument in expression.args:
            yield from walk(argument)


def columns(expression: Expression) -> set[str]:
    return {node.name for node in walk(expression) if isinstance(node, Column)}


def conjuncts(condition: Expression | None) -> Iterator[Expression]:
    """The parts that must all be TRUE for a condition to be TRUE; none without a condition."""
    if isinstance(condition, Call) and condition.op == "And":
        for part in condition.args:
            yield from conjuncts(part)
    elif condition is not None:
        yield condition


def rewrite(expression: Expression, change: Callable[[Expression], Expression | None]) -> Expression:
    """Replace nodes from the top: where ``change`` gives an expression it is taken as it is, else its arguments are
    visited."""
    changed = change(expression)
    if changed is not None:
        return changed
    if isinstance(expression, Call):
        return replace(expression, args=tuple(rewrite(a, change) for a in expression.args))
    return expression
