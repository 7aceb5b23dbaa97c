"""Batches that a query makes fail, on real stores and kernels without Spark: who is left out, what is written down
before each trial, and where an engine goes on that died in between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.catalog.metastore import Metastore
from millstream.config import Limits
from millstream.engine.firing import Firing, RunFire
from millstream.engine.joining import Joining
from millstream.engine.pipeline import Pipeline
from millstream.engine.registry import NewRequest, Registry
from millstream.engine.repair import Repair
from millstream.errors import EngineError
from millstream.kernels.answers import AnswerReader
from millstream.model.join import JoinQuery
from millstream.model.legs import query_of_member
from millstream.model.plan import BatchResult, FireResult
from millstream.model.query import LogicalQuery
from millstream.runtime.fire import FireTask, run_fire
from millstream.runtime.home import Home
from millstream.runtime.join_fire import JoinTask, run_join_fire
from millstream.runtime.loading import load_group
from millstream.runtime.worker import IngestTask, merged, run_ingest
from millstream.sources.chunk import Chunk, Origin
from tests.catalog.builders import ADS, SECOND, STREAM, join, stream, unwindowed, windowed


class Killed(BaseException):
    """The process dies."""


def members(task: IngestTask) -> set[str]:
    groups = [load_group(task.home, path) for path in task.versions]
    return {query_of_member(member.query) for group in groups for member in group.version.members}


def chunk(first: int) -> Chunk:
    """Ten rows, one each second from ``first`` on; the price is the second times a hundred."""
    seconds = range(first, first + 10)
    times = pa.array([s * SECOND for s in seconds], pa.timestamp("us", tz="UTC"))
    prices = pa.array([100 * s for s in seconds], pa.int64())
    return Chunk(pa.table({"price": prices, "time": times}), None, Origin("rows", 1))


class World:
    """An engine without Spark on one home. Batch n has the seconds 10 n … 10 n + 9, in two tasks; it fails while one of
    the ``culprits`` is in it."""

    def __init__(self, root: Path) -> None:
        self.home = Home(str(root), durable=False)
        self.home.create()
        self.store = Metastore.open(self.home.metastore_url(), holder="test")
        if not self.store.streams():
            self.store.add_stream(stream())
            self.store.add_stream(stream(ADS))
        self.registry = Registry(self.store, self.home)
        self.registry.load()
        shared = (self.store, self.registry, self.home, lambda: 0, lambda pipeline: None)
        self.pipelines = {name: Pipeline(stream(name), *shared) for name in (STREAM, ADS)}
        self.repair = Repair(
            self.store, self.registry, self.home, lambda task, splits: self.ingest(task), self.pipelines
        )
        self.firing = self.firing_of(_run)
        self.culprits: set[str] = set()
        self.error: BaseException = MemoryError("no memory")
        self.tried: list[set[str]] = []

    def firing_of(self, run: RunFire, limits: Limits | None = None) -> Firing:
        return Firing(self.store, self.registry, self.home, run, 1, self.repair.repair, limits)

    def create(self, *ids: str, query: LogicalQuery | JoinQuery | None = None) -> None:
        made = query or windowed()
        selections = self.registry.selections_of(made)
        self.registry.seal([NewRequest(id, "me", None, made, selections) for id in ids], [])

    def process(self, batch: int, name: str = STREAM) -> None:
        self.pipelines[name].process(batch, f"offsets {batch}", lambda task: self.ingest(task), "[]")

    def ingest(self, task: IngestTask) -> BatchResult:
        self.tried.append(members(task))
        if self.culprits & members(task):
            raise self.error
        parts = [run_ingest(task, [chunk(10 * task.batch)]) for _ in range(2)]
        return merged(parts)

    def sums(self, id: str) -> dict[int, int]:
        """The answers of a query that have rows, by the second of their window's end."""
        found = {}
        for record in self.store.answers_after(STREAM, 0):
            file = record.file
            reader = AnswerReader(self.home.open(file.path), file.index_offset, file.index_length)
            for one in (given for given in reader.ranges(id) if given[0].rows):
                assert one[0].end is not None
                found[one[0].end // SECOND] = reader.read(one, pa.schema([])).column(0).to_pylist()[0]
        return found

    def state(self, id: str) -> str:
        return self.store.query(id).state

    def close(self) -> None:
        self.registry.close()
        self.store.close()


def _run(tasks: Sequence[FireTask | JoinTask]) -> tuple[list[FireResult], dict[str, float]]:
    return [(run_join_fire(t) if isinstance(t, JoinTask) else run_fire(t))[0] for t in tasks], {}


class Worlds:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._open: list[World] = []

    def start(self) -> World:
        for world in self._open:
            world.close()
        self._open = [World(self._root)]
        return self._open[0]


@pytest.fixture
def worlds(home: Path) -> Iterator[Worlds]:
    made = Worlds(home)
    yield made
    for world in made._open:
        world.close()


@pytest.fixture
def world(worlds: Worlds) -> World:
    return worlds.start()


def expected(first: int, last: int) -> dict[int, int]:
    """Sums by window of eight seconds, both tasks together, of the seconds from first on."""
    ends = range(8, last + 1, 8)
    found = {end: 2 * sum(100 * s for s in range(end - 8, end) if s >= first and 100 * s > 10) for end in ends}
    return {end: total for end, total in found.items() if total}


def test_the_culprit_is_left_out_and_stopped_with_the_commit(world: World) -> None:
    world.create("old")
    world.process(0)
    world.create("a", "bad", "b")
    world.create("rows", query=unwindowed())
    world.culprits = {"bad"}
    states: list[str] = []
    real = world.ingest

    def watched(task: IngestTask) -> BatchResult:
        states.append(world.state("bad"))
        return real(task)

    world.ingest = watched  # type: ignore[method-assign]
    world.process(1)
    assert set(states) == {"running"}, "nobody is stopped before the commit"
    record = world.store.query("bad")
    assert record.state == "failed"
    assert record.reason == "QUARANTINED: left out of batch 1 of purchases, which failed with MemoryError: no memory"
    world.process(2)
    assert "bad" not in world.tried[-1]
    while world.firing.fire(world.pipelines[STREAM]):
        pass
    assert world.sums("old") == expected(0, 27)
    assert world.sums("a") == world.sums("b") == {k: v for k, v in expected(10, 27).items() if k > 8}
    assert world.sums("bad") == {}
    assert world.store.query("rows").answer_rows == 40


def test_a_batch_that_passes_the_second_time_stops_nobody(world: World) -> None:
    world.create("a", "b")
    world.culprits = {"a"}
    real = world.ingest

    def once(task: IngestTask) -> BatchResult:
        if task.apart:
            world.culprits = set()
        return real(task)

    world.ingest = once  # type: ignore[method-assign]
    world.process(0)
    assert world.tried == [{"a", "b"}, {"a", "b"}]
    assert (world.state("a"), world.state("b")) == ("running", "running")
    assert [(t.left_out, t.passed) for t in world.store.trials(STREAM, 0)] == [((), False), ((), True)]


def test_when_nobody_is_at_fault_the_batch_fails_with_its_own_error(world: World) -> None:
    world.create("a", "b", "c")

    def fail(task: IngestTask) -> BatchResult:
        raise MemoryError("no memory at all")

    world.ingest = fail  # type: ignore[method-assign]
    with pytest.raises(MemoryError, match="no memory at all"):
        world.process(0)
    assert {world.state(id) for id in "abc"} == {"running"}
    assert world.store.trials(STREAM, 0) == [], "the next attempt begins anew"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), EngineError("NOT_RUNNING", "stopping")])
