"""Rows reach a job in order, each once, whatever it has to catch up with. The reader here is as Flink's: it lists the
directory, opens the newest file, reads it to the end and closes it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millstream.bench.systems import flink_feed
from millstream.bench.systems.flink_feed import Feed, blocks

# Much longer than the thread takes to hear of a file, on the busiest machine.
PATIENCE = 60.0


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.005)


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
    made = Feed({"s": queue})
    yield made
    made.close()


def test_a_job_that_falls_behind_reads_everything_in_order(feed: Feed, queue: Path, tmp_path: Path) -> None:
    lane = feed.add("q", tmp_path / "in", 1, True)["s"][0]
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
    wait_for(lambda: feed.taken() == 200)
    assert shown(lane) == []


def test_a_large_backlog_comes_in_parts(
    feed: Feed, queue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flink_feed, "AT_ONCE", 100)
    lane = feed.add("q", tmp_path / "in", 1, True)["s"][0]
    for number in range(4):
        arrive(queue, number, range(1000 + number * 10, 1010 + number * 10))
    known: set[str] = set()
    # A file has 70 bytes, so that no two fit.
    got = [read(lane, known) for _ in range(4)]
    assert [len(part) for part in got] == [10, 10, 10, 10]
    assert [row for part in got for row in part] == list(range(1000, 1040))


def test_a_later_job_begins_with_the_next_file(feed: Feed, queue: Path, tmp_path: Path) -> None:
    first = feed.add("old", tmp_path / "old", 1, True)["s"][0]
    arrive(queue, 0, range(10))
    assert read(first, set()) == list(range(10))
    wait_for(lambda: feed.taken() == 10)
    second = feed.add("new", tmp_path / "new", 1, False)["s"][0]
    arrive(queue, 1, range(10, 30))
    assert read(second, set()) == list(range(10, 30))
    # The slower of the two decides.
    assert feed.taken() == 10
    feed.remove("old")
    wait_for(lambda: feed.taken() == 30)


def test_lanes_share_the_rows_of_a_file_in_turns(feed: Feed, queue: Path, tmp_path: Path) -> None:
    lanes = feed.add("q", tmp_path / "in", 2, True)["s"]
    arrive(queue, 0, range(100_000))
    parts = [read(lane, set()) for lane in lanes]
    assert sorted(parts[0] + parts[1]) == list(range(100_000))
    assert all(part == sorted(part) for part in parts)
    # Neither lane is far ahead of the other.
    assert min(max(part) for part in parts) > 80_000
    wait_for(lambda: feed.taken() == 100_000)


def test_a_lane_without_rows_gets_no_empty_file(feed: Feed, queue: Path, tmp_path: Path) -> None:
    lanes = feed.add("q", tmp_path / "in", 2, True)["s"]
    arrive(queue, 0, range(1))
    arrive(queue, 1, range(1, 3))
    got = [read(lanes[0], known := set()), read(lanes[1], set())]
    if len(got[0]) == 1:
        got[0] += read(lanes[0], known)
    assert got == [[0, 1], [2]]


def test_what_was_there_before_is_read_from_the_first_row_on(queue: Path, tmp_path: Path) -> None:
    arrive(queue, 1, range(5, 9))
    arrive(queue, 0, range(5))
    feed = Feed({"s": queue})
    try:
        lane = feed.add("q", tmp_path / "in", 1, True)["s"][0]
        assert read(lane, set()) == list(range(9))
    finally:
        feed.close()


def test_a_queue_that_cannot_be_read_is_told(feed: Feed, queue: Path) -> None:
    (queue / "00000.csv").mkdir()

    def told() -> bool:
        try:
            feed.taken()
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
