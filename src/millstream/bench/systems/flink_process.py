"""Flink's processes seen from Millstream: the worker that submits queries, and the cluster's own HTTP interface."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.bench.process import LAST_LINES
from millstream.errors import BenchError

WORKER = Path(__file__).with_name("flink_worker.py")
HOME = "MILLSTREAM_FLINK"
# A cluster starts in seconds, and a query is submitted in less; a busy machine takes longer, a dead one for ever.
REPLY_LIMIT = 120.0
CLOSE_LIMIT = 20.0
HTTP_LIMIT = 30.0


def interpreter() -> Path:
    """The Python of Flink's environment: below ``$MILLSTREAM_FLINK``, or ``.flink`` of the source tree."""
    named = os.environ.get(HOME)
    home = Path(named) if named else Path(__file__).resolve().parents[4] / ".flink"
    found = home / "bin" / "python"
    if not found.exists():
        hint = f"run: make flink; or name another place with {HOME}"
        raise BenchError("FLINK_MISSING", f"no environment with Flink in {home}", hint=hint)
    return found


class Worker:
    """The process that submits queries. It ends when its standard input does, and Flink's Java machine with it."""

    def __init__(self, python: Path, log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [str(python), str(WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                bufsize=0,
                env={**os.environ, **(environment or {})},
                # A group of its own: Java ends with it, however it ends.
                start_new_session=True,
            )
        self._unread = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, do: str, limit: float = REPLY_LIMIT, **body: Any) -> dict[str, Any]:
        """Send a request and wait for its reply."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **body}).encode() + b"\n")
            reply = json.loads(self._line(time.monotonic() + limit))
        except BrokenPipeError:
            raise self._ended() from None
        if "error" in reply:
            raise BenchError("FLINK_FAILED", f"Flink cannot {do}: {reply['error']}")
        answer: dict[str, Any] = reply["reply"]
        return answer

    def close(self) -> None:
        """Ask it to end, and end the whole group if it does not."""
        assert self._process.stdin is not None
        try:
            if self._process.poll() is None:
                self.ask("close", CLOSE_LIMIT)
                self._process.stdin.close()
                self._process.wait(CLOSE_LIMIT)
        except (BenchError, OSError, subprocess.TimeoutExpired):
            pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()

    def _line(self, deadline: float) -> bytes:
        assert self._process.stdout is not None
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise BenchError("FLINK_FAILED", "Flink does not answer", detail=self._last_words())
            got = os.read(self._process.stdout.fileno(), 1 << 16)
            if not got:
                raise self._ended()
            self._unread += got
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _ended(self) -> BenchError:
        code = self._process.wait()
        return BenchError("FLINK_FAILED", f"Flink's process ended with code {code}", detail=self._last_words())

    def _last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-LAST_LINES:])


@dataclass(frozen=True, slots=True)
class JobState:
    """A job in the cluster's list: Flink's word for its state, whether all of its tasks run, and when it ended."""

    state: str
    running: bool
    ended: float | None

    @property
    def failed(self) -> bool:
        return self.state == "FAILED"


class Cluster:
    """The HTTP interface of a running cluster."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def jobs(self) -> dict[str, JobState]:
        """All jobs by their id, those that have ended included."""
        return {job["jid"]: _state(job) for job in self._call("/jobs/overview")["jobs"]}

    def running_since(self, job: str) -> float:
        """When the last task of a job began to run."""
        times: list[int] = [
            task["timestamps"]["RUNNING"]
            for vertex in self._vertices(job)
            for task in self._call(f"/jobs/{job}/vertices/{vertex['id']}/subtasktimes")["subtasks"]
        ]
        return max(times) / 1000

    def busy(self, job: str) -> dict[str, float]:
        """Seconds that the tasks of a job worked, by the name of their first operator; exact once it has ended."""
        found: dict[str, float] = {}
        for vertex in self._vertices(job):
            name = vertex["name"].partition("[")[0]
            found[name] = found.get(name, 0.0) + vertex["metrics"]["accumulated-busy-time"] / 1000
        return found

    def failure(self, job: str) -> str:
        """Why a job failed: the first line of the exception and of its last cause."""
        entries = self._call(f"/jobs/{job}/exceptions")["exceptionHistory"]["entries"]
        lines = entries[0]["stacktrace"].splitlines() if entries else ["no exception is known"]
        causes = [line for line in lines if line.startswith("Caused by")]
        return " ".join([lines[0], *causes[-1:]])

    def cancel(self, job: str) -> None:
        """Returns when the cluster has taken the request."""
        self._call(f"/jobs/{job}?mode=cancel", "PATCH")

    def _vertices(self, job: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._call(f"/jobs/{job}")["vertices"]
        return found

    def _call(self, path: str, method: str = "GET") -> Any:
        try:
            with urllib.request.urlopen(
                urllib.request.Request(self._url + path, method=method), None, HTTP_LIMIT
            ) as got:
                return json.loads(got.read() or b"{}")
        except urllib.error.HTTPError as error:
            detail = error.read().decode(errors="replace")
            raise BenchError("FLINK_FAILED", f"Flink refuses {method} {path}: {error.code}", detail=detail) from error
        except OSError as error:
            raise BenchError("FLINK_FAILED", f"Flink does not answer {method} {path}: {error}") from error


def _state(job: Mapping[str, Any]) -> JobState:
    tasks = job["tasks"]
    ended = job["end-time"] / 1000 if job["end-time"] > 0 else None
    return JobState(job["state"], tasks["total"] > 0 and tasks["running"] == tasks["total"], ended)
