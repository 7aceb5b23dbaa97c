"""CSV and JSON lines: good rows in the stream's types, bad rows with reason, origin and raw text."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import SourceError
from millstream.model.stream import Field
from millstream.sources import text as text_module
from millstream.sources.csv_lines import CsvDecoder
from millstream.sources.json_lines import JsonDecoder
from millstream.sources.schema import parse_ddl
from millstream.sources.splits import FileSplit, read_split, split_bytes

FIELDS = parse_ddl("i INT, d DOUBLE, p DECIMAL(10,2), s STRING, b BOOLEAN, day DATE, t TIMESTAMP")
HEADER = "i,d,p,s,b,day,t"


def read(
    path: Path, fields: Sequence[Field] = FIELDS, file_format: str = "csv"
) -> tuple[list[dict[str, object]], list[tuple[str, ...]]]:
    rows: list[dict[str, object]] = []
    rejected: list[tuple[str, ...]] = []
    for chunk in read_split(FileSplit(str(path), file_format), fields, [field.name for field in fields]):
        assert chunk.table.schema.types == [field.type.arrow for field in fields]
        rows += chunk.table.to_pylist()
        for bad in chunk.rejected.to_pylist() if chunk.rejected else ():
            rejected.append((bad["origin"].rpartition(":")[2], bad["reason"], bad["raw"]))
    return rows, rejected


def row(*values: object) -> dict[str, object]:
    return dict(zip(HEADER.split(","), values, strict=True))


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_csv_values_as_spark_reads_them(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        f"{HEADER}\n"
        '1,1.5,1.25,"a ""b"", c",true,2026-01-01,2026-01-01 10:00:00\n'
        '"",,,"",,,\n'
        "-2,NaN,-3,é,FALSE,1969-12-31,1969-12-31T23:59:59.999999\n"
    )
    rows, rejected = read(tmp_path / "a.csv")
    assert rejected == []
    assert rows[0] == row(1, 1.5, Decimal("1.25"), 'a "b", c', True, date(2026, 1, 1), moment("2026-01-01 10:00"))
    assert rows[1] == row(*[None] * 7)
    assert rows[2].pop("d") != 0
    assert rows[2]["t"] == moment("1969-12-31T23:59:59.999999")


def test_csv_forms_that_need_the_slow_path(tmp_path: Path) -> None:
    """More digits than the type has, signs, zones in some rows only: still values for Spark."""
    (tmp_path / "a.csv").write_text(
        f"{HEADER}\n"
        "1,1,1.255,x,true,2026-01-01,2026-01-01 00:00:00.1234567\n"
        "+5,1e3,1e1,y,True,2026-01-01,2026-01-01T01:00:00+02:00\n"
        "7,Infinity,-0.005,z,false,2026-01-01,2026-01-01\n"
    )
    rows, rejected = read(tmp_path / "a.csv")
    assert rejected == []
    assert [r["p"] for r in rows] == [Decimal("1.26"), Decimal("10.00"), Decimal("-0.01")]
    assert [r["i"] for r in rows] == [1, 5, 7]
    assert [r["t"] for r in rows] == [
        moment("2026-01-01 00:00:00.123456"),
        moment("2025-12-31 23:00"),
        moment("2026-01-01"),
    ]


GOOD = "1,1,1,x,true,2026-01-01,2026-01-01"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1,2", "2 columns instead of 7"),
        (GOOD + ",9", "8 columns instead of 7"),
        ("x,1,1,x,true,2026-01-01,2026-01-01", "column 'i': 'x' is no integer"),
        ("3000000000,1,1,x,true,2026-01-01,2026-01-01", "column 'i': '3000000000' is no integer"),
        ("1,one,1,x,true,2026-01-01,2026-01-01", "column 'd': 'one' is no double"),
        ("1,1,123456789.00,x,true,2026-01-01,2026-01-01", "column 'p'"),
        ("1,1,1,x,yes,2026-01-01,2026-01-01", "column 'b': 'yes' is no boolean"),
        ("1,1,1,x,true,2026-02-30,2026-01-01", "column 'day'"),
        ("1,1,1,x,true,2026-01-01,yesterday", "column 't': 'yesterday' is no timestamp"),
        ('1,1,1,"x,true,2026-01-01,2026-01-01', "unbalanced quotes"),
    ],
)
def test_a_bad_csv_row_leaves_the_others(tmp_path: Path, line: str, reason: str) -> None:
    (tmp_path / "a.csv").write_text("\n".join([HEADER, GOOD, "", line, GOOD, GOOD]))
    rows, rejected = read(tmp_path / "a.csv")
    assert len(rows) == 3
    ((number, why, raw),) = rejected
    assert (number, raw) == ("4", line)
    assert reason in why


def test_csv_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(f"{HEADER}\n{GOOD}\n1,1,1,".encode() + b"\xff,true,2026-01-01,2026-01-01\n")
    rows, rejected = read(tmp_path / "a.csv")
    assert len(rows) == 1
    assert "column 's'" in rejected[0][1]


def test_csv_byte_order_mark_crlf_and_column_order(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfs,extra,i\r\nx,y,1\r\n\r\nz,,2\r\n")
    rows, rejected = read(tmp_path / "a.csv", parse_ddl("i INT, s STRING"))
    assert rows == [{"i": 1, "s": "x"}, {"i": 2, "s": "z"}]
    assert rejected == []


def test_csv_of_another_schema(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(SourceError, match="column 'i' is missing") as caught:
        read(tmp_path / "a.csv")
    assert caught.value.hint == "existing columns: a, b"


def test_columns_not_asked_for_still_decide_about_the_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("i,j\n1,1\n2,x\n")
    (chunk,) = read_split(FileSplit(str(tmp_path / "a.csv"), "csv"), parse_ddl("i INT, j INT"), ["i"])
    assert chunk.table.to_pydict() == {"i": [1]}
    assert chunk.rejected.num_rows == 1
    assert chunk.rows == 2


def test_json_values_as_spark_reads_them(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"i": 1, "d": 2, "p": 1.25, "s": "x", "b": true, "day": "2026-01-01", "t": "2026-01-01T00:00:00Z", "u": [1]}\n'
        "\n"
        '{"s": null}\n'
        '{"p": "12345678.90", "s": 5, "d": "NaN", "t": 60}\n'
        '{"s": {"a": [1, true]}, "t": "2026-01-01 00:00:00.1234567", "p": 0.125}\n'
    )
    rows, rejected = read(tmp_path / "a.jsonl", file_format="json")
    assert rejected == []
    assert rows[0] == row(1, 2.0, Decimal("1.25"), "x", True, date(2026, 1, 1), moment("2026-01-01"))
    assert rows[1] == row(*[None] * 7)
    assert (rows[2]["p"], rows[2]["s"], rows[2]["t"]) == (Decimal("12345678.90"), "5", moment("1970-01-01 00:01"))
    assert (rows[3]["s"], rows[3]["p"]) == ('{"a":[1,true]}', Decimal("0.13"))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("nonsense", "not JSON"),
        ('{"i": 1', "not JSON"),
        ('{"i": 1} {"i": 2}', "not JSON: Extra data"),
        ("[1]", "not a JSON object"),
        ('{"i": "1"}', "column 'i'"),
        ('{"i": 1.5}', "column 'i'"),
        ('{"i": 3000000000}', "column 'i'"),
        ('{"b": 1}', "column 'b'"),
        ('{"p": 123456789}', "column 'p'"),
        ('{"t": "soon"}', "column 't'"),
        ('{"day": 5}', "column 'day'"),
        ('{"s": "\\ud800"}', "half a surrogate pair"),
    ],
)
def test_a_bad_json_line_leaves_the_others(tmp_path: Path, line: str, reason: str) -> None:
    good = '{"i": 1, "t": "2026-01-01"}'
    (tmp_path / "a.jsonl").write_text("\n".join([good, line, *[good] * 300, "", good]))
    rows, rejected = read(tmp_path / "a.jsonl", file_format="json")
    assert len(rows) == 302
    ((number, why, raw),) = rejected
    assert (number, raw) == ("2", line)
    assert reason in why


def test_json_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"s": "\xff"}\n{"s": "x"}\n')
    rows, rejected = read(tmp_path / "a.jsonl", parse_ddl("s STRING"), "json")
    assert rows == [{"s": "x"}]
    assert rejected[0][1] == "not UTF-8 text"


@pytest.mark.parametrize("file_format", ["csv", "json"])
def test_empty_and_missing_files(tmp_path: Path, file_format: str) -> None:
    header = "i\n" if file_format == "csv" else ""
    (tmp_path / "a").write_text(header)
    assert read(tmp_path / "a", parse_ddl("i INT"), file_format) == ([], [])
    with pytest.raises(SourceError, match="no such file"):
        read(tmp_path / "none", parse_ddl("i INT"), file_format)


def test_origin_of_good_rows_skips_the_bad_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("i\n1\nx\n3\n")
    (chunk,) = read_split(FileSplit(str(path), "csv"), parse_ddl("i INT"), ["i"])
    assert [chunk.origin_of(0), chunk.origin_of(1)] == [f"{path}:2", f"{path}:4"]


CELLS = st.sampled_from(["1", "22", "x", "", '"q"', '"a,b"', '"a""b"', '"', 'a"b', "3.5", " 7 ", "é", "-", "\r"])
LINES = st.lists(st.lists(CELLS, min_size=1, max_size=4).map(",".join), max_size=30)


@given(LINES, st.integers(1, 40), st.integers(1, 5))
def test_csv_does_not_depend_on_blocks_and_splits(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], block: int, tasks: int
) -> None:
    """However a file is cut into byte ranges and blocks: the same rows, good and bad, with the same origins."""
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_text("a,b,c\n" + "\n".join(lines), newline="")
    check_cuts(path, "csv", parse_ddl("a INT, b STRING, c DOUBLE"), block, tasks)


JSON_CELLS = st.sampled_from(
    ['{"a": 1}', '{"a": "x"}', '{"b": "y"}', "{", "", "[]", '{"a": null, "c": 1.5}', '{"b": 5}', " "]
)


@given(st.lists(JSON_CELLS, max_size=40), st.integers(1, 40), st.integers(1, 5))
def test_json_does_not_depend_on_blocks_and_splits(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], block: int, tasks: int
) -> None:
    path = tmp_path_factory.mktemp("json") / "a.jsonl"
    path.write_text("\n".join(lines))
    check_cuts(path, "json", parse_ddl("a INT, b STRING, c DOUBLE"), block, tasks)


def check_cuts(path: Path, file_format: str, fields: Sequence[Field], block: int, tasks: int) -> None:
    names = [field.name for field in fields]

    def results(splits: Sequence[FileSplit]) -> tuple[list[object], list[object]]:
        good: list[object] = []
        bad: list[object] = []
        for split in splits:
            for chunk in read_split(split, fields, names):
                good += [(chunk.origin_of(i), str(r)) for i, r in enumerate(chunk.table.to_pylist())]
                bad += chunk.rejected.to_pylist() if chunk.rejected else []
        return good, bad

    whole = FileSplit(str(path), file_format)
    expected = results([whole])
    size = path.stat().st_size
    edges = sorted({0, *(random.Random(tasks).randrange(size + 1) for _ in range(tasks - 1))})
    parts = [FileSplit(str(path), file_format, start=a, stop=b) for a, b in zip(edges, [*edges[1:], None], strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_module, "TEXT_BLOCK", block)
        patch.setattr(text_module, "CHUNK_ROWS", 1 + block % 5)
        assert results([whole]) == expected
        assert results(parts) == expected


@given(
    st.lists(
        st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0"), max_size=5), st.integers(-5, 5))
    )
)
def test_csv_written_by_python_reads_back(rows: list[tuple[str, int]]) -> None:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([text, number] for text, number in rows)
    decoded = CsvDecoder(["s", "i"], parse_ddl("s STRING, i INT")).decode(out.getvalue().encode()) if rows else None
    expected = [{"s": text or None, "i": number} for text, number in rows]
    assert (decoded.table.to_pylist() if decoded else []) == expected


@given(
    st.lists(st.fixed_dictionaries({}, optional={"s": st.text(max_size=5), "i": st.integers(-5, 5), "d": st.floats()}))
)
def test_json_written_by_python_reads_back(rows: list[dict[str, object]]) -> None:
    fields = parse_ddl("s STRING, i INT, d DOUBLE")
    block = "\n".join(json.dumps(r) for r in rows).encode()
    table = JsonDecoder(fields).decode(block).table if rows else pa.table({"s": [], "i": [], "d": []})
    assert [str(r) for r in table.to_pylist()] == [str({f.name: r.get(f.name) for f in fields}) for r in rows]


def test_split_bytes_covers_every_file_once() -> None:
    files = [(FileSplit(f"f{i}", "csv"), size) for i, size in enumerate([10 << 20, 0, 3 << 20, 1])]
    lists = split_bytes(files, 3)
    assert len(lists) == 3
    for whole, size in files:
        parts = [s for part in lists for s in part if isinstance(s, FileSplit) and s.path == whole.path]
        ends = [size if s.stop is None else s.stop for s in parts]
        assert [s.start for s in parts] == [0, *ends[:-1]]
        assert ends[-1] == size
