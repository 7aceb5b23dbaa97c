"""Killing parts of a running engine while it works: Python workers, their daemon, executors, Spark as a whole."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.crashpoints import CRASH_AT, CRASH_ONCE
from millstream.errors import EngineError
from tests.chaos.processes import below, daemons_of, spark_of, workers_of
from tests.chaos.workload import QUERIES

if TYPE_CHECKING:
    from tests.chaos.real_child import RealChild

# How often a killer looks for its victim, in seconds: a task takes ten times as long.
LOOK = 0.003


@contextlib.contextmanager
def armed(child: RealChild, kind: str, number: int) -> Iterator[None]:
    """``crash:name``: the first worker that passes the crash point dies there."""
    what, _, point = kind.partition(":")
    if what != "crash":
        yield
        return
    marker = child.place / f"once-{number}"
    environment = child.engine._spark.session.sparkContext.environment
    environment.update({CRASH_AT: point, CRASH_ONCE: str(marker)})
    try:
        yield
    finally:
        del environment[CRASH_AT], environment[CRASH_ONCE]
    if marker.exists():
        child.killed(f"worker at {point}")


def kill_during(child: RealChild, kind: str, done: threading.Event) -> None:
    """Kill once while the round runs: ``worker:ingest``, ``worker:fire``, ``daemon:ingest`` or ``executor:``."""
    what, _, pool = kind.partition(":")
    while what != "crash" and not done.wait(LOOK):
        victims = {"worker": _busy_workers, "daemon": _daemons, "executor": _executors}[what](child, pool)
        if victims:
            os.kill(victims[0], signal.SIGKILL)
            child.killed(f"{what} {pool}".strip())
            return


def _busy_workers(child: RealChild, pool: str) -> list[int]:
    return [pid for pid in workers_of(os.getpid(), pool) if _runs(pid)]


def _runs(pid: int) -> bool:
    """Whether a process computes at this moment. A worker without a task waits for one."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "R"
    except OSError:
        return False


def _daemons(child: RealChild, pool: str) -> list[int]:
    return daemons_of(os.getpid(), pool) if _batch_runs(child) else []


def _executors(child: RealChild, pool: str) -> list[int]:
    if not _batch_runs(child):
        return []
    found = [one for host in child.hosts for one in below(host) if "CoarseGrainedExecutorBackend" in one.command]
    return [one.pid for one in found if one.is_java]


def _batch_runs(child: RealChild) -> bool:
    return any(state.planned > state.committed for state in child.engine._core.metastore.streams())


def lose_spark(child: RealChild, number: int) -> None:
    """Kill Spark in the middle of a batch: the engine says so to everybody, can be stopped, and a new one goes on."""
    engine = child.engine
    child.feed(number)
    while not _batch_runs(child):
        time.sleep(LOOK)
    os.kill(spark_of(os.getpid()), signal.SIGKILL)
    child.killed("spark")
    requests = (
        engine.await_idle,
        lambda: engine.create_query(QUERIES["busy"]),
        lambda: engine.delete_query("revenue"),
        lambda: engine.read_answers("revenue", "end"),
        engine.check,
    )
    for request in requests:
        with pytest.raises(EngineError) as caught:
            request()
        assert caught.value.code == "SPARK_LOST", caught.value
    status = engine.status()
    assert (status.error or "").startswith("SPARK_LOST: Spark is gone"), status.error
    assert [(stream.state, "gone" in (stream.error or "")) for stream in status.streams] == [("stopped", True)] * 2
    engine.stop()
    child.engine = child.open()
    resumed = child.engine.resumed
    assert resumed is not None
    assert resumed.stopped_at is None, "a stop without Spark is none in order"
    child.engine.await_idle()
