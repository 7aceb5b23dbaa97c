"""The client of a running engine: the methods of ``Engine`` over HTTP, with the same statuses, answers and errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from types import TracebackType
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx

from millstream.engine.explanation import Explanation
from millstream.engine.status import Answer as Answer
from millstream.engine.status import AnswerPage, EngineStatus, QueryRequest, QueryStatus, StreamStatus
from millstream.errors import EngineError, MillstreamError
from millstream.server import protocol
from millstream.server.wire import answers_from_arrow, error_from_json, from_json

# A create waits for Spark's analyzer, which may be busy on a loaded machine, and up to a minute for the metastore.
TIMEOUT_SECONDS = 90.0
# A reader that follows a query asks again this often; each request ends as soon as there is an answer.
FOLLOW_SECONDS = 10.0


class Client:
    """Talks to the engine at ``url``; ``owner`` is the owner of what it creates. A context manager."""

    def __init__(self, url: str, owner: str = "", transport: httpx.BaseTransport | None = None) -> None:
        self.url = url.rstrip("/")
        headers = {protocol.OWNER_HEADER: owner} if owner else {}
        # No proxy of the environment stands between a machine and itself.
        self._http = httpx.Client(
            base_url=self.url, headers=headers, timeout=TIMEOUT_SECONDS, transport=transport, trust_env=False
        )

    def health(self) -> dict[str, str]:
        return dict(self._json("GET", "/v1/health"))

    def status(self) -> EngineStatus:
        return from_json(EngineStatus, self._json("GET", "/v1/status"))

    def streams(self) -> list[StreamStatus]:
        return [from_json(StreamStatus, item) for item in self._json("GET", "/v1/streams")["streams"]]

    def stream(self, name: str) -> StreamStatus:
        return from_json(StreamStatus, self._json("GET", f"/v1/streams/{_part(name)}"))

    def create_query(self, sql: str, owner: str = "", id: str | None = None, key: str | None = None) -> QueryStatus:
        """Create a query. It carries a key, so that a request repeated after a broken connection creates once."""
        body = _body(QueryRequest(sql, owner, id, key or uuid4().hex))
        data = self._json("POST", "/v1/queries", text=sql, json=body)
        return _status(data)

    def create_queries(self, requests: Sequence[QueryRequest]) -> list[QueryStatus | MillstreamError]:
        """Create many in one epoch; each gives its status or its error."""
        data = self._json("POST", "/v1/queries", json=[_body(request) for request in requests])
        return [_result(item, request.sql) for item, request in zip(data["queries"], requests, strict=True)]

    def queries(self, owner: str | None = None, state: str | None = None) -> list[QueryStatus]:
        params = {name: value for name, value in (("owner", owner), ("state", state)) if value is not None}
        return [_status(item) for item in self._json("GET", "/v1/queries", params=params)["queries"]]

    def query(self, id: str) -> QueryStatus:
        return _status(self._json("GET", f"/v1/queries/{_part(id)}"))

    def explain(self, id: str) -> Explanation:
        """What a query shares with whom: its groups, buckets, join tree, and their sizes."""
        return from_json(Explanation, self._json("GET", f"/v1/queries/{_part(id)}/explain"))

    def delete_query(self, id: str) -> QueryStatus:
        return _status(self._json("DELETE", f"/v1/queries/{_part(id)}"))

    def delete_queries(self, ids: Sequence[str]) -> list[QueryStatus | MillstreamError]:
        """Delete many in one epoch; each gives its status or its error."""
        data = self._json("DELETE", "/v1/queries", params={"id": list(ids)})
        return [_result(item, None) for item in data["queries"]]

    def read(
        self, id: str, cursor: str | None = None, limit: int = protocol.DEFAULT_LIMIT, wait: float = 0.0
    ) -> AnswerPage:
        """The answers after ``cursor``, waiting up to ``wait`` seconds for the first. ``cursor`` can be ``newest``, to
        begin with the newest answer there is, or ``end``, to begin after it. A join's large answer comes in pieces."""
        params = {"limit": str(limit), "wait": str(wait), **({"cursor": cursor} if cursor else {})}
        headers = {"Accept": protocol.ARROW_STREAM}
        response = self._send("GET", f"/v1/queries/{_part(id)}/answers", params=params, headers=headers)
        finished = response.headers.get(protocol.FINISHED_HEADER) == "true"
        after = response.headers.get(protocol.CURSOR_HEADER, cursor or "")
        return AnswerPage(tuple(answers_from_arrow(response.content)), after, finished)

    def answers(self, id: str, cursor: str | None = None) -> Iterator[Answer]:
        """Follow a query: every answer after ``cursor`` as it comes, until the query is deleted and read to its end."""
        while True:
            page = self.read(id, cursor, wait=FOLLOW_SECONDS)
            yield from page.answers
            cursor = page.cursor or cursor
            if page.finished:
                return

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _json(self, method: str, path: str, *, text: str | None = None, **options: Any) -> Any:
        return self._send(method, path, text=text, **options).json()

    def _send(self, method: str, path: str, *, text: str | None = None, **options: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **options)
        except httpx.TimeoutException as error:
            raise EngineError("NOT_RUNNING", f"the engine at {self.url} did not answer in time") from error
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise EngineError(
                "NOT_RUNNING",
                f"no engine answers at {self.url}",
                detail=str(error),
                hint="is it running? millstream status",
            ) from error
        if response.is_success:
            return response
        raise _error(response, text)


def _error(response: httpx.Response, text: str | None) -> MillstreamError:
    try:
        return error_from_json(response.json(), text)
    except (ValueError, KeyError, TypeError, AssertionError):
        return EngineError(
            "NOT_RUNNING", f"what answers at {response.url.host} is no engine: HTTP {response.status_code}"
        )


def _body(request: QueryRequest) -> dict[str, str]:
    return {name: value for name, value in asdict(request).items() if value}


def _status(data: dict[str, Any]) -> QueryStatus:
    return from_json(QueryStatus, {name: value for name, value in data.items() if name != "seconds"})


def _result(item: dict[str, Any], text: str | None) -> QueryStatus | MillstreamError:
    return error_from_json(item, text) if "error" in item else _status(item["query"])


def _part(name: str) -> str:
    return quote(name, safe="")
