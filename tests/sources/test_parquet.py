"""Row ranges of Parquet files, type widening, and files that are no input."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import SourceError
from millstream.sources import parquet
from millstream.sources.chunk import Chunk, Unread
from millstream.sources.parquet import read_footer
from millstream.sources.schema import parse_ddl
from millstream.sources.splits import LEAST_TASK_ROWS, FileSplit, read_split, split_rows


def write(path: Path, table: pa.Table, group: int = 1000) -> str:
    pq.write_table(table, path, row_group_size=group)
    return str(path)


def read(path: str, ddl: str, first: int = 0, rows: int | None = None) -> pa.Table:
    fields = parse_ddl(ddl)
    names = [field.name for field in fields]
    chunks = list(read_split(FileSplit(path, "parquet", first, rows), fields, names))
    assert all(chunk.rejected is None for chunk in chunks)
    schema = pa.schema([(field.name, field.type.arrow) for field in fields])
    return pa.concat_tables([chunk.table for chunk in chunks]) if chunks else schema.empty_table()


@given(st.integers(0, 60), st.integers(1, 20), st.integers(0, 60), st.integers(0, 60), st.integers(1, 9))
def test_any_row_range(
    tmp_path_factory: pytest.TempPathFactory, size: int, group: int, first: int, rows: int, chunk: int
) -> None:
    table = pa.table({"i": pa.array(range(size), pa.int64())})
    path = write(tmp_path_factory.mktemp("p") / "a.parquet", table, group)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "CHUNK_ROWS", chunk)
        got = read(path, "i BIGINT", first, rows)
        assert got["i"].to_pylist() == list(range(size))[first : first + rows]
        for part in read_split(FileSplit(path, "parquet", first, rows), parse_ddl("i BIGINT"), ["i"]):
            assert [part.origin_of(k) for k in range(part.rows)] == [
                f"{path}:{v + 1}" for v in part.table["i"].to_pylist()
            ]


@given(st.integers(1, 200), st.integers(1, 40), st.integers(1, 7), st.integers(0, 1000))
def test_small_batches_go_on_where_the_last_stopped(
    tmp_path_factory: pytest.TempPathFactory, size: int, step: int, chunk: int, seed: int
) -> None:
    """One after the other, with gaps (taken by another worker), and now and then again from an earlier row."""
    draw = random.Random(seed)
    path = write(tmp_path_factory.mktemp("p") / "a.parquet", pa.table({"i": pa.array(range(size), pa.int64())}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "CHUNK_ROWS", chunk)
        for first in range(0, size, step):
            start = draw.choice([first, first, first, draw.randrange(size)])
            assert read(path, "i BIGINT", start, step)["i"].to_pylist() == list(range(size))[start : start + step]


def test_a_replaced_file_is_read_anew(tmp_path: Path) -> None:
    for shift in (0, 100_000):
        path = write(
            tmp_path / "a.parquet", pa.table({"i": pa.array(range(shift, shift + 1000 + shift), pa.int64())}), 10**6
        )
        assert read(path, "i BIGINT", 10, 2)["i"].to_pylist() == [shift + 10, shift + 11]


def test_types_widen(tmp_path: Path) -> None:
    table = pa.table(
        {
            "i": pa.array([1, None], pa.uint8()),
            "f": pa.array([1.5, None], pa.float32()),
            "p": pa.array([Decimal("1.5"), None], pa.decimal128(5, 1)),
            "n": pa.array([7, None], pa.int32()),
            "s": pa.array(["x", None], pa.large_string()),
            "c": pa.array(["x", None]).dictionary_encode(),
            "t": pa.array([-1, None], pa.timestamp("ns")),
            "m": pa.array([1, None], pa.timestamp("ms", tz="Europe/Berlin")),
            "d": pa.array([date(2026, 1, 1), None], pa.date64()),
            "u": pa.array([2**64 - 1, None], pa.uint64()),
            "z": pa.nulls(2),
        }
    )
    ddl = (
        "i BIGINT, f DOUBLE, p DECIMAL(10,2), n DOUBLE, s STRING, c STRING, t TIMESTAMP, m TIMESTAMP_NTZ, "
        "d DATE, u DECIMAL(20,0), z INT"
    )
    got = read(write(tmp_path / "a.parquet", table), ddl)
    assert got.schema.types == [field.type.arrow for field in parse_ddl(ddl)]
    assert got.slice(0, 1).to_pylist() == [
        {
            "i": 1,
            "f": 1.5,
            "p": Decimal("1.50"),
            "n": 7.0,
            "s": "x",
            "c": "x",
            "t": datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
            "m": datetime(1970, 1, 1, 0, 0, 0, 1000),
            "d": date(2026, 1, 1),
            "u": Decimal(2**64 - 1),
            "z": None,
        }
    ]
    assert set(got.slice(1).to_pylist()[0].values()) == {None}


@pytest.mark.parametrize(
    ("column", "ddl"),
    [
        (pa.array([1], pa.int64()), "x INT"),
        (pa.array([1], pa.int64()), "x DOUBLE"),
        (pa.array([1.0]), "x BIGINT"),
        (pa.array(["1"]), "x INT"),
        (pa.array([1]), "x STRING"),
        (pa.array([Decimal("1.55")], pa.decimal128(10, 2)), "x DECIMAL(10,1)"),
        (pa.array([1], pa.int32()), "x DECIMAL(9,0)"),
        (pa.array([[1]]), "x INT"),
        (pa.array([1]), "y BIGINT"),
    ],
)
def test_another_schema(tmp_path: Path, column: pa.Array, ddl: str) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"x": column}))
    with pytest.raises(SourceError) as caught:
        read(path, ddl)
    assert caught.value.code == "BAD_FILE"
    assert path in caught.value.message
    assert f"column {ddl[0]!r}" in caught.value.message
    with pytest.raises(SourceError):
        read_footer(path, parse_ddl(ddl))


def test_the_schema_of_columns_not_asked_for_counts(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"x": [1]}))
    with pytest.raises(SourceError, match="'y' is missing"):
        list(read_split(FileSplit(path, "parquet"), parse_ddl("x BIGINT, y INT"), ["x"]))


TIMED = "time TIMESTAMP, x BIGINT"
WIDE_OPEN = Unread("time", lambda low, high: True)


def _timed(*micros: int | None, unit: str = "us") -> pa.Table:
    times = pa.array(micros, pa.int64()).cast(pa.timestamp(unit, "UTC"))
    return pa.table({"time": times, "x": pa.array(range(len(micros)), pa.int64())})


def _read_timed(path: str, unread: Unread, columns: tuple[str, ...] = ("time", "x"), **split: int) -> list[Chunk]:
    return list(read_split(FileSplit(path, "parquet", **split), parse_ddl(TIMED), columns, unread))  # type: ignore[arg-type]


def test_times_stay_unread_where_their_span_is_enough(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", _timed(3, 1, 2, 14, 11, 19, 5, 25), group=3)
    asked: list[tuple[int, int]] = []

    def enough(low: int, high: int) -> bool:
        asked.append((low, high))
        return low // 10 == high // 10

    chunks = _read_timed(path, Unread("time", enough))
    assert asked == [(1, 3), (11, 19), (5, 25)]
    assert [chunk.span for chunk in chunks] == [(1, 3), (11, 19), None]
    assert [chunk.table.column_names for chunk in chunks] == [["x"], ["x"], ["time", "x"]]
    assert [chunk.table["x"].to_pylist() for chunk in chunks] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert chunks[1].origin_of(0) == f"{path}:4"


def test_files_with_bad_rows_in_place_are_read_whole(tmp_path: Path) -> None:
    marks = {name: pa.array([None, None], pa.string()) for name in (parquet.REASON, parquet.ORIGIN, parquet.RAW)}
    table = pa.table({**{name: _timed(1, 2)[name] for name in ("time", "x")}, **marks})
    path = write(tmp_path / "a.parquet", table.replace_schema_metadata({parquet.MARKED: b"1"}))
    assert [chunk.span for chunk in _read_timed(path, WIDE_OPEN)] == [None]


@pytest.mark.parametrize(
    ("table", "options"),
    [
        pytest.param(_timed(1, None, 3), {}, id="a missing time"),
        pytest.param(_timed(1, 2, 3), {"write_statistics": False}, id="nothing noted"),
        pytest.param(_timed(1, 2, 3, unit="ms"), {}, id="another unit"),
        pytest.param(_timed(1000, 2000, 3000, unit="ns"), {"use_deprecated_int96_timestamps": True}, id="96 bits"),
    ],
)
def test_times_are_read_where_their_span_is_not_known(tmp_path: Path, table: pa.Table, options: dict[str, Any]) -> None:
    pq.write_table(table, tmp_path / "a.parquet", **options)
    (chunk,) = _read_timed(str(tmp_path / "a.parquet"), WIDE_OPEN)
    assert (chunk.span, chunk.table.column_names, chunk.rows) == (None, ["time", "x"], 3)


def test_times_are_read_of_parts_of_a_row_group_and_where_nothing_else_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest time of some rows is not that of all; and rows are counted by a column."""
    path = write(tmp_path / "a.parquet", _timed(*range(10)), group=10)
    for split in ({"rows": 9}, {"first_row": 1}, {"first_row": 7, "rows": 2}):
        assert [chunk.span for chunk in _read_timed(path, WIDE_OPEN, **split)] == [None]
    assert [chunk.span for chunk in _read_timed(path, WIDE_OPEN, columns=("time",))] == [None]
    assert [chunk.span for chunk in _read_timed(path, WIDE_OPEN, rows=10)] == [(0, 9)]
    monkeypatch.setattr(parquet, "CHUNK_ROWS", 9)
    assert [chunk.span for chunk in _read_timed(path, WIDE_OPEN)] == [None, None], "one piece may be all that is read"


