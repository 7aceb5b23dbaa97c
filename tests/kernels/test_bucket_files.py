"""Files of buckets as a task writes them: a row table where rows are kept, then the buckets of all groups."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.config.limits import Limits
from millstream.errors import SourceError
from millstream.kernels import bucket
from millstream.kernels.bucket import Cells
from millstream.kernels.evaluate import Evaluated
from millstream.kernels.rows import read_rows, selected_rows
from millstream.model import codec
from millstream.model.expression import Call, Column, Expression
from millstream.model.group import GroupVersion, Member, measures_of
from millstream.model.plan import BatchResult
from millstream.model.query import Aggregate, WindowSpec
from millstream.model.selection import AllOf, Attribute, Leaf, attributes
from millstream.model.stream import Field, Stream
from millstream.model.types import LONG, STRING, TIMESTAMP
from millstream.runtime import admitting, worker
from millstream.runtime.admitting import GATHERED_BYTES, GATHERED_TEXTS, gathered, rows_together
from millstream.runtime.home import Home
from millstream.runtime.loading import load_group
from millstream.runtime.worker import IngestTask, needed_columns, run_ingest, unread_times
from millstream.sources.chunk import CHUNK_ROWS, Chunk, Origin, Unread
from millstream.sources.splits import FileSplit, read_split

IntArray = npt.NDArray[np.int64]
FIELDS = (Field("time", TIMESTAMP), Field("user", LONG), Field("pack", LONG), Field("note", STRING), Field("x", LONG))
STREAM = Stream("s", FIELDS, "time", 0)
USER, PACK = Column("user", LONG), Column("pack", LONG)
WINDOW = WindowSpec(10, 5)


def _member(slot: int, least: int, columns: tuple[str, ...]) -> Member:
    selection = Leaf(Attribute(PACK, "integer"), ((least, None),))
    return Member(f"q{slot}", slot, selection, WINDOW, (Aggregate("count", None, LONG),), None, (), columns=columns)


def _version(group: str, keys: tuple[Expression, ...], members: tuple[Member, ...]) -> GroupVersion:
    needed = tuple(dict.fromkeys(a for m in members for a in attributes(m.selection)))
    measures = tuple(dict.fromkeys(x for m in members for a in m.aggregates for x in measures_of(a)))
    return GroupVersion(group, 1, "s", keys, needed, measures, members)


BY_USER = _version("g0", (USER,), (_member(0, 3, ("user", "note")), _member(1, 6, ("user",))))
BY_PACK = _version("g1", (PACK,), (_member(2, 5, ("pack", "user")),))
BY_BOTH = _version("g2", (Call("Add", (USER, PACK), LONG),), (_member(3, 4, ("pack",)),))
SUMS = _version("g3", (USER,), (_member(4, 0, ()), _member(5, 9, ())))


def _task(home: Path, versions: tuple[GroupVersion, ...], watermark: int | None = None) -> IngestTask:
    place = Home(str(home), durable=False)
    place.create()
    paths = []
    for version in versions:
        (home / f"{version.group}.json").write_text(codec.dumps(version), encoding="utf-8")
        paths.append(f"{version.group}.json")
    return IngestTask(place, STREAM, 7, watermark, 0, tuple(paths))


def _rows(seed: int, count: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "time": rng.choice([None, *range(40)]) if i % 5 == 0 else i % 40,
            "user": rng.choice([None, 1, 2, 3]),
            "pack": rng.choice([None, *range(10)]),
            "note": f"{seed}/{i}",
            "x": i,
        }
        for i in range(count)
    ]


def _chunk(rows: list[dict[str, Any]]) -> Chunk:
    columns = {f.name: pa.array([row[f.name] for row in rows], pa.int64() if f.type.kind != "string" else pa.string())
               for f in FIELDS}  # fmt: skip
    columns["time"] = columns["time"].cast(TIMESTAMP.arrow)
    return Chunk(pa.table(columns), None, Origin("test", 0))


CHUNKS = [_rows(0, 50), _rows(1, 80)]


def _ingest(home: Path, *versions: GroupVersion, watermark: int | None = None) -> tuple[IngestTask, BatchResult]:
    task = _task(home, versions, watermark)
    return task, run_ingest(task, [_chunk(rows) for rows in CHUNKS])


def _buckets(task: IngestTask, result: BatchResult) -> tuple[pa.Buffer, list[tuple[str, int, Cells]]]:
    (file,) = result.files
    data = task.home.read(file.path)
    found = [(b.group, b.start, bucket.decode(data.slice(b.offset, b.length), 0, index=True)) for b in file.buckets]
    return data, found


@pytest.mark.parametrize("watermark", [None, 22])
def test_a_file_has_one_row_table_for_all_groups(tmp_path: Path, watermark: int | None) -> None:
    versions = (BY_USER, SUMS, BY_PACK, BY_BOTH)
    task, result = _ingest(tmp_path, *versions, watermark=watermark)
    data, buckets = _buckets(task, result)
    places = {cells.place for group, _, cells in buckets if group != SUMS.group}
    assert all(cells.index is None and cells.place is None for group, _, cells in buckets if group == SUMS.group)
    assert len(places) == 1
    (place,) = places
    assert place is not None
    assert place[0] == 0
    assert result.files[0].buckets[0].offset == place[1]
    table = read_rows(data, place)
    assert table.column_names == ["note", "pack", "user"]

    groups = {version.group: load_group(task.home, path) for version, path in zip(versions, task.versions, strict=True)}
    # The windows that contain a slice [start, start + 5) end at start + 5 and start + 10.
    open_rows = [
        row
        for rows in CHUNKS
        for row in rows
        if row["time"] is not None and (watermark is None or row["time"] // 5 * 5 + 10 > watermark)
    ]
    kept = [row for row in open_rows if row["pack"] is not None and row["pack"] >= 3]
    assert table.to_pylist() == [{name: row[name] for name in table.column_names} for row in kept]
    for name, start, cells in buckets:
        for member in groups[name].version.members if groups[name].has_rows else ():
            least = member.selection.ranges[0][0]  # type: ignore[union-attr]
            expected = [row for row in kept if row["pack"] >= least and row["time"] // 5 * 5 == start]
            got = selected_rows(groups[name], member.query, cells, table, ("note",))
            assert got.column("note").to_pylist() == [row["note"] for row in expected]


def test_a_file_without_kept_rows_has_no_row_table(tmp_path: Path) -> None:
    task, result = _ingest(tmp_path, SUMS)
    _, buckets = _buckets(task, result)
    assert result.files[0].buckets[0].offset == 0
    assert all(cells.place is None for _, _, cells in buckets)


def test_another_join_attribute_adds_an_index_and_no_rows(tmp_path: Path) -> None:
    same_rows = _version("g5", (PACK,), BY_USER.members)
    sizes = []
    for versions in ((BY_USER,), (BY_USER, same_rows)):
        task, result = _ingest(tmp_path, *versions)
        _, buckets = _buckets(task, result)
        sizes.append({cells.place for _, _, cells in buckets})
    assert sizes[0] == sizes[1]


def test_nothing_wanted_is_no_file(tmp_path: Path) -> None:
    assert _ingest(tmp_path, _version("g6", (USER,), (_member(0, 100, ("note",)),)))[1].files == ()


def test_the_columns_that_rows_keep_are_read(tmp_path: Path) -> None:
    assert needed_columns(_task(tmp_path, (BY_PACK,))) == ["time", "user", "pack"]
    assert needed_columns(_task(tmp_path, (BY_USER,))) == ["time", "user", "pack", "note"]
    assert needed_columns(_task(tmp_path, (SUMS,))) == ["time", "user", "pack"]


@pytest.mark.parametrize("watermark", [None, 22])
def test_chunks_put_together_give_the_same_cells_as_chunks_one_by_one(tmp_path: Path, watermark: int | None) -> None:
    task = _task(tmp_path, (BY_USER, SUMS, BY_PACK, BY_BOTH), watermark)
    found = []
    for most_rows in (0, 60, CHUNK_ROWS):
        chunks = [_chunk(rows[first : first + 30]) for rows in CHUNKS for first in range(0, len(rows), 30)]
        result = run_ingest(replace(task, gathered_rows=most_rows), chunks)
        data, buckets = _buckets(task, result)
        (place,) = {cells.place for _, _, cells in buckets if cells.place}
        dead = (tmp_path / result.rejects[0]).read_text()
        figures = (result.rows, result.late_rows, result.max_time, result.rejected_rows)
        cells = {(group, start): _content(cells) for group, start, cells in buckets}
        found.append((read_rows(data, place).to_pylist(), cells, dead, figures))
    assert found[0] == found[1] == found[2]


WANTS_TIMES = _version(
    "g10",
    (Column("time", TIMESTAMP),),
    (replace(_member(6, 0, ()), selection=Leaf(Attribute(PACK, "integer"), ((0, None),))),),
)


def _timed_file(folder: Path) -> tuple[FileSplit, list[int]]:
    """
    slices of 5    |--0--|--5--|--10--|--15--|--20--|
    row groups     . ..    . .   . .. . .  .  .. .        of 20 rows: within a slice, or across an edge
    """
    rng = random.Random(5)
    times = sorted(rng.randrange(25) for _ in range(400))
    rows = [{**row, "time": time} for row, time in zip(_rows(2, 400), times, strict=True)]
    pq.write_table(_chunk(rows).table, folder / "rows.parquet", row_group_size=20)
    return FileSplit(str(folder / "rows.parquet"), "parquet"), times


def _of_group(result: BatchResult, group: str) -> list[tuple[Any, ...]]:
    buckets = (b for file in result.files for b in file.buckets if b.group == group)
    return [(b.start, b.end, b.cells, b.length, b.checksum) for b in buckets]


@pytest.mark.parametrize("gathered", [0, 70, CHUNK_ROWS])
@pytest.mark.parametrize("watermark", [None, 12, 15, 30])
def test_times_that_stay_unread_change_nothing(tmp_path: Path, watermark: int | None, gathered: int) -> None:
    split, times = _timed_file(tmp_path)
    task = replace(_task(tmp_path, (SUMS, BY_USER, BY_BOTH), watermark), gathered_rows=gathered)
    wanted = needed_columns(task)
    found = []
    for unread in (unread_times(task), Unread("time", lambda low, high: False)):
        chunks = list(read_split(split, FIELDS, wanted, unread))
        result = run_ingest(task, chunks)
        figures = (result.rows, result.late_rows, result.late_by_query, result.max_time, result.rejected_rows)
        spared = [chunk.span is not None for chunk in chunks]
        found.append((spared, figures, [_of_group(result, g) for g in ("g3", "g0", "g2")], sum(result.figures.delays)))
    assert found[0][1:] == found[1][1:]
    groups = [times[first : first + 20] for first in range(0, 400, 20)]
    late = watermark if watermark is not None else 0
    assert found[0][0] == [mine[0] // 5 == mine[-1] // 5 and mine[0] >= late for mine in groups]
    assert any(found[0][0]) is (watermark != 30)


def test_a_batch_that_is_ingested_again_without_those_who_need_times_gives_the_same_bytes(tmp_path: Path) -> None:
    split, _ = _timed_file(tmp_path)
    found = []
    for versions in ((SUMS, WANTS_TIMES), (SUMS,)):
        task = _task(tmp_path, versions)
        chunks = list(read_split(split, FIELDS, needed_columns(task), unread_times(task)))
        assert any(chunk.span for chunk in chunks) is (versions == (SUMS,))
        found.append(_of_group(run_ingest(task, chunks), SUMS.group))
    assert found[0] == found[1] != []


def test_the_same_rows_give_the_same_bytes_whatever_the_memory_held(tmp_path: Path) -> None:
    """Keys and kept rows with NULLs; what stands under them is nobody's business."""
    task = _task(tmp_path, (BY_USER, SUMS))
    found = []
    for under in (0, 255):
        table = _chunk(CHUNKS[0]).table
        columns = {name: _with_bytes_under_nulls(table[name].combine_chunks(), under) for name in table.column_names}
        result = run_ingest(task, [Chunk(pa.table(columns), None, Origin("test", 0))])
        found.append(task.home.read(result.files[0].path).to_pybytes())
    assert found[0] == found[1]


