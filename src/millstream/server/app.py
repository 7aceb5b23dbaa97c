"""The HTTP interface of one engine: resources under ``/v1``, one error shape, nothing that blocks the event loop.

Engine calls run in worker threads. Readers that wait for answers have threads of their own, so that any number of
watchers leaves creates and deletes alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import anyio
import anyio.to_thread
from fastapi import FastAPI, Header, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from millstream.config import nearest
from millstream.engine.status import AnswerPage, QueryRequest, QueryStatus
from millstream.errors import CatalogError, EngineError, MillstreamError, SpecError, SqlError
from millstream.server import protocol
from millstream.server.hosts import HostCheck
from millstream.server.protocol import EnginePort, QueryPort
from millstream.server.wire import error_to_json, page_to_arrow, page_to_json, to_json

T = TypeVar("T")

# Threads for calls that return at once, and for readers that wait; a waiting thread costs little but its stack.
CALL_THREADS = 16
WAIT_THREADS = 256
# Threads for the status, which is given also while all other calls wait for the metastore.
STATUS_THREADS = 4
# A waiting reader looks this often whether the server stops.
STOP_CHECK_SECONDS = 0.5

QUERY_FORM = 'a query is {"sql": "SELECT …", "owner": "…", "id": "…", "key": "…"}; all but sql may be left out'


class CreateQuery(BaseModel):
    """A query to create. ``key`` is the client's own: a create repeated with it does not create twice."""

    model_config = ConfigDict(extra="forbid")

    sql: Annotated[str, Field(min_length=1, max_length=1_000_000)]
    owner: str | None = None
    id: str | None = None
    key: str | None = None

    def request(self, owner: str) -> QueryRequest:
        return QueryRequest(self.sql, owner if self.owner is None else self.owner, self.id, self.key)


Owner = Annotated[str, Header(alias=protocol.OWNER_HEADER)]


class Calls:
    """Engine calls from the event loop, each in a thread of the right pool."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._limiters: dict[str, anyio.CapacityLimiter] = {}

    async def call(self, work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(work, limiter=self._limiter("call", CALL_THREADS))

    async def look(self, work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(work, limiter=self._limiter("status", STATUS_THREADS))

    async def wait(self, work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(work, limiter=self._limiter("wait", WAIT_THREADS))

    def _limiter(self, name: str, threads: int) -> anyio.CapacityLimiter:
        # Made on first use: a limiter belongs to the event loop that runs.
        return self._limiters.setdefault(name, anyio.CapacityLimiter(threads))

    def read(self, query: QueryPort, cursor: str | None, limit: int, wait: float) -> AnswerPage:
        """One page, waiting up to ``wait`` seconds for its first answer, but not beyond the server's end."""
        deadline = time.monotonic() + wait
        while True:
            left = deadline - time.monotonic()
            page = query.read(cursor, limit=limit, wait=max(0.0, min(left, STOP_CHECK_SECONDS)))
            if page.answers or page.finished or left <= 0 or self.stopping.is_set():
                return page


def create_app(engine: EnginePort, *, version: str = "", hosts: frozenset[str] | None = None) -> FastAPI:
    """The application of one engine. ``hosts`` are the names it may be called by; None allows any."""
    app = FastAPI(
        title="Millstream", version=version or "0", docs_url=None, redoc_url=None, openapi_url="/v1/openapi.json"
    )
    calls = Calls()
    app.state.calls = calls
    _add_engine_routes(app, engine, calls, version)
    _add_query_routes(app, engine, calls)
    _add_answer_routes(app, engine, calls)
    _add_error_handlers(app)
    if hosts is not None:
        app.add_middleware(HostCheck, hosts=hosts)
    return app


def _add_engine_routes(app: FastAPI, engine: EnginePort, calls: Calls, version: str) -> None:
    @app.get("/v1/health", summary="whether the engine answers")
    async def health() -> Response:
        return JSONResponse({"status": "ok", "version": version})

    @app.get("/v1/status", summary="the engine in figures")
    async def status() -> Response:
        return JSONResponse(to_json(await calls.look(engine.status)))

    @app.get("/v1/streams", summary="all streams")
    async def streams() -> Response:
        found = await calls.call(engine.streams)
        return JSONResponse({"streams": to_json(found)})

    @app.get("/v1/streams/{name}", summary="one stream")
    async def stream(name: str) -> Response:
        found = await calls.call(engine.streams)
        for candidate in found:
            if candidate.name.lower() == name.lower():
                return JSONResponse(to_json(candidate))
        hint = nearest(name, [item.name for item in found]) if found else "there are no streams"
        raise CatalogError("UNKNOWN_STREAM", f"no stream {name!r}", hint=hint)


