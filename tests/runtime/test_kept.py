"""What a worker process keeps for later tasks, and when it lets go."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.kernels.plain import version_of

from millstream.kernels.bucket import Cells
from millstream.kernels.group import Group
from millstream.model import codec
from millstream.model.expression import Column
from millstream.model.group import Member
from millstream.model.query import Aggregate, WindowSpec
from millstream.model.selection import Attribute, Leaf
from millstream.model.types import LONG
from millstream.runtime import fire, loading
from millstream.runtime.fire import BucketRef
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


#  fire      0     1     2     3 …     one slice of 10 for each, 6 keys
#  tumbling  |0───|1───|2───|3───|     nothing of the fire before is left
#  sliding   |0───|1───|2───|3───|     the slice of the fire before is left
@pytest.mark.parametrize(("left", "most"), [(0, 6), (1, 30)], ids=["tumbling", "sliding"])
@pytest.mark.parametrize("new_keys", [True, False])
def test_a_stack_is_not_full_of_keys_that_are_gone(
    monkeypatch: pytest.MonkeyPatch, left: int, most: int, new_keys: bool
) -> None:
    """A million new keys in every window would otherwise be numbered with those of all windows before."""
    monkeypatch.setattr(fire, "FEW_KEYS", 4)
    group = Group(version_of([member(0)], (PRICE,), 1))
    stacks = fire.KeptStacks(1 << 30, 1 << 30)

    def read(ref: BucketRef) -> Cells:
        first = 6 * ref.start // 10 if new_keys else 0
        keys = pa.array(range(first, first + 6), pa.int64())
        return Cells((keys,), np.full(6, 1 + ref.start), (), (np.arange(6), np.zeros(6, np.int64)))

    for number in range(20):
        starts = [10 * n for n in range(max(0, number - left), number + 1)]
        refs = {(s, s + 10, None): [BucketRef(0, f"b{s}", 0, 1, s, s + 10, s, None)] for s in starts}
        stack = stacks.stack(("home", "g"), group, refs, read, starts[0])
        assert stack is not None
        assert stack.key_count <= most if new_keys else stack.key_count == 6
        found = stack.rows(np.zeros(1, np.int64), np.array([0]), np.array([len(starts)]))
        assert found.sum() == 6 * sum(1 + s for s in starts)
