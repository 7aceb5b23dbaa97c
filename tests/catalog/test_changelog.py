"""Sealing: epochs, cuts, refusals that leave no trace, client keys, group versions."""

from __future__ import annotations

import pytest
from tests.catalog.builders import (
    SECOND,
    STREAM,
    Clock,
    bucket,
    bucket_file,
    create,
    new,
    plan,
    result,
    run,
    stream,
    unwindowed,
    version,
    windowed,
)

from millstream.catalog.metastore import START_OF_TIME, Change, Cut, Metastore, Placement
from millstream.errors import CatalogError, EngineError


def test_a_change_is_the_next_epoch(store: Metastore, clock: Clock) -> None:
    clock.now = 77
    epoch = store.seal(create("q1", "q2"))
    assert (epoch.number, epoch.sealed_at, store.current_epoch()) == (1, 77, 1)
    assert epoch.cuts == {STREAM: Cut(0, None, None)}
    assert store.epoch(1) == epoch
    assert store.epoch(2) is None
    assert [(q.id, q.epoch, q.created_at, q.state) for q in store.queries()] == [
        ("q1", 1, 77, "running"),
        ("q2", 1, 77, "running"),
    ]
    assert store.query("q1").query == windowed()
    assert store.query("q1").sql == windowed().sql


def test_an_empty_change_is_no_epoch(store: Metastore) -> None:
    store.seal(create("q"))
    assert store.seal(Change()).number == 1
    assert store.epoch(2) is None


# lateness 2 s         batch 0       batch 1       seal        batch 2
#                      max 10 s      max 20 s        │          …
#                                                    └ first batch 2, fired to 18 s, partial until 20 s
def test_the_cut_lies_after_the_last_planned_batch(store: Metastore) -> None:
    run(store, 0, max_time=10)
    run(store, 1, max_time=20)
    epoch = store.seal(create("q"))
    assert epoch.cuts == {STREAM: Cut(2, 18 * SECOND, 20 * SECOND)}
    record = store.query("q")
    assert (record.first_batch, record.fired_to, record.partial_until) == (2, 18 * SECOND, 20 * SECOND)


def test_a_batch_that_runs_while_a_change_is_sealed_lies_before_the_cut(store: Metastore) -> None:
    run(store, 0, max_time=10)
    running = plan(store, 1)
    store.seal(create("q"))
    record = store.query("q")
    assert (record.first_batch, record.fired_to, record.partial_until) == (2, None, None)
    store.commit_batch(running, result(30))
    record = store.query("q")
    assert (record.fired_to, record.partial_until) == (28 * SECOND, 30 * SECOND)


def test_before_the_first_row_nothing_is_partial(store: Metastore) -> None:
    store.seal(create("q1"))
    running = plan(store, 0)
    store.seal(create("q2"))
    store.commit_batch(running, result(None))
    for id in ("q1", "q2"):
        record = store.query(id)
        assert (record.fired_to, record.partial_until) == (START_OF_TIME, START_OF_TIME)


def test_each_stream_has_its_own_cut(store: Metastore) -> None:
    store.add_stream(stream("ads", lateness=0))
    run(store, 0, max_time=10)
    plan(store, 0, "ads")
    epoch = store.seal(Change(creates=(new("p"), new("a", windowed(stream="ads")))))
    assert epoch.cuts == {STREAM: Cut(1, 8 * SECOND, 10 * SECOND), "ads": Cut(1, None, None)}
    assert store.query("p").fired_to == 8 * SECOND
    assert store.query("a").fired_to is None
    assert [query.id for query in store.queries(stream="ads")] == ["a"]


def refused(store: Metastore, change: Change, code: str) -> None:
    before = (store.current_epoch(), store.queries(), store.epoch_plan(99, STREAM))
    with pytest.raises(CatalogError) as error:
        store.seal(change)
    assert error.value.code == code
    assert (store.current_epoch(), store.queries(), store.epoch_plan(99, STREAM)) == before


def test_what_is_refused_leaves_no_effect(store: Metastore) -> None:
    store.seal(create("old", "gone", "failed"))
    store.seal(Change(deletes=("gone",)))
    rest = {"creates": (new("fresh"),), "versions": (version(1),)}
    refused(store, Change(deletes=("nobody",), **rest), "UNKNOWN_QUERY")  # type: ignore[arg-type]
    refused(store, Change(deletes=("gone",), **rest), "QUERY_DELETED")  # type: ignore[arg-type]
    refused(store, Change(deletes=("old", "old")), "QUERY_DELETED")
    refused(store, Change(creates=(new("fresh"), new("old"))), "DUPLICATE_QUERY")
    refused(store, Change(creates=(new("fresh"), new("gone"))), "DUPLICATE_QUERY")
    refused(store, Change(creates=(new("fresh"), new("fresh"))), "DUPLICATE_QUERY")
    refused(store, Change(creates=(new("fresh"), new("lost", windowed(stream="nowhere")))), "UNKNOWN_STREAM")