def test_the_environment_is_not_blamed_on_queries(world: World, error: Exception) -> None:
    world.create("a")
    world.culprits, world.error = {"a"}, error
    with pytest.raises(type(error)):
        world.process(0)
    assert len(world.tried) == 1
    assert world.store.trials(STREAM, 0) == []
    world.culprits = set()
    world.process(0)
    assert world.state("a") == "running"


def test_a_disk_that_fills_up_between_trials_is_no_outcome_of_one(world: World) -> None:
    world.create("a", "b")
    world.culprits = {"b"}
    real = world.ingest

    def full(task: IngestTask) -> BatchResult:
        if len(world.tried) == 2:
            raise OSError(28, "No space left on device")
        return real(task)

    world.ingest = full  # type: ignore[method-assign]
    with pytest.raises(OSError, match="No space left"):
        world.process(0)
    assert [t.passed for t in world.store.trials(STREAM, 0)] == [False, False, None]
    world.ingest = real  # type: ignore[method-assign]
    world.process(0)
    assert (world.state("a"), world.state("b")) == ("running", "failed")


@pytest.mark.parametrize("dies_at", range(1, 7))
def test_an_engine_that_dies_between_trials_goes_on_where_it_was(worlds: Worlds, dies_at: int) -> None:
    """The trial that it died in is run again; those before it are not."""
    world = worlds.start()
    world.create(*"abcdefgh")
    world.culprits = {"c"}
    real = world.ingest

    def dying(task: IngestTask) -> BatchResult:
        if len(world.tried) == dies_at:
            raise Killed
        return real(task)

    world.ingest = dying  # type: ignore[method-assign]
    with pytest.raises(Killed):
        world.process(0)
    known = [t.left_out for t in world.store.trials(STREAM, 0) if t.passed is not None]
    assert world.store.trials(STREAM, 0)[-1].passed is None
    again = worlds.start()
    again.culprits = {"c"}
    again.process(0)
    assert {id: again.state(id) for id in "abcdefgh"} == dict.fromkeys("abcdefgh", "running") | {"c": "failed"}
    everyone = set("abcdefgh")
    failed_before = [everyone - set(left_out) for left_out in known[1:] if "c" not in left_out]
    assert all(tried not in failed_before for tried in again.tried), "what is known to fail is not tried again"
    again.process(1)
    while again.firing.fire(again.pipelines[STREAM]):
        pass
    assert again.sums("a") == expected(0, 17)


