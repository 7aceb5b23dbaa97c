"""The whole protocol under random interleavings and crashes, against rules that are read off the history alone."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.catalog.builders import SECOND, STREAM, answer_file, new, result, stream, unwindowed, windowed
from tests.support.postgres import Server

from millstream.catalog import batches
from millstream.catalog.metastore import END_OF_TIME, START_OF_TIME, Change, Fire, Metastore
from millstream.errors import EngineError
from millstream.model.plan import FireResult, IngestPlan

LATENESS = 2
TIMES = st.none() | st.integers(0, 60)


@dataclass
class Life:
    """What the history says about one query; ``frontier`` is None until its first fire."""

    windowed: bool
    first_batch: int
    created_after_flush: bool
    frontier: int | None = None
    last_batch: int | None = None
    deleted_after_flush: bool = False


class Protocol(RuleBasedStateMachine):
    """``marks[b + 1]`` are watermark and largest time after batch b; the first entry is before all batches."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(batches, "PRUNE_EVERY", 1)
        self.directory = tempfile.TemporaryDirectory()
        self.url = self.empty_database()
        self.store = Metastore.open(self.url, holder="first")
        self.fenced: list[Metastore] = []
        self.marks: list[tuple[int, int]] = [(START_OF_TIME, START_OF_TIME)]
        self.plans: list[IngestPlan] = []
        self.lives: dict[str, Life] = {}
        self.epoch = 0
        self.answers: list[tuple[str, int | None]] = []
        self.flushed = False

    def empty_database(self) -> str:
        return f"sqlite:///{Path(self.directory.name) / 'metastore.db'}"

    def teardown(self) -> None:
        for store in (*self.fenced, self.store):
            store.close()
        self.directory.cleanup()
        self.patch.undo()

    @initialize()
    def add_stream(self) -> None:
        self.store.add_stream(stream(lateness=LATENESS))

    @property
    def committed(self) -> int:
        return len(self.marks) - 2

    @property
    def running(self) -> bool:
        return len(self.plans) - 1 > self.committed

    @property
    def watermark(self) -> int:
        return END_OF_TIME if self.flushed else self.marks[-1][0]

    @rule()
    def crash(self) -> None:
        # The old engine is not closed: it may still be there, and must do no harm.
        self.fenced.append(self.store)
        self.store = Metastore.open(self.url, holder="next")

    @precondition(lambda self: not self.flushed or self.plans)
    @rule()
    def plan(self) -> None:
        fresh = not self.running and not self.flushed
        batch = len(self.plans) - (0 if fresh else 1)
        plan, done = self.store.plan_batch(STREAM, batch, f"offsets {batch}", clock=len(self.answers))
        if fresh:
            self.plans.append(plan)
            mark = None if self.marks[-1][0] == START_OF_TIME else self.marks[-1][0]
            assert (plan.epoch, plan.watermark) == (self.epoch, mark)
        assert plan == self.plans[batch]
        assert done == (batch <= self.committed)

    @precondition(lambda self: self.plans)
    @rule(time=TIMES)
    def commit(self, time: int | None) -> None:
        batch = len(self.plans) - 1
        path = f"a{batch}"
        self.store.commit_batch(self.plans[-1], result(time, answers=(answer_file(path),)))
        if self.running:
            watermark, latest = self.marks[-1]
            if time is not None:
                watermark, latest = max(watermark, (time - LATENESS) * SECOND), max(latest, time * SECOND)
            self.marks.append((watermark, latest))
            self.answers.append((path, batch))

    @precondition(lambda self: not self.flushed)
    @rule(time=TIMES)
    def run(self, time: int | None) -> None:
        if not self.running:
            self.plan()
        self.commit(time)

    @precondition(lambda self: not self.running and len(self.plans) > 4)
    @rule()
    def flush(self) -> None:
        self.store.flush_stream(STREAM)
        self.flushed = True

    @rule(kinds=st.lists(st.booleans(), min_size=1, max_size=3))
    def create(self, kinds: list[bool]) -> None:
        self.seal(kinds, ())

    @precondition(lambda self: self.standing())
    @rule(doomed=st.integers(0, 20), kinds=st.lists(st.booleans(), max_size=1))
    def delete(self, doomed: int, kinds: list[bool]) -> None:
        standing = self.standing()
        self.seal(kinds, (standing[doomed % len(standing)],))

    @precondition(lambda self: not self.running and not self.flushed and self.standing())
    @rule(time=TIMES, doomed=st.integers(0, 20))
    def delete_while_a_batch_runs(self, time: int | None, doomed: int) -> None:
        self.plan()
        self.delete(doomed, [True])
        self.commit(time)

    def standing(self) -> list[str]:
        return [id for id, life in self.lives.items() if life.last_batch is None]

    def seal(self, kinds: list[bool], deletes: tuple[str, ...]) -> None:
        creates = {f"q{len(self.lives) + place}": kind for place, kind in enumerate(kinds)}
        queries = tuple(new(id, windowed() if kind else unwindowed()) for id, kind in creates.items())
        epoch = self.store.seal(Change(creates=queries, deletes=deletes))
        self.epoch += 1
        assert epoch.number == self.epoch
        assert epoch.cuts[STREAM].first_batch == len(self.plans)
        for id, kind in creates.items():
            self.lives[id] = Life(kind, len(self.plans), self.flushed)
        for id in deletes:
            self.lives[id].last_batch = len(self.plans) - 1
            self.lives[id].deleted_after_flush = self.flushed

    @rule(back=st.sampled_from([0, 0, 1, 3]), skip=st.sampled_from([0, 0, 0, 2]))
    def fire(self, back: int, skip: int) -> None:
        moves = {}
        for id in list(self.lives)[skip:]:
            life = self.lives[id]
            source, closes = self.frontier(life), self.closes(life)
            if not life.windowed or source is None or self.state(life) == "deleted":
                continue
            target = min(self.watermark, END_OF_TIME if closes is None else closes) - back * SECOND
            if target >= source and self.watermark > START_OF_TIME:
                moves[id] = (source, target)
        path = f"f{len(self.answers)}"
        counts = dict.fromkeys(moves, 1)
        self.store.commit_fire(Fire(STREAM, moves, FireResult((answer_file(path),), counts)))
        self.answers.append((path, None))
        for id, (_, target) in moves.items():
            self.lives[id].frontier = target

    @precondition(lambda self: self.lives)
    @rule(off=st.sampled_from([-SECOND, SECOND]))
    def fire_from_elsewhere(self, off: int) -> None:
        for id, life in self.lives.items():
            source = self.frontier(life)
            if source is not None:
                fire = Fire(STREAM, {id: (source + off, source + off)}, FireResult((answer_file("stale"),)))
                with pytest.raises(EngineError):
                    self.store.commit_fire(fire)

    @precondition(lambda self: self.fenced)
    @rule()
    def an_engine_of_old_wakes_up(self) -> None:
        old = self.fenced[-1]
        attempts: list[Callable[[], object]] = [
            lambda: old.seal(Change(creates=(new("ghost"),))),
            lambda: old.commit_fire(Fire(STREAM, {}, FireResult((answer_file("ghost"),)))),
            lambda: old.plan_batch(STREAM, len(self.plans), "ghost", 0),
            lambda: old.flush_stream(STREAM),
        ]
        if self.plans:
            attempts.append(lambda: old.commit_batch(self.plans[-1], result(50)))
        for attempt in attempts:
            with pytest.raises(EngineError) as error:
                attempt()
            assert error.value.code == "FENCED"

    def start(self, life: Life) -> tuple[int, int] | None:
        """Watermark and largest time before the cut, once the batches before it are committed."""
        if life.created_after_flush:
            return END_OF_TIME, self.marks[life.first_batch][1]
        return self.marks[life.first_batch] if life.first_batch <= self.committed + 1 else None

    def frontier(self, life: Life) -> int | None:
        start = self.start(life)
        return life.frontier if life.frontier is not None else start and start[0]

    def closes(self, life: Life) -> int | None:
        if life.last_batch is None or life.last_batch > self.committed:
            return None
        return END_OF_TIME if life.deleted_after_flush else self.marks[life.last_batch + 1][0]

    def state(self, life: Life) -> str:
        if life.last_batch is None:
            return "running"
        if life.last_batch < life.first_batch:
            return "deleted"
        closes, frontier = self.closes(life), self.frontier(life)
        if closes is None:
            return "deleting"
        return "deleted" if not life.windowed or (frontier is not None and frontier >= closes) else "deleting"

    @invariant()
    def queries_are_as_the_history_says(self) -> None:
        records = {record.id: record for record in self.store.queries()}
        assert records.keys() == self.lives.keys()
        for id, life in self.lives.items():
            record, start = records[id], self.start(life)
            assert (record.first_batch, record.last_batch) == (life.first_batch, life.last_batch)
            assert record.state == self.state(life)
            assert record.fired_to == self.frontier(life)
            assert record.partial_until == (start and start[1])

    @invariant()
    def the_stream_is_as_the_history_says(self) -> None:
        for state in self.store.streams():
            assert (state.planned, state.committed) == (len(self.plans) - 1, self.committed)
            assert state.batches == self.committed + 1
            assert (START_OF_TIME if state.watermark is None else state.watermark) == self.watermark
            assert state.closed_all == self.flushed

    @invariant()
    def answers_are_published_once_and_in_order(self) -> None:
        records = self.store.answers_after(STREAM, 0)
        assert [record.seq for record in records] == list(range(1, len(self.answers) + 1))
        assert [(record.file.path, record.batch) for record in records] == self.answers

    @invariant()
    def closing_batches_are_found_above_every_frontier(self) -> None:
        closing = self.store.closing(STREAM)
        live = [self.frontier(life) for life in self.lives.values() if life.windowed and self.state(life) != "deleted"]
        for frontier in [time for time in live if time is not None and time < self.watermark]:
            first = next(
                batch
                for batch, (mark, _) in enumerate(self.marks, -1)
                if mark > frontier or batch == len(self.marks) - 2
            )
            assert next(batch for batch, mark in closing if mark > frontier) == first


TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


class ProtocolOnPostgres(Protocol):
    server: Server

    def empty_database(self) -> str:
        return self.server.empty_database()


@pytest.fixture
def server(postgres: Server) -> None:
    ProtocolOnPostgres.server = postgres


# Fewer examples: what the rules say is tried out above, here whether the other database agrees.
TestProtocolOnPostgres = pytest.mark.usefixtures("server")(ProtocolOnPostgres.TestCase)
TestProtocolOnPostgres.settings = settings(max_examples=6, stateful_step_count=30, deadline=None)
