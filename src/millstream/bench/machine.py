"""What a result was measured on: figures of different machines or versions are never compared."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from millstream.config import available_cores
from millstream.version import VERSION

SOURCE = Path(__file__).resolve()
PACKAGE = SOURCE.parents[1]
PACKAGES = ("pyspark", "pyarrow", "numpy", "duckdb", "SQLAlchemy")


@dataclass(frozen=True, slots=True)
class Machine:
    """``load`` is the number of processes that wanted a core when the benchmark began."""

    processor: str
    cores: int
    memory_bytes: int
    system: str
    load: float
    versions: dict[str, str]

    @property
    def busy(self) -> bool:
        """Whether somebody else was working, so that even ratios are in doubt."""
        return self.load > self.cores / 2


def describe_machine() -> Machine:
    return Machine(
        processor=_processor(),
        cores=available_cores(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        system=platform.platform(),
        load=os.getloadavg()[0],
        versions={
            "millstream": VERSION,
            **source_commit(),
            "python": platform.python_version(),
            "java": _java(),
            **_packages(),
        },
    )


def source_commit(source: Path = SOURCE, package: Path = PACKAGE) -> dict[str, str]:
    """The commit of the checkout that the package runs from, with a plus where the package differs from it; empty where
    it runs from none."""
    # A package that is installed may lie in a checkout of something else.
    tracked = _git(package, "ls-files", "--error-unmatch", str(source))
    commit = _git(package, "rev-parse", "--short", "HEAD")
    changes = _git(package, "status", "--porcelain", "--", ".")
    if tracked is None or commit is None or changes is None:
        return {}
    return {"commit": f"{commit}{'+' if changes else ''}"}


def _git(folder: Path, *words: str) -> str | None:
    """What a command prints; None where it fails, or there is no git."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


def _java() -> str:
    """The first line that ``java -version`` prints; the benchmark itself complains if there is none."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else "java"
    try:
        done = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return (done.stderr or done.stdout).strip().split("\n")[0]
