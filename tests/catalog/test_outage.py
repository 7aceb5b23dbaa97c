"""The database goes away and comes back: transactions wait, and every one of them happens once.

The network between metastore and server is a proxy that breaks connections at chosen messages.
"""

from __future__ import annotations

import resource
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine, select, text
from tests.catalog.builders import (
    SECOND,
    STREAM,
    Clock,
    answer_file,
    bucket,
    bucket_file,
    create,
    plan,
    run,
    stream,
    version,
)
from tests.support import proxy as network
from tests.support.postgres import Server
from tests.support.proxy import Proxy, proxied

from millstream.catalog import database, outage, tables
from millstream.catalog.metastore import Change, Fire, Metastore
from millstream.catalog.outage import waiting
from millstream.errors import EngineError
from millstream.model.plan import FireResult
from millstream.model.statistics import Figures


@pytest.fixture
def line(postgres: Server) -> Iterator[Proxy]:
    with proxied(postgres.port) as proxy:
        yield proxy


@pytest.fixture
def direct(postgres: Server) -> str:
    """The database without the proxy."""
    return postgres.empty_database()


@pytest.fixture
def remote(postgres: Server, line: Proxy, direct: str) -> Iterator[Metastore]:
    """A metastore at the other end of the line, with one stream."""
    store = opened(postgres, line, direct)
    store.add_stream(stream())
    yield store
    store.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses are short, so that many outages make a short test."""
    monkeypatch.setattr(outage, "FIRST_PAUSE", 0.002)


def opened(server: Server, line: Proxy, direct: str, limit: float = 60.0) -> Metastore:
    url = direct.replace(f":{server.port}/", f":{line.port}/")
    return Metastore.open(url, holder="test", clock=Clock(), limit=limit)


def await_outage(store: Metastore) -> None:
    while store.outage.reason is None:
        time.sleep(0.005)


@contextmanager
def in_background(work: Callable[[], Any]) -> Iterator[Future[Any]]:
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(work)


def contents(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of the metastore."""
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        found = {
            name: sorted(map(tuple, connection.execute(select(table))), key=repr)
            for name, table in tables.metadata.tables.items()
        }
    return found


def history(store: Metastore) -> None:
    """Something of everything that writes."""
    store.add_stream(stream("ads"))
    store.seal(Change(creates=create("q1", "q2").creates, versions=(version(1),)))
    run(store, 0, max_time=10, files=(bucket_file("b0", 0, bucket(0)),), rejects=("dead/0",))
    run(store, 1, max_time=20, files=(bucket_file("b1", 1, bucket(0)),), rows_by_query={"q1": 7})
    store.seal(Change(deletes=("q2",), versions=(version(2),)))
    published = FireResult((answer_file("a1"),), windows_by_query={"q1": 1}, rows_by_query={"q1": 3})
    moves = {query.id: (query.fired_to, 18 * SECOND) for query in store.queries() if query.fired_to is not None}
    store.commit_fire(Fire(STREAM, moves, published))
    store.drop_files(["b0", "b1"])
    store.save_cursor("c", "1")
    store.save_cursor("c", "2")
    store.save_figures(STREAM, Figures())
    store.advance_idle("ads", 5 * SECOND)
    store.set_failed("q1", "a reason")
    assert store.expire_versions(STREAM) == ["groups/purchases-g1-1"]
    store.flush_stream("ads")


# Every nth message breaks its connection; n is above the messages of any transaction, so that each gets through.
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("fate", [network.BEFORE, network.AFTER])
@pytest.mark.parametrize(("first", "step"), [(0, 17), (5, 19), (9, 23), (1, 29)])
def test_a_history_with_broken_connections_is_that_without(
    postgres: Server, line: Proxy, direct: str, fate: str, first: int, step: int
) -> None:
    store = opened(postgres, line, direct)
    store.add_stream(stream())
    history(store)
    store.close()
    undisturbed = contents(direct)

    assert postgres.empty_database() == direct
    store = opened(postgres, line, direct)
    store.add_stream(stream())
    messages = threading.Lock(), [0, 0]

    def broken(data: bytes) -> str:
        with messages[0]:
            # What opens a connection gets through: a line that breaks each time would never let anything through.
            if data[:1] not in (b"Q", b"P") or b"SET " in data or b"SHOW " in data or data[5:7] == b";\0":
                return network.PASS
            messages[1][0] += 1
            hit = messages[1][0] % step == first
            messages[1][1] += hit
        return fate if hit else network.PASS

    line.fate = broken
    history(store)
    line.fate = lambda data: network.PASS
    store.close()
    assert messages[1][1] > 2, "the connection was never broken"
    assert contents(direct) == undisturbed


def once_at_commit(line: Proxy, fate: str) -> None:
    """The next commit meets this fate, later ones do not."""

    def broken(data: bytes) -> str:
        if b"COMMIT\0" not in data:
            return network.PASS
        line.fate = lambda data: network.PASS
        return fate

    line.fate = broken


