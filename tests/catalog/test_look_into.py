"""A metastore can be looked into without being taken from the engine that has it."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, text
from tests.catalog.builders import STREAM
from tests.support import homes

from millstream.catalog.metastore import Metastore
from millstream.errors import EngineError


def test_the_owner_goes_on_and_is_seen_to(store: Metastore, url: str) -> None:
    seen = Metastore.look_into(url)
    assert [state.stream.name for state in seen.streams()] == [STREAM]
    assert seen.damage() == []
    store.save_cursor("a", "1")
    assert seen.load_cursor("a") == "1"
    assert seen.incarnation == store.incarnation
    seen.close()
    store.save_cursor("a", "2")


def test_an_older_metastore_is_left_as_it_is(url: str) -> None:
    homes.load(2, url)
    with pytest.raises(EngineError, match="has schema version 2, this Millstream reads version"):
        Metastore.look_into(url)
    engine = create_engine(url)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT schema_version FROM millstream_engine")).scalar() == 2
    engine.dispose()


def test_what_is_no_metastore_is_refused(url: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS millstream_engine"))
        connection.execute(text("CREATE TABLE IF NOT EXISTS other (a INTEGER)"))
    engine.dispose()
    with pytest.raises(EngineError, match="there is no metastore in") as raised:
        Metastore.look_into(url)
    assert raised.value.code == "BAD_FILE"
