"""The registry while an epoch is sealed: others see the change before the sealing returns, or never. No Spark."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest

from millstream.catalog.metastore import Change, Epoch
from millstream.catalog.outage import unknown
from millstream.engine.registry import NewRequest
from millstream.errors import EngineError, MillstreamError
from millstream.model.join import JoinQuery
from millstream.model.query import LogicalQuery

from .inprocess import COPIES, PURCHASES, Small, expected, pairs, sums


@pytest.fixture
def small(home: Path, tmp_path: Path) -> Iterator[Small]:
    one = Small(home, tmp_path / "in", PURCHASES, COPIES)
    yield one
    one.close()


def state(small: Small) -> dict[str, object]:
    registry = small.core.registry
    names = ("_windows", "_joins", "_paths", "_ids", "_given", "_group_of", "_running")
    owners = {name: vars(registry.owners)[name] for name in ("_owner", "_predicates", "_totals", "_queries")}
    return deepcopy({name: vars(registry)[name] for name in names} | owners)


#  create:   write versions ── commit │ the seal returns
#  others:                            ▲ batch, fire, limits
def test_batches_and_fires_may_come_between_the_commit_and_the_end_of_a_seal(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = small.core
    small.create("first", sums(above=10))
    small.batch(0)
    small.batch(0, COPIES)
    seal, batches = core.metastore.seal, iter((1, 2))

    def overtaken(change: Change) -> Epoch:
        epoch = seal(change)
        number = next(batches)
        small.batch(number)
        small.batch(number, COPIES)
        core.fire_all()
        core.firing.clean_up(core.pipelines[PURCHASES])
        assert [core.registry.owners.owner(create.id) for create in change.creates] == ["me"]
        return epoch

    monkeypatch.setattr(core.metastore, "seal", overtaken)
    new: list[tuple[str, LogicalQuery | JoinQuery]] = [("second", sums()), ("join", pairs())]
    for id, query in new:
        core.registry.seal([NewRequest(id, "me", None, query, core.registry.selections_of(query))], [])
    monkeypatch.undo()
    for number in (3, 4):
        small.batch(number)
        small.batch(number, COPIES)
    core.fire_all()
    # Rows from 2.5 s, the cut: the window from 2 s has a part of its own.
    part = {(2, pack): sum(n for n in range(25, 40) if n % 3 == pack) for pack in range(3)}
    assert small.totals("second") == part | expected(4, 6, 8, 10)
    assert small.answers("join")


@pytest.mark.parametrize("id", ["new", "first"])
def test_a_seal_that_fails_leaves_nothing_known(small: Small, monkeypatch: pytest.MonkeyPatch, id: str) -> None:
    small.create("first", sums(above=10))
    before = state(small)

    def fail(change: Change) -> Epoch:
        raise EngineError("INTERNAL", "no")

    with monkeypatch.context() as patch:
        patch.setattr(small.core.metastore, "seal", fail)
        for query in (sums(size=4), pairs()):
            with pytest.raises(MillstreamError):
                small.create(id, query)
    assert state(small) == before
    assert not small.orphans()


def test_a_seal_in_doubt_stays_known(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    seal = small.core.metastore.seal

    def unanswered(change: Change) -> Epoch:
        seal(change)
        raise unknown("gone")

    monkeypatch.setattr(small.core.metastore, "seal", unanswered)
    with pytest.raises(EngineError, match="is not known"):
        small.create("q", sums())
    small.batch(0)
    small.core.fire_all()
    assert small.totals("q") == expected(0)


def test_an_id_in_use_is_refused_before_anything_of_its_query_is_touched(small: Small) -> None:
    small.create("q", sums())
    before = state(small)
    for ids in (["q"], ["new", "new"]):
        requests = [NewRequest(id, "", None, sums(size=4), small.core.registry.selections_of(sums())) for id in ids]
        with pytest.raises(MillstreamError, match="exists already"):
            small.core.registry.seal(requests, [])
    assert state(small) == before