def _with_bytes_under_nulls(column: pa.Array, under: int) -> pa.Array:
    if not column.null_count or pa.types.is_string(column.type):
        return column
    data = np.frombuffer(column.buffers()[1], np.uint8).reshape(-1, 8)[: len(column)].copy()
    data[np.asarray(column.is_null())] = under
    return pa.Array.from_buffers(column.type, len(column), [column.buffers()[0], pa.py_buffer(data.tobytes())])


def test_times_have_to_be_read_where_somebody_asks_for_them(tmp_path: Path) -> None:
    asks = Leaf(Attribute(Column("time", TIMESTAMP), "integer"), ((3, None),))
    member = Member("q", 0, asks, WINDOW, (Aggregate("count", None, LONG),), None, ())
    assert unread_times(_task(tmp_path, (_version("g7", (USER,), (member,)),))) is None
    keeps = _member(0, 3, ("time",))
    assert unread_times(_task(tmp_path, (_version("g8", (USER,), (keeps,)),))) is None
    counts = replace(_member(0, 3, ()), selection=AllOf(()))
    assert unread_times(_task(tmp_path, (_version("g9", (), (counts,)),))) is None, "no other column"
    rows = _version("g11", None, (replace(_member(0, 3, ()), window=None, aggregates=()),))
    assert unread_times(_task(tmp_path, (rows,))) is None, "no window"
    assert unread_times(_task(tmp_path, (rows, SUMS))) is not None
    ahead = replace(_task(tmp_path, (SUMS,)), stream=replace(STREAM, max_skew=10), clock=100)
    unread = unread_times(ahead)
    assert unread is not None
    assert [unread.enough(*span) for span in ((105, 109), (105, 110), (110, 111), (104, 106))] == [
        True, False, False, False,
    ]  # fmt: skip


