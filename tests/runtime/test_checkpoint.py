"""Spark's checkpoint after a power loss: what a planned batch rests on is there, and what is left stops nobody."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from millstream.runtime import checkpoint as module
from millstream.runtime.checkpoint import mend_checkpoint, read_offsets, sync_batch

HEAD = 'v1\n{"batchWatermarkMs":0}\n'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Three batches of a source of files, the last not yet done."""
    root = tmp_path / "checkpoint"
    for folder in ("offsets", "commits", "sources/0"):
        (root / folder).mkdir(parents=True)
    (root / "metadata").write_text('{"id":"1"}')
    for batch in range(3):
        (root / "sources" / "0" / str(batch)).write_text("v1\n{}")
        (root / "offsets" / str(batch)).write_text(f'{HEAD}{{"logOffset":{batch}}}')
        os.utime(root / "sources" / "0" / str(batch), (100 * batch, 100 * batch))
        os.utime(root / "offsets" / str(batch), (100 * batch + 1, 100 * batch + 1))
    for batch in range(2):
        (root / "commits" / str(batch)).write_text("v1\n{}")
    return root


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_a_whole_checkpoint_is_left_as_it_is(checkpoint: Path) -> None:
    before = files(checkpoint)
    mend_checkpoint(checkpoint)
    assert files(checkpoint) == before
    assert read_offsets(checkpoint, 2) == '{"logOffset":2}'


def test_what_spark_never_finished_is_removed(checkpoint: Path) -> None:
    before = files(checkpoint)
    for draft in ("offsets/.3.uuid.tmp", "sources/0/.3.uuid.tmp", "offsets/.3.tmp.crc"):
        (checkpoint / draft).write_text("draft")
    (checkpoint / "commits" / "2").touch()
    (checkpoint / "offsets" / "3").touch()
    (checkpoint / "sources" / "0" / "3").touch()
    mend_checkpoint(checkpoint)
    assert files(checkpoint) == before


@pytest.mark.parametrize(
    "left", ["", "\0" * 30, "v1\n\0\0\0", "v1", "v1\n{", 'v1\n{"a":1}\n{"logOffset":', "v1\n{\xff}"]
)
@pytest.mark.parametrize("name", ["offsets/2", "commits/1"])
def test_torn_files_are_as_good_as_gone(checkpoint: Path, name: str, left: str) -> None:
    before = files(checkpoint)
    (checkpoint / name).write_bytes(left.encode("latin-1"))
    mend_checkpoint(checkpoint)
    assert files(checkpoint) == [file for file in before if file != name]


@pytest.mark.parametrize("offsets", ["5", '{"0":{"1":2}}', "-", '[1,2]\n{"logOffset":2}'])
def test_offsets_of_any_source_are_whole(checkpoint: Path, offsets: str) -> None:
    (checkpoint / "offsets" / "2").write_text(HEAD + offsets)
    (checkpoint / "sources" / "1").mkdir()
    (checkpoint / "sources" / "1" / "2").write_text("v1\n{}")
    before = files(checkpoint)
    mend_checkpoint(checkpoint)
    assert files(checkpoint) == before


@pytest.mark.parametrize("how", ["empty", "gone"])
def test_offsets_without_the_files_they_are_about_are_planned_anew(checkpoint: Path, how: str) -> None:
    seen = checkpoint / "sources" / "0" / "2"
    if how == "empty":
        seen.write_text("")
    else:
        seen.unlink()
    mend_checkpoint(checkpoint)
    left = files(checkpoint)
    assert "offsets/2" not in left
    assert {"offsets/1", "sources/0/1", "commits/1"} <= set(left)


def test_compacted_logs_count_and_other_sources_have_none(checkpoint: Path) -> None:
    (checkpoint / "sources" / "0" / "2").rename(checkpoint / "sources" / "0" / "2.compact")
    (checkpoint / "offsets" / "3").write_text(f'{HEAD}{{"logOffset":2}}\n{{"topic":{{"0":17}}}}')
    before = files(checkpoint)
    mend_checkpoint(checkpoint)
    assert files(checkpoint) == before


def test_the_first_batch_is_synced_with_its_folders_and_later_ones_with_what_is_new(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    known = module.sync_path

    def sync(path: str) -> None:
        known(path)
        synced.append(os.path.relpath(path, checkpoint))

    monkeypatch.setattr(module, "sync_path", sync)
    sync_batch(checkpoint, 2)
    assert synced == ["offsets/2", "offsets", "sources/0/2", "sources/0"]
    synced.clear()
    # Spark was ended between a source's log and the offsets, and has found other files since.
    (checkpoint / "sources" / "0" / "3").write_text("v1\n{}")
    sync_batch(checkpoint, 2)
    assert sorted(synced) == ["offsets", "offsets/2", "sources/0", "sources/0/2", "sources/0/3"]
    synced.clear()
    (checkpoint / "sources" / "0" / "10").write_text("v1")
    sync_batch(checkpoint, 0)
    assert {"offsets/0", "sources/0/10", "metadata", "sources", ".", ".."} <= set(synced)


REPEATED, PLANNED_ANEW = [(1, 2), (2, 3)], [(1, 5)]
CASES = {
    "commits/1": REPEATED,
    "offsets/1": PLANNED_ANEW,
    "sources/0/1": PLANNED_ANEW,
    "offsets/1 sources/0/1": PLANNED_ANEW,
    "metadata": [(2, 3)],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lost", "left"), [*((lost, "") for lost in CASES), ("commits/1", "v1\n{"), ("offsets/1", "\0\0\0")]
)
def test_spark_goes_on_with_what_a_power_loss_has_torn(
    spark: SparkSession, tmp_path: Path, lost: str, left: str
) -> None:
    """No commit is there of a batch that was never planned."""
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()
    seen: list[tuple[int, int]] = []

    def run() -> None:
        mend_checkpoint(checkpoint)
        frame = spark.readStream.schema("id BIGINT").parquet(str(folder))
        writer = frame.writeStream.foreachBatch(lambda rows, batch: seen.append((batch, rows.count())))
        writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()

    for number in range(2):
        pq.write_table(pa.table({"id": list(range(number + 1))}), folder / f"{number}.parquet")
        run()
    assert seen == [(0, 1), (1, 2)]
    for name in lost.split():
        (checkpoint / name).write_text(left)
    if CASES[lost] == PLANNED_ANEW:
        (checkpoint / "commits" / "1").unlink()
    pq.write_table(pa.table({"id": [1, 2, 3]}), folder / "2.parquet")
    run()
    assert seen[2:] == CASES[lost]