def _add_query_routes(app: FastAPI, engine: EnginePort, calls: Calls) -> None:
    @app.post("/v1/queries", status_code=201, summary="create a query, or a list of them in one epoch")
    async def create(body: CreateQuery | list[CreateQuery], owner: Owner = "") -> Response:
        started = time.monotonic()
        bodies = body if isinstance(body, list) else [body]
        results = await calls.call(lambda: _statuses(engine.create_queries([item.request(owner) for item in bodies])))
        seconds = round(time.monotonic() - started, 6)
        if isinstance(body, list):
            return JSONResponse({"queries": [_result(item) for item in results], "seconds": seconds})
        return JSONResponse({**to_json(_value(results[0])), "seconds": seconds}, status_code=201)

    @app.get("/v1/queries", summary="all queries, or those of an owner or in a state")
    async def queries(owner: str | None = None, state: str | None = None) -> Response:
        found = await calls.call(lambda: engine.queries(owner=owner, state=state))
        return JSONResponse({"queries": await calls.call(lambda: to_json(found))})

    @app.delete("/v1/queries", summary="delete several queries in one epoch")
    async def delete_many(id: Annotated[list[str], Query(min_length=1)]) -> Response:
        results = await calls.call(lambda: engine.delete_queries(id))
        return JSONResponse({"queries": [_result(item) for item in results]})

    @app.get("/v1/queries/{id}", summary="one query")
    async def query(id: str) -> Response:
        return JSONResponse(to_json(await calls.call(lambda: engine.query(id).status())))

    @app.get("/v1/queries/{id}/explain", summary="what a query shares with whom, and how much it has")
    async def explain(id: str) -> Response:
        return JSONResponse(await calls.call(lambda: to_json(engine.explain(id))))

    @app.delete("/v1/queries/{id}", summary="delete a query")
    async def delete(id: str) -> Response:
        results = await calls.call(lambda: engine.delete_queries([id]))
        return JSONResponse(to_json(_value(results[0])))


def _add_answer_routes(app: FastAPI, engine: EnginePort, calls: Calls) -> None:
    @app.get("/v1/queries/{id}/answers", summary="answers after a cursor, as JSON or as an Arrow stream")
    async def answers(
        id: str,
        request: Request,
        cursor: str | None = None,
        wait: Annotated[float, Query(ge=0, le=protocol.MAX_WAIT)] = 0.0,
        limit: Annotated[int, Query(ge=1, le=protocol.MAX_LIMIT)] = protocol.DEFAULT_LIMIT,
    ) -> Response:
        as_arrow = protocol.ARROW_STREAM in request.headers.get("accept", "")

        def respond() -> Response:
            page = calls.read(engine.query(id), cursor or None, limit, wait)
            return _arrow_page(page) if as_arrow else JSONResponse(page_to_json(page))

        return await (calls.wait(respond) if wait else calls.call(respond))


def _arrow_page(page: AnswerPage) -> Response:
    headers = {protocol.CURSOR_HEADER: page.cursor or "", protocol.FINISHED_HEADER: str(page.finished).lower()}
    return Response(page_to_arrow(page), media_type=protocol.ARROW_STREAM, headers=headers)


def _statuses(results: Any) -> list[QueryStatus | MillstreamError]:
    return [item if isinstance(item, MillstreamError) else item.status() for item in results]


def _value(result: T | MillstreamError) -> T:
    if isinstance(result, MillstreamError):
        raise result
    return result


def _result(result: QueryStatus | MillstreamError) -> dict[str, Any]:
    return error_to_json(result) if isinstance(result, MillstreamError) else {"query": to_json(result)}


def http_status(error: MillstreamError) -> int:
    """The HTTP status of an error: a stream named by a path is missing, one named by SQL is a mistake in the SQL."""
    if error.code == "UNKNOWN_STREAM" and not isinstance(error, SqlError):
        return 404
    return protocol.STATUS_BY_CODE.get(error.code, 400)


def _error_response(error: MillstreamError, status: int | None = None) -> JSONResponse:
    return JSONResponse(error_to_json(error), status_code=status or http_status(error))


def _add_error_handlers(app: FastAPI) -> None:
    async def on_millstream(_: Request, error: Exception) -> Response:
        assert isinstance(error, MillstreamError)
        return _error_response(error)

    async def on_validation(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return _error_response(_validation_error(error))

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        message = f"{request.method} {request.url.path}: {str(error.detail).lower()}"
        hint = (
            "the resources are /v1/streams, /v1/queries, /v1/queries/{id}/answers and …/explain, /v1/status, /v1/health"
        )
        return _error_response(SpecError("BAD_REQUEST", message, hint=hint), error.status_code)

    async def on_anything(_: Request, error: Exception) -> Response:
        return _error_response(EngineError("INTERNAL", f"{type(error).__name__}: {error}"))

    handlers: list[tuple[type[Exception], Callable[[Request, Exception], Awaitable[Response]]]] = [
        (MillstreamError, on_millstream),
        (RequestValidationError, on_validation),
        (HTTPException, on_http),
        (Exception, on_anything),
    ]
    for kind, handler in handlers:
        app.add_exception_handler(kind, handler)


def _validation_error(error: RequestValidationError) -> SpecError:
    """The first thing wrong with a request: where it is, in the request's own words."""
    problems: list[tuple[tuple[str | int, ...], str]] = [(item["loc"], str(item["msg"])) for item in error.errors()]
    # A body that may be an object or a list fails twice; the deepest path belongs to the form the caller meant.
    place, message = max(problems, key=lambda problem: len(problem[0]), default=((), "not valid"))
    names = [str(part) for part in place if part not in ("CreateQuery", "list[CreateQuery]")]
    return SpecError(
        "BAD_REQUEST",
        f"{'.'.join(names) or 'body'}: {message[:1].lower()}{message[1:]}",
        hint=QUERY_FORM if names[:1] == ["body"] else None,
    )