@pytest.mark.parametrize("fate", [network.BEFORE, network.AFTER, network.MEANWHILE])
def test_a_commit_without_an_answer_happens_once(remote: Metastore, line: Proxy, fate: str) -> None:
    once_at_commit(line, fate)
    assert remote.seal(create("q")).number == 1
    assert remote.current_epoch() == 1
    assert remote.seal(create("q2")).number == 2, "the count of transactions goes on"


def test_a_commit_that_the_server_is_busy_with_is_waited_for(remote: Metastore, line: Proxy, direct: str) -> None:
    """The server takes a second to commit; the connection breaks meanwhile. Who looks at once does not see it."""
    slow = (
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1); RETURN NULL; END $$",
        "CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON millstream_engine DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION wait()",
    )
    administer(direct, *slow)
    try:
        once_at_commit(line, network.MEANWHILE)
        assert remote.seal(create("q")).number == 1
        assert remote.current_epoch() == 1
    finally:
        administer(direct, "DROP TRIGGER slow ON millstream_engine", "DROP FUNCTION wait")


def administer(url: str, *statements: str) -> None:
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


def test_a_client_that_vanishes_leaves_no_lock(
    postgres: Server, line: Proxy, direct: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server does not learn that the client is gone, in the middle of a transaction that holds the head."""
    short = {"idle_in_transaction_session_timeout": "700ms", "lock_timeout": "200ms"}
    monkeypatch.setattr(database, "SERVER_TIMEOUTS", database.SERVER_TIMEOUTS | short)
    store = opened(postgres, line, direct)
    store.add_stream(stream())
    once_at_commit(line, network.SILENTLY)
    assert store.seal(create("q")).number == 1
    assert [query.id for query in store.queries()] == ["q"]
    store.close()


def test_reads_and_writes_wait_for_the_line(remote: Metastore, line: Proxy) -> None:
    for work in (lambda: remote.seal(create("q")).number, lambda: len(remote.queries())):
        line.cut()
        with in_background(work) as waiting_work:
            await_outage(remote)
            line.restore()
        assert waiting_work.result() == 1
        assert remote.outage.reason is None


def test_a_server_that_crashes_and_comes_back_has_all_that_was_acknowledged(postgres: Server, direct: str) -> None:
    store = Metastore.open(direct, holder="test")
    store.add_stream(stream())
    store.seal(create("q1"))
    postgres.crash()
    try:
        with in_background(lambda: store.seal(create("q2"))) as sealing:
            await_outage(store)
            postgres.start()
    except BaseException:
        postgres.start()
        raise
    assert sealing.result().number == 2
    assert [query.id for query in store.queries()] == ["q1", "q2"]
    store.close()


def test_users_are_told_when_the_limit_is_over(postgres: Server, line: Proxy, direct: str) -> None:
    store = opened(postgres, line, direct, limit=0.3)
    store.add_stream(stream())
    line.cut()
    for work in (lambda: store.seal(create("q")), lambda: store.queries()):
        with pytest.raises(EngineError, match="does not answer") as error:
            work()
        assert error.value.code == "METASTORE_AWAY"
        assert error.value.detail
    line.restore()
    assert store.queries() == []
    assert store.seal(create("q")).number == 1
    store.close()


def test_streams_wait_beyond_the_limit(postgres: Server, line: Proxy, direct: str) -> None:
    store = opened(postgres, line, direct, limit=0.01)
    store.add_stream(stream())
    line.cut()

    def work() -> int:
        with waiting(None):
            return plan(store, 0).batch

    with in_background(work) as planning:
        await_outage(store)
        for _ in range(3):
            with pytest.raises(EngineError):
                store.streams()
        assert not planning.done()
        line.restore()
    assert planning.result() == 0
    store.close()


def test_a_user_does_not_wait_for_a_writer_that_waits(postgres: Server, line: Proxy, direct: str) -> None:
    """A stream finds out about its commit and holds the writers' lock; a create ends at its limit all the same."""
    store = opened(postgres, line, direct, limit=0.3)
    store.add_stream(stream())

    def broken(data: bytes) -> str:
        if b"COMMIT\0" in data:
            threading.Thread(target=line.cut).start()
            return network.AFTER
        return network.PASS

    line.fate = broken

    def work() -> int:
        with waiting(None):
            return plan(store, 0).batch

    with in_background(work) as planning:
        await_outage(store)
        with pytest.raises(EngineError) as error:
            store.seal(create("q"))
        assert error.value.code == "METASTORE_AWAY"
        line.fate = lambda data: network.PASS
        line.restore()
    assert planning.result() == 0
    assert store.streams()[0].planned == 0
    store.close()


def test_an_engine_that_stops_waits_no_longer(remote: Metastore, line: Proxy) -> None:
    line.cut()

    def work() -> None:
        with waiting(None):
            remote.seal(create("q"))

    with in_background(work) as sealing:
        await_outage(remote)
        remote.stop_waiting()
    with pytest.raises(EngineError) as error:
        sealing.result()
    assert error.value.code == "METASTORE_AWAY"


def test_an_engine_that_stops_in_doubt_says_so(remote: Metastore, line: Proxy, direct: str) -> None:
    """The commit has happened, its answer is lost, and the line stays cut."""

    def broken(data: bytes) -> str:
        if b"COMMIT\0" in data:
            threading.Thread(target=line.cut).start()
            return network.AFTER
        return network.PASS

    line.fate = broken
    with in_background(lambda: remote.seal(create("q"))) as sealing:
        await_outage(remote)
        remote.stop_waiting()
    with pytest.raises(EngineError, match="is not known") as error:
        sealing.result()
    assert error.value.code == "METASTORE_AWAY"
    next_engine = Metastore.open(direct, holder="next")
    assert [query.id for query in next_engine.queries()] == ["q"]
    next_engine.close()


@pytest.mark.parametrize("change", ["writes = writes - 1", "incarnation = incarnation - 1"])
def test_a_database_that_went_back_in_time_is_found_out(store: Metastore, url: str, change: str) -> None:
    """As after a failover to a standby that had not received the last transactions."""
    store.seal(create("q"))
    administer(url, f"UPDATE millstream_engine SET {change}")
    for work in (lambda: store.seal(create("q2")), lambda: store.queries()):
        with pytest.raises(EngineError, match="lost transactions") as error:
            work()
        assert error.value.code == "METASTORE_STALE"
    # Whoever opens it now goes on from there.
    again = Metastore.open(url, holder="next")
    assert again.seal(create("q3")).number == 2
    again.close()


def test_a_server_that_is_not_there_is_named_at_once(line: Proxy) -> None:
    line.cut()
    with pytest.raises(EngineError, match="cannot reach the metastore") as error:
        Metastore.open(f"postgresql://me:secret@127.0.0.1:{line.port}/db", holder="a")
    assert error.value.code == "METASTORE_AWAY"
    assert "secret" not in error.value.render()


def test_a_mistake_of_ours_is_not_waited_out(store: Metastore, url: str) -> None:
    administer(url, "DROP TABLE millstream_cursors")
    with pytest.raises(Exception, match="millstream_cursors"):
        store.save_cursor("c", "1")


def test_seconds_without_the_server(remote: Metastore, line: Proxy) -> None:
    """Streams, a user and readers, all at once. The whole engine survives half a minute in
    ``tests/engine/test_metastore_away.py``."""
    remote.seal(create("q"))
    line.cut()
    threading.Timer(5, line.restore).start()

    def batches() -> list[int | None]:
        with waiting(None):
            return [run(remote, batch, max_time=10 * (batch + 1)) for batch in range(3)]

    with ThreadPoolExecutor(3) as pool:
        work = [pool.submit(batches), pool.submit(lambda: remote.seal(create("q2"))), pool.submit(remote.queries)]
    assert work[0].result() == [8 * SECOND, 18 * SECOND, 28 * SECOND]
    assert work[1].result().number == 2
    assert "q" in [query.id for query in work[2].result()]
    assert (remote.streams()[0].batches, remote.streams()[0].rows) == (3, 300)


# SQLite


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    return tmp_path / "metastore.db"


def test_a_file_that_another_program_holds_is_waited_for(file: Path) -> None:
    store = Metastore.open(f"sqlite:///{file}", holder="test")
    store.add_stream(stream())
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with in_background(lambda: store.seal(create("q"))) as sealing:
        await_outage(store)
        assert "locked" in (store.outage.reason or "")
        assert store.streams(), "reading goes on"
        other.execute("ROLLBACK")
    assert sealing.result().number == 1
    store.close()
    other.close()


def test_a_file_that_stays_locked_is_an_error(file: Path) -> None:
    store = Metastore.open(f"sqlite:///{file}", holder="test", limit=0.1)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(EngineError) as error:
        store.add_stream(stream())
    assert (error.value.code, error.value.detail) == ("METASTORE_AWAY", "database is locked")
    other.execute("ROLLBACK")
    store.add_stream(stream())
    store.close()
    other.close()


def test_a_disk_that_fails_is_waited_for(file: Path) -> None:
    """Files of this process may not grow for a while: writes fail as they do on a bad disk."""
    store = Metastore.open(f"sqlite:///{file}", holder="test")
    store.add_stream(stream())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    grown = file.with_name("metastore.db-wal").stat().st_size
    with in_background(lambda: [store.seal(create(f"q{n}")).number for n in range(3)]) as sealing:
        resource.setrlimit(resource.RLIMIT_FSIZE, (grown, before[1]))
        try:
            await_outage(store)
            reason = store.outage.reason
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert reason is not None
    assert "disk" in reason
    assert sealing.result() == [1, 2, 3]
    assert [query.id for query in store.queries()] == ["q0", "q1", "q2"]
    store.close()
