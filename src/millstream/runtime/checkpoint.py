"""Spark's checkpoint of a stream, made as durable as the metastore that refers to it.

Spark syncs nothing of it. After a power loss the newest files may be gone, or be there without some of their bytes;
then Spark would plan a batch anew that the metastore has planned already, or fail at a file that it cannot read. So
what a batch rests on is synced before the batch is planned, and files that are not whole are removed before Spark sees
them: no planned batch rests on one, and a commit that is missing only makes Spark repeat a batch.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from millstream.runtime.home import sync_path

# Spark's names: what it has planned, what it has done, what its sources have seen, and the id of the query.
_OFFSETS, _COMMITS, _SOURCES, _METADATA = "offsets", "commits", "sources", "metadata"
# Version, settings and the offsets of at least one source; version and what was done.
_LEAST_LINES = {_OFFSETS: 3, _COMMITS: 2}
# In the offsets of a source of files: how much of its own log it has taken.
_LOG_OFFSET = re.compile(r'"logOffset":(\d+)')


def mend_checkpoint(checkpoint: Path) -> None:
    """Remove what Spark never finished: drafts, of which one keeps it from planning batch 0, whose folder must be
    empty; and files that a power loss has torn."""
    for path in checkpoint.rglob("*"):
        if path.name.endswith((".tmp", ".tmp.crc")):
            path.unlink(missing_ok=True)
    for path in _logged(checkpoint):
        if _torn(path):
            path.unlink()
    for offsets in sorted((checkpoint / _OFFSETS).glob("[0-9]*"), key=_number, reverse=True):
        if _rests_on_what_is_there(checkpoint, offsets):
            break
        offsets.unlink()
    if any((checkpoint / _OFFSETS).glob("[0-9]*")) and not (checkpoint / _METADATA).exists():
        # Spark refuses a checkpoint without the id of its query; any will do.
        (checkpoint / _METADATA).write_text(json.dumps({"id": str(uuid.uuid4())}), encoding="utf-8")


def _torn(path: Path) -> bool:
    """Whether bytes are missing: all, some in between, whole lines, or the end of the last one."""
    data = path.read_bytes()
    lines = data.strip().split(b"\n")
    if not lines[0] or b"\0" in data or len(lines) < _LEAST_LINES.get(path.parent.name, 1):
        return True
    try:
        if lines[-1].startswith((b"{", b"[")):
            json.loads(lines[-1])
    except ValueError:
        return True
    return False


def _rests_on_what_is_there(checkpoint: Path, offsets: Path) -> bool:
    """Whether each source of files has written down the files that the offsets are about."""
    for source, text in enumerate(offsets.read_text(encoding="utf-8").split("\n")[2:]):
        wanted = _LOG_OFFSET.search(text)
        if wanted is not None:
            seen = [_number(path) for path in (checkpoint / _SOURCES / str(source)).glob("[0-9]*")]
            if int(wanted[1]) > max(seen, default=-1):
                return False
    return True


def _logged(checkpoint: Path) -> Iterator[Path]:
    for pattern in (_METADATA, f"{_OFFSETS}/*", f"{_COMMITS}/*", f"{_SOURCES}/*/*"):
        yield from (path for path in checkpoint.glob(pattern) if path.is_file() and not path.name.startswith("."))


def read_offsets(checkpoint: Path, batch: int) -> str:
    """Spark's own text of a batch's offsets, which it wrote before the callback; the lines before are version and
    settings."""
    text = (checkpoint / _OFFSETS / str(batch)).read_text(encoding="utf-8")
    return " ".join(text.split("\n")[2:])


def sync_batch(checkpoint: Path, batch: int) -> None:
    """Bring to disk what Spark has written for a batch: its offsets, and what its sources have seen since the batch
    before; that can be several files, if Spark was ended between writing one and the offsets."""
    paths = [checkpoint / _OFFSETS / str(batch), checkpoint / _OFFSETS]
    before = _modified(checkpoint / _OFFSETS / str(batch - 1))
    for folder in (checkpoint / _SOURCES).glob("*"):
        paths += [*(path for path in folder.glob("[0-9]*") if _modified(path) >= before), folder]
    if batch == 0:
        paths += [checkpoint / _METADATA, checkpoint / _SOURCES, checkpoint, checkpoint.parent]
    for path in paths:
        with suppress(FileNotFoundError):
            sync_path(str(path))


def _modified(path: Path) -> int:
    """In nanoseconds; the beginning of time for what is not there."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _number(path: Path) -> int:
    """Of ``17`` and of ``19.compact``."""
    return int(path.name.partition(".")[0])
