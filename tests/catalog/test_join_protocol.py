"""Joins under random interleavings of two streams, against rules that are read off the history of each stream."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.catalog.builders import ADS, SECOND, STREAM, new, new_join, result, stream
from tests.support.postgres import Server

from millstream.catalog import batches
from millstream.catalog.metastore import END_OF_TIME, START_OF_TIME, Change, Fire, Metastore, joined_stream
from millstream.model.plan import FireResult, IngestPlan

LATENESS = 2
STREAMS = st.sampled_from([STREAM, ADS])
TIMES = st.none() | st.integers(0, 60)
KINDS = st.sampled_from([(STREAM, ADS), (STREAM, ADS), (ADS, STREAM), (ADS, ADS), (STREAM,)])


@dataclass
class Past:
    """A stream's events: watermark and largest time after each. No event but its commit follows while a batch runs."""

    marks: list[tuple[int, int]] = field(default_factory=lambda: [(START_OF_TIME, START_OF_TIME)])
    plans: list[IngestPlan] = field(default_factory=list)
    running: bool = False
    ended: bool = False

    @property
    def next_known(self) -> int:
        """The event after which all planned batches are committed."""
        return len(self.marks) - (0 if self.running else 1)

    def at(self, event: int) -> tuple[int, int] | None:
        return self.marks[event] if event < len(self.marks) else None


@dataclass
class Span:
    """A leg's cut: the events and the batches at which it begins and ends."""

    stream: str
    start: int
    first_batch: int
    end: int | None = None
    last_batch: int | None = None


@dataclass
class Life:
    name: str
    spans: list[Span]
    frontier: int | None = None


