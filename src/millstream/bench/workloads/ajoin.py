"""The AJoin workload: joins of streams of six attributes, and sweeps of what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from random import Random

from millstream.bench.driving.model import StreamSpec
from millstream.bench.join_workload import (
    AJOIN_MAX,
    ATTRIBUTES,
    DEFAULT_SEED,
    SIMILARITY,
    SOURCES,
    ajoin_chain,
    counted,
    halves,
    legs_of,
    pair,
    short_window,
    similar_ajoin,
)
from millstream.bench.workloads.load import Workload, drawn, stream
from millstream.bench.workloads.questions import Join, Leg, Question
from millstream.bench.workloads.scripts import changing, static
from millstream.sources.generators import AJoinGenerator

PARALLEL = (1, 5, 20, 100, 500)
# Joins with a predicate on each source, as the paper's template has it.
FILTERED = (1, 20, 100)
KEYS = (50, 500, 5000, 50_000)
WAYS = range(2, 6)
# Percent; a join of two sources has no other similarities.
SIMILARITIES = (0, 25, 50, 100)
GROUPS = (1, 4, 16)
# Percent of the rows that a query keeps, and so, on average, of the queries that share a row.
SHARED = (5, 25, 50, 75)
SHARED_WAYS = 3
# Percent of the rows of each side that a pure join keeps.
SELECTIVE = (10, 50, 90)
# Percent of the queries that are replaced at once. AJoin groups its queries anew from such a share on, half of them by
# default; the workload asks what the change costs, whenever a system groups.
CHANGED = (20, 40, 50, 60, 80)
# Queries of a sweep, unless a number is asked for.
SWEPT = 20


def workloads() -> Iterator[Workload]:
    pairs = _sources(2)
    half = partial(_similar, similarity=SIMILARITY)
    for count in PARALLEL:
        title = f"{count} join{'s' if count > 1 else ''} of two streams, half similar"
        yield _workload(f"ajoin-{count}", title, pairs, half, count)
    for count in FILTERED:
        title = f"{count} join{'s' if count > 1 else ''} of two streams, half similar, with predicates"
        yield _workload(f"ajoin-filtered-{count}", title, pairs, _filtered, count)
    for keys in KEYS:
        title = f"{SWEPT} joins of two streams with {keys} keys"
        yield _workload(f"ajoin-keys-{keys}", title, _sources(2, keys), half)
    for ways in WAYS:
        ask = partial(_chain, ways=ways)
        yield _workload(f"ajoin-ways-{ways}", f"{SWEPT} aggregated joins of {ways} streams", _sources(ways), ask)
    for percent in SIMILARITIES:
        title = f"{SWEPT} joins of two of five streams, {percent} % similar"
        ask = partial(_similar, similarity=percent / 100)
        yield _workload(f"ajoin-similar-{percent}", title, _sources(len(SOURCES)), ask)
    for groups in GROUPS:
        title = f"{SWEPT} joins of two streams by {groups} pair{'s' if groups > 1 else ''} of attributes"
        yield _workload(f"ajoin-groups-{groups}", title, pairs, partial(_of_groups, groups=groups))
    for percent in SHARED:
        title = f"{SWEPT} aggregated joins of {SHARED_WAYS} streams, {percent} % of the rows shared"
        ask = partial(_sharing, share=percent / 100)
        yield _workload(f"ajoin-shared-{percent}", title, _sources(SHARED_WAYS), ask)
    for percent in SELECTIVE:
        title = f"{SWEPT} joins of two streams, half similar, that keep {percent} % of each"
        yield _workload(f"ajoin-selective-{percent}", title, pairs, partial(_selective, share=percent / 100))
    for percent in CHANGED:
        title = f"{percent} % of {SWEPT} joins of two streams replaced at once"
        script = changing(SWEPT, percent / 100)
        yield Workload(f"ajoin-change-{percent}", f"AJoin: {title}", pairs, drawn(half), script, DEFAULT_SEED)


def _workload(
    name: str, title: str, streams: tuple[StreamSpec, ...], ask: Callable[[Random], Question], count: int = SWEPT
) -> Workload:
    return Workload(name, f"AJoin: {title}", streams, drawn(ask), static(count), DEFAULT_SEED)


def _sources(ways: int, keys: int = AJOIN_MAX) -> tuple[StreamSpec, ...]:
    """Like streams at the same rate."""
    return tuple(stream(name, AJoinGenerator(attributes_max=keys), 1 / ways) for name in SOURCES[:ways])


def _similar(random: Random, similarity: float) -> Question:
    return similar_ajoin(random, similarity).question


def _filtered(random: Random) -> Question:
    join = similar_ajoin(random, SIMILARITY)
    conditions = halves(random, ATTRIBUTES)
    legs = tuple(replace(leg, condition=one) for leg, one in zip(join.legs, conditions, strict=False))
    return replace(join, legs=legs).question


def _chain(random: Random, ways: int) -> Question:
    return ajoin_chain(random, ways).question


def _of_groups(random: Random, groups: int) -> Question:
    """A pure join by one of so many pairs of attributes: queries of one pair can share all of it."""
    left, right = random.choice(list(product(ATTRIBUTES, repeat=2))[:groups])
    on = (f"s1.{left} = s2.{right}",)
    return Join(short_window(random), legs_of(["", ""]), on, pair(f"s1.{left}", "a6")).question


def _selective(random: Random, share: float) -> Question:
    join = similar_ajoin(random, SIMILARITY)
    legs = tuple(replace(leg, condition=_range(random, ATTRIBUTES, share)) for leg in join.legs)
    return replace(join, legs=legs).question


def _range(random: Random, attributes: tuple[str, ...], share: float) -> str:
    """A condition that keeps a share of the rows."""
    width = round(share * AJOIN_MAX)
    first = random.randint(0, AJOIN_MAX - width)
    return f"{random.choice(attributes)} BETWEEN {first} AND {first + width - 1}"


def _sharing(random: Random, share: float) -> Question:
    """All joins are by the first attribute; each keeps a range of another one."""
    legs = [Leg(source, source, _range(random, ATTRIBUTES[1:], share)) for source in SOURCES[:SHARED_WAYS]]
    on = tuple(f"s1.a1 = s{n}.a1" for n in range(2, SHARED_WAYS + 1))
    return counted(short_window(random), tuple(legs), on, "s1.a1", "a6").question
