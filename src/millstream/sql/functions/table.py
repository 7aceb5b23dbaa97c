"""The verified table: which Catalyst operators run, for which argument types, and what they are in DuckDB.

An entry is there only for argument types that the tests prove against Spark over edge values.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from millstream.errors import SqlError
from millstream.model.expression import Call, Column, Expression, Literal, walk
from millstream.model.types import DataType

# The type of a call that is being built, before its result type is known.
UNTYPED = DataType("void")


@dataclass(frozen=True, slots=True)
class Let:
    """SQL that is computed once and used by name in the rest: DuckDB shares nothing inside CASE."""

    value: str
    body: Callable[[str], str | Let]


# Classes outside the table whose names do not tell the function.
_NAMES = {
    "BitwiseCount": "bit_count",
    "CreateArray": "array",
    "CreateMap": "map",
    "CreateNamedStruct": "struct",
    "FromUnixTime": "from_unixtime",
    "LikeAll": "like all",
    "LikeAny": "like any",
    "Murmur3Hash": "hash",
    "RegExpExtract": "regexp_extract",
    "RegExpReplace": "regexp_replace",
    "ShiftLeft": "shiftleft",
    "ShiftRight": "shiftright",
    "SoundEx": "soundex",
    "StringSpace": "space",
    "StringSplit": "split",
    "ToDegrees": "degrees",
    "ToRadians": "radians",
    "XxHash64": "xxhash64",
}

Template = Callable[[Call, Sequence[str]], "str | Let"]


def never(call: Call) -> bool:
    return False


def always(call: Call) -> bool:
    return True


def after_previous(call: Call, args: Sequence[str], index: int) -> str | None:
    """Spark's null-safe operators evaluate an argument only when those before it are not NULL."""
    return " AND ".join(f"({arg}) IS NOT NULL" for arg in args[:index]) or None


def eager(call: Call, args: Sequence[str], index: int) -> str | None:
    """Every argument is evaluated on every row."""
    return None


def strict_failure(call: Call, args: Sequence[str], value: str) -> str:
    """The operator has failed where it gives NULL for arguments that are all there."""
    return " AND ".join([f"({value}) IS NULL", *(f"({arg}) IS NOT NULL" for arg in args)])


@dataclass(frozen=True, slots=True)
class Function:
    """One operator of the table.

    ``result`` gives Spark's result type, or None when the argument types (or literals) are not in the table; casts find
    the wanted type in ``call.type``. ``template`` gives DuckDB SQL of exactly ``call.type.duck`` from the SQL of the
    arguments; it never raises in DuckDB, and is NULL where Spark fails. ``fallible`` says whether Spark can fail,
    ``failure`` on which rows it does, ``guard`` under which condition an argument is evaluated at all.
    """

    op: str
    names: tuple[str, ...]
    about: str
    result: Callable[[Call], DataType | None]
    template: Template
    fallible: Callable[[Call], bool] = never
    failure: Callable[[Call, Sequence[str], str], str] = strict_failure
    guard: Callable[[Call, Sequence[str], int], str | None] = after_previous


_TABLE: dict[str, Function] = {}


def add(function: Function) -> None:
    """Enter a function; each operator has one entry."""
    assert function.op not in _TABLE, function.op
    _TABLE[function.op] = function


def lookup(op: str) -> Function | None:
    return _TABLE.get(op)


def known(op: str) -> bool:
    """Whether the table has the operator for some argument types."""
    return op in _TABLE


def supported() -> list[tuple[str, str, str]]:
    """The rows (SQL name, Catalyst operator, description) of the table, by SQL name."""
    return sorted((name, f.op, f.about) for f in _TABLE.values() for name in f.names)


def typed(call: Call) -> Call:
    """The call with Spark's result type; refused when the table does not hold it for these arguments."""
    function = _TABLE.get(call.op)
    if function is None:
        raise unsupported_function(call.op)
    result = function.result(call)
    if result is None:
        raise unsupported_arguments(function, call)
    return call if result == call.type else Call(call.op, call.args, result, call.options)


def check(expression: Expression) -> None:
    """Refuse an expression of which some operator is not in the table for its argument types."""
    for node in walk(expression):
        if isinstance(node, Call) and typed(node).type != node.type:
            raise SqlError("UNSUPPORTED", f"{pretty(node.op)} gives {typed(node).type} in Spark, not {node.type}")


def sql_name(op: str) -> str:
    """The function of a Catalyst class that is not in the table, as users write it.

    >>> sql_name("RegExpReplace"), sql_name("ToDegrees")
    ('regexp_replace', 'degrees')
    """
    return _NAMES.get(op) or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", op).lower()


def pretty(op: str) -> str:
    """The operator as users write it."""
    function = _TABLE.get(op)
    return function.names[0] if function else sql_name(op)


def unsupported_function(op: str, written: str | None = None) -> SqlError:
    """The error for an operator that is not in the table; ``written`` is its name in the user's text, when known."""
    name = written or sql_name(op)
    names = sorted({n for f in _TABLE.values() for n in f.names if n[0].isalpha()})
    near = difflib.get_close_matches(name, names, n=5, cutoff=0.5) or names[:0]
    hint = f"near supported functions: {', '.join(near)}" if near else "the SQL reference lists the supported functions"
    return SqlError("UNSUPPORTED", f"the function {name} is not supported", hint=hint)


def unsupported_arguments(function: Function, call: Call) -> SqlError:
    shown = ", ".join(_describe(arg) for arg in call.args)
    if call.op in ("Cast", "TryCast"):
        source = call.args[0]
        what = f"of {source.value!r}" if isinstance(source, Literal) else f"from {source.type}"
        message = f"{function.names[0]} {what} to {call.type} is not supported"
    else:
        message = f"{function.names[0]} is not supported for ({shown})"
    return SqlError("UNSUPPORTED", message, hint=f"{function.names[0]}: {function.about}")


def _describe(expression: Expression) -> str:
    if isinstance(expression, Literal) and expression.type.kind in ("string", "integer"):
        return repr(expression.value)
    if isinstance(expression, Column):
        return f"{expression.name} {expression.type}"
    return str(expression.type)