def _content(cells: Cells) -> dict[tuple[int | None, int], tuple[int, list[int]]]:
    """The rows of each key and label, and which these are."""
    content: dict[tuple[int | None, int], tuple[int, list[int]]] = {}
    keys, end = cells.keys[0].to_pylist(), 0
    for key, label, rows in zip(cells.key, cells.label, cells.rows, strict=True):
        if rows:
            mine = [] if cells.index is None else cells.index[end : end + rows].tolist()
            count, before = content.get((keys[key], int(label)), (0, []))
            content[keys[key], int(label)] = (count + int(rows), before + mine)
        end += rows
    return content


def test_chunks_are_put_together_up_to_a_number_of_rows() -> None:
    read: list[int] = []

    def pieces(counts: list[int]) -> Iterator[tuple[pa.Table, IntArray]]:
        for n in counts:
            read.append(n)
            yield pa.table({"n": pa.array(range(n), pa.int64())}), np.arange(n)

    def sizes(counts: list[int], most_rows: int) -> list[list[int]]:
        return [[len(times) for _, times in held] for held in gathered(pieces(counts), most_rows)]

    assert sizes([3, 0, 4, 3, 5, 20, 1], 10) == [[3, 4, 3], [5], [20], [1]]
    assert sizes([3, 4, 2], 0) == [[3], [4], [2]]
    assert sizes([0, 0], 10) == []
    read.clear()
    assert len(next(gathered(pieces([6, 4, 1]), 10))) == 2
    assert read == [6, 4], "nothing is read ahead of a full piece"


