"""The texts of questions in both dialects. That Millstream and Spark agree on theirs is tested with the catalogue."""

from __future__ import annotations

import pytest

from millstream.bench.workloads.questions import Item, Join, Leg, Window, aggregation, first_of_window, rows, total

P, A = Leg("p", "purchases", "price > 5"), Leg("a", "ads")
ON = ("p.pack = a.pack",)
ROWS = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(`time`), INTERVAL '5' SECOND))"
FIVE = Window(5, 5)


def test_rows() -> None:
    question = rows("bids", ("id", "price"), "price > 3")
    assert question.sql == "SELECT id, price, time FROM bids WHERE price > 3"
    assert question.flink == "SELECT id, price, FLOOR(`time` TO SECOND) AS window_end FROM bids WHERE price > 3"
    assert (question.spec("q").length, question.spec("q").slide) == (0, 0)


def test_an_aggregation() -> None:
    spec = aggregation(FIVE, "bids", "", ("auction",), (total("price", "t"), Item("COUNT(*)", "n"))).spec("q7")
    assert spec.sql == (
        "SELECT auction, SUM(price) AS t, COUNT(*) AS n FROM bids "
        "GROUP BY auction, window(time, '5 seconds', '5 seconds')"
    )
    assert spec.flink == (
        "SELECT auction, SUM(CAST(price AS BIGINT)) AS t, COUNT(*) AS n, window_end "
        f"FROM {ROWS.format('bids')} GROUP BY auction, window_start, window_end"
    )
    assert (spec.id, spec.length, spec.slide, spec.plain) == ("q7", 5_000_000, 5_000_000, None)


def test_a_join() -> None:
    question = Join(FIVE, (P, A), ON, (Item("p.price", "price"),)).question
    window = "window(time, '5 seconds', '5 seconds') AS w"
    assert question.sql == (
        f"WITH w1 AS (SELECT *, {window} FROM purchases WHERE price > 5), w2 AS (SELECT *, {window} FROM ads) "
        "SELECT p.price AS price FROM w1 AS p JOIN w2 AS a ON p.pack = a.pack AND p.w = a.w"
    )
    assert question.flink == (
        "SELECT p.price AS price, p.window_end AS window_end "
        f"FROM (SELECT * FROM {ROWS.format('purchases')} WHERE price > 5) AS p "
        f"JOIN (SELECT * FROM {ROWS.format('ads')}) AS a "
        "ON p.pack = a.pack AND p.window_start = a.window_start AND p.window_end = a.window_end"
    )


def test_a_grouped_join_groups_by_the_window_too() -> None:
    question = Join(FIVE, (P, A), ON, (Item("p.pack", "k"), total("a.cost", "t")), ("p.pack",)).question
    assert question.sql.endswith("GROUP BY p.pack, p.w")
    assert question.flink is not None
    assert question.flink.startswith("SELECT p.pack AS k, SUM(CAST(a.cost AS BIGINT)) AS t, p.window_end AS window_end")
    assert question.flink.endswith("GROUP BY p.pack, p.window_start, p.window_end")


@pytest.mark.parametrize(("length", "slide", "sliced"), [(8, 4, True), (9, 9, True), (5, 1, True), (8, 3, False)])
def test_flink_aggregates_no_join_in_windows_that_are_not_whole_slides(length: int, slide: int, sliced: bool) -> None:
    grouped = Join(Window(length, slide), (P, A), ON, (Item("p.pack", "k"), Item("COUNT(*)", "n")), ("p.pack",))
    pure = Join(Window(length, slide), (P, A), ON, (Item("p.price", "price"),))
    questions = [pure.question, grouped.question, first_of_window(grouped, "n", "k")]
    assert [question.flink is not None for question in questions] == [True, sliced, sliced]


def test_flink_aggregates_a_stream_in_any_window() -> None:
    window = "(`time`, INTERVAL '3' SECOND, INTERVAL '8' SECOND)"
    assert aggregation(Window(8, 3), "bids", "price > 3", ("auction",), (Item("COUNT(*)", "n"),)).flink == (
        f"SELECT auction, COUNT(*) AS n, HOP_END{window} AS window_end FROM bids WHERE price > 3 "
        f"GROUP BY auction, HOP{window}"
    )
