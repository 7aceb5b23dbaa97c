"""DDL text, and the fields inferred from files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.errors import SourceError
from millstream.sources.schema import format_ddl, infer_fields, parse_ddl


def kinds(fields: object) -> dict[str, str]:
    return {field.name: str(field.type) for field in fields}  # type: ignore[attr-defined]


def test_ddl_has_every_type_and_reads_back() -> None:
    text = (
        "a TINYINT, b SMALLINT, c INT, d BIGINT, e FLOAT, f DOUBLE, g DECIMAL(10,2), h STRING, "
        "i BOOLEAN, j BINARY, k DATE, l TIMESTAMP, m TIMESTAMP_NTZ, `n o` INT, `p``q` INT"
    )
    fields = parse_ddl(text)
    assert format_ddl(fields) == text
    assert parse_ddl(format_ddl(fields)) == fields
    assert kinds(parse_ddl("a: long, b numeric, c dec(5) NOT NULL, d timestamp_ltz")) == {
        "a": "long",
        "b": "decimal(10,0)",
        "c": "decimal(5,0)",
        "d": "timestamp",
    }


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("", "expected a column", 1),
        ("a", "expected a column", 1),
        ("a INT,", "expected a column", 6),
        ("a INT b INT", "expected a column", 1),
        ("a INT, b INTEGERS", "unknown type 'INTEGERS'", 10),
        ("a INT(5)", "unknown type 'INT(5)'", 3),
        ("a DECIMAL(39,2)", "no decimal has 39 digits", 11),
        ("a INT, A INT", "column 'A' is given twice", 8),
    ],
)
def test_bad_ddl(text: str, message: str, column: int) -> None:
    with pytest.raises(SourceError) as caught:
        parse_ddl(text)
    assert caught.value.code == "BAD_STREAM"
    assert message in caught.value.message
    assert caught.value.position is not None
    assert caught.value.position.column == column


def test_unknown_type_gets_the_nearest() -> None:
    with pytest.raises(SourceError) as caught:
        parse_ddl("a TIMESTMP")
    assert "did you mean 'TIMESTAMP'?" in (caught.value.hint or "")


def test_parquet(tmp_path: Path) -> None:
    columns = {
        "a": pa.array([1], pa.int32()),
        "b": pa.array([1], pa.uint64()),
        "c": pa.array(["x"]).dictionary_encode(),
        "d": pa.array([0], pa.timestamp("ns", tz="Europe/Berlin")),
        "e": pa.array([0], pa.timestamp("ms")),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert kinds(infer_fields(str(tmp_path / "a.parquet"), "parquet")) == {
        "a": "integer",
        "b": "decimal(20,0)",
        "c": "string",
        "d": "timestamp",
        "e": "timestamp_ntz",
    }


def test_old_spark_timestamps_are_instants(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array([0], pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    assert kinds(infer_fields(str(tmp_path / "a.parquet"), "parquet")) == {"t": "timestamp"}


def test_parquet_with_a_nested_column_names_it(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [[1]]}), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match="column 'a'") as caught:
        infer_fields(str(tmp_path / "a.parquet"), "parquet")
    assert "schema" in (caught.value.hint or "")


def test_csv(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "i,f,b,d,t,z,s,one,clock,none\n"
        "1,1.5,true,2026-01-01,2026-01-01 00:00:00,2026-01-01T00:00:00Z,x,1,12:00:00,\n"
        "too,few\n"
        ",2,FALSE,,2026-01-01 00:00:00.5,,,0,,\n"
    )
    assert kinds(infer_fields(str(tmp_path / "a.csv"), "csv")) == {
        "i": "long",
        "f": "double",
        "b": "boolean",
        "d": "date",
        "t": "timestamp",
        "z": "timestamp",
        "s": "string",
        "one": "long",
        "clock": "string",
        "none": "string",
    }


def test_json(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"i": 1, "f": 1, "m": 1, "b": true, "d": "2026-01-01", "n": null}\n'
        "broken\n"
        '{"f": 1.5, "m": "x", "t": "2026-01-01T00:00:00Z", "o": {"x": 1}, "d": "2026-01-01"}\n'
        '{"d": "2026-01-01 10:00:00"}\n'
    )
    assert kinds(infer_fields(str(tmp_path / "a.jsonl"), "json")) == {
        "i": "long",
        "f": "double",
        "m": "string",
        "b": "boolean",
        "d": "timestamp",
        "n": "string",
        "t": "timestamp",
        "o": "string",
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", ""),
        ("a.csv", "a,a\n1,2\n"),
        ("a.csv", "a,\n1,2\n"),
        ("a.json", ""),
        ("a.json", "[1]\n"),
        ("a.parquet", "PAR1"),
    ],
)
def test_files_without_fields(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(SourceError) as caught:
        infer_fields(str(tmp_path / name), name.split(".")[1])
    assert caught.value.code == "BAD_FILE"
    assert name in caught.value.message


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_missing_file(tmp_path: Path, kind: str) -> None:
    with pytest.raises(SourceError, match="no such file"):
        infer_fields(str(tmp_path / "none"), kind)
