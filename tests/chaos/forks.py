"""Fork servers: they have imported everything, so that a child begins in milliseconds. Imports alone take 3 s.

Run as a module it reads requests, a JSON line each, and answers with how the child ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class ForkServers:
    """Start children of ``tests.chaos.child`` and wait for them: one for each thread that asks, as many as there are
    servers at the same time."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> ForkServers:
        self._servers = [_start() for _ in range(self.number)]
        self._free: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
        for server in self._servers:
            self._free.put(server)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers:
            assert server.stdin is not None
            server.stdin.close()
            server.wait()

    def run(self, folder: Path, **options: Any) -> int:
        """Run a child to its end, or kill it after ``kill_after`` seconds; gives its exit code, -9 if it was killed."""
        server = self._free.get()
        try:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps({"folder": str(folder), **options}) + "\n")
            server.stdin.flush()
            return int(server.stdout.readline())
        finally:
            self._free.put(server)


def _start() -> subprocess.Popen[str]:
    # A process that is forked must have no other threads.
    single = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.forks"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **single, "PYTHONPATH": paths},
    )


def serve() -> None:
    # Arrow imports it when it is first asked for numbers of NumPy.
    import pandas  # noqa: F401

    from tests.chaos import child

    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            log = os.open(os.path.join(request["folder"], "child.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            status = 1
            try:
                status = child.main(request["folder"], request)
            finally:
                sys.stderr.flush()
                os._exit(status)
        print(_wait(pid, request.get("kill_after")), flush=True)


def _wait(pid: int, kill_after: float | None) -> int:
    """The exit code of the child, which is killed after so much time if it is given."""
    if kill_after is not None:
        deadline = time.monotonic() + kill_after
        while time.monotonic() < deadline:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.002)
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    serve()
