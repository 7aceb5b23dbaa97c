"""The HTTP interface over the real engine: what it tells is what the engine tells."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.engine.engine import Engine
from millstream.engine.status import QueryRequest
from millstream.errors import MillstreamError
from millstream.server.client import Client
from millstream.server.serve import Server
from millstream.sources.source import ParquetFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "gem_pack INT, price DECIMAL(10,2), time TIMESTAMP"
REVENUE = "SELECT gem_pack, SUM(price) AS revenue FROM purchases GROUP BY gem_pack, window(time, '4 seconds')"
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "purchases"
    path.mkdir()
    return path


@pytest.fixture
def engine(spark: SparkSession, home: Path, directory: Path) -> Iterator[Engine]:
    with Engine(home=home, spark=spark) as engine:
        engine.create_stream("purchases", ParquetFiles(str(directory), schema=SCHEMA), time="time")
        yield engine


@pytest.fixture
def client(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    with Server(engine) as server, Client(server.url, owner="marketing") as client:
        yield client


def put(directory: Path, name: str, seconds: range) -> None:
    """A file with two purchases for each second."""
    times = [START + timedelta(seconds=second) for second in seconds for _ in range(2)]
    table = pa.table(
        {
            "gem_pack": pa.array([index % 2 for index in range(len(times))], pa.int32()),
            "price": pa.array([1] * len(times), pa.decimal128(10, 2)),
            "time": pa.array(times, pa.timestamp("us", tz="UTC")),
        }
    )
    draft = directory / f".{name}"
    pq.write_table(table, draft)
    draft.rename(directory / name)


def test_a_query_lives_over_http(engine: Engine, client: Client, directory: Path) -> None:
    created = client.create_query(REVENUE, id="revenue")
    assert created.owner == "marketing"
    assert created.schema == (("gem_pack", "integer"), ("revenue", "decimal(20,2)"))
    put(directory, "a.parquet", range(13))
    answers = client.answers("revenue")
    first, second = next(answers), next(answers)
    # 0    4    8    12 s     windows of four seconds; the row at 12 closes the third
    # |-1--|-2--|-3--|
    assert (first.window_start, first.window_end) == (START, START + timedelta(seconds=4))
    assert second.window_end == START + timedelta(seconds=8)
    assert sorted(map(str, first.table.column("revenue").to_pylist())) == ["4.00", "4.00"]
    direct = engine.query("revenue").read()
    assert [item.table for item in client.read("revenue").answers] == [item.table for item in direct.answers]
    assert client.delete_query("revenue").state in ("deleting", "deleted")
    assert [item.window_end for item in answers] == [START + timedelta(seconds=12)]


def test_statuses_are_the_engines(engine: Engine, client: Client) -> None:
    client.create_query(REVENUE, id="revenue")
    assert client.query("revenue") == engine.query("revenue").status()
    assert client.queries(owner="marketing") == engine.queries(owner="marketing")
    assert [item.name for item in client.streams()] == ["purchases"]
    assert client.status().queries == 1


def test_mistakes_come_back_with_place_and_hint(client: Client) -> None:
    with pytest.raises(MillstreamError) as refused:
        client.create_query("SELECT prize FROM purchases")
    assert refused.value.code == "UNKNOWN_COLUMN"
    assert "^^^^^" in refused.value.render()
    assert "price" in (refused.value.hint or "")


def test_one_bad_query_does_not_hinder_the_others(client: Client) -> None:
    results = client.create_queries([QueryRequest(REVENUE, id="a"), QueryRequest("SELECT (1 FROM purchases", id="b")])
    assert getattr(results[0], "state", None) == "running"
    assert getattr(results[1], "code", None) == "SQL_PARSE"


def test_a_create_that_is_repeated_creates_once(client: Client) -> None:
    first = client.create_query(REVENUE, key="k1")
    assert client.create_query(REVENUE, key="k1").id == first.id
    assert len(client.queries()) == 1


def test_deleting_twice_is_refused(client: Client) -> None:
    client.create_query(REVENUE, id="a")
    client.delete_query("a")
    with pytest.raises(MillstreamError) as refused:
        client.delete_query("a")
    assert refused.value.code == "QUERY_DELETED"


def test_a_cursor_of_nobody_is_refused(client: Client) -> None:
    client.create_query(REVENUE, id="a")
    with pytest.raises(MillstreamError) as refused:
        client.read("a", cursor="nonsense")
    assert refused.value.code == "BAD_CURSOR"
