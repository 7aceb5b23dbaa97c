"""Queries that kill workers, eat memory, run for ever or are far too large: each is stopped alone, with the reason, and
the others' answers are those of a run without it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from millstream import Engine, MillstreamError, ParquetFiles, Query
from millstream.config import Settings
from millstream.engine.status import QueryRequest

from .inputs import SCHEMA, TENTH, drop_file, purchases
from .test_disk_faults import wait_until
from .test_engine import REVENUE, expected, totals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Workers that find this module on their path die when they evaluate a poisoned number: 666000 and those after it kill
# in ingest, where it stands in an expression; 777000 in a fire, where it has become a column.
DEADLY = """
import os
from millstream.kernels.evaluate import Evaluator

real = Evaluator.evaluate_counted

def evaluate_counted(self, table, expressions):
    constants = [c for name in table.column_names if name.startswith("#p") for c in set(table.column(name).to_pylist())]
    if "666000" in repr(expressions) or 777000 in constants:
        os._exit(9)
    return real(self, table, expressions)

Evaluator.evaluate_counted = evaluate_counted
"""

KILLS_INGEST = "SELECT SUM(price + 666000) AS s FROM purchases GROUP BY window(time, '1 second')"
KILLS_FIRE = "SELECT SUM(price) AS s FROM purchases GROUP BY window(time, '1 second') HAVING SUM(price) > 777000"
KILLS_JOIN = """
WITH p AS (SELECT *, window(time, '1 second') AS w FROM purchases),
     q AS (SELECT *, window(time, '1 second') AS w FROM purchases)
SELECT p.gem_pack, SUM(p.price) AS s FROM p JOIN q ON p.w = q.w AND p.gem_pack = q.gem_pack
GROUP BY p.gem_pack, p.w HAVING SUM(p.price) > 777000
"""
PAIRS = """
WITH p AS (SELECT *, window(time, '1 second') AS w FROM purchases),
     q AS (SELECT *, window(time, '1 second') AS w FROM purchases)
SELECT p.price AS mine, q.price AS theirs FROM p JOIN q ON p.w = q.w
"""


@pytest.fixture
def deadly(spark: SparkSession, tmp_path: Path) -> Iterator[None]:
    """Jobs of this test run in workers of their own, which the poison kills."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(DEADLY, encoding="utf-8")
    environment = spark.sparkContext.environment
    environment["PYTHONPATH"] = str(folder)
    yield
    del environment["PYTHONPATH"]


@pytest.fixture
def start(spark: SparkSession, home: Path) -> Iterator[Callable[..., Engine]]:
    """Starts engines on one home, one after the other, with the settings given."""
    running: list[Engine] = []

    def make(**settings: int) -> Engine:
        for engine in running:
            engine.stop()
        running.append(Engine(home=home, spark=spark, settings=Settings(**settings)))  # type: ignore[arg-type]
        return running[-1]

    yield make
    for engine in running:
        engine.stop()


def stream(engine: Engine, folder: Path, schema: str = SCHEMA) -> None:
    folder.mkdir(exist_ok=True)
    engine.create_stream("purchases", ParquetFiles(str(folder), schema=schema), time="time")


def reason(engine: Engine, id: str) -> str:
    status = engine.query(id).status()
    assert status.state == "failed", (id, status)
    return status.reason or ""


@pytest.mark.usefixtures("deadly")
def test_a_query_that_kills_workers_in_ingest_is_left_out(start: Callable[..., Engine], tmp_path: Path) -> None:
    folder = tmp_path / "in"
    engine = start()
    stream(engine, folder)
    engine.create_query(REVENUE, id="before")
    drop_file(folder, "a", purchases(0, 25))
    engine.await_idle()
    engine.create_query(REVENUE, id="beside")
    engine.create_query(KILLS_INGEST, id="poison")
    engine.create_query(REVENUE.replace("GROUP", "WHERE price >= 0 GROUP"), id="after")
    drop_file(folder, "b", purchases(25, 25))
    engine.await_idle()
    assert reason(engine, "poison") == (
        "QUARANTINED: left out of batch 1 of purchases, which failed with a worker process that died"
    )
    drop_file(folder, "c", purchases(50, 25))
    engine.await_idle()
    engine = start()
    drop_file(folder, "d", purchases(75, 25))
    engine.await_idle()
    assert totals(engine, "before") == expected(0, 9)
    for id in ("beside", "after"):
        assert totals(engine, id) == expected(2, 9, seen_from=25)
    assert engine.stream("purchases").rows == 100
    assert [q.id for q in engine.queries(state="running")] == ["before", "beside", "after"]
    left = [v for v in engine._core.metastore.group_versions("purchases") if v.version < 0]
    used = {
        (s.bucket.group, s.bucket.version)
        for s in engine._core.pipelines["purchases"].buckets.between("g-1", 0, 1 << 60)
    }
    assert {(v.group, v.version) for v in left} >= {one for one in used if one[1] < 0}


