"""Spark's classes as Java maps them into memory: without, each start reads and checks fifteen thousand of them anew,
which is a third of the time until a stream runs (``docs/design/20261118-starting.md``).

``make classes`` makes the archive. One that does not fit, because Java or Spark is another by now, is left unused by
Java itself.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pyspark

# Options for the JVM that spark-submit starts, and PySpark with it.
OPTIONS = "SPARK_SUBMIT_OPTS"
_USED, _MADE = "-XX:SharedArchiveFile=", "-XX:ArchiveClassesAtExit="


def archive() -> Path:
    """Where the archive of this environment is, or would be."""
    return Path(sys.prefix) / "share" / "millstream" / f"spark-{pyspark.__version__}.jsa"


def use_archive() -> None:
    """Let the JVM that is started next use the archive, if there is one and nobody has said otherwise."""
    given = os.environ.get(OPTIONS, "")
    if _USED in given or _MADE in given or not archive().is_file():
        return
    os.environ[OPTIONS] = " ".join([given, *_quoted(f"{_USED}{archive()}", "-Xlog:cds*=off")]).strip()


def make_archive(draft: Path) -> None:
    """Let the JVM that is started next write an archive of the classes that it has used, at its end."""
    # It runs for seconds, in which compiling code well never pays.
    os.environ[OPTIONS] = " ".join(["-XX:TieredStopAtLevel=1", *_quoted(f"{_MADE}{draft}", "-Xlog:cds*=off")])


def _quoted(*options: str) -> list[str]:
    return [shlex.quote(option) for option in options]
