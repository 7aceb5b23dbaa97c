"""Hands the files of the queues to Flink's jobs, in order.

Flink's source of files promises no order. Of those that wait it may read the newest first, so that a job that falls
behind would take later rows for the present and drop earlier ones as late. Here each job has directories of its own,
each read by one task, and the next file appears in one when the file before it has been opened: at most one waits.
Whatever lies in the queue by then becomes one file, so that a job is never short of rows for the sake of order.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from millstream.bench.systems.inotify import CLOSED, CREATED, MOVED_IN, OPENED, Inotify, News

# Rows that lanes of one job take in turns, in bytes: about a thousand, so that their event times stay close together.
BLOCK = 1 << 16
# Files of the queue that become one, in bytes: some tenths of a second of Flink's work.
AT_ONCE = 16 << 20
# How often the thread looks whether it shall end, in seconds.
LOOK = 0.2


@dataclass(frozen=True, slots=True)
class Arrived:
    """A file of the queue, with the number of rows in it."""

    path: Path
    size: int
    rows: int


@dataclass(slots=True)
class Inflow:
    """A stream's queue: what has arrived in its directory, in the order of names."""

    directory: Path
    files: list[Arrived] = field(default_factory=list)
    rows: int = 0

    def look(self) -> None:
        known = {file.path.name for file in self.files}
        names = sorted(name for name in os.listdir(self.directory) if name.endswith(".csv") and name[0] not in "._")
        for name in names:
            if name not in known:
                data = (self.directory / name).read_bytes()
                self.files.append(Arrived(self.directory / name, len(data), data.count(b"\n")))
                self.rows += self.files[-1].rows


@dataclass(slots=True)
class Lane:
    """A directory that one task of a job reads: every ``of``-th block of a stream, from the ``next``-th file on."""

    directory: Path
    inflow: Inflow
    number: int
    of: int
    next: int
    waiting: str | None = None
    # Rows by the name of a file that Flink has not closed.
    inside: dict[str, int] = field(default_factory=dict)
    taken: int = 0

    def release(self) -> None:
        """Show the next rows, unless some wait already."""
        while self.waiting is None and self.next < len(self.inflow.files):
            batch = self._batch()
            name = f"{self.next:09d}.csv"
            self.next += len(batch)
            hidden = self.directory / f".{name}"
            rows = self._write(batch, hidden)
            # Flink fails over an empty file.
            if rows:
                self.waiting, self.inside[name] = name, rows
                hidden.rename(self.directory / name)
            else:
                hidden.unlink()

    def opened(self, name: str) -> None:
        if name == self.waiting:
            self.waiting = None

    def closed(self, name: str) -> None:
        """Flink has read a file to its end."""
        if name in self.inside and name != self.waiting:
            self.taken += self.inside.pop(name)
            (self.directory / name).unlink()

    def _batch(self) -> list[Arrived]:
        size = 0
        batch: list[Arrived] = []
        for file in islice(self.inflow.files, self.next, None):
            if batch and size + file.size > AT_ONCE:
                break
            size += file.size
            batch.append(file)
        return batch

    def _write(self, batch: Iterable[Arrived], path: Path) -> int:
        rows = 0
        with path.open("wb") as out:
            for file in batch:
                data = file.path.read_bytes()
                for begin, end in islice(blocks(data, self.of), self.number, None, self.of):
                    out.write(memoryview(data)[begin:end])
                    rows += file.rows if self.of == 1 else data.count(b"\n", begin, end)
        return rows


def blocks(data: bytes, lanes: int) -> Iterator[tuple[int, int]]:
    """Where blocks of whole rows begin and end; one alone where there is one lane.

    >>> list(blocks(b"1,2\\n3,4\\n5,6\\n", 2))
    [(0, 8), (8, 12)]
    """
    size = len(data) if lanes == 1 else min(BLOCK, -(-len(data) // lanes))
    begin = 0
    while begin < len(data):
        end = data.find(b"\n", begin + size - 1) + 1 or len(data)
        yield begin, end
        begin = end


@dataclass(frozen=True, slots=True)
class Intake:
    """What a job reads, and how many rows of all streams had passed when it began."""

    lanes: tuple[Lane, ...]
    missed: int

    @property
    def taken(self) -> int:
        return self.missed + sum(lane.taken for lane in self.lanes)


class Feed:
    """A thread that passes files on as they arrive and as Flink opens them. Its methods are called by another."""

    def __init__(self, queues: Mapping[str, Path]) -> None:
        self._inflows = {name: Inflow(directory) for name, directory in queues.items()}
        self._news = Inotify()
        self._sources = {self._news.watch(i.directory, CREATED | MOVED_IN): i for i in self._inflows.values()}
        self._lanes: dict[int, Lane] = {}
        self._intakes: dict[str, Intake] = {}
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._look()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

    def add(self, job: str, folder: Path, lanes: int, from_start: bool) -> dict[str, list[Path]]:
        """The directories that a job shall read, by stream; from the first row, or from the next to arrive."""
        with self._lock:
            made = tuple(
                self._lane(folder / f"{name}-{number}", inflow, number, lanes, from_start)
                for name, inflow in self._inflows.items()
                for number in range(lanes)
            )
            self._intakes[job] = Intake(made, 0 if from_start else self._arrived())
            for lane in made:
                lane.release()
        return {name: [x.directory for x in made if x.inflow is i] for name, i in self._inflows.items()}

    def remove(self, job: str) -> None:
        """No more rows for this job."""
        with self._lock:
            gone = {id(lane) for lane in self._intakes.pop(job).lanes}
            for watch in [watch for watch, lane in self._lanes.items() if id(lane) in gone]:
                self._news.forget(watch)
                del self._lanes[watch]

    def taken(self) -> int:
        """Rows of all streams that every job has taken; all that have arrived where there is no job."""
        with self._lock:
            if self._error:
                raise self._error
            return min((intake.taken for intake in self._intakes.values()), default=self._arrived())

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._news.close()

    def _arrived(self) -> int:
        return sum(inflow.rows for inflow in self._inflows.values())

    def _lane(self, directory: Path, inflow: Inflow, number: int, of: int, from_start: bool) -> Lane:
        directory.mkdir(parents=True)
        lane = Lane(directory, inflow, number, of, 0 if from_start else len(inflow.files))
        self._lanes[self._news.watch(directory, OPENED | CLOSED)] = lane
        return lane

    def _look(self) -> None:
        for inflow in self._inflows.values():
            inflow.look()

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                news = self._news.read(LOOK)
                with self._lock:
                    self._pass_on(news)
        except BaseException as error:
            self._error = error

    def _pass_on(self, news: Sequence[News]) -> None:
        for watch in {one.watch for one in news} & self._sources.keys():
            self._sources[watch].look()
        for one in news:
            lane = self._lanes.get(one.watch)
            if lane and one.kind & OPENED:
                lane.opened(one.name)
            elif lane and one.kind & CLOSED:
                lane.closed(one.name)
        if news:
            for lane in self._lanes.values():
                lane.release()
