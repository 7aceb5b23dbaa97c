"""``millstream start`` and ``millstream demo`` asked to stop, asked twice, and with Spark killed under them.

The stream of these engines is one micro-batch without an end, so whatever happens, happens in the middle of it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.processes import spark_of, workers_of

# Starting Spark takes seconds on a free machine, and these tests share theirs.
PATIENCE = 600
SOURCE = Path(__file__).parents[2] / "src"
GAME = """
home: home
settings:
  stop_grace: {grace}
streams:
  clicks:
    source: astream
    density: 1000000
    max_rows_per_batch: 1000000000000
"""


COMMANDS: list[Command] = []


class Command:
    """A running command. Its output is read as it comes."""

    def __init__(self, user: Path, *arguments: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "HOME": str(user), "TMPDIR": str(user)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "millstream", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        COMMANDS.append(self)
        self.output: list[str] = []
        self.errors: list[str] = []
        for pipe, lines in ((self.process.stdout, self.output), (self.process.stderr, self.errors)):
            threading.Thread(target=_collect, args=(pipe, lines), daemon=True).start()

    def wait_for(self, text: str) -> None:
        """Wait until the command prints a text."""
        deadline = time.monotonic() + PATIENCE
        while text not in "".join(self.output + self.errors):
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.errors}"
            assert time.monotonic() < deadline, f"no {text!r} in {self.output} {self.errors}"
            time.sleep(0.05)

    def ended(self) -> tuple[int, str, str]:
        """Exit code, output and errors, once it has ended."""
        code = self.process.wait(PATIENCE)
        time.sleep(0.2)
        return code, "".join(self.output), "".join(self.errors)


def _collect(pipe: Iterator[str] | None, lines: list[str]) -> None:
    assert pipe is not None
    for line in pipe:
        lines.append(line)


@pytest.fixture
def user(tmp_path: Path) -> Iterator[Path]:
    """The home of a user; none of the user's commands outlives the test."""
    folder = tmp_path / "user"
    folder.mkdir()
    yield folder
    while COMMANDS:
        COMMANDS.pop().process.kill()


def start(tmp_path: Path, grace: str) -> Command:
    file = tmp_path / "game.yaml"
    file.write_text(GAME.format(grace=grace))
    command = Command(tmp_path / "user", "start", str(file))
    command.wait_for("stop: Ctrl-C")
    wait_for_batch(command)
    return command


def wait_for_batch(command: Command) -> None:
    """Wait until workers ingest the batch."""
    deadline = time.monotonic() + PATIENCE
    while not workers_of(command.process.pid, "ingest"):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow
def test_stopped_stopped_twice_and_left_by_spark(tmp_path: Path, user: Path) -> None:
    first = start(tmp_path, grace="500 ms")
    first.process.send_signal(signal.SIGINT)
    code, output, errors = first.ended()
    assert (code, "Traceback" in errors) == (0, False), errors
    assert "resumed" not in output
    assert "stopped; start again" in errors

    second = start(tmp_path, grace="1 hour")
    assert "resumed after a clean stop at" in "".join(second.output)
    assert "  clicks: 0 batches, 0 rows, no watermark, repeats batch 0\n  0 queries running\n" in "".join(second.output)
    second.process.send_signal(signal.SIGTERM)
    second.wait_for("stopping …")
    second.process.send_signal(signal.SIGINT)
    code, output, errors = second.ended()
    assert (code, "Traceback" in errors) == (130, False), errors
    assert "stopped;" not in errors

    third = start(tmp_path, grace="1 hour")
    assert "resumed after a crash" in "".join(third.output)
    os.kill(spark_of(third.process.pid), signal.SIGKILL)
    code, output, errors = third.ended()
    assert (code, "Traceback" in errors) == (1, False), errors
    assert "SPARK_LOST: Spark is gone: its process" in errors
    assert "was killed (signal 9)" in errors
    assert not (tmp_path / "home" / "engine.json").exists()


@pytest.mark.slow
def test_the_demo_stops_in_order(user: Path) -> None:
    """A service manager, and a terminal, ask all processes at once, Spark included."""
    demo = Command(user, "demo", "--queries", "5", "--rate", "1000", "--seconds", "3600", "--json")
    demo.wait_for('"status"')
    os.killpg(demo.process.pid, signal.SIGTERM)
    code, output, errors = demo.ended()
    assert (code, errors) == (0, "")
    assert json.loads(output.splitlines()[-1])["summary"]["created"] >= 5
    assert not list(user.glob("millstream-demo-*")), "its home is removed"