class JoinProtocol(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(batches, "PRUNE_EVERY", 1)
        self.directory = tempfile.TemporaryDirectory()
        self.url = self.empty_database()
        self.stores = [Metastore.open(self.url, holder="first")]
        self.pasts = {STREAM: Past(), ADS: Past()}
        self.lives: dict[str, Life] = {}

    def empty_database(self) -> str:
        return f"sqlite:///{Path(self.directory.name) / 'metastore.db'}"

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        self.directory.cleanup()
        self.patch.undo()

    @property
    def store(self) -> Metastore:
        return self.stores[-1]

    @initialize()
    def add_streams(self) -> None:
        for name in self.pasts:
            self.store.add_stream(stream(name, lateness=LATENESS))

    @rule()
    def crash(self) -> None:
        self.stores.append(Metastore.open(self.url, holder="next"))

    @rule(name=STREAMS)
    def plan(self, name: str) -> None:
        past = self.pasts[name]
        if not past.running and not past.ended:
            batch = len(past.plans)
            past.plans.append(self.store.plan_batch(name, batch, f"offsets {batch}", 0)[0])
            past.running = True

    @rule(name=STREAMS, time=TIMES)
    def commit(self, name: str, time: int | None) -> None:
        past = self.pasts[name]
        if past.running:
            watermark, latest = past.marks[-1]
            if time is not None:
                watermark, latest = max(watermark, (time - LATENESS) * SECOND), max(latest, time * SECOND)
            self.store.commit_batch(past.plans[-1], result(time))
            past.marks.append((watermark, latest))
            past.running = False

    @rule(name=STREAMS, time=st.integers(0, 60))
    def advance(self, name: str, time: int) -> None:
        past = self.pasts[name]
        watermark, latest = past.marks[-1]
        if not past.running:
            watermark = max(watermark, time * SECOND)
            past.marks.append((watermark, latest))
        given = self.store.advance_idle(name, time * SECOND)
        assert (START_OF_TIME if given is None else given) == watermark

    @precondition(lambda self: any(len(past.plans) > 3 for past in self.pasts.values()))
    @rule(name=STREAMS)
    def flush(self, name: str) -> None:
        past = self.pasts[name]
        if not past.running and not past.ended:
            self.store.flush_stream(name)
            past.marks.append((END_OF_TIME, past.marks[-1][1]))
            past.ended = True

    @rule(kinds=st.lists(KINDS, min_size=1, max_size=2))
    def create(self, kinds: list[tuple[str, ...]]) -> None:
        creates = []
        for streams in kinds:
            id = f"q{len(self.lives)}"
            creates.append(new_join(id, *streams) if len(streams) > 1 else new(id))
            spans = [Span(s, self.pasts[s].next_known, len(self.pasts[s].plans)) for s in streams]
            self.lives[id] = Life(joined_stream(streams) if len(streams) > 1 else streams[0], spans)
        self.store.seal(Change(creates=tuple(creates)))

    @precondition(lambda self: self.standing())
    @rule(doomed=st.integers(0, 20))
    def delete(self, doomed: int) -> None:
        standing = self.standing()
        id = standing[doomed % len(standing)]
        self.store.seal(Change(deletes=(id,)))
        for span in self.lives[id].spans:
            past = self.pasts[span.stream]
            span.end, span.last_batch = past.next_known, len(past.plans) - 1

    def standing(self) -> list[str]:
        return [id for id, life in self.lives.items() if life.spans[0].end is None]

    @rule(back=st.sampled_from([0, 0, 3]))
    def fire(self, back: int) -> None:
        """As the engine does: by what the metastore says of frontiers, up to the lowest watermark."""
        for name in sorted({life.name for life in self.lives.values()}):
            streams = {span.stream for life in self.lives.values() if life.name == name for span in life.spans}
            closed = min(self.pasts[s].marks[-1][0] for s in streams)
            moves = {}
            for one in self.store.frontiers(name):
                upto = (closed if one.closes_at is None else min(closed, one.closes_at)) - back * SECOND
                if one.leg is None and one.fired_to is not None and one.fired_to < upto:
                    moves[one.query] = (one.fired_to, upto)
            self.store.commit_fire(Fire(name, moves, FireResult()))
            for id, (_, target) in moves.items():
                self.lives[id].frontier = target

    def started(self, life: Life) -> tuple[int, int] | None:
        marks = [self.pasts[span.stream].at(span.start) for span in life.spans]
        if None in marks:
            return None
        return min(mark[0] for mark in marks if mark), max(mark[1] for mark in marks if mark)

    def closes(self, life: Life) -> int | None:
        """The lowest of the legs that know."""
        marks = [self.pasts[span.stream].at(span.end) for span in life.spans if span.end is not None]
        return min((mark[0] for mark in marks if mark), default=None)

    def frontier(self, life: Life) -> int | None:
        start = self.started(life)
        return life.frontier if life.frontier is not None else start and start[0]

    def state(self, life: Life) -> str:
        if life.spans[0].last_batch is None:
            return "running"
        if all(span.last_batch is not None and span.last_batch < span.first_batch for span in life.spans):
            return "deleted"
        frontier, closes = self.frontier(life), self.closes(life)
        return "deleted" if None not in (frontier, closes) and frontier >= closes else "deleting"  # type: ignore[operator]

    @invariant()
    def queries_are_as_the_history_says(self) -> None:
        for record in self.store.queries():
            life = self.lives[record.id]
            start = self.started(life)
            assert record.state == self.state(life)
            assert (record.fired_to, record.partial_until) == (self.frontier(life), start and start[1])
            if record.state == "deleting":
                assert record.closes_at == self.closes(life)
            if record.legs:
                found = [(leg.stream, leg.first_batch, leg.last_batch) for leg in record.legs]
                assert found == [(span.stream, span.first_batch, span.last_batch) for span in life.spans]

    @invariant()
    def no_query_has_fired_what_its_batches_did_not_close(self) -> None:
        for life in self.lives.values():
            closes = self.closes(life)
            assert life.frontier is None or closes is None or life.frontier <= closes

    @invariant()
    def frontiers_are_those_of_live_queries_and_legs(self) -> None:
        live = {id: life for id, life in self.lives.items() if self.state(life) != "deleted"}
        assert self.store.joins() == sorted({life.name for life in live.values() if "&" in life.name})
        for name in self.pasts:
            expected = {id for id, life in live.items() if life.name == name}
            expected |= {
                f"{id}#{leg}"
                for id, life in live.items()
                if life.name != name
                for leg, span in enumerate(life.spans)
                if span.stream == name
            }
            assert {frontier.query for frontier in self.store.frontiers(name)} == expected

    @invariant()
    def closings_are_found_above_every_frontier(self) -> None:
        """What a stream closed before the cut of a leg had no rows of it, so those closings may be gone."""
        closings = {name: [mark for _, mark in self.store.closing(name)] for name in self.pasts}
        for life in self.lives.values():
            frontier = self.frontier(life)
            if self.state(life) == "deleted" or frontier is None:
                continue
            for span in life.spans:
                marks = [mark for mark, _ in self.pasts[span.stream].marks]
                low = max(frontier, marks[span.start])
                assert [mark for mark in closings[span.stream] if mark > low] == sorted({m for m in marks if m > low})


TestJoinProtocol = JoinProtocol.TestCase
TestJoinProtocol.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


class JoinProtocolOnPostgres(JoinProtocol):
    server: Server

    def empty_database(self) -> str:
        return self.server.empty_database()


@pytest.fixture
def server(postgres: Server) -> None:
    JoinProtocolOnPostgres.server = postgres


# Fewer examples: what the rules say is tried out above, here whether the other database agrees.
TestJoinProtocolOnPostgres = pytest.mark.usefixtures("server")(JoinProtocolOnPostgres.TestCase)
TestJoinProtocolOnPostgres.settings = settings(max_examples=6, stateful_step_count=30, deadline=None)
