"""Fires of heavy groups run aside, so that windows of light ones do not wait for them.

    fires of a stream   light ─ light ─ light ─ light ─ light ─►
    aside                     └ heavy ───────────────┘ └ heavy ─►

At most one runs aside. What it fires nobody else fires, and nobody else reads or forgets the buckets of its groups,
until its outcome has been taken. Groups that joins read too are never aside.
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


class Turns:
    """One fire runs aside at a time, of all streams of an engine: more of them would leave no core to the others. Who
    had to wait comes first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = False
        self._waiting: dict[str, None] = {}

    def take(self, stream: str) -> bool:
        """Whether it is a stream's turn now; ``leave`` ends it."""
        with self._lock:
            self._waiting.setdefault(stream)
            if self._running or next(iter(self._waiting)) != stream:
                return False
            del self._waiting[stream]
            self._running = True
            return True

    def leave(self) -> None:
        with self._lock:
            self._running = False

    def forgo(self, stream: str) -> None:
        """A stream has nothing heavy any more."""
        with self._lock:
            self._waiting.pop(stream, None)


class Aside:
    """The place beside a stream's fires. All but ``wait`` and ``error`` is for whoever holds the lock of these."""

    def __init__(self) -> None:
        self.groups: frozenset[str] = frozenset()
        # What the last fire here has failed with.
        self.error: Exception | None = None
        self._queries: frozenset[str] = frozenset()
        self._thread: threading.Thread | None = None
        self._over = False
        self._outcome = Outcome()

    @property
    def taken(self) -> bool:
        """Whether a fire runs here, or its outcome is still to be taken."""
        return self._thread is not None

    def has(self, frontier: Frontier) -> bool:
        return frontier.group in self.groups or frontier.query in self._queries

    def start(
        self,
        groups: frozenset[str],
        queries: frozenset[str],
        fire: Callable[[], Sequence[Damage]],
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """``ended`` is called at the end, however that comes about."""

        def run() -> None:
            try:
                with waiting(None):
                    self._outcome = Outcome(fire())
            except Exception as error:
                self._outcome = Outcome(error=error)
            finally:
                # Whoever is woken by ``ended`` finds the outcome, though the thread is still there.
                self._over = True
                ended()

        thread = threading.Thread(target=run, name="millstream-fire-aside", daemon=True)
        self.groups, self._queries, self._over = groups, queries, False
        try:
            thread.start()
        except BaseException:
            self.groups, self._queries = frozenset(), frozenset()
            ended()
            raise
        self._thread = thread

    def take(self) -> Outcome:
        """The outcome of the fire that has ended here, once; nothing while one runs."""
        if self._thread is None or not self._over:
            return Outcome()
        outcome, self._outcome = self._outcome, Outcome()
        self._thread, self.groups, self._queries = None, frozenset(), frozenset()
        self.error = outcome.error
        return outcome

    def wait(self, seconds: float | None = None) -> bool:
        """Whether no fire runs here, at the latest after some time."""
        thread = self._thread
        if thread is None:
            return True
        thread.join(seconds)
        return not thread.is_alive()
