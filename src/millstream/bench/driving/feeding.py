"""The queues of tuples: files made before a run, and released into the systems' directories when their rows are due.

A row's event time fixes the moment at which it is due (`Pace`), so files can be made ahead, and the generators take no
processor time from the system that is measured. What they could have made at full speed is measured while they do.
"""

from __future__ import annotations

import math
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.bench.driving.model import GeneratorProof, StreamSpec
from millstream.bench.driving.pace import Pace
from millstream.bench.systems import flink_rows
from millstream.config import available_cores
from millstream.runtime.home import sync_path
from millstream.sources.generators import generator_from

# Files that become due in a second, of each stream: an answer waits for its last file at most so long.
FILES_A_SECOND = 8
LEAST_FILE_ROWS = 1_000
MOST_FILE_ROWS = 1_000_000
# How long the queues keep what has been taken, in seconds of the pace. Spark lists a whole directory for each
# micro-batch, 30 µs a file: in a queue that forgets nothing each run would measure its own length.
KEPT_SECONDS = 60.0
# Bytes of files that are kept for later runs; a run at 60 M rows/s makes 15 GB.
MOST_KEPT = 24 * 10**9


@dataclass(frozen=True, slots=True)
class Supply:
    """Files of one stream: ``files`` of ``file_rows`` rows. ``busy``: seconds that its generator took for them."""

    stream: StreamSpec
    directory: Path
    file_rows: int
    files: int
    form: str
    busy: float = 0.0

    def path(self, number: int) -> Path:
        return self.directory / f"part-{number:06}.{self.form}"


def plan_file_rows(rate: float) -> int:
    """Rows of a file of a stream with so many rows a second; powers of two, so that runs at like rates share files.

    >>> plan_file_rows(1_000_000), plan_file_rows(1_040_000), plan_file_rows(100), plan_file_rows(50_000_000)
    (128000, 128000, 1000, 1024000)
    """
    wanted = min(MOST_FILE_ROWS, max(LEAST_FILE_ROWS, rate / FILES_A_SECOND))
    return int(LEAST_FILE_ROWS * 2 ** round(math.log2(wanted / LEAST_FILE_ROWS)))


class Store:
    """Files that have been made, kept for the runs that need the same ones. ``_made`` ends with those used last."""

    def __init__(self, root: Path, most_kept: int = MOST_KEPT) -> None:
        self._root = root
        self._most_kept = most_kept
        self._made: dict[str, Supply] = {}

    def trim(self) -> None:
        """Between runs: remove what has not been used for longest, as far as there is too much."""
        sizes = {
            key: sum(path.stat().st_size for path in supply.directory.iterdir()) for key, supply in self._made.items()
        }
        for key in list(sizes):
            if sum(sizes.values()) <= self._most_kept:
                return
            shutil.rmtree(self._made.pop(key).directory)
            del sizes[key]

    def supply(
        self,
        stream: StreamSpec,
        density: int,
        seed: int,
        rate: float,
        rows: int,
        form: str,
        tell: Callable[[str], None],
    ) -> Supply:
        """The first ``rows`` rows of a stream with ``density`` rows for each second of event time."""
        file_rows = plan_file_rows(rate)
        files = max(1, -(-rows // file_rows))
        key = f"{stream.name}-{_digest(stream)}-{density}-{seed}-{file_rows}-{form}"
        known = self._made.pop(key, None)
        wanted = Supply(stream, self._root / key, file_rows, files, form)
        if known is None or known.files < files:
            tell(f"making {files * file_rows / 1e6:.1f} M rows of {stream.name}")
            known = _make(wanted, density, seed, known)
        self._made[key] = known
        return Supply(stream, known.directory, file_rows, files, form, known.busy * files / known.files)


def _make(supply: Supply, density: int, seed: int, known: Supply | None) -> Supply:
    supply.directory.mkdir(parents=True, exist_ok=True)
    described = {**supply.stream.generator, "density": str(density), "seed": str(seed)}
    generator = generator_from(described)

    def make(number: int) -> float:
        begin = number * supply.file_rows
        before = time.thread_time()
        table = generator.generate(begin, begin + supply.file_rows)
        spent = time.thread_time() - before
        write_rows(table, supply.path(number), supply.form)
        # Else the system under test would wait for the disk behind gigabytes of the driver's.
        sync_path(str(supply.path(number)))
        return spent

    first = known.files if known else 0
    with ThreadPoolExecutor(available_cores()) as pool:
        busy = sum(pool.map(make, range(first, supply.files)))
    return Supply(
        supply.stream,
        supply.directory,
        supply.file_rows,
        supply.files,
        supply.form,
        busy + (known.busy if known else 0),
    )


def write_rows(table: pa.Table, path: Path, form: str) -> None:
    """A file of rows, in the form that a system reads."""
    if form == "parquet":
        # Two row groups: two tasks can share a file.
        pq.write_table(table, path, row_group_size=max(1, -(-table.num_rows // 2)))
    else:
        flink_rows.write_rows(table, path)


def _digest(stream: StreamSpec) -> str:
    return "-".join(f"{name}{value}" for name, value in sorted(stream.generator.items()))


class Feeder:
    """A thread that releases files on time. ``released`` is rows in the queues, over all streams."""

    def __init__(self, supplies: Sequence[Supply], targets: Sequence[Path], pace: Pace) -> None:
        self._supplies = list(supplies)
        self._targets = list(targets)
        self._pace = pace
        self._shares = _shares(supplies)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-feed", daemon=True)
        self._began = 0.0
        self._late = 0.0
        self._failure: BaseException | None = None
        self._order = self._schedule()
        self._forgotten = 0
        self._shown = 0
        self.released = 0

    def start(self, began: float) -> None:
        """``began`` is the moment 0 of the run, on the wall clock."""
        self._began = began
        self._thread.start()

    def stop(self) -> GeneratorProof:
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        rows = sum(one.files * one.file_rows for one in self._supplies)
        return GeneratorProof(rows, sum(one.busy for one in self._supplies), self._late)

    def forget(self, taken: int) -> None:
        """Remove files that lie well behind the first ``taken`` rows of all streams."""
        until = self._pace.moment(taken) - KEPT_SECONDS
        while self._forgotten < self._shown and self._order[self._forgotten][0] < until:
            _, stream, number = self._order[self._forgotten]
            self._place(stream, number).unlink()
            self._forgotten += 1

    def _place(self, stream: int, number: int) -> Path:
        return self._targets[stream] / self._supplies[stream].path(number).name

    def _run(self) -> None:
        try:
            for moment, stream, number in self._order:
                wait = self._began + moment - time.time()
                if (wait > 0 and self._stop.wait(wait)) or self._stop.is_set():
                    return
                supply, target = self._supplies[stream], self._place(stream, number)
                os.link(supply.path(number), target)
                # Spark takes files in the order of their modification times, and the files may be older than the run.
                os.utime(target)
                self._shown += 1
                self.released += supply.file_rows
                self._late = max(self._late, time.time() - self._began - moment)
        except BaseException as error:
            self._failure = error

    def _schedule(self) -> list[tuple[float, int, int]]:
        """When each file is released: when its last row is due."""
        return sorted(
            (self._pace.moment((number + 1) * supply.file_rows / share), stream, number)
            for stream, (supply, share) in enumerate(zip(self._supplies, self._shares, strict=True))
            for number in range(supply.files)
        )


def _shares(supplies: Sequence[Supply]) -> list[float]:
    total = sum(one.stream.share for one in supplies)
    return [one.stream.share / total for one in supplies]
