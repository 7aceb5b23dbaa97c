"""The queries and rows of the join benchmark: AJoin's pure joins and chains, AStream's joins by key; made by a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import ClassVar

import pyarrow as pa

from millstream.bench.workload import FIELDS, FIELDS_MAX, KEYS, OPERATORS, SCHEMA, WINDOW_MAX
from millstream.model.stream import Field
from millstream.model.types import INTEGER, TIMESTAMP
from millstream.sources.generators import AStreamGenerator, RowGenerator

ATTRIBUTES = tuple(f"a{i}" for i in range(1, 7))
AJOIN_MAX = 500
AJOIN_SCHEMA = ", ".join([*(f"{name} INT" for name in ATTRIBUTES), "time TIMESTAMP"])
SOURCES = tuple(f"s{i}" for i in range(1, 6))
# Constants of the predicates of n-way joins: each source keeps two to three fifths of its rows, whatever n is.
HALF = (200, 300)
SIMILARITY = 0.5

# Chosen by what it draws, before anything was measured with it: AStream's first join has a tumbling window and keeps
# half of the rows of each side, so that the comparison at one query rests on neither a huge nor an empty answer.
DEFAULT_SEED = 1414


@dataclass(frozen=True, slots=True, kw_only=True)
class AJoinGenerator(RowGenerator):
    """Tuples of the AJoin workload: six attributes, each uniform in [0, 500)."""

    kind: ClassVar[str] = "ajoin"

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*(Field(name, INTEGER) for name in ATTRIBUTES), Field("time", TIMESTAMP))

    def column(self, name: str, block: int, first: int, rows: int) -> pa.Array:
        return pa.array(self._uniform(name, block, first, rows, AJOIN_MAX)).cast(pa.int32())


@dataclass(frozen=True)
class Workload:
    """A kind of joins over the first ``ways`` of five like streams with ``keys`` distinct join keys each."""

    name: str
    ways: int
    keys: int
    schema: str
    generator: Callable[[int, int], RowGenerator]
    draw: Callable[[Random, int], str]

    @property
    def streams(self) -> tuple[str, ...]:
        return SOURCES[: self.ways]

    def queries(self, count: int, seed: int) -> list[str]:
        """The first ``count`` queries of a seed: a smaller number is always the beginning of a larger one."""
        random = Random(seed)
        return [self.draw(random, self.ways) for _ in range(count)]


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


def ajoin(random: Random, ways: int) -> str:
    """A pure join of two sources; the pattern joins the first attribute of both, and a query has one of them in common
    with it."""
    sources, attributes = common_parts(SIMILARITY, ways, random.randint(1, ways))
    assert sources == ways
    kept = random.sample(range(ways), attributes)
    left, right = (ATTRIBUTES[0] if side in kept else random.choice(ATTRIBUTES[1:]) for side in range(ways))
    window = f"window(time, '{random.randint(1, 3)} seconds')"
    made = _sources([(source, window, "") for source in SOURCES[:ways]])
    on = f"s1.{left} = s2.{right} AND s1.w = s2.w"
    return f"{made} SELECT s1.{left} AS k, s1.a6 AS x, s2.a6 AS y FROM w1 AS s1 JOIN w2 AS s2 ON {on}"


def astream_join(random: Random, ways: int) -> str:
    """AStream's join of two streams by key, one predicate on each side, a sliding window."""
    window, predicates = _astream_window(random), [_astream_predicate(random) for _ in range(ways)]
    made = _sources([(s, window, p) for s, p in zip(SOURCES, predicates, strict=False)])
    joined = "w1 AS s1 JOIN w2 AS s2 ON s1.key = s2.key AND s1.w = s2.w"
    return f"{made} SELECT s1.key AS k, s1.field1 AS x, s2.field1 AS y FROM {joined}"


def ajoin_chain(random: Random, ways: int) -> str:
    """An n-way join on different attributes at each step, aggregated by the first join attribute."""
    window = f"window(time, '{random.randint(1, 3)} seconds')"
    conditions = _halves(random, ATTRIBUTES)
    # Two join attributes of each source: that to the source before, and that to the next.
    attributes = [random.sample(ATTRIBUTES[:5], 2) for _ in SOURCES]
    made = _sources([(s, window, c) for s, c in zip(SOURCES[:ways], conditions, strict=False)])
    joined = "w1 AS s1"
    for number in range(2, ways + 1):
        on = f"s{number - 1}.{attributes[number - 2][1]} = s{number}.{attributes[number - 1][0]}"
        joined += f" JOIN w{number} AS s{number} ON {on} AND s1.w = s{number}.w"
    key = f"s1.{attributes[0][1]}"
    return f"{made} SELECT {key} AS k, COUNT(*) AS x, SUM(s{ways}.a6) AS y FROM {joined} GROUP BY {key}, s1.w"


def astream_complex(random: Random, ways: int) -> str:
    """AStream's complex query: one predicate on each source, an n-ary join by key, an aggregation."""
    window = _astream_window(random)
    made = _sources([(s, window, c) for s, c in zip(SOURCES[:ways], _halves(random, FIELDS), strict=False)])
    joined = "w1 AS s1"
    for number in range(2, ways + 1):
        joined += f" JOIN w{number} AS s{number} ON s1.key = s{number}.key AND s1.w = s{number}.w"
    return f"{made} SELECT s1.key AS k, COUNT(*) AS x, SUM(s{ways}.field1) AS y FROM {joined} GROUP BY s1.key, s1.w"


def _sources(parts: list[tuple[str, str, str]]) -> str:
    """The WITH clause: each source with its window column and its condition, as w1, w2, …"""
    made = []
    for number, (source, window, condition) in enumerate(parts, start=1):
        where = f" WHERE {condition}" if condition else ""
        made.append(f"w{number} AS (SELECT *, {window} AS w FROM {source}{where})")
    return "WITH " + ", ".join(made)


def _astream_window(random: Random) -> str:
    length = random.randint(1, WINDOW_MAX)
    return f"window(time, '{length} seconds', '{random.randint(1, length)} seconds')"


def _astream_predicate(random: Random) -> str:
    return f"{random.choice(FIELDS)} {random.choice(OPERATORS)} {random.randrange(FIELDS_MAX)}"


def _halves(random: Random, attributes: tuple[str, ...]) -> list[str]:
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
