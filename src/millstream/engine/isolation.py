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


def fire_by_halves(
    queries: Sequence[str],
    fire: FireSome,
    may_be_a_query: Callable[[BaseException], bool],
    stop: Callable[[str, BaseException], None],
) -> None:
    """Fire these queries, and stop those that fail alone; errors that no query can be to blame for go to the caller.

    >>> def fire(some):
    ...     if "bad" in some: raise ValueError("poison")
    ...     print("fired", *some)
    >>> fire_by_halves(["a", "b", "bad", "c"], fire, lambda _: True, lambda query, _: print("stopped", query))
    fired a b
    stopped bad
    fired c
    """
    for attempt in range(1, ATTEMPTS_ALONE + 1):
        try:
            fire(queries)
            return
        except Exception as error:
            if not may_be_a_query(error):
                raise
            if len(queries) > 1:
                break
            if attempt == ATTEMPTS_ALONE:
                stop(queries[0], error)
                return
    half = len(queries) // 2
    for part in (queries[:half], queries[half:]):
        fire_by_halves(part, fire, may_be_a_query, stop)
