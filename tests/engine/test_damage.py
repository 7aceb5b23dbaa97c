"""Damaged files: rebuilt where the source still has the rows, answered as incomplete where not. No Spark."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.engine.repair import Mended
from millstream.errors import DamagedFile, EngineError
from millstream.model.plan import BatchResult, Damage
from millstream.model.query import WindowSpec
from millstream.runtime import join_fire
from millstream.runtime.disk import disk_fault
from millstream.runtime.fire import kept
from millstream.runtime.home import Home
from millstream.sources import parquet

from .inprocess import COPIES, PURCHASES, SECOND, Small, count, cut, expected, flip, lose, pairs, rows, sums
from .inputs import drop_file, purchases

Damager = Callable[[Path, str], None]
DAMAGES: list[Damager] = [flip, cut, lose]


pytestmark = pytest.mark.usefixtures("fresh_worker")


@pytest.fixture
def small(home: Path, tmp_path: Path) -> Iterator[Small]:
    one = Small(home, tmp_path / "in", tasks=2)
    yield one
    one.close()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_bucket_file_is_rebuilt_from_its_source(small: Small, home: Path, damage: Damager) -> None:
    small.create("all", sums())
    small.create("high", sums(above=10))
    for number in range(2):
        small.batch(number)
    whole = {path: (home / path).read_bytes() for path in small.paths("buckets")}
    assert len(whole) == 4, "two tasks in each of two batches"
    damage(home, next(iter(whole)))
    # Rows up to 4.9 s: the windows up to 4 s have closed.
    small.core.fire_all()
    assert small.totals("all") == expected(0, 2)
    assert small.core.metastore.incomplete() == {}
    assert small.core.repair.mended.rebuilt == 1
    assert small.spark.ingested == [0, 1, 0]
    left = {path: (home / path).read_bytes() for path in small.paths("buckets")}
    assert left.items() <= whole.items(), "byte for byte what it was"
    assert not small.orphans()


@pytest.mark.parametrize("damage", DAMAGES)
def test_without_its_source_the_windows_are_answered_as_incomplete(small: Small, home: Path, damage: Damager) -> None:
    small.create("all", sums())
    small.create("slow", sums(size=6))
    for number in range(3):
        small.batch(number)
    files = [file for file in small.core.metastore.buckets(PURCHASES) if file.batch == 1]
    first = min(files, key=lambda file: max(bucket.end for bucket in file.buckets)).path
    damage(home, first)
    small.file(1).unlink()
    small.core.fire_all()
    # Batch 1 has the rows 25 to 49; its first task read the rows 25 to 36.
    answers = {int(a.window_start.timestamp()): a for a in small.answers("all") if a.window_start}
    assert set(answers) == {0, 2, 4}
    assert answers[0].incomplete is None
    assert answers[4].incomplete is None
    assert first in (answers[2].incomplete or "")
    assert "the source gives 0 of the 25 rows of batch 1" in (answers[2].incomplete or "")
    left = sum(row["total"] for row in rows(answers[2].table))
    assert left == sum([*range(20, 25), *range(37, 40)])
    assert small.core.metastore.incomplete() == {"all": 1, "slow": 1}
    (slow,) = small.answers("slow")
    assert slow.incomplete == answers[2].incomplete
    assert sum(row["total"] for row in rows(slow.table)) == sum(range(60)) - sum(range(25, 37))


def test_a_window_of_which_nothing_is_left_is_answered_empty(small: Small, home: Path) -> None:
    small.create("all", sums())
    small.batch(0)
    for path in small.paths("buckets"):
        lose(home, path)
    small.file(0).unlink()
    small.core.fire_all()
    (answer,) = small.answers("all")
    assert answer.incomplete is not None
    assert answer.table.num_rows == 0
    assert answer.table.column_names == ["gem_pack", "total"]
    assert small.core.metastore.query("all").windows == 1


@pytest.mark.parametrize("task", [0, 1])
def test_a_file_that_is_rebuilt_with_other_bytes_takes_its_place_in_the_metastore(
    small: Small, home: Path, monkeypatch: pytest.MonkeyPatch, task: int
) -> None:
    """As after an upgrade that writes buckets differently."""
    small.create("all", sums())
    for number in range(2):
        small.batch(number)
    files = [file for file in small.core.metastore.buckets(PURCHASES) if file.batch == 0]
    lose(home, sorted(files, key=lambda file: len(file.buckets))[task].path)
    monkeypatch.setattr("millstream.kernels.bucket._narrow", pa.array)
    # A cell for each combination where only those with rows had one.
    monkeypatch.setattr("millstream.kernels.ingest.FULL", 0.0)
    monkeypatch.setattr("millstream.engine.repair.WRITER", "a later version")
    small.core.fire_all()
    assert small.totals("all") == expected(0, 2)
    assert small.core.metastore.incomplete() == {}
    assert small.core.repair.mended == Mended(rebuilt=1)
    assert not small.orphans()


def test_a_source_whose_file_was_exchanged_is_not_trusted(small: Small, home: Path) -> None:
    small.create("all", sums())
    small.batch(0)
    for path in small.paths("buckets"):
        cut(home, path)
    small.file(0).unlink()
    # The same times and packs, so that buckets and cells are the same, with other prices.
    table = purchases(0, small.ROWS)
    prices = pa.array([price + 1 for price in table.column("price").to_pylist()], pa.int64())
    drop_file(small.folder, "f00", table.set_column(1, "price", prices))
    parquet._open.clear()  # else a reader of this process still has the first file open
    small.core.fire_all()
    (answer,) = small.answers("all")
    assert "gives something else when it is ingested again" in (answer.incomplete or "")
    assert sum(row["total"] for row in rows(answer.table)) == sum(range(12, 20)), "what the second task kept"
    assert not small.orphans()


def test_what_is_lost_stays_lost_after_a_restart(home: Path, tmp_path: Path) -> None:
    small = Small(home, tmp_path / "in")
    small.create("long", sums(size=4, slide=2))
    small.create("all", sums())
    small.batch(0)
    (path,) = small.paths("buckets")
    lose(home, path)
    small.file(0).unlink()
    small.core.fire_all()
    small.batch(1)
    small.close()
    again = Small(home, tmp_path / "in")
    again.core.fire_all()
    marks = [(a.window_end.timestamp(), a.incomplete is not None) for a in again.answers("long") if a.window_end]
    assert marks == [(2, True), (4, True)]
    # Batch 1 begins in the middle of the window that ends at 4 s, whose first half is lost.
    assert [(a.window_end.timestamp(), a.incomplete is not None) for a in again.answers("all") if a.window_end] == [
        (2, True),
        (4, True),
    ]
    assert again.spark.ingested == [], "nobody tries again to rebuild it"
    again.close()


def test_other_groups_fire_while_one_cannot_be_mended(
    small: Small, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.create("all", sums())
    small.create("count", count())
    small.batch(0)
    file = min(small.core.metastore.buckets(PURCHASES), key=lambda file: file.buckets[0].start)
    group = small.core.metastore.query("all").group
    flip(home, file.path, next(b.offset + b.length // 2 for b in file.buckets if b.group == group))

    def broken(*_: object) -> None:
        raise RuntimeError("Spark is busy")

    monkeypatch.setattr(small.core.repair, "_ingest", broken)
    pipeline = small.core.pipelines[PURCHASES]
    for _ in range(2):
        with pytest.raises(RuntimeError, match="busy"):
            small.core.firing.fire(pipeline)
        assert small.answers("all") == []
        assert [rows(a.table) for a in small.answers("count")] == [[{"n": 20}]]
    # The third failure is taken for final.
    small.core.fire_all()
    assert [a.incomplete is not None for a in small.answers("all")] == [True]
    assert [(rows(a.table), a.incomplete) for a in small.answers("count")] == [([{"n": 20}], None)]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_compacted_file_is_rebuilt_from_all_its_batches(small: Small, home: Path, damage: Damager) -> None:
    small.create("long", sums(size=8, slide=4))
    small.create("all", sums(size=4))
    for number in range(2):
        small.batch(number)
    small.core.fire_all()
    (compacted,) = [path for path in small.paths("buckets") if "compact" in path]
    small.core.tidy(10**15, 10**15)
    damage(home, compacted)
    kept.clear()
    for number in (2, 3):
        small.batch(number)
    small.core.fire_all()
    assert small.totals("long") == expected(-4, 0, size=8)
    assert small.core.repair.mended.rebuilt == 1
    assert small.core.repair.mended.lost == 0
    assert small.spark.ingested[-2:] == [0, 1]
    assert not small.orphans()


def test_a_file_is_rebuilt_though_a_version_that_made_it_is_forgotten(
    small: Small, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Buckets that have been compacted lay in front of one that is still needed, which now comes to another place."""
    small.create("short", sums(size=4, slide=2))
    small.create("long", replace(count(), sql="long", window=WindowSpec(8 * SECOND, 8 * SECOND)))
    compacted, needed = (small.core.metastore.query(id).group for id in ("short", "long"))
    for number in range(2):
        small.batch(number)
        small.core.fire_all()
    files = [file for file in small.core.metastore.buckets(PURCHASES) if file.batch == 0]
    assert [bucket.group for file in files for bucket in file.buckets] == [needed, needed]
    assert all(file.buckets[0].offset > 0 for file in files)
    keeps = small.core.registry.keeps
    monkeypatch.setattr(small.core.registry, "keeps", lambda path: keeps(path) and f"/{compacted}-" not in path)
    flip(home, files[0].path, files[0].buckets[0].offset + 10)
    kept.clear()
    for number in (2, 3):
        small.batch(number)
    small.core.fire_all()
    assert [rows(answer.table) for answer in small.answers("long")] == [[{"n": 80}]]
    assert small.core.metastore.incomplete() == {}
    assert small.core.repair.mended == Mended(rebuilt=1)
    assert not small.orphans()


