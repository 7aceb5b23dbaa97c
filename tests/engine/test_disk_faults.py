"""The real engine on a disk that fills up, and with a bucket file that is damaged under its hands."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream import Engine, ParquetFiles
from millstream.errors import EngineError
from millstream.runtime.spark import QUICK_TRIES, Running

from .disks import filled, small_disk
from .inputs import SCHEMA, drop_file, purchases
from .test_engine import REVENUE, expected, totals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def wait_until(true: Callable[[], bool]) -> None:
    """Long enough for any machine; what is waited for is asserted behind it."""
    deadline = time.monotonic() + 120
    while not true() and time.monotonic() < deadline:
        time.sleep(0.1)


def test_a_full_disk_is_waited_for(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.runtime.disk.LONGEST_WAIT", 0.5)
    begun: list[Running] = []
    begin = Running._begin
    monkeypatch.setattr(Running, "_begin", lambda self: (begun.append(self), begin(self))[1])
    folder = tmp_path / "in"
    drop_file(folder, "a", purchases(0, 25))
    with small_disk(tmp_path / "disk", 16) as disk, Engine(home=disk / "home", spark=spark) as engine:
        engine.create_stream("purchases", ParquetFiles(str(folder), schema=SCHEMA), time="time")
        query = engine.create_query(REVENUE)
        drop_file(folder, "b", purchases(25, 25))
        engine.await_idle()
        before = totals(engine, query.id)
        with filled(disk):
            drop_file(folder, "c", purchases(50, 25))
            wait_until(lambda: engine.stream("purchases").state == "retrying")
            status = engine.stream("purchases")
            assert status.state == "retrying"
            assert "no space left on" in (status.error or "")
            with pytest.raises(EngineError) as raised:
                engine.create_query(REVENUE, id="second")
            assert raised.value.code == "NO_SPACE"
            assert totals(engine, query.id) == before, "answers can be read"
            # It goes on to try.
            wait_until(lambda: len(begun) > QUICK_TRIES + 1)
            assert engine.stream("purchases").state == "retrying"
        drop_file(folder, "d", purchases(75, 25))
        engine.await_idle()
        assert engine.stream("purchases").state == "running"
        assert engine.stream("purchases").rows == 100
        assert totals(engine, query.id) == expected(0, 9, seen_from=query.cut["purchases"] * 25)
        assert engine.create_query(REVENUE, id="second").id == "second"
        assert set(engine._core.home.files()) <= engine._core.metastore.referenced_files()


def test_a_damaged_bucket_is_rebuilt_by_a_job(spark: SparkSession, home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    with Engine(home=home, spark=spark) as engine:
        engine.create_stream("purchases", ParquetFiles(str(folder), schema=SCHEMA), time="time")
        query = engine.create_query(REVENUE)
        drop_file(folder, "a", purchases(0, 15))
        engine.await_idle()
        (bucket,) = (home / "buckets" / "purchases").iterdir()
        bucket.write_bytes(bucket.read_bytes()[:-1] + b"\xff")
        drop_file(folder, "b", purchases(15, 25))
        engine.await_idle()
        assert totals(engine, query.id) == expected(0, 3)
        assert engine._core.repair.mended.rebuilt == 1
        assert query.status().incomplete == 0
