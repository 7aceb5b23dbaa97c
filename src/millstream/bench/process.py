"""A function in a process of its own, with a fresh Java machine: compared systems share neither cores nor caches."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from millstream.bench.jobs import Tell

# The driver's heap, for all systems: Spark's own default of 1 GB would make twenty plain queries collect garbage.
DRIVER_MEMORY = "4g"
# Much longer than any job takes on an idle machine, in seconds: a bench that hangs helps nobody.
TIME_LIMIT = 1800.0
# How much of the output of a process that died is shown.
LAST_LINES = 15


class JobFailed(Exception):
    """A job ended without a result; the message has the reason."""


class HasWorkspace(Protocol):
    """A job names the directory that its process may use."""

    @property
    def workspace(self) -> str: ...


Job = TypeVar("Job", bound=HasWorkspace)
Result = TypeVar("Result")


def run_in_process(run: Callable[[Job, Tell], Result], job: Job, tell: Tell, limit: float = TIME_LIMIT) -> Result:
    """Start a process for a function of a module, pass its progress on, and give its result."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    log = Path(job.workspace) / f"{type(job).__name__}-{time.monotonic_ns()}.log"
    process = context.Process(target=_child, args=(run, job, sending, str(log)))
    process.start()
    sending.close()
    try:
        return cast(Result, _listen(receiving, tell, time.monotonic() + limit))
    except EOFError:
        process.join()
        raise JobFailed(f"the process ended with code {process.exitcode}\n{last_lines(log)}") from None
    finally:
        receiving.close()
        # Its result is in, or it is given up: either way nothing is left to wait for but its orderly end.
        process.join(10)
        if process.is_alive():
            process.kill()
            process.join()


def _listen(receiving: Connection, tell: Tell, deadline: float) -> Any:
    while receiving.poll(max(0.0, deadline - time.monotonic())):
        kind, body = receiving.recv()
        if kind == "progress":
            tell(*body)
        elif kind == "result":
            return body
        else:
            raise JobFailed(body)
    raise JobFailed("the job took longer than its time limit")


def last_lines(log: Path) -> str:
    """The end of what a process printed."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return "\n".join(lines[-LAST_LINES:])


def enter(log: str, workspace: str) -> None:
    """In a new process: whatever it, Java or workers print goes to the log, and Java gets its memory."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-memory {DRIVER_MEMORY} pyspark-shell"
    os.chdir(workspace)


def _child(run: Callable[[Any, Tell], Any], job: HasWorkspace, sending: Connection, log: str) -> None:
    enter(log, job.workspace)
    try:
        sending.send(("result", run(job, lambda share, words: sending.send(("progress", (share, words))))))
    except BaseException as error:
        sending.send(("error", f"{type(error).__name__}: {error}\n{traceback.format_exc()}"))
