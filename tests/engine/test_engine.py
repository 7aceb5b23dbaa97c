"""The live engine on real streaming queries: files appear, queries come and go, engines stop and start again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream import (
    AStreamGenerator,
    CsvFiles,
    Engine,
    Generator,
    JsonFiles,
    MillstreamError,
    ParquetFiles,
    QueryRequest,
)
from millstream.runtime import jobs

from .inputs import HOUR, SCHEMA, drop_file, purchases

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REVENUE = "SELECT gem_pack, SUM(price) AS revenue FROM purchases GROUP BY gem_pack, window(time, '1 second')"


@pytest.fixture
def start(spark: SparkSession, home: Path, tmp_path: Path) -> Iterator[Callable[[], Engine]]:
    """Starts engines on one home, one after the other."""
    running: list[Engine] = []

    def make() -> Engine:
        for engine in running:
            engine.stop()
        running.append(Engine(home=home, spark=spark))
        return running[-1]

    yield make
    for engine in running:
        engine.stop()


def files(folder: Path, schema: str = SCHEMA) -> ParquetFiles:
    return ParquetFiles(str(folder), schema=schema)


def rows_of(engine: Engine, id: str) -> list[dict[str, object]]:
    page = engine.read_answers(id, limit=10_000)
    return [{**row, "end": answer.window_end} for answer in page.answers for row in answer.table.to_pylist()]


def totals(engine: Engine, id: str) -> dict[float, int]:
    """Revenue by window end in seconds."""
    found: dict[float, int] = {}
    for row in rows_of(engine, id):
        end = row["end"].timestamp()  # type: ignore[attr-defined]
        found[end] = found.get(end, 0) + int(row["revenue"])  # type: ignore[call-overload]
    return found


def expected(first: int, last: int, seen_from: int = 0) -> dict[float, int]:
    """Sum of prices by window for whole seconds in [first, last)."""
    return {
        s + 1.0: sum(range(max(s * 10, seen_from), s * 10 + 10)) for s in range(first, last) if s * 10 + 10 > seen_from
    }


def test_windows_fire_when_the_watermark_passes_their_end(start: Callable[[], Engine], tmp_path: Path) -> None:
    """
    rows      |0 … 9|10 … 19|20 … 24|        a row each tenth of a second
    windows   |--1--|---2---|--3--…          the third is still open: watermark 2.4 s
    """
    drop_file(tmp_path / "in", "a", purchases(0, 25))
    engine = start()
    engine.create_stream("purchases", ParquetFiles(str(tmp_path / "in"), schema=SCHEMA), time="time")
    query = engine.create_query(REVENUE, owner="marketing", id="revenue")
    engine.await_idle()
    # The query's cut is batch 0 or 1, depending on whether Spark had planned the first file before the epoch was
    # sealed.
    if query.cut["purchases"] == 0:
        assert totals(engine, "revenue") == expected(0, 2)
    drop_file(tmp_path / "in", "b", purchases(25, 20))
    engine.await_idle()
    assert totals(engine, "revenue") == expected(0, 4, seen_from=0 if query.cut["purchases"] == 0 else 25)
    assert query.schema == pa.schema([("gem_pack", pa.int32()), ("revenue", pa.int64())])
    assert query.status().owner == "marketing"


def test_partial_windows_are_marked_and_closed_ones_not_answered(start: Callable[[], Engine], tmp_path: Path) -> None:
    """
    batch 0   rows 0 … 24 (to 2.4 s)    ▼ query created: cut = batch 1
    batch 1   rows 25 … 49              window [2, 3) is partial, [0, 2) was closed before
    """
    folder = tmp_path / "in"
    drop_file(folder, "a", purchases(0, 25))
    engine = start()
    engine.create_stream("purchases", ParquetFiles(str(folder), schema=SCHEMA), time="time")
    engine.await_idle()
    query = engine.create_query(REVENUE)
    assert query.cut == {"purchases": 1}
    drop_file(folder, "b", purchases(25, 25))
    engine.await_idle()
    answers = query.read().answers
    assert [(a.window_end.timestamp(), a.partial) for a in answers] == [(3.0, True), (4.0, False)]  # type: ignore[union-attr]
    assert totals(engine, query.id) == expected(2, 4, seen_from=25)


def test_a_deleted_query_answers_what_its_own_batches_closed_and_nothing_after(
    start: Callable[[], Engine], tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    engine = start()
    folder.mkdir()
    engine.create_stream("purchases", ParquetFiles(str(folder), schema=SCHEMA), time="time")
    query = engine.create_query(REVENUE)
    other = engine.create_query(REVENUE.replace("SUM(price)", "MAX(price)"))
    drop_file(folder, "a", purchases(0, 25))
    engine.await_idle()
    query.delete()
    drop_file(folder, "b", purchases(25, 25))
    engine.await_idle()
    assert totals(engine, query.id) == expected(0, 2)
    assert query.status().state == "deleted"
    assert len(other.read().answers) == 4
    assert list(query.answers()), "the answers of a deleted query can still be read, and the reading ends"


def test_an_orderly_restart_goes_on_where_it_was(start: Callable[[], Engine], tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    engine = start()
    engine.create_stream("purchases", ParquetFiles(str(folder), schema=SCHEMA), time="time", lateness="1 second")
    query = engine.create_query(REVENUE)
    drop_file(folder, "a", purchases(0, 25))
    engine.await_idle()
    first = query.read()
    engine = start()
    drop_file(folder, "b", purchases(25, 30))
    engine.await_idle()
    assert totals(engine, query.id) == expected(0, 4)
    rest = engine.query(query.id).read(cursor=first.cursor).answers
    assert [a.window_end.timestamp() for a in rest] == [2.0, 3.0, 4.0]  # type: ignore[union-attr]
    engine.create_query(REVENUE, id="later")
    engine.delete_query(query.id)


def test_queries_without_a_window_are_answered_batch_by_batch(start: Callable[[], Engine], tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    engine = start()
    engine.create_stream("purchases", ParquetFiles(str(folder), schema=SCHEMA), time="time")
    query = engine.create_query("SELECT price * 2 AS twice, time FROM purchases WHERE price % 10 = 3")
    for number in range(2):
        drop_file(folder, f"f{number}", purchases(number * 20, 20))
        engine.await_idle()
    answers = query.read().answers
    assert [a.table.column("twice").to_pylist() for a in answers] == [[6, 26], [46, 66]]
    assert [a.batch for a in answers] == [0, 1]


def test_a_streaming_dataframe_is_a_stream(start: Callable[[], Engine], spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    drop_file(folder, "a", purchases(0, 25))
    frame = spark.readStream.schema("gem_pack INT, price BIGINT, time TIMESTAMP").parquet(str(folder))
    engine = start()
    engine.create_stream("purchases", frame.filter("price >= 0"), time="time")
    query = engine.create_query(REVENUE)
    drop_file(folder, "b", purchases(25, 25))
    engine.await_idle()
    seen = 0 if query.cut["purchases"] == 0 else 25
    assert totals(engine, query.id) == expected(0, 4, seen_from=seen)
    engine = start()
    assert engine.stream("purchases").state == "waiting for its DataFrame"
    engine.create_stream("purchases", frame.filter("price >= 0"), time="time")
    drop_file(folder, "c", purchases(50, 20))
    engine.await_idle()
    assert totals(engine, query.id) == expected(0, 6, seen_from=seen)


def test_a_streaming_dataframe_of_files_is_read_by_workers_and_otherwise_by_spark(
    start: Callable[[], Engine], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file without a column is NULL there for Spark, where a source of ours would refuse it."""
    ways: list[str] = []

    def noted(name: str, way: Callable[..., object], *args: object, **more: object) -> object:
        ways.append(name)
        return way(*args, **more)

    for name in ("ingest_rows", "ingest_splits"):
        monkeypatch.setattr(jobs, name, partial(noted, name, getattr(jobs, name)))
    folder = tmp_path / "in"
    folder.mkdir()
    engine = start()
    engine.create_stream("purchases", spark.readStream.schema(SCHEMA).parquet(str(folder)), time="time")
    query = engine.create_query(
        "SELECT COUNT(*) AS n, COUNT(gem_pack) AS packs FROM purchases GROUP BY window(time, '1 second')"
    )
    for number, left_out in enumerate(([], ["gem_pack"], [])):
        drop_file(folder, f"f{number}", purchases(number * 10, 10).drop_columns(left_out))
        engine.await_idle()
    drop_file(folder, "last", purchases(100, 1))
    engine.await_idle()
    assert ways == ["ingest_splits", "ingest_rows", "ingest_splits", "ingest_splits"]
    assert [(row["n"], row["packs"]) for row in rows_of(engine, query.id)] == [(10, 10), (10, 0), (10, 10)]


