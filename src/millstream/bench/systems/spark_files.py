"""The files that plain Spark reads: what is in them, which of them a source has read, and which come after a moment."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow.parquet as pq

# The column of event time, in every stream.
TIME = "time"
# How often new files are looked for on behalf of queries that came later, in seconds.
LATER_LOOK = 0.05


@dataclass(frozen=True, slots=True)
class Extent:
    """A file's rows, the event time of the first, and the one that follows the last; microseconds."""

    rows: int
    first: int
    next: int


def extent_of(path: Path) -> Extent:
    """From the file's footer. Rows are evenly spaced, so the next one is a gap behind the last."""
    found = pq.read_metadata(path)
    column = found.schema.names.index(TIME)
    groups: list[Any] = [found.row_group(number).column(column).statistics for number in range(found.num_row_groups)]
    first, last = min(one.min_raw for one in groups), max(one.max_raw for one in groups)
    return Extent(found.num_rows, first, last - (first - last) // max(1, found.num_rows - 1))


def read_log(folder: Path, after: int, until: int) -> list[str]:
    """Names of the files in the entries (after, until] of a source's log."""
    names = []
    for entry in range(after + 1, until + 1):
        path = folder / str(entry)
        # A compacted entry repeats all before it, and has its own files at its end.
        lines = (path if path.exists() else folder / f"{entry}.compact").read_text(encoding="utf-8").splitlines()
        for line in reversed(lines[1:]):
            found = json.loads(line)
            if found["batchId"] != entry:
                break
            names.append(PurePosixPath(found["path"]).name)
    return names


class Later:
    """The files of the queues, and directories for queries that come later: Spark's file source always begins with the
    oldest file, so they get links to the files that come after them."""

    def __init__(self, sources: Mapping[str, Path]) -> None:
        self.sources = sources
        self._known: dict[str, dict[str, Extent]] = {name: {} for name in sources}
        self._present: dict[str, set[str]] = {name: set() for name in sources}
        self._rows = 0
        self._followers: list[Path] = []
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="bench-later", daemon=True)
        self._thread.start()

    def follow(self, folder: Path) -> tuple[dict[str, Path], int]:
        """New directories, by stream, for files from now on; and the rows that have come before."""
        made = {name: folder / name for name in self.sources}
        for directory in made.values():
            directory.mkdir(parents=True)
        with self._lock:
            self._look()
            self._followers.append(folder)
            return made, self._rows

    def released(self) -> int:
        """Rows of all streams that have come until now."""
        with self._lock:
            self._look()
            return self._rows

    def extents(self, stream: str, files: Sequence[str]) -> list[Extent]:
        with self._lock:
            if any(file not in self._known[stream] for file in files):
                self._look()
            return [self._known[stream][file] for file in files]

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(LATER_LOOK):
            with self._lock:
                if self._followers:
                    self._look()

    def _look(self) -> None:
        for name, directory in self.sources.items():
            listed = set(os.listdir(directory))
            for file in sorted(listed - self._known[name].keys()):
                found = self._known[name][file] = extent_of(directory / file)
                self._rows += found.rows
                for folder in self._followers:
                    os.link(directory / file, folder / name / file)
            # What the driver forgets, or the directories of later queries would grow, and take longer to list.
            for file in self._present[name] - listed:
                for folder in self._followers:
                    (folder / name / file).unlink(missing_ok=True)
            self._present[name] = listed
