"""Batches that fail are repeated as they were, and a stream goes on where it was."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Engine, ParquetFiles
from millstream.catalog.metastore import Metastore
from millstream.engine import rounds
from millstream.engine.status import StreamStatus
from millstream.errors import SourceError
from millstream.model.plan import BatchResult
from millstream.runtime import spark as spark_module
from millstream.runtime.spark import QUICK_TRIES, Spark
from millstream.runtime.worker import IngestTask

from .inputs import SCHEMA, drop_file, purchases
from .test_disk_faults import wait_until
from .test_engine import REVENUE, expected, totals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_batch_that_fails_is_repeated_as_the_same_batch(
    spark: SparkSession, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    real: Callable[..., BatchResult] = Spark.ingest
    tries: list[int] = []

    def fail_twice(self: Spark, task: IngestTask, splits: object) -> BatchResult:
        tries.append(task.batch)
        result = real(self, task, splits)
        if len(tries) <= 2:
            raise OSError("the disk is busy")
        return result

    monkeypatch.setattr(Spark, "ingest", fail_twice)
    with Engine(home=home, spark=spark) as engine:
        engine.create_stream("purchases", ParquetFiles(str(folder), schema=SCHEMA), time="time")
        query = engine.create_query(REVENUE)
        drop_file(folder, "a", purchases(0, 25))
        deadline = time.monotonic() + 120
        while engine.stream("purchases").batches < 1 and time.monotonic() < deadline:
            time.sleep(0.1)
        engine.await_idle()
        assert tries[:3] == [0, 0, 0]
        assert totals(engine, query.id) == expected(0, 2)
        assert engine.stream("purchases").rows == 25


def test_a_stream_that_keeps_failing_says_why_and_goes_on_when_it_can(
    spark: SparkSession, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.runtime.disk.LONGEST_WAIT", 0.5)
    folder = tmp_path / "in"
    folder.mkdir()
    tries: list[int] = []
    known = Spark.ingest

    def fail(self: Spark, task: IngestTask, splits: object) -> BatchResult:
        tries.append(task.batch)
        raise OSError("the network is gone")

    with monkeypatch.context() as broken, Engine(home=home, spark=spark) as engine:
        broken.setattr(Spark, "ingest", fail)
        engine.create_stream("purchases", ParquetFiles(str(folder), schema=SCHEMA), time="time")
        query = engine.create_query(REVENUE)
        drop_file(folder, "a", purchases(0, 25))
        wait_until(lambda: len(tries) > 2 * QUICK_TRIES)
        seen: list[StreamStatus] = []
        wait_until(lambda: (seen.append(engine.stream("purchases")), seen[-1].error is not None)[1])
        assert seen[-1].state == "retrying"
        assert "the network is gone" in (seen[-1].error or "")
        assert engine.create_query(REVENUE, id="second").id, "queries can still be made"
        broken.setattr(Spark, "ingest", known)
        wait_until(lambda: engine.stream("purchases").batches == 1)
        engine.await_idle()
        assert engine.stream("purchases").state == "running"
        assert engine.stream("purchases").error is None
        assert totals(engine, query.id) == expected(0, 2)


def test_a_stream_whose_directory_is_away_holds_up_nobody(
    spark: SparkSession, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.runtime.disk.LONGEST_WAIT", 0.5)
    folders = {name: tmp_path / name for name in ("purchases", "returns")}
    missing = ParquetFiles(str(tmp_path / "nowhere"), schema=SCHEMA)
    with Engine(home=home, spark=spark) as engine:
        with pytest.raises(SourceError, match="does not exist"):
            engine.create_stream("lost", missing, time="time")
        assert engine.streams() == [], "a stream that could not start is not there"
        for name, folder in folders.items():
            drop_file(folder, "a", purchases(0, 25))
            engine.create_stream(name, ParquetFiles(str(folder), schema=SCHEMA), time="time")
        engine.await_idle()
    folders["returns"].rename(tmp_path / "away")
    with Engine(home=home, spark=spark) as engine:
        query = engine.create_query(REVENUE)
        drop_file(folders["purchases"], "b", purchases(25, 25))
        wait_until(lambda: engine.stream("purchases").batches == 2)
        wait_until(lambda: bool(totals(engine, query.id)))
        assert totals(engine, query.id) == expected(2, 4, seen_from=25)
        status = engine.stream("returns")
        assert status.state == "retrying"
        assert "does not exist" in (status.error or "")
        (tmp_path / "away").rename(folders["returns"])
        drop_file(folders["returns"], "b", purchases(25, 25))
        wait_until(lambda: engine.stream("returns").rows == 50)
        assert engine.stream("returns").rows == 50


def test_what_fails_in_a_fire_keeps_no_other_work_of_the_engine_back(
    spark: SparkSession, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tidying is what makes room on a full disk."""
    monkeypatch.setattr(rounds, "HOUSEKEEPING_INTERVAL", 0.0)
    with Engine(home=home, spark=spark) as engine:
        done: list[str] = []

        def fail() -> None:
            done.append("fire")
            raise OSError("no space left")

        monkeypatch.setattr(engine._rounds, "_fire_once", fail)
        monkeypatch.setattr(engine._rounds, "follow", lambda: done.append("follow"))
        monkeypatch.setattr(engine._rounds, "_tidy", lambda: done.append("tidy"))
        # The loop has taken hold of its steps: a second one runs with these.
        loop = threading.Thread(target=engine._rounds.run, daemon=True)
        loop.start()
        wait_until(lambda: done.count("tidy") > 1)
        assert {"fire", "follow", "tidy"} <= set(done)
        told: list[str | None] = []
        wait_until(lambda: (told.append(engine.status().error), told[-1] is not None)[1])
        assert told[-1] == "OSError: no space left"


