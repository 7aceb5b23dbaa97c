"""The home directory: where everything of an engine lives, and how files come to be there.

    metastore.db   checkpoints/<stream>   groups/   buckets/<stream>   answers/   dead/<stream>   engine.lock

A file is written under a name that is used once, and is on disk (it and its directory entry) before any transaction
names it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from millstream.crashpoints import crash_point
from millstream.errors import EngineError

BUCKETS, ANSWERS, GROUPS, DEAD = "buckets", "answers", "groups", "dead"


@dataclass(frozen=True, slots=True)
class Home:
    """``durable`` is off for homes that nobody will come back to, such as a replay's."""

    root: str
    durable: bool = True

    def path(self, relative: str) -> str:
        return os.path.join(self.root, relative)

    def create(self) -> None:
        for name in (BUCKETS, ANSWERS, GROUPS, DEAD, "checkpoints"):
            self._make_folder(name)
        crash_point("home.created")

    def checkpoint(self, stream: str) -> str:
        return self.path(f"checkpoints/{stream}")

    def metastore_url(self) -> str:
        return f"sqlite:///{self.path('metastore.db')}"

    def write(
        self, folder: str, stem: str, suffix: str, data: Iterable[pa.Buffer | bytes], *, sync_folder: bool = True
    ) -> str:
        """Write a new file durably; gives its path relative to the home. Who writes several files into a folder syncs
        it once, after the last."""
        relative = f"{folder}/{stem}-{uuid.uuid4().hex[:12]}.{suffix}"
        path = self.path(relative)
        kind = _kind(relative)
        self._make_folder(folder)
        with open(path, "xb") as file:
            crash_point(f"{kind}.created", relative)
            for part in data:
                file.write(part)
            file.flush()
            crash_point(f"{kind}.written", relative)
            if self.durable:
                os.fsync(file.fileno())
        crash_point(f"{kind}.synced", relative)
        if sync_folder:
            self.sync(folder)
        return relative

    def sync(self, folder: str) -> None:
        """Make the names in a folder durable."""
        if self.durable:
            _sync_directory(self.path(folder))
        crash_point(f"{_kind(folder)}.named", folder)

    def _make_folder(self, folder: str) -> None:
        """Make a folder whose own name is durable as well: without it, the files in it would be lost with it."""
        path = os.path.abspath(self.path(folder))
        holders = []
        while not os.path.isdir(path):
            path = os.path.dirname(path)
            holders.append(path)
        os.makedirs(self.path(folder), exist_ok=True)
        for holder in holders if self.durable else ():
            _sync_directory(holder)

    def read(self, relative: str) -> pa.Buffer:
        """A file's bytes, mapped into memory."""
        return pa.memory_map(self.path(relative), "r").read_buffer()

    def written_at(self, relative: str) -> int:
        """When a file was written, in microseconds; the beginning of time for one that somebody has removed."""
        try:
            return os.stat(self.path(relative)).st_mtime_ns // 1000
        except FileNotFoundError:
            return 0

    def remove(self, relative: Iterable[str]) -> None:
        for name in relative:
            crash_point(f"{_kind(name)}.removing", name)
            Path(self.path(name)).unlink(missing_ok=True)
            crash_point(f"{_kind(name)}.removed", name)

    def files(self) -> list[str]:
        """All data files, relative to the home."""
        roots = [Path(self.path(name)) for name in (BUCKETS, ANSWERS, GROUPS, DEAD)]
        return [str(p.relative_to(self.root)) for root in roots for p in root.rglob("*") if p.is_file()]

    def delete(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


def _kind(relative: str) -> str:
    """The folder of the home that a path lies in; crash points go by it."""
    return relative.partition("/")[0]


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(root: Path) -> None:
    """Make a folder durable, with all that is in it."""
    for path in [root, *root.rglob("*")]:
        _sync_directory(str(path))  # files too: they are opened for reading, which is enough


class Lock:
    """One engine for each home: an advisory lock that the system takes back when the process dies."""

    def __init__(self, home: Home) -> None:
        self._path = home.path("engine.lock")
        self._file = open(self._path, "a+", encoding="utf-8")  # noqa: SIM115 (held as long as the engine runs)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            holder = self._file.read().strip() or "unknown"
            self._file.close()
            raise EngineError(
                "HOME_IN_USE",
                f"another engine runs on {home.root}",
                detail=f"held by {holder}",
                hint="stop it, or give this engine another home",
            ) from None
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()}")
        self._file.flush()
        crash_point("lock.taken")

    def release(self) -> None:
        self._file.close()
