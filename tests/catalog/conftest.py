"""A metastore for each test: on SQLite, and on PostgreSQL too where MILLSTREAM_TEST_POSTGRES names a database."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from tests.catalog.builders import Clock, stream

from millstream.catalog import tables
from millstream.catalog.metastore import Metastore

POSTGRES = os.environ.get("MILLSTREAM_TEST_POSTGRES")


@pytest.fixture(params=["sqlite", "postgres"] if POSTGRES else ["sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'metastore.db'}"
    assert POSTGRES
    empty_postgres(POSTGRES)
    return POSTGRES


def empty_postgres(url: str) -> None:
    engine = create_engine(url)
    tables.metadata.drop_all(engine)
    engine.dispose()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(url: str, clock: Clock) -> Iterator[Metastore]:
    """A metastore with one stream, ``purchases``, of two seconds' lateness."""
    metastore = Metastore.open(url, holder="test", clock=clock)
    metastore.add_stream(stream())
    yield metastore
    metastore.close()
