"""Aggregate calls: from Spark's tree to ``model.query.Aggregate``, each different one once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import reduce

from millstream.errors import SqlError
from millstream.model.expression import Call, Column, Expression, Literal
from millstream.model.query import Aggregate, aggregate_column
from millstream.model.types import BOOLEAN, DOUBLE, INTEGER, LONG, DataType, decimal
from millstream.sql.catalyst import Node
from millstream.sql.constructs import AGGREGATE_NAMES, unsupported
from millstream.sql.tokens import Token

# By the class in Spark; the last three are the same as a standard one of a Boolean.
FUNCTIONS = {"Count": "count", "Sum": "sum", "Min": "min", "Max": "max", "Average": "avg"}
BOOLEAN_FUNCTIONS = {"CountIf": "count", "BoolAnd": "min", "BoolOr": "max"}

DECIMAL_DIGITS = 38
# How many digits Spark adds to a decimal: for ten thousand million summands, and for the fraction of an average.
SUM_DIGITS = 10
AVERAGE_DIGITS = 4

_ONE = Literal(1, INTEGER)
_HINT = "the aggregates are count, sum, min, max, avg, count_if, bool_and and bool_or"


def result_type(function: str, argument: DataType) -> DataType | None:
    """Spark's type of an aggregate, None where Spark takes types that Millstream does not.

    >>> str(result_type("sum", decimal(10, 2))), str(result_type("avg", decimal(10, 2)))
    ('decimal(20,2)', 'decimal(14,6)')
    """
    if function == "count":
        return LONG
    if argument.kind in ("window", "window_ntz", "void"):
        return None
    if function in ("min", "max"):
        return argument
    if argument.kind == "decimal":
        if function == "sum":
            return decimal(min(argument.precision + SUM_DIGITS, DECIMAL_DIGITS), argument.scale)
        precision = min(argument.precision + AVERAGE_DIGITS, DECIMAL_DIGITS)
        return decimal(precision, min(argument.scale + AVERAGE_DIGITS, DECIMAL_DIGITS))
    if argument.integral:
        return LONG if function == "sum" else DOUBLE
    return DOUBLE if argument.floating else None


class Aggregates:
    """The aggregates of one query, in order of appearance."""

    def __init__(self, sql: str, tokens: Sequence[Token]) -> None:
        self._sql = sql
        self._tokens = tokens
        self.found: dict[Aggregate, int] = {}

    def column(self, node: Node, argument: Callable[[Node], Expression]) -> Expression:
        """The column that stands for an AggregateExpression; ``argument`` reads an expression below it."""
        call, *filters = node.children
        if node.fields.get("isDistinct"):
            raise self._refused(call, "DISTINCT in an aggregate is not supported", "DISTINCT")
        name = FUNCTIONS.get(call.name) or BOOLEAN_FUNCTIONS.get(call.name)
        if name is None:
            raise self._refused(call, f"the aggregate {_names(call.name)[0]} is not supported")
        condition = argument(filters[0]) if filters else None
        values = [argument(child) for child in call.children]
        if call.name == "CountIf":
            return self._enter("count", _when(_both(condition, values[0]), _ONE), LONG)
        if name == "count":
            return self._count(condition, values)
        return self._value(call, name, condition, values[0])

    def _count(self, condition: Expression | None, values: Sequence[Expression]) -> Expression:
        if any(isinstance(value, Literal) and value.value is None for value in values):
            return Literal(0, LONG)
        nullable = [value for value in values if not isinstance(value, Literal)]
        if len(nullable) == 1 and condition is None:
            return self._enter("count", nullable[0], LONG)
        tests = [Call("IsNotNull", (value,), BOOLEAN) for value in nullable]
        condition = reduce(_both, tests, condition)
        return self._enter("count", None if condition is None else _when(condition, _ONE), LONG)

    def _value(self, call: Node, name: str, condition: Expression | None, value: Expression) -> Expression:
        result = result_type(name, value.type)
        if result is None:
            raise self._refused(call, f"{name} of {value.type} is not supported")
        return self._enter(name, value if condition is None else _when(condition, value), result)

    def _enter(self, function: str, argument: Expression | None, result: DataType) -> Column:
        at = self.found.setdefault(Aggregate(function, argument, result), len(self.found))
        return Column(aggregate_column(at), result)

    def _refused(self, call: Node, message: str, *phrases: str) -> SqlError:
        names = [f"{name} (" for name in _names(call.name)]
        return unsupported(self._sql, self._tokens, message, _HINT, *phrases, *names)


def _both(one: Expression | None, two: Expression) -> Expression:
    return two if one is None else Call("And", (one, two), BOOLEAN)


def _when(condition: Expression, value: Expression) -> Expression:
    return Call("If", (condition, value, Literal(None, value.type)), value.type)


def _names(op: str) -> tuple[str, ...]:
    """The SQL names of an aggregate's class, likeliest first."""
    if op in FUNCTIONS:
        return (FUNCTIONS[op], f"try_{FUNCTIONS[op]}", "mean")
    return AGGREGATE_NAMES.get(op) or (re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", op).lower(),)
