"""The input of the join benchmark: like streams of files at the same pace, written once for a run."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from millstream.bench.dataset import Dataset, show_files
from millstream.bench.join_workload import SOURCES, WORKLOADS, Workload
from millstream.config import available_cores


@dataclass(frozen=True, slots=True)
class Feed:
    """Files of the streams of a workload: each holds ``file_seconds`` of event time, with ``per_key`` rows a second
    for each distinct join key."""

    directory: str
    workload: str
    per_key: int
    file_seconds: int
    files: int
    seed: int

    @property
    def kind(self) -> Workload:
        return WORKLOADS[self.workload]

    @property
    def density(self) -> int:
        """Rows of one stream for each second of event time."""
        return self.per_key * self.kind.keys

    def of(self, stream: str) -> Dataset:
        # A different seed for each stream, as both papers have it.
        seed = self.seed * len(SOURCES) + SOURCES.index(stream)
        folder = str(Path(self.directory) / stream)
        return Dataset(folder, self.files, self.file_seconds * self.density, self.density, seed)

    def rows(self, files: int, streams: int) -> int:
        """Rows of the first files of so many streams together."""
        return files * self.file_seconds * self.density * streams


def write_feed(feed: Feed, streams: int) -> None:
    """Write the files of the first streams, those that are not there yet."""
    for stream in SOURCES[:streams]:
        if not os.path.isdir(Path(feed.directory) / stream):
            _write(feed, feed.of(stream))


def _write(feed: Feed, dataset: Dataset) -> None:
    os.makedirs(dataset.directory)
    generator = feed.kind.generator(dataset.density, dataset.seed)
    # Spark takes files in the order of their modification times.
    first = time.time() - dataset.files

    def write(number: int) -> None:
        begin, path = number * dataset.file_rows, dataset.path(number)
        pq.write_table(generator.generate(begin, begin + dataset.file_rows), path)
        os.utime(path, (first + number, first + number))

    with ThreadPoolExecutor(available_cores()) as pool:
        list(pool.map(write, range(dataset.files)))


def show_feed(feed: Feed, streams: tuple[str, ...], files: int, folder: Path) -> None:
    """Let the first files of some streams appear in directories that a system already watches."""
    for stream in streams:
        show_files(feed.of(stream), files, folder / stream)
