"""A fire that fails, repeated by halves until the query that makes it fail is alone. Pure but for what it is handed.

    all ── fails ──► half ── passes: published
                     half ── fails ──► quarter …           ──► one query, twice: it is stopped

Fires commit by query, so each part that passes is published for good, and nothing has to be remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

# A query that is alone may fail for a reason that is gone the next moment.
ATTEMPTS_ALONE = 2

# Fires the windows of some queries, all of them or none.
FireSome = Callable[[Sequence[str]], None]


class FireFailed(Exception):
    """A fire's job failed for a reason that may be one of its queries."""


def fire_by_halves(queries: Sequence[str], fire: FireSome, stop: Callable[[str, FireFailed], None]) -> None:
    """Fire these queries, and stop those that fail alone; other errors than ``FireFailed`` go to the caller.

    >>> def fire(some):
    ...     if "bad" in some: raise FireFailed("poison")
    ...     print("fired", *some)
    >>> fire_by_halves(["a", "b", "bad", "c"], fire, lambda query, error: print("stopped", query, "for", error))
    fired a b
    stopped bad for poison
    fired c
    """
    for attempt in range(1, ATTEMPTS_ALONE + 1):
        try:
            fire(queries)
            return
        except FireFailed as error:
            if len(queries) > 1:
                break
            if attempt == ATTEMPTS_ALONE:
                stop(queries[0], error)
                return
    half = len(queries) // 2
    for part in (queries[:half], queries[half:]):
        fire_by_halves(part, fire, stop)
