"""Durations, settings and the two YAML files: what is read, and what each mistake is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.config import (
    ReplayQuery,
    Settings,
    available_cores,
    format_duration,
    load_replay_spec,
    load_stream_file,
    parse_duration,
)
from millstream.errors import SpecError


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("5 seconds", 5_000_000),
        ("1 second", 1_000_000),
        ("500 ms", 500_000),
        ("1 minute 30 seconds", 90_000_000),
        ("0 seconds", 0),
        ("1.5 hours", 5_400_000_000),
        (" 2DAYS ", 172_800_000_000),
        ("3 us", 3),
    ],
)
def test_durations(text: str, micros: int) -> None:
    assert parse_duration(text) == micros


@pytest.mark.parametrize(
    "text", ["", "5", "seconds", "5 parsecs", "-1 second", "5 seconds ago", "0.5 us", "1 month", "9" * 30 + " s"]
)
def test_bad_durations(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_duration(text)
    assert caught.value.code == "BAD_SPEC"
    assert repr(text) in caught.value.message
    assert caught.value.hint


@given(st.integers(0, 2**61))
def test_durations_read_back(micros: int) -> None:
    assert parse_duration(format_duration(micros)) == micros


@pytest.mark.parametrize("bad", [{"parallelism": 0}, {"trigger_interval": -1}, {"http_port": 70_000}])
def test_bad_settings(bad: dict[str, int]) -> None:
    with pytest.raises(SpecError, match=next(iter(bad))):
        Settings(**bad)  # type: ignore[arg-type]


STREAM_FILE = """
home: game-home
http: {host: 127.0.0.1, port: 8642}
settings:
  trigger_interval: 200 ms
  parallelism: 2
streams:
  purchases: {source: parquet, path: in/purchases, time: time, lateness: 5 seconds, schema: "time TIMESTAMP"}
  ads:
    source: gaming
    table: ads
    rate: 1000
    disorder: 10 ms
    max_skew: 1 minute
"""


def test_stream_file(tmp_path: Path) -> None:
    file = tmp_path / "game.yaml"
    file.write_text(STREAM_FILE)
    loaded = load_stream_file(file)
    assert loaded.settings == Settings(
        home=str(tmp_path / "game-home"), http_port=8642, trigger_interval=200_000, parallelism=2
    )
    purchases, ads = loaded.streams
    assert (purchases.name, purchases.time, purchases.lateness) == ("purchases", "time", 5_000_000)
    assert dict(purchases.source) == {
        "source": "parquet",
        "path": str(tmp_path / "in/purchases"),
        "schema": "time TIMESTAMP",
    }
    assert dict(ads.source) == {"source": "gaming", "table": "ads", "rate": "1000", "disorder": "10000"}
    assert (ads.time, ads.max_skew) == ("time", 60_000_000)


@pytest.mark.parametrize(
    ("text", "message", "hint", "line"),
    [
        ("stream: {}", "stream: unknown key 'stream'", "did you mean 'streams'?", 1),
        ("home: x", "missing key 'streams'", "streams", 1),
        ("streams: []", "streams: expected a mapping", None, 1),
        ("streams:\n  a b: {source: csv}", "'a b' cannot be a stream's name", "letters", 2),
        ("streams:\n  a: {path: x}", "streams.a: missing key 'source'", "parquet", 2),
        ("streams:\n  a: {source: parket, path: x}", "streams.a.source: unknown source 'parket'", "'parquet'", 2),
        ("streams:\n  a: {source: csv, path: x, time: t, rate: 5}", "streams.a.rate: unknown key", "known:", 2),
        ("streams:\n  a: {source: csv, path: x}", "streams.a: missing key 'time'", None, 2),
        ("streams:\n  a:\n    source: gaming\n    rate: fast", "streams.a.rate: expected a whole number", None, 4),
        ("streams: {}\nsettings: {paralelism: 2}", "settings.paralelism: unknown key", "'parallelism'", 2),
        ("streams: {}\nsettings: {parallelism: 0}", "settings.parallelism: is 0", None, 2),
        ("streams: {}\nsettings: {seal_delay: 3}", "settings.seal_delay: expected text", "quotes", 2),
        ("streams: {}\nsettings: {seal_delay: 3 lightyears}", "unknown unit 'lightyears'", "5 seconds", 2),
        ("streams: {}\nhttp: {port: 700000}", "http_port is 700000", None, None),
        ("streams: {}\nstreams: {}", "key 'streams' is given twice", None, 2),
        ("streams: {", "is not YAML", None, None),
        ("streams: &x\n  a: *x", "an alias contains itself", None, None),
        ("streams: {1: {}}", "the name 1 is not text", "quotes", 1),
        ("? [a]\n: b", "a key is plain text here", None, 1),
        ("- a", "expected a mapping", None, 1),
    ],
)
def test_bad_stream_files(tmp_path: Path, text: str, message: str, hint: str | None, line: int | None) -> None:
    file = tmp_path / "game.yaml"
    file.write_text(text)
    with pytest.raises(SpecError) as caught:
        load_stream_file(file)
    error = caught.value
    assert error.code == "BAD_SPEC"
    assert message in error.message
    assert hint is None or hint in (error.hint or "")
    if line is not None:
        assert error.position is not None
        assert error.position.line == line
    assert error.render()


def test_missing_stream_file(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="No such file"):
        load_stream_file(tmp_path / "none.yaml")


SPEC = """
batch_rows: 1000
streams:
  purchases: {path: purchases.parquet, time: time, lateness: 0 seconds}
