"""Rows kept for answers, against brute force: random rows, members, chunks, groups with different keys, lateness.

chunks      |--0--|--1--|--2--|          one row table for all of them and for all groups
slices      …closed | open …             rows of slices that no open window contains are not kept
answers     rows of (member, slice) = the rows its selection picks, in the order they came
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millstream.kernels import bucket, ingest
from millstream.kernels import merge as merging
from millstream.kernels.answering import Due, Fired
from millstream.kernels.bucket import Cells
from millstream.kernels.dense import lay_out
from millstream.kernels.fire import Piece, fire
from millstream.kernels.group import Group
from millstream.kernels.ingest import SliceCells, Tally, slice_cells
from millstream.kernels.merge import merge
from millstream.kernels.rows import RowTable, number_cells, order_by_cell, read_rows, rows_at, selected_rows
from millstream.model import codec
from millstream.model.expression import Column
from millstream.model.group import Member
from millstream.model.query import Aggregate, WindowSpec
from millstream.model.selection import EVERYTHING, NOTHING, AllOf, AnyOf, Attribute, Leaf, Selection
from millstream.model.types import INTEGER, LONG, STRING, TIMESTAMP, DataType

from .plain import ColumnsOnly, batch_of, is_true, plain_outputs, version_of

TYPES: dict[str, DataType] = {"id": LONG, "i": INTEGER, "s": STRING, "v": LONG, "time": TIMESTAMP}
COLUMNS = {name: Column(name, type_) for name, type_ in TYPES.items()}
# Before the row table in the file: its place is not always its beginning.
BEFORE = b"12345678" * 8
END = 2**62

Row = dict[str, Any]


def _rows(rng: random.Random, count: int, first: int) -> list[Row]:
    return [
        {
            "id": first + i,
            "i": rng.choice([None, *range(5)]),
            "s": rng.choice([None, "", "a", "é", "ab"]),
            "v": rng.choice([None, rng.randint(0, 9), rng.randint(0, 2**40)]),
            "time": 100 + (first + i) // 4 - rng.choice([0, 0, 0, 3, 30]),
        }
        for i in range(count)
    ]


def _table(rows: list[Row]) -> pa.Table:
    def column(name: str, type_: DataType) -> pa.Array:
        plain = pa.int64() if name == "time" else type_.arrow
        return pa.array([row[name] for row in rows], plain).cast(type_.arrow)

    return pa.table({name: column(name, type_) for name, type_ in TYPES.items()})


def _selection(rng: random.Random, depth: int = 2) -> Selection:
    if depth and rng.random() < 0.4:
        items = tuple(_selection(rng, depth - 1) for _ in range(rng.randint(0, 2)))
        return rng.choice([AllOf, AnyOf])(items)
    low, high = sorted(rng.sample(range(8), 2))
    ranges: Any = rng.choice([((low, None),), ((None, low),), ((None, low), (high, None)), ((low, high),)])
    return Leaf(Attribute(COLUMNS[rng.choice("iv")], "integer"), ranges, rng.random() < 0.3)


def _member(rng: random.Random, number: int, keys: tuple[Column, ...]) -> Member:
    size = rng.randint(1, 12)
    slide = rng.randint(1, size)
    window = WindowSpec(size, slide, rng.randrange(slide))
    counts = Aggregate("count", None, LONG)
    aggregates = (rng.choice([counts, counts, Aggregate("sum", COLUMNS["v"], LONG)]),)
    asked = tuple(rng.sample(sorted(TYPES), rng.randint(0, 3)))
    outputs = plain_outputs(keys, aggregates)
    return Member(f"q{number}", number, _selection(rng), window, aggregates, None, outputs, columns=asked)


def _group(rng: random.Random) -> Group:
    keys = tuple(COLUMNS[name] for name in rng.sample(["i", "s", "v"], rng.choice([0, 1, 1, 2])))
    return Group(version_of([_member(rng, i, keys) for i in range(rng.randint(1, 5))], keys))


Slices = dict[tuple[int, int, int], Cells]


def _file(groups: list[Group], chunks: list[list[Row]], watermark: int | None) -> tuple[pa.Buffer, pa.Table, Slices]:
    """What a task makes of its chunks: a file's bytes, its row table, and by (group, slice) the cells read back."""
    kept = RowTable(sorted({name for group in groups for name in group.row_columns}))
    found: dict[tuple[int, int, int], list[Cells]] = {}
    for rows in chunks:
        table = _table(rows)
        slices = [(n, s) for n, g in enumerate(groups) for s in slice_cells(g, batch_of(table), watermark, Tally())]
        assert all((one.rows is None) == (not groups[n].has_rows) for n, one in slices)
        indexes = iter(kept.add(table, [one.rows for _, one in slices if one.rows is not None]))
        for n, one in slices:
            cells = replace(one.cells, index=next(indexes)) if one.rows is not None else one.cells
            found.setdefault((n, one.start, one.end), []).append(cells)
    encoded = kept.encode()
    file = pa.py_buffer(BEFORE + (b"" if encoded is None else encoded.to_pybytes()))
    place = (len(BEFORE), len(file) - len(BEFORE))
    read = {at: _through_bytes(groups[at[0]], parts, place) for at, parts in found.items()}
    return file, _table([]) if encoded is None else read_rows(file, place), read


