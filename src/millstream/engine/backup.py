"""Backup of a home whose engine may run, and its return.

A backup is a home: the metastore of one moment in SQLite, every file that it names, and the checkpoints up to that
moment. Files are there before the metastore names them, and go after it forgets them. So the metastore is copied first
and its files after it; if one has gone meanwhile, the metastore has moved on, and is copied again.

    draft, empty ─► draft, filled ─► files ─► checkpoints ─► all synced ─► metastore in its place
    └──────────────── refused by start, check, backup and restore ───────┘

The copy of the metastore is a draft until all else is on disk, so what was broken off is never taken for whole.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from millstream.catalog.copying import Copied, Progress, check_empty, copy_metastore, exists
from millstream.crashpoints import crash_point
from millstream.errors import EngineError
from millstream.runtime.disk import faults_told
from millstream.runtime.home import DRAFT, METASTORE, Home, sync_path, sync_tree

# Each attempt copies only files that are new, so the second or third finds all of them.
MOST_ATTEMPTS = 20

CHECKPOINTS = "checkpoints"


@dataclass(frozen=True, slots=True)
class Backup:
    files: int
    bytes: int
    streams: int


class _Moved(Exception):
    """The engine has removed a file that the copy of its metastore names."""


def back_up(home: Path, target: Path, metastore_url: str | None = None) -> Backup:
    """Copy the home of an engine, running or not, into a new directory."""
    source = Home(str(home))
    source.check_whole()
    url = metastore_url or source.metastore_url()
    if not exists(url):
        hint = "name the home of an engine; --metastore-url is for a metastore that is not inside it"
        place = f"at {metastore_url}" if metastore_url else f"in {home}"
        raise EngineError("BAD_FILE", f"there is no metastore {place}", hint=hint)
    with _begun(home, target) as begun:
        copy = _Copy(source, begun)
        for _ in range(MOST_ATTEMPTS):
            try:
                made = copy.make(url)
            except _Moved as error:
                missing = str(error)
                continue
            copy.finish()
            return made
        raise EngineError(
            "BAD_FILE",
            f"{home} has lost the file {missing!r}, which its metastore names",
            hint="restore an older backup",
        )


def restore(backup: Path, home: Path, metastore_url: str | None = None) -> Backup:
    """Make a home of a backup; its metastore goes to the URL if one is given, which must be an empty database."""
    source = Home(str(backup))
    source.check_whole()
    if not exists(source.metastore_url()):
        raise EngineError("BAD_FILE", f"{backup} is no backup: it has no {METASTORE}")
    if metastore_url is not None:
        check_empty(metastore_url)
    with _begun(backup, home) as begun:
        copy = _Copy(source, begun)
        try:
            made = copy.make(source.metastore_url())
        except _Moved as error:
            raise EngineError("BAD_FILE", f"the backup {backup} lacks the file {str(error)!r}") from None
        copy.finish(metastore_url)
        return made


@contextmanager
def _begun(source: Path, folder: Path) -> Iterator[Home]:
    """A directory for a copy; whoever can still tell of a failure takes it away again."""
    with _told(folder), faults_told(str(folder)):
        home = _begin(source, folder)
        try:
            yield home
        except BaseException:
            _take_away(folder)
            raise


def _take_away(folder: Path) -> None:
    """The draft goes last: what is left when this too breaks off is refused by it."""
    for path in sorted(folder.iterdir(), key=lambda path: path.name == DRAFT):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    folder.rmdir()


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EngineError("BAD_FILE", f"cannot copy to {folder}: {error.strerror}", detail=str(error)) from error


def _begin(source: Path, folder: Path) -> Home:
    """Make a directory that has a draft before it has anything else."""
    home = Home(str(folder))
    home.check_whole()
    hint = "name a directory that does not exist yet"
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = "not empty" if folder.is_dir() else "a file"
        raise EngineError("BAD_FILE", f"{folder} is {what}", hint=hint)
    if source.resolve() in folder.resolve().parents:
        raise EngineError("BAD_FILE", f"{folder} is inside {source}, which is copied", hint=f"{hint}, elsewhere")
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    open(home.path(DRAFT), "xb").close()
    for path in (folder, *(one.parent for one in made)):
        sync_path(str(path))
    crash_point("copy.begun")
    return home


@dataclass(frozen=True, slots=True)
class _Copy:
    """A home being copied. ``identities`` says which file it was that was copied under each name: one that was found
    damaged is replaced, under its name, by a whole one."""

    source: Home
    target: Home
    identities: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def make(self, url: str) -> Backup:
        """Copy everything, the metastore into the draft. Repeated, it copies what is new."""
        copied = self._fill_draft(url)
        self._copy_files(copied)
        for stream, progress in copied.streams.items():
            _copy_checkpoint(Path(self.source.checkpoint(stream)), Path(self.target.checkpoint(stream)), progress)
        self.target.remove(path for path in self.target.files() if path not in copied.files)
        sizes = [os.path.getsize(self.target.path(file)) for file in copied.files]
        return Backup(len(sizes), sum(sizes), len(copied.streams))

    def finish(self, url: str | None = None) -> None:
        """Put the metastore in its place: into the database of the URL, or under its name."""
        root, draft = Path(self.target.root), self.target.path(DRAFT)
        sync_tree(root)
        crash_point("copy.synced")
        if url is None:
            os.replace(draft, self.target.path(METASTORE))
        else:
            copy_metastore(f"sqlite:///{draft}", url)
            os.unlink(draft)
        crash_point("copy.named")
        for path in (root, root.parent):
            sync_path(str(path))
        crash_point("copy.done")

    def _fill_draft(self, url: str) -> Copied:
        draft = self.target.path(DRAFT)
        os.truncate(draft, 0)  # an empty file is an empty database
        copied = copy_metastore(url, f"sqlite:///{draft}")
        if os.path.exists(f"{draft}-wal"):
            # SQLite removes it when all of it is in the file; its rows would be lost with the draft's name.
            raise EngineError("DISK_ERROR", f"SQLite could not finish {draft}", hint="see whether the disk is full")
        crash_point("copy.drafted")
        return copied

    def _copy_files(self, copied: Copied) -> None:
        for path in sorted(copied.files):
            identity = _identity(self.source.path(path), path)
            if self.identities.get(path) != identity:
                _copy_file(self.source.path(path), self.target.path(path), path)
                self.identities[path] = identity


def _identity(path: str, name: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise _Moved(name) from None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _copy_file(source: str, target: str, name: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    part = f"{target}.part"
    try:
        shutil.copyfile(source, part)
    except FileNotFoundError:
        raise _Moved(name) from None
    os.replace(part, target)
    crash_point("copy.copied", name)


def _copy_checkpoint(source: Path, target: Path, progress: Progress) -> None:
    """Copied after the metastore, Spark's checkpoint has every batch that the metastore has planned. What it has beyond
    is left out: then it is as after a crash at that moment, and Spark plans the next batch anew."""
    shutil.rmtree(target, ignore_errors=True)
    if not source.exists():
        _check_unplanned(source, progress)
        return
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        if path.is_file() and not path.name.endswith(".tmp") and not _beyond(relative, progress):
            try:
                _copy_file(str(path), str(target / relative), str(relative))
            except _Moved:
                continue  # Spark forgets its oldest batches
    needed = target / "offsets" / str(progress.planned)
    if progress.planned >= 0 and not needed.exists():
        raise _Moved(f"{CHECKPOINTS}/{source.name}/offsets/{progress.planned}")


def _check_unplanned(checkpoint: Path, progress: Progress) -> None:
    if progress.planned >= 0:
        raise EngineError(
            "BAD_FILE",
            f"the checkpoint of the stream {checkpoint.name!r} is missing",
            detail=f"the metastore has planned its batches up to {progress.planned}, and there is no {checkpoint}",
            hint="restore an older backup",
        )


def _beyond(relative: Path, progress: Progress) -> bool:
    """Whether a file of a checkpoint belongs to a batch that came later; ``.7.crc`` is a check sum of ``7``."""
    last = {"offsets": progress.planned, "commits": progress.committed}.get(relative.parts[0])
    number = relative.name.removeprefix(".").removesuffix(".crc")
    return last is not None and number.isdigit() and int(number) > last
