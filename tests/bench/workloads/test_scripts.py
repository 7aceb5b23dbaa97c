"""Scripts: how many queries run when, and that a shorter run has the same steps."""

from __future__ import annotations

from itertools import count, pairwise

import pytest

from millstream.bench.driving.model import WARM_UP, QuerySpec, Request
from millstream.bench.workloads.scripts import (
    FALL,
    LEAST_ROUNDS,
    NOISE,
    RISEN,
    RISES,
    TURN,
    Script,
    Scripted,
    Step,
    ad_hoc,
    changing,
    doubling,
    fluctuating,
    play,
    ramp,
    replacing,
    static,
)
from millstream.errors import SpecError

# Long enough for figure 16 in its own seconds.
LONG = 2000.0

ALL = {
    "static": static(10),
    "ramp": ramp(3, 20),
    "replacing": replacing(5, 10, 5),
    "ad hoc": ad_hoc(4, 2, 10, 3),
    "doubling": doubling(7),
    "changing": changing(10, 0.2),
    "fluctuating": fluctuating(50),
}


def played(script: Script) -> tuple[tuple[QuerySpec, ...], tuple[Request, ...]]:
    return play(script, (QuerySpec(f"q{n}", "SELECT 1", 0, 0) for n in count()))


def running(scripted: Scripted, seconds: float, queries: int | None = None) -> list[tuple[float, int]]:
    """How many queries run from each moment on; fails where one is deleted that does not run."""
    initial, requests = played(scripted(seconds, queries))
    alive = {query.id for query in initial}
    counts = [(0.0, len(alive))]
    for request in requests:
        assert alive >= set(request.delete)
        alive = (alive - set(request.delete)) | {query.id for query in request.create}
        counts.append((request.at, len(alive)))
    return counts


def at(counts: list[tuple[float, int]], moment: float) -> int:
    return [number for begin, number in counts if begin <= moment][-1]


def test_the_oldest_go_first_and_the_kept_never() -> None:
    """
    q0 (kept)  ────────────────────
    q1         ─────┤
    q2         ─────────────┤
    q3 q4           ├───────┤ q3   ├── q4 goes on
    """
    script = Script(3, (Step(1.0, 2, 1), Step(2.0, 0, 2)), kept=1)
    initial, requests = played(script)
    assert [query.id for query in initial] == ["q0", "q1", "q2"]
    assert [query.id for query in requests[0].create] == ["q3", "q4"]
    assert [request.delete for request in requests] == [("q1",), ("q2", "q3")]


@pytest.mark.parametrize(("rate", "level"), [(1, 20), (10, 60), (100, 1000)])
def test_the_first_scenario_reaches_its_level_at_its_rate(rate: int, level: int) -> None:
    counts = running(ramp(rate, level), 200.0)
    assert counts[0] == (0.0, 1)
    assert counts[-1][1] == level
    assert counts[1][0] == WARM_UP * 200.0
    steps = list(pairwise(counts[1:]))
    assert {later[0] - earlier[0] for earlier, later in steps} == {1.0}
    assert {later[1] - earlier[1] for earlier, later in steps[:-1]} == {rate}


def test_a_short_run_keeps_the_full_level_for_half_of_what_is_measured() -> None:
    counts = running(ramp(1, 101), 40.0)
    assert counts[-1] == (pytest.approx(10 + 15, abs=0.2), 101)
    assert running(ramp(1, 101), 40.0, queries=3)[-1][1] == 3


@pytest.mark.parametrize("replaced", [10, 30, 50])
def test_the_second_scenario_always_has_as_many(replaced: int) -> None:
    counts = running(replacing(replaced, 10, replaced), 120.0)
    assert {number for _, number in counts} == {replaced}
    assert [moment for moment, _ in counts] == [10.0 * n for n in range(12)]
    assert {number for _, number in running(replacing(replaced, 10, replaced), 120.0, queries=200)} == {200}


def test_no_more_than_there_are_can_be_replaced() -> None:
    with pytest.raises(SpecError, match="9 queries are fewer than the 10") as caught:
        replacing(10, 10, 10)(60.0, 9)
    assert caught.value.hint == "ask for at least 10"