def test_a_file_that_workers_cannot_read_is_left_to_spark_and_nothing_is_lost(
    start: Callable[[], Engine], spark: SparkSession, tmp_path: Path
) -> None:
    """Its footer is good, its pages are not: Spark fails too, until the file is mended."""
    folder = tmp_path / "in"
    folder.mkdir()
    engine = start()
    engine.create_stream("purchases", spark.readStream.schema(SCHEMA).parquet(str(folder)), time="time")
    query = engine.create_query("SELECT COUNT(gem_pack) AS n FROM purchases GROUP BY window(time, '1 second')")
    drop_file(tmp_path / "whole", "f", purchases(0, 1000))
    good = (tmp_path / "whole" / "f.parquet").read_bytes()
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(good[:4] + b"\xff" * 600 + good[604:])
    broken.rename(folder / "f.parquet")
    deadline = time.monotonic() + 120
    while engine.stream("purchases").error is None:
        assert time.monotonic() < deadline, "the stream says that the batch fails"
        time.sleep(0.1)
    assert engine.stream("purchases").rejected_rows == 0
    (folder / "f.parquet").write_bytes(good)
    drop_file(folder, "last", purchases(2000, 1))
    while len(rows_of(engine, query.id)) < 100:
        assert time.monotonic() < deadline, "the batch passes"
        time.sleep(0.1)
    assert [row["n"] for row in rows_of(engine, query.id)] == [10] * 100
    assert engine.stream("purchases").rejected_rows == 0


