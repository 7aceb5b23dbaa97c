"""Damaged files and full disks are held against no query, also while a query is at fault; and what a quarantined batch
is rebuilt from. No Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.catalog.outage import unknown
from millstream.errors import DamagedFile, EngineError
from millstream.model.plan import BatchResult
from millstream.runtime.loading import kept_groups, load_group
from millstream.runtime.worker import IngestTask

from .inprocess import flip, lose
from .test_quarantine import STREAM, Fires, World, Worlds, expected

pytestmark = pytest.mark.usefixtures("fresh_worker")


@pytest.fixture
def worlds(home: Path) -> Iterator[Worlds]:
    made = Worlds(home)
    yield made
    for world in made._open:
        world.close()


@pytest.fixture
def world(worlds: Worlds) -> World:
    return worlds.start()


def quarantined(world: World) -> None:
    """Two batches, of which the first was committed without the query ``bad``."""
    world.create("a", "bad")
    world.culprits = {"bad"}
    for batch in range(2):
        world.process(batch)
    assert world.state("bad") == "failed"
    world.tried.clear()


def fire_all(world: World) -> None:
    while world.firing.fire(world.pipelines[STREAM]):
        pass


def bucket_files(world: World, batch: int) -> list[str]:
    return [file.path for file in world.store.buckets(STREAM) if file.batch == batch]


def test_a_batch_is_rebuilt_without_the_queries_that_it_was_committed_without(world: World, home: Path) -> None:
    quarantined(world)
    recipe = world.store.recipes(STREAM, [0])[0]
    assert recipe.apart
    assert [load_group(world.home, path).version.version for path in recipe.versions] == [-1]
    for path in bucket_files(world, 0):
        flip(home, path)
    fire_all(world)
    assert world.tried == [{"a"}, {"a"}], "once for each file"
    assert world.sums("a") == expected(0, 17)
    assert (world.repair.mended.rebuilt, world.repair.mended.lost) == (2, 0)
    assert set(world.home.files()) == world.store.referenced_files()


def test_a_version_that_was_made_for_one_batch_is_lost_with_its_buckets(worlds: Worlds, home: Path) -> None:
    quarantined(worlds.start())
    world = worlds.start()
    (version,) = world.store.recipes(STREAM, [0])[0].versions
    lose(home, version)
    kept_groups.clear()
    fire_all(world)
    assert world.repair.mended.rebuilt == 0
    assert world.store.incomplete() == {"a": 2}
    # Batch 0 has the seconds up to 9: all of the first window, and two seconds of the next.
    assert world.sums("a") == expected(10, 17)


def test_a_damaged_version_is_restored_inside_of_trials(world: World, home: Path) -> None:
    world.create("a", "bad")
    world.culprits = {"bad"}
    real = world.ingest
    versions = [home / ref.path for ref in world.store.epoch_plan(world.store.current_epoch(), STREAM)]

    def damaging(task: IngestTask) -> BatchResult:
        if task.apart and versions:
            versions.pop().write_bytes(b"{}")
            kept_groups.clear()
        return real(task)

    world.ingest = damaging  # type: ignore[method-assign]
    world.process(0)
    assert not versions
    assert (world.state("a"), world.state("bad")) == ("running", "failed")
    assert [t.passed for t in world.store.trials(STREAM, 0)][:2] == [False, False]


def test_a_version_that_cannot_be_restored_is_held_against_nobody(world: World, home: Path) -> None:
    world.create("a", "b")

    def damaged(task: IngestTask) -> BatchResult:
        raise DamagedFile("groups/nobody-knows.json", "is missing")

    real, world.ingest = world.ingest, damaged  # type: ignore[method-assign]
    with pytest.raises(DamagedFile, match="is missing"):
        world.process(0)
    assert world.store.trials(STREAM, 0) == []
    world.ingest = real  # type: ignore[method-assign]
    world.process(0)
    assert (world.state("a"), world.state("b")) == ("running", "running")


def test_damage_in_a_half_of_a_fire_is_mended_and_the_culprit_alone_is_stopped(world: World, home: Path) -> None:
    world.create(*"abcde")
    for batch in range(2):
        world.process(batch)
    flip(home, bucket_files(world, 0)[0])
    fires = Fires({"c"})
    firing = world.firing_of(fires)
    assert firing.fire(world.pipelines[STREAM])
    assert {id: world.state(id) for id in "abcde"} == dict.fromkeys("abde", "running") | {"c": "failed"}
    assert world.sums("a") == {}, "it waited for the repair"
    assert world.repair.mended.rebuilt == 1, "once, though every half has found it"
    assert firing.fire(world.pipelines[STREAM])
    for id in "abde":
        assert world.sums(id) == expected(0, 17)
    assert world.store.incomplete() == {}
    assert not firing.fire(world.pipelines[STREAM])


def test_a_repair_that_fails_keeps_no_half_from_firing(world: World, home: Path) -> None:
    """The buckets of batch 1 are damaged; the fire fails with everybody in it because of one query."""
    world.create("old")
    world.process(0)
    world.create(*"ab")
    world.process(1)
    damaged = bucket_files(world, 1)
    for path in damaged:
        flip(home, path)

    def full(task: IngestTask) -> BatchResult:
        raise OSError(28, "No space left on device")

    real, world.ingest = world.ingest, full  # type: ignore[method-assign]
    firing = world.firing_of(Fires({"a"}))
    for _ in range(5):
        with pytest.raises(OSError, match="No space left"):
            firing.fire(world.pipelines[STREAM])
    assert (world.state("a"), world.state("old")) == ("failed", "running")
    world.ingest = real  # type: ignore[method-assign]
    fire_all(world)
    assert world.sums("old") == expected(0, 17)
    assert (world.store.incomplete(), world.repair.mended.lost) == ({}, 0)


@pytest.mark.parametrize("happened", [False, True])
def test_files_stay_where_nobody_knows_whether_the_batch_was_committed(
    world: World, monkeypatch: pytest.MonkeyPatch, happened: bool
) -> None:
    world.create("a")
    real = world.store.commit_batch

    def in_doubt(*arguments: object) -> None:
        if happened:
            real(*arguments)  # type: ignore[arg-type]
        raise unknown("the server closed the connection")

    monkeypatch.setattr(world.store, "commit_batch", in_doubt)
    with pytest.raises(EngineError, match="is not known"):
        world.process(0)
    files = set(world.home.files())
    assert any(path.startswith("buckets/") for path in files)
    assert world.store.referenced_files() <= files
    assert (world.store.referenced_files() == files) == happened


def test_versions_stay_where_nobody_knows_whether_the_epoch_was_sealed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_doubt(change: object) -> None:
        raise unknown("the server closed the connection")

    monkeypatch.setattr(world.store, "seal", in_doubt)
    with pytest.raises(EngineError, match="is not known"):
        world.create("a")
    assert len(world.home.files()) == 1
    monkeypatch.undo()

    def refused(change: object) -> None:
        raise EngineError("INTERNAL", "refused")

    monkeypatch.setattr(world.store, "seal", refused)
    with pytest.raises(EngineError, match="refused"):
        world.create("b")
    assert len(world.home.files()) == 1