@pytest.mark.parametrize("exchanged", [False, True])
def test_a_compacted_file_whose_source_is_gone_is_lost(small: Small, home: Path, exchanged: bool) -> None:
    small.create("long", sums(size=8, slide=4))
    for number in range(2):
        small.batch(number)
    small.core.fire_all()
    (compacted,) = [path for path in small.paths("buckets") if "compact" in path]
    flip(home, compacted)
    small.file(0).unlink()
    if exchanged:
        drop_file(small.folder, "f00", purchases(0, small.ROWS).set_column(1, "price", pa.array([1] * small.ROWS)))
    kept.clear()
    for number in (2, 3):
        small.batch(number)
    small.core.fire_all()
    assert [a.incomplete is not None for a in small.answers("long")] == [False, True]
    assert not small.orphans()


def test_recipes_go_with_their_buckets(small: Small) -> None:
    small.create("long", sums(size=8, slide=4))
    for number in range(3):
        small.batch(number)
    small.core.fire_all()
    small.core.tidy(10**15, 10**15)
    assert set(small.core.metastore.recipes(PURCHASES, [0])) == {0}, "a compacted file came from it"
    for number in range(3, 9):
        small.batch(number)
    small.core.fire_all()
    small.core.tidy(10**15, 10**15)
    assert set(small.core.metastore.recipes(PURCHASES, [0, 8])) == {8}


