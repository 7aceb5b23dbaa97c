"""Opening files by the names Spark gives them, and saying what is wrong with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from millstream.errors import SourceError

# What Arrow raises for a Parquet file that is missing, truncated, or not Parquet at all.
PARQUET_TROUBLE = (OSError, pa.ArrowException)

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
