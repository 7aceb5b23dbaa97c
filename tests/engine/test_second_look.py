"""Files that a worker could not read are looked at again before anything is given up. No Spark."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from millstream.engine.repair import MOST_TRIES
from millstream.errors import DamagedFile, EngineError
from millstream.model.plan import BatchResult, Damage
from millstream.runtime.home import Home
from millstream.runtime.loading import kept_groups
from millstream.runtime.worker import IngestTask

from .inprocess import PURCHASES, Small, expected, flip, lose, sums

pytestmark = pytest.mark.usefixtures("fresh_worker")


@pytest.fixture
def small(home: Path, tmp_path: Path) -> Iterator[Small]:
    one = Small(home, tmp_path / "in")
    one.create("all", sums())
    one.batch(0)
    yield one
    one.close()


def no_recipes(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a DataFrame, which cannot be read again."""
    monkeypatch.setattr(small.core.metastore, "recipes", lambda *_: {})


def away_during_fires(small: Small, monkeypatch: pytest.MonkeyPatch, path: Path, times: int) -> list[int]:
    """The file is missing for the workers of so many fires; gives a list that grows with each fire."""
    real, fires = small.spark.fire, list[int]()

    def fire(tasks: Sequence[Any]) -> Any:
        fires.append(len(fires))
        if len(fires) > times:
            return real(tasks)
        away = path.rename(path.with_name("away"))
        try:
            return real(tasks)
        finally:
            away.rename(path)

    monkeypatch.setattr(small.core.firing, "_run", fire)
    return fires