def test_how_many_rows_are_put_together_is_known_from_the_stream() -> None:
    """Not from the columns that are read: those of a repair are fewer."""
    numbers = Stream("n", FIELDS[:3], "time", 0)
    assert rows_together(STREAM, CHUNK_ROWS) == GATHERED_TEXTS < CHUNK_ROWS
    assert rows_together(numbers, CHUNK_ROWS) == CHUNK_ROWS
    assert rows_together(numbers, 7) == rows_together(STREAM, 7) == 7
    wide = Stream("w", (FIELDS[0], *(Field(f"x{i}", LONG) for i in range(63))), "time", 0)
    assert rows_together(wide, CHUNK_ROWS) == GATHERED_BYTES // 512


class Picky:
    """Computes nothing for more than so many rows, as if their values did not fit into memory."""

    def __init__(self, most_rows: int) -> None:
        self._evaluator, self._most_rows = worker.evaluator(Limits()), most_rows

    def evaluate_counted(self, table: pa.Table, expressions: Sequence[Expression]) -> list[Evaluated]:
        if table.num_rows > self._most_rows and any(isinstance(e, Call) for e in expressions):
            raise MemoryError("too many rows")
        return self._evaluator.evaluate_counted(table, expressions)

    def weigh_anew(self) -> None:
        self._evaluator.weigh_anew()


