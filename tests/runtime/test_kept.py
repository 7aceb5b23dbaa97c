"""What a worker process keeps for later tasks, and when it lets go."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kernels.plain import version_of

from millstream.model import codec
from millstream.model.expression import Column
from millstream.model.group import Member
from millstream.model.query import Aggregate, WindowSpec
from millstream.model.selection import Attribute, Leaf
from millstream.model.types import LONG
from millstream.runtime import loading
from millstream.runtime.home import GROUPS, Home
from millstream.runtime.loading import KeptGroups

PRICE = Column("price", LONG)


def member(slot: int) -> Member:
    selection = Leaf(Attribute(PRICE, "integer"), ((slot, None),))
    return Member(f"q{slot}", slot, selection, WindowSpec(10, 5), (Aggregate("count", None, LONG),), None, ())


def written(home: Home, number: int, members: int) -> str:
    made = version_of([member(slot) for slot in range(members)], (PRICE,), number)
    return home.write(GROUPS, f"g-{number}", "json", [codec.dumps(made).encode()])


@pytest.fixture
def durable(home: Path) -> Home:
    found = Home(str(home))
    found.create()
    return found


def test_a_version_is_read_once(durable: Home) -> None:
    kept = KeptGroups()
    path = written(durable, 1, members=2)
    assert kept.get(durable, path) is kept.get(durable, path)


def test_of_versions_out_of_use_the_oldest_go(durable: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "UNUSED_SECONDS", 0.0)
    monkeypatch.setattr(loading, "KEPT_MEMBERS", 4)
    kept = KeptGroups()
    first, second, third = (written(durable, number, members=2) for number in range(3))
    groups = [kept.get(durable, first), kept.get(durable, second)]
    assert kept.get(durable, first) is groups[0], "it is now the one used last"
    kept.get(durable, third)
    assert len(kept) == 2
    assert kept.get(durable, first) is groups[0]
    assert kept.get(durable, second) is not groups[1], "read again"


def test_versions_in_use_stay_however_many_they_are(durable: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "KEPT_MEMBERS", 1)
    kept = KeptGroups()
    paths = [written(durable, number, members=2) for number in range(5)]
    groups = [kept.get(durable, path) for path in paths]
    assert all(kept.get(durable, path) is group for path, group in zip(paths, groups, strict=True))
