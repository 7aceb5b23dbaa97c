"""The index of buckets: what a clean-up may forget."""

from __future__ import annotations

from millstream.engine.buckets import BucketIndex
from millstream.model.plan import Bucket, BucketFile


def file(name: str, *groups: str, end: int = 10) -> BucketFile:
    return BucketFile(name, "s", 0, None, tuple(Bucket(g, 1, end - 10, end, n, 1, 1) for n, g in enumerate(groups)))


def test_a_file_goes_with_its_last_bucket() -> None:
    index = BucketIndex([file("a", "g-1", "g-2")])
    assert index.below({"g-1": 10, "g-2": 0}, index.mark()) == []
    assert index.between("g-1", 0, 100) == []
    assert index.below({"g-2": 10}, index.mark()) == ["a"]


def test_groups_that_nobody_names_need_nothing() -> None:
    index = BucketIndex([file("a", "g-1")])
    assert index.below({}, index.mark()) == ["a"]


def test_what_came_after_the_frontiers_were_read_stays() -> None:
    """A query may be created, and its first batch committed, while a fire runs that has not heard of it."""
    index = BucketIndex([file("old", "g-1")])
    mark = index.mark()
    index.add([file("new", "g-2"), file("more", "g-1")])
    assert index.below({"g-1": 10}, mark) == ["old"]
    assert [s.path for s in index.between("g-2", 0, 100)] == ["new"]
    assert [s.path for s in index.between("g-1", 0, 100)] == ["more"]
    assert sorted(index.below({"g-1": 10}, index.mark())) == ["more", "new"]


def test_groups_that_are_anothers_business_stay() -> None:
    index = BucketIndex([file("a", "g-1"), file("b", "g-2")])
    assert index.below({}, index.mark(), lambda group: group != "g-2") == ["a"]
    assert [s.path for s in index.between("g-2", 0, 100)] == ["b"]


def test_compacted_buckets_take_the_place_of_others() -> None:
    index = BucketIndex([file("a", "g-1"), file("b", "g-1", "g-2")])
    assert index.replace([("a", 0), ("b", 0)], [file("c", "g-1")]) == ["a"]
    assert [s.path for s in index.between("g-1", 0, 100)] == ["c"]
