"""A workload of the catalogue: streams, the queries that a seed draws, and the script of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from random import Random

from millstream.bench.driving.model import WARM_UP, QuerySpec, Request, StreamSpec
from millstream.bench.workloads.questions import Question
from millstream.bench.workloads.scripts import Scripted, play
from millstream.errors import SpecError
from millstream.sources.generators import RowGenerator
from millstream.sources.schema import format_ddl

Rates = tuple[tuple[float, float], ...]
STEADY: Rates = ((0.0, 1.0),)
# What a run decides about the rows of a stream.
_OF_THE_RUN = ("rate", "density", "seed", "start")


@dataclass(frozen=True, slots=True)
class Load:
    """What a workload asks of a system in one run, as `RunSpec` has it."""

    initial: tuple[QuerySpec, ...]
    requests: tuple[Request, ...]
    rates: Rates


@dataclass(frozen=True, slots=True)
class Workload:
    """``draw`` gives the queries of a seed, without end; a smaller number is the beginning of a larger one. ``seed`` is
    the one to take unless another is asked for."""

    name: str
    title: str
    streams: tuple[StreamSpec, ...]
    draw: Callable[[int], Iterator[QuerySpec]]
    script: Scripted
    seed: int = 1
    # Factors of the run's rate, for a run of so many seconds.
    rates: Callable[[float], Rates] = lambda seconds: STEADY

    def make(self, seed: int, seconds: float, queries: int | None = None) -> Load:
        """The load of a run of so many seconds; ``queries`` is the number of concurrent queries, if not the
        workload's own."""
        if seconds <= 0:
            raise SpecError("BAD_SPEC", f"a run of {seconds} seconds", hint="ask for more than 0")
        if queries is not None and queries < 1:
            raise SpecError("BAD_SPEC", f"{queries} queries", hint="ask for at least 1")
        initial, requests = play(self.script(seconds, queries), self.draw(seed))
        return Load(initial, requests, self.rates(seconds))


def drawn(ask: Callable[[Random], Question]) -> Callable[[int], Iterator[QuerySpec]]:
    """Queries that are asked one after the other with the numbers of a seed; their ids count up."""

    def draw(seed: int) -> Iterator[QuerySpec]:
        random = Random(seed)
        for number in count():
            yield ask(random).spec(f"q{number:05}")

    return draw


def stream(name: str, generator: RowGenerator, share: float = 1.0) -> StreamSpec:
    """The rows of a generator as a stream."""
    text = {key: value for key, value in generator.describe().items() if key not in _OF_THE_RUN}
    return StreamSpec(name, text, format_ddl(generator.fields), share)


def dip(low: float) -> Callable[[float], Rates]:
    """The full rate, a part of it in the middle third of what is measured, and the full rate again."""

    def rates(seconds: float) -> Rates:
        begin, third = WARM_UP * seconds, (1 - WARM_UP) * seconds / 3
        return ((0.0, 1.0), (begin + third, low), (begin + 2 * third, 1.0))

    return rates
