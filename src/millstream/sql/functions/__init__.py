"""Spark's scalar functions in DuckDB: a table that is proved against Spark, entry by entry."""

from __future__ import annotations

from millstream.sql.functions import (  # noqa: F401  (each module enters its functions into the table)
    arithmetic,
    casts,
    conditional,
    datetimes,
    intervals,
    logic,
    numeric,
    patterns,
    strings,
)
from millstream.sql.functions.render import Program, can_fail, failures, translate
from millstream.sql.functions.table import (
    UNTYPED,
    check,
    known,
    pretty,
    supported,
    typed,
    unsupported_function,
)

__all__ = [
    "UNTYPED",
    "Program",
    "can_fail",
    "check",
    "failures",
    "known",
    "pretty",
    "supported",
    "translate",
    "typed",
    "unsupported_function",
]
