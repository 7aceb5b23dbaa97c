"""A system in a process of its own, with a fresh Java machine, and the driver's end of the pipes to it."""

from __future__ import annotations

import multiprocessing
import os
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from millstream.bench.driving.model import QuerySpec
from millstream.bench.process import enter, last_lines
from millstream.bench.systems.system import Queue, Seen, System

# Longer than any request takes that will ever be answered, in seconds.
PATIENCE = 300.0


class SystemFailed(Exception):
    """The system refused, raised, or is gone; the message is the evidence."""


@dataclass(frozen=True)
class SystemKind:
    """How to make a system in its process: a function of a module, which is only imported there."""

    name: str
    title: str
    make: Callable[[Path, int], System]
    form: str = "parquet"


class RemoteSystem:
    """The methods of a system, called through pipes; ``collect`` has a pipe of its own, since it must not wait."""

    def __init__(self, kind: SystemKind, workspace: Path, cores: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.name, self.form = kind.name, kind.form
        self._log = workspace / f"{kind.name}.log"
        self._commands, commands = context.Pipe()
        self._looks, looks = context.Pipe()
        self._process = context.Process(target=_serve, args=(kind, commands, looks, str(self._log), workspace, cores))
        self._process.start()
        commands.close()
        looks.close()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def deploy(self, folder: Path, queues: Sequence[Queue], queries: Sequence[QuerySpec]) -> None:
        self._ask(self._commands, "deploy", folder, list(queues), list(queries))

    def create(self, queries: Sequence[QuerySpec]) -> None:
        self._ask(self._commands, "create", list(queries))

    def delete(self, ids: Sequence[str]) -> None:
        self._ask(self._commands, "delete", list(ids))

    def collect(self) -> Seen:
        found: Seen = self._ask(self._looks, "collect")
        return found

    def phases(self) -> dict[str, float]:
        found: dict[str, float] = self._ask(self._looks, "phases")
        return found

    def finish(self) -> dict[str, Any]:
        found: dict[str, Any] = self._ask(self._commands, "finish")
        return found

    def describe(self) -> dict[str, Any]:
        found: dict[str, Any] = self._ask(self._commands, "describe")
        return found

    def close(self) -> None:
        """End the process, in order if it can."""
        try:
            self._ask(self._commands, "close", patience=30.0)
        except SystemFailed:
            pass
        finally:
            self._process.join(10)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()
            self._commands.close()
            self._looks.close()

    def _ask(self, pipe: Connection, method: str, *arguments: Any, patience: float = PATIENCE) -> Any:
        try:
            pipe.send((method, arguments))
            if not pipe.poll(patience):
                raise SystemFailed(f"{self.name} did not answer {method} within {patience:.0f} s")
            good, body = pipe.recv()
        except (EOFError, OSError):
            raise SystemFailed(f"the process of {self.name} is gone\n{last_lines(self._log)}") from None
        if not good:
            raise SystemFailed(body)
        return body


def _serve(kind: SystemKind, commands: Connection, looks: Connection, log: str, workspace: Path, cores: int) -> None:
    """The process of the system."""
    enter(log, str(workspace))
    # Java and the workers inherit it, and count these cores only.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    try:
        system = kind.make(workspace, cores)
    except BaseException as error:
        _refuse_all(commands, looks, error)
        return
    threading.Thread(target=_answer, args=(system, looks), daemon=True).start()
    _answer(system, commands)


def _answer(system: System, pipe: Connection) -> None:
    while True:
        try:
            method, arguments = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            reply = (True, getattr(system, method)(*arguments))
        except BaseException as error:
            reply = (False, evidence(error))
        pipe.send(reply)
        if method == "close":
            return


def _refuse_all(commands: Connection, looks: Connection, error: BaseException) -> None:
    said = evidence(error)
    try:
        commands.recv()
        commands.send((False, said))
        commands.close()
        looks.close()
    except (EOFError, OSError):
        return


def evidence(error: BaseException) -> str:
    """An exception for the report: its first line, then where it came from."""
    first = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {first}\n{traceback.format_exc()}"
