"""Heavy fires run aside: light windows go on, and the two do not come in each other's way. No Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from millstream.catalog.records import Fire
from millstream.engine import firing
from millstream.engine.aside import Aside, Turns
from millstream.engine.isolation import FireFailed
from millstream.model.expression import Column
from millstream.model.join import JoinNode, JoinQuery, Leg, leg_column
from millstream.model.plan import FireResult
from millstream.model.query import Aggregate, Output, WindowSpec, aggregate_column, key_column
from millstream.model.types import INTEGER, LONG
from millstream.runtime.fire import FireTask
from millstream.runtime.join_fire import JoinTask

from .inprocess import COPIES, PURCHASES, SECOND, Small, count, expected, flip, rows, stream, sums

Result = tuple[list[FireResult], dict[str, float]]


class Held(Small):
    """A core with a light and a heavy query, in whose fires a test has a say: the heavy one waits until it is let
    go, and fails if there is an error."""

    def __init__(self, home: Path, folder: Path) -> None:
        super().__init__(home, folder)
        self.create("light", count())
        self.create("heavy", sums())
        self.let_go = threading.Event()
        self.begun = threading.Event()
        self.errors: list[Exception] = []
        self.fired: list[set[str]] = []
        self._real = self.core.firing._run
        self.core.firing._run = self._run
        self.pipeline = self.core.pipelines[PURCHASES]

    def _run(self, tasks: Sequence[FireTask | JoinTask]) -> Result:
        queries = {one.query for task in tasks for item in task.items for one in item.due}
        self.fired.append(queries)
        if "heavy" in queries:
            self.begun.set()
            assert self.let_go.wait(30)
            if self.errors:
                self._real(tasks)  # it has written files
                raise self.errors.pop()
        return self._real(tasks)

    def fire(self) -> bool:
        return self.core.firing.fire(self.pipeline, aside=True)

    def counts(self) -> tuple[int, int]:
        return len(self.answers("light")), len(self.answers("heavy"))


@pytest.fixture
def held(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    monkeypatch.setattr(firing, "LIGHT", 1)
    monkeypatch.setattr(firing, "HEAVIER", 0)
    small = Held(home, tmp_path / "in")
    yield small
    small.let_go.set()
    small.pipeline.aside.wait()
    small.close()


def begin(held: Held) -> None:
    """Two light and two heavy windows are due; the heavy ones hang."""
    held.batch(0)
    held.batch(1)
    assert held.fire()
    assert held.begun.wait(30)


def test_light_windows_go_on_while_a_heavy_one_fires(held: Held) -> None:
    begin(held)
    assert held.counts() == (2, 0)
    held.batch(2)
    held.batch(3)
    held.fire()
    assert held.counts() == (4, 0), "the next light windows did not wait"
    assert held.fired == [{"light"}, {"heavy"}, {"light"}]
    held.let_go.set()
    assert held.pipeline.aside.wait(30)
    assert held.counts() == (4, 2)
    held.core.fire_all()
    assert held.totals("heavy") == expected(0, 2, 4, 6)
    assert len(held.answers("light")) == 4
    assert not held.orphans()


def test_what_runs_aside_is_not_begun_again(held: Held) -> None:
    begin(held)
    for _ in range(3):
        held.fire()
    assert held.fired == [{"light"}, {"heavy"}]


def test_whoever_fires_all_waits_for_it(held: Held) -> None:
    begin(held)
    threading.Timer(0.1, held.let_go.set).start()
    held.core.fire_all()
    assert held.counts() == (2, 2)


def test_its_error_comes_with_a_later_fire_which_is_done_all_the_same(held: Held) -> None:
    held.errors.append(OSError(28, "no space left"))
    begin(held)
    held.batch(2)
    held.batch(3)
    held.let_go.set()
    held.pipeline.aside.wait()
    with pytest.raises(OSError, match="no space left"):
        held.fire()
    assert held.counts()[0] == 4
    held.core.fire_all()
    assert held.totals("heavy") == expected(0, 2, 4, 6)
    assert not held.orphans(), "what the failed fire wrote is gone"


def test_a_query_that_fails_aside_is_found_and_stopped(held: Held) -> None:
    error = FireFailed("poison")
    held.errors += [error, error]
    begin(held)
    held.let_go.set()
    held.pipeline.aside.wait()
    held.fire()
    record = held.core.metastore.query("heavy")
    assert (record.state, "poison" in (record.reason or "")) == ("failed", True)
    held.batch(2)
    held.core.fire_all()
    assert len(held.answers("light")) == 3


def test_a_light_fire_that_fails_leaves_the_files_of_a_heavy_one_alone(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heavy one has written its answers, and not committed them yet."""
    written, go_on = threading.Event(), threading.Event()
    commit, errors = held.core.firing.commit, [OSError(28, "no space left")]

    def slow(fire: Fire) -> Fire:
        if "heavy" in fire.moves:
            written.set()
            assert go_on.wait(30)
        elif written.is_set() and errors:
            raise errors.pop()
        return commit(fire)

    monkeypatch.setattr(held.core.firing, "commit", slow)
    held.let_go.set()
    held.batch(0)
    held.batch(1)
    held.fire()
    assert written.wait(30)
    held.batch(2)
    with pytest.raises(OSError, match="no space left"):
        held.fire()
    go_on.set()
    held.core.fire_all()
    assert held.totals("heavy") == expected(0, 2, 4)
    assert not held.orphans()