queries:
  - {id: revenue, sql: "SELECT 1"}
  - {id: visitor, sql: "SELECT 2", create_at_batch: 5, delete_at_batch: 20}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "purchases.parquet").touch()
    return tmp_path


def write(folder: Path, text: str) -> Path:
    file = folder / "spec.yaml"
    file.write_text(text)
    return file


def test_replay_spec(folder: Path) -> None:
    spec = load_replay_spec(write(folder, SPEC))
    assert spec.batch_rows == 1000
    assert spec.streams["purchases"].path == str(folder / "purchases.parquet")
    assert spec.queries == (ReplayQuery("revenue", "SELECT 1"), ReplayQuery("visitor", "SELECT 2", 5, 20))
    assert spec.refused == ()


def dictionary(folder: Path, **changes: Any) -> dict[str, Any]:
    stream = {"path": folder / "purchases.parquet", "time": "time", "schema": "time TIMESTAMP"}
    return {"batch_rows": 10, "streams": {"p": stream}, "queries": [{"id": "q", "sql": "SELECT 1"}]} | changes


def test_replay_spec_from_a_dictionary(folder: Path) -> None:
    spec = load_replay_spec(dictionary(folder))
    assert spec.streams["p"].schema == "time TIMESTAMP"
    assert spec.streams["p"].lateness == 0


def test_a_duplicate_id_refuses_only_the_later_query(folder: Path) -> None:
    spec = load_replay_spec(write(folder, SPEC + '  - {id: revenue, sql: "SELECT 3"}\n'))
    assert [query.id for query in spec.queries] == ["revenue", "visitor"]
    (refused,) = spec.refused
    assert (refused.index, refused.id, refused.name) == (2, "revenue", "revenue#2")
    assert refused.error.code == "DUPLICATE_QUERY"
    assert refused.error.position is not None
    assert refused.error.position.line == 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_row": 1}, "batch_row: unknown key"),
        ({"batch_rows": 0}, "batch_rows: is 0"),
        ({"batch_rows": "10"}, "batch_rows: expected a whole number, found '10'"),
        ({"batch_rows": True}, "batch_rows: expected a whole number"),
        ({"streams": {}}, "streams: no stream is given"),
        ({"streams": {"p": {"time": "t"}}}, "streams.p: missing key 'path'"),
        ({"streams": {"p": {"path": "none.csv", "time": "t"}}}, "streams.p.path: no file or directory"),
        ({"queries": {}}, "queries: expected a list, found a mapping"),
        ({"queries": [{"sql": "x"}]}, "queries[0]: missing key 'id'"),
        ({"queries": [{"id": "a", "sql": None}]}, "queries[0].sql: expected text, found nothing"),
        ({"queries": [{"id": "a", "sql": "  "}]}, "queries[0].sql: is empty"),
        ({"queries": [{"id": "a/b", "sql": "x"}]}, "queries[0].id: 'a/b' cannot be a file name"),
        ({"queries": [{"id": "..", "sql": "x"}]}, "queries[0].id: '..' cannot be a file name"),
        ({"queries": [{"id": 7, "sql": "x"}]}, "queries[0].id: expected text, found 7"),
        ({"queries": [{"id": "a", "sql": "x", "create_at": 1}]}, "queries[0].create_at: unknown key"),
        ({"queries": [{"id": "a", "sql": "x", "create_at_batch": -1}]}, "queries[0].create_at_batch: is -1"),
        ({"queries": [{"id": "a", "sql": "x", "create_at_batch": 1.5}]}, "queries[0].create_at_batch: expected"),
        (
            {"queries": [{"id": "a", "sql": "x", "create_at_batch": 5, "delete_at_batch": 5}]},
            "queries[0].delete_at_batch: is 5, but must be after create_at_batch (5)",
        ),
    ],
)
def test_bad_replay_specs(folder: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_replay_spec(dictionary(folder, **changes))
    assert caught.value.code == "BAD_SPEC"
    assert message in caught.value.message


def test_errors_in_a_spec_file_show_the_place(folder: Path) -> None:
    with pytest.raises(SpecError) as caught:
        load_replay_spec(write(folder, SPEC.replace("create_at_batch: 5", "create_at_batch: soon")))
    assert "line 7, column 53" in caught.value.render()
    assert caught.value.render().splitlines()[3].strip() == "^^^^"


def test_thousands_of_queries(folder: Path) -> None:
    lines = "".join(f'  - {{id: q{i}, sql: "SELECT {i}"}}\n' for i in range(3000))
    assert len(load_replay_spec(write(folder, SPEC + lines)).queries) == 3002


def test_cores_are_those_that_the_process_may_use() -> None:
    one = min(os.sched_getaffinity(0))
    asked = (
        "import os; os.sched_setaffinity(0, [int(os.environ['ONE'])])\nfrom millstream.config import available_cores"
    )
    command = [sys.executable, "-c", f"{asked}\nprint(available_cores())"]
    said = subprocess.run(command, env={**os.environ, "ONE": str(one)}, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "1"
    assert available_cores() == len(os.sched_getaffinity(0))


def test_without_affinity_the_cores_are_those_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    assert available_cores() == os.cpu_count()