@pytest.fixture(params=[16, 1], ids=["one step", "many steps"])
def joined(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Small]:
    monkeypatch.setattr(join_fire, "PACE", join_fire.Pace(request.param, request.param))
    one = Small(home, tmp_path / "in", PURCHASES, COPIES)
    one.create("pairs", pairs())
    for number in range(2):
        one.batch(number)
        one.batch(number, COPIES)
    yield one
    one.close()


def pages(small: Small) -> list[tuple[float, int, bool]]:
    """(window end, rows, whether incomplete) of the join's answers."""
    return [
        (a.window_end.timestamp(), a.total_rows, a.incomplete is not None)
        for a in small.answers("pairs")
        if a.window_end
    ]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_leg_of_a_join_is_rebuilt(joined: Small, home: Path, damage: Damager) -> None:
    damage(home, joined.paths("buckets/copies")[0])
    joined.core.fire_all()
    assert pages(joined) == [(2, 20, False), (4, 20, False)]


def test_a_join_without_a_part_of_a_leg_is_incomplete(joined: Small, home: Path) -> None:
    lose(home, joined.paths("buckets/copies")[0])
    joined.file(0).unlink()
    joined.core.fire_all()
    assert pages(joined) == [(2, 0, True), (4, 15, True)]
    assert joined.core.metastore.incomplete() == {"pairs": 2}


@pytest.mark.parametrize("damage", DAMAGES)
def test_rows_of_a_join_are_rebuilt_for_their_reader(joined: Small, home: Path, damage: Damager) -> None:
    joined.core.fire_all()
    path = joined.paths("buckets/copies")[0]
    whole = (home / path).read_bytes()
    damage(home, path)
    assert pages(joined) == [(2, 20, False), (4, 20, False)]
    assert (home / path).read_bytes() == whole
    assert not joined.orphans()


