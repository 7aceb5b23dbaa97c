"""Keeping Spark's noise out of the terminal, and stopping in order."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from tests.server.fake import FakeEngine

from millstream.cli.hosting import open_streams, spark_log, stop_or_abandon, stop_signals
from millstream.config import StreamDefinition


def test_what_child_processes_print_goes_to_the_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with spark_log(tmp_path / "logs" / "spark.log"):
        subprocess.run([sys.executable, "-c", "import sys; print('noise', file=sys.stderr)"], check=True)
        print("ours", file=sys.stderr)
        logging.error("a library's trouble")
    subprocess.run([sys.executable, "-c", "import sys; print('after', file=sys.stderr)"], check=True)
    shown = capfd.readouterr().err
    assert (tmp_path / "logs" / "spark.log").read_text() == "noise\na library's trouble\n"
    assert "noise" not in shown
    assert "ours" in shown
    assert "after" in shown


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_to_stop_and_a_second_one_insists(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stop_signals() as stop:
        os.kill(os.getpid(), number)
        assert stop.wait(5)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(("error", "done"), [(None, "stop"), (ValueError, "stop"), (KeyboardInterrupt, "abandon")])
def test_an_engine_is_abandoned_where_a_second_signal_came_before_its_stop(
    error: type[BaseException] | None, done: str
) -> None:
    engine = Mock()
    with contextlib.suppress(ValueError, KeyboardInterrupt), contextlib.ExitStack() as stack:
        stack.push(stop_or_abandon(engine))
        # The server's stop, for one, comes first, and may be what the signal interrupts.
        stack.callback(_raise, error)
    assert [name for name, _, _ in engine.mock_calls] == [done]


def _raise(error: type[BaseException] | None) -> None:
    if error is not None:
        raise error


def test_outside_the_main_thread_there_is_only_the_event() -> None:
    seen = []

    def work() -> None:
        with stop_signals() as stop:
            seen.append(stop.is_set())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]


def test_a_known_stream_keeps_its_definition_and_differences_are_told(home: Path) -> None:
    engine: Any = FakeEngine(home)
    same = StreamDefinition("purchases", "time", 5_000_000, None, None, (("kind", "generator"),))
    assert open_streams(engine, (same,)) == []
    other = StreamDefinition("Purchases", "time", 0, None, 60_000_000, (("kind", "files"),))
    assert open_streams(engine, (other,)) == [
        "stream Purchases keeps kind generator, with which it was created; the file says files",
        "stream Purchases keeps lateness 5 seconds, with which it was created; the file says 0 seconds",
        "stream Purchases keeps idle_timeout none, with which it was created; the file says 1 minute",
    ]
