"""A fire that fails is repeated by halves: who is stopped, and what is published."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from millstream.engine.isolation import FireFailed, fire_by_halves

NAMES = [f"q{number}" for number in range(37)]


class Fires:
    """Fails while a culprit is among the queries; those that fail ``flaky`` times only are innocent."""

    def __init__(self, culprits: set[str], flaky: int = 0) -> None:
        self.culprits = culprits
        self.flaky = flaky
        self.published: list[str] = []
        self.stopped: dict[str, str] = {}
        self.jobs = 0

    def fire(self, queries: Sequence[str]) -> None:
        self.jobs += 1
        if self.flaky:
            self.flaky -= 1
            raise FireFailed("once")
        if self.culprits & set(queries):
            raise FireFailed("poison")
        self.published += queries

    def stop(self, query: str, error: FireFailed) -> None:
        self.stopped[query] = str(error)

    def run(self) -> None:
        fire_by_halves(NAMES, self.fire, self.stop)


@pytest.mark.parametrize("culprits", [{"q0"}, {"q36"}, {"q5", "q6"}, {"q1", "q18", "q30"}, set(NAMES)])
def test_culprits_are_stopped_and_all_others_published_once(culprits: set[str]) -> None:
    fires = Fires(culprits)
    fires.run()
    assert fires.stopped == dict.fromkeys(sorted(culprits, key=NAMES.index), "poison")
    assert fires.published == [name for name in NAMES if name not in culprits]


def test_one_among_many_takes_few_jobs() -> None:
    fires = Fires({"q20"})
    fires.run()
    assert fires.jobs <= 2 + 2 * len(NAMES).bit_length()


def test_nothing_is_repeated_when_all_is_well() -> None:
    fires = Fires(set())
    fires.run()
    assert fires.jobs == 1


@pytest.mark.parametrize("times", [1, 2])
def test_a_failure_that_passes_is_held_against_nobody(times: int) -> None:
    fires = Fires(set(), flaky=times)
    fires.run()
    assert (fires.published, fires.stopped) == (NAMES, {})


def test_a_query_alone_is_given_a_second_chance() -> None:
    published: list[str] = []
    tries: list[Sequence[str]] = []

    def fire(queries: Sequence[str]) -> None:
        tries.append(queries)
        if len(tries) == 1:
            raise FireFailed("once")
        published.extend(queries)

    fire_by_halves(["only"], fire, lambda query, _: pytest.fail(f"{query} is stopped"))
    assert published == ["only"]


def test_other_errors_go_to_the_caller_at_once() -> None:
    jobs: list[Sequence[str]] = []

    def fire(queries: Sequence[str]) -> None:
        jobs.append(queries)
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        fire_by_halves(NAMES, fire, lambda *_: None)
    assert len(jobs) == 1
