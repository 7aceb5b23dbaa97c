"""When the answers of a Flink job became readable: its sink has a directory for each window."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

SECOND = 1_000_000
# Two sources of a stream are a file or two apart, tenths of a second of event time: when rows are readable that come so
# long after the end of a second, none of that second is missing.
APART = SECOND

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Answers:
    """The folder of one job. A file there has a hidden name until its checkpoint is complete.

    Without windows, the answers of each second of event time are taken for those of a window of one second: readable
    when the last of them is, at the second's end.
    """

    def __init__(self, folder: Path, windows: bool = True) -> None:
        self._folder = folder
        self._windows = windows
        self._told: set[str] = set()

    def fresh(self) -> list[tuple[float, int]]:
        """When a window became readable, and its end, for each that was not told before.

        All files of a window come with one checkpoint: it fires on the same side of the checkpoint in every task. Those
        of a second come with several, and are all there when rows of a later one are.
        """
        names = sorted(set(os.listdir(self._folder)) - self._told) if self._folder.exists() else []
        if not self._windows:
            names = self._over(names)
        found = []
        for name in names:
            at = _readable_since(self._folder / name)
            if at is not None:
                self._told.add(name)
                found.append((at, window_end(name) + (0 if self._windows else SECOND)))
        return found

    def _over(self, names: Sequence[str]) -> list[str]:
        """The seconds that no row comes to any more."""
        newest = max((window_end(name) for name in names if _shown(self._folder / name)), default=0)
        return [name for name in names if window_end(name) + APART < newest]


def _shown(folder: Path) -> bool:
    return any(not name.startswith(".") for name in os.listdir(folder))


def _readable_since(folder: Path) -> float | None:
    """The last change of the files' names, where no file is hidden any more."""
    files = list(os.scandir(folder))
    if not files or any(file.name.startswith(".") for file in files):
        return None
    return max(file.stat().st_ctime for file in files)


def window_end(name: str) -> int:
    """The end of a window, in microseconds since 1970, from the name of its directory.

    >>> window_end("window_end=1970-01-01 00%3A00%3A02.500")
    2500000
    """
    text = unquote(name.partition("=")[2])
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