@pytest.mark.parametrize("by", ["fire", "tidy"])
def test_nobody_forgets_the_buckets_it_reads(held: Held, by: str) -> None:
    """Its query is stopped meanwhile, so that nobody else needs them."""
    begin(held)
    held.core.metastore.set_failed("heavy", "stopped from outside")
    held.core.registry.remove(["heavy"])
    held.batch(2)
    read = [one for batch in (0, 1) for one in held.pipeline.buckets.of_batch(batch)]
    before = {one.path for one in read if one.bucket.group in held.pipeline.aside.groups}
    assert before
    if by == "fire":
        held.fire()
    else:
        held.core.tidy(0, 10**15)
    assert before <= set(held.core.home.files())
    held.let_go.set()
    held.pipeline.aside.wait()
    held.core.fire_all()
    held.core.tidy(0, 10**15)
    assert not before & set(held.core.home.files())
    assert not held.orphans()


def test_what_it_finds_damaged_is_mended(held: Held, home: Path) -> None:
    begin(held)
    [group] = held.pipeline.aside.groups
    damaged = next(one for one in held.pipeline.buckets.of_batch(0) if one.bucket.group == group)
    flip(home, damaged.path, damaged.bucket.offset + 8)
    held.let_go.set()
    held.pipeline.aside.wait()
    assert held.counts() == (2, 0), "its windows wait"
    held.core.fire_all()
    assert held.core.repair.mended.rebuilt == 1
    assert held.totals("heavy") == expected(0, 2)


def test_damage_that_a_light_fire_finds_is_mended_when_nobody_reads(held: Held, home: Path) -> None:
    begin(held)
    held.batch(2)
    held.batch(3)
    [group] = held.pipeline.aside.groups
    light = [one for one in held.pipeline.buckets.of_batch(3) if one.bucket.group != group]
    flip(home, light[0].path, light[0].bucket.offset + 8)
    repair, idle = held.core.firing._repair, []

    def noting(*damaged: object) -> None:
        idle.append(held.pipeline.aside.wait(0))
        repair(*damaged)  # type: ignore[arg-type]

    held.core.firing._repair = noting
    threading.Timer(0.1, held.let_go.set).start()
    held.fire()
    assert idle == [True]
    held.core.fire_all()
    assert held.totals("heavy") == expected(0, 2, 4, 6)
    assert len(held.answers("light")) == 4


def test_what_a_group_weighed_is_known_while_it_is_not_due(home: Path, tmp_path: Path) -> None:
    small = Small(home, tmp_path / "in")
    small.create("light", count())
    small.create("slow", sums(size=8))
    pipeline = small.core.pipelines[PURCHASES]
    for number in range(4):
        small.batch(number)
    small.core.fire_all()
    group = next(one.group for one in small.core.metastore.frontiers(PURCHASES) if one.query == "slow")
    weight = pipeline.weights[group]
    assert weight > 0
    small.batch(4)
    small.core.fire_all()
    assert (len(small.answers("light")), len(small.answers("slow"))) == (6, 1)
    assert pipeline.weights[group] == weight
    small.core.registry.seal([], ["slow"])
    for number in range(5, 9):
        small.batch(number)
        small.core.fire_all()
    assert group not in pipeline.weights, "nobody is in it any more"
    small.close()


def grouped() -> JoinQuery:
    """SELECT gem_pack, count(*) of the pairs with the same pack: its legs are in groups with sums by pack."""
    left, right = (Column(leg_column(leg, "gem_pack"), INTEGER) for leg in (0, 1))
    count, key = Column(aggregate_column(0), LONG), Column(key_column(0), INTEGER)
    return JoinQuery(
        sql="pairs by pack",
        legs=(Leg(PURCHASES, "p", None), Leg(COPIES, "c", None)),
        tree=JoinNode("inner", 0, 1, ((left, right),), None),
        where=None,
        window=WindowSpec(2 * SECOND, 2 * SECOND),
        grouped=True,
        keys=(left,),
        aggregates=(Aggregate("count", None, LONG),),
        having=None,
        outputs=(Output("gem_pack", key), Output("n", count)),
    )


def legs_group(held: Held) -> str:
    return next(one.group for one in held.core.metastore.frontiers(PURCHASES) if one.leg is not None)


def test_what_joins_read_too_is_not_fired_aside(held: Held) -> None:
    held.core.add_stream(stream(COPIES))
    held.create("join", grouped())
    assert held.core.registry.group_of("heavy") == legs_group(held)
    held.let_go.set()
    held.batch(0)
    held.batch(1)
    held.fire()
    assert not held.pipeline.aside.taken
    assert held.counts() == (2, 2)


