"""Trials of a batch in the metastore: written down before they run, with group versions for that batch alone."""

from __future__ import annotations

from tests.catalog.builders import STREAM, bucket, bucket_file, new, plan, result, run, version

from millstream.catalog.batches import KEEP_PLANS, PRUNE_EVERY
from millstream.catalog.metastore import Change, Metastore, Trial


def test_a_trial_has_no_outcome_until_it_ends(store: Metastore) -> None:
    one = plan(store, 0)
    assert store.trials(STREAM, 0) == []
    assert store.begin_trial(one, (), ()) == 0
    assert store.begin_trial(one, ("b", "a"), ()) == 1
    assert store.trials(STREAM, 0) == [Trial(0, (), None, None), Trial(1, ("b", "a"), None, None)]
    store.end_trial(one, 0, "MemoryError: no memory")
    store.end_trial(one, 1, None)
    assert store.trials(STREAM, 0) == [
        Trial(0, (), False, "MemoryError: no memory"),
        Trial(1, ("b", "a"), True, None),
    ]
    assert store.trials(STREAM, 1) == []
    store.forget_trials(STREAM, 0)
    assert store.trials(STREAM, 0) == []


def test_versions_of_a_trial_are_in_no_epoch_plan_and_stay_while_the_batch_runs(store: Metastore) -> None:
    store.seal(Change(creates=(new("a"), new("b")), versions=(version(1),)))
    one = plan(store, 0)
    store.begin_trial(one, ("b",), (version(-1),))
    store.seal(Change(creates=(new("c"),), versions=(version(2),)))
    assert store.expire_versions(STREAM) == []
    for epoch in range(5):
        assert all(ref.version > 0 for ref in store.epoch_plan(epoch, STREAM))
    assert [ref.version for ref in store.epoch_plan(one.epoch, STREAM)] == [1]
    made = bucket_file("buckets/0", 0, bucket(0, version=-1))
    store.commit_batch(one, result(5, files=(made,)))
    assert store.expire_versions(STREAM) == [version(1).path], "it is kept for the bucket"
    store.drop_files(["buckets/0"])
    assert store.expire_versions(STREAM) == [version(-1).path]
    assert [ref.version for ref in store.group_versions(STREAM)] == [2]


def test_versions_of_trials_that_came_to_nothing_are_forgotten(store: Metastore) -> None:
    store.seal(Change(creates=(new("a"), new("b")), versions=(version(1),)))
    one = plan(store, 0)
    store.begin_trial(one, ("b",), (version(-1),))
    store.begin_trial(one, ("a",), (version(-2),))
    store.commit_batch(one, result(5))
    store.seal(Change(creates=(new("c"),), versions=(version(2),)))
    assert sorted(store.expire_versions(STREAM)) == sorted(version(n).path for n in (-2, -1, 1))


def test_old_trials_are_forgotten_with_their_plans(store: Metastore) -> None:
    one = plan(store, 0)
    store.begin_trial(one, (), ())
    store.commit_batch(one, result(0))
    last = KEEP_PLANS + PRUNE_EVERY
    for batch in range(1, last + 1):
        run(store, batch)
        if batch < KEEP_PLANS:
            assert store.trials(STREAM, 0) != []
    assert store.trials(STREAM, 0) == []
