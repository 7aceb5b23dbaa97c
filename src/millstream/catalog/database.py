"""The database under the metastore: how it is opened, and the two kinds of transaction, each behind the fence.

Everything that SQLite and PostgreSQL do differently is in this module.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import URL, Connection, Engine, Row, create_engine, event, insert, make_url, select, update
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, ProgrammingError

from millstream.catalog import tables as t
from millstream.catalog.migrations import check_current, migrate
from millstream.catalog.outage import (
    DEFAULT_LIMIT,
    LONGEST_PAUSE,
    Away,
    Outage,
    away,
    is_outage,
    outages_named,
    unknown,
)
from millstream.crashpoints import crash_point
from millstream.errors import EngineError, MillstreamError, SpecError

# Another process holds SQLite's write lock only for one transaction; a wait this long means that something is wrong.
BUSY_SECONDS = 10
# One connection for each thread that may ask at once: streams, fires, readers, and the server's forty.
POOL_SIZE = 16
POOL_OVERFLOW = 48

# A network that swallows packets is noticed after about 20 s, on both ends: the client waits for nothing longer, and
# the server gives back the locks of a client that is gone.
CLIENT_TIMEOUTS = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
SERVER_TIMEOUTS = {
    "idle_in_transaction_session_timeout": "20s",
    "lock_timeout": "10s",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "20000",
}

_WRITE = "millstream_write"
_COLUMNS = (t.engine.c.incarnation, t.engine.c.holder, t.engine.c.epoch, t.engine.c.answer_seq, t.engine.c.writes)
_HEAD = select(*_COLUMNS)
_LOCK_HEAD = _HEAD.with_for_update()  # SQLite has no such lock and needs none: its write transactions are exclusive
# Locks the head and counts the transaction, in one statement.
_NEXT_WRITE = update(t.engine).values(writes=t.engine.c.writes + 1).returning(*_COLUMNS)

Head = Row[int, str, int, int, int]


@dataclass(slots=True)
class Transaction:
    """An open transaction that has passed the fence; ``now`` is its one time stamp."""

    connection: Connection
    now: int
    epoch: int
    answer_seq: int

    def take_seqs(self, count: int) -> range:
        """The next answer numbers. They are published in this order, since writers follow one another."""
        first = self.answer_seq + 1
        self.answer_seq += count
        self.connection.execute(update(t.engine).values(answer_seq=self.answer_seq))
        return range(first, first + count)


class Database:
    """A metastore database taken over by one engine. Safe to use from several threads.

    Writing transactions of an incarnation are numbered without gaps. So when the connection breaks during a commit, the
    number in the head says whether it happened; and a database that was replaced by an older copy is found out.
    """

    def __init__(self, engine: Engine, head: Head, clock: Callable[[], int], limit: float = DEFAULT_LIMIT) -> None:
        self.incarnation: int = head.incarnation
        self.outage = Outage(limit)
        self._writes = head.writes
        self._clock = clock
        self._pool = engine
        self._reading = _reading(engine)
        self._writing = engine.execution_options(**{_WRITE: True})
        # SQLite makes rival writers sleep and poll; a lock of our own hands over at once.
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """A read-only transaction over one consistent state."""
        self._check_open()
        known = self._writes
        with outages_named(), self._reading.begin() as connection:
            yield self._admit(connection, connection.execute(_HEAD).one(), known)

    @contextmanager
    def write(self, name: str) -> Iterator[Transaction]:
        """A transaction that excludes other writers; any exception leaves no effect. Its crash points go by its
        name."""
        self._check_open()
        try:
            with self._turn(), outages_named(), self._writing.connect() as connection, connection.begin() as begun:
                head = connection.execute(_NEXT_WRITE).one()
                yield self._admit(connection, head, self._writes + 1)
                crash_point(f"{name}.before-commit")
                self._commit(connection, begun, head.writes)
            crash_point(f"{name}.after-commit")
        except IntegrityError as error:
            raise EngineError("INTERNAL", "the metastore holds that row already", detail=str(error.orig)) from error

    def damage(self) -> list[str]:
        """What the database finds wrong with itself; PostgreSQL has tools of its own for that."""
        if self._pool.dialect.name != "sqlite":
            return []
        with self.read() as tx:
            found = list(tx.connection.exec_driver_sql("PRAGMA quick_check").scalars())
        return [] if found == ["ok"] else found

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """The writers' lock. Who holds it may be finding out about a commit; others wait for that as for the database
        itself."""
        patience, since = self.outage.patience(), time.monotonic()
        while not self._lock.acquire(timeout=LONGEST_PAUSE):
            reason = self.outage.reason
            if patience is not None and reason is not None and time.monotonic() - since > patience:
                raise away(reason)
        try:
            yield
        finally:
            self._lock.release()

    def _commit(self, connection: Connection, begun: Any, number: int) -> None:
        """Commit; where the connection breaks meanwhile, find out whether it happened."""
        try:
            begun.commit()
        except DBAPIError as error:
            if not is_outage(error):
                raise
            connection.invalidate()
            if self._found_out() != number:
                raise away(error) from error
        self._writes = number

    def _found_out(self) -> int:
        """No limit here, whoever waits: what is in memory goes on from the one state or the other."""
        try:
            return self.outage.repeat(self._written, None)
        except Away as error:
            raise unknown(error.detail) from error

    def _written(self) -> int:
        """The number of the last transaction that was committed. Takes the lock, so one that the server is still busy
        with has ended before."""
        with outages_named(), self._writing.begin() as connection:
            head = connection.execute(_LOCK_HEAD).one()
            self._admit(connection, head, self._writes)
        writes: int = head.writes
        return writes

    def close(self) -> None:
        self._closed = True
        self.outage.end()
        self._pool.dispose()

    def _check_open(self) -> None:
        if self._closed:
            raise EngineError("NOT_RUNNING", "the metastore is closed", hint="open the engine again")

    def _admit(self, connection: Connection, head: Head, least: int) -> Transaction:
        if head.incarnation > self.incarnation:
            raise EngineError(
                "FENCED",
                f"another engine ({head.holder}) has taken over this metastore",
                detail=f"this engine is incarnation {self.incarnation}, the metastore belongs to {head.incarnation}",
                hint="stop this engine",
            )
        if (head.incarnation, head.writes) < (self.incarnation, least):
            raise EngineError(
                "METASTORE_STALE",
                "the database of the metastore has lost transactions that it had committed",
                detail=f"it is at {head.incarnation}.{head.writes}, this engine at {self.incarnation}.{least}",
                hint="stop this engine; bring back the newer database, or restore a backup of the whole home",
            )
        return Transaction(connection, self._clock(), head.epoch, head.answer_seq)


def take_over(url: str, holder: str, clock: Callable[[], int], limit: float = DEFAULT_LIMIT) -> Database:
    """Open the database, create what is missing, and fence off whoever had it before."""
    location = _location(url)
    try:
        engine = _create_engine(location)
        try:
            head = _install(engine, holder, clock())
        except (IntegrityError, ProgrammingError):
            # Another engine created the tables at the same moment; they are there now.
            head = _install(engine, holder, clock())
    except ModuleNotFoundError as error:
        raise EngineError(
            "BAD_SESSION",
            f"the driver for {location.drivername} is not installed",
            detail=str(error),
            hint="pip install 'millstream[postgres]'",
        ) from error
    except DBAPIError as error:
        raise open_error(location, error) from error
    crash_point("open.after-commit")
    return Database(engine, head, clock, limit)


def reader(url: str) -> Engine:
    """For transactions that read one consistent state, outside the fence."""
    return _reading(_create_engine(_location(url)))


def writer(url: str) -> Engine:
    """For writing transactions on a database that no engine has."""
    return _create_engine(_location(url)).execution_options(**{_WRITE: True})


def look_into(url: str, clock: Callable[[], int]) -> Database:
    """Open the database as it is, to read only; whoever has it keeps it."""
    location = _location(url)
    engine = _create_engine(location)
    try:
        with _reading(engine).begin() as connection:
            check_current(connection, location)
            return Database(engine, connection.execute(_HEAD).one(), clock)
    except DBAPIError as error:
        raise open_error(location, error) from error


def _location(url: str) -> URL:
    try:
        location = make_url(url)
    except ArgumentError as error:
        raise SpecError(
            "BAD_SPEC", f"{url!r} is not a database URL", hint="sqlite:///path or postgresql://…"
        ) from error
    backend = "postgresql" if location.drivername == "postgres" else location.get_backend_name()
    if backend == "postgresql":
        return location.set(drivername="postgresql+psycopg")
    if backend != "sqlite" or location.database in (None, "", ":memory:"):
        raise SpecError(
            "BAD_SPEC",
            f"the metastore cannot live in {location.render_as_string()!r}",
            hint="use a file, sqlite:///path, or a PostgreSQL database, postgresql://…",
        )
    return location.set(drivername="sqlite+pysqlite")


def _create_engine(location: URL) -> Engine:
    if location.get_backend_name() == "sqlite":
        engine = create_engine(location, pool_size=POOL_SIZE, max_overflow=POOL_OVERFLOW)
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    # The lock on the head row orders the writers; each statement must see what the writer before has committed.
    engine = create_engine(
        location,
        pool_size=POOL_SIZE,
        max_overflow=POOL_OVERFLOW,
        pool_pre_ping=True,
        isolation_level="READ COMMITTED",
        connect_args={name: value for name, value in CLIENT_TIMEOUTS.items() if name not in location.query},
    )
    event.listen(engine, "connect", _prepare_postgres)
    return engine


def _reading(engine: Engine) -> Engine:
    if engine.dialect.name == "sqlite":
        return engine
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # transactions begin in _begin_sqlite, not when the driver sees fit
    for pragma in ("journal_mode=WAL", "synchronous=FULL", f"busy_timeout={BUSY_SECONDS * 1000}"):
        connection.execute(f"PRAGMA {pragma}")


def _prepare_postgres(connection: Any, _record: object) -> None:
    settings = [f"SET {name} = '{value}'" for name, value in SERVER_TIMEOUTS.items()]
    connection.autocommit = True
    try:
        with connection.cursor() as cursor:
            cursor.execute("; ".join(settings))
            cursor.execute("SHOW synchronous_commit")
            # What is acknowledged must be on disk, whatever the server does by default.
            if cursor.fetchone() == ("off",):
                cursor.execute("SET synchronous_commit = on")
    finally:
        connection.autocommit = False


def _begin_sqlite(connection: Connection) -> None:
    # A write that begins as a read can fail half-way when another process writes in between.
    writes = connection.get_execution_options().get(_WRITE, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _install(engine: Engine, holder: str, now: int) -> Head:
    """Bring the tables up to date, create those that are missing, and raise the incarnation by one."""
    writing = engine.execution_options(**{_WRITE: True})
    migrate(writing)
    with writing.begin() as connection:
        t.metadata.create_all(connection)
        if connection.execute(_LOCK_HEAD).one_or_none() is None:
            first = {"id": 1, "schema_version": t.SCHEMA_VERSION, "epoch": 0, "answer_seq": 0, "writes": 0}
            connection.execute(insert(t.engine).values(incarnation=0, holder=holder, opened_at=now, **first))
        taken = {"incarnation": t.engine.c.incarnation + 1, "holder": holder, "opened_at": now}
        head = connection.execute(update(t.engine).values(**taken).returning(*_COLUMNS)).one()
        crash_point("open.before-commit")
        return head


def open_error(location: URL, error: DBAPIError) -> MillstreamError:
    """What to tell who wanted to open a database."""
    where = location.render_as_string(hide_password=True)
    reason = str(error.orig).strip()
    if "database is locked" in reason:
        return EngineError("HOME_IN_USE", f"another process holds the metastore {where}", detail=reason)
    if location.get_backend_name() == "postgresql" and is_outage(error):
        hint = "check that the server runs, and host, port, database and user in metastore_url"
        return EngineError("METASTORE_AWAY", f"cannot reach the metastore {where}", detail=reason, hint=hint)
    return EngineError("BAD_FILE", f"cannot open the metastore {where}", detail=reason)
