"""Opening files by the names Spark gives them, and saying what is wrong with one."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from millstream.errors import SourceError

# What Arrow raises for a Parquet file that is missing, truncated, or not Parquet at all.
PARQUET_TROUBLE = (OSError, pa.ArrowException)

# Faults of the machine or the network, in numbers and in the words of remote file systems. They pass; a file does not
# become readable by itself.
_PASSING = frozenset(
    number
    for name in (
        "EACCES", "EPERM", "EIO", "EMFILE", "ENFILE", "ENOMEM", "EAGAIN", "EINTR", "EBUSY", "ENODEV", "ENXIO", "ESTALE",
        "EREMOTEIO", "ETIMEDOUT", "ECONNREFUSED", "ECONNRESET", "ECONNABORTED", "ENOTCONN", "ENETDOWN", "ENETUNREACH",
        "EHOSTDOWN", "EHOSTUNREACH",
    )
    if (number := getattr(errno, name, None)) is not None
)  # fmt: skip
_PASSING_WORDS = re.compile(r"AWS Error|HDFS|connect|time[d ]*out|curl|access denied|forbidden|unavailable", re.I)

# File-name endings of each format; the name decides, as it does for Spark's readers.
SUFFIXES: dict[str, tuple[str, ...]] = {
    "parquet": (".parquet",),
    "csv": (".csv",),
    "json": (".jsonl", ".json", ".ndjson"),
}


def local_path(path: str) -> str | None:
    """The path on this machine of a ``file:`` address or plain path; None for other file systems.

    Nothing is percent-decoded: Spark writes ``file:`` before the name as it is.

    >>> local_path("file:///data/a%20b.csv"), local_path("/data/a.csv"), local_path("hdfs://n/a.csv")
    ('/data/a%20b.csv', '/data/a.csv', None)
    """
    if path.startswith("file:"):
        return "/" + path.removeprefix("file:").lstrip("/")
    return None if "://" in path else path


def open_file(path: str) -> Any:
    """Open for random access. Local files are read, not memory-mapped: the reading of a mapped file that somebody
    truncates ends the whole process, and mapping saves less than a tenth of the time of ingesting."""
    local = local_path(path)
    if local is not None:
        return pa.OSFile(local, "rb")
    system, inner = pafs.FileSystem.from_uri(path.replace("s3a://", "s3://", 1))
    return system.open_input_file(inner)


def format_of(path: str) -> str | None:
    """The format that a file's name says, None for names that are no input."""
    name = Path(path).name
    if name.startswith((".", "_")):
        return None
    return next((known for known, endings in SUFFIXES.items() if name.endswith(endings)), None)


def bad_file(path: str, error: BaseException | str) -> SourceError:
    reason = str(error).strip().split("\n")[0] or type(error).__name__
    if isinstance(error, FileNotFoundError):
        reason = "no such file"
    return SourceError("BAD_FILE", f"cannot read {local_path(path) or path}: {reason}")


def file_trouble(path: str, error: BaseException) -> SourceError:
    """What is wrong with a file. Where not the file is at fault but the way to it, the error itself is raised: the
    batch is then repeated, and no row is lost."""
    if _passes(path, error):
        raise error
    return bad_file(path, error)


def _passes(path: str, error: BaseException) -> bool:
    local = local_path(path)
    if not isinstance(error, OSError):
        return isinstance(error, MemoryError)
    if error.errno == errno.ENOENT:
        # With its directory a whole file system may be away.
        return local is not None and not os.path.isdir(os.path.dirname(local))
    if error.errno is None:
        return local is None and _PASSING_WORDS.search(str(error)) is not None
    return error.errno in _PASSING
