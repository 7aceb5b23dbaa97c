"""What is due, and how the work is shared out: decisions without Spark, clock or files.

fired_to ──►|        watermark ──►|
            |--window--|--window--|--window--|
               due        due       open
"""

from __future__ import annotations

from millstream.catalog.records import Frontier
from millstream.engine.firing import due_queries, lowest_needed, share_out
from millstream.model.query import WindowSpec
from millstream.runtime.fire import BucketRef, DueQuery, FireItem

WINDOWS = {"tumbling": WindowSpec(10, 10), "sliding": WindowSpec(10, 2), "filter": None}


def frontier(query: str, fired_to: int | None, closes_at: int | None = None) -> Frontier:
    return Frontier(query, "g-1", fired_to, None, closes_at)


def test_a_query_is_due_when_a_window_of_its_own_has_closed() -> None:
    due = due_queries([frontier("tumbling", 10), frontier("sliding", 10)], 13, WINDOWS.get)
    assert due.moves == {"sliding": (10, 13)}
    assert [one.query for one in due.by_group["g-1"]] == ["sliding"]
    assert due_queries([frontier("tumbling", 10)], 20, WINDOWS.get).moves == {"tumbling": (10, 20)}


def test_queries_whose_cut_is_unknown_or_that_have_no_window_wait() -> None:
    assert due_queries([frontier("tumbling", None), frontier("filter", 0)], 100, WINDOWS.get).moves == {}


def test_a_deleted_query_fires_up_to_its_own_last_batch_and_then_ends() -> None:
    due = due_queries([frontier("tumbling", 10, closes_at=25)], 100, WINDOWS.get)
    assert due.moves == {"tumbling": (10, 25)}
    done = due_queries([frontier("tumbling", 20, closes_at=25)], 100, WINDOWS.get)
    assert (done.moves, done.by_group) == ({"tumbling": (20, 25)}, {})
    assert due_queries([frontier("tumbling", 25, closes_at=25)], 100, WINDOWS.get).moves == {}


def test_slices_are_needed_from_the_earliest_window_still_to_fire() -> None:
    frontiers = [frontier("tumbling", 10), frontier("sliding", 10)]
    assert lowest_needed(frontiers, {"tumbling": (10, 40), "sliding": (10, 40)}, WINDOWS.get) == {"g-1": 32}
    assert lowest_needed([frontier("tumbling", 20, closes_at=20)], {}, WINDOWS.get) == {}
    assert lowest_needed([frontier("tumbling", None)], {}, WINDOWS.get)["g-1"] < -(2**62)


def item(group: int, queries: int, length: int) -> FireItem:
    due = tuple(DueQuery(f"{group}-{i}", 0, 10, None) for i in range(queries))
    return FireItem((f"v{group}",), due, (BucketRef(0, "p", 0, length, 0, 10, 0, None),), 0, 10)


def test_work_is_shared_evenly_and_large_groups_are_divided_by_queries() -> None:
    shares = share_out([item(1, 200, 1000), item(2, 3, 10)], 2)
    assert len(shares) == 2
    owners = [one.query for share in shares for piece in share for one in piece.due]
    assert sorted(owners) == sorted({*owners}), "every query once"
    assert len(owners) == 203
    compacting = [piece.versions for share in shares for piece in share if piece.compact]
    assert sorted(compacting) == [("v1",), ("v2",)], "each group is compacted by one task"
    assert len(share_out([item(1, 5, 100)], 4)) == 1
