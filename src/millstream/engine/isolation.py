"""Finding out who is at fault: fires by halves, and runs that may end the process, one at a time.

    all ── fails ──► half ── passes: published
                     half ── fails ──► quarter …   ──► one query, twice ──► a fire of nothing passes: it is stopped
                                                                                              fails: nobody is

Fires commit by query, so each part that passes is published for good, and nothing has to be remembered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

# A query that is alone may fail for a reason that is gone the next moment.
ATTEMPTS_ALONE = 2

# Fires the windows of some queries, all of them or none.
FireSome = Callable[[Sequence[str]], None]


class FireFailed(Exception):
    """A fire's job failed for a reason that may be one of its queries."""


def fire_by_halves(
    queries: Sequence[str],
    fire: FireSome,
    stop: Callable[[str, FireFailed], None],
    control: Callable[[], None] = lambda: None,
) -> None:
    """Fire these queries, and stop those that fail alone while ``control``, which has no query in it, passes. What that
    raises goes to the caller, as other errors than ``FireFailed`` do: the workers are at fault, and nobody is blamed.

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
                control()
                stop(queries[0], error)
                return
    half = len(queries) // 2
    for part in (queries[:half], queries[half:]):
        fire_by_halves(part, fire, stop, control)


class Gate:
    """Lets jobs through side by side, and a run that has ended the process before alone: if the process dies again, it
    was that run."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._alone = 0

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Waits for whoever is, or wants to be, alone."""
        with self._changed:
            self._changed.wait_for(lambda: self._alone == 0)
            self._inside += 1
        try:
            yield
        finally:
            self._leave()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._alone += 1
        try:
            with self._changed:
                self._changed.wait_for(lambda: self._inside == 0)
                self._inside += 1
            try:
                yield
            finally:
                self._leave()
        finally:
            with self._changed:
                self._alone -= 1
                self._changed.notify_all()

    def _leave(self) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()


# One for all engines of the process: whatever ends it ends them all.
gate = Gate()
