"""The HTTP interface over an engine in memory: resources, errors, pages, waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from tests.server.fake import STREAM, FakeEngine, answer

from millstream.engine.status import QueryRequest
from millstream.errors import CODES, DamagedFile, MillstreamError
from millstream.server.app import http_status
from millstream.server.client import Client
from millstream.server.protocol import ARROW_STREAM, OWNER_HEADER
from millstream.server.serve import Server
from millstream.server.wire import to_json

SQL = "SELECT gem_pack, SUM(price) AS revenue FROM purchases GROUP BY gem_pack, window(time, '4 seconds')"


@pytest.fixture
def engine(home: Path) -> FakeEngine:
    return FakeEngine(home)


@pytest.fixture
def server(engine: FakeEngine, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("HOME", str(home.parent))
    with Server(engine) as server:
        yield server


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, trust_env=False) as http:
        yield http


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


def test_health_and_status(client: Client, engine: FakeEngine) -> None:
    assert client.health() == {"status": "ok", "version": "0.1.0"}
    assert client.status() == engine.status()


def test_streams(client: Client) -> None:
    assert client.streams() == [STREAM]
    assert client.stream("Purchases") == STREAM
    with pytest.raises(MillstreamError) as refused:
        client.stream("purchase")
    assert (refused.value.code, refused.value.hint) == ("UNKNOWN_STREAM", "did you mean 'purchases'? known: purchases")


def test_the_life_of_a_query(client: Client, engine: FakeEngine) -> None:
    created = client.create_query(SQL, owner="marketing", id="revenue")
    assert created == engine.query("revenue").status() == client.query("revenue")
    assert (created.epoch, created.cut, created.owner) == (12, {"purchases": 3}, "marketing")
    assert client.queries() == client.queries(owner="marketing", state="running") == [created]
    assert client.queries(owner="finance") == []
    assert client.delete_query("revenue").state == "deleted"
    with pytest.raises(MillstreamError, match="deleted before") as refused:
        client.delete_query("revenue")
    assert refused.value.code == "QUERY_DELETED"


def test_many_are_created_and_deleted_in_one_epoch_each_with_its_own_result(client: Client, engine: FakeEngine) -> None:
    requests = [
        QueryRequest(SQL, id="a"),
        QueryRequest("SELECT prize"),
        QueryRequest(SQL, id="a"),
        QueryRequest(SQL, id="b"),
    ]
    first, unknown, duplicate, last = client.create_queries(requests)
    assert [getattr(item, "epoch", None) for item in (first, last)] == [12, 12]
    assert [getattr(item, "code", None) for item in (unknown, duplicate)] == ["UNKNOWN_COLUMN", "DUPLICATE_QUERY"]
    assert isinstance(unknown, MillstreamError)
    assert "    SELECT prize\n           ^^^^^" in unknown.render()
    deleted, missing = client.delete_queries(["b", "nope"])
    assert [getattr(deleted, "state", None), getattr(missing, "code", None)] == ["deleted", "UNKNOWN_QUERY"]


def test_the_owner_comes_from_the_header_unless_the_body_names_one(http: httpx.Client) -> None:
    headers = {OWNER_HEADER: "marketing"}
    assert http.post("/v1/queries", json={"sql": SQL}, headers=headers).json()["owner"] == "marketing"
    assert http.post("/v1/queries", json={"sql": SQL, "owner": "me"}, headers=headers).json()["owner"] == "me"


def test_pages_of_answers_resume_from_their_cursor(client: Client, engine: FakeEngine) -> None:
    client.create_query(SQL, id="q")
    engine.fire("q", 5)
    first = client.read("q", limit=3)
    rest = client.read("q", first.cursor)
    got = [*first.answers, *rest.answers]
    expected = [answer("q", number) for number in range(5)]
    assert [(a.window_start, a.window_end, a.partial, a.cursor) for a in got] == [
        (a.window_start, a.window_end, a.partial, a.cursor) for a in expected
    ]
    assert all(a.table.schema == b.table.schema for a, b in zip(got, expected, strict=True))
    assert repr(got[4].table.to_pylist()) == repr(expected[4].table.to_pylist())
    assert (client.read("q", rest.cursor).answers, rest.finished) == ((), False)


def test_answers_as_json(http: httpx.Client, engine: FakeEngine) -> None:
    http.post("/v1/queries", json={"sql": SQL, "id": "q"})
    engine.fire("q")
    assert http.get("/v1/queries/q/answers").json() == {
        "answers": [
            {
                "query": "q",
                "window_start": "2026-01-01T00:00:00Z",
                "window_end": "2026-01-01T00:00:04Z",
                "partial": True,
                "batch": None,
                "cursor": "c1",
                "total_rows": 2,
                "offset": 0,
                "incomplete": None,
                "rows": [
                    {"gem_pack": 1, "revenue": "10.50", "mean": "NaN"},
                    {"gem_pack": 2, "revenue": None, "mean": 1.5},
                ],
            }
        ],
        "cursor": "c1",
        "finished": False,
    }


def test_what_an_answer_lacks_and_a_damaged_one_reach_the_client(
    http: httpx.Client, client: Client, engine: FakeEngine
) -> None:
    client.create_query(SQL, id="q")
    engine.fire("q", 3)
    query = engine.known["q"]
    query.log[0] = replace(query.log[0], incomplete="buckets/x is missing")
    query.damaged = {1}
    page = client.read("q")
    assert [one.incomplete for one in page.answers] == ["buckets/x is missing"]
    with pytest.raises(DamagedFile) as raised:
        client.read("q", page.cursor)
    assert (raised.value.path, raised.value.reason) == ("answers/x.answers", "is altered")
    assert [one.cursor for one in client.read("q", raised.value.cursor).answers] == ["c3"]
    body = http.get("/v1/queries/q/answers", params={"cursor": page.cursor})
    assert body.status_code == 500
    assert body.json()["error"]["cursor"] == "c2"


@pytest.mark.parametrize("accept", ["application/json", ARROW_STREAM])
def test_a_large_answer_comes_in_pieces_and_resumes_between_them(
    http: httpx.Client, client: Client, engine: FakeEngine, accept: str
) -> None:
    client.create_query(SQL, id="q")
    engine.fire_pieces("q")
    found: list[tuple[int, int, int]] = []
    cursor = ""
    while True:
        if accept == ARROW_STREAM:
            page = client.read("q", cursor or None, limit=1)
            found += [(a.offset, a.table.num_rows, a.total_rows) for a in page.answers]
            answers, cursor = list(page.answers), page.cursor
        else:
            body = http.get("/v1/queries/q/answers", params={"limit": 1, "cursor": cursor}).json()
            found += [(a["offset"], len(a["rows"]), a["total_rows"]) for a in body["answers"]]
            answers, cursor = body["answers"], body["cursor"]
        if not answers:
            break
    assert found == [(0, 2, 5), (2, 2, 5), (4, 1, 5)]


def test_words_stand_for_cursors(client: Client, engine: FakeEngine) -> None:
    client.create_query(SQL, id="q")
    engine.fire("q", 3)
    assert [a.cursor for a in client.read("q", "newest").answers] == ["c3"]
    assert client.read("q", "end").answers == ()


def test_an_explanation_travels_whole(http: httpx.Client, client: Client, engine: FakeEngine) -> None:
    client.create_query(SQL, id="q")
    assert client.explain("q") == engine.explain("q")
    body = http.get("/v1/queries/q/explain").json()
    assert [source["shared_queries"] for source in body["sources"]] == [0, 7]
    assert (body["join"]["rows"], body["join"]["left"], body["next_window"][0]) == (3420, 0, "2026-01-01T00:00:00Z")


def test_arrow_is_asked_for_by_the_accept_header(http: httpx.Client, engine: FakeEngine) -> None:
    http.post("/v1/queries", json={"sql": SQL, "id": "q"})
    engine.fire("q")
    response = http.get("/v1/queries/q/answers", headers={"Accept": ARROW_STREAM})
    assert response.headers["content-type"] == ARROW_STREAM
    assert response.headers["x-millstream-cursor"] == "c1"


def test_following_ends_when_the_query_is_deleted_and_read(client: Client, engine: FakeEngine) -> None:
    client.create_query(SQL, id="q")
    threading.Timer(0.1, engine.fire, ("q", 2)).start()
    threading.Timer(0.3, engine.delete_queries, (["q"],)).start()
    assert [a.cursor for a in client.answers("q")] == ["c1", "c2"]


def test_waiting_readers_do_not_hold_up_others(client: Client, server: Server, engine: FakeEngine) -> None:
    client.create_query(SQL, id="q")
    readers = [threading.Thread(target=_wait_for_answer, args=(server.url,)) for _ in range(60)]
    for reader in readers:
        reader.start()
    time.sleep(0.2)
    assert client.health()["status"] == "ok"
    assert client.create_query(SQL, id="r").id == "r"
    engine.fire("q")
    for reader in readers:
        reader.join(10)
        assert not reader.is_alive()


def _wait_for_answer(url: str) -> None:
    with Client(url) as client:
        assert client.read("q", wait=20).answers


def test_a_server_that_stops_sends_waiting_readers_home(engine: FakeEngine, home: Path) -> None:
    engine.create_queries([QueryRequest(SQL, id="q")])
    pages = []
    with Server(engine) as server, Client(server.url) as client:
        reader = threading.Thread(target=lambda: pages.append(client.read("q", wait=25)))
        reader.start()
        time.sleep(0.2)
        server.stop()
        reader.join(5)
    assert [page.answers for page in pages] == [()]


@pytest.mark.parametrize(
    ("method", "path", "options", "status", "code", "says"),
    [
        ("GET", "/v1/queries/nope", {}, 404, "UNKNOWN_QUERY", "nope"),
        ("GET", "/v1/streams/nope", {}, 404, "UNKNOWN_STREAM", "nope"),
        ("GET", "/v1/queries/nope/answers", {}, 404, "UNKNOWN_QUERY", "nope"),
        ("GET", "/v1/queries/nope/explain", {}, 404, "UNKNOWN_QUERY", "nope"),
        ("GET", "/v1/nothing", {}, 404, "BAD_REQUEST", "/v1/nothing"),
        ("PUT", "/v1/queries", {}, 405, "BAD_REQUEST", "PUT"),
        ("POST", "/v1/queries", {"json": {}}, 400, "BAD_REQUEST", "sql"),
        ("POST", "/v1/queries", {"json": {"sql": ""}}, 400, "BAD_REQUEST", "sql"),
        ("POST", "/v1/queries", {"json": {"sql": SQL, "window": 3}}, 400, "BAD_REQUEST", "window"),
        ("POST", "/v1/queries", {"json": [{"sql": SQL}, {"sql": 7}]}, 400, "BAD_REQUEST", "1.sql"),
        ("POST", "/v1/queries", {"content": "{not json"}, 400, "BAD_REQUEST", "body"),
        ("POST", "/v1/queries", {"json": {"sql": "SELECT prize"}}, 400, "UNKNOWN_COLUMN", "prize"),
        ("POST", "/v1/queries", {"json": {"sql": "boom"}}, 500, "INTERNAL", "boom"),
        ("DELETE", "/v1/queries", {}, 400, "BAD_REQUEST", "id"),
        ("GET", "/v1/queries/q/answers?limit=0", {}, 400, "BAD_REQUEST", "limit"),
        ("GET", "/v1/queries/q/answers?wait=forever", {}, 400, "BAD_REQUEST", "wait"),
        ("GET", "/v1/queries/q/answers?cursor=x", {}, 400, "BAD_CURSOR", "x"),
        ("GET", "/v1/health", {"headers": {"Host": "evil.example:80"}}, 400, "BAD_REQUEST", "Host"),
    ],
)
def test_every_mistake_has_the_one_error_shape(
    http: httpx.Client, method: str, path: str, options: dict[str, object], status: int, code: str, says: str
) -> None:
    http.post("/v1/queries", json={"sql": SQL, "id": "q"})
    response = http.request(method, path, **options)  # type: ignore[arg-type]
    assert response.status_code == status
    assert set(response.json()) == {"error"}
    error = response.json()["error"]
    assert error["code"] == code
    assert says in error["message"]


def test_every_error_code_has_a_status_of_a_failed_request() -> None:
    assert all(http_status(MillstreamError(code, "x")) in (400, 404, 409, 500, 503) for code in CODES)


def test_a_position_travels(http: httpx.Client) -> None:
    error = http.post("/v1/queries", json={"sql": "SELECT prize FROM purchases"}).json()["error"]
    assert error["position"] == {"line": 1, "column": 8, "start": 7, "stop": 12}
    assert error["hint"] == "did you mean price?"


def test_statuses_survive_json(engine: FakeEngine) -> None:
    assert to_json(engine.status())["streams"][0]["watermark"] == "2026-01-01T00:00:00Z"
