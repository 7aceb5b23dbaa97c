"""Finding the queries that make a batch fail: every case played through, without Spark."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from millstream.engine.suspects import MOST_TRIALS, NOBODY, Queries, Verdict, next_trial

NAMES = [f"q{number}" for number in range(300)]


def play(
    queries: list[str],
    culprits: set[str],
    new: set[str] = frozenset(),
    most: int = MOST_TRIALS,  # type: ignore[assignment]
) -> tuple[Queries | None, list[Queries]]:
    """Try until the end; the batch fails while one of the culprits is in it."""
    history: dict[Queries, bool] = {}
    tried: list[Queries] = []
    while True:
        step = next_trial(history, queries, new, most)
        if isinstance(step, Verdict):
            return step.left_out, tried
        assert step not in history, "nothing is tried twice"
        history[step] = culprits <= step
        tried.append(step)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13, 64])
def test_every_single_culprit_is_found_and_nobody_else(count: int) -> None:
    queries = NAMES[:count]
    for culprit in queries:
        found, tried = play(queries, {culprit})
        assert found == {culprit}
        assert len(tried) <= 3 + 3 * math.ceil(math.log2(max(count, 2)))


@pytest.mark.parametrize("count", [2, 3, 7, 12])
def test_every_pair_is_found_and_nobody_else(count: int) -> None:
    queries = NAMES[:count]
    for pair in itertools.combinations(queries, 2):
        found, _ = play(queries, set(pair))
        assert found == set(pair)


def test_a_failure_that_does_not_come_back_is_held_against_nobody() -> None:
    assert play(NAMES[:9], set()) == (NOBODY, [NOBODY])


@pytest.mark.parametrize("count", [0, 1, 2, 10])
def test_a_batch_that_fails_without_any_query_is_held_against_nobody(count: int) -> None:
    found, tried = play(NAMES[:count], {"the disk"})
    assert found is None
    assert tried[-1] == frozenset(NAMES[:count]), "nobody is let off before all have been left out"


def test_new_queries_are_the_first_under_suspicion() -> None:
    new = set(NAMES[3:6])
    found, tried = play(NAMES[:200], {NAMES[4]}, new)
    assert found == {NAMES[4]}
    assert tried[:2] == [NOBODY, frozenset(new)]
    assert len(tried) <= 5


def test_an_old_culprit_is_found_though_queries_are_new() -> None:
    found, _ = play(NAMES[:20], {NAMES[15]}, set(NAMES[:3]))
    assert found == {NAMES[15]}


def test_several_among_many_are_found_without_their_neighbours() -> None:
    chosen = random.Random(7)
    for _ in range(20):
        culprits = set(chosen.sample(NAMES, 3))
        found, tried = play(NAMES, culprits)
        assert found == culprits
        assert len(tried) <= MOST_TRIALS


def test_the_trials_end_with_the_smallest_set_that_is_known_to_pass() -> None:
    culprits = set(NAMES[::2])
    found, tried = play(NAMES, culprits, most=20)
    assert found is not None
    assert culprits <= found
    assert len(tried) <= 20


def test_what_is_known_already_is_not_asked_again() -> None:
    """A process that died goes on where it was: the history alone decides."""
    _, tried = play(NAMES[:16], {NAMES[11]})
    history = {left_out: NAMES[11] in left_out for left_out in tried[:4]}
    assert next_trial(history, NAMES[:16]) == tried[4]
