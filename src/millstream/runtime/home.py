"""The home directory: where everything of an engine lives, and how files come to be there.

    metastore.db   checkpoints/<stream>   groups/   buckets/<stream>   answers/   dead/<stream>   engine.lock

A file is written under a name that is used once, and is on disk (it and its directory entry) before any transaction
names it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from millstream.crashpoints import crash_point
from millstream.errors import DamagedFile, EngineError
from millstream.kernels.checksum import checksum, checksum_of
from millstream.runtime.disk import disk_fault

BUCKETS, ANSWERS, GROUPS, DEAD = "buckets", "answers", "groups", "dead"
METASTORE = "metastore.db"
# In a home that a backup or restore is still making, the metastore has this name.
DRAFT = f"{METASTORE}.draft"
# Folders whose names this process knows to be on disk.
_durable_folders: set[str] = set()


@dataclass(frozen=True, slots=True)
class Home:
    """``durable`` is off for homes that nobody will come back to, such as a replay's."""

    root: str
    durable: bool = True

    def path(self, relative: str) -> str:
        return os.path.join(self.root, relative)

    def create(self) -> None:
        """Make the folders, and see that files can be written; an error says what is wrong with the place."""
        self.check_whole()
        try:
            for name in (BUCKETS, ANSWERS, GROUPS, DEAD, "checkpoints"):
                self._make_folder(name)
            self._try_to_write()
        except OSError as error:
            raise _bad_home(self.root, error) from None
        crash_point("home.created")

    def check_whole(self) -> None:
        """Refuse what a backup or restore has begun and not finished."""
        if os.path.lexists(self.path(DRAFT)):
            raise EngineError(
                "BAD_HOME",
                f"{self.root} is incomplete: the backup or restore that makes it has not finished",
                detail=f"it still has the file {DRAFT}",
                hint="if that was broken off, remove the directory and run the command again; if its metastore was to "
                "go into a database, with an empty one",
            )

    def _try_to_write(self) -> None:
        """Into a file without a name, which is gone with the process, however that ends."""
        with tempfile.TemporaryFile(dir=self.path(GROUPS)) as file:
            file.write(b"can this be written?")
            file.flush()
            if self.durable:
                os.fsync(file.fileno())

    def checkpoint(self, stream: str) -> str:
        return self.path(f"checkpoints/{stream}")

    def metastore_url(self) -> str:
        return f"sqlite:///{self.path(METASTORE)}"

    def write(
        self,
        folder: str,
        stem: str,
        suffix: str,
        data: Iterable[pa.Buffer | bytes],
        *,
        sync_folder: bool = True,
        checksum: int | None = None,
    ) -> str:
        """Write a new file durably; gives its path relative to the home. Who writes several files into a folder syncs
        it once, after the last. A ``checksum`` becomes part of the name, and so of all that refers to the file."""
        check = "" if checksum is None else f".{checksum:08x}"
        relative = f"{folder}/{stem}-{uuid.uuid4().hex[:12]}{check}.{suffix}"
        path = self.path(relative)
        kind = _kind(relative)
        if not self.there:
            # Else folders and file would be made on another disk, at the place where the home is to be mounted.
            raise OSError(errno.EIO, "the home is not there", self.root)
        with _no_remains(path):
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

    def exchange(self, relative: str, other: str) -> None:
        """Put another file, of the same content, in the place of a damaged one."""
        crash_point("exchange.ready", other)
        os.replace(self.path(other), self.path(relative))
        crash_point("exchange.renamed", relative)
        if self.durable:
            sync_path(os.path.dirname(self.path(relative)))
        crash_point("exchange.done", relative)

    def sync(self, folder: str) -> None:
        """Make the names in a folder durable."""
        if self.durable:
            sync_path(self.path(folder))
        crash_point(f"{_kind(folder)}.named", folder)

    def _make_folder(self, folder: str) -> None:
        """Make a folder whose own name is durable as well: without it, the files in it would be lost with it. One that
        is there may be from a process that died before it had synced it."""
        path = os.path.abspath(self.path(folder))
        if path in _durable_folders and os.path.isdir(path):
            return
        holders: list[str] = []
        while not os.path.isdir(path) or not holders:
            path = os.path.dirname(path)
            holders.append(path)
        os.makedirs(self.path(folder), exist_ok=True)
        for holder in holders if self.durable else ():
            sync_path(holder)
        _durable_folders.add(os.path.abspath(self.path(folder)))

    @property
    def there(self) -> bool:
        """Whether it is, for this process: its file system may be away."""
        return os.path.isdir(self.path(GROUPS))

    def read(self, relative: str) -> pa.Buffer:
        """A file's bytes, mapped into memory."""
        return pa.memory_map(self.path(relative), "r").read_buffer()

    def open(self, relative: str) -> HomeFile:
        """A file whose ranges are read and checked."""
        return HomeFile(self, relative)

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


@contextmanager
def _no_remains(path: str) -> Iterator[None]:
    """A file that cannot be written whole is removed at once: where space is short, remains would keep it so. The
    error names the file, which those of writing and syncing do not by themselves."""
    try:
        yield
    except OSError as error:
        with suppress(OSError):
            os.unlink(path)
        raise OSError(error.errno, error.strerror, path) from None


