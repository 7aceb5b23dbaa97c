"""Queries that are gone stay in the metastore for a while: no batch, fire or seal may go through all of them.

SQLite says how it will find the rows of a statement; no Spark, and no time is measured.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from .inprocess import COPIES, PURCHASES, Small, count, pairs, sums

# All rows of a table that grows with history, or all of those on one stream.
SLOW = re.compile(r"SCAN millstream_(queries|legs|definitions)|millstream_(queries|legs)\b.*\((stream|name)=\?\)$")


def test_no_step_goes_through_the_queries_that_are_gone(home: Path, tmp_path: Path) -> None:
    small = Small(home, tmp_path / "in", PURCHASES, COPIES)
    slow: set[str] = set()
    looking = False

    def look(connection: Any, cursor: Any, statement: str, values: Any, context: Any, many: bool) -> None:
        if looking and statement.split(None, 1)[0] in ("SELECT", "UPDATE", "DELETE", "INSERT"):
            one = values[0] if many else values
            for *_, how in cursor.connection.execute(f"EXPLAIN QUERY PLAN {statement}", one).fetchall():
                if SLOW.search(how):
                    slow.add(f"{how}: {statement}")

    database = small.core.metastore._database._pool
    event.listen(database, "before_cursor_execute", look)
    for number in range(6):
        # The tables are small at first, so nothing is said about the first round.
        looking = number > 0
        for id in ("sum", "count", "slow"):
            small.create(
                f"{id}-{number}", count() if id == "count" else sums(above=number, size=4 if id == "slow" else 2)
            )
        small.create(f"pairs-{number}", pairs())
        small.batch(number)
        small.batch(number, COPIES)
        small.core.fire_all()
        small.core.enforce_limits()
        if number:
            gone = [f"{id}-{number - 1}" for id in ("sum", "count", "slow", "pairs")]
            small.core.registry.seal([], gone)
    event.remove(database, "before_cursor_execute", look)
    assert not slow, "\n".join(sorted(slow))
    small.close()


@pytest.mark.parametrize(
    "how",
    [
        "SCAN millstream_queries",
        "SEARCH millstream_queries USING INDEX millstream_queries_state (stream=?)",
        "SEARCH millstream_legs USING COVERING INDEX millstream_legs_cut (stream=?)",
    ],
)
def test_slow_ways_are_seen(how: str) -> None:
    assert SLOW.search(how)
    assert not SLOW.search("SEARCH millstream_queries USING INDEX millstream_queries_state (stream=? AND state=?)")
    assert not SLOW.search("SEARCH millstream_queries USING INDEX sqlite_autoindex_millstream_queries_1 (id=?)")