def test_damaged_rows_of_a_join_are_an_error_of_that_answer(joined: Small, home: Path) -> None:
    joined.core.fire_all()
    flip(home, joined.paths("buckets/copies")[0], 300)
    joined.file(0).unlink()
    with pytest.raises(DamagedFile) as raised:
        joined.answers("pairs")
    assert raised.value.code == "DAMAGED_FILE"
    assert raised.value.cursor is not None
    assert raised.value.cursor in (raised.value.hint or "")
    with pytest.raises(DamagedFile) as second:
        joined.answers("pairs", raised.value.cursor)
    assert second.value.cursor is not None
    assert joined.answers("pairs", second.value.cursor) == []


def test_rows_whose_index_was_damaged_before_the_fire_are_counted_and_cannot_be_read(joined: Small, home: Path) -> None:
    """A fire needs keys and counts alone. What leads to the rows is missed by their reader, who goes on behind them."""
    second = max(joined.core.pipelines[COPIES].buckets.of_batch(0), key=lambda one: one.bucket.start)
    assert second.bucket.body is not None
    assert second.bucket.body < second.bucket.length
    flip(home, second.path, second.bucket.offset + second.bucket.body + 5)
    joined.file(0).unlink()
    joined.core.fire_all()
    assert joined.core.metastore.incomplete() == {}
    assert joined.core.firing.answer_rows == 40, "two windows, as if nothing were damaged"
    (first,) = joined.answers("pairs")
    assert (first.total_rows, first.window_end and first.window_end.timestamp()) == (20, 2)
    with pytest.raises(DamagedFile) as raised:
        joined.answers("pairs", first.cursor)
    assert raised.value.cursor is not None
    assert raised.value.cursor in (raised.value.hint or "")
    for number in (2, 3):
        joined.batch(number)
        joined.batch(number, COPIES)
    joined.core.fire_all()
    ends = [a.window_end.timestamp() for a in joined.answers("pairs", raised.value.cursor) if a.window_end]
    assert ends == [6, 8], "what was not damaged"


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_reader_gets_an_error_for_a_damaged_answer_file_and_goes_on(
    small: Small, home: Path, damage: Damager
) -> None:
    small.create("all", sums())
    for number in range(3):
        small.batch(number)
        small.core.fire_all()
    _, second, _ = [record.file.path for record in small.core.metastore.answers_after(PURCHASES, 0)]
    damage(home, second)
    small.core.answers._open.clear()
    before = small.answers("all")
    assert [a.window_end.timestamp() for a in before if a.window_end] == [2]
    with pytest.raises(DamagedFile) as raised:
        small.answers("all", before[-1].cursor)
    assert second in raised.value.message
    after = small.answers("all", raised.value.cursor)
    assert [a.window_end.timestamp() for a in after if a.window_end] == [6]
    newest = small.answers("all", "newest")
    assert [a.window_end.timestamp() for a in newest if a.window_end] == [6]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_group_version_is_restored(home: Path, tmp_path: Path, damage: Damager) -> None:
    """By a batch and a fire from memory, at the start from the definitions."""
    small = Small(home, tmp_path / "in")
    small.create("all", sums())
    small.create("high", sums(above=10))
    small.core.registry.seal([], ["all"])
    small.create("more", sums(above=20))
    path = small.paths("groups")[-1]
    whole = (home / path).read_bytes()
    damage(home, path)
    small.batch(0)
    assert (home / path).read_bytes() == whole
    damage(home, path)
    small.core.fire_all()
    assert (home / path).read_bytes() == whole
    assert small.totals("high") == {k: v - sum(n for n in range(11) if n % 3 == k[1]) for k, v in expected(0).items()}
    small.close()
    damage(home, path)
    again = Small(home, tmp_path / "in")
    assert (home / path).read_bytes() == whole
    again.close()


@pytest.mark.parametrize("damage", DAMAGES)
def test_several_group_versions_are_restored_before_their_batch_is_committed(
    small: Small, home: Path, damage: Damager
) -> None:
    small.create("all", sums())
    small.create("count", count())
    versions = small.paths("groups")
    assert len(versions) == 2
    for path in versions:
        damage(home, path)
    small.batch(0)
    assert small.core.metastore.streams()[0].rows == small.ROWS
    for path in (*versions, *small.paths("buckets")):
        damage(home, path)
    small.core.fire_all()
    assert small.totals("all") == expected(0)
    assert [rows(a.table) for a in small.answers("count")] == [[{"n": 20}]]
    assert small.core.repair.mended == Mended(rebuilt=2)
    assert not small.orphans()


