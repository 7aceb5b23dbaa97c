"""When queries come and go. A script counts queries only; which they are is the workload's.

What happens once, a rise or a fall, begins when the warm-up is over, since no figure counts what was before. What
happens again and again begins with the run. A run that is too short for a script gets it squeezed in time, with the
same steps in the same order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random

from millstream.bench.driving.model import WARM_UP, QuerySpec, Request
from millstream.errors import SpecError

# Rounds of creates and deletes that also the shortest run has.
LEAST_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Step:
    """At a moment of the run, so many creates, and so many deletes of the oldest queries."""

    at: float
    create: int = 0
    delete: int = 0


@dataclass(frozen=True, slots=True)
class Script:
    """``initial`` queries are there before the first row; the first ``kept`` of them are never deleted."""

    initial: int
    steps: tuple[Step, ...] = ()
    kept: int = 0


# The script of a run of so many seconds, with so many concurrent queries, or the script's own number.
Scripted = Callable[[float, int | None], Script]


def play(script: Script, queries: Iterator[QuerySpec]) -> tuple[tuple[QuerySpec, ...], tuple[Request, ...]]:
    """The initial queries and the requests of a script, with the queries in their order."""
    initial = tuple(islice(queries, script.initial))
    running = deque(query.id for query in initial[script.kept :])
    requests = []
    for step in script.steps:
        delete = tuple(running.popleft() for _ in range(step.delete))
        create = tuple(islice(queries, step.create))
        running.extend(query.id for query in create)
        requests.append(Request(step.at, create, delete))
    return initial, tuple(requests)


def static(count: int) -> Scripted:
    """All queries from the beginning to the end."""

    def script(seconds: float, queries: int | None) -> Script:
        return Script(queries or count)

    return script


def ramp(rate: int, level: int) -> Scripted:
    """AStream's first scenario: ``rate`` queries more each second until ``level`` run. One is there from the beginning,
    so that the warm-up has something to warm."""

    def script(seconds: float, queries: int | None) -> Script:
        missing = (queries or level) - 1
        counts = [min(rate, missing - done) for done in range(0, missing, rate)]
        # At least half of the measured time is left for the full number.
        at = _after_warm_up(seconds, 2.0 * len(counts))
        return Script(1, tuple(Step(at(second), create) for second, create in enumerate(counts)))

    return script


def replacing(count: int, every: float, running: int) -> Scripted:
    """AStream's second scenario: every so many seconds ``count`` new queries take the place of the oldest."""

    def script(seconds: float, queries: int | None) -> Script:
        level = queries or running
        if level < count:
            message = f"{level} queries are fewer than the {count} that are replaced at a time"
            raise SpecError("BAD_SPEC", message, hint=f"ask for at least {count}")
        return Script(level, tuple(Step(at, count, count) for at in _rounds(every, seconds)))

    return script


def ad_hoc(add: int, remove: int, every: float, fixed: int) -> Scripted:
    """``a:X r:Y w:Z f:N``: on top of N fixed queries, every Z seconds X come and the Y oldest of those go; where none
    come, fixed ones go, but one stays."""

    def script(seconds: float, queries: int | None) -> Script:
        level = queries or fixed
        kept = level if add else 1
        steps, extra = [], level - kept
        for at in _rounds(every, seconds):
            gone = min(remove, extra)
            extra += add - gone
            if add or gone:
                steps.append(Step(at, add, gone))
        return Script(level, tuple(steps), kept)

    return script


def doubling(count: int) -> Scripted:
    """As many queries again, all at once, in the middle of what is measured."""

    def script(seconds: float, queries: int | None) -> Script:
        level = queries or count
        return Script(level, (Step(middle(seconds), level),))

    return script


def changing(count: int, share: float) -> Scripted:
    """A share of the queries is replaced, all at once, in the middle of what is measured."""

    def script(seconds: float, queries: int | None) -> Script:
        level = queries or count
        changed = max(1, round(share * level))
        return Script(level, (Step(middle(seconds), changed, changed),))

    return script


def middle(seconds: float) -> float:
    """Of what is measured of a run."""
    return (1 + WARM_UP) / 2 * seconds


# AStream's figure 16, in its seconds: the number of queries rises sharply twice, falls and rises again slowly, then
# changes all the time. The shares of the largest number are chosen, for the paper shows them as a curve only.
RISES = ((50.0, 0.6), (200.0, 1.0))
LOW = 0.2
FALL, TURN, RISEN = 410.0, 775.0, 1140.0
SLOW_STEPS = 20
NOISE, END = 1200.0, 1500.0
NOISE_EVERY = 10.0
NOISE_LOW = 0.5


def fluctuating(count: int) -> Scripted:
    """The course of figure 16, the same for every seed."""

    def script(seconds: float, queries: int | None) -> Script:
        level = queries or count
        at = _after_warm_up(seconds, END)
        running = initial = max(1, round(LOW * level))
        steps = []
        for moment, share in _course():
            wanted = max(1, round(share * level))
            if wanted != running:
                steps.append(Step(at(moment), max(0, wanted - running), max(0, running - wanted)))
            running = wanted
        return Script(initial, tuple(steps))

    return script


def _course() -> Iterator[tuple[float, float]]:
    """Moments, and the share of the largest number that runs from then on."""
    yield from RISES
    for begin, end, before, after in ((FALL, TURN, 1.0, LOW), (TURN, RISEN, LOW, 1.0)):
        for step in range(1, SLOW_STEPS + 1):
            done = step / SLOW_STEPS
            yield begin + (end - begin) * done, before + (after - before) * done
    noise = Random(16)
    for round_ in range(int((END - NOISE) / NOISE_EVERY)):
        yield NOISE + round_ * NOISE_EVERY, noise.uniform(NOISE_LOW, 1.0)


def _after_warm_up(seconds: float, needed: float) -> Callable[[float], float]:
    """Where a second of the script lies in the run, if the script needs so many of them."""
    warm_up = WARM_UP * seconds
    pace = min(1.0, (seconds - warm_up) / needed) if needed else 1.0
    return lambda second: warm_up + pace * second


def _rounds(every: float, seconds: float) -> Iterator[float]:
    """The moments of a run at which a round begins."""
    pace = min(float(every), seconds / (LEAST_ROUNDS + 1))
    number = 1
    # The tolerance keeps a rounding error from adding a round at the very end.
    while number * pace < seconds * (1 - 1e-9):
        yield number * pace
        number += 1