def test_a_file_that_was_away_for_one_fire_is_not_lost(
    small: Small, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_recipes(small, monkeypatch)
    (path,) = small.paths("buckets")
    fires = away_during_fires(small, monkeypatch, home / path, 1)
    small.core.fire_all()
    assert len(fires) == 2
    assert small.totals("all") == expected(0)
    assert (small.core.metastore.incomplete(), small.core.repair.mended.lost) == ({}, 0)


def test_a_group_version_that_was_away_for_one_fire_takes_no_buckets_with_it(
    small: Small, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = small.paths("groups")
    monkeypatch.setattr(small.core.registry, "restore", lambda _: False)
    away_during_fires(small, monkeypatch, home / path, 1)
    small.core.fire_all()
    assert small.totals("all") == expected(0)
    assert small.core.repair.mended.lost == 0


def test_a_worker_that_never_reads_a_file_is_an_error_that_people_see(
    small: Small, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_recipes(small, monkeypatch)
    (path,) = small.paths("buckets")
    away_during_fires(small, monkeypatch, home / path, 4)
    for _ in range(2):
        with pytest.raises(EngineError, match="a worker cannot read") as raised:
            small.core.fire_all()
        assert raised.value.code == "DISK_ERROR"
    small.core.fire_all()
    assert small.totals("all") == expected(0)
    assert small.core.repair.mended.lost == 0


def test_a_home_that_is_away_has_lost_nothing(small: Small, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when its file system is not mounted; the metastore is elsewhere."""
    no_recipes(small, monkeypatch)
    folders = [home / "buckets", home / "groups"]
    for folder in folders:
        folder.rename(folder.with_suffix(".away"))
    with pytest.raises(EngineError, match="is not there"):
        small.core.fire_all()
    for folder in folders:
        folder.with_suffix(".away").rename(folder)
    small.core.fire_all()
    assert small.totals("all") == expected(0)


def failing(monkeypatch: pytest.MonkeyPatch, number: int, part: str) -> None:
    """Files under a part of the home cannot be read, for a reason."""
    real = os.pread

    def pread(descriptor: int, length: int, offset: int) -> bytes:
        if part in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(number, os.strerror(number))
        return real(descriptor, length, offset)

    monkeypatch.setattr(os, "pread", pread)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE, errno.ESTALE, errno.ENOMEM])
@pytest.mark.parametrize("part", ["buckets/", "groups/"])
def test_faults_of_the_machine_are_waited_out(
    small: Small, monkeypatch: pytest.MonkeyPatch, number: int, part: str
) -> None:
    with monkeypatch.context() as during:
        no_recipes(small, during)
        failing(during, number, part)
        for _ in range(4):
            with pytest.raises(OSError, match=os.strerror(number)):
                small.core.fire_all()
    assert small.core.metastore.query("all").state == "running"
    small.core.fire_all()
    assert small.totals("all") == expected(0)
    assert small.core.repair.mended.lost == 0


@pytest.mark.parametrize(("number", "damaged"), [(errno.EIO, True), (errno.EACCES, False)])
def test_what_a_read_that_fails_says_of_the_file(
    home: Path, monkeypatch: pytest.MonkeyPatch, number: int, damaged: bool
) -> None:
    place = Home(str(home), durable=False)
    place.create()
    path = place.write("answers", "some", "answers", [b"rows"])
    failing(monkeypatch, number, "answers/")
    with pytest.raises(DamagedFile if damaged else PermissionError):
        place.open(path).slice(0, 4)


Fault = Callable[[], Exception]
FULL: Fault = lambda: OSError(errno.ENOSPC, "No space left on device")  # noqa: E731
DENIED: Fault = lambda: OSError(errno.EACCES, "Permission denied")  # noqa: E731
DIED: Fault = lambda: RuntimeError("a worker process that died")  # noqa: E731


def rebuilds(small: Small, home: Path, monkeypatch: pytest.MonkeyPatch, faults: Sequence[Fault]) -> None:
    """Fire with a damaged file whose rebuilds fail so, one after the other."""
    waiting = list(faults)

    def ingest(task: IngestTask, splits: Any) -> BatchResult:
        if waiting:
            raise waiting.pop(0)()
        return small.spark.ingest(task, splits)

    monkeypatch.setattr(small.core.repair, "_ingest", ingest)
    for path in small.paths("buckets"):
        flip(home, path)
    for number in range(len(faults)):
        with pytest.raises((OSError, RuntimeError)):
            small.core.fire_all()
        assert len(waiting) == len(faults) - number - 1
    small.core.fire_all()
    assert (small.core.metastore.incomplete(), small.core.repair.mended.lost) == ({}, 0)


@pytest.mark.parametrize("fault", [FULL, DENIED])
def test_faults_of_the_machine_are_no_tries_of_a_rebuild(
    small: Small, home: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    rebuilds(small, home, monkeypatch, [fault, fault, fault, DIED, fault, DIED])
    assert small.totals("all") == expected(0)


def test_a_rebuild_that_succeeds_clears_what_was_held_against_it(
    small: Small, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = small.core.metastore.buckets(PURCHASES)
    damage = Damage(file.path, file.buckets[0].offset, "is altered")
    tries = 0

    def third_time(task: IngestTask, splits: Any) -> BatchResult:
        nonlocal tries
        tries += 1
        if tries % MOST_TRIES:
            raise DIED()
        return small.spark.ingest(task, splits)

    monkeypatch.setattr(small.core.repair, "_ingest", third_time)
    for _ in range(2):
        flip(home, file.path, damage.offset)
        for _ in range(MOST_TRIES - 1):
            with pytest.raises(RuntimeError, match="died"):
                small.core.repair.repair([damage])
        small.core.repair.repair([damage])
    assert (small.core.repair.mended.rebuilt, small.core.repair.mended.lost) == (2, 0)


def test_a_version_that_is_gone_is_still_lost(small: Small, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = small.paths("groups")
    monkeypatch.setattr(small.core.registry, "restore", lambda _: False)
    lose(home, path)
    kept_groups.clear()
    small.core.fire_all()
    assert small.core.repair.mended.lost == len(small.core.metastore.buckets(PURCHASES)[0].buckets)


def test_a_fire_of_nothing_writes_nothing(small: Small) -> None:
    files = set(small.core.home.files())
    small.core.firing._control()
    assert set(small.core.home.files()) == files
