"""Homes that earlier versions wrote: the engine takes them over and goes on with right answers."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream import Engine
from millstream.catalog import tables
from millstream.config import Settings
from tests.support import homes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = 1_000_000
# The answers were given when the home was made, longer ago than they would be kept.
SETTINGS = Settings(answer_retention=10**18)


def purchases() -> list[tuple[int, int, Decimal, int]]:
    """User, pack, price and time in microseconds."""
    rows = homes.GENERATOR.generate(0, homes.ROWS).to_pylist()
    return [(r["user_id"], r["gem_pack"], r["price"], round(r["time"].timestamp() * SECOND)) for r in rows]


def expected(size: int, slide: int, least: Decimal | None = None) -> dict[tuple[int, int], list[Decimal]]:
    """The prices of each (window end, pack), for windows that the rows have closed."""
    rows = purchases()
    closed = max(time for *_, time in rows) - homes.LATENESS
    found: dict[tuple[int, int], list[Decimal]] = defaultdict(list)
    for _, pack, price, time in rows:
        first = (time // slide + 1) * slide
        for end in range(first, first + size, slide):
            if end <= closed and time >= end - size and (least is None or price > least):
                found[end, pack].append(price)
    return found


def answered(engine: Engine, id: str, column: str) -> dict[tuple[int, int], object]:
    found: dict[tuple[int, int], object] = {}
    for answer in engine.read_answers(id, limit=1000).answers:
        assert answer.window_end is not None
        for row in answer.table.to_pylist():
            place = (round(answer.window_end.timestamp() * SECOND), row["gem_pack"])
            assert place not in found, "answered twice"
            found[place] = row[column]
    return found


@pytest.mark.parametrize("version", range(1, tables.SCHEMA_VERSION))
def test_a_home_of_an_earlier_version_goes_on(spark: SparkSession, home: Path, version: int) -> None:
    homes.unpack(version, home)
    with Engine(home=home, spark=spark, settings=SETTINGS) as engine:
        before = engine.stream("purchases")
        assert 0 < before.rows < homes.ROWS
        cursor = engine.read_answers("revenue", limit=1).cursor
        engine.await_idle()
        assert engine.stream("purchases").rows == homes.ROWS
        sums = {place: sum(prices) for place, prices in expected(2 * SECOND, SECOND).items()}
        assert answered(engine, "revenue", "revenue") == sums
        most = {place: max(prices) for place, prices in expected(3 * SECOND, 3 * SECOND, Decimal(20)).items()}
        assert answered(engine, "most", "most") == most
        rows = [row for a in engine.read_answers("three", limit=1000).answers for row in a.table.to_pylist()]
        assert [row["price"] for row in rows] == [price for user, _, price, _ in purchases() if user == 3]
        assert len(engine.read_answers("revenue", cursor, limit=1000).answers) == len({end for end, _ in sums}) - 1
        assert engine.query("gone").status().state == "deleted"
        assert engine.create_query("SELECT price FROM purchases", owner="ann", key="k1").id == "revenue"
        assert engine.create_query("SELECT count(*) AS n FROM purchases GROUP BY window(time, '1 second')").epoch > 5