@pytest.mark.usefixtures("deadly")
def test_a_query_that_kills_workers_of_a_row_stream_is_left_out(
    spark: SparkSession, start: Callable[..., Engine], tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    engine = start()
    rows = spark.readStream.schema(SCHEMA).parquet(str(folder)).filter("price >= 0")
    engine.create_stream("purchases", rows, time="time")
    engine.create_query(REVENUE, id="good")
    engine.create_query(KILLS_INGEST, id="poison")
    drop_file(folder, "a", purchases(0, 25))
    engine.await_idle()
    assert reason(engine, "poison").endswith("batch 0 of purchases, which failed with a worker process that died")
    assert totals(engine, "good") == expected(0, 2)


@pytest.mark.usefixtures("deadly")
def test_queries_that_kill_workers_in_a_fire_are_stopped(start: Callable[..., Engine], tmp_path: Path) -> None:
    folder = tmp_path / "in"
    engine = start()
    stream(engine, folder)
    engine.create_query(REVENUE, id="good")
    engine.create_query(KILLS_FIRE, id="poison")
    engine.create_query(KILLS_JOIN, id="poisoned-join")
    engine.create_query(KILLS_JOIN.replace("> 777000", "> 0"), id="join")
    drop_file(folder, "a", purchases(0, 45))
    engine.await_idle()
    for id in ("poison", "poisoned-join"):
        assert reason(engine, id) == "QUARANTINED: its windows cannot be fired: a worker process that died"
    drop_file(folder, "b", purchases(45, 20))
    engine.await_idle()
    assert totals(engine, "good") == expected(0, 6)
    assert sum(answer.table.num_rows for answer in engine.read_answers("join").answers) == 18
    assert engine.status().error is None


def test_expressions_that_take_too_much_memory_or_time_stop_their_queries(
    start: Callable[..., Engine], tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    engine = start(evaluation_memory=512 << 20, evaluation_time=1_000_000)
    stream(engine, folder)
    large = "repeat('x', 1000000 + CAST(price AS INT))"
    slow = "translate(repeat(CAST(price AS STRING), 20000), '0123456789', 'abcdefghij')"
    by_window = "FROM purchases GROUP BY window(time, '100 seconds')"
    engine.create_query(f"SELECT MAX({large}) AS s {by_window}", id="large")
    engine.create_query(f"SELECT {large} AS s FROM purchases", id="large-rows")
    engine.create_query(f"SELECT SUM(length({slow})) AS s {by_window}", id="slow")
    engine.create_query(REVENUE, id="good")
    drop_file(folder, "a", purchases(0, 20_000))
    engine.await_idle()
    assert (
        reason(engine, "large")
        == "LIMIT_EXCEEDED: expressions need more than 512 MB of memory, the setting evaluation_memory"
    )
    assert (
        reason(engine, "large-rows")
        == "LIMIT_EXCEEDED: expressions need more than 512 MB of memory, the setting evaluation_memory"
    )
    assert (
        reason(engine, "slow")
        == "LIMIT_EXCEEDED: expressions took more than 1 seconds of processor time, the setting evaluation_time"
    )
    assert totals(engine, "good") == expected(0, 1999)
    assert [q.id for q in engine.queries(state="running")] == ["good"]


def wide(rows: int) -> pa.Table:
    """As many users as rows, all within a second, and one row after it that closes the window."""
    times = np.append(np.zeros(rows, np.int64), 20 * TENTH)
    return pa.table(
        {
            "gem_pack": pa.array(np.arange(rows + 1) % 3, pa.int32()),
            "price": pa.array(np.arange(rows + 1), pa.int64()),
            "time": pa.array(times).cast(pa.timestamp("us", tz="UTC")),
        }
    )


MILLION = 1_000_000
BY_PRICE = "SELECT price, COUNT(*) AS n FROM purchases GROUP BY price, window(time, '1 second')"


@pytest.mark.parametrize("limit", [MILLION, MILLION - 1])
def test_a_million_groups_are_answered_or_stopped_by_the_limit(
    start: Callable[..., Engine], tmp_path: Path, limit: int
) -> None:
    folder = tmp_path / "in"
    engine = start(query_groups=limit)
    stream(engine, folder)
    engine.create_query(BY_PRICE, id="million")
    engine.create_query(BY_PRICE + " HAVING COUNT(*) > 1", id="none")
    engine.create_query(BY_PRICE.replace("GROUP", "WHERE price < 1000 GROUP"), id="thousand")
    engine.create_query(REVENUE, id="good")
    drop_file(folder, "a", wide(MILLION))
    engine.await_idle()
    assert sum(totals(engine, "good").values()) == sum(range(MILLION))
    assert engine.query("thousand").status().answer_rows == 1000
    if limit == MILLION:
        assert engine.query("million").status().answer_rows == MILLION
        assert engine.query("none").status().state == "running"
    else:
        for id in ("million", "none"):
            assert reason(engine, id) == (
                "LIMIT_EXCEEDED: a window has 1000000 groups, more than the 999999 of the setting query_groups"
            )


def test_an_answer_of_a_hundred_million_rows_is_counted_and_read_page_by_page(
    start: Callable[..., Engine], tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    engine = start()
    stream(engine, folder)
    pairs = KILLS_JOIN.partition("GROUP BY")[0].replace(
        "SELECT p.gem_pack, SUM(p.price) AS s", "SELECT p.price, q.price"
    )
    engine.create_query(pairs.replace(" AND p.gem_pack = q.gem_pack", ""), id="pairs")
    engine.create_query(REVENUE, id="good")
    drop_file(folder, "a", wide(10_000))
    engine.await_idle()
    assert engine.query("pairs").status().answer_rows == 100_000_000
    page = engine.read_answers("pairs", limit=1)
    assert page.answers[0].table.num_rows == 100_000
    assert sum(totals(engine, "good").values()) == sum(range(10_000))


def test_ten_thousand_predicates_are_refused_at_once(start: Callable[..., Engine], tmp_path: Path) -> None:
    engine = start()
    stream(engine, tmp_path / "in")
    many = " AND ".join(f"price <> {number}" for number in range(10_000))
    for where in (many, f"price IN ({', '.join(map(str, range(10_000)))})"):
        with pytest.raises(MillstreamError) as refused:
            engine.create_query(REVENUE.replace("GROUP", f"WHERE {where} GROUP"))
        assert refused.value.code == "LIMIT_EXCEEDED"
        assert (
            refused.value.message
            == "the query has 10000 predicates, more than the 2000 of the setting query_predicates"
        )
    engine.create_query(REVENUE.replace("GROUP", f"WHERE {' AND '.join(many.split(' AND ')[:1000])} GROUP"), id="some")
    drop_file(tmp_path / "in", "a", purchases(995, 25))
    engine.await_idle()
    # Prices below 1000 are ruled out; row 1000 is at 100 s.
    assert totals(engine, "some") == expected(100, 101)


def test_an_owner_has_so_many_queries_and_no_more(start: Callable[..., Engine], tmp_path: Path) -> None:
    engine = start(owner_queries=2, owner_predicates=5)
    stream(engine, tmp_path / "in")
    engine.create_query(REVENUE, owner="a", id="one")
    engine.create_query(REVENUE, owner="a", id="two")
    with pytest.raises(MillstreamError, match="'a' has 3 queries, more than the 2 of the setting owner_queries"):
        engine.create_query(REVENUE, owner="a")
    engine.create_query(REVENUE, owner="b")
    engine.delete_query("one")
    engine.create_query(REVENUE.replace("GROUP", "WHERE price IN (1, 2, 3, 4) GROUP"), owner="a", id="three")
    engine.delete_query("two")
    with pytest.raises(MillstreamError, match="has 6 predicates, more than the 5 of the setting owner_predicates"):
        engine.create_query(REVENUE.replace("GROUP", "WHERE price > 1 AND price < 5 GROUP"), owner="a")
    engine = start(owner_queries=1)
    with pytest.raises(MillstreamError, match="owner_queries"):
        engine.create_query(REVENUE, owner="a")


def test_a_query_that_holds_too_much_state_is_stopped(start: Callable[..., Engine], tmp_path: Path) -> None:
    folder = tmp_path / "in"
    engine = start(query_state_bytes=100_000)
    stream(engine, folder)
    engine.create_query(BY_PRICE.replace("1 second", "1000 days"), id="hoarder")
    engine.create_query(REVENUE, id="good")
    drop_file(folder, "a", purchases(0, 50_000))
    engine.await_idle()
    wait_until(lambda: engine.query("hoarder").status().state == "failed")
    assert "bytes of state, more than the 100000 of the setting query_state_bytes" in reason(engine, "hoarder")
    assert totals(engine, "good") == expected(0, 4999)
    engine._core.tidy(1 << 60, 1 << 60)
    assert engine.status().state_bytes < 100_000, "what it held is gone"


def test_creating_and_deleting_in_a_loop_disturbs_nobody(start: Callable[..., Engine], tmp_path: Path) -> None:
    """A thousand queries, a hundred at a time; for so many minutes as ``POISON_MINUTES`` says."""
    folder = tmp_path / "in"
    engine = start()
    stream(engine, folder)
    engine.create_query(REVENUE, id="good")
    texts = [REVENUE.replace("GROUP", f"WHERE price > {number} GROUP") for number in range(1000)]
    end = time.monotonic() + float(os.environ.get("POISON_MINUTES", "0")) * 60
    files, alive = 0, list[str]()
    while files < 10 or time.monotonic() < end:
        made = engine.create_queries([QueryRequest(text) for text in texts[files % 10 * 100 :][:100]])
        drop_file(folder, f"f{files:06}", purchases(files * 25, 25))
        assert not [one for one in engine.delete_queries(alive) if isinstance(one, MillstreamError)]
        alive = [query.id for query in made if isinstance(query, Query)]
        assert len(alive) == 100
        files += 1
    engine.delete_queries(alive)
    engine.await_idle()
    assert totals(engine, "good") == expected(0, (files * 25 - 1) // 10)
    core = engine._core
    core.tidy(1 << 60, 1 << 60)
    assert core.registry.running == 1
    assert len(core.metastore.group_versions("purchases")) <= 3, "versions of queries that are gone are forgotten"
