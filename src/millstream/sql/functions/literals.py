"""Constants and identifiers as DuckDB SQL."""

from __future__ import annotations

import math
import re

from millstream.model.expression import Literal, Value

# DuckDB's range of timestamps, in microseconds; Spark's reaches a few hours further on both sides.
TIMESTAMP_MIN = -9_223_372_022_400_000_000
TIMESTAMP_MAX = 9_223_372_036_854_775_806


def identifier(name: str) -> str:
    """A quoted identifier.

    >>> identifier('a "b"')
    '"a ""b\"""'
    """
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """A string constant; NUL, which DuckDB's parser does not take, and the marks of templates are joined in.

    >>> text("it's"), text("a\\0b")
    ("'it''s'", "('a' || chr(0) || 'b')")
    """
    parts = re.split("([\0\x01\x02])", value)
    quoted = [f"chr({ord(part)})" if i % 2 else "'" + part.replace("'", "''") + "'" for i, part in enumerate(parts)]
    return quoted[0] if len(quoted) == 1 else f"({' || '.join(quoted)})"


def constant(literal: Literal) -> str:
    """SQL of exactly the literal's DuckDB type."""
    kind, value = literal.type.kind, literal.value
    if value is None:
        return f"CAST(NULL AS {literal.type.duck})"
    if kind == "boolean":
        return "TRUE" if value else "FALSE"
    if kind == "string":
        return text(str(value))
    if isinstance(value, bytes):
        return f"unhex('{value.hex()}')"
    if kind == "date":
        return f"make_date(CAST({value} AS INTEGER))"
    if kind in ("timestamp", "timestamp_ntz"):
        return f"make_timestamp(CAST({value} AS BIGINT))"
    return f"CAST('{_number(value)}' AS {literal.type.duck})"


def _number(value: Value) -> str:
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        return repr(value)
    return str(value)
