"""What the server needs of an engine, and the words of the HTTP interface that server and client share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from millstream.engine.explanation import Explanation
from millstream.engine.status import AnswerPage, EngineStatus, QueryRequest, QueryStatus, StreamStatus
from millstream.errors import MillstreamError

ARROW_STREAM = "application/vnd.apache.arrow.stream"
OWNER_HEADER = "X-Millstream-Owner"
# A page's cursor and end, beside a body that is all Arrow.
CURSOR_HEADER = "X-Millstream-Cursor"
FINISHED_HEADER = "X-Millstream-Finished"

# Answers in one page: enough that a reader far behind catches up in few requests, few enough to hold in memory. A page
# with many rows ends before that, and may end in the middle of a join's answer.
DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
# A long poll ends before proxies and clients lose patience with a silent connection.
MAX_WAIT = 30.0

# HTTP status by error code; a code that is not here is the caller's mistake, 400.
STATUS_BY_CODE: dict[str, int] = {
    "UNKNOWN_QUERY": 404,
    "DUPLICATE_QUERY": 409,
    "DUPLICATE_STREAM": 409,
    "QUERY_DELETED": 409,
    "HOME_IN_USE": 503,
    "FENCED": 503,
    "METASTORE_AWAY": 503,
    "METASTORE_STALE": 503,
    "SPARK_LOST": 503,
    "NOT_RUNNING": 503,
    "STREAM_STOPPED": 503,
    "NO_SPACE": 503,
    "DISK_ERROR": 503,
    "DAMAGED_FILE": 500,
    "REPLAY_MISMATCH": 500,
    "INTERNAL": 500,
}


class QueryPort(Protocol):
    """A query as the server sees it."""

    @property
    def id(self) -> str: ...

    def status(self) -> QueryStatus: ...

    def read(self, cursor: str | None = None, limit: int = ..., wait: float = ...) -> AnswerPage: ...


class EnginePort(Protocol):
    """An engine as the server sees it; every call may block and is made from a worker thread."""

    @property
    def home(self) -> Path: ...

    def streams(self) -> list[StreamStatus]: ...

    def create_queries(self, requests: Sequence[QueryRequest]) -> Sequence[QueryPort | MillstreamError]: ...

    def delete_queries(self, ids: Sequence[str]) -> Sequence[QueryStatus | MillstreamError]: ...

    def query(self, id: str) -> QueryPort: ...

    def explain(self, id: str) -> Explanation: ...

    def queries(self, owner: str | None = None, state: str | None = None) -> list[QueryStatus]: ...

    def status(self) -> EngineStatus: ...
