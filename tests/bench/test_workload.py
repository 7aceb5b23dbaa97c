"""The queries of the workload are the same for a seed, and all kinds of them occur."""

from __future__ import annotations

from itertools import product

import pytest

from millstream.bench.workload import DEFAULT_SEED, FIELDS, OPERATORS, AStreamQuery, draw_queries

ALL_WINDOWS = {(length, slide) for length in range(1, 11) for slide in range(1, length + 1)}


def test_a_seed_makes_the_same_queries() -> None:
    assert draw_queries(100, seed=3) == draw_queries(100, seed=3)
    assert draw_queries(100, seed=3) != draw_queries(100, seed=4)


def test_fewer_queries_are_the_beginning_of_more() -> None:
    assert draw_queries(1000)[:20] == draw_queries(20)


def test_a_thousand_queries_have_every_window_and_every_predicate() -> None:
    queries = draw_queries(1000)
    assert len(ALL_WINDOWS) == 55
    assert {(query.length, query.slide) for query in queries} == ALL_WINDOWS
    assert {(query.field, query.operator) for query in queries} == set(product(FIELDS, OPERATORS))
    assert all(0 <= query.constant < 500 for query in queries)


def test_the_first_query_of_the_default_seed_has_the_window_that_suits_plain_spark() -> None:
    (first,) = draw_queries(1, DEFAULT_SEED)
    assert first.length == first.slide


@pytest.mark.parametrize(("operator", "passing"), [("<", 120), (">", 379), ("=", 1), ("<=", 121), (">=", 380)])
def test_the_text_says_what_the_query_is(operator: str, passing: int) -> None:
    query = AStreamQuery("field2", operator, 120, 6, 2)
    condition = query.sql.partition(" WHERE ")[2].partition(" GROUP BY ")[0]
    compare = condition.replace(" = ", " == ")
    assert sum(eval(compare, {"field2": value}) for value in range(500)) == passing
    assert query.sql.endswith("GROUP BY key, window(time, '6 seconds', '2 seconds')")