def test_generators_are_streams(start: Callable[[], Engine]) -> None:
    engine = start()
    source = Generator(AStreamGenerator(density=1000, seed=7), rows=5000, max_rows_per_batch=2000)
    query = None
    engine.create_stream("tuples", source, time="time")
    query = engine.create_query("SELECT count(*) AS n FROM tuples WHERE field1 >= 0 GROUP BY window(time, '1 second')")
    engine.await_idle()
    counted = [row["n"] for row in rows_of(engine, query.id)]
    assert counted
    assert set(counted) <= {1000, *range(1, 1000)}


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_text_files_and_their_bad_rows(start: Callable[[], Engine], tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    if kind == "csv":
        text = "gem_pack,price,time\n1,5,1970-01-01T00:00:00Z\n1,oops,1970-01-01T00:00:00Z\n2,7,1970-01-01T00:00:01Z\n"
        source = CsvFiles(str(folder), schema=SCHEMA)
    else:
        text = (
            '{"gem_pack": 1, "price": 5, "time": "1970-01-01T00:00:00Z"}\n{"gem_pack": 1,\n'
            '{"gem_pack": 2, "price": 7, "time": "1970-01-01T00:00:01Z"}\n'
        )
        source = JsonFiles(str(folder), schema=SCHEMA)
    engine = start()
    engine.create_stream("purchases", source, time="time")
    query = engine.create_query("SELECT gem_pack, price FROM purchases")
    (folder / ".tmp").write_text(text)
    (folder / ".tmp").rename(folder / f"a.{'csv' if kind == 'csv' else 'jsonl'}")
    engine.await_idle()
    (answer,) = query.read().answers
    assert answer.table.to_pylist() == [{"gem_pack": 1, "price": 5}, {"gem_pack": 2, "price": 7}]
    status = engine.stream("purchases")
    assert (status.rows, status.rejected_rows) == (3, 1)
    (letters,) = list((engine.home / "dead" / "purchases").glob("*.jsonl"))
    letter = json.loads(letters.read_text())
    assert letter["origin"].endswith(f"a.{'csv' if kind == 'csv' else 'jsonl'}:{3 if kind == 'csv' else 2}")
    assert letter["reason"]


def test_files_that_cannot_be_read_are_dead_letters_and_stop_nobody(
    start: Callable[[], Engine], tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    engine = start()
    engine.create_stream("purchases", ParquetFiles(str(folder), schema=SCHEMA), time="time")
    query = engine.create_query("SELECT price FROM purchases")
    drop_file(folder, "a", purchases(0, 5))
    whole = (folder / "a.parquet").read_bytes()
    (folder / "truncated.parquet").write_bytes(whole[: len(whole) // 2])
    (folder / "nonsense.parquet").write_bytes(b"nothing like Parquet")
    pq.write_table(pa.table({"price": pa.array(["text"]), "other": [1]}), folder / "schema.parquet")
    engine.await_idle()
    assert sum(a.table.num_rows for a in query.read().answers) == 5
    assert engine.stream("purchases").rejected_rows == 3
    assert engine.stream("purchases").state == "running"
    letters = [
        json.loads(line) for f in (engine.home / "dead" / "purchases").iterdir() for line in f.read_text().splitlines()
    ]
    assert {name for letter in letters for name in ("truncated", "nonsense", "schema") if name in str(letter)} == {
        "truncated",
        "nonsense",
        "schema",
    }
    engine._core.tidy(retention=HOUR, dead_letters=HOUR)
    assert list((engine.home / "dead" / "purchases").iterdir())
    engine._core.tidy(retention=HOUR, dead_letters=-HOUR)
    assert not list((engine.home / "dead" / "purchases").iterdir())
    assert engine._core.metastore.dead_letters("purchases") == []
    assert engine.stream("purchases").rejected_rows == 3, "they stay counted"


def test_rows_without_event_time_or_too_far_ahead_are_dead_letters(start: Callable[[], Engine], tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    engine = start()
    engine.create_stream("purchases", ParquetFiles(str(folder), schema=SCHEMA), time="time", max_skew="1 hour")
    query = engine.create_query("SELECT price FROM purchases")
    times = pa.array([0, None, 2**61], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    drop_file(folder, "a", pa.table({"gem_pack": pa.array([1, 1, 1], pa.int32()), "price": [1, 2, 3], "time": times}))
    engine.await_idle()
    assert [a.table.column("price").to_pylist() for a in query.read().answers] == [[1]]
    assert engine.stream("purchases").rejected_rows == 2


def test_a_create_is_repeated_by_its_key_and_made_once(start: Callable[[], Engine], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    engine = start()
    engine.create_stream("purchases", ParquetFiles(str(tmp_path / "in"), schema=SCHEMA), time="time")
    first = engine.create_query(REVENUE, owner="a", key="k1")
    again = engine.create_query(REVENUE, owner="a", key="k1")
    both = engine.create_queries([QueryRequest(REVENUE, "b", None, "k2"), QueryRequest(REVENUE, "b", None, "k2")])
    assert first.id == again.id
    assert len({q.id for q in both if not isinstance(q, MillstreamError)}) == 1
    assert len(engine.queries()) == 2


def test_one_bad_query_of_a_batch_harms_no_other(start: Callable[[], Engine], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    engine = start()
    engine.create_stream("purchases", ParquetFiles(str(tmp_path / "in"), schema=SCHEMA), time="time")
    engine.create_query(REVENUE, id="taken")
    made = engine.create_queries(
        [QueryRequest(REVENUE), QueryRequest("SELECT nothing FROM purchases"), QueryRequest(REVENUE, id="taken")]
    )
    codes = [one.code if isinstance(one, MillstreamError) else "made" for one in made]
    assert codes == ["made", "UNKNOWN_COLUMN", "DUPLICATE_QUERY"]


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda e, p: e.create_stream("purchases", files(p), time="time"), "DUPLICATE_STREAM"),
        (lambda e, p: e.create_stream("PURCHASES", files(p), time="time"), "DUPLICATE_STREAM"),
        (lambda e, p: e.create_stream("x y", files(p), time="time"), "BAD_STREAM"),
        (lambda e, p: e.create_stream("s", files(p), time="nope"), "BAD_STREAM"),
        (lambda e, p: e.create_stream("s", files(p), time="price"), "BAD_STREAM"),
        (lambda e, p: e.create_stream("s", files(p, "window INT, time TIMESTAMP"), time="time"), "BAD_STREAM"),
        (lambda e, p: e.create_stream("s", ParquetFiles(str(p / "no")), time="time"), "BAD_STREAM"),
        (lambda e, p: e.create_stream("s", 42, time="time"), "BAD_STREAM"),
        (lambda e, p: e.create_query(REVENUE, id="a b"), "BAD_REQUEST"),
        (lambda e, p: e.create_query(REVENUE, id="known"), "DUPLICATE_QUERY"),
        (lambda e, p: e.create_query("SELEC 1"), "SQL_PARSE"),
        (lambda e, p: e.create_query("SELECT 1 FROM nowhere"), "UNKNOWN_STREAM"),
        (lambda e, p: e.create_query("SELECT sum(price) FROM purchases"), "NO_WINDOW"),
        (lambda e, p: e.delete_query("unknown"), "UNKNOWN_QUERY"),
        (lambda e, p: e.delete_query("gone"), "QUERY_DELETED"),
        (lambda e, p: e.query("unknown"), "UNKNOWN_QUERY"),
        (lambda e, p: e.read_answers("known", cursor="x"), "BAD_CURSOR"),
        (lambda e, p: e.stream("unknown"), "UNKNOWN_STREAM"),
        (lambda e, p: Engine(home=e.home, spark=e._spark.session), "HOME_IN_USE"),
    ],
)  # fmt: skip
def test_wrong_requests_are_refused_and_change_nothing(
    wrong: Engine, tmp_path: Path, call: Callable[[Engine, Path], object], code: str
) -> None:
    before = (wrong.streams(), wrong.queries(), wrong.status().epoch)
    with pytest.raises(MillstreamError) as error:
        call(wrong, wrong.home / "in")
    assert error.value.code == code
    assert (wrong.queries(), wrong.status().epoch) == before[1:]
    assert [s.name for s in wrong.streams()] == [s.name for s in before[0]]


@pytest.fixture(scope="module")
def wrong(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """One engine for all wrong requests: it goes on after each of them."""
    home = tmp_path_factory.mktemp("wrong")
    (home / "in").mkdir()
    with Engine(home=home, spark=spark) as engine:
        engine.create_stream("purchases", ParquetFiles(str(home / "in"), schema=SCHEMA), time="time")
        engine.create_query(REVENUE, id="known")
        engine.create_query(REVENUE, id="gone")
        engine.delete_query("gone")
        yield engine


def test_deletes_that_cannot_be_read_back_have_an_error_each(wrong: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for id in ("first", "second"):
        wrong.create_query(REVENUE, id=id)
    metastore = wrong._core.metastore

    def away(ids: object) -> object:
        raise MillstreamError("METASTORE_AWAY", "the metastore is away")

    monkeypatch.setattr(metastore, "queries_by_id", away)
    found = wrong.delete_queries(["first", "nobody"])
    assert [one.code for one in found if isinstance(one, MillstreamError)] == ["METASTORE_AWAY", "UNKNOWN_QUERY"]
    monkeypatch.setattr(metastore, "queries_by_id", lambda ids: {})
    (forgotten,) = wrong.delete_queries(["second"])
    assert isinstance(forgotten, MillstreamError)
    assert forgotten.code == "UNKNOWN_QUERY"
    monkeypatch.undo()
    assert {wrong.query(id).status().state for id in ("first", "second")} <= {"deleting", "deleted"}


def test_a_session_with_unfit_settings_is_refused(spark: SparkSession, home: Path) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    with pytest.raises(MillstreamError) as error:
        Engine(home=home, spark=other)
    assert error.value.code == "BAD_SESSION"
    assert "spark.sql.session.timeZone" in (error.value.hint or "")


def test_a_search_that_finds_nothing_moves_the_cursor_on(start: Callable[[], Engine], tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    engine = start()
    engine.create_stream("purchases", ParquetFiles(str(folder), schema=SCHEMA), time="time")
    busy = engine.create_query(REVENUE)
    quiet = engine.create_query(REVENUE.replace("FROM purchases", "FROM purchases WHERE price < 0"))
    drop_file(folder, "a", purchases(0, 25))
    engine.await_idle()
    empty = quiet.read()
    assert (list(empty.answers), empty.cursor) == ([], "2.0")
    drop_file(folder, "b", purchases(25, 20))
    engine.await_idle()
    assert quiet.read(empty.cursor).cursor == "3.0"
    first = busy.read(limit=1)
    assert [a.window_end for a in busy.read(first.cursor).answers] == [a.window_end for a in busy.read().answers][1:]


def test_a_cursor_older_than_what_is_kept_is_refused(start: Callable[[], Engine], tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    engine = start()
    engine.create_stream("purchases", ParquetFiles(str(folder), schema=SCHEMA), time="time")
    query = engine.create_query(REVENUE)
    drop_file(folder, "a", purchases(0, 25))
    engine.await_idle()
    page = query.read()
    engine._core.tidy(retention=-10_000_000, dead_letters=HOUR)
    assert list(query.read(page.cursor).answers) == []
    with pytest.raises(MillstreamError, match="no longer kept"):
        query.read("1.0")
    assert not list((engine.home / "answers").iterdir())