def test_queries_created_meanwhile_do_not_see_the_batch(world: World) -> None:
    world.create("a", "bad")
    world.culprits = {"bad"}
    real = world.ingest

    def creating(task: IngestTask) -> BatchResult:
        if len(world.tried) == 2:
            world.create("later")
        return real(task)

    world.ingest = creating  # type: ignore[method-assign]
    world.process(0)
    assert all("later" not in tried for tried in world.tried)
    world.process(1)
    assert world.tried[-1] == {"a", "later"}


def test_a_join_is_left_out_with_all_its_legs(world: World) -> None:
    world.create("a")
    world.create("bad", query=join(STREAM, ADS))
    world.create("self", query=join(STREAM, STREAM))
    world.culprits = {"bad"}
    world.process(0)
    assert (world.state("a"), world.state("bad"), world.state("self")) == ("running", "failed", "running")
    world.process(0, ADS)
    assert world.tried[-1] == set(), "nor is it in the batches of its other streams"
    world.process(1)
    assert world.tried[-1] == {"a", "self"}


def test_versions_of_a_trial_are_for_its_batch_alone_and_stay_with_its_buckets(worlds: Worlds) -> None:
    world = worlds.start()
    world.create("a", "bad")
    world.culprits = {"bad"}
    world.process(0)
    made = [v for v in world.store.group_versions(STREAM) if v.version < 0]
    assert {v.group for v in made} == {"g-1"}
    used = {b.version for file in world.store.buckets(STREAM) for b in file.buckets}
    assert len(used) == 1
    assert used <= {v.version for v in made}
    for epoch in range(world.store.current_epoch() + 2):
        assert not {v.path for v in made} & {v.path for v in world.store.epoch_plan(epoch, STREAM)}
    world.registry.forget(world.store.expire_versions(STREAM))
    assert {v.version for v in world.store.group_versions(STREAM) if v.version < 0} == used
    again = worlds.start()
    assert again.registry.version("g-1") is not None, "the group's own version is the newest"
    again.process(1)
    while again.firing.fire(again.pipelines[STREAM]):
        pass
    assert again.sums("a") == expected(0, 17)
    again.process(2)
    while again.firing.fire(again.pipelines[STREAM]):
        pass
    again.registry.forget(again.store.expire_versions(STREAM))
    assert [v for v in again.store.group_versions(STREAM) if v.version < 0] == []


