"""Comparisons, three-valued logic, tests for NULL and NaN. NaN equals itself and is the largest number."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.model.expression import Call
from millstream.model.types import BOOLEAN, DataType
from millstream.sql.functions.table import Function, Template, add, eager

_COMPARABLE = ("boolean", "string", "binary", "date", "timestamp", "timestamp_ntz", "decimal", "void")


def comparable(type_: DataType) -> bool:
    return type_.integral or type_.floating or type_.kind in _COMPARABLE


def _comparison_type(call: Call) -> DataType | None:
    first = call.args[0].type
    return BOOLEAN if comparable(first) and all(arg.type == first for arg in call.args) else None


def _infix(sign: str) -> Template:
    return lambda call, args: f"{args[0]} {sign} {args[1]}"


def _boolean_type(call: Call) -> DataType | None:
    return BOOLEAN if all(arg.type == BOOLEAN for arg in call.args) else None


def _unless_false(call: Call, args: Sequence[str], index: int) -> str | None:
    return f"({args[0]}) IS DISTINCT FROM FALSE" if index else None


def _unless_true(call: Call, args: Sequence[str], index: int) -> str | None:
    return f"({args[0]}) IS DISTINCT FROM TRUE" if index else None


def _any_type(call: Call) -> DataType | None:
    return BOOLEAN


def _floating_type(call: Call) -> DataType | None:
    return BOOLEAN if call.args[0].type.floating else None


def _in(call: Call, args: Sequence[str]) -> str:
    return f"{args[0]} IN ({', '.join(args[1:])})"


def _in_guard(call: Call, args: Sequence[str], index: int) -> str | None:
    """The list is evaluated for values that are there, up to the first item that is equal."""
    if index == 0:
        return None
    different = [f"({args[0]} = {arg}) IS NOT TRUE" for arg in args[1:index]]
    return " AND ".join([f"({args[0]}) IS NOT NULL", *different])


def _enter() -> None:
    comparisons = [
        ("EqualTo", ("=", "=="), "="),
        ("LessThan", ("<",), "<"),
        ("LessThanOrEqual", ("<=",), "<="),
        ("GreaterThan", (">",), ">"),
        ("GreaterThanOrEqual", (">=",), ">="),
    ]
    for op, names, sign in comparisons:
        add(Function(op, names, "comparison of two values of one type", _comparison_type, _infix(sign)))
    null_safe = "equality in which NULL equals NULL"
    same = _infix("IS NOT DISTINCT FROM")
    add(Function("EqualNullSafe", ("<=>", "equal_null"), null_safe, _comparison_type, same, guard=eager))
    add(Function("In", ("in",), "equal to some item of a list", _comparison_type, _in, guard=_in_guard))
    add(Function("And", ("and",), "three-valued conjunction", _boolean_type, _infix("AND"), guard=_unless_false))
    add(Function("Or", ("or",), "three-valued disjunction", _boolean_type, _infix("OR"), guard=_unless_true))
    add(Function("Not", ("not", "!"), "three-valued negation", _boolean_type, lambda _, args: f"NOT {args[0]}"))
    add(
        Function(
            "IsNull", ("is null", "isnull"), "is the value missing", _any_type, lambda _, args: f"{args[0]} IS NULL"
        )
    )
    there = "is the value there"
    add(Function("IsNotNull", ("is not null", "isnotnull"), there, _any_type, lambda _, args: f"{args[0]} IS NOT NULL"))
    nan = "is the floating-point value NaN; false for NULL"
    add(Function("IsNaN", ("isnan",), nan, _floating_type, lambda _, args: f"coalesce(isnan({args[0]}), FALSE)"))


_enter()
