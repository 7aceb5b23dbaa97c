"""The queries and rows of the join benchmark: AJoin's pure joins and chains, AStream's joins by key; made by a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from millstream.bench.workload import FIELDS, FIELDS_MAX, KEYS, OPERATORS, SCHEMA, WINDOW_MAX
from millstream.bench.workloads.questions import Item, Join, Leg, Window, total
from millstream.sources.generators import AJoinGenerator, AStreamGenerator, RowGenerator
from millstream.sources.schema import format_ddl

ATTRIBUTES = tuple(f"a{i}" for i in range(1, 7))
AJOIN_MAX = 500
AJOIN_SCHEMA = format_ddl(AJoinGenerator().fields)
SOURCES = tuple(f"s{i}" for i in range(1, 6))
# Constants of the predicates of n-way joins: each source keeps two to three fifths of its rows, whatever n is.
HALF = (200, 300)
SIMILARITY = 0.5

# Chosen by what it draws, before anything was measured with it: AStream's first join has a tumbling window and keeps
# half of the rows of each side, so that the comparison at one query rests on neither a huge nor an empty answer.
DEFAULT_SEED = 1414


@dataclass(frozen=True)
class Workload:
    """A kind of joins over the first ``ways`` of five like streams with ``keys`` distinct join keys each."""

    name: str
    ways: int
    keys: int
    schema: str
    generator: Callable[[int, int], RowGenerator]
    draw: Callable[[Random, int], Join]

    @property
    def streams(self) -> tuple[str, ...]:
        return SOURCES[: self.ways]

    def queries(self, count: int, seed: int) -> list[str]:
        """The first ``count`` queries of a seed: a smaller number is always the beginning of a larger one."""
        random = Random(seed)
        return [self.draw(random, self.ways).sql() for _ in range(count)]


def common_parts(similarity: float, sources: int, drawn: int) -> tuple[int, int]:
    """Common sources and common join attributes with a pattern of so many sources, from a drawn number of the former.

    The similarity is their product by the square of the number of sources; where the attributes do not fit into the
    common sources, more sources are common.

    >>> common_parts(0.5, 2, 1), common_parts(1.0, 2, 1), common_parts(0.25, 2, 1)
    ((2, 1), (2, 2), (1, 1))
    """
    wanted = similarity * sources**2
    while drawn < sources and wanted / drawn > drawn:
        drawn += 1
    return drawn, min(drawn, round(wanted / drawn))


def ajoin(random: Random, ways: int) -> Join:
    """A pure join of two sources; the pattern joins the first attribute of both, and a query has one of them in common
    with it."""
    return similar_ajoin(random, SIMILARITY)


def similar_ajoin(random: Random, similarity: float) -> Join:
    """A pure join of two sources, of a similarity to the join of the first two by their first attributes."""
    sources, attributes = common_parts(similarity, 2, random.choice([n for n in (1, 2) if similarity * 4 % n == 0]))
    kept = random.sample(range(sources), attributes)
    left, right = (ATTRIBUTES[0] if side in kept else random.choice(ATTRIBUTES[1:]) for side in range(2))
    window = short_window(random)
    names = SOURCES[:2] if sources == 2 else (SOURCES[0], random.choice(SOURCES[2:]))
    legs = tuple(Leg(f"s{n}", source) for n, source in enumerate(names, start=1))
    return Join(window, legs, (f"s1.{left} = s2.{right}",), pair(f"s1.{left}", "a6"))


def astream_join(random: Random, ways: int) -> Join:
    """AStream's join of two streams by key, one predicate on each side, a sliding window."""
    window, predicates = astream_window(random), [_astream_predicate(random) for _ in range(ways)]
    return Join(window, legs_of(predicates), ("s1.key = s2.key",), pair("s1.key", "field1"))


def ajoin_chain(random: Random, ways: int) -> Join:
    """An n-way join on different attributes at each step, aggregated by the first join attribute."""
    window = short_window(random)
    conditions = halves(random, ATTRIBUTES)
    # Two join attributes of each source: that to the source before, and that to the next.
    attributes = [random.sample(ATTRIBUTES[:5], 2) for _ in SOURCES]
    on = tuple(f"s{n}.{attributes[n - 1][1]} = s{n + 1}.{attributes[n][0]}" for n in range(1, ways))
    return counted(window, legs_of(conditions[:ways]), on, f"s1.{attributes[0][1]}", "a6")


def astream_complex(random: Random, ways: int) -> Join:
    """AStream's complex query: one predicate on each source, an n-ary join by key, an aggregation."""
    window = astream_window(random)
    on = tuple(f"s1.key = s{n}.key" for n in range(2, ways + 1))
    return counted(window, legs_of(halves(random, FIELDS)[:ways]), on, "s1.key", "field1")


def counted(window: Window, legs: tuple[Leg, ...], on: tuple[str, ...], key: str, added: str) -> Join:
    """A join whose rows are counted by a key, with the sum of a column of its last leg."""
    items = (Item(key, "k"), Item("COUNT(*)", "x"), total(f"{legs[-1].name}.{added}", "y"))
    return Join(window, legs, on, items, (key,))


def pair(key: str, column: str) -> tuple[Item, ...]:
    """The columns of a pure join: its key, and a column of each side."""
    return (Item(key, "k"), Item(f"s1.{column}", "x"), Item(f"s2.{column}", "y"))


def legs_of(conditions: list[str]) -> tuple[Leg, ...]:
    """The first sources, each with its condition."""
    return tuple(Leg(source, source, condition) for source, condition in zip(SOURCES, conditions, strict=False))


def short_window(random: Random) -> Window:
    """AJoin's: one to three seconds, one after the other."""
    length = random.randint(1, 3)
    return Window(length, length)


def astream_window(random: Random) -> Window:
    length = random.randint(1, WINDOW_MAX)
    return Window(length, random.randint(1, length))


def _astream_predicate(random: Random) -> str:
    return f"{random.choice(FIELDS)} {random.choice(OPERATORS)} {random.randrange(FIELDS_MAX)}"


def halves(random: Random, attributes: tuple[str, ...]) -> list[str]:
    """A condition for each source there is, so that a query draws the same however many of them it joins."""
    return [f"{random.choice(attributes)} {random.choice(('<', '>='))} {random.randint(*HALF)}" for _ in SOURCES]


def _ajoin_rows(density: int, seed: int) -> RowGenerator:
    return AJoinGenerator(density=density, seed=seed)


def _astream_rows(density: int, seed: int) -> RowGenerator:
    return AStreamGenerator(density=density, seed=seed, keys=KEYS, fields_max=FIELDS_MAX)


AJOIN = Workload("AJoin", 2, AJOIN_MAX, AJOIN_SCHEMA, _ajoin_rows, ajoin)
ASTREAM = Workload("AStream", 2, KEYS, SCHEMA, _astream_rows, astream_join)


def chain(ways: int) -> Workload:
    """AJoin's n-way joins, aggregated."""
    return Workload(f"AJoin chain of {ways}", ways, AJOIN_MAX, AJOIN_SCHEMA, _ajoin_rows, ajoin_chain)


def complex_query(ways: int) -> Workload:
    """AStream's complex queries over so many streams."""
    return Workload(f"AStream complex of {ways}", ways, KEYS, SCHEMA, _astream_rows, astream_complex)


WORKLOADS: dict[str, Workload] = {
    one.name: one
    for one in (AJOIN, ASTREAM, *(chain(n) for n in range(2, 6)), *(complex_query(n) for n in range(2, 6)))
}
