"""Upper and lower case as Java has them, where DuckDB's simple case mapping differs."""

from __future__ import annotations


def upper(a: str) -> str:
    return f"upper({a})"


def lower(a: str) -> str:
    return f"lower({a})"
