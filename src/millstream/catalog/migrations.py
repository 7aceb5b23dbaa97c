"""From an older metastore to this one: a step for each version, forwards only.

A step changes tables that are there; for a table that is new it is empty, ``create_all`` makes it when the metastore is
opened. The next one goes to the end of ``MIGRATIONS``, with ``tables.SCHEMA_VERSION`` raised to its number. A step
speaks SQL of its own and never the tables of ``tables.py``, which will have changed again by the time somebody comes
from far back.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import URL, Connection, Engine, inspect, text

from millstream.catalog import tables as t
from millstream.crashpoints import crash_point
from millstream.errors import EngineError

_HEAD = "millstream_engine"
_STOPS = "millstream_stops"


def _joins(connection: Connection) -> None:
    """Joins came with new tables alone."""


def _writes(connection: Connection) -> None:
    """Transactions are counted in the head."""
    add_column(connection, _HEAD, "writes", "BIGINT NOT NULL DEFAULT 0")


MIGRATIONS: dict[int, Callable[[Connection], None]] = {
    2: _joins,
    3: _writes,
}


def add_column(connection: Connection, table: str, column: str, definition: str) -> None:
    """Add a column, with a default for the rows there are. A table that is missing will be made with the column."""
    found = inspect(connection)
    if found.has_table(table) and column not in {one["name"] for one in found.get_columns(table)}:
        connection.execute(text(f"ALTER TABLE {table} ADD COLUMN {column} {definition}"))


def migrate(engine: Engine) -> None:
    """Take every step that the metastore lacks, each in a transaction of its own together with the version it leads to;
    what is new and empty needs none. ``engine`` begins writing transactions."""
    while True:
        with engine.begin() as connection:
            version = _version(connection)
            if version is None or version == t.SCHEMA_VERSION:
                return
            _check(version)
            MIGRATIONS[version + 1](connection)
            # With the step, whoever ran the older version is fenced off.
            raised = f"UPDATE {_HEAD} SET schema_version = :version, incarnation = incarnation + 1"
            connection.execute(text(raised), {"version": version + 1})
            if inspect(connection).has_table(_STOPS):
                # The engine before was stopped in order, or was not: a step is neither.
                connection.execute(text(f"UPDATE {_STOPS} SET incarnation = incarnation + 1"))
            crash_point("migrate.before-commit")
        crash_point("migrate.after-commit")


def check_current(connection: Connection, location: URL) -> None:
    """Refuse what is no metastore, or one of another version: for those who read it and must not change it."""
    where = location.render_as_string(hide_password=True)
    if not inspect(connection).has_table(_HEAD):
        raise EngineError("BAD_FILE", f"there is no metastore in {where}")
    version = connection.execute(text(f"SELECT schema_version FROM {_HEAD}")).scalar()
    if version != t.SCHEMA_VERSION:
        raise EngineError(
            "BAD_FILE",
            f"the metastore {where} has schema version {version}, this Millstream reads version {t.SCHEMA_VERSION}",
            hint="use the Millstream that the engine runs with",
        )


def _version(connection: Connection) -> int | None:
    if not inspect(connection).has_table(_HEAD):
        return None
    # SQLite has no such lock and needs none: its write transactions are exclusive.
    lock = "" if connection.dialect.name == "sqlite" else " FOR UPDATE"
    version: int | None = connection.execute(text(f"SELECT schema_version FROM {_HEAD}{lock}")).scalar()
    return version


def _check(version: int) -> None:
    if version > t.SCHEMA_VERSION:
        raise EngineError(
            "BAD_FILE",
            f"the metastore has schema version {version}, written by a newer Millstream",
            detail=f"this one reads versions up to {t.SCHEMA_VERSION}",
            hint="start it with the newer Millstream, or choose another home",
        )
