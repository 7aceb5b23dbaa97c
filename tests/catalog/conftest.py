"""A metastore for each test, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.catalog.builders import Clock, stream
from tests.support.postgres import Server

from millstream.catalog.metastore import Metastore

BACKENDS = ("sqlite", "postgres")


@pytest.fixture(params=BACKENDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'metastore.db'}"
    server: Server = request.getfixturevalue("postgres")
    return server.empty_database()


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
