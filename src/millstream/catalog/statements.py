"""Statements over many rows at once, in the sizes and shapes that both databases take well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Dialect, Update, bindparam, update
from sqlalchemy.sql.compiler import SQLCompiler

from millstream.catalog import tables as t
from millstream.catalog.database import Transaction
from millstream.model.legs import query_of_member

# Well below SQLite's 32766 and PostgreSQL's 65535 parameters of one statement.
CHUNK = 1000

_ADD_COUNTERS = (
    update(t.queries)
    .where(t.queries.c.id == bindparam("at_id"))
    .values(
        windows=t.queries.c.windows + bindparam("more_windows"),
        answer_rows=t.queries.c.answer_rows + bindparam("more_rows"),
        late_rows=t.queries.c.late_rows + bindparam("more_late"),
        failures=t.queries.c.failures + bindparam("more_failures"),
    )
)

_MORE = ("more_windows", "more_rows", "more_late", "more_failures", "at_id")


def chunks(values: Sequence[str]) -> Iterator[Sequence[str]]:
    """Pieces that fit an IN list; nothing for an empty sequence.

    >>> list(chunks([]))
    []
    """
    for start in range(0, len(values), CHUNK):
        yield values[start : start + CHUNK]


def add_counters(
    tx: Transaction,
    *,
    windows: Mapping[str, int] | None = None,
    rows: Mapping[str, int] | None = None,
    late: Mapping[str, int] | None = None,
    failures: Mapping[str, int] | None = None,
) -> None:
    """Add to the counters of the queries named; a query that was forgotten meanwhile is passed over. What is counted on
    a leg counts on its join."""
    counters = [_by_query(counter or {}) for counter in (windows, rows, late, failures)]
    ids = {id for counter in counters for id, count in counter.items() if count}
    _run_many(tx, _ADD_COUNTERS, _MORE, [(*(c.get(id, 0) for c in counters), id) for id in sorted(ids)])


def _by_query(counter: Mapping[str, int]) -> Mapping[str, int]:
    total: dict[str, int] = {}
    for member, count in counter.items():
        query = query_of_member(member)
        total[query] = total.get(query, 0) + count
    return total


def _run_many(tx: Transaction, statement: Update, names: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> None:
    """Run the statement for each row of plain values, handed to the driver as they are.

    SQLAlchemy looks at each parameter of each row, which for a thousand rows takes longer than the database does.
    """
    if not rows:
        return
    compiled = _compiled(statement, tx.connection.dialect)
    if compiled.positiontup is None:
        tx.connection.exec_driver_sql(str(compiled), [dict(zip(names, row, strict=True)) for row in rows])
        return
    order = [names.index(name) for name in compiled.positiontup]
    placed = list(rows) if order == sorted(order) else [tuple(row[place] for place in order) for row in rows]
    tx.connection.exec_driver_sql(str(compiled), placed)


@lru_cache(maxsize=16)
def _compiled(statement: Update, dialect: Dialect) -> SQLCompiler:
    compiled = statement.compile(dialect=dialect)
    assert isinstance(compiled, SQLCompiler)
    return compiled