def test_a_batch_is_rebuilt_with_versions_that_are_damaged_too(small: Small, home: Path) -> None:
    """The fire needs one group; the batch was made with two."""
    small.create("all", sums())
    small.create("count", count())
    small.batch(0)
    small.core.fire_all()
    small.batch(1)
    small.core.registry.seal([], ["count"])
    group = small.core.metastore.query("count").group
    for path in (path for path in small.paths("groups") if path.startswith(f"groups/{group}-1-")):
        lose(home, path)
    flip(home, small.core.metastore.buckets(PURCHASES)[-1].path)
    small.batch(2)
    small.core.firing.fire(small.core.pipelines[PURCHASES])
    small.core.fire_all()
    assert small.totals("all").items() >= expected(0, 2).items()
    assert (small.core.repair.mended.lost, small.core.metastore.incomplete()) == (0, {})


def test_a_disk_that_damages_what_was_restored_ends_in_an_error(
    small: Small, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.create("all", sums())
    (path,) = small.paths("groups")
    lose(home, path)
    monkeypatch.setattr(Home, "exchange", lambda *_: None)
    with pytest.raises(DamagedFile, match="is missing") as raised:
        small.batch(0)
    assert "5 times" in (raised.value.detail or "")
    monkeypatch.undo()
    small.batch(0)
    small.core.fire_all()
    assert small.totals("all") == expected(0)


def test_an_old_group_version_that_buckets_need_is_restored(small: Small, home: Path) -> None:
    small.create("all", sums())
    small.batch(0)
    small.create("high", sums(above=10))
    small.batch(1)
    (old, _) = small.paths("groups")
    lose(home, old)
    small.core.fire_all()
    assert small.totals("all") == expected(0, 2)


def _are_restored(small: Small, home: Path, versions: list[str]) -> None:
    for path in versions:
        whole = (home / path).read_bytes()
        lose(home, path)
        assert small.core.registry.restore(path)
        assert (home / path).read_bytes() == whole


def _forget(small: Small, home: Path) -> None:
    small.core.metastore.expire_history(2**62)


def _lose_epochs(small: Small, home: Path) -> None:
    """As homes have forgotten them that an earlier version has tidied."""
    with closing(sqlite3.connect(home / "metastore.db")) as connection, connection:
        assert connection.execute("DELETE FROM millstream_epochs").rowcount


@pytest.mark.parametrize("meanwhile", [lambda *_: None, _forget, _lose_epochs], ids=["nothing", "forget", "lose"])
def test_a_version_is_restored_that_has_a_query_which_was_stopped_before(
    small: Small, home: Path, meanwhile: Callable[[Small, Path], None]
) -> None:
    """A query leaves its group some time after the transaction that stops it."""
    small.create("all", sums())
    small.create("low", sums(above=5))
    small.core.metastore.set_failed("low", "stopped")
    small.core.registry.remove(["low"])
    small.create("high", sums(above=10))
    small.core.metastore.set_failed("high", "stopped")
    small.create("more", sums(above=20))
    small.core.registry.remove(["high"])
    versions = small.paths("groups")
    assert len(versions) == 6
    meanwhile(small, home)
    _are_restored(small, home, versions)


def test_a_version_is_restored_that_a_query_left_in_the_moment_in_which_it_was_stopped(
    small: Small, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock may be too coarse to tell which came first."""
    now = small.core.metastore._database._clock()
    monkeypatch.setattr(small.core.metastore._database, "_clock", lambda: now)
    small.create("all", sums())
    small.create("low", sums(above=5))
    small.core.metastore.set_failed("low", "stopped")
    small.core.registry.remove(["low"])
    small.create("more", sums(above=20))
    versions = small.paths("groups")
    assert len(versions) == 4
    _are_restored(small, home, versions)


def test_files_without_checksums_are_read_as_before(home: Path, tmp_path: Path) -> None:
    """As a home that an earlier version has written; damage shows when it is decoded."""
    small = Small(home, tmp_path / "in")
    small.create("all", sums())
    for number in range(2):
        small.batch(number)
    small.core.firing.fire(small.core.pipelines[PURCHASES])
    small.batch(2)
    small.close()
    without_checksums(home)
    again = Small(home, tmp_path / "in")
    zero(home, again.paths("buckets")[-1])
    again.core.fire_all()
    assert [a.incomplete is not None for a in again.answers("all")] == [False, False, True]
    assert again.totals("all").items() >= expected(0, 2).items()
    for path in again.paths("answers"):
        zero(home, path)
    again.core.answers._open.clear()
    with pytest.raises(DamagedFile, match="has no index"):
        again.answers("all")
    again.close()


def zero(home: Path, path: str) -> None:
    (home / path).write_bytes(bytes((home / path).stat().st_size))


def without_checksums(home: Path) -> None:
    with sqlite3.connect(home / "metastore.db") as database:
        for path, text in database.execute("SELECT path, buckets FROM millstream_bucket_files").fetchall():
            short = json.dumps([row[:7] for row in json.loads(text)])
            database.execute("UPDATE millstream_bucket_files SET buckets = ? WHERE path = ?", [short, path])
        for table in ("answers", "group_versions"):
            for (path,) in database.execute(f"SELECT path FROM millstream_{table}").fetchall():
                stem, _, suffix = path.split(".")
                (home / path).rename(home / f"{stem}.{suffix}")
                database.execute(f"UPDATE millstream_{table} SET path = ? WHERE path = ?", [f"{stem}.{suffix}", path])
        database.execute("DELETE FROM millstream_recipes")
    database.close()


def test_a_group_version_that_cannot_be_restored_is_a_clear_error(home: Path, tmp_path: Path) -> None:
    small = Small(home, tmp_path / "in")
    small.create("all", sums())
    small.close()
    (path,) = (home / "groups").iterdir()
    renamed = path.with_name(path.name.replace(path.name.split(".")[1], "00000000"))
    path.rename(renamed)
    with sqlite3.connect(home / "metastore.db") as database:
        database.execute("UPDATE millstream_group_versions SET path = ?", [f"groups/{renamed.name}"])
    database.close()
    with pytest.raises(DamagedFile, match="is altered") as raised:
        Small(home, tmp_path / "in")
    assert "backup" in (raised.value.hint or "")
    # The lock is free again.
    path2 = renamed.rename(path)
    with sqlite3.connect(home / "metastore.db") as database:
        database.execute("UPDATE millstream_group_versions SET path = ?", [f"groups/{path2.name}"])
    database.close()
    Small(home, tmp_path / "in").close()


def test_a_group_version_that_only_a_worker_cannot_read_is_left_as_it_is(small: Small, home: Path) -> None:
    """It has lost its mount: the batch is repeated, first at once, then as after any fault of a disk."""
    small.create("all", sums())
    (version,) = small.paths("groups")
    before = (home / version).stat().st_ino
    small.batch(0)
    ingest, times = small.spark.ingest, [2]

    def blind(*arguments: object) -> BatchResult:
        times[0] -= 1
        if times[0] >= 0:
            return BatchResult(0, 0, None, 0, 0, damaged=(Damage(version, None, "is not there"),))
        return ingest(*arguments)  # type: ignore[arg-type]

    small.spark.ingest = blind  # type: ignore[method-assign, assignment]
    small.batch(1)
    times[0] = 100
    with pytest.raises(EngineError, match=r"a worker cannot read groups/.*, which is whole"):
        small.batch(2)
    times[0] = 0
    small.batch(2)
    small.core.fire_all()
    assert small.totals("all") == expected(0, 2, 4)
    assert (home / version).stat().st_ino == before


def test_nothing_is_written_where_the_home_is_not_mounted(small: Small, home: Path, tmp_path: Path) -> None:
    small.create("all", sums())
    home.rename(tmp_path / "away")
    home.mkdir()
    with pytest.raises(OSError, match="the home is not there") as caught:
        small.core.home.write("buckets/purchases", "0", "bucket", [b"bytes"])
    fault = disk_fault(RuntimeError(f"Traceback of a worker\nOSError: {caught.value}"))
    assert fault is not None
    assert fault.code == "DISK_ERROR"
    assert not list(home.iterdir())
    home.rmdir()
    (tmp_path / "away").rename(home)
    small.batch(0)
