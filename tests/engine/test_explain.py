"""Explanations of real queries: what is shared with whom, and sizes that can be counted by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from millstream import Engine
from millstream.engine import measuring
from millstream.engine.explanation import Explanation, Joined

from .test_joins import LEFT, ON, ROWS, SOURCES, TOTALS, Live

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOLD = "SELECT gem_pack, COUNT(*) AS n FROM purchases WHERE price > 3 GROUP BY gem_pack, window(time, '1 second')"
THREE = f"{SOURCES}SELECT p.price, b.cost FROM p JOIN a {ON} JOIN a b ON b.w = a.w AND b.cost = a.cost"
FILTER = "SELECT price FROM purchases WHERE price % 2 = 0"


@pytest.fixture(scope="module")
def engine(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """
    purchases   |- 1 s -|- 2 s -|···     rows 0 … 24: the window [2, 3) is open, with 5 rows
    ads         |- 1 s -|- 2 s -|···     rows 0 … 27: … with 8 rows
    """
    folder = tmp_path_factory.mktemp("explain")
    (folder / "home").mkdir()
    live = Live(spark, folder / "home", folder)
    texts = {"rows": ROWS, "totals": TOTALS, "left": LEFT, "three": THREE, "sold": SOLD, "filter": FILTER}
    for id, sql in texts.items():
        live.engine.create_query(sql, id=id)
    for number in range(8):
        live.engine.create_query(ROWS.replace(">= 3", f">= {number + 4}"), id=f"more-{number}")
    live.feed(range(25), range(28))
    yield live.engine
    live.engine.stop()


def test_a_join_tells_its_legs_and_sizes(engine: Engine) -> None:
    found = engine.explain("rows")
    assert found.query == "rows"
    assert found.window == "windows of 1 s"
    assert (found.windows, found.answer_rows) == (2, engine.query("rows").status().answer_rows)
    left, right = found.sources
    assert (left.name, left.where, left.keys, left.keeps) == (
        "p: purchases",
        None,
        ("gem_pack",),
        ("gem_pack", "price"),
    )
    assert (right.name, right.where) == ("a: ads", "cost >= 3")
    # Purchases 20 … 24 are of 3 gem packs, ads 20 … 27 of 5: packs 0, 1 and 2 meet.
    # Few rows of each pack are runs of their own.
    assert (left.window_rows, left.window_runs) == (5, 5)
    assert right.window_rows == 8
    assert found.join is not None
    meeting = sum(1 for p in range(20, 25) for a in range(20, 28) if p % 3 == a % 5)
    assert (found.join.kind, found.join.on, found.join.rows) == ("inner", ("p.gem_pack = a.gem_pack",), meeting)
    assert found.join.estimated_rows == round(5 * 8 / 5)
    assert found.next_window is not None
    assert [moment.timestamp() for moment in found.next_window] == [2.0, 3.0]


def test_company_is_counted_and_a_few_are_named(engine: Engine) -> None:
    found = engine.explain("rows")
    right = found.sources[1]
    assert right.shared_queries >= 8
    assert len(right.shared_with) == 5
    assert found.fired_with >= 8
    line = next(line for line in found.tree if f"group {right.group} " in line)
    assert line.endswith(", …")


def test_the_drawing_is_a_tree(engine: Engine) -> None:
    lines = str(engine.explain("three")).splitlines()
    assert lines[0] == "three  running  windows of 1 s"
    heads = [line for line in lines if "─ " in line]
    assert heads == [
        "└─ inner join on a.cost = b.cost",
        "   ├─ inner join on p.gem_pack = a.gem_pack",
        "   │  ├─ p: purchases",
        "   │  └─ a: ads",
        "   └─ b: ads",
    ]
    assert max(map(len, lines)) < 120


def test_grouped_outer_and_single_queries(engine: Engine) -> None:
    totals = engine.explain("totals")
    assert totals.grouped_by == ("p.gem_pack",)
    assert all(not source.keeps for source in totals.sources)
    left = engine.explain("left")
    assert left.join is not None
    assert left.join.on == ("p.gem_pack = a.gem_pack", "a.cost > p.price")
    sold = engine.explain("sold")
    assert (sold.join, sold.grouped_by, sold.sources[0].window_rows) == (None, ("gem_pack",), 5)
    batches = engine.explain("filter")
    assert (batches.window, batches.next_window, batches.sources[0].window_rows) == (None, None, None)


def test_what_would_take_long_is_not_counted(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "MOST_PAIRS", 1)
    found = engine.explain("left")
    assert found.join is not None
    assert found.join.rows is None
    assert any("too many to count here" in line for line in found.tree)
    monkeypatch.setattr("millstream.engine.explain.MOST_CELLS", 1)
    assert engine.explain("left").next_window is None


def test_a_deleted_query_is_explained_without_sizes(engine: Engine) -> None:
    engine.create_query(ROWS, id="gone")
    engine.delete_query("gone")
    found = engine.explain("gone")
    assert (found.state, found.next_window) == ("deleted", None)
    assert found.tree


def legs(join: int | Joined) -> list[int]:
    return [join] if isinstance(join, int) else [*legs(join.left), *legs(join.right)]


def test_every_source_is_a_leaf(engine: Engine) -> None:
    found: Explanation = engine.explain("three")
    assert found.join is not None
    assert legs(found.join) == list(range(len(found.sources)))
