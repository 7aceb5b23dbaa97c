"""Differences beyond the noise."""

from __future__ import annotations

import io
import math
import re
from typing import Any

import pytest
from rich.console import Console
from tests.bench.reporting.suites import MACHINE, deployed, result

from millstream.bench.driving.model import Latency, Search, Suite
from millstream.bench.reporting.comparing import Difference, compare, notes, print_comparison


def suite(*rates: float, machine: dict[str, Any] | None = None, **changes: Any) -> Suite:
    """A search for each rate, all of one cell, with hardly any bracket."""
    searches = tuple(bracket(rate, rate * 1.01, **changes) for rate in rates)
    return Suite("s", machine or MACHINE, {}, searches)


def bracket(low: float | None, high: float | None, **changes: Any) -> Search:
    """A search that sustained one rate, and failed at another."""
    failed = () if high is None else (result(rate=high, sustained=False, **changes),)
    return Search("t", (*failed, *(() if low is None else (result(rate=low, **changes),))))


def suite_of(*searches: Search) -> Suite:
    return Suite("s", MACHINE, {}, searches)


def singles(rate: float, seconds: float) -> Suite:
    run = result(rate=rate, latencies=(Latency(20.0, seconds, 0.0, 1),))
    return Suite("s", MACHINE, {}, runs=(run,))


def printed(a: Suite, b: Suite) -> str:
    stream = io.StringIO()
    print_comparison(a, b, compare(a, b), Console(file=stream, width=240))
    return stream.getvalue()


def throughput(a: Suite, b: Suite) -> Difference:
    return next(one for one in compare(a, b) if one.metric == "sustainable input")


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ((1000.0,), (1090.0,), "same"),
        ((1000.0,), (1250.0,), "better"),
        ((1000.0,), (750.0,), "worse"),
        # Outside the band of the one, inside that of the other.
        ((1120.0,), (1000.0,), "same"),
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
    assert found.ratio_range == (pytest.approx(1800 / 1111), pytest.approx(2222 / 900))


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        # Brackets of 12 %, the search's own grid: B begins where A ends, and beyond the noise of 10 %.
        ((1000.0, 1120.0), (1120.0, 1254.0), "same"),
        ((1000.0, 1120.0), (1225.0, 1372.0), "same"),
        ((1000.0, 1120.0), (1260.0, 1411.0), "better"),
        ((1260.0, 1411.0), (1000.0, 1120.0), "worse"),
        # A search that ended early knows little …
        ((1000.0, 2000.0), (1900.0, 2100.0), "same"),
        ((1000.0, 2000.0), (2300.0, 2500.0), "better"),
        # … and one that never failed knows no end above, one that never sustained none below.
        ((1000.0, None), (5000.0, 5500.0), "same"),
        ((1000.0, None), (500.0, 550.0), "worse"),
        ((None, 500.0), (400.0, 450.0), "same"),
        ((None, 500.0), (900.0, 950.0), "better"),
    ],
)
def test_searched_rates_differ_where_their_brackets_are_apart(
    a: tuple[float | None, float | None], b: tuple[float | None, float | None], verdict: str
) -> None:
    sides = suite_of(bracket(*a)), suite_of(bracket(*b))
    found = {one.metric: one.verdict for one in compare(*sides)}
    assert found == {"sustainable input": verdict, "sustainable overall": verdict}


def test_several_searches_have_the_spread_of_their_brackets() -> None:
    a = suite_of(bracket(1000.0, 1100.0), bracket(1050.0, 1150.0))
    assert throughput(a, suite_of(bracket(1140.0, 1300.0))).verdict == "same"
    assert throughput(a, suite_of(bracket(1300.0, 1400.0))).verdict == "better"


def test_a_rate_that_failed_below_the_one_sustained_widens_the_band() -> None:
    doubtful = Search("t", (*bracket(1000.0, 1100.0).runs, result(rate=600.0, sustained=False)))
    assert throughput(suite_of(doubtful), suite_of(bracket(620.0, 650.0))).verdict == "same"
    assert throughput(suite_of(bracket(1000.0, 1100.0)), suite_of(bracket(620.0, 650.0))).verdict == "worse"


def test_a_search_that_never_failed_is_noted() -> None:
    open_ended = suite_of(bracket(1000.0, None))
    assert notes(open_ended, suite(1000.0)) == [
        "A: nothing above failed in the search 't', so its rate is a lower bound"
    ]
    (found, _) = compare(open_ended, suite_of(bracket(2000.0, None)))
    assert found.ratio_range == (0.0, math.inf)
    assert "0.00 to ∞" in printed(open_ended, suite_of(bracket(2000.0, None)))


@pytest.mark.parametrize(
    ("rate", "asked", "verdict"),
    [(1000.0, "1000", "worse"), (1005.0, "1000", "worse"), (1500.0, "1000, 1500", "worse, at another rate")],
)
def test_latencies_say_at_what_rate_they_were_taken(rate: float, asked: str, verdict: str) -> None:
    a, b = singles(1000.0, 1.0), singles(rate, 2.0)
    (line, *_) = [line for line in printed(a, b).splitlines() if "latency p99" in line]
    cells = [cell.strip() for cell in re.split(r"\s{2,}", line.split("latency p99")[1].rstrip())]
    assert (cells[1], cells[-1]) == (asked, verdict)
    other = {one.other_rate for one in compare(a, b)}
    assert other == {rate == 1500.0}
    assert ("may be that of the loads" in printed(a, b)) is (rate == 1500.0)


def test_of_a_search_the_candidates_are_not_noise() -> None:
    runs = (result(rate=2100.0, sustained=False), result(rate=1000.0), result(rate=2000.0))
    a = Suite("s", MACHINE, {}, (Search("t", runs),))
    found = throughput(a, a)
    assert found.a is not None
    assert (found.a.middle, found.a.runs) == (2000.0, 1)


def test_a_system_that_no_longer_sustains_anything_is_worse() -> None:
    found = throughput(suite(1000.0), suite_of(bracket(None, 500.0)))
    assert (found.verdict, found.ratio) == ("worse", None)
    assert throughput(suite_of(bracket(None, 500.0)), suite(1000.0)).verdict == "better"


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
    a = Suite("s", MACHINE, {"seed": 1, "began": "x"})
    b = Suite(
        "s", MACHINE | {"load": 1.5, "versions": {"python": "3.12", "pyspark": "4.3", "commit": "def5678"}}, {"seed": 2}
    )
    assert notes(a, b) == [
        "the machine of B was busy (load 1.5): do not trust its figures",
        "version of python: 3.11 and 3.12",
        "version of commit: abc1234+ and def5678",
        "option seed: 1 and 2",
    ]


def test_the_table_states_the_bands() -> None:
    text = printed(suite(1000.0), suite(2000.0))
    assert "±10 % where there is only one" in text
    assert "1.62 to 2.47" in text
    assert "better" in text