def _through_bytes(group: Group, parts: list[Cells], place: tuple[int, int]) -> Cells:
    cells = merge(parts, group.version.measures, group.full_labels)
    data = bucket.encode(replace(cells, place=place if group.has_rows else None))
    plain = bucket.decode(data, len(group.version.measures))
    assert plain.index is None
    assert plain.place is None
    read = bucket.decode(data, len(group.version.measures), index=True)
    assert read.place == (place if group.has_rows else None)
    return read


def _in_slices(group: Group, chunks: list[list[Row]], watermark: int | None) -> dict[tuple[int, int], list[Row]]:
    """The rows of open slices, in the order they came."""
    found: dict[tuple[int, int], list[Row]] = {}
    for row in (row for rows in chunks for row in rows):
        start = int(group.slicer.starts(np.array([row["time"]]))[0])
        if watermark is None or group.last_end(start) > watermark:
            found.setdefault((start, group.slicer.end(start)), []).append(row)
    return found


def _wanted(group: Group, row: Row) -> bool:
    return any(is_true(member.selection, row) for member in group.version.members)


@pytest.mark.parametrize("seed", range(300))
def test_random_rows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    if rng.random() < 0.4:
        monkeypatch.setattr(ingest, "DENSE_CELLS", 0)
        monkeypatch.setattr(ingest, "DENSE_FACTOR", 0)
    monkeypatch.setattr(ingest, "FULL", rng.choice([0.01, 0.5, 2.0]))
    monkeypatch.setattr(ingest, "ALONE", rng.choice([0.0, 0.5, 1e9]))
    monkeypatch.setattr(merging, "CROWDED", rng.choice([0.0, 1.0, 1e9]))
    groups = [_group(rng) for _ in range(rng.randint(1, 3))]
    counts = [rng.choice([0, 1, 8, 60]) for _ in range(rng.randint(1, 4))]
    chunks = [_rows(rng, count, sum(counts[:n])) for n, count in enumerate(counts)]
    watermark = rng.choice([None, 90, 105, 10**6])
    _, table, slices = _file(groups, chunks, watermark)

    kept: set[int] = set()
    for n, group in enumerate(groups):
        expected = _in_slices(group, chunks, watermark)
        assert set(slices_of(slices, n)) == {
            at for at, rows in expected.items() if any(_wanted(group, r) for r in rows)
        }
        if not group.has_rows:
            assert all(cells.index is None for cells in slices_of(slices, n).values())
            continue
        assert not group.by_query
        kept.update(row["id"] for rows in expected.values() for row in rows if _wanted(group, row))
        for at, cells in slices_of(slices, n).items():
            for member in group.version.members:
                got = selected_rows(group, member.query, cells, table, member.columns)
                rows = [row for row in expected[at] if is_true(member.selection, row)]
                assert got.num_rows == len(rows)
                assert got == _table(rows).select(list(member.columns)), (seed, n, at, member)
    every = [row for rows in chunks for row in rows if row["id"] in kept]
    if every:
        assert table == _table(every).select(table.column_names), "the table has every wanted row, once, as it came"
    else:
        assert table.num_rows == 0


