"""Copying a metastore, of one consistent moment, into an empty database of either kind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine, insert, inspect, make_url, select
from sqlalchemy.exc import DBAPIError

from millstream.catalog import tables as t
from millstream.catalog.database import Transaction, open_error, reader, writer
from millstream.catalog.files import referenced_files
from millstream.catalog.migrations import check_current
from millstream.crashpoints import crash_point
from millstream.errors import EngineError

# Rows read and written at a time: some megabytes of definitions.
CHUNK = 1000


@dataclass(frozen=True, slots=True)
class Progress:
    """The last micro-batches of a stream that were planned and committed."""

    planned: int
    committed: int


@dataclass(frozen=True, slots=True)
class Copied:
    """What the copy names: files, relative to the home, and how far each stream is."""

    files: frozenset[str]
    streams: dict[str, Progress]


def copy_metastore(source: str, target: str) -> Copied:
    """Copy every row, in one transaction. The engine that owns the source may run: it is neither fenced off nor kept
    waiting."""
    try:
        reading, writing = reader(source), writer(target)
        try:
            with reading.begin() as connection:
                check_current(connection, make_url(source))
                _copy(connection, writing, target)
                return _described(connection)
        finally:
            reading.dispose()
            writing.dispose()
    except DBAPIError as error:
        raise open_error(make_url(source), error) from error


def exists(url: str) -> bool:
    """Whether there may be a metastore: a file that is missing is not made by asking."""
    location = make_url(url)
    return location.get_backend_name() != "sqlite" or Path(location.database or "").exists()


def check_empty(url: str) -> None:
    """Refuse a database that has a metastore, for those who will copy one there later."""
    if not exists(url):
        return
    try:
        reading = reader(url)
        try:
            with reading.begin() as connection:
                if inspect(connection).has_table(t.engine.name):
                    _refuse_metastore(connection, url)
        finally:
            reading.dispose()
    except DBAPIError as error:
        raise open_error(make_url(url), error) from error


def _refuse_metastore(connection: Connection, url: str) -> None:
    if connection.execute(select(t.engine.c.id)).first() is not None:
        where = make_url(url).render_as_string(hide_password=True)
        raise EngineError("BAD_FILE", f"there is a metastore in {where} already", hint="name an empty database")


def _copy(source: Connection, writing: Engine, url: str) -> None:
    with writing.begin() as target:
        t.metadata.create_all(target)
        _refuse_metastore(target, url)
        there = set(inspect(source).get_table_names())
        for table in t.metadata.sorted_tables:
            if table.name not in there:
                continue
            for rows in source.execute(select(table).execution_options(yield_per=CHUNK)).mappings().partitions():
                target.execute(insert(table), [dict(row) for row in rows])
        crash_point("copy_metastore.before-commit")
    crash_point("copy_metastore.after-commit")


def _described(connection: Connection) -> Copied:
    streams = connection.execute(select(t.streams.c.name, t.streams.c.planned, t.streams.c.committed))
    return Copied(
        frozenset(referenced_files(Transaction(connection, 0, 0, 0))),
        {name: Progress(planned, committed) for name, planned, committed in streams},
    )
