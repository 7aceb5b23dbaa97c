"""Rows reach a job in order, each once, whatever it has to catch up with. The reader here is as Flink's: it lists the
directory, opens the newest file, reads it to the end and closes it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millstream.bench.driving.model import Pull, StreamSpec
from millstream.bench.systems import flink_lanes
from millstream.bench.systems.flink_feed import Feed
from millstream.bench.systems.flink_lanes import blocks
from millstream.bench.systems.system import Queue

# Much longer than the thread takes to hear of a file, on the busiest machine.
PATIENCE = 60.0


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def queue_of(name: str, directory: Path, share: float = 1.0) -> Queue:
    return Queue(StreamSpec(name, {}, "row INT, x STRING", share), directory)


def taken(feed: Feed) -> int:
    return feed.progress()[0]


def arrive(queue: Path, number: int, rows: range) -> None:
    """A file of the queue appears, whole."""
    hidden = queue / f".{number:05d}.csv"
    hidden.write_text("".join(f"{row},x\n" for row in rows), encoding="utf-8")
    hidden.rename(queue / f"{number:05d}.csv")


def shown(lane: Path) -> list[str]:
    return [name for name in os.listdir(lane) if not name.startswith(".")]


def read(lane: Path, known: set[str]) -> list[int]:
    """Wait for a file that is not known yet, and read it as Flink does."""
    wait_for(lambda: bool(set(shown(lane)) - known))
    newest = max(set(shown(lane)) - known)
    known.add(newest)
    with (lane / newest).open(encoding="utf-8") as file:
        return [int(line.split(",")[0]) for line in file]


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    path = tmp_path / "queue"
    path.mkdir()
    return path


@pytest.fixture
def feed(queue: Path) -> Iterator[Feed]:
    made = Feed([queue_of("s", queue)])
    yield made
    made.close()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Feed]:
    """A feed of two streams: a quarter and three quarters of the rows."""
    for name in "st":
        (tmp_path / name).mkdir()
    made = Feed([queue_of("s", tmp_path / "s", 0.5), queue_of("t", tmp_path / "t", 1.5)])
    yield made
    made.close()


def test_a_job_that_falls_behind_reads_everything_in_order(feed: Feed, queue: Path, tmp_path: Path) -> None:
    lane = feed.add("q", tmp_path / "in", ["s"], 1, True)["s"][0]
    for number in range(20):
        arrive(queue, number, range(number * 10, number * 10 + 10))
    known: set[str] = set()
    got: list[int] = []
    while len(got) < 200:
        assert len(set(shown(lane)) - known) <= 1
        got += read(lane, known)
    assert got == list(range(200))
    # A backlog is handed over as one file, not twenty.
    assert len(known) < 20
    wait_for(lambda: taken(feed) == 200)
    assert shown(lane) == []


def test_a_large_backlog_comes_in_parts(
    feed: Feed, queue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flink_lanes, "AT_ONCE", 100)
    lane = feed.add("q", tmp_path / "in", ["s"], 1, True)["s"][0]
    for number in range(4):
        arrive(queue, number, range(1000 + number * 10, 1010 + number * 10))
    known: set[str] = set()
    # A file has 70 bytes, so that no two fit.
    got = [read(lane, known) for _ in range(4)]
    assert [len(part) for part in got] == [10, 10, 10, 10]
    assert [row for part in got for row in part] == list(range(1000, 1040))


def test_a_file_alone_is_the_same_file(feed: Feed, queue: Path, tmp_path: Path) -> None:
    lanes = [feed.add(job, tmp_path / job, ["s"], 1, True)["s"][0] for job in "pq"]
    arrive(queue, 0, range(10))
    for lane in lanes:
        wait_for(lambda lane=lane: bool(shown(lane)))
    assert {os.stat(lane / shown(lane)[0]).st_ino for lane in lanes} == {os.stat(queue / "00000.csv").st_ino}
    # One job's reading is not taken for another's.
    assert read(lanes[0], set()) == list(range(10))
    wait_for(lambda: shown(lanes[0]) == [])
    assert len(shown(lanes[1])) == 1
    assert taken(feed) == 0
    # The driver forgets what a job has yet to read.
    (queue / "00000.csv").unlink()
    assert read(lanes[1], set()) == list(range(10))
    wait_for(lambda: taken(feed) == 10)


def test_what_is_in_the_queue_is_not_written_to(feed: Feed, queue: Path, tmp_path: Path) -> None:
    lane = feed.add("q", tmp_path / "in", ["s"], 1, True)["s"][0]
    arrive(queue, 0, range(10))
    wait_for(lambda: bool(shown(lane)))
    for number in (1, 2):
        arrive(queue, number, range(number * 10, number * 10 + 10))
    known: set[str] = set()
    # The first is linked; the other two, which wait meanwhile, become one.
    assert read(lane, known) + read(lane, known) == list(range(30))
    assert [len((queue / f"{number:05d}.csv").read_text().splitlines()) for number in range(3)] == [10, 10, 10]


def test_rows_of_a_stream_that_a_job_does_not_read_pass_with_the_others(two: Feed, tmp_path: Path) -> None:
    small = two.add("small", tmp_path / "small", ["s"], 1, True)
    assert list(small) == ["s"]
    arrive(tmp_path / "t", 0, range(30))
    arrive(tmp_path / "s", 0, range(10))
    known: set[str] = set()
    assert read(small["s"][0], known) == list(range(10))
    wait_for(lambda: taken(two) == 40)
    # The slower of two jobs decides, whatever they read.
    large = two.add("large", tmp_path / "large", ["t"], 1, False)
    arrive(tmp_path / "t", 1, range(30, 60))
    assert read(large["t"][0], set()) == list(range(30, 60))
    assert taken(two) == 40
    arrive(tmp_path / "s", 1, range(10, 20))
    assert read(small["s"][0], known) == list(range(10, 20))
    wait_for(lambda: taken(two) == 80)


def test_a_later_job_is_where_its_streams_were(two: Feed, tmp_path: Path) -> None:
    early = two.add("early", tmp_path / "early", ["s"], 1, True)["s"][0]
    arrive(tmp_path / "s", 0, range(10))
    assert read(early, known := set()) == list(range(10))
    wait_for(lambda: taken(two) == 40)
    # The other stream's file is late, which concerns neither.
    late = two.add("late", tmp_path / "late", ["s"], 1, False)["s"][0]
    assert taken(two) == 40
    arrive(tmp_path / "s", 1, range(10, 20))
    assert read(early, known) == read(late, set()) == list(range(10, 20))
    wait_for(lambda: taken(two) == 80)


def test_a_job_without_streams_holds_nobody_up(two: Feed, tmp_path: Path) -> None:
    assert two.add("none", tmp_path / "none", [], 2, True) == {}
    arrive(tmp_path / "t", 0, range(30))
    wait_for(lambda: taken(two) == 30)


def test_it_is_told_when_the_rows_were_begun_with(feed: Feed, queue: Path, tmp_path: Path) -> None:
    lanes = [feed.add(job, tmp_path / job, ["s"], 1, True)["s"][0] for job in "pq"]
    pulls: list[Pull] = []

    def all_taken(rows: int) -> bool:
        now, told = feed.progress()
        pulls.extend(told)
        return now == rows

    between = []
    for number, known in ((0, set[str]()), (1, set[str]())):
        arrive(queue, number, range(number * 10, number * 10 + 10))
        for lane in lanes:
            between.append(time.time())
            read(lane, {f"{done:09d}.csv" for done in range(number)} | known)
            wait_for(lambda lane=lane: not shown(lane))
        wait_for(lambda number=number: all_taken(number * 10 + 10))
        between.append(time.time())
    assert [pull.rows for pull in pulls] == [10, 20]
    # When the second of the two jobs opened the file.
    for pull, (_, before, after) in zip(pulls, (between[:3], between[3:]), strict=True):
        assert before <= pull.at <= after


def test_a_later_job_begins_with_the_next_file(feed: Feed, queue: Path, tmp_path: Path) -> None:
    first = feed.add("old", tmp_path / "old", ["s"], 1, True)["s"][0]
    arrive(queue, 0, range(10))
    assert read(first, set()) == list(range(10))
    wait_for(lambda: taken(feed) == 10)
    second = feed.add("new", tmp_path / "new", ["s"], 1, False)["s"][0]
    arrive(queue, 1, range(10, 30))
    assert read(second, set()) == list(range(10, 30))
    # The slower of the two decides.
    assert taken(feed) == 10
    feed.remove("old")
    wait_for(lambda: taken(feed) == 30)


def test_lanes_share_the_rows_of_a_file_in_turns(feed: Feed, queue: Path, tmp_path: Path) -> None:
    lanes = feed.add("q", tmp_path / "in", ["s"], 2, True)["s"]
    arrive(queue, 0, range(100_000))
    parts = [read(lane, set()) for lane in lanes]
    assert sorted(parts[0] + parts[1]) == list(range(100_000))
    assert all(part == sorted(part) for part in parts)
    # Neither lane is far ahead of the other.
    assert min(max(part) for part in parts) > 80_000
    wait_for(lambda: taken(feed) == 100_000)


def test_a_lane_without_rows_gets_no_empty_file(feed: Feed, queue: Path, tmp_path: Path) -> None:
    lanes = feed.add("q", tmp_path / "in", ["s"], 2, True)["s"]
    arrive(queue, 0, range(1))
    arrive(queue, 1, range(1, 3))
    got = [read(lanes[0], known := set()), read(lanes[1], set())]
    if len(got[0]) == 1:
        got[0] += read(lanes[0], known)
    assert got == [[0, 1], [2]]


def test_what_was_there_before_is_read_from_the_first_row_on(queue: Path, tmp_path: Path) -> None:
    arrive(queue, 1, range(5, 9))
    arrive(queue, 0, range(5))
    feed = Feed([queue_of("s", queue)])
    try:
        lane = feed.add("q", tmp_path / "in", ["s"], 1, True)["s"][0]
        assert read(lane, set()) == list(range(9))
    finally:
        feed.close()


def test_a_queue_that_cannot_be_read_is_told(feed: Feed, queue: Path) -> None:
    (queue / "00000.csv").mkdir()

    def told() -> bool:
        try:
            feed.progress()
        except IsADirectoryError:
            return True
        return False

    wait_for(told)


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_blocks_are_whole_rows_and_all_of_them(lanes: int) -> None:
    data = b"".join(b"%d,abc\n" % row for row in range(30_000))
    cut = list(blocks(data, lanes))
    assert b"".join(data[begin:end] for begin, end in cut) == data
    assert all(data[end - 1 : end] == b"\n" for _, end in cut)
    assert (len(cut) == 1) is (lanes == 1)
