"""What one query, and all queries of one owner, may take. Whoever exceeds a limit is stopped, or refused, alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings of the same names; workers get them with their tasks."""

    # Expressions over a chunk of some hundred thousand rows need a fraction of this.
    evaluation_memory: int = 1 << 30
    # Microseconds of processor time for an expression over 250,000 rows, or the rests of a fire: milliseconds as a
    # rule. Everybody waits so long for an offender that a trial on a few rows does not find out.
    evaluation_time: int = 5_000_000
    # Bytes that a worker process may take beside what it starts with; a fire keeps up to 768 MB between fires.
    worker_memory: int = 8 << 30
    # Above this a condition takes Spark's analyzer and our tables seconds, not milliseconds.
    query_predicates: int = 2_000
    # Some hundred MB of partials for a window of one query.
    query_groups: int = 10_000_000
    # Answers of joins are counted, not built, so they may be long.
    query_answer_rows: int = 1_000_000_000
    query_state_bytes: int = 16 << 30
    owner_queries: int = 10_000
    owner_predicates: int = 1_000_000
    owner_groups: int = 100_000_000
    owner_answer_rows: int = 10_000_000_000
    owner_state_bytes: int = 64 << 30


def over(setting: str, what: str, amount: int, limit: int, unit: str) -> str:
    """Why a query is stopped or refused, in one line.

    >>> over("query_groups", "a window", 12, 10, "groups")
    'LIMIT_EXCEEDED: a window has 12 groups, more than the 10 of the setting query_groups'
    """
    return f"LIMIT_EXCEEDED: {excess(setting, what, amount, limit, unit)}"


def excess(setting: str, what: str, amount: int, limit: int, unit: str) -> str:
    return f"{what} has {amount} {unit}, more than the {limit} of the setting {setting}"