def test_rows_that_are_cells_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is counted or ordered; a combination may occur several times, and neighbours need no positions."""
    rng = random.Random(5)
    member = Member("q0", 0, EVERYTHING, WindowSpec(12, 12), (), None, (), columns=("i",))
    group = Group(version_of([member], (COLUMNS["i"],)))
    chunks = [_rows(rng, 40, 0), _rows(rng, 40, 40)]
    found = {}
    # Counted from the beginning, never, and after chunks of single rows have been brought together.
    for alone, crowded in ((0.0, 1e9), (1e9, 1e9), (1e9, 0.0)):
        monkeypatch.setattr(ingest, "ALONE", alone)
        monkeypatch.setattr(merging, "CROWDED", crowded)
        _, table, slices = _file([group], chunks, None)
        for (_, start, _), cells in slices.items():
            assert cells.by_row is (alone > 0) or not crowded, "what is in one chunk alone stays as it is"
            if cells.by_row:
                assert len(cells) == len(cells.index if cells.index is not None else ())
            rows = selected_rows(group, "q0", cells, table, ("i",))
            counted = lay_out([(cells, np.arange(cells.key_count))], 1, cells.key_count, ()).rows[0]
            by_key = dict(zip(cells.keys[0].to_pylist(), counted.tolist(), strict=True))
            found[alone, crowded, start] = rows, {key: rows for key, rows in by_key.items() if rows}
        assert any(not cells.by_row for cells in slices.values()) is (alone == 0 or not crowded)
    starts = {start for _, _, start in found}
    assert len(starts) > 1
    for start in starts:
        assert found[0.0, 1e9, start] == found[1e9, 1e9, start] == found[1e9, 0.0, start]
    ordered = Cells.of_rows((pa.array([1, 2]),), np.array([0, 1, 0]), np.array([0, 0, 0]), np.array([7, 8, 9]))
    apart = replace(ordered, index=np.array([7, 9, 8]))
    sizes = []
    for cells in (ordered, apart):
        data = bucket.encode(replace(cells, place=(0, 1)))
        read = bucket.decode(data, 0, index=True)
        assert read.by_row
        assert read.index is not None
        assert cells.index is not None
        assert (read.index.tolist(), read.rows.tolist()) == (cells.index.tolist(), [1, 1, 1])
        sizes.append(len(data))
    assert sizes[0] < sizes[1]


def slices_of(slices: Slices, group: int) -> dict[tuple[int, int], Cells]:
    return {(start, end): cells for (n, start, end), cells in slices.items() if n == group}


@pytest.mark.parametrize("seed", range(100))
def test_sums_are_those_of_buckets_without_rows(seed: int) -> None:
    rng = random.Random(seed)
    group = _group(rng)
    plain = Group(replace(group.version, members=tuple(replace(m, columns=()) for m in group.version.members)))
    chunks = [_rows(rng, 40, 0), _rows(rng, 40, 40)]
    watermark = rng.choice([None, 105])
    answers = []
    for one in (group, plain):
        slices = slices_of(_file([one], chunks, watermark)[2], 0)
        pieces = [Piece(one, start, end, watermark, cells) for (start, end), cells in slices.items()]
        due = [Due(member, -END, END, None) for member in one.version.members]
        answers.append(_answers(fire(due, pieces, TIMESTAMP, ColumnsOnly())))
    assert answers[0] == answers[1]


def _answers(fired: Fired) -> list[str]:
    rows = []
    for part in fired.parts:
        for found in part.ranges:
            columns = [column.slice(found.first, found.rows).to_pylist() for column in part.columns]
            rows += [repr((found.query, found.end, values)) for values in zip(*columns, strict=True)]
    return sorted(rows)


def test_many_groups_keep_a_row_once() -> None:
    """Four join attributes: four indexes that refer to the same rows."""
    keys = [(), (COLUMNS["i"],), (COLUMNS["s"],), (COLUMNS["s"], COLUMNS["v"])]
    groups = [Group(version_of([_simple("q", EVERYTHING, ("id", "s"))], key)) for key in keys]
    rows = _rows(random.Random(3), 100, 0)
    file, table, slices = _file(groups, [rows[:50], rows[50:]], None)
    assert table.column_names == ["id", "s"]
    assert table.column("id").to_pylist() == [row["id"] for row in rows]
    assert len(file) < 1.5 * len(_file(groups[:1], [rows[:50], rows[50:]], None)[0])
    for n, group in enumerate(groups):
        found = [selected_rows(group, "q", cells, table, ("id",)) for cells in slices_of(slices, n).values()]
        assert sorted(pa.concat_tables(found).column("id").to_pylist()) == list(range(100))


def _simple(query: str, selection: Selection, columns: tuple[str, ...]) -> Member:
    return Member(query, 0, selection, WindowSpec(10, 10), (), None, (), columns=columns)


def test_runs_hold_the_rows_of_their_cell_in_ascending_order() -> None:
    low = Leaf(Attribute(COLUMNS["i"], "integer"), ((None, 3),))
    members = [_simple("low", low, ("id",)), replace(_simple("all", EVERYTHING, ("id",)), slot=1)]
    group = Group(version_of(members, (COLUMNS["s"],)))
    rows = _rows(random.Random(5), 300, 0)
    _, table, slices = _file([group], [rows[:100], rows[100:250], rows[250:]], None)
    for cells in slices.values():
        assert cells.index is not None
        ends = np.cumsum(cells.rows)
        assert len(cells.index) == ends[-1]
        for key, label, end, count in zip(cells.key, cells.label, ends, cells.rows, strict=True):
            run = cells.index[end - count : end]
            assert (np.diff(run) > 0).all()
            for row in (rows[i] for i in table.column("id").take(pa.array(run)).to_pylist()):
                assert row["s"] == cells.keys[0][int(key)].as_py()
                assert list(group.labels[:, label]) == [is_true(m.selection, row) for m in members]


def test_a_query_that_selects_nothing_or_is_not_there_has_no_rows() -> None:
    members = [_simple("none", NOTHING, ("id",)), replace(_simple("all", EVERYTHING, ("v",)), slot=1)]
    group = Group(version_of(members, (COLUMNS["i"],)))
    _, table, slices = _file([group], [_rows(random.Random(1), 20, 0)], None)
    for cells in slices.values():
        for query in ("none", "somebody else"):
            found = selected_rows(group, query, cells, table, ("v", "id"))
            assert found.num_rows == 0
            assert found.schema == _table([]).select(["v", "id"]).schema


def test_rows_of_a_bucket_read_without_its_index_cannot_be_selected() -> None:
    group = Group(version_of([_simple("q", EVERYTHING, ("id",))], ()))
    (found,) = slice_cells(group, batch_of(_table(_rows(random.Random(1), 4, 40))[:1]), None, Tally())
    assert isinstance(found, SliceCells)
    assert found.rows is not None
    with pytest.raises(ValueError, match="without its index"):
        selected_rows(group, "q", found.cells, _table([]), ("id",))


def test_rows_without_columns_still_count() -> None:
    table = _table(_rows(random.Random(1), 9, 0))
    assert rows_at(table, np.array([1, 4, 8]), ()).num_rows == 3


def test_schemas_of_chunks_may_differ_in_what_is_not_type() -> None:
    kept = RowTable(["a"])
    strict = pa.schema([pa.field("a", pa.int64(), nullable=False)], metadata={"from": "elsewhere"})
    kept.add(pa.table({"b": ["x"], "a": [1]}), [np.array([0])])
    (index,) = kept.add(pa.table([[2, 3]], schema=strict), [np.array([1])])
    encoded = kept.encode()
    assert index.tolist() == [1]
    assert encoded is not None
    assert read_rows(encoded, (0, len(encoded))).to_pydict() == {"a": [1, 3]}


@pytest.mark.parametrize("span", [1, 2, 100, 2**16, 2**25, 2**50, 2**62])
@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_order_is_that_of_a_stable_sort(span: int, count: int) -> None:
    cells = np.random.default_rng(7).integers(0, span, count) // 3 * 3
    assert (order_by_cell(cells, span) == np.argsort(cells, kind="stable")).all()
    used, number, order = number_cells(cells, span)
    expected, inverse = np.unique(cells, return_inverse=True)
    assert (used == expected).all()
    assert (number == inverse).all()
    assert (order == np.argsort(cells, kind="stable")).all()


def test_members_with_columns_go_through_text() -> None:
    member = _simple("q", EVERYTHING, ("id", "s"))
    assert codec.loads(codec.dumps(member)) == member
    assert "columns" not in codec.dumps(replace(member, columns=()))
