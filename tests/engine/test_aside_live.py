"""Heavy fires aside of light ones, as real Spark jobs side by side, also when the engine stops in the middle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream import Engine, ParquetFiles
from millstream.engine import firing
from millstream.model.plan import FireResult
from millstream.runtime.fire import FireTask
from millstream.runtime.join_fire import JoinTask

from .inputs import SCHEMA, drop_file, purchases

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIGHT = "SELECT COUNT(*) AS n FROM purchases GROUP BY window(time, '1 second')"
HEAVY = "SELECT gem_pack, SUM(price) AS revenue FROM purchases GROUP BY gem_pack, window(time, '1 second')"
PATIENCE = 60.0


class Watched:
    """An engine whose heavy jobs wait until they are let go."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.let_go, self.begun = threading.Event(), threading.Event()
        self._real = engine._core.firing._run
        engine._core.firing._run = self._run

    def _run(self, tasks: Sequence[FireTask | JoinTask]) -> tuple[list[FireResult], dict[str, float]]:
        if any(isinstance(task, FireTask) and task.aside for task in tasks):
            self.begun.set()
            assert self.let_go.wait(PATIENCE)
        return self._real(tasks)

    def ends(self, id: str) -> list[float]:
        """Of the windows that are answered; one that is there twice is there twice."""
        answers = self.engine.read_answers(id, limit=10_000).answers
        return [answer.window_end.timestamp() for answer in answers if answer.window_end is not None]


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_light_windows_are_answered_while_heavy_ones_wait_and_a_stop_leaves_nothing_out(
    spark: SparkSession, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firing, "LIGHT", 1)
    monkeypatch.setattr(firing, "HEAVIER", 0)
    folder = tmp_path / "in"
    folder.mkdir()
    watched = Watched(Engine(home=home, spark=spark))
    watched.engine.create_stream("purchases", ParquetFiles(str(folder), schema=SCHEMA), time="time")
    watched.engine.create_query(LIGHT, id="light")
    watched.engine.create_query(HEAVY, id="heavy")
    drop_file(folder, "a", purchases(0, 25))
    assert watched.begun.wait(PATIENCE)
    drop_file(folder, "b", purchases(25, 20))
    until(lambda: watched.ends("light") == [1.0, 2.0, 3.0, 4.0])
    assert watched.ends("heavy") == []
    threading.Timer(0.5, watched.let_go.set).start()
    watched.engine.stop()
    again = Watched(Engine(home=home, spark=spark))
    try:
        again.let_go.set()
        drop_file(folder, "c", purchases(45, 10))
        until(lambda: again.ends("heavy") == [1.0, 2.0, 3.0, 4.0, 5.0])
        assert again.ends("light") == [1.0, 2.0, 3.0, 4.0, 5.0]
    finally:
        again.engine.stop()
