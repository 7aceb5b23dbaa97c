"""The input files: written once for a run, and shown to each system by hard links into a directory of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq

from millstream.bench.workload import FIELDS_MAX, KEYS
from millstream.config import available_cores
from millstream.sources.generators import DEFAULT_START, MICROS, AStreamGenerator

# Both systems can then divide a file of a million rows among two cores without decoding a row group twice.
GROUPS_IN_FILE = 4


@dataclass(frozen=True, slots=True)
class Dataset:
    """``files`` Parquet files of ``file_rows`` rows each; ``density`` rows make a second of event time."""

    directory: str
    files: int
    file_rows: int
    density: int
    seed: int

    @property
    def rows(self) -> int:
        return self.files * self.file_rows

    def path(self, number: int) -> Path:
        return Path(self.directory) / f"part-{number:05}.parquet"

    def time_of(self, row: int) -> datetime:
        """The event time of a row."""
        return datetime.fromtimestamp(DEFAULT_START // MICROS, UTC) + timedelta(
            microseconds=row * MICROS // self.density
        )

    def files_for(self, rows: int) -> int:
        """How many files hold at least so many rows; never more than there are.

        >>> Dataset("d", 10, 1000, 1000, 0).files_for(2500)
        3
        """
        return max(1, min(self.files, -(-rows // self.file_rows)))


def write_dataset(dataset: Dataset, progress: Callable[[float], None] = lambda share: None) -> None:
    """Write the files; ``progress`` gets the share that is done."""
    os.makedirs(dataset.directory, exist_ok=True)
    generator = AStreamGenerator(density=dataset.density, seed=dataset.seed, keys=KEYS, fields_max=FIELDS_MAX)
    # Spark takes files in the order of their modification times, so these must ascend whatever the order of writing.
    first = time.time() - dataset.files

    def write(number: int) -> None:
        begin = number * dataset.file_rows
        table = generator.generate(begin, begin + dataset.file_rows)
        path = dataset.path(number)
        pq.write_table(table, path, row_group_size=-(-dataset.file_rows // GROUPS_IN_FILE))
        os.utime(path, (first + number, first + number))

    with ThreadPoolExecutor(available_cores()) as pool:
        for done, _ in enumerate(pool.map(write, range(dataset.files)), start=1):
            progress(done / dataset.files)


def show_files(dataset: Dataset, files: int, directory: Path) -> None:
    """Let the first files appear in a directory that a system already watches."""
    for number in range(files):
        os.link(dataset.path(number), directory / dataset.path(number).name)