def test_a_client_key_makes_one_query_only(store: Metastore) -> None:
    store.seal(Change(creates=(new("q1", key="k"),)))
    epoch = store.seal(Change(creates=(new("q2", key="k"), new("q3"))))
    assert (epoch.number, epoch.existing, epoch.same_as) == (2, {"k": "q1"}, {"q2": "q1"})
    assert [query.id for query in store.queries()] == ["q1", "q3"]
    again = store.seal(Change(creates=(new("q4", key="k"),)))
    assert (again.number, again.existing) == (2, {"k": "q1"})
    found = store.query_by_key("me", "k")
    assert found is not None
    assert found.id == "q1"
    assert store.query_by_key("you", "k") is None


def test_client_keys_belong_to_their_owner(store: Metastore) -> None:
    store.seal(Change(creates=(new("q1", key="k", owner="me"), new("q2", key="k", owner="you"))))
    epoch = store.seal(Change(creates=(new("q3", key="k", owner="you"), new("q4", key="k", owner="me"))))
    assert epoch.same_as == {"q3": "q2", "q4": "q1"}
    assert [query.id for query in store.queries(owner="you")] == ["q2"]


def test_a_client_key_twice_in_one_change_is_one_query(store: Metastore) -> None:
    epoch = store.seal(Change(creates=(new("q1", key="k"), new("q2", key="k"))))
    assert epoch.same_as == {"q2": "q1"}
    assert [query.id for query in store.queries()] == ["q1"]


def test_a_client_key_outlives_its_query(store: Metastore) -> None:
    store.seal(Change(creates=(new("q1", key="k"),)))
    store.seal(Change(deletes=("q1",)))
    assert store.seal(Change(creates=(new("q2", key="k"),))).existing == {"k": "q1"}


def test_deleting_before_the_first_batch_ends_the_query_at_once(store: Metastore) -> None:
    run(store, 0, max_time=10)
    store.seal(create("q"))
    store.seal(Change(deletes=("q",)))
    record = store.query("q")
    assert (record.state, record.first_batch, record.last_batch, record.deleted_epoch) == ("deleted", 1, 0, 2)


def test_a_deleted_query_that_has_fired_all_is_gone_at_once(store: Metastore) -> None:
    run(store, 0, max_time=10)
    store.seal(create("q"))
    run(store, 1, max_time=10)
    store.seal(Change(deletes=("q",)))
    assert store.query("q").state == "deleted"


def test_a_deleted_query_with_windows_to_fire_stays(store: Metastore) -> None:
    store.seal(create("q"))
    run(store, 0, max_time=10)
    store.seal(Change(deletes=("q",)))
    record = store.query("q")
    assert (record.state, record.last_batch, record.closes_at, record.ended_at) == ("deleting", 0, 8 * SECOND, None)


def test_a_deleted_query_waits_for_its_last_batch(store: Metastore) -> None:
    store.seal(create("q"))
    run(store, 0, max_time=10)
    running = plan(store, 1)
    store.seal(Change(deletes=("q",)))
    assert (store.query("q").last_batch, store.query("q").closes_at) == (1, None)
    store.commit_batch(running, result(30))
    run(store, 2, max_time=90)
    assert (store.query("q").state, store.query("q").closes_at) == ("deleting", 28 * SECOND)


def test_a_query_without_window_ends_with_its_last_batch(store: Metastore) -> None:
    store.seal(Change(creates=(new("f", unwindowed()), new("g", unwindowed()))))
    run(store, 0, max_time=10)
    running = plan(store, 1)
    store.seal(Change(deletes=("f",)))
    assert store.query("f").state == "deleting"
    store.commit_batch(running, result(30))
    assert store.query("f").state == "deleted"
    store.seal(Change(deletes=("g",)))
    assert store.query("g").state == "deleted"


def test_a_failed_query_keeps_its_reason_and_can_be_deleted(store: Metastore) -> None:
    store.seal(create("q"))
    run(store, 0, max_time=10)
    store.set_failed("q", "too slow")
    store.set_failed("q", "again")
    assert (store.query("q").state, store.query("q").reason) == ("failed", "too slow")
    store.seal(Change(deletes=("q",)))
    assert (store.query("q").state, store.query("q").reason) == ("deleted", "too slow")
    store.set_failed("q", "later")
    assert store.query("q").state == "deleted"
    with pytest.raises(CatalogError) as error:
        store.set_failed("nobody", "why")
    assert error.value.code == "UNKNOWN_QUERY"


