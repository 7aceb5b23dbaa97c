"""The commands that start an engine, each in a process of its own as a user runs them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.postgres import Server

pytestmark = pytest.mark.slow

# Starting Spark takes some seconds on a free machine, and these tests share theirs.
PATIENCE = 120
START = datetime(2026, 1, 1, tzinfo=UTC)
REVENUE = "SELECT gem_pack, SUM(price) AS revenue FROM purchases GROUP BY gem_pack, window(time, '4 seconds')"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "millstream", *arguments]


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=PATIENCE, check=False)


def purchases(seconds: int) -> pa.Table:
    """One purchase a second of each of two gem packs."""
    times = [START + timedelta(seconds=second) for second in range(seconds) for _ in range(2)]
    return pa.table(
        {
            "gem_pack": pa.array([index % 2 for index in range(len(times))], pa.int32()),
            "price": pa.array([1 + index % 2 for index in range(len(times))], pa.int64()),
            "time": pa.array(times, pa.timestamp("us", tz="UTC")),
        }
    )


@pytest.fixture
def game(tmp_path: Path) -> Path:
    (tmp_path / "purchases").mkdir()
    file = tmp_path / "game.yaml"
    file.write_text(
        "home: home\n"
        "streams:\n"
        "  purchases:\n"
        "    source: parquet\n"
        "    path: purchases\n"
        "    schema: gem_pack INT, price BIGINT, time TIMESTAMP\n"
        "    time: time\n"
    )
    return file


def wait_until_running(engine: subprocess.Popen[str], home: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not (home / "engine.json").exists():
        assert engine.poll() is None, engine.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_start_create_watch_delete_stop(game: Path) -> None:
    home = game.parent / "home"
    at = ("--home", str(home))
    engine = subprocess.Popen(command("start", str(game)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_until_running(engine, home)
        created = call("query", "create", REVENUE, "--id", "revenue", *at)
        assert re.fullmatch(r"created revenue  epoch \d+  in \d+\.\d+ s\n", created.stdout), created
        pq.write_table(purchases(13), game.parent / "purchases" / ".draft")
        (game.parent / "purchases" / ".draft").rename(game.parent / "purchases" / "a.parquet")
        watched = call("query", "watch", "revenue", "--json", "--limit", "3", *at)
        answers = [json.loads(line) for line in watched.stdout.splitlines()]
        assert [item["window_end"][-3:] for item in answers] == ["04Z", "08Z", "12Z"]
        assert sorted(row["revenue"] for row in answers[0]["rows"]) == [4, 8]
        assert json.loads(call("status", "--json", *at).stdout)["queries"] == 1
        refused = call("query", "create", "SELECT prize FROM purchases", *at)
        assert (refused.returncode, "UNKNOWN_COLUMN" in refused.stderr) == (1, True)
        assert call("query", "delete", "revenue", *at).returncode == 0
        engine.send_signal(signal.SIGTERM)
        output, errors = engine.communicate(timeout=PATIENCE)
    finally:
        engine.kill()
    assert engine.returncode == 0, errors
    assert "streams: purchases" in output
    assert not (home / "engine.json").exists()
    assert call("status", *at).returncode == 3


def test_start_with_the_metastore_in_postgres(game: Path, postgres: Server) -> None:
    url = postgres.new_database()
    game.write_text(f"{game.read_text()}settings:\n  metastore_url: {url.replace('+psycopg', '')}\n")
    started = call("start", str(game), "--seconds", "0", "--json")
    assert (started.returncode, json.loads(started.stdout)["streams"]) == (0, ["purchases"]), started
    home = game.parent / "home"
    assert not (home / "metastore.db").exists()
    copied = call("backup", str(home), str(game.parent / "copy"), "--metastore-url", url)
    assert copied.stdout.startswith("backed up"), copied
    database = url.rpartition("/")[2]
    assert postgres.sql("SELECT name FROM millstream_streams", database) == "purchases\n"
    postgres.sql("UPDATE millstream_engine SET schema_version = 1000", database)
    refused = call("start", str(game), "--seconds", "0")
    assert refused.returncode == 1
    assert "BAD_FILE: the metastore has schema version 1000, written by a newer Millstream" in refused.stderr
    assert postgres.sql("SELECT incarnation, schema_version FROM millstream_engine", database) == "1|1000\n"


def test_demo_without_a_terminal(tmp_path: Path) -> None:
    ran = call("demo", "--queries", "20", "--rate", "20000", "--seconds", "6", "--json")
    assert ran.returncode == 0, ran.stderr
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    summary: dict[str, Any] = lines[-1]["summary"]
    assert summary["answer_rows"] > 0
    assert summary["queries"] == 20
    assert summary["created"] == 20 + summary["deleted"]
    assert ran.stderr == ""


def test_replay(tmp_path: Path) -> None:
    pq.write_table(purchases(20), tmp_path / "purchases.parquet")
    spec = tmp_path / "spec.yaml"
    queries = [{"id": "revenue", "sql": REVENUE}, {"id": "wrong", "sql": "SELECT prize FROM purchases"}]
    streams = {"purchases": {"path": "purchases.parquet", "time": "time", "lateness": "0 seconds"}}
    spec.write_text(json.dumps({"batch_rows": 10, "streams": streams, "queries": queries}))
    out = tmp_path / "answers"
    ran = call("replay", str(spec), "--out", str(out))
    assert ran.returncode == 0, ran.stderr
    assert "refused wrong: UNKNOWN_COLUMN" in ran.stdout
    assert pq.read_table(out / "revenue.parquet").num_rows == 10
    strict = call("replay", str(spec), "--out", str(tmp_path / "again"), "--strict", "--json")
    assert strict.returncode == 1
    assert json.loads(strict.stdout)["queries"]["wrong"]["error"]["code"] == "UNKNOWN_COLUMN"


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Child processes find the sources, and no other engine."""
    source = Path(__file__).parents[2] / "src"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
