"""Fires that may end the whole engine, with nobody left to see it.

    engine 1          fire of all that is due ─X
    engine 2, 3, 4    the same, written down first ─X      three deaths
    engine 5, 6       a half of those in all of them, alone ─X
    engine 7          a quarter, alone ── passes: published; the other quarter, alone ─X  …
    …                 one query, alone ─X, twice ──► others pass alone: once more, alone ─X ──► it is stopped
                                                     none does: nobody is

An engine that follows no orderly stop writes the first fire of each stream down before it runs: whatever was due when
the one before died is due again. As long as engines do not die, nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from millstream.catalog.metastore import Metastore
from millstream.catalog.records import FireTrial
from millstream.engine.isolation import FireSome, gate
from millstream.engine.quarantine import DEATHS_IN_TRIAL, MOST_DEATHS
from millstream.runtime.liveness import unanswered


class FireTrials:
    """For one engine, made before its first fire."""

    def __init__(self, metastore: Metastore) -> None:
        self._metastore = metastore
        self._after_death = metastore.incarnation > 1 and metastore.stopped_at() is None
        rows = metastore.fire_trials()
        if any(not row.died for row in rows):
            metastore.settle_fire_trials(died=self._after_death)
            rows = metastore.fire_trials()
        self._deaths = rows
        # Streams, and joined streams, of which a fire has passed: they are not written down any more.
        self._passed: set[str] = set()

    def watches(self, name: str) -> bool:
        """Whether the next fire of a stream, or of joined streams, is written down."""
        return name not in self._passed and (self._after_death or any(row.name == name for row in self._deaths))

    def fire(
        self,
        name: str,
        queries: Sequence[str],
        fire: FireSome,
        stop: Callable[[str], None],
        control: Callable[[], None] = lambda: None,
    ) -> None:
        """Fire these queries of a stream or of joined streams, and ``stop`` those that engines die of, also after the
        others have passed, or ``control``, which has no query in it."""
        deaths = [row for row in self._deaths if row.name == name]
        if not self.watches(name):
            with gate.shared():
                fire(queries)
            return
        guilty = [query for query in sorted(queries) if _deaths_alone(query, deaths) > DEATHS_IN_TRIAL]
        for query in guilty:
            stop(query)
        left = [query for query in sorted(queries) if query not in guilty]
        doubted = [query for query in left if _deaths_alone(query, deaths) == DEATHS_IN_TRIAL]
        others = [query for query in left if query not in doubted]
        others_pass = self._fire_others(name, others, deaths, fire, doubted)
        if others_pass or self._nothing_passes(name, doubted, deaths, control):
            # Whoever has killed engines from outside may have gone.
            for query in doubted:
                self._written_down(name, [query], fire, alone=True)
            self._forget(name, deaths)
        else:
            # Engines die whatever they fire: nothing is held against anybody any more.
            self._forget(name, deaths)
            self._written_down(name, doubted, fire, alone=False)
        self._passed.add(name)

    def _forget(self, name: str, deaths: Sequence[FireTrial]) -> None:
        if deaths:
            self._metastore.end_fire_trials([row.number for row in deaths])
            self._deaths = [row for row in self._deaths if row.name != name]

    def _fire_others(
        self, name: str, left: list[str], deaths: Sequence[FireTrial], fire: FireSome, doubted: Sequence[str]
    ) -> bool:
        """Fire those that nothing is proven of, the suspects among them in halves; tells whether any passed alone."""
        passed = False
        while part := _next_alone(left, deaths):
            self._written_down(name, part, fire, alone=True)
            passed = True
            left = [query for query in left if query not in part]
        if left:
            alone = bool(doubted) and not passed
            self._written_down(name, left, fire, alone=alone)
            passed |= alone
        return passed

    def _nothing_passes(
        self, name: str, doubted: Sequence[str], deaths: Sequence[FireTrial], control: Callable[[], None]
    ) -> bool:
        """Where a single query is due: whether a fire of nothing passes, in which no engine has died before."""
        if not doubted:
            return True
        if len(doubted) > 1 or any(not row.queries for row in deaths):
            return False
        self._written_down(name, (), lambda _: control(), alone=True)
        return True

    def _written_down(self, name: str, queries: Sequence[str], fire: FireSome, *, alone: bool) -> None:
        """A fire that fails while the engine lives is no death; one that loses Spark is."""
        with gate.alone() if alone else gate.shared():
            number = self._metastore.begin_fire_trial(name, queries, alone)
            try:
                fire(queries)
            except Exception as error:
                if not unanswered(error):
                    self._metastore.end_fire_trials([number])
                raise
            self._metastore.end_fire_trials([number])


def _deaths_alone(query: str, deaths: Sequence[FireTrial]) -> int:
    return sum(row.alone and row.queries == (query,) for row in deaths)


def _next_alone(queries: Sequence[str], deaths: Sequence[FireTrial]) -> list[str]:
    """Half of the smallest set of queries that a culprit must be in, of those that are left; nothing if nobody is under
    suspicion. Other queries may have been due at each death: who was in two of them alone, or in three beside others,
    is under suspicion."""
    alone = [frozenset(row.queries) for row in deaths if row.alone and row.queries]
    beside_others = [frozenset(row.queries) for row in deaths if not row.alone]
    found = [one & other for one, other in combinations(alone, DEATHS_IN_TRIAL)]
    if len(beside_others) >= MOST_DEATHS:
        found.append(frozenset.intersection(*beside_others[-MOST_DEATHS:]))
    suspects = [mine for some in sorted(found, key=len) if (mine := [q for q in queries if q in some])]
    return suspects[0][: (len(suspects[0]) + 1) // 2] if suspects else []
