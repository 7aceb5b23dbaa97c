"""The real engine on PostgreSQL: it goes on over outages and restarts as if there had been none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream import Engine, MillstreamError, ParquetFiles
from millstream.config import Settings
from millstream.server.client import Client
from millstream.server.serve import Server as HttpServer
from tests.support.postgres import Server
from tests.support.proxy import Proxy, proxied

from .inputs import SCHEMA, drop_file, purchases
from .test_engine import REVENUE, expected, totals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Start = Callable[..., Engine]
OUTAGE_SECONDS = 30.0


@pytest.fixture
def line(postgres: Server) -> Iterator[Proxy]:
    with proxied(postgres.port) as proxy:
        yield proxy


@pytest.fixture
def start(spark: SparkSession, home: Path, postgres: Server, line: Proxy) -> Iterator[Start]:
    """Starts engines on one home, whose metastore is at the other end of the line."""
    url = postgres.empty_database().replace(f":{postgres.port}/", f":{line.port}/")
    running: list[Engine] = []

    def make(wait: int = 60_000_000) -> Engine:
        for engine in running:
            engine.stop()
        running.append(Engine(home=home, spark=spark, settings=Settings(metastore_url=url, metastore_wait=wait)))
        return running[-1]

    yield make
    line.cut()
    line.restore()
    for engine in running:
        engine.stop()


@contextmanager
def back_at_the_end(line: Proxy) -> Iterator[None]:
    """A test that fails during the outage does not wait for its end."""
    try:
        yield
    except BaseException:
        line.restore()
        raise


def await_away(engine: Engine) -> str:
    while (away := engine.status().metastore_away) is None:
        time.sleep(0.02)
    return away


def test_answers_go_on_over_an_outage_and_a_restart(start: Start, line: Proxy, home: Path, tmp_path: Path) -> None:
    """
    rows      0 … 24          25 … 49              50 … 74
              file a │ outage: file b, a create │ file c │ restart: file d
    """
    folder = tmp_path / "in"
    folder.mkdir()
    engine = start()
    engine.create_stream("purchases", ParquetFiles(str(folder), schema=SCHEMA), time="time")
    engine.create_query(REVENUE, id="revenue")
    drop_file(folder, "a", purchases(0, 25))
    engine.await_idle()
    assert totals(engine, "revenue") == expected(0, 2)
    assert not (home / "metastore.db").exists()
    assert engine.status().streams[0].rows == 25

    line.cut()
    drop_file(folder, "b", purchases(25, 25))
    with ThreadPoolExecutor(1) as pool, back_at_the_end(line):
        creating = pool.submit(engine.create_query, REVENUE, id="late")
        assert await_away(engine)
        status = engine.status()
        assert (status.epoch, status.streams[0].rows, status.streams[0].state) == (1, 25, "running")
        time.sleep(OUTAGE_SECONDS)
        assert not creating.done()
        line.restore()
        assert creating.result().cut["purchases"] in (1, 2)
    engine.await_idle()
    drop_file(folder, "c", purchases(50, 25))
    engine.await_idle()
    assert engine.status().metastore_away is None
    assert engine.stream("purchases").batches == 3
    assert totals(engine, "revenue") == expected(0, 7)

    engine = start()
    drop_file(folder, "d", purchases(75, 25))
    engine.await_idle()
    assert totals(engine, "revenue") == expected(0, 9)
    assert engine.delete_query("late").epoch == 2


def test_creates_and_deletes_end_at_the_limit(start: Start, line: Proxy, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    engine = start(wait=300_000)
    engine.create_stream("purchases", ParquetFiles(str(folder), schema=SCHEMA), time="time")
    engine.create_query(REVENUE, id="revenue")
    line.cut()
    attempts: tuple[Callable[[], object], ...] = (
        lambda: engine.create_query(REVENUE, id="other"),
        lambda: engine.create_query(REVENUE, id="keyed", key="k"),
        lambda: engine.delete_query("revenue"),
        lambda: engine.queries(),
        lambda: engine.read_answers("revenue"),
    )
    for attempt in attempts:
        with pytest.raises(MillstreamError) as error:
            attempt()
        assert error.value.code == "METASTORE_AWAY"
    with HttpServer(engine) as server, Client(server.url) as client:
        with pytest.raises(MillstreamError, match="does not answer") as error:
            client.create_query(REVENUE)
        assert error.value.code == "METASTORE_AWAY"
        assert client.status().metastore_away
    line.restore()
    assert [query.id for query in engine.queries(state="running")] == ["revenue"]
    assert engine.create_query(REVENUE, id="other").id == "other"
    assert engine.delete_query("revenue").id == "revenue"


def test_an_engine_stops_while_its_metastore_is_away(start: Start, line: Proxy, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    engine = start()
    engine.create_stream("purchases", ParquetFiles(str(folder), schema=SCHEMA), time="time")
    engine.create_query(REVENUE, id="revenue")
    line.cut()
    drop_file(folder, "a", purchases(0, 25))
    await_away(engine)
    with ThreadPoolExecutor(1) as pool:
        creating = pool.submit(engine.create_query, REVENUE, id="other")
        time.sleep(0.1)
        engine.stop()
        with pytest.raises(MillstreamError):
            creating.result()
    line.restore()
    engine = start()
    engine.await_idle()
    assert totals(engine, "revenue") == expected(0, 2)