@pytest.mark.parametrize("damage", ["empty", "text", "truncated", "missing", "overwritten"])
def test_unreadable_files(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "a.parquet"
    write(path, pa.table({"x": list(range(10_000))}))
    data = path.read_bytes()
    {
        "empty": lambda: path.write_bytes(b""),
        "text": lambda: path.write_text("id,x\n1,2\n"),
        "truncated": lambda: path.write_bytes(data[: len(data) // 2]),
        "missing": path.unlink,
        "overwritten": lambda: path.write_bytes(b"\xff" * (len(data) - 2000) + data[-2000:]),
    }[damage]()
    with pytest.raises(SourceError) as caught:
        read(str(path), "x BIGINT")
    assert caught.value.code == "BAD_FILE"
    assert str(path) in caught.value.message


def test_split_rows_prefers_row_group_edges(tmp_path: Path) -> None:
    rows = 4 * LEAST_TASK_ROWS
    path = write(tmp_path / "a.parquet", pa.table({"x": pa.nulls(rows, pa.int8())}), group=rows * 9 // 20)
    footer = read_footer(path)
    lists = split_rows([(footer, 0, rows)], 2)
    assert [[split.rows for split in part] for part in lists] == [[rows * 9 // 20], [rows * 11 // 20]]  # type: ignore[union-attr]


@given(st.integers(0, 10_000))
def test_split_rows_covers_everything_in_order(seed: int) -> None:
    draw = random.Random(seed)
    pieces = []
    for i in range(draw.randrange(5)):
        groups = tuple(draw.randrange(1, 200_000) for _ in range(draw.randrange(4)))
        first = draw.randrange(sum(groups) + 1)
        pieces.append((parquet.Footer(f"f{i}", groups), first, draw.randrange(sum(groups) - first + 1)))
    tasks = draw.randrange(1, 6)
    lists = split_rows(pieces, tasks)
    assert len(lists) <= tasks
    assert all(lists)
    flat = [(split.path, split.first_row + k) for part in lists for split in part for k in (0, split.rows - 1)]  # type: ignore[union-attr, operator]
    assert flat == sorted(flat)
    covered = sum(split.rows for part in lists for split in part)  # type: ignore[union-attr, misc]
    assert covered == sum(rows for _, _, rows in pieces)
    if covered > 8 * LEAST_TASK_ROWS * tasks:
        largest = max(sum(split.rows for split in part) for part in lists)  # type: ignore[union-attr, misc]
        assert largest <= 1.6 * covered / tasks
