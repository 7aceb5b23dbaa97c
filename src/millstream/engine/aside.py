"""Fires of heavy groups run aside, so that windows of light ones do not wait for them.

    fires of a stream   light ─ light ─ light ─ light ─ light ─►
    aside                     └ heavy ───────────────┘ └ heavy ─►

At most one runs aside of each stream. What it fires nobody else fires, and nobody else forgets the buckets of its
groups, until its outcome has been taken.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from millstream.catalog.outage import waiting
from millstream.catalog.records import Frontier
from millstream.model.plan import Damage


@dataclass(frozen=True)
class Outcome:
    """What a fire has found damaged, and what has ended it early."""

    damaged: Sequence[Damage] = ()
    error: Exception | None = None


class Aside:
    """The place beside a stream's fires. All but ``wait`` is for whoever holds the lock of these."""

    def __init__(self) -> None:
        self.groups: frozenset[str] = frozenset()
        self._queries: frozenset[str] = frozenset()
        self._thread: threading.Thread | None = None
        self._outcome = Outcome()

    @property
    def taken(self) -> bool:
        """Whether a fire runs here, or its outcome is still to be taken."""
        return self._thread is not None

    def has(self, frontier: Frontier) -> bool:
        return frontier.group in self.groups or frontier.query in self._queries

    def start(self, groups: frozenset[str], queries: frozenset[str], fire: Callable[[], Sequence[Damage]]) -> None:
        def run() -> None:
            try:
                with waiting(None):
                    self._outcome = Outcome(fire())
            except Exception as error:
                self._outcome = Outcome(error=error)

        self.groups, self._queries = groups, queries
        self._thread = threading.Thread(target=run, name="millstream-fire-aside", daemon=True)
        self._thread.start()

    def take(self) -> Outcome:
        """The outcome of the fire that has ended here, once; nothing while one runs."""
        if self._thread is None or self._thread.is_alive():
            return Outcome()
        outcome, self._outcome = self._outcome, Outcome()
        self._thread, self.groups, self._queries = None, frozenset(), frozenset()
        return outcome

    def wait(self, seconds: float | None = None) -> bool:
        """Whether no fire runs here, at the latest after some time."""
        thread = self._thread
        if thread is None:
            return True
        thread.join(seconds)
        return not thread.is_alive()