def test_a_query_that_was_stopped_just_before_the_engine_was_is_taken_out_at_the_start(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = worlds.start()
    world.create("a", "bad")
    world.culprits = {"bad"}

    def die(queries: Sequence[str]) -> None:
        raise Killed

    monkeypatch.setattr(world.registry, "remove", die)
    with pytest.raises(Killed):
        world.process(0)
    assert world.state("bad") == "failed"
    again = worlds.start()
    again.process(1)
    assert again.tried == [{"a"}]


def test_files_of_trials_that_are_not_taken_are_removed(world: World) -> None:
    world.create(*"abcd")
    world.culprits = {"b"}
    world.process(0)
    assert len(world.tried) > 4
    assert set(world.home.files()) == world.store.referenced_files()


class Fires:
    """Runs fire jobs in this process; they fail while one of the culprits is in them."""

    def __init__(self, culprits: set[str], error: BaseException | None = None) -> None:
        self.culprits = culprits
        self.error = error or MemoryError("no memory")
        self.jobs: list[set[str]] = []

    def __call__(self, tasks: Sequence[FireTask | JoinTask]) -> tuple[list[FireResult], dict[str, float]]:
        self.jobs.append({one.query for task in tasks for item in task.items for one in item.due})
        if self.culprits & self.jobs[-1]:
            raise self.error
        return _run(tasks)


def test_a_query_that_makes_fires_fail_is_stopped_and_the_others_are_published(world: World) -> None:
    world.create(*"abcde")
    fires = Fires({"c"})
    firing = world.firing_of(fires)
    for batch in range(3):
        world.process(batch)
    assert firing.fire(world.pipelines[STREAM])
    assert world.store.query("c").reason == "QUARANTINED: its windows cannot be fired: MemoryError: no memory"
    for id in "abde":
        assert world.state(id) == "running"
        assert world.sums(id) == expected(0, 27)
    assert world.sums("c") == {}
    assert [job for job in fires.jobs if job == {"c"}] == [{"c"}, {"c"}], "it is given a second chance"
    assert not firing.fire(world.pipelines[STREAM])
    world.process(3)
    assert world.tried[-1] == set("abde")


def test_a_join_that_makes_fires_fail_is_stopped_and_the_others_are_published(world: World) -> None:
    world.create("good", "bad", query=join(STREAM, STREAM))
    fires = Fires({"bad"})
    firing = world.firing_of(fires)
    joining = Joining(world.store, world.registry, firing, world.pipelines)
    for batch in range(2):
        world.process(batch)
    (name,) = world.store.joins()
    assert joining.fire(name)
    assert (world.state("good"), world.state("bad")) == ("running", "failed")
    # Windows end at 8 s and 16 s; each second has two rows, and each meets both of its own price.
    assert world.store.query("good").answer_rows == 4 * 16
    assert world.store.query("bad").answer_rows == 0


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), EngineError("NOT_RUNNING", "stopping")])
def test_a_fire_that_fails_for_another_reason_is_held_against_nobody(world: World, error: Exception) -> None:
    world.create("a", "b")
    fires = Fires({"a"}, error)
    firing = world.firing_of(fires)
    world.process(0)
    with pytest.raises(type(error)):
        firing.fire(world.pipelines[STREAM])
    assert len(fires.jobs) == 1
    assert (world.state("a"), world.state("b")) == ("running", "running")


def test_a_metastore_that_fails_is_held_against_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.create("a")
    world.process(0)
    world.process(1)

    def away(fire: object) -> None:
        raise RuntimeError("the connection is lost")

    monkeypatch.setattr(world.store, "commit_fire", away)
    with pytest.raises(RuntimeError, match="connection is lost"):
        world.firing.fire(world.pipelines[STREAM])
    monkeypatch.undo()
    assert world.state("a") == "running"
    assert world.firing.fire(world.pipelines[STREAM])
    assert world.sums("a") == expected(0, 17)


@pytest.mark.parametrize(("limit", "state"), [(32, "running"), (31, "failed")])
def test_the_answer_of_a_join_has_so_many_rows_and_no_more(world: World, limit: int, state: str) -> None:
    world.create("join", query=join(STREAM, STREAM))
    world.create("good")
    firing = world.firing_of(_run, Limits(query_answer_rows=limit))
    joining = Joining(world.store, world.registry, firing, world.pipelines)
    for batch in range(2):
        world.process(batch)
    (name,) = world.store.joins()
    assert joining.fire(name)
    assert world.state("join") == state
    assert firing.fire(world.pipelines[STREAM])
    assert world.sums("good") == expected(0, 17)


def test_the_fires_of_an_owner_have_so_many_rows_and_no_more(world: World) -> None:
    world.create("a", "b", "c")
    firing = world.firing_of(_run, Limits(owner_answer_rows=2))
    for batch in range(2):
        world.process(batch)
    assert firing.fire(world.pipelines[STREAM])
    much = "has 3 answer rows in a window, more than the 2 of the setting owner_answer_rows"
    message = f"LIMIT_EXCEEDED: the owner 'me' {much}"
    assert {id: world.store.query(id).reason for id in "abc"} == {"a": message, "b": None, "c": None}
    assert world.sums("a") == expected(0, 17), "what was fired is published"
