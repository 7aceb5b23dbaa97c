"""The database under the metastore: how it is opened, and the two kinds of transaction, each behind the fence.

Everything that SQLite and PostgreSQL do differently is in this module.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import URL, Connection, Engine, Row, create_engine, event, insert, inspect, make_url, select, update
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, ProgrammingError

from millstream.catalog import tables as t
from millstream.errors import EngineError, MillstreamError, SpecError

# Another process holds SQLite's write lock only for one transaction; a wait this long means that something is wrong.
BUSY_SECONDS = 10
# One connection for each thread that may ask at once: streams, fires, readers, and the server's forty.
POOL_SIZE = 16
POOL_OVERFLOW = 48

_WRITE = "millstream_write"
_HEAD = select(t.engine.c.incarnation, t.engine.c.holder, t.engine.c.epoch, t.engine.c.answer_seq)
_LOCK_HEAD = _HEAD.with_for_update()  # SQLite has no such lock and needs none: its write transactions are exclusive


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
    """A metastore database taken over by one engine. Safe to use from several threads."""

    def __init__(self, engine: Engine, incarnation: int, clock: Callable[[], int]) -> None:
        self.incarnation = incarnation
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
        with self._reading.begin() as connection:
            yield self._admit(connection, connection.execute(_HEAD).one())

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """A transaction that excludes other writers; any exception leaves no effect."""
        self._check_open()
        try:
            with self._lock, self._writing.begin() as connection:
                yield self._admit(connection, connection.execute(_LOCK_HEAD).one())
        except IntegrityError as error:
            raise EngineError("INTERNAL", "the metastore holds that row already", detail=str(error.orig)) from error

    def damage(self) -> list[str]:
        """What the database finds wrong with itself; PostgreSQL has tools of its own for that."""
        if self._pool.dialect.name != "sqlite":
            return []
        with self._reading.begin() as connection:
            found = list(connection.exec_driver_sql("PRAGMA quick_check").scalars())
        return [] if found == ["ok"] else found

    def close(self) -> None:
        self._closed = True
        self._pool.dispose()

    def _check_open(self) -> None:
        if self._closed:
            raise EngineError("NOT_RUNNING", "the metastore is closed", hint="open the engine again")

    def _admit(self, connection: Connection, head: Row[int, str, int, int]) -> Transaction:
        if head.incarnation != self.incarnation:
            raise EngineError(
                "FENCED",
                f"another engine ({head.holder}) has taken over this metastore",
                detail=f"this engine is incarnation {self.incarnation}, the metastore belongs to {head.incarnation}",
                hint="stop this engine",
            )
        return Transaction(connection, self._clock(), head.epoch, head.answer_seq)


def take_over(url: str, holder: str, clock: Callable[[], int]) -> Database:
    """Open the database, create what is missing, and fence off whoever had it before."""
    location = _location(url)
    try:
        engine = _create_engine(location)
        try:
            incarnation = _install(engine, holder, clock())
        except (IntegrityError, ProgrammingError):
            # Another engine created the tables at the same moment; they are there now.
            incarnation = _install(engine, holder, clock())
    except ModuleNotFoundError as error:
        raise EngineError(
            "BAD_SESSION",
            f"the driver for {location.drivername} is not installed",
            detail=str(error),
            hint="pip install 'millstream[postgres]'",
        ) from error
    except DBAPIError as error:
        raise _open_error(location, error) from error
    return Database(engine, incarnation, clock)


def look_into(url: str, clock: Callable[[], int]) -> Database:
    """Open the database as it is, to read only; whoever has it keeps it."""
    location = _location(url)
    try:
        engine = _create_engine(location)
        with engine.begin() as connection:
            _check_version(connection)
            return Database(engine, connection.execute(select(t.engine.c.incarnation)).scalar_one(), clock)
    except DBAPIError as error:
        raise _open_error(location, error) from error


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
    return create_engine(
        location,
        pool_size=POOL_SIZE,
        max_overflow=POOL_OVERFLOW,
        pool_pre_ping=True,
        isolation_level="READ COMMITTED",
    )


def _reading(engine: Engine) -> Engine:
    if engine.dialect.name == "sqlite":
        return engine
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # transactions begin in _begin_sqlite, not when the driver sees fit
    for pragma in ("journal_mode=WAL", "synchronous=FULL", f"busy_timeout={BUSY_SECONDS * 1000}"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    # A write that begins as a read can fail half-way when another process writes in between.
    writes = connection.get_execution_options().get(_WRITE, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _install(engine: Engine, holder: str, now: int) -> int:
    """Create the tables if need be and raise the incarnation by one."""
    with engine.execution_options(**{_WRITE: True}).begin() as connection:
        if inspect(connection).has_table(t.engine.name):
            _check_version(connection)
        t.metadata.create_all(connection)
        incarnation: int | None = connection.execute(select(t.engine.c.incarnation).with_for_update()).scalar()
        if incarnation is None:
            head = {"id": 1, "schema_version": t.SCHEMA_VERSION, "epoch": 0, "answer_seq": 0}
            connection.execute(insert(t.engine).values(incarnation=1, holder=holder, opened_at=now, **head))
            return 1
        # Tables that an earlier version did not have were created above; from now on it must not open this metastore.
        head = {"schema_version": t.SCHEMA_VERSION, "incarnation": incarnation + 1}
        connection.execute(update(t.engine).values(holder=holder, opened_at=now, **head))
        return incarnation + 1


def _check_version(connection: Connection) -> None:
    version = connection.execute(select(t.engine.c.schema_version)).scalar()
    if version is not None and version > t.SCHEMA_VERSION:
        raise EngineError(
            "BAD_FILE",
            f"the metastore has schema version {version}, written by a newer Millstream",
            detail=f"this one reads versions up to {t.SCHEMA_VERSION}",
            hint="start it with the newer Millstream, or choose another home",
        )


def _open_error(location: URL, error: DBAPIError) -> MillstreamError:
    where = location.render_as_string(hide_password=True)
    reason = str(error.orig).strip()
    if "database is locked" in reason:
        return EngineError("HOME_IN_USE", f"another process holds the metastore {where}", detail=reason)
    return EngineError("BAD_FILE", f"cannot open the metastore {where}", detail=reason)
