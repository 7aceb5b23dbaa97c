"""Metastores of earlier versions are brought up to date and go on; those of later ones are left alone."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from sqlalchemy import Connection, NullPool, create_engine, inspect, text
from tests.catalog.builders import ADS, STREAM, new_join, result, stream
from tests.chaos.schedule import AFTER_AN_UPGRADE
from tests.support import homes

from millstream.catalog import database, migrations, tables
from millstream.catalog.metastore import Change, Fire, Metastore
from millstream.crashpoints import CRASH_AT
from millstream.errors import EngineError
from millstream.model.plan import FireResult

VERSIONS = range(1, tables.SCHEMA_VERSION)


def columns(connection: Connection) -> dict[str, set[str]]:
    found = inspect(connection)
    names = (name for name in found.get_table_names() if name.startswith("millstream_"))
    return {name: {column["name"] for column in found.get_columns(name)} for name in names}


def asked(url: str, statement: str) -> Any:
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        return connection.execute(text(statement)).scalar()


def test_every_version_has_its_step() -> None:
    assert sorted(migrations.MIGRATIONS) == list(range(2, tables.SCHEMA_VERSION + 1))


def test_tables_change_with_the_version_alone() -> None:
    """An older Millstream must refuse what it does not know of: raise the version with any new table or column, and
    write a step, be it an empty one."""
    parts = sorted(
        f"{table.name}.{column.name} {column.type}"
        for table in tables.metadata.sorted_tables
        for column in table.columns
    )
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    assert {tables.SCHEMA_VERSION: digest} == {3: "2747af401067fb69"}


def test_a_step_is_neither_a_stop_nor_a_crash(url: str) -> None:
    store = Metastore.open(url, holder="older")
    store.record_stop()
    store.close()
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE millstream_engine SET schema_version = {tables.SCHEMA_VERSION - 1}"))
    store = Metastore.open(url, holder="newer")
    assert store.stopped_at() is not None
    store.close()
    store = Metastore.open(url, holder="after a crash")
    assert store.stopped_at() is None
    store.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_metastore_has_the_tables_of_a_new_one(url: str, version: int) -> None:
    Metastore.open(url, holder="new").close()
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        new = columns(connection)
    with engine.begin() as connection:
        for name in new:
            connection.execute(text(f"DROP TABLE {name}"))
    homes.load(version, url)
    with engine.connect() as connection:
        assert columns(connection) != new
    Metastore.open(url, holder="newer").close()
    with engine.connect() as connection:
        assert columns(connection) == new
    assert asked(url, "SELECT schema_version FROM millstream_engine") == tables.SCHEMA_VERSION


@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_metastore_goes_on(url: str, version: int) -> None:
    homes.load(version, url)
    incarnation = asked(url, "SELECT incarnation FROM millstream_engine")
    store = Metastore.open(url, holder="newer")
    assert store.incarnation > incarnation
    (state,) = store.streams()
    assert state.committed == state.planned > 0
    states = {query.id: query.state for query in store.queries()}
    assert states == {"revenue": "running", "most": "running", "three": "running", "gone": "deleted"}
    by_key = store.query_by_key("ann", "k1")
    assert by_key is not None
    assert by_key.id == "revenue"
    assert store.buckets(STREAM)
    assert store.answers_after(STREAM, 0)
    seen = store.answer_bounds()[1]

    batch = state.planned + 1
    plan, committed = store.plan_batch(STREAM, batch, "offsets", clock=0)
    assert (plan.watermark, committed) == (state.watermark, False)
    store.commit_batch(plan, result(4_000_000_000))
    watermark = store.streams()[0].watermark
    assert watermark is not None
    moves = {f.query: (f.fired_to, watermark) for f in store.frontiers(STREAM) if f.fired_to is not None}
    assert sorted(moves) == ["most", "revenue"]
    store.commit_fire(Fire(STREAM, moves, FireResult()))
    store.add_stream(stream(ADS))
    epoch = store.seal(Change(creates=(new_join("j"),), deletes=("most",)))
    assert epoch.number == store.query("j").epoch
    assert (len(store.query("j").legs), store.answer_bounds()[1]) == (2, seen)
    store.close()


def test_a_step_that_fails_leaves_the_metastore_as_it_was(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the middle: columns that were added go with the transaction."""
    homes.load(2, url)

    def fail(connection: Connection) -> None:
        migrations.add_column(connection, "millstream_cursors", "note", "TEXT")
        raise EngineError("INTERNAL", "the step fails")

    last = tables.SCHEMA_VERSION + 1
    monkeypatch.setitem(migrations.MIGRATIONS, last, fail)
    monkeypatch.setattr(tables, "SCHEMA_VERSION", last)
    with pytest.raises(EngineError, match="the step fails"):
        Metastore.open(url, holder="newer")
    assert asked(url, "SELECT schema_version FROM millstream_engine") == last - 1, "the steps before it are done"
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        assert "note" not in columns(connection)["millstream_cursors"]
    monkeypatch.undo()
    store = Metastore.open(url, holder="again")
    assert len(store.queries()) == 4
    store.close()


@pytest.mark.parametrize("point", AFTER_AN_UPGRADE)
def test_killed_in_a_step_the_next_start_takes_it(url: str, point: str) -> None:
    homes.load(1, url)
    opening = f"from millstream.catalog.metastore import Metastore; Metastore.open({url!r}, holder='dies')"
    died = subprocess.run([sys.executable, "-c", opening], env={**os.environ, CRASH_AT: point}, check=False)
    assert died.returncode == -signal.SIGKILL
    reached = 1 if point == "migrate.before-commit" else 2
    assert asked(url, "SELECT schema_version FROM millstream_engine") == reached
    store = Metastore.open(url, holder="again")
    assert len(store.queries()) == 4
    store.close()


def test_whoever_runs_the_older_version_is_fenced_off_by_the_first_step(url: str) -> None:
    homes.load(2, url)
    before = asked(url, "SELECT incarnation FROM millstream_engine")
    engine = database.writer(url)
    migrations.migrate(engine)
    engine.dispose()
    assert asked(url, "SELECT incarnation FROM millstream_engine") == before + tables.SCHEMA_VERSION - 2


def test_a_new_table_needs_no_step(url: str) -> None:
    Metastore.open(url, holder="a").close()
    asked_for = "DROP TABLE millstream_statistics"
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text(asked_for))
    store = Metastore.open(url, holder="b")
    store.add_stream(stream())
    assert store.figures(STREAM).rows == 0
    store.close()
