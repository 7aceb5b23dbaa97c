"""Opening, the fence, and what a transaction guarantees."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest
from sqlalchemy import create_engine, select, text
from tests.catalog.builders import ADS, SECOND, STREAM, create, new_join, plan, result, run, stream

from millstream.catalog import tables
from millstream.catalog.metastore import Change, Fire, Metastore
from millstream.errors import EngineError, MillstreamError, SpecError
from millstream.model.plan import FireResult


def test_each_opening_raises_the_incarnation(url: str) -> None:
    first = Metastore.open(url, holder="a")
    second = Metastore.open(url, holder="b")
    assert (first.incarnation, second.incarnation) == (1, 2)
    first.close()
    second.close()


def test_an_engine_that_was_taken_over_can_neither_write_nor_read(store: Metastore, url: str) -> None:
    batch = plan(store, 0)
    other = Metastore.open(url, holder="other engine")
    attempts = (
        lambda: store.add_stream(stream("ads")),
        lambda: store.seal(create("q")),
        lambda: store.seal(Change()),
        lambda: plan(store, 0),
        lambda: store.commit_batch(batch, result(5)),
        lambda: store.commit_fire(Fire(STREAM, {}, FireResult())),
        lambda: store.flush_stream(STREAM),
        lambda: store.drop_files(["f"]),
        lambda: store.save_cursor("c", "1"),
        lambda: store.expire_answers(before_seq=1),
        lambda: store.streams(),
        lambda: store.queries(),
        lambda: store.current_epoch(),
    )
    for attempt in attempts:
        with pytest.raises(EngineError, match="other engine") as error:
            attempt()
        assert error.value.code == "FENCED"
    (state,) = other.streams()
    assert (state.planned, state.committed, other.current_epoch(), other.load_cursor("c")) == (0, -1, 0, None)
    other.close()


def test_everything_is_there_after_a_restart(store: Metastore, url: str) -> None:
    store.seal(create("q"))
    run(store, 0, max_time=10)
    before = (store.streams(), store.queries(), store.closing(STREAM))
    store.close()
    again = Metastore.open(url, holder="test")
    assert (again.streams(), again.queries(), again.closing(STREAM)) == before
    again.close()


def test_a_newer_schema_is_refused(url: str) -> None:
    Metastore.open(url, holder="a").close()
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(tables.engine.update().values(schema_version=tables.SCHEMA_VERSION + 1))
    with pytest.raises(EngineError, match="newer Millstream"):
        Metastore.open(url, holder="b")
    with engine.begin() as connection:
        assert connection.execute(text("SELECT incarnation FROM millstream_engine")).scalar() == 1
    engine.dispose()


def test_a_metastore_from_before_joins_is_brought_up_to_date(store: Metastore, url: str) -> None:
    store.seal(create("q"))
    store.close()
    engine = create_engine(url)
    tables.metadata.drop_all(engine, tables=[tables.joins, tables.legs, tables.answer_refs])
    with engine.begin() as connection:
        connection.execute(tables.engine.update().values(schema_version=1))
    again = Metastore.open(url, holder="newer")
    again.add_stream(stream(ADS))
    again.seal(Change(creates=(new_join("j"),)))
    assert [(record.id, len(record.legs)) for record in again.queries()] == [("q", 0), ("j", 2)]
    again.close()
    with engine.begin() as connection:
        assert connection.execute(select(tables.engine.c.schema_version)).scalar() == tables.SCHEMA_VERSION
    engine.dispose()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://host/db", "no url"])
def test_a_url_that_cannot_work_is_refused(url: str) -> None:
    with pytest.raises(SpecError) as error:
        Metastore.open(url, holder="a")
    assert error.value.code == "BAD_SPEC"


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "metastore.db"
    path.write_text("this is a letter to my aunt, and not a database at all\n" * 20)
    with pytest.raises(EngineError, match="cannot open the metastore") as error:
        Metastore.open(f"sqlite:///{path}", holder="a")
    assert error.value.code == "BAD_FILE"


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="nowhere"):
        Metastore.open(f"sqlite:///{tmp_path}/nowhere/metastore.db", holder="a")


def test_a_closed_metastore_says_so(store: Metastore) -> None:
    store.close()
    with pytest.raises(EngineError) as error:
        store.streams()
    assert error.value.code == "NOT_RUNNING"


def test_sqlite_is_set_to_survive_a_power_failure(tmp_path: Path) -> None:
    path = tmp_path / "metastore.db"
    store = Metastore.open(f"sqlite:///{path}", holder="a")
    with store._database.read() as tx:
        pragmas = {name: tx.connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in PRAGMAS}
    store.close()
    assert pragmas == PRAGMAS
    assert sqlite3.connect(path).execute("PRAGMA journal_mode").fetchone() == ("wal",)


PRAGMAS = {"journal_mode": "wal", "synchronous": 2, "busy_timeout": 10_000}


def test_threads_write_one_after_the_other(store: Metastore) -> None:
    errors: list[MillstreamError] = []

    def work(number: int) -> None:
        try:
            for step in range(10):
                store.seal(create(f"q{number}-{step}"))
        except MillstreamError as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for batch in range(10):
        run(store, batch, max_time=batch)
    for thread in threads:
        thread.join()
    assert not errors
    queries = store.queries()
    assert store.current_epoch() == 80
    assert sorted(query.epoch for query in queries) == list(range(1, 81))
    # Whatever the interleaving, a query's frontier starts at the watermark that the batches before its cut brought.
    for query in queries:
        assert query.fired_to == (query.first_batch - 3) * SECOND if query.first_batch else query.fired_to is not None


def test_a_row_that_is_there_twice_is_a_mistake_of_ours(store: Metastore) -> None:
    run(store, 0, max_time=1, rejects=("dead/1",))
    with pytest.raises(EngineError) as error:
        run(store, 1, max_time=2, rejects=("dead/1",))
    assert error.value.code == "INTERNAL"
    assert store.streams()[0].committed == 0
