"""A disk that is full: what failed is repeated when there is room, nothing is half done, reading goes on. No Spark."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from millstream.engine.changelog import Changelog, Sealed
from millstream.engine.registry import NewRequest
from millstream.errors import EngineError
from millstream.runtime.disk import disk_fault

from .disks import PAGE, filled, small_disk
from .inprocess import PURCHASES, Small, expected, sums


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 4) as place:
        yield place


@pytest.fixture
def small(disk: Path, tmp_path: Path) -> Iterator[Small]:
    one = Small(disk / "home", tmp_path / "in", tasks=2)
    one.create("all", sums())
    yield one
    one.close()


def request(small: Small, id: str) -> NewRequest:
    query = sums(above=int(id))
    return NewRequest(id, "", None, query, small.core.registry.selections_of(query))


# Pages that are left: plan, bucket file, commit, answer file, commit of the fire, group version and seal fail in turn.
@pytest.mark.parametrize("left", [PAGE * pages for pages in (0, 2, 3, 4, 5, 8, 12, 13, 14, 18, 20, 22, 24)])
def test_wherever_space_ends_everything_goes_on_when_it_is_back(small: Small, disk: Path, left: int) -> None:
    """With each page more that is left, the batch, its commit, the fire or its commit get one step further."""
    small.batch(0)
    small.core.fire_all()
    failed = []
    with filled(disk, left):
        for step in (lambda: small.batch(1), small.core.fire_all, lambda: small.create("high", sums(above=100))):
            try:
                step()
            except Exception as error:
                fault = disk_fault(error, "?")
                assert fault is not None
                assert fault.code == "NO_SPACE"
                failed.append(fault.message)
        assert small.totals("all").items() >= expected(0).items(), "what is there can be read"
    assert left > 0 or len(failed) >= 2
    small.batch(1)
    small.batch(2)
    small.core.fire_all()
    if not small.core.registry.known("high"):
        small.create("high", sums(above=100))
    assert small.totals("all") == expected(0, 2, 4)
    assert not small.orphans(), "failed tries leave nothing behind"
    assert {query.id for query in small.core.metastore.queries()} == {"all", "high"}


def test_a_create_without_space_is_refused_with_its_code_and_can_be_repeated(small: Small, disk: Path) -> None:
    changelog = Changelog(small.core.registry, 0.0, 1, small.core.metastore.outage)

    def create(id: str) -> Future[Sealed]:
        return changelog.submit([request(small, id)])[0]

    with filled(disk):
        error = create("7").exception()
        assert isinstance(error, EngineError)
        assert error.code == "NO_SPACE"
        assert str(disk) in error.message
        assert "goes on by itself" in (error.hint or "")
        assert {query.id for query in small.core.metastore.queries()} == {"all"}
    assert create("7").result().id == "7"
    changelog.stop()
    assert not small.orphans()


def test_a_rebuild_that_finds_no_space_is_repeated_and_nothing_is_lost(small: Small, disk: Path) -> None:
    small.batch(0)
    (first, *_) = small.paths("buckets")
    (disk / "home" / first).unlink()
    pipeline = small.core.pipelines[PURCHASES]
    with filled(disk):
        for _ in range(5):
            with pytest.raises(OSError, match="No space left"):
                small.core.firing.fire(pipeline)
    small.core.fire_all()
    assert small.totals("all") == expected(0)
    assert small.core.repair.mended.lost == 0
    assert not small.orphans()


def test_an_engine_does_not_start_on_a_full_disk(disk: Path, tmp_path: Path) -> None:
    with filled(disk), pytest.raises(EngineError) as raised:
        Small(disk / "home", tmp_path / "in")
    assert raised.value.code == "NO_SPACE"
    Small(disk / "home", tmp_path / "in").close()
