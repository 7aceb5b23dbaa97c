"""From join measurements to a verdict: the ratios, and each target met or missed by how much."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from millstream.bench.join_jobs import ApartResult, JoinResult
from millstream.bench.machine import Machine
from millstream.bench.report import ONE, PLAIN_MANY, Target, ratio

# Targets of the benchmark.
ONE_QUERY_RATIO = 1.0
OVERALL_RATIO = 15.0
MANY_RATIO = 1 / 3
PAIRS_RATIO = 50.0
WAYS_RATIO = 1 / 5
MEMORY_GIB = 2.0
GIB = 1 << 30

MANY = 500
FEW_WAYS, MOST_WAYS = 2, 5

# Throughput cells of one workload, by number of queries.
Cells = Mapping[int, JoinResult]


@dataclass(frozen=True)
class JoinMeasurements:
    """All that one run of the benchmark found; ``checked`` is the first query on plain Spark's own input, every answer
    read; ``ways`` by kind of query, number of streams and number of queries."""

    machine: Machine
    ours: Mapping[str, Cells] = field(default_factory=dict)
    plain: Mapping[str, Cells] = field(default_factory=dict)
    plain_by_store: Mapping[str, Mapping[str, JoinResult]] = field(default_factory=dict)
    checked: Mapping[str, JoinResult] = field(default_factory=dict)
    sweep: Mapping[int, JoinResult] = field(default_factory=dict)
    ways: Mapping[str, Mapping[tuple[int, int], JoinResult]] = field(default_factory=dict)
    apart: ApartResult | None = None
    failures: tuple[str, ...] = ()


def answered(cells: Cells, queries: int) -> float | None:
    return cells[queries].answered_rate if queries in cells else None


def drained(cells: Cells, queries: int) -> float | None:
    return cells[queries].drained_rate if queries in cells else None


def join_targets(found: JoinMeasurements) -> list[Target]:
    """Every target, those included that this run did not measure."""
    made: list[Target] = []
    for name in dict.fromkeys([*found.ours, *found.plain]) or ("joins",):
        made += _throughput_targets(name, found.ours.get(name, {}), found.plain.get(name, {}))
    for name, cells in found.ways.items() or [("n-way joins", {})]:
        made += _ways_targets(name, cells)
    return [*made, *_apart_targets(found.apart)]


def _throughput_targets(name: str, ours: Cells, plain: Cells) -> Iterator[Target]:
    for word, rate in (("answered", answered), ("drained", drained)):
        one = ratio(rate(ours, ONE), answered(plain, ONE))
        yield Target(f"{name}, 1 query {word}: rows/s of plain Spark", ONE_QUERY_RATIO, one)
        # The same number of queries on both sides, so the ratio of overall rates is that of input rates.
        many = ratio(rate(ours, PLAIN_MANY), answered(plain, PLAIN_MANY))
        yield Target(f"{name}, 20 queries {word}: overall of plain Spark", OVERALL_RATIO, many)
    shared = ratio(answered(ours, MANY), answered(ours, ONE))
    yield Target(f"{name}, 500 queries answered: rows/s of our own at 1", MANY_RATIO, shared)


def _ways_targets(name: str, cells: Mapping[tuple[int, int], JoinResult]) -> Iterator[Target]:
    for queries in sorted({queries for _, queries in cells}) or [ONE]:
        rates = [
            cells[ways, queries].answered_rate if (ways, queries) in cells else None for ways in (MOST_WAYS, FEW_WAYS)
        ]
        words = "1 query" if queries == 1 else f"{queries} queries"
        yield Target(f"{name}, {words}: 5-way of 2-way", WAYS_RATIO, ratio(*rates))


def _apart_targets(found: ApartResult | None) -> Iterator[Target]:
    made = found.aggregation if found else None
    pairs = ratio(made.built, made.fire) if made else None
    yield Target("aggregated join: time of the pairs in DuckDB", PAIRS_RATIO, pairs)
    memory = found.memory if found else None
    peaks = (memory.fired, memory.read) if memory else (None, None)
    for word, peak in zip(("fired", "read"), peaks, strict=True):
        size = None if peak is None else peak / GIB
        yield Target(f"peak memory, large answer {word}", MEMORY_GIB, size, at_most=True, unit="GiB")


def join_answers_agree(found: JoinMeasurements) -> dict[str, bool]:
    """For each workload whether the first query got the same rows from both systems, where both finished."""
    agree = {}
    for name, ours in found.checked.items():
        plain = found.plain.get(name, {}).get(ONE)
        if plain is not None and plain.first_query is not None and ours.first_query is not None:
            agree[name] = ours.first_query == plain.first_query
    return agree


def join_json(found: JoinMeasurements, options: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that was measured, every raw number included."""
    return {
        "benchmark": "joins",
        "options": dict(options),
        "machine": asdict(found.machine),
        "targets": [asdict(target) | {"met": target.met, "margin": target.margin} for target in join_targets(found)],
        "answers_agree": join_answers_agree(found),
        "ours": {name: _cells(cells) for name, cells in found.ours.items()},
        "plain": {name: _cells(cells) for name, cells in found.plain.items()},
        "plain_by_store": {name: _cells(cells) for name, cells in found.plain_by_store.items()},
        "checked": _cells(found.checked),
        "sweep": _cells(found.sweep),
        "ways": {
            name: _cells({f"{ways} streams, {queries} queries": r for (ways, queries), r in cells.items()})
            for name, cells in found.ways.items()
        },
        "apart": None if found.apart is None else asdict(found.apart),
        "failures": list(found.failures),
    }


def _cells(cells: Mapping[Any, JoinResult]) -> dict[str, Any]:
    return {
        str(key): asdict(result) | {"answered_rate": result.answered_rate, "drained_rate": result.drained_rate}
        for key, result in cells.items()
    }
