"""Bounds on one evaluation in DuckDB: processor time, and memory that DuckDB itself does not account for.

DuckDB's own memory limit covers tables and hash tables. The texts that a function makes of a vector of rows lie
outside it, and so do results; for the time of an evaluation the process is therefore held to what it has and the
allowance more. Time is that of the processor, so a machine that is busy, or a process that was paused, makes nobody
exceed it.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache

import duckdb

from millstream.errors import EvaluationError

# How often an evaluation is looked at, in seconds.
LOOK = 0.25
# An evaluation that was interrupted and does not end, because DuckDB asks only between vectors, may go on for so many
# times its limit; then its process ends.
PATIENCE = 4
MEGABYTE = 1 << 20
# How DuckDB is opened wherever its process may be held to an allowance. Its threads for asynchronous work must not be
# there: one that first asks for memory while there is none ends the process with a segmentation fault (its allocator
# makes an arena for each thread, and takes it for granted).
ONE_THREAD = {"threads": 1, "async_threads": 0}
# DuckDB puts what does not fit into memory on disk; no query is to blame if that cannot be written.
NOBODYS_FAULT = duckdb.IOException


@dataclass(eq=False)
class _Evaluation:
    """One that runs now. ``last_resort`` is called when an interrupt has no effect."""

    clock: Callable[[], float]
    seconds: float
    interrupt: Callable[[], None]
    last_resort: Callable[[], None] | None
    started: float = 0.0
    interrupted: bool = False

    def look(self) -> None:
        spent = self.clock() - self.started
        if spent > self.seconds:
            self.interrupted = True
            self.interrupt()
        if spent > PATIENCE * self.seconds and self.last_resort is not None:
            self.last_resort()


class _Watch:
    """The thread that looks at the evaluations of this process. It knows only those that run, so that it keeps no
    database alive."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[_Evaluation] = set()
        self._thread: threading.Thread | None = None

    def begin(self, evaluation: _Evaluation) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="millstream-watch", daemon=True)
                self._thread.start()
            evaluation.started = evaluation.clock()
            self._running.add(evaluation)

    def end(self, evaluation: _Evaluation) -> None:
        with self._lock:
            self._running.discard(evaluation)

    def _look(self) -> None:
        while True:
            time.sleep(LOOK)
            self._look_once()

    def _look_once(self) -> None:
        """A function of its own, so that no evaluation is held in between."""
        with self._lock:
            for evaluation in self._running:
                evaluation.look()


_watch = _Watch()


def _after_fork() -> None:
    """Threads do not live on in a child."""
    global _watch
    _watch = _Watch()


os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def watched(interrupt: Callable[[], None], seconds: float, last_resort: Callable[[], None] | None) -> Iterator[None]:
    """Around an evaluation by the calling thread; its interrupt comes out as an error that says why."""
    evaluation = _Evaluation(_thread_clock(), seconds, interrupt, last_resort)
    _watch.begin(evaluation)
    try:
        yield
    except duckdb.InterruptException as error:
        if not evaluation.interrupted:
            raise
        raise too_long(seconds) from error
    finally:
        _watch.end(evaluation)


def _thread_clock() -> Callable[[], float]:
    """The processor time of the calling thread, which is the one that DuckDB runs in."""
    if hasattr(time, "pthread_getcpuclockid"):
        clock = time.pthread_getcpuclockid(threading.get_ident())
        return lambda: time.clock_gettime(clock)
    return time.process_time


def end_process() -> None:
    """For workers: the task fails, and whoever runs it finds out whose expression it was."""
    print("millstream: an expression cannot be interrupted; the worker ends", file=sys.stderr, flush=True)
    os._exit(70)


@contextmanager
def allowance(memory: int) -> Iterator[None]:
    """Let the process take so many bytes more than it has, for as long as this lasts; where the system can tell."""
    held = _limiting.acquire(blocking=False)
    try:
        with _limited(memory) if held else nullcontext():
            yield
    except (MemoryError, duckdb.OutOfMemoryException) as error:
        raise too_much(memory) from error
    finally:
        if held:
            _limiting.release()


# The limit is the process's: where threads evaluate at the same time, it is that of the first.
_limiting = threading.Lock()


@contextmanager
def _limited(memory: int) -> Iterator[None]:
    used = _data_bytes()
    if used is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = used + memory if soft == resource.RLIM_INFINITY else min(used + memory, soft)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@lru_cache(maxsize=1)
def hold_process(memory: int) -> None:
    """Let this process take so many bytes more than it has now, from now on: what needs more fails with an error,
    before the system ends a process of its own choice. Called at the start of each task; once is enough."""
    used = _data_bytes()
    if used is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = used + memory if hard == resource.RLIM_INFINITY else min(used + memory, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _data_bytes() -> int | None:
    """The private memory of the process as the limit counts it; None where that cannot be known."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[5]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return None


def too_long(seconds: float) -> EvaluationError:
    return EvaluationError(
        "LIMIT_EXCEEDED",
        f"expressions took more than {seconds:g} seconds of processor time, the setting evaluation_time",
        hint="simplify them, or raise the setting evaluation_time",
    )


def too_much(memory: int) -> EvaluationError:
    return EvaluationError(
        "LIMIT_EXCEEDED",
        f"expressions need more than {max(memory // MEGABYTE, 1)} MB of memory, the setting evaluation_memory",
        hint="make shorter texts, or raise the setting evaluation_memory",
    )
