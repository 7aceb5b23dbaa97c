"""Grouping: who is evaluated with whom, and what a change rewrites."""

from __future__ import annotations

import itertools
import random

from millstream.model.expression import Column
from millstream.model.query import Aggregate, LogicalQuery, WindowSpec
from millstream.model.selection import AllOf, Attribute, Leaf, Selection
from millstream.model.types import BOOLEAN, INTEGER, LONG
from millstream.optimizer import grouping
from millstream.optimizer.changelog import Create, Rewritten, rewrite
from millstream.optimizer.cost import Statistics, slices_per_second
from millstream.optimizer.grouping import Sketch

SECOND = 1_000_000
KEY = Column("key", LONG)
TOTAL = (Aggregate("sum", Column("field1", INTEGER), LONG),)


def field(number: int, low: int) -> Leaf:
    return Leaf(Attribute(Column(f"field{number}", INTEGER), "integer"), ((low, None),))


def flag(number: int) -> Leaf:
    return Leaf(Attribute(Column(f"flag{number}", BOOLEAN), "boolean"), ((1, None),))


def create(
    id: str, selection: Selection, window: WindowSpec | None = None, keys: tuple[Column, ...] = (KEY,)
) -> Create:
    window = window or WindowSpec(5 * SECOND, SECOND)
    return Create(id, LogicalQuery("", "s", None, window, keys, TOTAL, None, ()), selection)


class Engine:
    """The registry's part of the changelog: it keeps what the last change left."""

    def __init__(self) -> None:
        self.groups: dict[str, Sketch] = {}
        self.group_of: dict[str, str] = {}
        self.names = (f"g-{n}" for n in itertools.count(1))

    def change(self, creates: list[Create], deletes: list[str] | None = None) -> Rewritten:
        names = self.names
        done = rewrite(self.groups, self.group_of, creates, deletes or [], lambda: next(names), Statistics())
        for id in deletes or []:
            del self.group_of[id]
        for sketch in done.sketches:
            version = sketch.version
            assert sketch == Sketch.of(version), "a sketch is what its version says"
            self.groups[version.group] = sketch
            self.group_of |= {m.query: version.group for m in version.members}
            if not version.members:
                del self.groups[version.group]
        return done


def test_queries_on_one_attribute_share_and_other_attributes_stay_apart() -> None:
    rng = random.Random(1)
    engine = Engine()
    engine.change([create(f"q{i}", field(rng.randint(1, 5), rng.randrange(500))) for i in range(1000)])
    assert len(engine.groups) == 5
    for sketch in engine.groups.values():
        assert len(sketch.version.attributes) == 1


def test_a_change_rewrites_the_groups_it_touches_and_reuses_slots() -> None:
    engine = Engine()
    engine.change([create(f"a{i}", field(1, i)) for i in range(10)] + [create(f"b{i}", field(2, i)) for i in range(10)])
    done = engine.change([create("new", field(1, 77))], deletes=["a3", "a7"])
    assert [(v.group, v.version) for v in done.versions] == [(engine.group_of["new"], 2)]
    assert done.places["new"][1] == 3, "the lowest free slot"
    members = {m.query: m.slot for m in done.versions[0].members}
    assert members == {**{f"a{i}": i for i in range(10) if i not in (3, 7)}, "new": 3}


def test_a_group_without_queries_is_retired() -> None:
    engine = Engine()
    engine.change([create("only", field(1, 5))])
    done = engine.change([], deletes=["only"])
    assert done.versions[0].members == ()
    assert engine.groups == {}


def test_different_keys_never_share() -> None:
    engine = Engine()
    engine.change([create("one", field(1, 5)), create("two", field(1, 5), keys=())])
    assert engine.group_of["one"] != engine.group_of["two"]


def test_boolean_attributes_share_until_there_would_be_too_many_classes() -> None:
    engine = Engine()
    engine.change([create(f"q{i}", flag(i)) for i in range(30)])
    sizes = [len(s.version.attributes) for s in engine.groups.values()]
    assert max(sizes) > 1
    assert all(3**size <= grouping.CLASS_LIMIT for size in sizes)


def test_windows_that_would_cut_slices_too_narrow_get_their_own_group() -> None:
    engine = Engine()
    engine.change([create(f"q{i}", field(1, i)) for i in range(5)])
    engine.change([create("odd", field(1, 3), WindowSpec(7_001, 13))])
    assert engine.group_of["odd"] != engine.group_of["q0"]


def test_a_group_has_at_most_so_many_members(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(grouping, "MEMBER_LIMIT", 4)
    engine = Engine()
    engine.change([create(f"q{i}", field(1, i)) for i in range(10)])
    assert sorted(len(s.version.members) for s in engine.groups.values()) == [2, 4, 4]


def test_conditions_on_two_attributes_share_with_their_like() -> None:
    engine = Engine()
    both = [create(f"q{i}", AllOf((field(1, i), field(2, 2 * i)))) for i in range(20)]
    engine.change(both)
    assert len(engine.groups) == 1


def test_slices_are_counted_by_their_edges() -> None:
    assert slices_per_second([WindowSpec(8 * SECOND, 4 * SECOND)]) == 0.25
    assert slices_per_second([WindowSpec(SECOND, SECOND), WindowSpec(2 * SECOND, SECOND)]) == 1.0
    assert slices_per_second([]) == 0.0