# What the system says of a file that is not there, or whose sectors cannot be read. Anything else (no permission, too
# many open files, no memory, a stale mount) is a fault of the machine, which passes and leaves the file as it was.
_OF_THE_FILE = (errno.ENOENT, errno.EIO)
# Read at once when a checksum is verified: stays in the cache of a core.
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class HomeFile:
    """Ranges of a file, read into memory and not mapped: a sector that cannot be read is an error then, where touching
    a mapped page of it would end the process."""

    home: Home
    path: str

    def slice(self, offset: int, length: int) -> pa.Buffer:
        """The bytes of a range; DamagedFile if the file does not have them."""
        return pa.py_buffer(b"".join(self._blocks(offset, length, length)))

    def checked(self, offset: int, length: int, expected: int | None) -> pa.Buffer:
        """The same with their checksum verified, if there is one."""
        data = self.slice(offset, length)
        self._compare(checksum(data), expected)
        return data

    def verify(self, offset: int, length: int, expected: int | None) -> None:
        """Verify the checksum of a long range without keeping it."""
        self._compare(checksum_of(self._blocks(offset, length, _BLOCK)), expected)

    def whole(self) -> bytes:
        """All bytes, with the checksum that the file's name carries verified."""
        try:
            size = os.stat(self.home.path(self.path)).st_size
        except OSError as error:
            raise self._trouble(error) from None
        data = b"".join(self._blocks(0, size, size))
        self._compare(checksum(data), checksum_in(self.path))
        return data

    def _blocks(self, offset: int, length: int, block: int) -> Iterator[bytes]:
        try:
            with open(self.home.path(self.path), "rb", buffering=0) as file:
                end = offset + length
                while offset < end:
                    data = os.pread(file.fileno(), min(block, end - offset), offset)
                    if not data:
                        raise DamagedFile(self.path, "is cut short")
                    offset += len(data)
                    yield data
        except OSError as error:
            raise self._trouble(error) from None

    def _trouble(self, error: OSError) -> Exception:
        if error.errno in _OF_THE_FILE:
            return DamagedFile(self.path, _reason(error))
        return OSError(error.errno, error.strerror, self.home.path(self.path))

    def _compare(self, found: int, expected: int | None) -> None:
        if expected is not None and found != expected:
            raise DamagedFile(self.path, f"is altered: its checksum is {found:08x}, not {expected:08x}")


def _reason(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "is missing"
    return f"cannot be read: {(error.strerror or str(error)).lower()}"


def checksum_in(path: str) -> int | None:
    """The checksum that a file's name carries, None for files of versions that made none.

    >>> checksum_in("groups/g-1-3-0123456789ab.00c0ffee.json"), checksum_in("groups/g-1-3-0123456789ab.json")
    (12648430, None)
    """
    parts = os.path.basename(path).split(".")
    return int(parts[1], 16) if len(parts) == 3 and len(parts[1]) == 8 else None


def _bad_home(root: str, error: OSError) -> EngineError:
    place = error.filename or root
    fault = disk_fault(error, root)
    if fault is not None and fault.code == "NO_SPACE":
        return fault
    if isinstance(error, FileExistsError | NotADirectoryError):
        return EngineError(
            "BAD_HOME",
            f"the home {root} is no directory: there is a file in its place, or above it",
            hint="give another home, or move the file away",
        )
    if isinstance(error, PermissionError):
        return EngineError(
            "BAD_HOME",
            f"no permission to write {place}",
            hint="let the engine's user own the home, or give another one",
        )
    if error.errno == errno.EROFS:
        return EngineError(
            "BAD_HOME",
            f"the home {root} is on a read-only file system",
            hint="mount it for writing, or give another home",
        )
    return EngineError("BAD_HOME", f"the home {root} cannot be written: {error.strerror}", detail=str(place))


def sync_path(path: str) -> None:
    """Bring a file or a folder to disk; opened for reading, which is enough for both."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def holder() -> str:
    """This process, for those who find a home in use."""
    since = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return f"{socket.gethostname()} process {os.getpid()} since {since}"


def sync_tree(root: Path) -> None:
    """Make a folder durable, with all that is in it."""
    for path in [root, *root.rglob("*")]:
        sync_path(str(path))


class Lock:
    """One engine for each home: an advisory lock that the system takes back when the process dies."""

    def __init__(self, home: Home) -> None:
        self._path = home.path("engine.lock")
        self._file = open(self._path, "a+", encoding="utf-8")  # noqa: SIM115 (held as long as the engine runs)
        try:
            self._take()
        except BlockingIOError:
            self._file.seek(0)
            other = self._file.read().strip() or "unknown"
            self._file.close()
            raise EngineError(
                "HOME_IN_USE",
                f"another engine runs on {home.root}",
                detail=f"held by {other}",
                hint="stop it, or give this engine another home",
            ) from None
        self._file.truncate(0)
        self._file.write(holder())
        self._file.flush()
        crash_point("lock.taken")

    def _take(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            # Some network file systems have no locks. The metastore's fence stops the older engine there.
            return

    def release(self) -> None:
        self._file.close()
