"""Linux's news of directories: a file appeared in one, was opened, was closed."""

from __future__ import annotations

import ctypes
import os
import select
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# From <sys/inotify.h>.
CREATED, MOVED_IN, OPENED, CLOSED = 0x100, 0x80, 0x20, 0x10
_HEAD = struct.Struct("iIII")
# Room for some hundreds of events at a time.
_ROOM = 1 << 16


@dataclass(frozen=True, slots=True)
class News:
    """Something happened to a file (or, with no name, to the directory itself) of a watched directory."""

    watch: int
    kind: int
    name: str


class Inotify:
    """A queue of news in the kernel."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def watch(self, directory: Path, kinds: int) -> int:
        """Begin to watch a directory; its news carry the number given back."""
        return self._checked(self._libc.inotify_add_watch(self._file, os.fsencode(directory), kinds))

    def forget(self, watch: int) -> None:
        self._checked(self._libc.inotify_rm_watch(self._file, watch))

    def read(self, seconds: float) -> list[News]:
        """What has happened since the last call; waits so long for the first news."""
        if not select.select([self._file], [], [], seconds)[0]:
            return []
        return list(_parsed(os.read(self._file, _ROOM)))

    def close(self) -> None:
        os.close(self._file)

    def _checked(self, result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result


def _parsed(data: bytes) -> Iterator[News]:
    at = 0
    while at < len(data):
        watch, kind, _, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size + length
        yield News(watch, kind, os.fsdecode(data[at - length : at].rstrip(b"\0")))
