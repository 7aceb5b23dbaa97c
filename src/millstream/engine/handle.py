"""A handle on one query, and what it says of itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.catalog.metastore import QueryRecord
from millstream.engine.answers import schema_of
from millstream.engine.explain import Explanation
from millstream.engine.status import Answer, AnswerPage, QueryStatus, moment
from millstream.errors import EngineError
from millstream.model.join import JoinQuery
from millstream.model.query import LogicalQuery

if TYPE_CHECKING:
    from millstream.engine.engine import Engine

# Answers given at most by one read.
PAGE_ANSWERS = 1000
# How long a reader waits for an answer before it looks whether one can still come, in seconds.
READ_INTERVAL = 1.0


class Query:
    """A handle on one query; ``cut`` is the first micro-batch it sees, by stream."""

    def __init__(
        self, engine: Engine, id: str, owner: str, epoch: int, cut: dict[str, int], query: LogicalQuery | JoinQuery
    ) -> None:
        self._engine = engine
        self.id = id
        self.owner = owner
        self.sql = query.sql
        self.epoch = epoch
        self.cut = cut
        self.schema: pa.Schema = schema_of(query)

    def status(self) -> QueryStatus:
        metastore = self._engine._core.metastore
        return query_status(metastore.query(self.id), metastore.incomplete().get(self.id, 0))

    def read(
        self, cursor: str | None = None, limit: int = PAGE_ANSWERS, wait: float = 0.0, rows: int | None = None
    ) -> AnswerPage:
        """A page of answers after a cursor; waits up to ``wait`` seconds for the first."""
        return self._engine.read_answers(self.id, cursor, limit, wait, rows)

    def answers(self, cursor: str | None = None, timeout: float | None = None) -> Iterator[Answer]:
        """Answers as they come, until the query is deleted and read to its end, or none comes for ``timeout``
        seconds."""
        while True:
            page = self.read(cursor, wait=READ_INTERVAL if timeout is None else timeout)
            yield from page.answers
            cursor = page.cursor
            if page.finished or (timeout is not None and not page.answers):
                return

    def delete(self) -> QueryStatus:
        return self._engine.delete_query(self.id)

    def explain(self) -> Explanation:
        return self._engine.explain(self.id)

    def __repr__(self) -> str:
        return f"Query({self.id!r}, epoch={self.epoch}, sql={self.sql!r})"


def check_id(id: str) -> None:
    if not id or len(id) > 200 or not all(c.isalnum() or c in "-_." for c in id):
        hint = "use letters, digits, -, _ and ., at most 200 of them"
        raise EngineError("BAD_REQUEST", f"{id!r} is not an id for a query", hint=hint)


def query_status(record: QueryRecord, incomplete: int = 0) -> QueryStatus:
    created = moment(record.created_at)
    assert created is not None
    return QueryStatus(
        id=record.id,
        owner=record.owner,
        sql=record.sql,
        state=record.state,
        epoch=record.epoch,
        created_at=created,
        cut=cut_of(record),
        schema=tuple((out.name, str(out.type)) for out in record.query.outputs),
        windows=record.windows,
        answer_rows=record.answer_rows,
        late_rows=record.late_rows,
        failures=record.failures,
        fired_to=moment(record.fired_to),
        group=record.group or ", ".join(dict.fromkeys(leg.group for leg in record.legs)),
        reason=record.reason,
        incomplete=incomplete,
    )


def cut_of(record: QueryRecord) -> dict[str, int]:
    """The first micro-batch that a query sees of each of its streams."""
    if not record.legs:
        return {record.stream: record.first_batch}
    return {leg.stream: leg.first_batch for leg in record.legs}
