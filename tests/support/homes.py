"""Homes that earlier versions wrote, by their own code; ``tests/homes`` has the metastore as SQL, and the files.

Each has a stream of 4500 generated purchases in small batches, of which some are taken, with queries, buckets and
answers; the rest is due at once.
"""

from __future__ import annotations

import sqlite3
import tarfile
from pathlib import Path

from sqlalchemy import NullPool, create_engine

from millstream.sources.generators import GamingGenerator

FOLDER = Path(__file__).parents[1] / "homes"
GENERATOR = GamingGenerator(rate=500, density=500, seed=7, users=20, gem_packs=4)
ROWS = 4500
LATENESS = 500_000


def unpack(version: int, home: Path) -> None:
    """Lay out the home of a version, with its metastore in SQLite."""
    with tarfile.open(FOLDER / f"version{version}.tar.gz") as files:
        files.extractall(home, filter="data")
    _database(version, str(home / "metastore.db")).close()


def load(version: int, url: str) -> None:
    """Make the tables of a version, with their rows, in an empty database."""
    source = _database(version, ":memory:")
    tables = source.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        for name, definition in tables:
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {name}")
            connection.exec_driver_sql(definition)
            columns = source.execute(f"PRAGMA table_info({name})").fetchall()
            flags = {number for number, _, kind, *_ in columns if kind == "BOOLEAN"}
            values = ", ".join(["%s" if connection.dialect.name == "postgresql" else "?"] * len(columns))
            rows = [
                tuple(bool(value) if number in flags else value for number, value in enumerate(row))
                for row in source.execute(f"SELECT * FROM {name}")
            ]
            if rows:
                connection.exec_driver_sql(f"INSERT INTO {name} VALUES ({values})", rows)
    source.close()


def _database(version: int, path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.executescript((FOLDER / f"version{version}.sql").read_text(encoding="utf-8"))
    connection.commit()
    return connection
