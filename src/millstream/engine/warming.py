"""Letting Spark's analyzer see queries before the first user waits for it.

A cold JVM takes a second for the first text and some tenths of a second for the next dozens, because it loads and
compiles the analyzer's classes. They are the same for every stream, so a stream of our own will do, while Spark starts
the user's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Protocol

from millstream.model.stream import Field, Stream
from millstream.model.types import DOUBLE, INTEGER, STRING, TIMESTAMP
from millstream.sql.frontend import Analyzer, FrontEnd

# The # keeps it apart from all streams of users.
STREAM = Stream(
    "#warm_up",
    (Field("k", INTEGER), Field("x", DOUBLE), Field("s", STRING), Field("time", TIMESTAMP)),
    time="time",
    lateness=0,
)
_FROM = "`#warm_up`"
_WINDOW = "window(time, '2 seconds', '1 second')"
# Each round asks for shapes that the analyzer has not seen, as the first users do.
ROUNDS = 4
# Spark applications whose analyzer is warm, or is being warmed: engines of one process may share one.
_warm: set[str] = set()


class WarmAnalyzer(Analyzer, Protocol):
    def register(self, stream: Stream) -> None: ...

    def unregister(self, name: str) -> None: ...


def begin_warm_up(analyzer: WarmAnalyzer, application: str, stopping: threading.Event) -> threading.Thread | None:
    """Warm up in a thread, once for each Spark application; None if that was done before."""
    if application in _warm:
        return None
    _warm.add(application)
    thread = threading.Thread(target=warm_up, args=(analyzer, stopping), name="millstream-warm-up", daemon=True)
    thread.start()
    return thread


def warm_up(analyzer: WarmAnalyzer, stopping: threading.Event) -> None:
    """Compile texts of the kinds that users write. Nothing depends on it, so it gives way to any error."""
    try:
        analyzer.register(STREAM)
        try:
            front_end = FrontEnd(analyzer, lambda: {STREAM.name: STREAM})
            for sql in texts():
                if stopping.is_set():
                    return
                front_end.compile(sql)
        finally:
            analyzer.unregister(STREAM.name)
    except Exception:
        return


def texts() -> Iterator[str]:
    for number in range(ROUNDS):
        # Names of columns are part of a shape.
        total, n = f"total_{number}", f"n_{number}"
        for operator in ("<", ">", "=", "<=", ">="):
            yield (
                f"SELECT k, count(*) AS {n}, sum(k) AS {total} FROM {_FROM} WHERE k {operator} {number} "
                f"GROUP BY k, {_WINDOW}"
            )
        yield (
            f"SELECT window.end, s, avg(x * 2) AS {total}, max(s) FROM {_FROM} "
            f"WHERE s LIKE 'a%' AND x BETWEEN 1.5 AND 3 OR k IN (1, 2, {number}) "
            f"GROUP BY s, {_WINDOW} HAVING count(*) > 10"
        )
        yield f"SELECT upper(s) AS {n}, CASE WHEN x > 1 THEN k ELSE 0 END AS {total} FROM {_FROM} WHERE s IS NOT NULL"
        yield (
            f"WITH a AS (SELECT *, {_WINDOW} AS w FROM {_FROM}), b AS (SELECT *, {_WINDOW} AS w FROM {_FROM}) "
            f"SELECT a.k, b.x AS {n} FROM a JOIN b ON a.k = b.k AND a.w = b.w WHERE a.x > {number}"
        )
