"""What a power loss takes away beyond what a kill does: everything that was not synced.

The journal of crash points tells which files those are. Spark syncs nothing of its checkpoint.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from millstream.crashpoints import FILES
from tests.chaos.runs import Run


def lose_files(run: Run, chance: random.Random) -> int:
    """Damage what the last process had not synced when it died; gives how many files were touched."""
    home = run.folder / "home"
    torn, nameless, removed = _unsynced(run.passes()[-1])
    exchanged = _exchanged(run.passes()[-1])
    for path in torn:
        _tear(home / path, chance)
    for path in nameless:
        if chance.random() < 0.5:
            (home / path).unlink(missing_ok=True)
    for path in removed:
        if chance.random() < 0.5:
            # The removal itself was not synced: the file is back.
            (home / path).write_bytes(chance.randbytes(40))
    for path in exchanged:
        if chance.random() < 0.5:
            # The damaged file is back in its place.
            (home / path).write_bytes(chance.randbytes(40))
    _lose_log_tail(home, chance)
    return len(torn) + len(nameless) + len(removed) + len(exchanged)


def _unsynced(passes: list[tuple[str, str]]) -> tuple[set[str], set[str], set[str]]:
    """Files whose bytes, whose name, and whose removal may not be on disk."""
    torn: set[str] = set()
    nameless: set[str] = set()
    removed: set[str] = set()
    for name, path in passes:
        folder, _, step = name.partition(".")
        if folder not in FILES:
            continue
        if step == "created":
            torn.add(path)
        elif step == "synced":
            torn.discard(path)
            nameless.add(path)
        elif step == "named":
            done = {one for one in nameless | removed if str(Path(one).parent) == path}
            nameless -= done
            removed -= done
        elif step == "removed":
            removed.add(path)
    return torn, nameless, removed


def _exchanged(passes: list[tuple[str, str]]) -> set[str]:
    """Files that took the place of damaged ones, whose names may not be on disk."""
    renamed = {path for name, path in passes if name == "exchange.renamed"}
    return renamed - {path for name, path in passes if name == "exchange.done"}


def _tear(file: Path, chance: random.Random) -> None:
    """Truncated, zeroed, or gone."""
    how = chance.choice(("truncate", "zero", "remove"))
    if how == "remove":
        file.unlink(missing_ok=True)
    elif file.exists():
        size = file.stat().st_size
        data = file.read_bytes()[: chance.randrange(size + 1)] if how == "truncate" else bytes(size)
        file.write_bytes(data)


def _lose_log_tail(home: Path, chance: random.Random) -> None:
    """Behind what SQLite has synced of its log there may be anything, and its index is never synced."""
    log = home / "metastore.db-wal"
    if log.exists():
        with log.open("ab") as file:
            file.write(chance.randbytes(chance.randrange(5000)))
        (home / "metastore.db-shm").unlink(missing_ok=True)


def checkpoint(run: Run, stream: str) -> Path:
    return run.folder / "home" / "checkpoints" / stream


def lose_checkpoint(run: Run, chance: random.Random) -> None:
    """Remove some of the newest files of a checkpoint, as far as Spark itself can go on with what is left."""
    for stream in ("purchases", "ads"):
        lose_commits(run, stream, chance.randrange(2))
        lose_batches(run, stream, chance.choice((0, 0, 1, 3)))


def lose_commits(run: Run, stream: str, count: int) -> None:
    for file in _newest(checkpoint(run, stream) / "commits", count):
        file.unlink()


def lose_batches(run: Run, stream: str, count: int) -> None:
    """The checkpoint is back in an older state: offsets and commits of the newest batches are gone."""
    folder = checkpoint(run, stream)
    for offsets in _newest(folder / "offsets", count):
        offsets.unlink()
        (folder / "commits" / offsets.name).unlink(missing_ok=True)


def _newest(folder: Path, count: int) -> list[Path]:
    files = [file for file in folder.glob("*") if file.name.isdigit()] if folder.exists() else []
    return sorted(files, key=lambda file: -int(file.name))[:count]


def keep_checkpoint(run: Run, stream: str) -> Path:
    """A copy of the checkpoint, to be put back."""
    copy = run.folder / f"{stream}.checkpoint"
    shutil.copytree(checkpoint(run, stream), copy)
    return copy


def put_back(run: Run, stream: str, copy: Path) -> None:
    shutil.rmtree(checkpoint(run, stream))
    shutil.copytree(copy, checkpoint(run, stream))
