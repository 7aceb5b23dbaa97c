"""An engine inside this process, for the commands that start one: served over HTTP, quiet, and stopped in order."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from millstream.config import Settings, StreamDefinition, format_duration
from millstream.engine.status import StreamStatus
from millstream.runtime.home import Home

if TYPE_CHECKING:
    from millstream.engine.engine import Engine
    from millstream.server.serve import Server

LOG_FILE = "spark.log"
# How often a command that waits looks whether its engine can go on, in seconds.
LOOK_SECONDS = 0.5
ExitFunction = Callable[[type[BaseException] | None, BaseException | None, TracebackType | None], None]


@contextlib.contextmanager
def spark_log(path: Path) -> Iterator[None]:
    """Send what Spark's processes print on standard error to a file, and keep our own standard error.

    Spark's processes inherit the file descriptor, so it is the descriptor that is exchanged. What libraries log in this
    process, such as tracebacks of Spark's connection when Spark is killed, goes to the same file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    original = os.dup(2)
    ours = sys.stderr
    with open(path, "ab") as log:
        os.dup2(log.fileno(), 2)
    if _descriptor(ours) == 2:
        sys.stderr = os.fdopen(os.dup(original), "w", buffering=1, encoding="utf-8", errors="replace")
    library_log = logging.FileHandler(path, encoding="utf-8", delay=True)
    logging.getLogger().addHandler(library_log)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(library_log)
        library_log.close()
        os.dup2(original, 2)
        os.close(original)
        if sys.stderr is not ours:
            sys.stderr.close()
            sys.stderr = ours


def _descriptor(stream: object) -> int | None:
    try:
        return int(stream.fileno())  # type: ignore[attr-defined]
    except (OSError, AttributeError, ValueError):
        return None


@contextlib.contextmanager
def hosted(home: Path, settings: Settings) -> Iterator[Engine]:
    """A quiet engine on ``home``, stopped at the end, whatever ends it."""
    # Importing Spark takes a second, which commands that only ask a running engine do not pay.
    from millstream.engine.engine import Engine

    Home(str(home)).create()
    with spark_log(home / LOG_FILE), Engine(home=home, settings=settings) as engine:
        yield engine


def serve(engine: Engine, settings: Settings) -> Server:
    """The engine's server, to be entered once its streams are there: whoever finds it can use them."""
    from millstream.server.serve import Server

    return Server(engine, settings.http_host, settings.http_port)


def open_streams(engine: Engine, definitions: tuple[StreamDefinition, ...]) -> list[str]:
    """Create the streams of a stream file that the home does not know yet.

    A stream keeps the definition it was created with; gives a remark for each whose definition in the file differs.
    """
    from millstream.sources.source import source_from

    known = {stream.name.lower(): stream for stream in engine.streams()}
    remarks = []
    for item in definitions:
        if item.name.lower() in known:
            remarks += _differences(item, known[item.name.lower()])
            continue
        skew, idle = (None if d is None else format_duration(d) for d in (item.max_skew, item.idle_timeout))
        source = source_from(dict(item.source))
        lateness = format_duration(item.lateness)
        engine.create_stream(item.name, source, time=item.time, lateness=lateness, max_skew=skew, idle_timeout=idle)
    return remarks


def _differences(item: StreamDefinition, known: StreamStatus) -> list[str]:
    idle = known.idle_timeout_seconds
    written = {
        **dict(item.source),
        "time": item.time,
        "lateness": format_duration(item.lateness),
        "idle_timeout": "none" if item.idle_timeout is None else format_duration(item.idle_timeout),
    }
    kept = {
        **known.source,
        "time": known.time,
        "lateness": format_duration(round(known.lateness_seconds * 1_000_000)),
        "idle_timeout": "none" if idle is None else format_duration(round(idle * 1_000_000)),
    }
    return [
        f"stream {item.name} keeps {name} {kept[name]}, with which it was created; the file says {value}"
        for name, value in written.items()
        if name in kept and kept[name] != value
    ]


@contextlib.contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set, so that the engine stops in order; a second Ctrl-C ends at once.

    Entered after the engine has started: Spark's own handler would cancel the running jobs.
    """
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop_or_abandon(engine: Engine) -> ExitFunction:
    """Ends a block: the engine is stopped in order, unless a second Ctrl-C has come, whatever it interrupted."""

    def leave(kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, KeyboardInterrupt):
            engine.abandon()
        else:
            engine.stop()

    return leave


def stay(engine: Engine, stop: threading.Event, seconds: float | None = None) -> None:
    """Wait until asked to stop, or for so long.

    :raises EngineError: when the engine cannot go on.
    """
    end = None if seconds is None else time.monotonic() + seconds
    while not stop.wait(LOOK_SECONDS if end is None else max(0.0, min(LOOK_SECONDS, end - time.monotonic()))):
        if end is not None and time.monotonic() >= end:
            return
        engine.check()