def test_what_a_batch_rests_on_is_on_disk_before_it_is_planned(
    spark: SparkSession, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark does not sync its checkpoint; a plan in the metastore that is ahead of it would be for other rows."""
    done: list[tuple[str, int]] = []
    sync, plan = spark_module.sync_batch, Metastore.plan_batch

    def sync_batch(checkpoint: Path, batch: int) -> None:
        sync(checkpoint, batch)
        done.append(("sync", batch))

    def plan_batch(store: Metastore, stream: str, batch: int, *more: Any, **others: Any) -> Any:
        done.append(("plan", batch))
        return plan(store, stream, batch, *more, **others)

    monkeypatch.setattr(spark_module, "sync_batch", sync_batch)
    monkeypatch.setattr(Metastore, "plan_batch", plan_batch)
    folder = tmp_path / "in"
    with Engine(home=home, spark=spark) as engine:
        drop_file(folder, "a", purchases(0, 25))
        engine.create_stream("purchases", ParquetFiles(str(folder), schema=SCHEMA), time="time")
        engine.await_idle()
        drop_file(folder, "b", purchases(25, 25))
        engine.await_idle()
    assert done == [("sync", 0), ("plan", 0), ("sync", 1), ("plan", 1)]


def test_a_replay_of_a_batch_with_other_files_stops_the_stream(spark: SparkSession, home: Path, tmp_path: Path) -> None:
    """Spark does not sync its checkpoint: after a power loss it may plan a batch again with other files."""
    folder = tmp_path / "in"
    drop_file(folder, "a", purchases(0, 25))
    with Engine(home=home, spark=spark) as engine:
        engine.create_stream("purchases", ParquetFiles(str(folder), schema=SCHEMA), time="time")
        engine.await_idle()
    checkpoint = home / "checkpoints" / "purchases"
    for name in ("offsets", "commits", "sources/0"):
        for file in (checkpoint / name).iterdir():
            file.unlink()
    drop_file(folder, "b", purchases(25, 25))
    with Engine(home=home, spark=spark) as engine:
        deadline = time.monotonic() + 120
        while engine.stream("purchases").error is None and time.monotonic() < deadline:
            time.sleep(0.1)
        assert "other offsets" in (engine.stream("purchases").error or "")
        assert engine.stream("purchases").rows == 25


def test_a_first_batch_that_was_never_planned_leaves_nothing_in_the_way(
    spark: SparkSession, home: Path, tmp_path: Path
) -> None:
    """Stopped or killed while Spark writes the offsets of batch 0, half a file stays, with which Spark itself would not
    start."""
    folder = tmp_path / "in"
    folder.mkdir()
    with Engine(home=home, spark=spark) as engine:
        engine.create_stream("purchases", ParquetFiles(str(folder), schema=SCHEMA), time="time")
    offsets = home / "checkpoints" / "purchases" / "offsets"
    offsets.mkdir(parents=True, exist_ok=True)
    assert not [path for path in offsets.iterdir() if path.name.isdigit()]
    (offsets / ".0.4a41d0c9-5bd3-4f35-8f0b-1c53ee4b57b5.tmp").write_text("v1\n")
    drop_file(folder, "a", purchases(0, 25))
    with Engine(home=home, spark=spark) as engine:
        engine.await_idle()
        assert engine.stream("purchases").rows == 25
