"""From measurements to a verdict: the ratios, and each target met or missed by how much."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from millstream.bench.jobs import CellResult, DeployResult
from millstream.bench.machine import Machine
from millstream.bench.state import DENSE_CELL_BYTES

# Targets of the benchmark.
ONE_QUERY_RATIO = 1.0
THOUSAND_RATIO = 0.5
OVERALL_RATIO = 500.0
SEALED_P99 = 0.3
CREATE_RATE = 100.0
# The last acknowledgement comes a little after the last request is due: the rate achieved is a little below the asked.
RATE_TOLERANCE = 0.98

ONE, PLAIN_MANY, MANY = 1, 20, 1000


@dataclass(frozen=True, slots=True)
class Target:
    """``got`` must be at least, or for ``at_most`` at most, ``wanted``; None where it was not measured. ``held``:
    whether what it was measured on was sustained; it is missed otherwise, whatever the figure is."""

    name: str
    wanted: float
    got: float | None
    at_most: bool = False
    unit: str = "×"
    held: bool = True

    @property
    def met(self) -> bool | None:
        return None if self.got is None else self.held and self.reached

    @property
    def reached(self) -> bool:
        """Whether the figure alone is good enough."""
        if self.got is None:
            return False
        return self.got <= self.wanted if self.at_most else self.got >= self.wanted

    @property
    def margin(self) -> float | None:
        """How many times better than wanted the figure is; below 1 is missed.

        >>> Target("t", 500.0, 250.0).margin, Target("t", 0.3, 0.1, at_most=True).margin
        (0.5, 3.0)
        """
        if self.got is None or not self.wanted or self.got <= 0:
            return None
        return round(self.wanted / self.got if self.at_most else self.got / self.wanted, 6)


@dataclass(frozen=True)
class Measurements:
    """All that one run of the benchmark found; throughput cells by number of queries."""

    machine: Machine
    dense: Mapping[int, CellResult] = field(default_factory=dict)
    sparse: Mapping[int, CellResult] = field(default_factory=dict)
    plain: Mapping[int, CellResult] = field(default_factory=dict)
    # The same single query with each state store; the faster one is used for all plain cells.
    plain_by_store: Mapping[str, CellResult] = field(default_factory=dict)
    deployment: DeployResult | None = None
    failures: tuple[str, ...] = ()


def input_rate(cells: Mapping[int, CellResult], queries: int) -> float | None:
    return cells[queries].best.throughput.input_rate if queries in cells else None


def overall_rate(cells: Mapping[int, CellResult], queries: int) -> float | None:
    return cells[queries].best.throughput.overall_rate if queries in cells else None


def ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below else above / below


def targets(found: Measurements) -> list[Target]:
    """Every target, those included that this run did not measure."""
    ours_one, ours_many = input_rate(found.dense, ONE), input_rate(found.dense, MANY)
    overall = ratio(overall_rate(found.dense, MANY), overall_rate(found.plain, PLAIN_MANY))
    return [
        Target("1 query: rows/s against plain Spark", ONE_QUERY_RATIO, ratio(ours_one, input_rate(found.plain, ONE))),
        Target("1000 queries: rows/s against our own at 1", THOUSAND_RATIO, ratio(ours_many, ours_one)),
        Target("1000 queries: overall rows/s against plain Spark's at 20", OVERALL_RATIO, overall),
        *_deployment_targets(found.deployment),
        *_state_targets(found.dense),
    ]


def _deployment_targets(found: DeployResult | None) -> Iterator[Target]:
    def sealed(name: str, got: float | None) -> Target:
        return Target(name, SEALED_P99, got, at_most=True, unit="s")

    if found is None or not found.levels:
        yield sealed("create to sealed epoch, p99", None)
    for level in found.levels if found else ():
        yield sealed(f"create to sealed epoch beside {level.running} queries, p99", level.sealed.p99)
    storm = found.storm if found else None
    yield Target(
        "creates a second, sustained", CREATE_RATE * RATE_TOLERANCE, storm.achieved_rate if storm else None, unit="/s"
    )
    yield sealed("create to sealed epoch at that rate, p99", storm.sealed.p99 if storm else None)


def _state_targets(dense: Mapping[int, CellResult]) -> Iterator[Target]:
    """State against the smaller layout, cell by cell and byte by byte, at the largest number of queries."""
    state = dense[max(dense)].best.state if dense else None
    least = state.least if state else None
    yield Target(
        "state: cells against the smaller layout", 1.0, ratio(state.cells if state else None, least), at_most=True
    )
    size = None if least is None else least * DENSE_CELL_BYTES
    yield Target(
        "state: bytes against the smaller layout", 1.0, ratio(state.bytes if state else None, size), at_most=True
    )


def answers_agree(found: Measurements) -> bool | None:
    """Whether the first query got the same answers from both systems; None where they had different input."""
    if ONE not in found.dense or ONE not in found.plain:
        return None
    ours, plain = found.dense[ONE], found.plain[ONE]
    if ours.cell.checked_rows != plain.cell.rows or ours.cell.dataset != plain.cell.dataset:
        return None
    return all(run.first_query == plain.best.first_query for run in ours.runs)


def as_json(found: Measurements, options: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that was measured, every raw number included."""
    return {
        "benchmark": "scale",
        "options": dict(options),
        "machine": asdict(found.machine),
        "targets": [asdict(target) | {"met": target.met, "margin": target.margin} for target in targets(found)],
        "answers_agree": answers_agree(found),
        "dense": _cells(found.dense),
        "sparse": _cells(found.sparse),
        "plain": _cells(found.plain),
        "plain_by_store": _cells(found.plain_by_store),
        "deployment": None if found.deployment is None else asdict(found.deployment),
        "failures": list(found.failures),
    }


def _cells(cells: Mapping[Any, CellResult]) -> dict[str, Any]:
    return {str(key): _cell(result) for key, result in cells.items()}


def _cell(result: CellResult) -> dict[str, Any]:
    best = result.best.throughput
    return asdict(result) | {"input_rate": best.input_rate, "overall_rate": best.overall_rate}
