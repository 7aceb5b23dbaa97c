"""The gaming workload: revenue by gem pack, and purchases that an ad proposed; skew, large windows, changing rates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from random import Random

from millstream.bench.driving.model import StreamSpec
from millstream.bench.workloads.load import Workload, dip, drawn, stream
from millstream.bench.workloads.questions import Item, Join, Leg, Question, Window, aggregation
from millstream.bench.workloads.scripts import static
from millstream.sources.generators import GamingGenerator

WINDOW = Window(8, 4)
LARGE_WINDOW = Window(60, 60)
GEM_PACKS = 20
USERS = 100_000
# Of joins: so many that few purchases meet an ad, about one in twenty with a million rows a second.
JOINED_USERS = 10_000_000
MANY = 20
# From 0.84 M to 0.28 M rows a second, where the run's rate is the former.
LOW_RATE = 0.28 / 0.84
OVERLOAD = 1.2


def workloads() -> Iterator[Workload]:
    sums = Workload("gaming-sum", "gaming: revenue by gem pack", _purchases(), drawn(_sum), static(1))
    joins = Workload("gaming-join", "gaming: purchases joined with ads", _both(), drawn(_join), static(1))
    for workload, above, large, single in (
        (sums, _sum_above, partial(_sum, window=LARGE_WINDOW), _purchases(1, 1)),
        (joins, _join_above, partial(_join, window=LARGE_WINDOW), _both(1, 1)),
    ):
        yield workload
        many = _named(workload, "many", f"{MANY} queries gem_pack > ?")
        yield replace(many, draw=drawn(above), script=static(MANY))
        yield replace(_named(workload, "large", "windows of a minute"), draw=drawn(large))
        yield replace(_named(workload, "skew", "a single key"), streams=single)
        rates = _named(workload, "rates", "the rate falls to a third and rises again")
        yield replace(rates, rates=dip(LOW_RATE))
        overload = _named(workload, "overload", f"at {OVERLOAD} times the rate of the run")
        yield replace(overload, rates=lambda seconds: ((0.0, OVERLOAD),))


def _named(workload: Workload, variant: str, title: str) -> Workload:
    """``gaming-sum`` becomes ``gaming-many``, ``gaming-join`` becomes ``gaming-many-join``."""
    name = workload.name.replace("gaming", f"gaming-{variant}").removesuffix("-sum")
    return replace(workload, name=name, title=f"{workload.title}, {title}")


def _purchases(users: int = USERS, gem_packs: int = GEM_PACKS, share: float = 1.0) -> tuple[StreamSpec, ...]:
    generator = GamingGenerator(table="purchases", users=users, gem_packs=gem_packs)
    return (stream("purchases", generator, share),)


def _both(users: int = JOINED_USERS, gem_packs: int = GEM_PACKS) -> tuple[StreamSpec, ...]:
    ads = GamingGenerator(table="ads", users=users, gem_packs=gem_packs)
    return (*_purchases(users, gem_packs, 0.5), stream("ads", ads, 0.5))


def _sum(random: Random, window: Window = WINDOW, condition: str = "") -> Question:
    return aggregation(window, "purchases", condition, ("gem_pack",), (Item("SUM(price)", "revenue"),))


def _join(random: Random, window: Window = WINDOW, conditions: tuple[str, str] = ("", "")) -> Question:
    legs = (Leg("p", "purchases", conditions[0]), Leg("a", "ads", conditions[1]))
    items = tuple(Item(f"p.{name}", name) for name in ("user_id", "gem_pack", "price"))
    return Join(window, legs, ("p.user_id = a.user_id AND p.gem_pack = a.gem_pack",), items).question


def _above(random: Random) -> str:
    return f"gem_pack > {random.randrange(GEM_PACKS)}"


def _sum_above(random: Random) -> Question:
    return _sum(random, condition=_above(random))


def _join_above(random: Random) -> Question:
    return _join(random, conditions=(_above(random), _above(random)))
