"""What queries and owners hold, and whom the limits stop: decisions without Spark or files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millstream.catalog.records import Frontier
from millstream.config import Limits, Settings
from millstream.engine.owners import Owners, check_query, check_text, over_in_fire, over_together, predicates_of
from millstream.engine.state_shares import over_state, shares
from millstream.errors import CatalogError, SpecError
from millstream.model.expression import Call, Column, Expression, Literal
from millstream.model.plan import FireResult
from millstream.model.query import WindowSpec
from millstream.model.types import BOOLEAN, LONG
from tests.catalog.builders import join, unwindowed, windowed

PRICE = Column("price", LONG)
WINDOWS = {"short": WindowSpec(10, 10), "long": WindowSpec(100, 100), "join#0": WindowSpec(100, 100)}


def frontier(query: str, fired_to: int | None, group: str = "g-1") -> Frontier:
    return Frontier(query, group, fired_to, None, None)


def test_a_bucket_is_shared_by_the_queries_that_still_need_it() -> None:
    """
    buckets   |0 … 10|10 … 20|…|40 … 50|    100 bytes each
    long      |------------- 0 … 100 ------     has fired nothing
    short                       |40 … 50|       has fired up to 40
    """
    sizes = {"g-1": [(end, 100) for end in range(10, 51, 10)], "g-2": [(10, 7)]}
    frontiers = [frontier("short", 40), frontier("long", 0), frontier("join#0", 0, "g-2")]
    assert shares(sizes, frontiers, WINDOWS.get) == {"long": 450, "short": 50, "join": 7}
    assert shares({}, frontiers, WINDOWS.get) == {"long": 0, "short": 0, "join": 0}
    assert shares(sizes, [frontier("short", 50)], WINDOWS.get) == {"short": 0}


def test_the_legs_of_a_join_count_on_it_and_a_query_without_a_cut_may_need_all() -> None:
    sizes = {"g-1": [(10, 100)], "g-2": [(10, 50)]}
    windows = {"join#0": WindowSpec(10, 10), "join#1": WindowSpec(10, 10), "new": WindowSpec(10, 10)}
    frontiers = [frontier("join#0", 0), frontier("join#1", 0, "g-2"), frontier("new", None)]
    assert shares(sizes, frontiers, windows.get) == {"join": 100, "new": 50}


def test_who_holds_too_much_is_stopped_and_an_owners_largest_first() -> None:
    limits = Limits(query_state_bytes=100, owner_state_bytes=150)
    owners = {"a": "me", "b": "me", "c": "me", "d": "x", "e": "y"}
    held = {"a": 90, "b": 70, "c": 60, "d": 101, "e": 100}
    assert over_state(held, owners.__getitem__, Limits()) == {}
    more = "bytes of state, more than the"
    assert over_state(held, owners.__getitem__, limits) == {
        "d": f"LIMIT_EXCEEDED: the query has 101 {more} 100 of the setting query_state_bytes",
        "a": f"LIMIT_EXCEEDED: the owner 'me' has 220 {more} 150 of the setting owner_state_bytes",
    }


def test_groups_and_rows_of_one_fire_are_added_up_by_owner() -> None:
    result = FireResult(rows_by_query={"a": 5, "b": 6, "c": 9}, groups_by_query={"a": 50, "b": 1, "c": 100})
    owner = {"a": "me", "b": "me", "c": "you"}.__getitem__
    assert over_in_fire(result, owner, Limits()) == {}
    assert list(over_in_fire(result, owner, Limits(owner_answer_rows=10))) == ["b"]
    assert list(over_in_fire(result, owner, Limits(owner_groups=50))) == ["c", "a"]
    assert over_together("owner_groups", {}, owner, 1, "groups") == {}


def test_a_fire_that_catches_up_stops_nobody_for_its_many_windows() -> None:
    result = FireResult(rows_by_query={"a": 5000, "b": 6001}, windows_by_query={"a": 1000, "b": 1000})
    assert over_in_fire(result, lambda query: "me", Limits(owner_answer_rows=12)) == {}
    assert list(over_in_fire(result, lambda query: "me", Limits(owner_answer_rows=11))) == ["b"]


def any_of(count: int) -> Expression:
    parts: Expression = Call("EqualTo", (PRICE, Literal(0, LONG)), BOOLEAN)
    for number in range(1, count):
        parts = Call("Or", (parts, Call("EqualTo", (PRICE, Literal(number, LONG)), BOOLEAN)), BOOLEAN)
    return parts


def test_predicates_are_counted_in_all_conditions() -> None:
    assert predicates_of(unwindowed()) == 0
    assert predicates_of(windowed()) == 1
    deep = replace(windowed(), where=any_of(5000), having=Call("Not", (any_of(2),), BOOLEAN))
    assert predicates_of(deep) == 5002
    values = tuple(Literal(number, LONG) for number in range(30))
    assert predicates_of(replace(windowed(), where=Call("In", (PRICE, *values), BOOLEAN))) == 30
    assert predicates_of(join()) == 1
    with pytest.raises(CatalogError, match="the query has 5002 predicates, more than the 2000") as refused:
        check_query(deep, Limits())
    assert refused.value.code == "LIMIT_EXCEEDED"


@pytest.mark.parametrize(
    ("where", "predicates"),
    [
        ("a = 1", 1),
        ("a = 1 AND b = 2 OR c = 3", 3),
        ("a BETWEEN 1 AND 2 AND b = 3", 2),
        ("a IN (1, 2, 3) AND f(a, b, c) = 4", 4),
        ("(a, b) IN ((1, 2), (3, 4))", 2),
        ("a = 'x AND y AND z' -- AND AND", 1),
    ],
)
def test_predicates_of_a_text_are_counted_before_it_is_analysed(where: str, predicates: int) -> None:
    text = f"SELECT a FROM s WHERE {where}" + " " * 100
    check_text(text, Limits(query_predicates=predicates))
    if predicates > 1:
        with pytest.raises(CatalogError, match=f"has {predicates} predicates"):
            check_text(text, Limits(query_predicates=predicates - 1))


def test_owners_are_told_apart_and_get_back_what_is_deleted() -> None:
    owners = Owners(Limits(owner_queries=2, owner_predicates=3))
    owners.add("a", "me", windowed())
    owners.add("b", "me", windowed())
    with pytest.raises(CatalogError, match="the owner 'me' has 3 queries"):
        owners.check([("me", unwindowed())])
    with pytest.raises(CatalogError, match="the owner without a name has 3 queries"):
        owners.check([("", unwindowed())] * 3)
    owners.check([("you", windowed()), ("", windowed())])
    owners.remove("a")
    owners.remove("a")
    owners.check([("me", windowed())])
    assert owners.owner("a") == "me"
    owners.forget("a")
    assert owners.owner("a") == ""


def test_limits_are_settings() -> None:
    settings = Settings(query_groups=7, evaluation_time=5)
    assert (settings.limits.query_groups, settings.limits.evaluation_time) == (7, 5)
    assert Settings().limits == Limits()
    with pytest.raises(SpecError, match="owner_queries is 0, but must be at least 1"):
        Settings(owner_queries=0)
