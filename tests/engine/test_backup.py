"""Backups of a home whose engine runs: they open, go on, and give the right answers."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream import Engine, ParquetFiles
from millstream.catalog.metastore import Metastore
from millstream.config import Settings
from millstream.engine import backup
from millstream.engine.backup import back_up, restore
from millstream.errors import EngineError
from tests.catalog.builders import STREAM, answer_file, bucket, bucket_file, create, plan, result, run, stream
from tests.support.postgres import Server

from .inputs import SCHEMA, drop_file, purchases
from .test_engine import REVENUE, expected, totals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 10


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_a_backup_of_a_running_engine_goes_on(
    spark: SparkSession, home: Path, tmp_path: Path, backend: str, request: pytest.FixtureRequest
) -> None:
    """Files keep coming, batches commit, windows fire and buckets are cleaned up while the copy is made."""
    server: Server | None = request.getfixturevalue("postgres") if backend == "postgres" else None
    url = None if server is None else server.empty_database()
    folder, copy = tmp_path / "in", tmp_path / "copy"

    def feed() -> None:
        for number in range(FILES):
            drop_file(folder, f"f{number:02d}", purchases(number * 25, 25))
            time.sleep(0.05)  # Spark takes files in the order of their times

    folder.mkdir()
    feeding = threading.Thread(target=feed)
    with Engine(home=home, spark=spark, settings=Settings(metastore_url=url)) as engine:
        files = ParquetFiles(str(folder), schema=SCHEMA, max_files_per_batch=1)
        engine.create_stream("purchases", files, time="time", lateness="1 second")
        engine.create_query(REVENUE, id="revenue")
        feeding.start()
        while engine.stream("purchases").batches < 3:
            time.sleep(0.05)
        back_up(home, copy, url)
        feeding.join()
        engine.await_idle()
        whole = totals(engine, "revenue")
    assert whole == expected(0, FILES * 25 // 10 - 1 - 1)

    # A backup is a home; one whose metastore was in PostgreSQL can return there.
    place = None
    if server is not None:
        shutil.rmtree(home)
        place = server.new_database()
        restore(copy, home, place)
        copy = home
    with Engine(home=copy, spark=spark, settings=Settings(metastore_url=place)) as engine:
        engine.await_idle()
        assert totals(engine, "revenue") == whole


# Without Spark


@pytest.fixture
def store(home: Path) -> Metastore:
    metastore = Metastore.open(f"sqlite:///{home / 'metastore.db'}", holder="test")
    metastore.add_stream(stream())
    metastore.seal(create("q"))
    return metastore


def put(home: Path, path: str, text: str = "data") -> str:
    (home / path).parent.mkdir(parents=True, exist_ok=True)
    (home / path).write_text(text)
    return path


def checkpoint(home: Path, offsets: int, commits: int) -> None:
    for folder, last in (("offsets", offsets), ("commits", commits)):
        for batch in range(last + 1):
            put(home, f"checkpoints/{STREAM}/{folder}/{batch}", f"{folder} {batch}")
            put(home, f"checkpoints/{STREAM}/{folder}/.{batch}.crc")


def names(home: Path) -> set[str]:
    return {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}


#  metastore    planned 3, committed 2
#  checkpoint   offsets to 5, commits to 4: it went on while the copy was made
def test_a_copy_has_what_its_metastore_names_and_no_more(store: Metastore, home: Path, tmp_path: Path) -> None:
    files = (bucket_file(put(home, "buckets/purchases/b1"), 0, bucket(0)),)
    run(store, 0, max_time=10, files=files, answers=(answer_file(put(home, "answers/a1")),))
    for batch in (1, 2):
        run(store, batch, max_time=10 + batch)
    plan(store, 3)
    put(home, "buckets/purchases/orphan")
    put(home, "engine.json")
    checkpoint(home, 5, 4)
    put(home, f"checkpoints/{STREAM}/metadata")
    put(home, f"checkpoints/{STREAM}/offsets/.6.abc.tmp")
    made = back_up(home, tmp_path / "copy")
    store.close()
    assert (made.files, made.streams) == (2, 1)
    numbered = {
        f"checkpoints/{STREAM}/{f}/{b}" for f, last in (("offsets", 3), ("commits", 2)) for b in range(last + 1)
    }
    sums = {f"{path.rpartition('/')[0]}/.{path.rpartition('/')[2]}.crc" for path in numbered}
    data = {"buckets/purchases/b1", "answers/a1", "metastore.db", f"checkpoints/{STREAM}/metadata"}
    assert names(tmp_path / "copy") - {"metastore.db-wal", "metastore.db-shm"} == numbered | sums | data

    copy = Metastore.open(f"sqlite:///{tmp_path}/copy/metastore.db", holder="copy")
    assert [query.id for query in copy.queries()] == ["q"]
    assert copy.plan_batch(STREAM, 3, "offsets 3", 0)[1] is False
    copy.close()


def test_a_file_that_goes_meanwhile_is_looked_for_in_the_next_state(
    store: Metastore, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(store, 0, max_time=10, files=(bucket_file(put(home, "buckets/purchases/b1"), 0, bucket(0)),))
    checkpoint(home, 1, 0)
    copying = backup.copy_metastore

    def copy_then_commit(source: str, target: str) -> object:
        copied = copying(source, target)
        if store.streams()[0].committed == 0:
            store.drop_files(["buckets/purchases/b1"])
            (home / "buckets/purchases/b1").unlink()
            batch = plan(store, 1)
            file = bucket_file(put(home, "buckets/purchases/b2"), 1, bucket(0))
            store.commit_batch(batch, result(20, files=(file,)))
        return copied

    monkeypatch.setattr(backup, "copy_metastore", copy_then_commit)
    back_up(home, tmp_path / "copy")
    store.close()
    found = names(tmp_path / "copy")
    assert "buckets/purchases/b2" in found
    assert "buckets/purchases/b1" not in found
    assert f"checkpoints/{STREAM}/offsets/1" in found


def test_a_home_that_lacks_a_file_is_no_source_of_backups(store: Metastore, home: Path, tmp_path: Path) -> None:
    run(store, 0, max_time=10, files=(bucket_file("buckets/purchases/lost", 0, bucket(0)),))
    with pytest.raises(EngineError, match="buckets/purchases/lost") as error:
        back_up(home, tmp_path / "copy")
    assert error.value.code == "BAD_FILE"
    store.close()


def test_what_is_there_is_not_overwritten(store: Metastore, home: Path, tmp_path: Path) -> None:
    put(tmp_path, "copy/letter")
    for attempt in (lambda: back_up(home, tmp_path / "copy"), lambda: restore(home, tmp_path / "copy")):
        with pytest.raises(EngineError, match="not empty"):
            attempt()
    back_up(home, tmp_path / "first")
    taken = f"sqlite:///{home / 'metastore.db'}"
    with pytest.raises(EngineError, match="there is a metastore"):
        restore(tmp_path / "first", tmp_path / "second", taken)
    store.close()


def test_a_place_without_a_metastore_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="no metastore"):
        back_up(tmp_path / "nowhere", tmp_path / "copy")
    with pytest.raises(EngineError, match="no backup"):
        restore(tmp_path / "nowhere", tmp_path / "copy")
    assert not (tmp_path / "nowhere").exists()


def test_a_backup_that_lacks_a_file_is_refused(store: Metastore, home: Path, tmp_path: Path) -> None:
    run(store, 0, max_time=10, files=(bucket_file(put(home, "buckets/purchases/b1"), 0, bucket(0)),))
    checkpoint(home, 0, 0)
    back_up(home, tmp_path / "copy")
    store.close()
    (tmp_path / "copy/buckets/purchases/b1").unlink()
    with pytest.raises(EngineError, match="lacks the file 'buckets/purchases/b1'"):
        restore(tmp_path / "copy", tmp_path / "again")
