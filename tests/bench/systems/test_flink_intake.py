"""Where jobs are: rows of their lanes, as rows of all streams, and when they began with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.bench.driving.model import Pull
from millstream.bench.systems.flink_intake import Intake, pulls
from millstream.bench.systems.flink_lanes import Inflow, Lane


def intake(part: float = 1.0, missed: int = 0, lanes: int = 1) -> Intake:
    inflow = Inflow(Path("queue"), part)
    return Intake(part, missed, [Lane(Path("lane"), inflow, number, lanes, 0) for number in range(lanes)])


def begin(job: Intake, at: float, rows: int, lane: int = 0) -> None:
    job.lanes[lane].begun += rows
    job.begins(at)


@pytest.mark.parametrize(
    ("part", "missed", "taken", "of_all"),
    [
        (1.0, 0, 0, 0),
        (1.0, 0, 400, 400),
        (1.0, 100, 400, 500),
        (0.5, 0, 400, 800),
        # A job that comes later is where one that has read all of its stream is.
        (0.5, 100, 300, 800),
        (0.25, 100, 0, 400),
        (1 / 3, 0, 1000, 3000),
    ],
)
def test_rows_count_for_all_streams(part: float, missed: int, taken: int, of_all: int) -> None:
    job = intake(part, missed)
    job.lanes[0].taken = taken
    assert job.taken == of_all


def test_a_moment_is_that_of_the_file_with_the_row() -> None:
    job = intake(0.5, 10)
    begin(job, 3.0, 10)
    begin(job, 7.0, 5)
    assert [job.begun(rows) for rows in (1, 20, 21, 40, 41, 50)] == [None, None, 3.0, 3.0, 7.0, 7.0]
    job.forget(40)
    assert job.begun(41) == 7.0


def test_the_last_job_to_begin_decides() -> None:
    fast, slow = intake(), intake()
    for at, rows in ((1.0, 10), (2.0, 10), (3.0, 10)):
        begin(fast, at, rows)
        begin(slow, at + 0.5, rows)
    fast.lanes[0].taken, slow.lanes[0].taken = 30, 20
    assert pulls([fast, slow], 0, 20) == (Pull(1.5, 10), Pull(2.5, 20))
    assert pulls([fast, slow], 10, 20) == (Pull(2.5, 20),)
    assert pulls([fast, slow], 20, 20) == ()
    assert pulls([], 0, 20) == ()


def test_steps_are_those_of_the_slowest_job() -> None:
    # One took a backlog as one file, after the other had read the first of its files.
    behind, ahead = intake(), intake()
    begin(behind, 5.0, 30)
    for at in (1.0, 2.0, 6.0):
        begin(ahead, at, 10)
    behind.lanes[0].taken, ahead.lanes[0].taken = 30, 20
    assert pulls([behind, ahead], 0, 20) == (Pull(5.0, 10), Pull(5.0, 20))
    behind.lanes[0].taken = ahead.lanes[0].taken = 30
    assert pulls([behind, ahead], 20, 30) == (Pull(6.0, 30),)


def test_lanes_count_together() -> None:
    job = intake(lanes=2)
    for at, lane in ((1.0, 0), (1.2, 1), (2.0, 0)):
        begin(job, at, 5, lane)
    job.lanes[0].taken = job.lanes[1].taken = 5
    assert pulls([job], 0, 10) == (Pull(1.0, 5), Pull(1.2, 10))


def test_rows_from_before_a_job_began_are_the_others() -> None:
    old, new = intake(), intake(missed=10)
    begin(old, 1.0, 10)
    old.lanes[0].taken = 10
    assert pulls([old, new], 0, 10) == (Pull(1.0, 10),)
    # With the old one gone, nobody knows.
    assert pulls([new], 0, 10) == ()
