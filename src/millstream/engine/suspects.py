"""Which queries a failing batch is tried without. Pure: what was tried and how it went in, the next trial out.

Trials begin with nobody left out, go on with the queries that are new to the stream, then with the newest one, two,
four, eight …, up to all. A set that passes is made smaller by halves until nobody can be taken out of it. If not even
the batch without any query passes, nobody is at fault.

    queries, newest first    a b c d e f g h            f makes the batch fail
    left out                 -                 fails
                             a                 fails
                             a b               fails
                             a b c d           fails
                             a b c d e f g h   passes
                             e f g h           passes   (a b c d is known to fail)
                             e f               passes
                             e                 fails
                             f                 passes: f is stopped
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

Queries = frozenset[str]

NOBODY: Queries = frozenset()

# A trial is a whole Spark job. One culprit among a thousand is found in about twenty; several take more, and beyond
# this the smallest set that is known to pass is taken as it is.
MOST_TRIALS = 64


@dataclass(frozen=True)
class Verdict:
    """The queries to leave out; None when the batch fails without any query too."""

    left_out: Queries | None


class _Unknown(Exception):
    """How this set goes has to be tried."""

    def __init__(self, left_out: Queries) -> None:
        super().__init__()
        self.left_out = left_out


def next_trial(
    history: Mapping[Queries, bool], queries: Sequence[str], new: Iterable[str] = (), most: int = MOST_TRIALS
) -> Queries | Verdict:
    """Whom to leave out next, or the end. ``history`` says of each set that was left out whether the batch passed;
    ``queries`` are those of the batch, newest first, ``new`` those that no batch of the stream has seen before.

    >>> next_trial({}, ["b", "a"])
    frozenset()
    >>> next_trial({NOBODY: False, frozenset("b"): True}, ["b", "a"])
    Verdict(left_out=frozenset({'b'}))
    """

    def passes(left_out: Queries) -> bool:
        if left_out not in history:
            raise _Unknown(left_out)
        return history[left_out]

    try:
        return Verdict(_search(passes, queries, frozenset(new)))
    except _Unknown as unknown:
        passed = [left_out for left_out, passed in history.items() if passed]
        if len(history) >= most and passed:
            return Verdict(min(passed, key=len))
        return unknown.left_out


Passes = Callable[[Queries], bool]


def _search(passes: Passes, queries: Sequence[str], new: Queries) -> Queries | None:
    if passes(NOBODY):
        return NOBODY
    if new and passes(new):
        return _narrowed(passes, [q for q in queries if q in new], NOBODY)
    count = 1
    while count < len(queries):
        if passes(frozenset(queries[:count])):
            return _narrowed(passes, queries[:count], NOBODY)
        count *= 2
    return _narrowed(passes, queries, NOBODY) if passes(frozenset(queries)) else None


def _narrowed(passes: Passes, suspects: Sequence[str], others: Queries) -> Queries:
    """A part of the suspects that has to be left out besides ``others``: all suspects pass, none do not. Where neither
    half is enough, both have somebody at fault, and each is narrowed while the other is left out."""
    if len(suspects) == 1:
        return frozenset(suspects)
    half = len(suspects) // 2
    newer, older = suspects[:half], suspects[half:]
    for part in (newer, older):
        if passes(others | frozenset(part)):
            return _narrowed(passes, part, others)
    first = _narrowed(passes, newer, others | frozenset(older))
    return first | _narrowed(passes, older, others | first)
