"""The tables of a suite on the terminal."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest
from rich.console import Console
from tests.bench.reporting.suites import deployed, result, sweep

from millstream.bench.driving.model import GeneratorProof, Search, Suite
from millstream.bench.reporting.brackets import bracket_of
from millstream.bench.reporting.outcomes import Outcome, outcome_of, outcomes
from millstream.bench.reporting.tables import generator_margins, print_suite, result_row


def printed(suite: Suite) -> str:
    stream = io.StringIO()
    print_suite(suite, Console(file=stream, width=240))
    return stream.getvalue()


def test_a_search_shows_its_highest_sustained_rate() -> None:
    runs = (result(rate=400.0, sustained=False), result(rate=100.0), result(rate=200.0))
    found = outcome_of(Search("t", runs))
    assert found == Outcome(runs[2], Search("t", runs))
    assert found.words == "highest sustained of 3 rates"


def test_a_search_that_sustained_nothing_shows_the_lowest_rate() -> None:
    found = outcome_of(Search("t", (result(rate=400.0, sustained=False), result(rate=100.0, sustained=False))))
    assert found is not None
    assert (found.run.spec.rate, found.words) == (100.0, "none of 2 rates sustained")
    assert outcome_of(Search("t", ())) is None


def test_a_row_of_the_results() -> None:
    run = result(rate=20_000.0, taken=10_000.0, rates=((0.0, 1.2),), deployments=deployed(0.1, 0.2), sustained=False)
    wanted = ("astream-sc1", "millstream", "10", "1.00M", "24.0k", "10.0k", "100.0k", "424 ms", "439 ms", "200 ms")
    assert result_row(Outcome(run)) == (*wanted, "–", "not sustained")
    failed = replace(run, errors=("x",), latencies=(), deployments=(), spec=replace(run.spec, density=0))
    assert result_row(Outcome(failed))[3:4] + result_row(Outcome(failed))[7:] == ("rate", "–", "–", "–", "–", "failed")


@pytest.mark.parametrize(
    ("sustained", "failed", "words", "least", "most"),
    [
        ((8e6, 9e6), (16e6, 10e6), "9.00M … 10.00M, 11 %", 9e6, 10e6),
        ((), (4e6, 2e6), "0 … 2.00M", 0.0, 2e6),
        ((1e6, 2e6), (), "2.00M … ?", 2e6, math.inf),
        # A rate that failed below one that was sustained is a reason to doubt.
        ((3e6,), (2e6, 4e6), "3.00M … 4.00M, 33 %, yet not 2.00M", 2e6, 4e6),
    ],
)
def test_a_search_knows_its_rate_up_to_its_bracket(
    sustained: tuple[float, ...], failed: tuple[float, ...], words: str, least: float, most: float
) -> None:
    runs = [*(result(rate=rate, sustained=False) for rate in failed), *(result(rate=rate) for rate in sustained)]
    search = Search("t", tuple(runs))
    bracket = bracket_of(search)
    assert (bracket.words, bracket.least, bracket.most) == (words, least, most)
    outcome = outcome_of(search)
    assert outcome is not None
    assert result_row(outcome)[-2] == words
    assert words in printed(Suite("s", {}, {}, (search,)))


def test_the_generator_margin_is_the_smallest_in_one_run() -> None:
    fast, slow = GeneratorProof(1_000_000, 0.1, 0.002), GeneratorProof(1_000_000, 0.5, 0.5)
    runs = [replace(result(rate=4e6), generator=fast), replace(result(rate=1e5), generator=slow)]
    (margin,) = generator_margins(runs)
    assert (margin.asked, margin.capacity, margin.times, margin.late) == (4e6, 2e6, 2.5, 0.5)
    assert margin.words == "fast enough"
    (slower,) = generator_margins([replace(result(rate=4e6), generator=slow)])
    assert slower.words.startswith("the bottleneck")
    (ahead,) = generator_margins([replace(result(rate=4e6), generator=replace(slow, late=0.1))])
    assert ahead.words == "made ahead, on time"
    assert generator_margins([replace(result(), generator=GeneratorProof(0, 0.0, 0.0))]) == []


def test_everything_is_printed() -> None:
    text = printed(sweep())
    for words in (
        "highest sustained of 2 rates",
        "none of 1 rate sustained",
        "missed: 0.45 of at most 0.3, 50 % over",
        "missed: not sustained; 230 of 200",
        "met, 1.2 times",
        "not measured",
        "astream-sc1, spark, 100 queries: the queue grew all the time",
        "java.lang.OutOfMemoryError: <script>",
        "failed: flink: not there",
        "capacity/s",
        "the slowest data throughput",
        "the overall data throughput",
    ):
        assert words in text
    assert len(outcomes(sweep())) == 7


def test_an_empty_suite_prints_nothing() -> None:
    assert printed(Suite("s", {}, {})) == ""