def test_an_expression_that_is_too_much_for_all_rows_together_is_tried_in_small_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = _task(tmp_path, (BY_BOTH, SUMS))
    expected = run_ingest(task, [_chunk(rows) for rows in CHUNKS])
    for most_rows, small, stopped in ((100, 1000, set()), (60, 1000, {"q3"}), (60, 50, set())):
        picky = Picky(most_rows)
        monkeypatch.setattr(admitting, "GATHERED_TEXTS", small)
        monkeypatch.setattr(worker, "evaluator", lambda *_, picky=picky: picky)
        result = run_ingest(task, [_chunk(rows) for rows in CHUNKS])
        assert set(result.broken) == stopped
        assert (result.rows, result.max_time, result.rejected_rows) == (
            expected.rows, expected.max_time, expected.rejected_rows
        )  # fmt: skip
        found, wanted = (
            {(group, start): _content(cells) for group, start, cells in _buckets(task, one)[1]}
            for one in (result, expected)
        )
        kept = [place for place in wanted if not stopped or place[0] == SUMS.group]
        assert {place: found[place] for place in kept} == {place: wanted[place] for place in kept}


def test_rows_without_a_time_are_named_by_the_chunk_they_came_with(tmp_path: Path) -> None:
    task = _task(tmp_path, (SUMS,))
    rows = [row for row in _rows(0, 50) if row["time"] is not None]
    chunks = [Chunk(_chunk([*rows, {**rows[0], "time": None}]).table, None, Origin(name, 1)) for name in ("a", "b")]
    result = run_ingest(task, [chunks[0], SourceError("BAD_FILE", "cannot read c", detail="c"), chunks[1]])
    dead = [json.loads(line) for line in (tmp_path / result.rejects[0]).read_text().splitlines()]
    last = len(rows) + 1
    assert [row["origin"] for row in dead] == [f"a:{last}", "c", f"b:{last}"]
    assert result.rows == 2 * last


def test_an_index_far_from_the_beginning_is_as_small_as_one_near_it() -> None:
    def cells(first: int) -> Cells:
        return Cells((), np.array([200]), (), None, first + np.arange(200), (8, 1_000_000))

    near, far = (bucket.encode(cells(first)) for first in (0, 2**40))
    assert abs(len(near) - len(far)) < 64
    read = bucket.decode(far, 0, index=True)
    assert read.index is not None
    assert read.index.tolist() == list(range(2**40, 2**40 + 200))
    assert read.place == (8, 1_000_000)


def test_an_index_without_a_row_table_is_refused() -> None:
    with pytest.raises(ValueError, match="place of its row table"):
        bucket.encode(Cells((), np.array([1]), (), None, np.array([0])))
