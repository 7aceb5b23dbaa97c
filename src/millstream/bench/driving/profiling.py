"""Flame graphs of a system's Python processes, taken from outside by py-spy while a run goes on."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from millstream.errors import SpecError

RATE = 50
# py-spy writes its picture after its last sample.
PATIENCE = 60.0


def find_profiler() -> str:
    """The command, beside this interpreter or on the path."""
    beside = Path(sys.executable).parent / "py-spy"
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise SpecError("BAD_SPEC", "there is no py-spy to make profiles with", hint="pip install 'millstream[bench]'")
    return found


class Profile:
    """One recording: of a process and all Python processes below it, for some seconds."""

    def __init__(self, pid: int, seconds: float, path: Path) -> None:
        self._path = path
        command = [find_profiler(), "record", "--pid", str(pid), "--subprocesses", "--nonblocking"]
        command += ["--rate", str(RATE), "--duration", str(max(1, int(seconds))), "--output", str(path)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def finish(self) -> tuple[Path | None, str | None]:
        """The picture; or why there is none, which costs the run nothing else."""
        try:
            output, _ = self._process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            output, _ = self._process.communicate()
        if self._path.exists():
            return self._path, None
        lines = output.strip().splitlines()
        return None, f"no profile: {lines[-1] if lines else 'py-spy ended without a word'}"
