"""LIKE, ILIKE and RLIKE with literal patterns."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.model.expression import Call, Literal
from millstream.model.types import BOOLEAN, STRING, DataType
from millstream.sql.functions import casing
from millstream.sql.functions.literals import text
from millstream.sql.functions.regex import to_re2
from millstream.sql.functions.table import Function, add

_ESCAPE = "\\"


def _pattern(call: Call) -> str | None:
    pattern = call.args[1]
    return pattern.value if isinstance(pattern, Literal) and isinstance(pattern.value, str) else None


def valid_like(pattern: str, escape: str) -> bool:
    r"""Spark lets the escape character stand only before ``%``, ``_`` and itself, and never at the end.

    >>> valid_like(r"a\%b", "\\"), valid_like(r"a\b", "\\")
    (True, False)
    """
    index = 0
    while index < len(pattern):
        if pattern[index] == escape:
            if pattern[index + 1 : index + 2] not in ("%", "_", escape) or index + 1 == len(pattern):
                return False
            index += 1
        index += 1
    return True


def _like_type(call: Call) -> DataType | None:
    pattern = _pattern(call)
    if call.args[0].type != STRING or pattern is None:
        return None
    return BOOLEAN if valid_like(pattern, call.option("escape", _ESCAPE)) else None


def _like(call: Call, args: Sequence[str]) -> str:
    return f"{args[0]} LIKE {args[1]} ESCAPE {text(call.option('escape', _ESCAPE))}"


def _ilike(call: Call, args: Sequence[str]) -> str:
    escape = text(call.option("escape", _ESCAPE))
    return f"{casing.lower(args[0])} LIKE {casing.lower(args[1])} ESCAPE {escape}"


def _rlike_type(call: Call) -> DataType | None:
    pattern = _pattern(call)
    known = pattern is not None and to_re2(pattern) is not None
    return BOOLEAN if known and call.args[0].type == STRING else None


def _rlike(call: Call, args: Sequence[str]) -> str:
    return f"regexp_matches({args[0]}, {text(to_re2(_pattern(call) or '') or '')})"


def _enter() -> None:
    like = "matches a literal pattern of % and _; the escape character stands before %, _ or itself"
    add(Function("Like", ("like",), like, _like_type, _like))
    add(Function("ILike", ("ilike",), f"{like}; upper and lower case are the same", _like_type, _ilike))
    about = "contains a match of a literal regular expression of characters, classes, groups, |, repetition, ^ and $"
    add(Function("RLike", ("rlike", "regexp", "regexp_like"), about, _rlike_type, _rlike))


_enter()
