"""Rates leave the warm-up out; percentiles are values that were measured."""

from __future__ import annotations

import pytest

from millstream.bench.measure import Commit, Summary, percentile, throughput


def test_the_rate_begins_with_the_first_commit_after_a_quarter() -> None:
    #   commits   10 s (cold)   12 s   13 s   14 s            answers of all at 14.5 s
    #   rows      20            30     25     25   of 100
    #   a quarter of the rows is reached at 12 s: 50 rows in 2.5 s are measured
    commits = [Commit(10.0, 20), Commit(12.0, 30), Commit(13.0, 25), Commit(14.0, 25)]
    found = throughput(commits, readers=1, queries=10, end=14.5)
    assert (found.rows, found.seconds) == (50, 2.5)
    assert found.input_rate == 20.0
    assert found.overall_rate == 200.0


def test_readers_of_the_same_input_are_measured_together() -> None:
    # Two queries read the same 40 rows each; 60 of the 80 are read after the first commit.
    commits = [Commit(1.0, 20), Commit(2.0, 20), Commit(3.0, 20), Commit(5.0, 20)]
    found = throughput(commits, readers=2, queries=2, end=5.0)
    assert (found.rows, found.seconds) == (30, 4.0)
    assert found.overall_rate == pytest.approx(60 / 4)


def test_the_order_of_the_commits_does_not_matter() -> None:
    commits = [Commit(3.0, 5), Commit(1.0, 5), Commit(2.0, 5)]
    assert throughput(commits, 1, 1, 3.0) == throughput(sorted(commits, key=lambda c: c.at), 1, 1, 3.0)


def test_a_batch_without_rows_does_not_begin_the_measurement() -> None:
    commits = [Commit(0.5, 0), Commit(1.0, 10), Commit(2.0, 10)]
    assert throughput(commits, 1, 1, 2.0).seconds == 1.0


def test_one_batch_cannot_be_measured() -> None:
    with pytest.raises(ValueError, match="single micro-batch"):
        throughput([Commit(1.0, 100)], 1, 1, 2.0)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0), (0.001, 1.0)])
def test_percentiles_are_nearest_ranks(share: float, expected: float) -> None:
    assert percentile([float(value) for value in range(100, 0, -1)], share) == expected


def test_a_summary_keeps_every_sample() -> None:
    summary = Summary((0.3, 0.1, 0.2))
    assert (summary.median, summary.p99, summary.most, len(summary.values)) == (0.2, 0.3, 0.3, 3)
