"""What Spark's workers do beside their tasks."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from millstream.runtime import entering, jobs


def test_workers_give_way_to_the_driver_and_nobody_else_does(spark: SparkSession) -> None:
    mine = os.nice(0)
    for pool, way in {entering.INGEST_POOL: 5, entering.ASIDE_POOL: 15}.items():
        found = jobs._run(spark, lambda _: (entering.enter(), os.nice(0)), [1, 2], pool)
        assert {priority for _, priority in found} == {min(19, mine + way)}
    entering.enter()
    assert os.nice(0) == mine


def test_workers_collect_what_a_task_left_and_everything_now_and_then(spark: SparkSession) -> None:
    def work(_: int) -> tuple[list[bool], list[bool]]:
        entering._tasks = count(1)
        circle = type("Circle", (), {})()
        circle.itself = circle
        alive = weakref.ref(circle)
        frozen, kept = [], []
        for _ in range(entering.WHOLE_COLLECTION + 1):
            entering.enter()
            circle = None
            gc.collect()
            frozen.append(gc.get_freeze_count() > 1_000)
            kept.append(alive() is not None)
        return frozen, kept

    often = entering.WHOLE_COLLECTION - 1
    (frozen, kept), *_ = jobs._run(spark, work, [1], entering.INGEST_POOL)
    assert frozen == [True] * often + [False, True], "modules are not looked at, but for once"
    assert kept == [True] * often + [False, False], "what a task dropped in a circle goes then"
    before = gc.get_freeze_count()
    entering.enter()
    assert gc.get_freeze_count() == before


def test_arrow_batches_have_many_small_rows_or_few_wide_ones(spark: SparkSession, tmp_path: Path) -> None:
    key = "spark.sql.execution.arrow.maxBytesPerBatch"
    before = spark.conf.get(key)
    spark.range(70_000).coalesce(1).write.parquet(str(tmp_path / "in"))
    found: dict[str, list[int]] = {}

    def sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows for batch in batches]})

    def callback(rows: DataFrame, _: int) -> None:
        for column in ("id", "current_timestamp() AS t", "CAST(id AS STRING) AS text", "array(id) AS list"):
            frame = rows.coalesce(1).selectExpr(column)
            jobs._fast_batches(frame)
            assert rows.sparkSession.conf.get(key) != before
            found[column] = [row.rows for row in frame.mapInArrow(sizes, "rows bigint").collect()]

    frame = spark.readStream.schema("id BIGINT").parquet(str(tmp_path / "in"))
    writer = frame.writeStream.foreachBatch(callback).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    few, many = [1_000] * 70, [65_536, 4_464]
    assert list(found.values()) == [many, many, few, few]
    assert spark.conf.get(key) == before, "the user's session is left as it was"