# (added, removed, every, fixed), and how many run after each of the first rounds
AD_HOC = [
    ((1, 0, 10, 1), [1, 2, 3, 4, 5]),
    # Those that come can go a round later.
    ((8, 8, 10, 1), [1, 9, 9, 9, 9]),
    ((4, 2, 10, 3), [3, 7, 9, 11, 13]),
    ((1, 5, 10, 2), [2, 3, 3, 3, 3]),
    # None come: fixed ones go, to the last but one.
    ((0, 1, 10, 31), [31, 30, 29, 28, 27]),
    ((0, 2, 10, 4), [4, 2, 1]),
]


@pytest.mark.parametrize(("cell", "numbers"), AD_HOC)
def test_ad_hoc_runs(cell: tuple[int, int, int, int], numbers: list[int]) -> None:
    counts = running(ad_hoc(*cell), 120.0)
    assert [number for _, number in counts][:5] == numbers
    assert [moment for moment, _ in counts][:3] == [0.0, 10.0, 20.0]


def test_fixed_queries_stay() -> None:
    initial, requests = played(ad_hoc(10, 10, 5, 20)(60.0, None))
    gone = {id for request in requests for id in request.delete}
    assert len(gone) == 100
    assert gone.isdisjoint(query.id for query in initial)


def test_as_many_again_come_in_the_middle_of_what_is_measured() -> None:
    assert running(doubling(100), 80.0) == [(0.0, 100), (50.0, 200)]


@pytest.mark.parametrize(("queries", "changed"), [(None, 8), (100, 40), (1, 1)])
def test_a_share_is_replaced_in_the_middle_of_what_is_measured(queries: int | None, changed: int) -> None:
    script = changing(20, 0.4)(80.0, queries)
    assert script == Script(queries or 20, (Step(50.0, changed, changed),))
    initial, (request,) = played(script)
    assert request.delete == tuple(query.id for query in initial[:changed])
    assert not {query.id for query in request.create} & {query.id for query in initial}


def test_the_fluctuation_has_the_shape_of_figure_16() -> None:
    """
    100 |        ┌──┐          ┌─┐┌┐ ┌┐
     60 |    ┌───┘  └─┐     ┌──┘ └┘└─┘
     20 | ───┘        └──┬──┘
            50  200  410 775 1140 1200     seconds after the warm-up
    """
    counts, warm_up = running(fluctuating(100), LONG), WARM_UP * LONG
    assert counts[0] == (0.0, 20)
    for (moment, share), before in zip(RISES, (20, 60), strict=True):
        assert at(counts, warm_up + moment - 0.1) == before
        assert at(counts, warm_up + moment) == share * 100
    falling = [n for moment, n in counts if warm_up + FALL <= moment <= warm_up + TURN]
    rising = [n for moment, n in counts if warm_up + TURN < moment <= warm_up + RISEN]
    assert falling == sorted(falling, reverse=True)
    assert rising == sorted(rising)
    assert len(falling) == len(rising) == 20
    assert (falling[-1], rising[-1]) == (20, 100)
    noise = [n for moment, n in counts if moment >= warm_up + NOISE]
    assert 50 <= min(noise) < 60
    assert 90 < max(noise) <= 100
    turns = [(b - a) * (c - b) < 0 for a, b, c in zip(noise, noise[1:], noise[2:], strict=False)]
    assert sum(turns) > len(turns) / 2


@pytest.mark.parametrize("name", ["ramp", "doubling", "changing", "fluctuating"])
def test_a_squeezed_script_has_the_same_steps_in_the_same_order(name: str) -> None:
    long, short = ALL[name](LONG, None), ALL[name](20.0, None)
    assert [(s.create, s.delete) for s in short.steps] == [(s.create, s.delete) for s in long.steps]
    assert short.initial == long.initial


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("seconds", [1.0, 20.0, 120.0, LONG])
def test_steps_are_in_order_and_within_the_run(name: str, seconds: float) -> None:
    moments = [step.at for step in ALL[name](seconds, None).steps]
    assert all(earlier < later for earlier, later in pairwise(moments))
    assert all(0 < moment < seconds for moment in moments)


@pytest.mark.parametrize("name", ["replacing", "ad hoc"])
def test_the_shortest_run_has_some_rounds(name: str) -> None:
    assert len(ALL[name](3.0, None).steps) == LEAST_ROUNDS


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("queries", [5, 6, 31])
def test_the_number_of_queries_can_be_chosen(name: str, queries: int) -> None:
    numbers = [number for _, number in running(ALL[name], LONG, queries)]
    level = {"ramp": max(numbers), "fluctuating": max(numbers)}.get(name, numbers[0])
    assert level == queries
