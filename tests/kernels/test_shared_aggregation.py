"""Ingest and fire together, without Spark, against brute force: random rows, queries, batches, versions and lateness.

batches     |--0--|--1--|--2--|        rows out of order, watermark after each
versions    |--v1-------|--v2-|        queries come and go between batches
answers     every query alone = every query among the others
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millstream.kernels import bucket
from millstream.kernels.answering import Due, Fired
from millstream.kernels.fire import Piece, can_keep, fire
from millstream.kernels.group import Group
from millstream.kernels.ingest import Tally, slice_cells
from millstream.kernels.merge import merge
from millstream.kernels.stack import Stack
from millstream.model.expression import Column
from millstream.model.group import Member
from millstream.model.query import Aggregate, WindowSpec
from millstream.model.selection import AllOf, AnyOf, Attribute, Leaf, Selection
from millstream.model.types import BOOLEAN, DATE, DOUBLE, INTEGER, LONG, STRING, TIMESTAMP, DataType, decimal

from .plain import ColumnsOnly, batch_of, canonical, plain_outputs, reference, version_of

pytestmark = pytest.mark.usefixtures("loops")

MONEY = decimal(10, 2)
WIDE = decimal(30, 3)
TYPES: dict[str, DataType] = {
    "i": INTEGER, "l": LONG, "d": DOUBLE, "m": MONEY, "w": WIDE, "s": STRING, "b": BOOLEAN, "t": DATE,
    "time": TIMESTAMP,
}  # fmt: skip
COLUMNS = {name: Column(name, type_) for name, type_ in TYPES.items()}
END = 2**62


def _value(rng: random.Random, name: str) -> Any:
    if rng.random() < 0.1:
        return None
    choices: dict[str, Any] = {
        "i": lambda: rng.choice([rng.randint(-3, 8), rng.randint(-(2**31), 2**31 - 1)]),
        "l": lambda: rng.choice([rng.randint(0, 9), rng.randint(-(2**63), 2**63 - 1)]),
        "d": lambda: rng.choice([rng.randint(-64, 64) / 8, math.nan, math.inf, -math.inf, -0.0] + [1.5] * 10),
        "m": lambda: Decimal(rng.randint(-(10**9), 10**9)).scaleb(-2),
        "w": lambda: Decimal(rng.randint(-(10**29), 10**29)).scaleb(-3),
        "s": lambda: rng.choice(["", "a", "ab", "b", "é", "z"]),
        "b": lambda: rng.random() < 0.5,
        "t": lambda: rng.randint(-5, 5),
    }
    return choices[name]()


def _rows(rng: random.Random, count: int, at: int) -> list[dict[str, Any]]:
    rows = []
    for i in range(count):
        row = {name: _value(rng, name) for name in TYPES if name != "time"}
        row["time"] = at + i // 3 - rng.choice([0, 0, 0, 2, 9, 40])
        rows.append(row)
    return rows


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    columns = {}
    for name, type_ in TYPES.items():
        values = [row[name] for row in rows]
        if type_.kind in ("date", "timestamp"):
            columns[name] = pa.array(values, pa.int32() if type_.kind == "date" else pa.int64()).cast(type_.arrow)
        else:
            columns[name] = pa.array(values, type_.arrow)
    return pa.table(columns)


def _leaf(rng: random.Random) -> Leaf:
    name, domain, scale, bound = rng.choice(
        [
            ("i", "integer", 0, lambda: rng.randint(-3, 8)),
            ("d", "double", 0, lambda: rng.choice([rng.randint(-64, 64) / 8, math.nan, math.inf, -math.inf])),
            ("m", "integer", 2, lambda: rng.randint(-(10**9), 10**9)),
            ("s", "string", 0, lambda: rng.choice(["a", "ab\0", "b", "é"])),
            ("b", "boolean", 0, lambda: 1),
        ]
    )
    low, high = bound(), bound()
    ranges: Any = rng.choice([((low, None),), ((None, low),), ((None, low), (high, None)), ((None, None),), ()])
    return Leaf(Attribute(COLUMNS[name], domain, scale), ranges, rng.random() < 0.2)


def _selection(rng: random.Random, depth: int = 2) -> Selection:
    if depth == 0 or rng.random() < 0.5:
        return _leaf(rng)
    items = tuple(_selection(rng, depth - 1) for _ in range(rng.randint(0, 2)))
    return rng.choice([AllOf, AnyOf])(items)


def _aggregate(rng: random.Random) -> Aggregate:
    function = rng.choice(["count", "sum", "avg", "min", "max"])
    if function == "count":
        return Aggregate("count", rng.choice([None, COLUMNS["s"], COLUMNS["d"]]), LONG)
    if function in ("min", "max"):
        name = rng.choice([n for n in TYPES if n != "time"])
        return Aggregate(function, COLUMNS[name], TYPES[name])
    name = rng.choice(["i", "d", "m", "w", "l"])
    results = {
        "sum": {"i": LONG, "l": LONG, "d": DOUBLE, "m": decimal(20, 2), "w": decimal(38, 3)},
        "avg": {"i": DOUBLE, "l": DOUBLE, "d": DOUBLE, "m": decimal(14, 6), "w": decimal(34, 7)},
    }
    return Aggregate(function, COLUMNS[name], results[function][name])


def _member(rng: random.Random, number: int, keys: tuple[Column, ...]) -> Member:
    size = rng.randint(1, 12)
    slide = rng.randint(1, size)
    window = WindowSpec(size, slide, rng.randrange(slide))
    aggregates = tuple(_aggregate(rng) for _ in range(rng.randint(0, 3)))
    return Member(f"q{number}", number, _selection(rng), window, aggregates, None, plain_outputs(keys, aggregates))


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-6)
    return bool(left == right)


def _sorted(rows: list[tuple[Any, ...]], keys: int) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda r: (r[-1], [(v is None, str(v)) for v in r[:keys]]))


def _answers(fired: Fired, query: str) -> list[tuple[Any, ...]]:
    rows = []
    for part in fired.parts:
        for found in part.ranges:
            if found.query == query:
                for i in range(found.first, found.first + found.rows):
                    rows.append(tuple(_plain(column[i]) for column in part.columns))
    return rows


def _plain(scalar: pa.Scalar) -> Any:
    if scalar.is_valid and (pa.types.is_timestamp(scalar.type) or pa.types.is_date(scalar.type)):
        return scalar.cast(pa.int64() if pa.types.is_timestamp(scalar.type) else pa.int32()).as_py()
    return canonical(scalar.as_py())


@pytest.mark.parametrize("seed", range(400))
def test_random_workload(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    # Slice by slice where rows come so, which those of every second batch do.
    monkeypatch.setattr("millstream.kernels.batch.STRETCH_ROWS", 1 + seed % 3)
    keys = tuple(COLUMNS[name] for name in rng.sample(["i", "d", "s", "b", "t", "m"], rng.choice([0, 1, 1, 2, 3])))
    members = [_member(rng, i, keys) for i in range(rng.randint(1, 6))]
    alive = [m for m in members if rng.random() < 0.7] or members[:1]
    seen: dict[str, list[tuple[dict[str, Any], int | None]]] = {m.query: [] for m in members}
    watermark: int | None = None
    pieces: list[Piece] = []
    group = Group(version_of(alive, keys))
    for number in range(rng.randint(1, 4)):
        if number and rng.random() < 0.5:
            alive = [m for m in members if rng.random() < 0.6] or members[:1]
            group = Group(version_of(alive, keys, number + 1))
        rows = _rows(rng, rng.randint(0, 40), 100 + number * 11)
        if number % 2:
            rows.sort(key=lambda row: row["time"])
        for member in alive:
            seen[member.query] += [(row, watermark) for row in rows]
        for chunk in [rows] if rng.random() < 0.5 else [rows[::2], rows[1::2]]:
            for found in slice_cells(group, batch_of(_table(chunk)), watermark, Tally()):
                stored = bucket.decode(bucket.encode(found.cells), len(group.version.measures))
                pieces.append(Piece(group, found.start, found.end, watermark, stored))
        if rng.random() < 0.3:
            pieces = _compacted(pieces, full=rng.random() < 0.5)
        times = [row["time"] for row in rows]
        watermark = max([t - 5 for t in times] + ([] if watermark is None else [watermark]), default=None)
    kept: list[Stack] = []
    if rng.random() < 0.5:
        kept, pieces = _kept(pieces)
    due = members if rng.random() < 0.5 else [m for m in members if rng.random() < 0.5]
    fired = fire([Due(m, -END, END, None) for m in due], pieces, TIMESTAMP, ColumnsOnly(), kept)
    for member in due:
        got = _sorted(_answers(fired, member.query), len(keys))
        want = _sorted(reference(member, keys, seen[member.query]), len(keys))
        assert len(got) == len(want), (seed, member)
        for mine, expected in zip(got, want, strict=True):
            assert all(_same(a, b) for a, b in zip(mine, expected, strict=True)), (seed, mine, expected, member)


def _compacted(pieces: list[Piece], full: bool) -> list[Piece]:
    """Merge pieces of the same version, slice and watermark, as a fire does."""
    found: dict[Any, list[Piece]] = {}
    for piece in pieces:
        found.setdefault((id(piece.group), piece.start, piece.end, piece.watermark), []).append(piece)
    merged = []
    for mine in found.values():
        group, contents = mine[0].group, [piece.content for piece in mine]
        cells = merge(contents, group.version.measures, group.full_labels if full else None)
        merged.append(replace(mine[0], content=cells))
    return merged


def _kept(pieces: list[Piece]) -> tuple[list[Stack], list[Piece]]:
    """Slices on stacks, as a worker keeps them for the next fire; late ones stay loose."""
    found: dict[int, dict[Any, list[Piece]]] = {}
    loose: list[Piece] = []
    for piece in pieces:
        if piece.slice[2] is None and can_keep(piece.group, 100, 1 << 20):
            found.setdefault(id(piece.group), {}).setdefault(piece.slice, []).append(piece)
        else:
            loose.append(piece)
    stacks = []
    for slices in found.values():
        group = next(iter(slices.values()))[0].group
        stack = Stack.empty(group)
        for slice_ in sorted(slices):
            parts = [piece.content for piece in slices[slice_]]
            stack.push(slice_, parts, stack.numbers(parts))
        stacks.append(stack)
    return stacks, loose


def test_a_bucket_never_has_more_cells_than_queries_or_classes_allow() -> None:
    members = [
        Member(f"q{i}", i, AnyOf((_between("i", i), _between("l", i))), WindowSpec(10, 10), (), None, ())
        for i in range(3)
    ]
    group = Group(version_of(members, (COLUMNS["b"],)))
    assert group.by_query
    table = _table(
        [{**dict.fromkeys(TYPES), "i": i % 9, "l": i % 7, "b": i % 2 == 0, "time": i % 10} for i in range(500)]
    )
    (found,) = slice_cells(group, batch_of(table), None, Tally())
    assert len(found.cells) <= len(members) * 2
    assert np.asarray(found.cells.label).max() < len(members)


def _between(name: str, low: int) -> Leaf:
    return Leaf(Attribute(COLUMNS[name], "integer"), ((low, low + 3),))


@pytest.mark.parametrize("keyed", [False, True])
def test_cells_are_added_up_in_matrices_or_by_number_to_the_same(monkeypatch: pytest.MonkeyPatch, keyed: bool) -> None:
    """Sums, extrema, counts without NULLs, and keys that not every part has; full cells where most combinations are."""
    aggregates = [("sum", "l"), ("count", "i"), ("min", "d"), ("max", "m")]
    members = [
        Member(f"q{i}", i, _between("i", i), WindowSpec(10, 10), tuple(
            Aggregate(f, COLUMNS[n], LONG if f == "count" else TYPES[n]) for f, n in aggregates
        ), None, ())
        for i in range(4)
    ]  # fmt: skip
    group = Group(version_of(members, (COLUMNS["t"],) if keyed else ()))
    rng = random.Random(7)
    chunks = [[{**row, "time": 3, "t": first + rng.randrange(4)} for row in _rows(rng, 60, 0)] for first in (0, 2)]
    parts = [slice_cells(group, batch_of(_table(rows)), None, Tally())[0].cells for rows in chunks]
    measures = group.version.measures
    full = merge(parts, measures, group.full_labels)
    sparse = merge(parts, measures)
    monkeypatch.setattr("millstream.kernels.merge.DENSE_PLACES", 0)
    numbered = merge(parts, measures)
    assert full.at is None
    assert sparse.at is not None
    assert len(full) == (group.full_labels or 0) * full.key_count
    assert _by_place(full) == _by_place(sparse) == _by_place(numbered)
    assert sum(full.rows) == sum(sum(part.rows) for part in parts)


@pytest.mark.parametrize("shuffled", [False, True])
def test_rows_that_come_slice_by_slice_give_the_same_cells(monkeypatch: pytest.MonkeyPatch, shuffled: bool) -> None:
    """
    slices     |--0--|--10--|--20--|        a window of 10
    rows       .. . .  . ..   . . .         in order of time, or in any order within a slice
    watermark           12                  the first slice is closed
    """
    aggregates = [("sum", "l"), ("count", "i"), ("min", "d"), ("max", "s"), ("sum", "w")]
    members = [
        Member(f"q{i}", i, _between("i", i), WindowSpec(10, 10), tuple(
            Aggregate(f, COLUMNS[n], LONG if f == "count" else TYPES[n]) for f, n in aggregates
        ), None, ())
        for i in range(4)
    ]  # fmt: skip
    group = Group(version_of(members, (COLUMNS["t"],)))
    rng = random.Random(3)
    rows = sorted(({**row, "time": rng.randrange(30)} for row in _rows(rng, 200, 0)), key=lambda row: row["time"])
    if shuffled:
        rows.sort(key=lambda row: (row["time"] // 10, rng.random()))
    found = []
    for least in (1, 10**6):
        monkeypatch.setattr("millstream.kernels.batch.STRETCH_ROWS", least)
        batch = batch_of(_table(rows))
        assert (batch.stretches(group.slicer) is None) == (least > 1)
        found.append([(s.start, s.end, _by_place(s.cells)) for s in slice_cells(group, batch, 12, Tally())])
    assert found[0] == found[1]
    assert [start for start, _, _ in found[0]] == [10, 20]


def test_rows_that_return_to_a_slice_are_not_taken_slice_by_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(version_of([Member("q", 0, _between("i", 0), WindowSpec(10, 10), (), None, ())], ()))
    rows = [{**dict.fromkeys(TYPES), "i": 1, "time": time} for time in (1, 11, 2)]
    assert batch_of(_table(rows[:2])).stretches(group.slicer) is None, "too few of each"
    monkeypatch.setattr("millstream.kernels.batch.STRETCH_ROWS", 1)
    assert [(s.start, s.rows) for s in batch_of(_table(rows[:2])).stretches(group.slicer) or ()] == [(0, 1), (10, 1)]
    assert batch_of(_table(rows)).stretches(group.slicer) is None
    found = slice_cells(group, batch_of(_table(rows)), None, Tally())
    assert [(s.start, int(s.cells.rows.sum())) for s in found] == [(0, 2), (10, 1)]


def test_slices_with_far_more_cells_than_rows_are_numbered_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clearing the cells of each slice would take longer than all rows do."""
    monkeypatch.setattr("millstream.kernels.batch.STRETCH_ROWS", 1)
    group = Group(version_of([Member("q", 0, _between("i", 0), WindowSpec(10, 10), (), None, ())], (COLUMNS["l"],)))
    rows = [{**dict.fromkeys(TYPES), "i": 1, "l": n, "time": n // 4} for n in range(200)]
    expected = [(s.start, _by_place(s.cells)) for s in slice_cells(group, batch_of(_table(rows)), None, Tally())]
    monkeypatch.setattr("millstream.kernels.ingest.DENSE_CELLS", 0)
    monkeypatch.setattr("millstream.kernels.ingest._slice_by_slice", None)
    found = [(s.start, _by_place(s.cells)) for s in slice_cells(group, batch_of(_table(rows)), None, Tally())]
    assert found == expected
    assert len(found) == 5


def _by_place(cells: bucket.Cells) -> dict[Any, Any]:
    """What each combination that has rows holds."""
    found = {}
    for place, rows in enumerate(cells.rows):
        if rows:
            key = tuple(column[int(cells.key[place])].as_py() for column in cells.keys)
            planes = [None if p is None else tuple(repr(plane[place]) for plane in p) for p in cells.partials]
            found[key, int(cells.label[place])] = (int(rows), tuple(planes))
    return found
