"""Streaming DataFrames that only read Parquet files are read by our workers; the rows are those that Spark gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from millstream.model.stream import Field
from millstream.model.types import INTEGER, LONG, TIMESTAMP
from millstream.runtime import scans
from millstream.runtime.scans import Scan, exact_splits, scanned_files
from millstream.sources.parquet import MARKED
from millstream.sources.splits import FileSplit, Split

SCHEMA = "id BIGINT, price INT, time TIMESTAMP"
FIELDS = (Field("id", LONG), Field("price", INTEGER), Field("time", TIMESTAMP))


def table(rows: int = 3, **columns: pa.Array) -> pa.Table:
    plain = {
        "id": pa.array(range(rows), pa.int64()),
        "price": pa.array(range(rows), pa.int32()),
        "time": pa.array(range(rows), pa.timestamp("us", tz="UTC")),
    }
    return pa.table(plain | columns)


def files_of(spark: SparkSession, frame: DataFrame, tmp_path: Path, batch: int = 0) -> list[str] | None:
    """What is seen from inside the first micro-batch."""
    found: list[Any] = []

    def callback(rows: DataFrame, number: int) -> None:
        rows.count()
        found.append(scanned_files(spark, rows, tmp_path.name, number + batch))

    writer = frame.writeStream.foreachBatch(callback).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.queryName(tmp_path.name).trigger(availableNow=True).start().awaitTermination()
    return None if found[0] is None else list(found[0].paths)


def split(*paths: str, columns: tuple[str, ...] = ("id", "price", "time")) -> list[list[Split]] | None:
    return exact_splits(Scan(columns, paths), FIELDS, 2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "in put"
    made.mkdir()
    for name in ("a.parquet", "b 100%.parquet", "ü,=#.parquet"):
        pq.write_table(table(), made / name)
    return made


def read(spark: SparkSession, folder: Path, **options: str) -> DataFrame:
    return spark.readStream.schema(SCHEMA).options(**options).parquet(str(folder))


def test_files_are_seen_whatever_their_names(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    found = files_of(spark, read(spark, folder).select("time", "id"), tmp_path)
    assert found is not None
    assert sorted(found) == sorted(str(path) for path in folder.iterdir())


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.filter("price > 0"),
        lambda frame: frame.selectExpr("id", "price AS id2"),
        lambda frame: frame.selectExpr("id", "price + 1 AS price"),
        lambda frame: frame.union(frame),
        lambda frame: frame.dropDuplicates(["id"]),
        lambda frame: frame.mapInArrow(lambda batches: batches, SCHEMA),
    ],
    ids=["filter", "alias", "expression", "union", "state", "python"],
)
def test_plans_that_do_more_are_left_to_spark(
    spark: SparkSession, folder: Path, tmp_path: Path, change: Callable[[DataFrame], DataFrame]
) -> None:
    assert files_of(spark, change(read(spark, folder)), tmp_path) is None


def test_options_that_change_rows_and_other_sources_are_left_to_spark(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    frames = {
        "option": read(spark, folder, datetimeRebaseMode="LEGACY"),
        "rate": spark.readStream.format("rate").load(),
        "text": spark.readStream.text(str(folder)),
    }
    for name, frame in frames.items():
        (tmp_path / name).mkdir()
        assert files_of(spark, frame, tmp_path / name) is None


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY"),
        ("spark.sql.parquet.fieldId.read.enabled", "true"),
        ("spark.sql.files.ignoreCorruptFiles", "true"),
        ("spark.sql.files.ignoreMissingFiles", "true"),
    ],
)
def test_settings_that_change_rows_leave_files_to_spark(
    spark: SparkSession, folder: Path, tmp_path: Path, setting: str, value: str
) -> None:
    before = spark.conf.get(setting)
    spark.conf.set(setting, value)
    try:
        assert files_of(spark, read(spark, folder), tmp_path) is None
    finally:
        spark.conf.set(setting, before or "")


def test_columns_of_directories_are_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in" / "price=5"
    folder.mkdir(parents=True)
    pq.write_table(table().drop_columns(["price"]), folder / "a.parquet")
    assert files_of(spark, read(spark, tmp_path / "in"), tmp_path) is None


def test_the_plan_of_another_batch_or_query_is_not_taken(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    assert files_of(spark, read(spark, folder), tmp_path, batch=1) is None
    assert scanned_files(spark, spark.range(1), "no such query", 0) is None


def test_only_files_with_the_streams_own_columns_are_read_without_spark(tmp_path: Path) -> None:
    good, other = tmp_path / "good.parquet", tmp_path / "other.parquet"
    pq.write_table(table(5, more=pa.array(["x"] * 5)), good)
    assert split(str(good)) == [[FileSplit(str(good), "parquet", 0, 5)]]
    assert split() == []
    naive = table(time=pa.array(range(3), pa.timestamp("us")))
    variants = {
        "missing": table().drop_columns(["price"]),
        "narrower": table(id=pa.array(range(3), pa.int32())),
        "another case": table().rename_columns(["ID", "price", "time"]),
        "no instant": naive,
        "with bad rows": table().replace_schema_metadata({MARKED: b"1"}),
        "twice": pa.table([*table().columns, range(3)], names=["id", "price", "time", "ID"]),
        "of an old Spark": table().replace_schema_metadata({"org.apache.spark.version": "2.4.8"}),
        "by another calendar": table().replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}),
    }
    for name, rows in variants.items():
        pq.write_table(rows, other)
        assert split(str(good), str(other)) is None, name
    pq.write_table(naive, other, use_deprecated_int96_timestamps=True)
    assert split(str(other)) is None, "Spark's old timestamps reach further than Arrow's"
    other.write_bytes(b"PAR1 no more")
    assert split(str(other)) is None
    other.unlink()
    assert split(str(other)) is None


def test_a_frame_without_a_column_of_the_stream_is_left_to_spark(tmp_path: Path) -> None:
    """As one that is handed in again after a restart."""
    pq.write_table(table(), tmp_path / "a.parquet")
    assert split(str(tmp_path / "a.parquet")) is not None
    assert split(str(tmp_path / "a.parquet"), columns=("id", "time")) is None


def test_many_rows_are_many_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "TASK_ROWS", 200_000)
    pq.write_table(table(1_000_000), tmp_path / "a.parquet", row_group_size=100_000)
    assert len(split(str(tmp_path / "a.parquet")) or ()) == 5


def test_summaries_of_other_files_are_no_files(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    for name in ("_metadata", "_common_metadata", "_metadata_of_more.parquet"):
        pq.write_table(table(), folder / name)
    found = files_of(spark, read(spark, folder), tmp_path)
    assert sorted(found or ()) == sorted(str(path) for path in folder.iterdir() if path.name[0] != "_")
