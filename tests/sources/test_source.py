"""Sources on Spark: which files and rows reach a micro-batch, again after a restart, and what is refused."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from millstream.config import load_stream_file
from millstream.errors import SourceError
from millstream.sources.generators import MICROS, AStreamGenerator, GamingGenerator
from millstream.sources.rows_due import rows_due
from millstream.sources.source import (
    CsvFiles,
    DataFrameSource,
    Generator,
    JsonFiles,
    ParquetFiles,
    Source,
    source_from,
)
from millstream.sources.splits import FileSplit, read_split

Batches = list[tuple[int, list[tuple[Any, ...]]]]
# Starting the reader's process can take long on a busy machine.
PATIENCE = 60.0


def run(df: DataFrame, checkpoint: Path, enough: Callable[[Batches], bool] | None = None) -> Batches:
    """The descriptor rows of the micro-batches: all that are there, or until there are enough."""
    batches: Batches = []

    def keep(batch: DataFrame, number: int) -> None:
        batches.append((number, [tuple(row) for row in batch.collect()]))

    writer = df.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    if enough is None:
        writer.trigger(availableNow=True).start().awaitTermination(int(PATIENCE))
        return batches
    query = writer.start()
    end = time.monotonic() + PATIENCE
    while not enough(batches) and time.monotonic() < end:
        assert query.exception() is None
        time.sleep(0.01)
    query.stop()
    return batches


def read_all(source: Source, batches: Batches, spark: SparkSession) -> list[dict[str, object]]:
    fields = source.fields(spark)
    rows: list[dict[str, object]] = []
    for _, descriptors in batches:
        for part in source.splits(descriptors, 2):
            for split in part:
                for chunk in read_split(split, fields, [field.name for field in fields]):
                    rows += chunk.table.to_pylist()
    return rows


def test_parquet_directory(spark: SparkSession, tmp_path: Path) -> None:
    """Names that need care are read, hidden ones are not, files are listed and not opened, and each comes once."""
    folder = tmp_path / "in %41 put"
    (folder / "sub").mkdir(parents=True)
    for i, name in enumerate(["a b.parquet", "c%20d.parquet", "sub/e.parquet"]):
        pq.write_table(pa.table({"x": [i]}), folder / name)
    for name in ("_hidden.parquet", ".hidden.parquet", "notes.txt"):
        (folder / name).write_text("no input")
    source = ParquetFiles(str(folder), max_files_per_batch=2)
    first = run(source.dataframe(spark), tmp_path / "checkpoint")
    assert [len(rows) for _, rows in first] == [2, 1]
    assert sorted(row["x"] for row in read_all(source, first, spark)) == [0, 1, 2]  # type: ignore[type-var]
    with open(folder / "huge.parquet", "wb") as huge:
        # Over the size that Spark's binaryFile format would read.
        huge.truncate(3 << 30)
    second = run(source_from(source.describe()).dataframe(spark), tmp_path / "checkpoint")
    assert second == [(2, [(f"file:{folder}/huge.parquet", 3 << 30)])]
    ((split,),) = source.splits(second[0][1], 2)
    assert split == FileSplit(f"{folder}/huge.parquet", "parquet")
    with pytest.raises(SourceError, match=r"huge\.parquet"):
        list(read_split(split, source.fields(spark), ["x"]))


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [(CsvFiles, "a.csv", "x,y\n1,a\n2,b\n"), (JsonFiles, "a.jsonl", '{"x": 1, "y": "a"}\n{"x": 2, "y": "b"}\n')],
)
def test_text_directories(spark: SparkSession, tmp_path: Path, kind: type[CsvFiles], name: str, text: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_text(text)
    source = kind(tmp_path / "in")  # type: ignore[arg-type]
    batches = run(source.dataframe(spark), tmp_path / "checkpoint")
    assert read_all(source, batches, spark) == [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]


def test_csv_nulls_are_sparks(spark: SparkSession, tmp_path: Path) -> None:
    """What the two readers make of the same file."""
    lines = [
        '"",,1,1.255,TRUE',
        "x,2026-01-01 00:00:00.1234567,+5,1e1,true",
        "y,2026-01-01T01:00:00+02:00,7,2,false",
        "",
        "z,2026-01-01,,,",
    ]
    (tmp_path / "a.csv").write_text("\n".join(["s,t,i,p,b", *lines]))
    ddl = "s STRING, t TIMESTAMP, i INT, p DECIMAL(10,2), b BOOLEAN"
    theirs = spark.read.schema(ddl).option("header", "true").csv(str(tmp_path / "a.csv")).toArrow().to_pylist()
    source = CsvFiles(str(tmp_path), schema=ddl)
    ours = read_all(source, [(0, [(str(tmp_path / "a.csv"), os.path.getsize(tmp_path / "a.csv"))])], spark)
    assert ours == theirs


def test_fields_of_directories(spark: SparkSession, tmp_path: Path) -> None:
    assert [f.name for f in ParquetFiles(str(tmp_path), schema="a INT, t TIMESTAMP").fields(spark)] == ["a", "t"]
    with pytest.raises(SourceError, match="no parquet file in") as caught:
        ParquetFiles(str(tmp_path)).fields(spark)
    assert "schema" in (caught.value.hint or "")
    with pytest.raises(SourceError, match="does not exist"):
        CsvFiles(str(tmp_path / "none")).dataframe(spark)
    with pytest.raises(SourceError, match="bad schema"):
        JsonFiles(str(tmp_path), schema="a INTS")
    with pytest.raises(SourceError, match="max_files_per_batch"):
        JsonFiles(str(tmp_path), max_files_per_batch=0)


def test_unreadable_files_keep_the_others(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_text("broken")
    rows = [(f"file:{tmp_path}/{name}", 1) for name in ("a.parquet", "b.parquet")]
    splits = {split.path: split.rows for part in ParquetFiles(str(tmp_path)).splits(rows, 2) for split in part}  # type: ignore[union-attr]
    assert splits == {f"{tmp_path}/a.parquet": 1, f"{tmp_path}/b.parquet": None}


def test_a_generator_continues_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    source = Generator(AStreamGenerator(seed=1), rows=1_000, max_rows_per_batch=300)
    first = run(source.dataframe(spark), tmp_path / "checkpoint", lambda batches: len(batches) >= 2)
    again = source_from(source.describe())
    assert again == source
    second = run(
        again.dataframe(spark), tmp_path / "checkpoint", lambda batches: any(b[1][0][1] == 1_000 for b in batches)
    )
    ranges = {number: rows for number, rows in first + second}
    assert [ranges[k] for k in sorted(ranges)] == [[(0, 300)], [(300, 600)], [(600, 900)], [(900, 1_000)]]
    assert all(ranges[number] == rows for number, rows in first)


def test_rows_due() -> None:
    pace = {"limit": 50, "rate": 10, "began": 5 * MICROS}
    assert rows_due(pace, 0, 5 * MICROS) == 0
    assert rows_due(pace, 0, 7 * MICROS + 99_999) == 20
    assert rows_due(pace, 0, 3600 * MICROS) == 50
    assert rows_due(pace | {"rows": 30}, 20, 3600 * MICROS) == 30
    assert rows_due({"limit": 50}, 100, 0) == 150


def test_live_generator_happens_now() -> None:
    before = time.time() * MICROS - MICROS
    source = Generator.live(GamingGenerator, rate=1_000, table="ads", max_rows_per_batch=10)
    assert before < source.generator.start == source.began <= time.time() * MICROS
    assert source.max_rows_per_batch == 10
    assert source_from(source.describe()) == source


def test_sources_of_a_stream_file(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "game.yaml").write_text(
        "streams:\n"
        "  files: {source: csv, path: in, time: t, schema: 't TIMESTAMP', max_files_per_batch: 3}\n"
        "  ads: {source: gaming, table: ads, rate: 10, rows: 100, max_rows_per_batch: 7}\n"
    )
    files, ads = (source_from(dict(stream.source)) for stream in load_stream_file(tmp_path / "game.yaml").streams)
    assert files == CsvFiles(str(tmp_path / "in"), "t TIMESTAMP", 3)
    assert isinstance(ads, Generator)
    assert (ads.generator.rate, ads.rows, ads.max_rows_per_batch) == (10, 100, 7)
    assert ads.generator.start == ads.began
    assert [field.name for field in ads.fields(spark)] == ["user_id", "gem_pack", "time"]


def test_dataframes(spark: SparkSession) -> None:
    df = spark.readStream.format("rate").load()
    source = DataFrameSource(df)
    assert not source.columnar
    assert [(f.name, str(f.type)) for f in source.fields(spark)] == [("timestamp", "timestamp"), ("value", "long")]
    assert source.dataframe(spark) is df
    with pytest.raises(SourceError, match="not a streaming one"):
        DataFrameSource(spark.range(1))
    with pytest.raises(SourceError, match="column 'a'"):
        DataFrameSource(df.selectExpr("array(value) AS a")).fields(spark)
    with pytest.raises(SourceError, match="cannot be built again"):
        source_from(source.describe())


def test_unknown_source() -> None:
    with pytest.raises(SourceError, match="unknown source 'parkett'") as caught:
        source_from({"source": "parkett"})
    assert "'parquet'" in (caught.value.hint or "")
