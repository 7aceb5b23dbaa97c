"""Differences beyond the noise."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console
from tests.bench.reporting.suites import MACHINE, deployed, result

from millstream.bench.driving.model import Latency, Search, Suite
from millstream.bench.reporting.comparing import Difference, compare, notes, print_comparison


def suite(*rates: float, machine: dict[str, Any] | None = None, **changes: Any) -> Suite:
    """A search for each rate, all of one cell."""
    searches = tuple(Search("t", (result(rate=rate, **changes),)) for rate in rates)
    return Suite("s", machine or MACHINE, {}, searches)


def throughput(a: Suite, b: Suite) -> Difference:
    return next(one for one in compare(a, b) if one.metric == "sustainable input")


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ((1000.0,), (1090.0,), "same"),
        ((1000.0,), (1250.0,), "better"),
        ((1000.0,), (750.0,), "worse"),
        # Outside the band of the one, inside that of the other.
        ((1000.0,), (1105.0,), "same"),
        # The spread of several runs is their band, however wide …
        ((600.0, 1000.0, 1400.0), (1300.0,), "same"),
        ((600.0, 1000.0, 1400.0), (1600.0,), "better"),
        # … and a narrow one lets a small difference count, yet not the smallest.
        ((1000.0, 1001.0), (1050.0, 1051.0), "better"),
        ((1000.0, 1001.0), (1020.0, 1021.0), "same"),
    ],
)
def test_a_difference_lies_outside_both_bands(a: tuple[float, ...], b: tuple[float, ...], verdict: str) -> None:
    assert throughput(suite(*a), suite(*b)).verdict == verdict


def test_the_ratio_and_its_range() -> None:
    found = throughput(suite(1000.0), suite(2000.0))
    assert found.ratio == 2.0
    assert found.ratio_range == (pytest.approx(1800 / 1100), pytest.approx(2200 / 900))


def test_of_a_search_the_candidates_are_not_noise() -> None:
    runs = (result(rate=8000.0, sustained=False), result(rate=1000.0), result(rate=2000.0))
    a = Suite("s", MACHINE, {}, (Search("t", runs),))
    found = throughput(a, a)
    assert found.a is not None
    assert (found.a.middle, found.a.runs) == (2000.0, 1)


def test_a_system_that_no_longer_sustains_anything_is_worse() -> None:
    found = throughput(suite(1000.0), suite(1000.0, sustained=False))
    assert (found.verdict, found.ratio) == ("worse", None)
    assert throughput(suite(1000.0, sustained=False), suite(1000.0)).verdict == "better"


def test_less_latency_is_better() -> None:
    def runs(seconds: float) -> Suite:
        run = result(latencies=(Latency(20.0, seconds, 0.0, 1),), deployments=deployed(seconds))
        return Suite("s", MACHINE, {}, runs=(run,))

    found = {one.metric: one.verdict for one in compare(runs(1.0), runs(0.5))}
    assert found == {"event-time latency p50": "better", "event-time latency p99": "better", "deployment p99": "better"}
    assert {one.verdict for one in compare(runs(1.0), runs(2.0))} == {"worse"}


def test_cells_of_one_side() -> None:
    both = compare(suite(1000.0), suite(1000.0, density=100_000))
    assert {(one.cell.density, one.verdict, one.ratio) for one in both} == {
        (100_000, "only in B", None),
        (1_000_000, "only in A", None),
    }
    assert compare(Suite("a", {}, {}), Suite("b", {}, {})) == []


@pytest.mark.parametrize("change", [{"processor": "another"}, {"cores": 4}, {"memory_bytes": 16 << 30}])
def test_on_another_machine_nothing_is_a_difference(change: dict[str, Any]) -> None:
    a, b = suite(1000.0), suite(9000.0, machine=MACHINE | change)
    assert {one.verdict for one in compare(a, b)} == {"other machine"}
    assert any(note.startswith("the machines differ") for note in notes(a, b))


def test_a_little_less_memory_is_the_same_machine() -> None:
    a, b = suite(1000.0), suite(2000.0, machine=MACHINE | {"memory_bytes": (8 << 30) - (64 << 20)})
    assert throughput(a, b).verdict == "better"
    assert notes(a, b) == []


def test_what_else_differs_is_noted() -> None:
    a = Suite("s", MACHINE, {"seed": 1, "command": "x"})
    b = Suite("s", MACHINE | {"load": 1.5, "versions": {"python": "3.12", "pyspark": "4.3"}}, {"seed": 2})
    assert notes(a, b) == [
        "the machine of B was busy (load 1.5): do not trust its figures",
        "version of python: 3.11 and 3.12",
        "option seed: 1 and 2",
    ]


def test_the_table_states_the_bands() -> None:
    stream = io.StringIO()
    a, b = suite(1000.0), suite(2000.0)
    print_comparison(a, b, compare(a, b), Console(file=stream, width=240))
    text = stream.getvalue()
    assert "±10 % where there is only one" in text
    assert "1.64 to 2.44" in text
    assert "better" in text
