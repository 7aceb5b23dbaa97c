"""Backup of a home whose engine may run, and its return.

A backup is a home: the metastore of one moment in SQLite, every file that it names, and the checkpoints up to that
moment. Files never change, are there before the metastore names them, and go after it forgets them. So the metastore is
copied first and its files after it; if one has gone meanwhile, the metastore has moved on, and is copied again.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from millstream.catalog.copying import Copied, Progress, copy_metastore, exists
from millstream.errors import EngineError
from millstream.runtime.home import Home, sync_tree

# Each attempt copies only files that are new, so the second or third finds all of them.
MOST_ATTEMPTS = 20

METASTORE = "metastore.db"
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
    url = metastore_url or source.metastore_url()
    if not exists(url):
        hint = "name the home of an engine; --metastore-url is for a metastore that is not inside it"
        raise EngineError("BAD_FILE", f"there is no metastore in {home}", hint=hint)
    _make_empty(target)
    copy = Home(str(target))
    copy.create()
    for _ in range(MOST_ATTEMPTS):
        _forget_metastore(copy)
        copied = copy_metastore(url, copy.metastore_url())
        try:
            _copy_files(source, copy, copied)
            for stream, progress in copied.streams.items():
                _copy_checkpoint(Path(source.checkpoint(stream)), Path(copy.checkpoint(stream)), progress)
        except _Moved as error:
            missing = str(error)
            continue
        copy.remove(path for path in copy.files() if path not in copied.files)
        sync_tree(target)
        return Backup(len(copied.files), sum(os.path.getsize(copy.path(f)) for f in copied.files), len(copied.streams))
    raise EngineError(
        "BAD_FILE", f"{home} has lost the file {missing!r}, which its metastore names", hint="restore an older backup"
    )


def restore(backup: Path, home: Path, metastore_url: str | None = None) -> Backup:
    """Make a home of a backup; its metastore goes to the URL if one is given, which must be an empty database."""
    source = Home(str(backup))
    if not exists(source.metastore_url()):
        raise EngineError("BAD_FILE", f"{backup} is no backup: it has no {METASTORE}")
    _make_empty(home)
    target = Home(str(home))
    target.create()
    copied = copy_metastore(source.metastore_url(), metastore_url or target.metastore_url())
    try:
        _copy_files(source, target, copied)
        for stream, progress in copied.streams.items():
            _copy_checkpoint(Path(source.checkpoint(stream)), Path(target.checkpoint(stream)), progress)
    except _Moved as error:
        raise EngineError("BAD_FILE", f"the backup {backup} lacks the file {str(error)!r}") from None
    sync_tree(home)
    return Backup(len(copied.files), sum(os.path.getsize(target.path(f)) for f in copied.files), len(copied.streams))


def _make_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise EngineError("BAD_FILE", f"{folder} is not empty", hint="name a directory that does not exist yet")
    folder.mkdir(parents=True, exist_ok=True)


def _forget_metastore(copy: Home) -> None:
    copy.remove(METASTORE + ending for ending in ("", "-wal", "-shm"))


def _copy_files(source: Home, target: Home, copied: Copied) -> None:
    for path in sorted(copied.files):
        if not os.path.exists(target.path(path)):
            _copy_file(source.path(path), target.path(path), path)


def _copy_file(source: str, target: str, name: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    part = f"{target}.part"
    try:
        shutil.copyfile(source, part)
    except FileNotFoundError:
        raise _Moved(name) from None
    os.replace(part, target)


def _copy_checkpoint(source: Path, target: Path, progress: Progress) -> None:
    """Copied after the metastore, Spark's checkpoint has every batch that the metastore has planned. What it has beyond
    is left out: then it is as after a crash at that moment, and Spark plans the next batch anew."""
    shutil.rmtree(target, ignore_errors=True)
    if not source.exists():
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


def _beyond(relative: Path, progress: Progress) -> bool:
    """Whether a file of a checkpoint belongs to a batch that came later; ``.7.crc`` is a check sum of ``7``."""
    last = {"offsets": progress.planned, "commits": progress.committed}.get(relative.parts[0])
    number = relative.name.removeprefix(".").removesuffix(".crc")
    return last is not None and number.isdigit() and int(number) > last