def test_a_join_waits_for_what_is_aside_of_the_group_that_it_came_into(held: Held) -> None:
    held.core.add_stream(stream(COPIES))
    begin(held)
    held.create("join", grouped())
    assert legs_group(held) in held.pipeline.aside.groups
    for number in (0, 1, 2, 3):
        held.batch(number, COPIES)
    held.batch(2)
    held.batch(3)
    threading.Timer(0.2, held.let_go.set).start()
    [name] = held.core.metastore.joins()
    assert held.core.joining.fire(name)
    assert held.fired[-1] == {"join"}
    assert held.counts()[1] == 2, "the windows that were aside have been answered before"
    held.core.fire_all()
    packs = {row["gem_pack"]: row["n"] for answer in held.answers("join")[-1:] for row in rows(answer.table)}
    numbers = [len([n for n in range(60, 80) if n % 3 == pack]) for pack in range(3)]
    assert packs == {pack: number**2 for pack, number in enumerate(numbers)}


def test_nobody_is_asked_about_a_query_that_is_forgotten(held: Held) -> None:
    """Fires go by what they saw at first."""
    assert held.core.registry.window("nobody") is None


def test_streams_take_turns() -> None:
    turns = Turns()
    assert turns.take("a")
    assert not turns.take("b")
    assert not turns.take("c")
    turns.leave()
    assert not turns.take("a"), "others wait"
    assert not turns.take("c")
    turns.forgo("b")
    assert turns.take("c")
    turns.leave()
    assert turns.take("a")


def test_two_streams_have_one_fire_aside(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one's heavy windows wait until it is over, and its light ones do not."""
    held.core.add_stream(stream(COPIES))
    other = held.core.pipelines[COPIES]
    held.create("light too", replace(count(), stream=COPIES))
    held.create("heavy too", replace(sums(), stream=COPIES))
    begin(held)
    held.batch(0, COPIES)
    held.batch(1, COPIES)
    held.core.firing.fire(other, aside=True)
    assert not other.aside.taken
    assert (len(held.answers("light too")), len(held.answers("heavy too"))) == (2, 0)
    woken = threading.Event()
    monkeypatch.setattr(held.core.firing, "ended", woken.set)
    held.let_go.set()
    assert woken.wait(30), "whoever fires is told that there is a turn to take"
    held.core.firing.fire(other, aside=True)
    assert other.aside.wait(30)
    assert len(held.answers("heavy too")) == 2


@pytest.mark.parametrize("how", ["nothing is due any more", "its fires fail"])
def test_a_stream_that_gives_up_its_turn_keeps_nobody_waiting(
    held: Held, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    held.core.add_stream(stream(COPIES))
    other, fire = held.core.pipelines[COPIES], held.core.firing.fire
    held.create("light too", replace(count(), stream=COPIES))
    held.create("heavy too", replace(sums(), stream=COPIES))
    begin(held)
    for number in (0, 1):
        held.batch(number, COPIES)
    fire(other, aside=True)
    for number in (2, 3):
        held.batch(number)
    held.let_go.set()
    assert held.pipeline.aside.wait(30)
    with monkeypatch.context() as patch:
        if how == "its fires fail":
            held.batch(2, COPIES)
            patch.setattr(held.core.firing, "_run", lambda tasks: 1 / 0)
            with pytest.raises(FireFailed, match="without any query"):
                fire(other, aside=True)
        else:
            held.core.metastore.set_failed("heavy too", "stopped from outside")
            held.core.registry.remove(["heavy too"])
            fire(other, aside=True)
    held.fire()
    assert held.pipeline.aside.wait(30)
    assert held.totals("heavy") == expected(0, 2, 4, 6)


def test_an_empty_place_waits_for_nothing() -> None:
    aside = Aside()
    assert aside.wait()
    assert not aside.taken
    assert aside.take().error is None


def test_a_place_gives_an_outcome_once() -> None:
    aside = Aside()

    def fail() -> list[object]:
        raise ValueError("no")

    aside.start(frozenset("g"), frozenset("q"), fail)  # type: ignore[arg-type]
    assert aside.wait(30)
    assert aside.taken
    assert aside.groups == {"g"}
    assert isinstance(aside.take().error, ValueError)
    assert aside.take().error is None
    assert not aside.taken
    assert not aside.groups
    assert isinstance(aside.error, ValueError), "people see it until a fire passes"
    aside.start(frozenset("g"), frozenset("q"), list)
    assert aside.wait(30)
    aside.take()
    assert aside.error is None


def test_a_place_is_free_again_where_no_thread_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    aside, ended = Aside(), list[None]()
    with pytest.raises(RuntimeError, match="new thread"):
        aside.start(frozenset("g"), frozenset("q"), list, lambda: ended.append(None))
    assert ended == [None]
    assert aside.wait()
    assert not aside.taken
    assert not aside.groups
