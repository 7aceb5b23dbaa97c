"""An engine in memory: statuses and answers that a test writes down, behind the interface the server asks for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from millstream.engine.cursor import END, NEWEST
from millstream.engine.explanation import Explanation, Joined, Source, draw
from millstream.engine.status import Answer, AnswerPage, EngineStatus, QueryRequest, QueryStatus, StreamStatus
from millstream.errors import CatalogError, DamagedFile, MillstreamError, Position, SqlError

START = datetime(2026, 1, 1, tzinfo=UTC)
STREAM = StreamStatus(
    name="purchases",
    fields=(("gem_pack", "integer"), ("price", "decimal(10,2)"), ("time", "timestamp")),
    time="time",
    lateness_seconds=5.0,
    source={"kind": "generator"},
    state="running",
    watermark=START,
    rows=1000,
    late_rows=1,
    rejected_rows=0,
    batches=10,
    rows_per_second=100.0,
    last_batch_seconds=0.1,
)


def answer(query: str, number: int) -> Answer:
    """The answer to window ``number`` of four seconds, two rows."""
    table = pa.table(
        {
            "gem_pack": pa.array([1, 2], pa.int32()),
            "revenue": pa.array([Decimal("10.50"), None], pa.decimal128(20, 2)),
            "mean": pa.array([float("nan"), 1.5], pa.float64()),
        }
    )
    start = START + timedelta(seconds=4 * number)
    return Answer(query, start, start + timedelta(seconds=4), number == 0, None, table, f"c{number + 1}", 2)


def pieces(query: str, number: int) -> list[Answer]:
    """The same answer, of five rows, in pieces of two; cursors have the engine's form where they are inside."""
    whole = answer(query, number)
    tables = [whole.table, whole.table, whole.table.slice(0, 1)]
    cursors = [f"{number}.0.2", f"{number}.0.4", f"{number}.1"]
    return [
        replace(whole, table=table, cursor=cursor, total_rows=5, offset=2 * place)
        for place, (table, cursor) in enumerate(zip(tables, cursors, strict=True))
    ]


def explanation(query: str) -> Explanation:
    """A join of purchases and ads, alone on one stream and with seven others on the other."""
    left = Source("purchases", "p", "price > 10", ("user_id",), (), "g-1", 2, 0, (), 2, 1, 3, 3, 900, 40, 120, 12)
    others = ("q-1", "q-2", "q-3", "q-4", "q-5")
    right = Source("ads", "a", None, ("user_id",), ("cost",), "g-2", 9, 7, others, 4, 0, 3, 3, 800, 90, 300, 30)
    join = Joined("inner", ("p.user_id = a.user_id",), 0, 1, 3600, 3420)
    span = (START, START + timedelta(seconds=4))
    about = Explanation(query, "SELECT …", "running", "windows of 4 s", None, (left, right), join, 2, span, 10, 31000)
    return replace(about, tree=draw(about))


@dataclass
class FakeQuery:
    engine: FakeEngine
    id: str
    state: QueryStatus
    log: list[Answer] = field(default_factory=list)
    # Places in the log whose answers cannot be read.
    damaged: set[int] = field(default_factory=set)
    # What happens before the next reads, one step before each.
    script: list[Callable[[], object]] = field(default_factory=list)

    def status(self) -> QueryStatus:
        return self.state

    def read(self, cursor: str | None = None, limit: int = 100, wait: float = 0.0) -> AnswerPage:
        seen = self._seen(cursor)
        if self.script:
            self.script.pop(0)()
        deadline = time.monotonic() + wait
        with self.engine.changed:
            while len(self.log) <= seen and self.state.state == "running" and time.monotonic() < deadline:
                self.engine.changed.wait(deadline - time.monotonic())
            found = self.log[seen : seen + limit]
        if seen in self.damaged:
            raise DamagedFile("answers/x.answers", "is altered", hint="…", cursor=f"c{seen + 1}")
        for place in self.damaged:
            found = found[: max(place - seen, 0)] if place > seen else found
        after = found[-1].cursor if found else f"c{seen}"
        return AnswerPage(found, after, self.state.state == "deleted" and seen + len(found) == len(self.log))

    def _seen(self, cursor: str | None) -> int:
        """How many answers, or pieces of them, lie before a cursor."""
        known = [one.cursor for one in self.log]
        if cursor in known:
            return known.index(cursor) + 1
        if cursor in (NEWEST, END):
            newest = [at for at, one in enumerate(self.log) if not one.offset]
            return newest[-1] if newest and cursor == NEWEST else len(self.log)
        if cursor and not cursor.startswith("c"):
            raise MillstreamError("BAD_CURSOR", f"no cursor {cursor!r}")
        return int(cursor[1:]) if cursor else 0


