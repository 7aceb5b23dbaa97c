"""Stopping in the middle of a long micro-batch: it is abandoned, and the next engine repeats it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream import Engine
from millstream.config import Settings

from .inputs import SCHEMA, drop_file, purchases
from .test_engine import REVENUE, expected, totals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Longer than any test: what waits for it hangs.
FOR_EVER = 3600.0


def slow_stream(spark: SparkSession, folder: Path, gate: Path) -> DataFrame:
    """A user's DataFrame whose rows come only when the gate is open."""
    path, entered = str(gate), str(gate.with_suffix(".entered"))

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        open(entered, "a").close()
        deadline = time.monotonic() + FOR_EVER
        while not os.path.exists(path) and time.monotonic() < deadline:
            time.sleep(0.05)
        yield from batches

    return spark.readStream.schema(SCHEMA).parquet(str(folder)).mapInArrow(wait, SCHEMA)


def wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 180
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_batch_that_takes_long_is_abandoned_and_repeated(spark: SparkSession, home: Path, tmp_path: Path) -> None:
    folder, gate = tmp_path / "in", tmp_path / "gate"
    folder.mkdir()
    settings = Settings(stop_grace=200_000)
    with Engine(home=home, spark=spark, settings=settings) as engine:
        assert engine.resumed is None
        engine.create_stream("purchases", slow_stream(spark, folder, gate), time="time")
        engine.create_query(REVENUE, id="revenue")
        drop_file(folder, "a", purchases(0, 45))
        wait_until(gate.with_suffix(".entered").exists)
    with Engine(home=home, spark=spark, settings=settings) as engine:
        assert engine.resumed is not None
        assert engine.resumed.stopped_at is not None
        [stream] = engine.resumed.streams
        assert (stream.batches, stream.rows, stream.repeats, engine.resumed.queries) == (0, 0, 0, 1)
        gate.touch()
        engine.create_stream("purchases", slow_stream(spark, folder, gate), time="time")
        engine.await_idle()
        assert totals(engine, "revenue") == expected(0, 4)
        assert engine.stream("purchases").rows == 45


def test_jobs_of_others_in_the_session_are_left_alone(spark: SparkSession, home: Path, tmp_path: Path) -> None:
    folder, gate, other_gate = tmp_path / "in", tmp_path / "gate", tmp_path / "other"
    folder.mkdir()
    found: list[int] = []
    path = str(other_gate)

    def wait(number: int) -> int:
        while not os.path.exists(path):
            time.sleep(0.05)
        return number

    other = threading.Thread(target=lambda: found.extend(spark.sparkContext.parallelize([1], 1).map(wait).collect()))
    other.start()
    with Engine(home=home, spark=spark, settings=Settings(stop_grace=0)) as engine:
        engine.create_stream("purchases", slow_stream(spark, folder, gate), time="time")
        drop_file(folder, "a", purchases(0, 45))
        wait_until(gate.with_suffix(".entered").exists)
    other_gate.touch()
    other.join()
    assert found == [1]
