"""Branches: CASE, IF, COALESCE and their kin; Spark evaluates only the branch it takes."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.model.expression import Call
from millstream.model.types import BOOLEAN, DataType
from millstream.sql.functions.logic import comparable
from millstream.sql.functions.table import Function, Template, add, eager


def _one_type(values: Sequence[DataType]) -> DataType | None:
    return values[0] if values and all(value == values[0] for value in values) else None


def _if_type(call: Call) -> DataType | None:
    condition, *branches = (arg.type for arg in call.args)
    return _one_type(branches) if condition == BOOLEAN else None


def _if(call: Call, args: Sequence[str]) -> str:
    return f"CASE WHEN {args[0]} THEN {args[1]} ELSE {args[2]} END"


def _if_guard(call: Call, args: Sequence[str], index: int) -> str | None:
    return (None, f"({args[0]}) IS TRUE", f"({args[0]}) IS NOT TRUE")[index]


def _case_type(call: Call) -> DataType | None:
    count = len(call.args) // 2 * 2
    if any(arg.type != BOOLEAN for arg in call.args[0:count:2]):
        return None
    return _one_type([arg.type for arg in (*call.args[1:count:2], *call.args[count:])])


def _case(call: Call, args: Sequence[str]) -> str:
    count = len(args) // 2 * 2
    whens = " ".join(f"WHEN {args[i]} THEN {args[i + 1]}" for i in range(0, count, 2))
    return f"CASE {whens}{f' ELSE {args[count]}' if count < len(args) else ''} END"


def _case_guard(call: Call, args: Sequence[str], index: int) -> str | None:
    count = len(args) // 2 * 2
    before = [f"({args[i]}) IS NOT TRUE" for i in range(0, min(index // 2 * 2, count), 2)]
    if index < count and index % 2:
        before.append(f"({args[index - 1]}) IS TRUE")
    return " AND ".join(before) or None


def _same_type(call: Call) -> DataType | None:
    return _one_type([arg.type for arg in call.args])


def _coalesce_guard(call: Call, args: Sequence[str], index: int) -> str | None:
    return " AND ".join(f"({arg}) IS NULL" for arg in args[:index]) or None


def _null_if_type(call: Call) -> DataType | None:
    return call.args[1].type if call.args[0].type == BOOLEAN else None


def _null_if(call: Call, args: Sequence[str]) -> str:
    return f"CASE WHEN {args[0]} THEN NULL ELSE {args[1]} END"


def _nanvl_type(call: Call) -> DataType | None:
    type_ = _same_type(call)
    return type_ if type_ and type_.floating else None


def _nanvl_guard(call: Call, args: Sequence[str], index: int) -> str | None:
    return f"isnan({args[0]}) IS TRUE" if index else None


def _ordered_type(call: Call) -> DataType | None:
    type_ = _same_type(call)
    return type_ if type_ and comparable(type_) and type_.kind not in ("void", "binary") else None


def _extreme(function: str) -> Template:
    def template(call: Call, args: Sequence[str]) -> str:
        if call.type.kind == "float":
            # DuckDB loses the sign of a FLOAT zero here, not that of a DOUBLE.
            return f"CAST({function}({', '.join(f'CAST({arg} AS DOUBLE)' for arg in args)}) AS FLOAT)"
        return f"{function}({', '.join(args)})"

    return template


def _enter() -> None:
    add(Function("If", ("if", "iff", "nvl2"), "one of two values by a condition", _if_type, _if, guard=_if_guard))
    add(
        Function(
            "CaseWhen", ("case", "decode"), "the value of the first true branch", _case_type, _case, guard=_case_guard
        )
    )
    first = "the first value that is not NULL"
    names = ("coalesce", "nvl", "ifnull", "zeroifnull")
    add(
        Function(
            "Coalesce", names, first, _same_type, lambda _, args: f"coalesce({', '.join(args)})", guard=_coalesce_guard
        )
    )
    missing = "NULL when two values are equal, else the first"
    add(Function("NullIfResult", ("nullif",), missing, _null_if_type, _null_if, guard=eager))
    add(
        Function(
            "NaNvl",
            ("nanvl",),
            "the second value where the first is NaN",
            _nanvl_type,
            lambda _, args: f"CASE WHEN isnan({args[0]}) THEN {args[1]} ELSE {args[0]} END",
            guard=_nanvl_guard,
        )
    )
    largest, smallest = "the largest value, NULLs left out", "the smallest value, NULLs left out"
    add(Function("Greatest", ("greatest",), largest, _ordered_type, _extreme("greatest"), guard=eager))
    add(Function("Least", ("least",), smallest, _ordered_type, _extreme("least"), guard=eager))


_enter()
