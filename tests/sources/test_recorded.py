"""Recorded input: rows by their number, over files and formats, with bad rows in their places."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import SourceError
from millstream.sources import recorded
from millstream.sources.recorded import RecordedInput
from millstream.sources.schema import parse_ddl
from millstream.sources.splits import read_split

FIELDS = parse_ddl("i BIGINT, time TIMESTAMP")
STAMP = "2026-01-01T00:00:00Z"


def write(path: Path, values: list[int | str]) -> None:
    """Rows of the values; a text stands for a row that cannot be decoded (not in Parquet)."""
    if path.suffix == ".parquet":
        numbers = pa.array(values, pa.int64())
        pq.write_table(pa.table({"i": numbers, "time": numbers.cast(pa.timestamp("us"))}), path, row_group_size=3)
    elif path.suffix == ".csv":
        path.write_text("i,time\n" + "".join(f"{value},{STAMP}\n" for value in values))
    else:
        path.write_text("".join(json.dumps({"i": value, "time": STAMP}) + "\n" for value in values))


def read(source: RecordedInput, start: int, stop: int, tasks: int = 2) -> tuple[list[int], list[str]]:
    good: list[int] = []
    bad: list[str] = []
    for part in source.splits(start, stop, tasks):
        for split in part:
            for chunk in read_split(split, source.fields, ["i", "time"]):
                good += chunk.table["i"].to_pylist()
                bad += chunk.rejected["origin"].to_pylist() if chunk.rejected else []
    return good, bad


@given(st.integers(0, 10_000))
def test_rows_by_number(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Files of all formats, with bad rows in the text ones; batches of any size see each row once, in its place."""
    draw = random.Random(seed)
    folder = tmp_path_factory.mktemp("input")
    rows: list[tuple[str, int, int | str]] = []
    for k in range(draw.randrange(1, 5)):
        suffix = draw.choice(["parquet", "csv", "jsonl"])
        values: list[int | str] = [len(rows) + n for n in range(draw.randrange(12))]
        if suffix != "parquet":
            values = ["x" if draw.random() < 0.3 else value for value in values]
        path = folder / f"{k}.{suffix}"
        write(path, values)
        header = 1 if suffix == "csv" else 0
        rows += [(str(path), n + 1 + header, value) for n, value in enumerate(values)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded, "CHUNK_ROWS", draw.choice([4, 100]))
        source = RecordedInput(folder, FIELDS, cache=folder / "cache")
    assert source.rows == len(rows)
    size = draw.randrange(1, 10)
    for start in range(0, len(rows) + size, size):
        good, bad = read(source, start, start + size)
        batch = rows[start : start + size]
        assert good == [value for _, _, value in batch if isinstance(value, int)]
        assert bad == [f"{path}:{line}" for path, line, value in batch if isinstance(value, str)]


def test_a_single_file_and_its_inferred_fields(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", [1, 2, 3])
    source = RecordedInput(tmp_path / "a.csv", time="time")
    assert source.fields == FIELDS
    assert read(source, 1, 10) == ([2, 3], [])
    source.close()


def test_only_input_files_count(tmp_path: Path) -> None:
    for name in ("_SUCCESS", ".a.csv", "_b.csv", "notes.txt"):
        (tmp_path / name).write_text("?")
    (tmp_path / "sub.csv").mkdir()
    with pytest.raises(SourceError, match="no input file") as caught:
        RecordedInput(tmp_path)
    assert caught.value.code == "BAD_FILE"
    write(tmp_path / "a.parquet", [1])
    assert RecordedInput(tmp_path).rows == 1


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file"):
        RecordedInput(tmp_path / "none.csv")
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(SourceError, match="no known format"):
        RecordedInput(tmp_path / "a.txt")
    write(tmp_path / "a.parquet", [1])
    with pytest.raises(SourceError, match="no column 'ts'") as caught:
        RecordedInput(tmp_path / "a.parquet", time="ts")
    assert (caught.value.code, caught.value.hint) == ("BAD_STREAM", "existing columns: i, time")
    with pytest.raises(SourceError, match=r"'i' of .* is long, not a timestamp"):
        RecordedInput(tmp_path / "a.parquet", time="i")


def test_one_bad_file_of_many_is_found_at_the_start(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [1])
    pq.write_table(pa.table({"i": ["text"]}), tmp_path / "b.parquet")
    with pytest.raises(SourceError, match=r"b\.parquet"):
        RecordedInput(tmp_path)
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    with pytest.raises(SourceError, match=r"b\.parquet"):
        RecordedInput(tmp_path)