class FakeEngine:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.changed = threading.Condition()
        self.known: dict[str, FakeQuery] = {}
        self.epoch = 11

    def streams(self) -> list[StreamStatus]:
        return [STREAM]

    def create_queries(self, requests: Sequence[QueryRequest]) -> list[FakeQuery | MillstreamError]:
        self.epoch += 1
        return [self._create(request) for request in requests]

    def _create(self, request: QueryRequest) -> FakeQuery | MillstreamError:
        if request.sql == "boom":
            raise RuntimeError("boom")
        start = request.sql.find("prize")
        if start >= 0:
            position = Position.of(request.sql, start, start + 5)
            hint = "did you mean price?"
            return SqlError("UNKNOWN_COLUMN", "no column 'prize'", hint=hint, position=position, text=request.sql)
        id = request.id or f"q-{len(self.known):04x}"
        if id in self.known:
            return CatalogError("DUPLICATE_QUERY", f"a query {id!r} exists already")
        schema = (("gem_pack", "integer"), ("revenue", "decimal(20,2)"), ("mean", "double"))
        status = QueryStatus(
            id,
            request.owner,
            request.sql,
            "running",
            self.epoch,
            START,
            {"purchases": 3},
            schema,
            0,
            0,
            0,
            0,
            None,
            "g1",
        )
        self.known[id] = FakeQuery(self, id, status)
        return self.known[id]

    def fire(self, id: str, windows: int = 1) -> None:
        """Publish the next answers of a query."""
        with self.changed:
            query = self.known[id]
            query.log.extend(answer(id, len(query.log)) for _ in range(windows))
            query.state = replace(query.state, windows=len(query.log), answer_rows=2 * len(query.log))
            self.changed.notify_all()

    def fire_pieces(self, id: str) -> None:
        """Publish an answer that comes in pieces."""
        with self.changed:
            query = self.known[id]
            query.log.extend(pieces(id, len(query.log)))
            self.changed.notify_all()

    def explain(self, id: str) -> Explanation:
        return explanation(self.query(id).id)

    def delete_queries(self, ids: Sequence[str]) -> list[QueryStatus | MillstreamError]:
        return [self._delete(id) for id in ids]

    def _delete(self, id: str) -> QueryStatus | MillstreamError:
        try:
            query = self.query(id)
        except MillstreamError as error:
            return error
        if query.state.state == "deleted":
            return CatalogError("QUERY_DELETED", f"query {id!r} was deleted before")
        with self.changed:
            query.state = replace(query.state, state="deleted")
            self.changed.notify_all()
        return query.state

    def query(self, id: str) -> FakeQuery:
        if id not in self.known:
            raise CatalogError("UNKNOWN_QUERY", f"no query {id!r}")
        return self.known[id]

    def queries(self, owner: str | None = None, state: str | None = None) -> list[QueryStatus]:
        found = [query.state for query in self.known.values()]
        return [item for item in found if owner in (None, item.owner) and state in (None, item.state)]

    def status(self) -> EngineStatus:
        running = len(self.queries(state="running"))
        return EngineStatus(
            str(self.home), "0.1.0", START, self.epoch, running, 1, 4, (STREAM,), 100.0, 0.01, 3, 6, 1024, {"read": 0.1}
        )