def test_epoch_plans_show_the_newest_version_of_each_group(store: Metastore) -> None:
    store.add_stream(stream("ads"))
    store.seal(Change(versions=(version(1), version(1, group="g2"))))
    store.seal(Change(versions=(version(2), version(1, group="g3", stream="ads"))))
    store.seal(Change(versions=(version(2, group="g2", retired=True),)))
    plans = {n: [(v.group, v.version) for v in store.epoch_plan(n, STREAM)] for n in range(5)}
    assert plans == {0: [], 1: [("g1", 1), ("g2", 1)], 2: [("g1", 2), ("g2", 1)], 3: [("g1", 2)], 4: [("g1", 2)]}
    assert store.epoch_plan(3, "ads") == (version(1, group="g3", stream="ads"),)
    assert store.group_versions(STREAM)[1] == version(2)


def test_a_version_comes_once(store: Metastore) -> None:
    store.seal(Change(versions=(version(1),)))
    with pytest.raises(EngineError):
        store.seal(Change(creates=(new("q"),), versions=(version(1),)))
    assert (store.current_epoch(), store.queries()) == (1, [])


def test_versions_go_when_neither_plan_nor_bucket_needs_them(store: Metastore) -> None:
    for number in (1, 2, 3):
        store.seal(Change(versions=(version(number),)))
    run(store, 0, max_time=1, files=(bucket_file("b", 0, bucket(0, version=2)),))
    running = plan(store, 1)
    store.seal(Change(versions=(version(4),)))
    assert store.expire_versions(STREAM) == [version(1).path]
    store.commit_batch(running, result(2))
    assert store.expire_versions(STREAM) == [version(3).path]
    store.drop_files(["b"])
    assert store.expire_versions(STREAM) == [version(2).path]
    assert store.epoch_plan(store.current_epoch(), STREAM) == (version(4),)
    store.seal(Change(versions=(version(5, retired=True),)))
    assert store.expire_versions(STREAM) == [version(4).path]
    assert store.group_versions(STREAM) == []


def test_queries_can_be_placed_anew(store: Metastore) -> None:
    store.seal(create("q"))
    store.seal(Change(placements=(Placement("q", "g9", 7),)))
    assert (store.query("q").group, store.query("q").slot, store.query("q").epoch) == ("g9", 7, 1)
    with pytest.raises(EngineError):
        store.seal(Change(placements=(Placement("nobody", "g9", 7),)))
    assert store.current_epoch() == 2


def test_history_is_forgotten_by_age(store: Metastore, clock: Clock) -> None:
    store.seal(create("old"))
    store.seal(Change(deletes=("old",)))
    clock.now = 5000
    store.seal(create("young"))
    store.seal(Change(deletes=("young",)))
    store.seal(create("running"))
    assert store.expire_history(before=5000) == ["old"]
    assert [query.id for query in store.queries()] == ["young", "running"]
    assert store.epoch(1) is None
    assert store.epoch(3) is not None
    store.seal(Change(creates=(new("old", windowed(99)),)))
    assert store.query("old").query == windowed(99)


def test_epochs_go_though_an_older_query_stays(store: Metastore, clock: Clock) -> None:
    """
    epochs   1: "always"   2 to 7: others come and go   8: the newest
    kept     1: it is the epoch of a query              8
    """
    store.seal(create("always"))
    for number in range(3):
        store.seal(create(f"q{number}"))
        store.seal(Change(deletes=(f"q{number}",)))
    clock.now += 10_000
    store.seal(create("newest"))
    store.expire_history(before=clock.now)
    assert [number for number in range(1, 9) if store.epoch(number) is not None] == [1, 8]


def test_queries_are_read_by_state(store: Metastore) -> None:
    store.seal(create("a", "b"))
    store.seal(Change(deletes=("a",)))
    assert [query.id for query in store.queries(states=("running", "deleting"))] == ["b"]
    assert store.queries(states=()) == []
    with pytest.raises(CatalogError) as error:
        store.query("nobody")
    assert error.value.code == "UNKNOWN_QUERY"


def test_thousands_of_queries_are_read_whole(store: Metastore, url: str) -> None:
    ids = [f"q{number:04}" for number in range(2500)]
    store.seal(create(*ids))
    store.seal(Change(deletes=tuple(ids[:1500])))
    again = Metastore.open(url, holder="again")
    assert [query.id for query in again.queries()] == ids
    assert len(again.queries(states=("running",))) == 1000
    again.close()
