"""Backups of a home whose engine runs: they open, go on, and give the right answers."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream import Engine, ParquetFiles
from millstream.catalog.metastore import Metastore
from millstream.config import Settings
from millstream.crashpoints import Switch, observe
from millstream.engine import backup
from millstream.engine.backup import back_up, restore
from millstream.errors import EngineError
from millstream.runtime.home import Home
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


def test_a_copy_that_fails_is_taken_away_again(store: Metastore, home: Path, tmp_path: Path) -> None:
    checkpoint(home, 0, 0)
    run(store, 0, max_time=10, files=(bucket_file("buckets/purchases/lost", 0, bucket(0)),))
    with pytest.raises(EngineError, match="has lost the file"):
        back_up(home, tmp_path / "new" / "copy")
    assert not (tmp_path / "new" / "copy").exists()
    put(home, "buckets/purchases/lost")
    back_up(home, tmp_path / "new" / "copy")
    store.close()
    (tmp_path / "new/copy/buckets/purchases/lost").unlink()
    with pytest.raises(EngineError, match="lacks the file"):
        restore(tmp_path / "new" / "copy", tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_places_that_no_copy_can_go_to_are_named(store: Metastore, home: Path, tmp_path: Path) -> None:
    put(tmp_path, "file")
    for target, words in ((home / "inside", "is inside"), (tmp_path / "file", "is a file")):
        with pytest.raises(EngineError, match=words) as refused:
            back_up(home, target)
        assert refused.value.code == "BAD_FILE"
    for target in (tmp_path / "file" / "below", Path("/proc/millstream")):
        with pytest.raises(EngineError, match="cannot copy to"):
            back_up(home, target)
    assert not (home / "inside").exists()
    store.close()


def test_a_place_without_a_metastore_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="no metastore in"):
        back_up(tmp_path / "nowhere", tmp_path / "copy")
    with pytest.raises(EngineError, match=r"no metastore at sqlite:////nowhere\.db"):
        back_up(tmp_path / "nowhere", tmp_path / "copy", "sqlite:////nowhere.db")
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


def test_planned_batches_need_their_checkpoint(store: Metastore, home: Path, tmp_path: Path) -> None:
    back_up(home, tmp_path / "new")
    run(store, 0, max_time=10)
    with pytest.raises(EngineError, match="the checkpoint of the stream 'purchases' is missing") as error:
        back_up(home, tmp_path / "without")
    assert (error.value.code, error.value.hint) == ("BAD_FILE", "restore an older backup")
    checkpoint(home, 0, 0)
    back_up(home, tmp_path / "copy")
    store.close()
    shutil.rmtree(tmp_path / "copy/checkpoints")
    with pytest.raises(EngineError, match="the checkpoint of the stream 'purchases' is missing"):
        restore(tmp_path / "copy", tmp_path / "again")
    assert not (tmp_path / "again").exists()


#  attempt 1   copies a1, which is damaged; then b1 has gone
#  meanwhile   a1 is replaced by a whole file, b1 is forgotten
#  attempt 2   copies a1 again
def test_a_file_that_is_replaced_meanwhile_is_copied_again(
    store: Metastore, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = (bucket_file("buckets/purchases/b1", 0, bucket(0)),)
    run(store, 0, max_time=10, files=files, answers=(answer_file(put(home, "answers/a1", "torn!")),))
    put(home, "answers/a2", "whole")
    checkpoint(home, 0, 0)
    copying = backup.copy_metastore

    def mend_then_copy(source: str, target: str) -> object:
        if (tmp_path / "copy/answers/a1").exists():
            Home(str(home)).exchange("answers/a1", "answers/a2")
            store.drop_files(["buckets/purchases/b1"])
        return copying(source, target)

    monkeypatch.setattr(backup, "copy_metastore", mend_then_copy)
    back_up(home, tmp_path / "copy")
    store.close()
    assert (tmp_path / "copy/answers/a1").read_text() == "whole"


def test_all_is_on_disk_before_the_metastore_has_its_name(
    store: Metastore, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(store, 0, max_time=10, files=(bucket_file(put(home, "buckets/purchases/b1"), 0, bucket(0)),))
    store.close()
    checkpoint(home, 0, 0)
    events: list[str] = []
    sync, replace = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        events.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    def renamed(source: str, target: str) -> None:
        events.append(f"renamed {target}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", renamed)
    copy = tmp_path / "new" / "copy"
    back_up(home, copy)
    assert events[:3] == [str(copy), str(copy.parent), str(tmp_path)]
    place = events.index(f"renamed {copy}/metastore.db")
    last = max(number for number, event in enumerate(events[:place]) if event.startswith("renamed "))
    there = {str(path) for path in (copy, *copy.rglob("*"))} - {f"{copy}/metastore.db"}
    assert there | {f"{copy}/metastore.db.draft"} == set(events[last + 1 : place])
    assert events[place + 1 :] == [str(copy), str(copy.parent)]


def test_every_crash_point_of_a_backup_is_registered(
    store: Metastore, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(store, 0, max_time=10, files=(bucket_file("buckets/purchases/lost", 0, bucket(0)),))
    monkeypatch.setattr(backup, "MOST_ATTEMPTS", 2)
    observe(Switch("fire.done"))
    try:
        with pytest.raises(EngineError, match="has lost the file"):
            back_up(home, tmp_path / "copy")
    finally:
        observe(None)
    store.close()
