"""A job in a process of its own, with a fresh Java machine: compared systems share neither cores nor caches."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

from millstream.bench.jobs import CellResult, DeployJob, DeployResult, Job, MillstreamJob, PlainJob, Tell

# The driver's heap, for both systems: Spark's own default of 1 GB would make twenty plain queries collect garbage.
DRIVER_MEMORY = "4g"
# Much longer than any job takes on an idle machine, in seconds: a bench that hangs helps nobody.
TIME_LIMIT = 1800.0
# How much of the output of a process that died is shown.
LAST_LINES = 15


class JobFailed(Exception):
    """A job ended without a result; the message has the reason."""


def measure(job: MillstreamJob | PlainJob, tell: Tell) -> tuple[CellResult, ...]:
    """Run a throughput job in its own process."""
    return cast("tuple[CellResult, ...]", run_job(job, tell))


def deploy(job: DeployJob, tell: Tell) -> DeployResult:
    """Run a deployment job in its own process."""
    return cast(DeployResult, run_job(job, tell))


def run_job(job: Job, tell: Tell, limit: float = TIME_LIMIT) -> Any:
    """Start a process, pass its progress on, and give its result."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    log = Path(job.workspace) / f"{type(job).__name__}-{time.monotonic_ns()}.log"
    process = context.Process(target=_child, args=(job, sending, str(log)))
    process.start()
    sending.close()
    try:
        return _listen(receiving, tell, time.monotonic() + limit)
    except EOFError:
        process.join()
        raise JobFailed(f"the process ended with code {process.exitcode}\n{_tail(log)}") from None
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


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return "\n".join(lines[-LAST_LINES:])


def _child(job: Job, sending: Connection, log: str) -> None:
    """The process: whatever it, Java or the workers print goes to the log."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-memory {DRIVER_MEMORY} pyspark-shell"
    os.chdir(job.workspace)
    try:
        sending.send(("result", _run(job, lambda share, words: sending.send(("progress", (share, words))))))
    except BaseException as error:
        sending.send(("error", f"{type(error).__name__}: {error}\n{traceback.format_exc()}"))


def _run(job: Job, tell: Tell) -> Any:
    if isinstance(job, MillstreamJob):
        from millstream.bench.millstream_run import run_millstream

        return run_millstream(job, tell)
    if isinstance(job, PlainJob):
        from millstream.bench.plain_run import run_plain

        return run_plain(job, tell)
    from millstream.bench.deploy_run import run_deploy

    return run_deploy(job, tell)
