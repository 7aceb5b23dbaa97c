"""Stacks of slices against plain sums: many slices, dropped and added, keys that come and go, labels in many runs."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from millstream.kernels.bucket import Cells
from millstream.kernels.group import Group
from millstream.kernels.stack import MOST_COUNTED, Spare, Stack
from millstream.model.expression import Column
from millstream.model.group import Measure, Member
from millstream.model.query import Aggregate, WindowSpec
from millstream.model.selection import Attribute, Leaf
from millstream.model.types import DOUBLE, LONG

from .plain import version_of

pytestmark = pytest.mark.usefixtures("loops")

KEY = Column("k", LONG)
VALUE = Column("v", LONG)
RATIO = Column("d", DOUBLE)
SIZE = WindowSpec(10, 1)
AGGREGATES = (
    Aggregate("count", VALUE, LONG),
    Aggregate("sum", VALUE, LONG),
    Aggregate("max", VALUE, LONG),
    Aggregate("sum", RATIO, DOUBLE),
)


def _group(rng: random.Random, queries: int) -> Group:
    """Queries over ranges of one column: one run of labels each, or none; or several where a range has holes."""
    members = []
    holes = rng.choice([[2, 2, 4, 6], [0, 2, 2]])
    for number in range(queries):
        edges = sorted(rng.sample(range(20), rng.choice(holes)))
        ranges = tuple(zip(edges[::2], edges[1::2], strict=True))
        leaf = Leaf(Attribute(VALUE, "integer"), ranges)
        members.append(Member(f"q{number}", number, leaf, SIZE, AGGREGATES, None, ()))
    return Group(version_of(members, (KEY,)))


def _cells(rng: random.Random, group: Group, keys: list[int]) -> Cells:
    """A bucket with random numbers; now and then counts equal rows, sums need two limbs, and every cell is there."""
    labels = group.labels.shape[1]
    full = rng.random() < 0.4
    places = [(k, c) for c in range(labels) for k in range(len(keys)) if full or rng.random() < 0.5]
    rows = np.array([rng.randint(1, 9) for _ in places], np.int64)
    count = None if rng.random() < 0.5 else (np.minimum(rows, 3),)
    wide = rng.random() < 0.3
    total = tuple(np.array([rng.randint(-50, 50) for _ in places], np.int64) for _ in range(2 if wide else 1))
    most = (np.array([rng.randint(-50, 50) for _ in places], np.int64),)
    ratio = (np.array([rng.randint(-8, 8) / 4 for _ in places]),)
    by_measure = {"count": count, "sum": total, "max": most, "double": ratio}
    partials = tuple(
        by_measure["double" if m.argument == RATIO and m.kind == "sum" else m.kind]
        if m.argument == VALUE or m.kind != "count"
        else None
        for m in group.version.measures
    )
    at = None if full else (np.array([p[0] for p in places], np.int64), np.array([p[1] for p in places], np.int64))
    return Cells((pa.array(keys, pa.int64()),), rows, partials, at)


@pytest.mark.parametrize("most", [MOST_COUNTED, 100, 1000])
@pytest.mark.parametrize("seed", range(40))
def test_windows_are_plain_sums_of_their_slices(seed: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """``most``: rows that are counted in 32 bits, before counts get 64."""
    monkeypatch.setattr("millstream.kernels.stack.MOST_COUNTED", most)
    rng = random.Random(seed)
    group = _group(rng, rng.choice([2, 6, 25]))
    stack = Stack.empty(group)
    if rng.random() < 0.5:
        stack.expect(rng.randint(1, 30))
    slices: list[Cells] = []
    first = 0
    for number in range(rng.randint(1, 25)):
        low = number if rng.random() < 0.3 else 0
        cells = _cells(rng, group, sorted(rng.sample(range(low, low + 6), rng.randint(1, 5))))
        stack.push((number, number + 1, None), [cells], stack.numbers([cells]))
        slices.append(cells)
        if rng.random() < 0.3:
            first = max(first, number - rng.randint(0, 5))
            stack.drop_below(first)
    assert [s[0] for s in stack.slices] == list(range(first, len(slices)))
    _compare(rng, stack, slices, first)


def _compare(rng: random.Random, stack: Stack, slices: list[Cells], first: int) -> None:
    group = stack.group
    for _ in range(5):
        start = rng.randint(first, len(slices))
        end = rng.randint(start, len(slices))
        low, high = stack.range(np.array([start]), np.array([end]))
        assert (int(low[0]), int(high[0])) == (start - first, end - first)
        members = np.arange(len(group.version.members))
        at = (members, np.repeat(low, len(members)), np.repeat(high, len(members)))
        rows = stack.rows(*at)
        planes = {m: stack.planes(m, *at) for m in group.version.measures}
        _compare_answered(stack, at, rows, planes)
        for member in members:
            for place, key in enumerate(stack.keys[0].to_pylist()):
                found = _plain(group, int(member), key, slices[start:end])
                assert rows[member, place] == sum(one[0] for one in found)
                for index, measure in enumerate(group.version.measures):
                    mine = planes[measure]
                    assert mine is not None
                    values = [p[member, place] for p in mine] or [rows[member, place]]
                    expected = [one[1][index] for one in found]
                    if measure.kind == "max":
                        assert not expected or values[0] == max(e[0] for e in expected)
                    else:
                        assert sum(v * 2.0 ** (32 * i) for i, v in enumerate(values)) == sum(
                            v * 2.0 ** (32 * i) for e in expected for i, v in enumerate(e)
                        )


def _compare_answered(
    stack: Stack,
    at: tuple[np.ndarray, np.ndarray, np.ndarray],
    rows: np.ndarray,
    planes: dict[Measure, list[np.ndarray] | None],
) -> None:
    """What compiled loops find where there are rows is what the matrices have there."""
    sums = [m for m in stack.measures if m.kind in ("count", "sum") and m.argument == VALUE]
    found = stack.answered(sums, *at)
    runs = stack.group.label_runs
    if not runs.single and runs.few_runs and (runs.run_count > 1).any():
        assert found is None
        return
    assert found is not None
    window, key = np.nonzero(rows)
    assert found.counts.tolist() == np.count_nonzero(rows, axis=1).tolist()
    assert found.keys.tolist() == key.tolist()
    assert found.rows.tolist() == rows[window, key].tolist()
    for measure, mine in zip(sums, found.planes, strict=True):
        assert [plane.tolist() for plane in mine] == [plane[window, key].tolist() for plane in planes[measure] or []]
    # A double has no running sums.
    assert stack.answered(stack.measures, *at) is None


def _plain(group: Group, member: int, key: int, slices: list[Cells]) -> list[tuple[int, list[tuple[float, ...]]]]:
    """The cells of a member and key: rows, and the planes of every measure."""
    found = []
    for cells in slices:
        keys = cells.keys[0].to_pylist()
        for place in range(len(cells)):
            mine = bool(group.labels[member, cells.label[place]]) and keys[cells.key[place]] == key
            if mine:
                partials = [
                    (cells.rows[place],) if p is None else tuple(plane[place] for plane in p) for p in cells.partials
                ]
                found.append((int(cells.rows[place]), partials))
    return found


def test_counts_beyond_32_bits_are_exact() -> None:
    group = Group(version_of([Member("q", 0, Leaf(Attribute(VALUE, "integer"), ((0, 5),)), SIZE, (), None, ())], ()))
    stack = Stack.empty(group)
    # Running sums wrap around in 32 bits long before a window has so many rows.
    for number in range(8):
        cells = Cells((), np.array([1 << 30]), (), None)
        stack.push((number, number + 1, None), [cells], stack.numbers([cells]))
        if number in (2, 3):
            stack.drop_below(number)
        low = len(stack.slices) - 1
        one = [np.array([place]) for place in (0, low, low + 1)]
        assert stack.rows(*one).tolist() == [[1 << 30]]
        whole = [np.array([place]) for place in (0, 0, low + 1)]
        assert stack.rows(*whole).tolist() == [[(low + 1) << 30]]


def test_memory_that_is_given_back_is_used_again_where_it_fits() -> None:
    spare = Spare(limit=10_000, least=1000)
    first = spare.take((10, 10, 4), np.int64)
    assert (first.shape, first.dtype) == ((10, 10, 4), np.int64)
    address = first.ctypes.data
    spare.give(first)
    assert spare.take((1000, 1, 1), np.int64).ctypes.data != address, "too small"
    assert spare.take((1, 10, 4), np.int32).ctypes.data != address, "far too large"
    again = spare.take((20, 10, 3), np.int32)
    assert (again.shape, again.ctypes.data) == ((20, 10, 3), address)
    spare.give(again)
    spare.give(spare.take((10, 120, 1), np.int64))
    assert spare.take((10, 10, 4), np.int64).ctypes.data != address, "only so much is kept"
    small = spare.take((10, 1, 1), np.int64)
    spare.give(small)
    assert not any(np.shares_memory(small, one) for one in spare._free), "small pieces are not worth it"


def test_sums_beyond_64_bits_are_exact() -> None:
    rng = random.Random(1)
    group = Group(
        version_of([Member("q", 0, Leaf(Attribute(VALUE, "integer"), ((0, 5),)), SIZE, AGGREGATES, None, ())], ())
    )
    stack = Stack.empty(group)
    huge = 2**62
    for number in range(6):
        partials = tuple((np.array([huge + number]),) if m.kind == "sum" and m.argument == VALUE else None
                         if m.kind == "count" else (np.array([float(rng.randint(0, 3))]),) if m.argument == RATIO
                         else (np.array([1]),) for m in group.version.measures)  # fmt: skip
        cells = Cells((), np.array([1]), partials, None)
        stack.push((number, number + 1, None), [cells], stack.numbers([cells]))
    total = next(m for m in group.version.measures if m.kind == "sum" and m.argument == VALUE)
    window = stack.planes(total, np.array([0]), np.array([0]), np.array([6])) or []
    assert sum(int(plane[0, 0]) << (32 * limb) for limb, plane in enumerate(window)) == 6 * huge + 15
