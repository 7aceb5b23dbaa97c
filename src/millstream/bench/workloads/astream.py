"""The AStream workload: sums and joins by key that come and go in two scenarios, and complex queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from random import Random

from millstream.bench.driving.model import StreamSpec
from millstream.bench.join_workload import DEFAULT_SEED as JOIN_SEED
from millstream.bench.join_workload import SOURCES, astream_complex, astream_join, astream_window, halves
from millstream.bench.workload import DEFAULT_SEED, FIELDS, FIELDS_MAX, KEYS, STREAM, draw_query
from millstream.bench.workloads.load import Workload, drawn, stream
from millstream.bench.workloads.questions import Item, Question, aggregation, total
from millstream.bench.workloads.scripts import Scripted, doubling, fluctuating, ramp, replacing, static
from millstream.sources.generators import AStreamGenerator

# Queries a second, and how many run at last.
SC1 = ((1, 20), (10, 60), (100, 1000))
# Queries that are replaced every ten seconds.
SC2 = (10, 30, 50)
SC2_EVERY = 10
MANY = 1000
# Joins and complex queries that run at once, unless a number is asked for: fewer, since each costs more than a sum.
FEW = 20
# Queries that are replaced each second, by a create and a delete.
CHURNS = (100, 200, 400)
DOUBLED = 100
WAYS = range(1, 6)


def workloads() -> Iterator[Workload]:
    tuples = (stream(STREAM, AStreamGenerator(keys=KEYS, fields_max=FIELDS_MAX)),)
    of_sums = partial(_workload, "AStream, sums by key", tuples, seed=DEFAULT_SEED)
    sums = partial(of_sums, ask=_sum)
    for cell, title, script in _scenarios(MANY):
        yield sums(f"astream-{cell}", title, script=script)
    yield of_sums("astream-second", f"{MANY} queries, windows of one second", ask=_second, script=static(MANY))
    yield sums("astream-double", f"{DOUBLED} queries, and as many again at once", script=doubling(DOUBLED))
    for count in CHURNS:
        title = f"{MANY} queries, {count} of them replaced each second"
        name = "astream-churn" if count == CHURNS[0] else f"astream-churn-{2 * count}"
        yield sums(name, title, script=replacing(count, 1, MANY))

    joins = partial(_workload, "AStream, joins by key", _sources(2), seed=JOIN_SEED, ask=_join)
    for cell, title, script in _scenarios(FEW):
        yield joins(f"astream-join-{cell}", title, script=script)

    of_complex = partial(_workload, "AStream, complex queries", seed=JOIN_SEED)
    for ways in WAYS:
        title = f"over {ways} stream{'s' if ways > 1 else ''}"
        ask = partial(_complex, ways=ways)
        yield of_complex(_sources(ways), f"astream-complex-{ways}", title, ask=ask, script=static(FEW))
    mixed = partial(of_complex, _sources(WAYS[-1]), ask=_any_ways)
    yield mixed("astream-complex", "over 1 to 5 streams", script=static(FEW))
    title = "two sharp rises, a slow fall and rise, noise (figure 16)"
    yield mixed("astream-fluctuation", title, script=fluctuating(FEW))


def _workload(
    about: str,
    streams: tuple[StreamSpec, ...],
    name: str,
    title: str,
    *,
    seed: int,
    ask: Callable[[Random], Question],
    script: Scripted,
) -> Workload:
    return Workload(name, f"{about}: {title}", streams, drawn(ask), script, seed)


def _scenarios(many: int) -> Iterator[tuple[str, str, Scripted]]:
    """Cells of both scenarios, and queries that neither come nor go."""
    yield "single", "one query", static(1)
    for rate, level in SC1:
        yield f"sc1-{rate}", f"SC1 {rate} q/s {level} qp", ramp(rate, level)
    for count in SC2:
        yield f"sc2-{count}", f"SC2 {count} q/{SC2_EVERY} s", replacing(count, SC2_EVERY, count)
    yield "static", f"{many} queries from the beginning", static(many)


def _sources(ways: int) -> tuple[StreamSpec, ...]:
    """Like streams at the same rate."""
    rows = AStreamGenerator(keys=KEYS, fields_max=FIELDS_MAX)
    return tuple(stream(name, rows, 1 / ways) for name in SOURCES[:ways])


def _sum(random: Random) -> Question:
    return draw_query(random).question


def _second(random: Random) -> Question:
    return replace(draw_query(random), length=1, slide=1).question


def _join(random: Random) -> Question:
    return astream_join(random, 2).question


def _complex(random: Random, ways: int) -> Question:
    """An n-ary join and its aggregates; a single stream has nothing to join."""
    if ways > 1:
        return astream_complex(random, ways).question
    window, conditions = astream_window(random), halves(random, FIELDS)
    return aggregation(window, SOURCES[0], conditions[0], ("key",), (Item("COUNT(*)", "x"), total("field1", "y")))


def _any_ways(random: Random) -> Question:
    return _complex(random, random.choice(WAYS))
