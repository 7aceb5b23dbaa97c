"""The way of rows from a queue into the directories that the tasks of Flink's jobs read.

A source finds one file each time it looks. Small files that lie in the queue by then become one, which is work for
longer than that. A larger one is linked: not for the copying of each file for each job should Flink's cores work.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

# Rows that lanes of one job take in turns, in bytes: about a thousand, so that their event times stay close together.
BLOCK = 1 << 16
# Files of the queue that become one, in bytes for each lane. What does not fit with the next file is at least half of
# it on average: as much as a source at its fastest, 35 MB/s, reads between two looks.
AT_ONCE = 4 << 20


@dataclass(frozen=True, slots=True)
class Arrived:
    """A file of the queue, with the number of rows in it."""

    path: Path
    size: int
    rows: int


@dataclass(slots=True)
class Inflow:
    """A stream's queue: what has arrived in its directory, in the order of names; ``share`` is its part of all
    rows, beside those of the other streams."""

    directory: Path
    share: float
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
    begun: int = 0
    taken: int = 0

    def release(self) -> None:
        """Show the next rows, unless some wait already."""
        while self.waiting is None and self.next < len(self.inflow.files):
            batch = self._batch()
            name = f"{self.next:09d}.csv"
            self.next += len(batch)
            hidden = self.directory / f".{name}"
            rows = self._place(batch, hidden)
            # Flink fails over an empty file.
            if rows:
                self.waiting, self.inside[name] = name, rows
                hidden.rename(self.directory / name)
            else:
                hidden.unlink()

    def opened(self, name: str) -> bool:
        """Whether Flink begins with rows of this file."""
        if name != self.waiting:
            return False
        self.waiting = None
        self.begun += self.inside[name]
        return True

    def closed(self, name: str) -> None:
        """Flink has read a file to its end."""
        if name in self.inside and name != self.waiting:
            self.taken += self.inside.pop(name)
            (self.directory / name).unlink()

    def _batch(self) -> list[Arrived]:
        size = 0
        batch: list[Arrived] = []
        for file in islice(self.inflow.files, self.next, None):
            if batch and size + file.size > AT_ONCE * self.of:
                break
            size += file.size
            batch.append(file)
        return batch

    def _place(self, batch: Sequence[Arrived], path: Path) -> int:
        """The lane's rows of these files, and how many they are."""
        if self.of == 1 and len(batch) == 1:
            # The queue may forget its own name for the file: the rows are there as long as this one is.
            os.link(batch[0].path, path)
            return batch[0].rows
        return self._write(batch, path)

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
