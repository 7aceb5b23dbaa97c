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
            os.makedirs(self.path(name), exist_ok=True)

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
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "xb") as file:
            for part in data:
                file.write(part)
            if self.durable:
                file.flush()
                os.fsync(file.fileno())
        if sync_folder:
            self.sync(folder)
        return relative

    def sync(self, folder: str) -> None:
        """Make the names in a folder durable."""
        if self.durable:
            _sync_directory(self.path(folder))

    def read(self, relative: str) -> pa.Buffer:
        """A file's bytes, mapped into memory."""
        return pa.memory_map(self.path(relative), "r").read_buffer()

    def remove(self, relative: Iterable[str]) -> None:
        for name in relative:
            Path(self.path(name)).unlink(missing_ok=True)

    def files(self) -> list[str]:
        """All data files, relative to the home."""
        roots = [Path(self.path(name)) for name in (BUCKETS, ANSWERS, GROUPS, DEAD)]
        return [str(p.relative_to(self.root)) for root in roots for p in root.rglob("*") if p.is_file()]

    def delete(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


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

    def release(self) -> None:
        self._file.close()
