"""Joins in the live engine: files of two streams appear, joins come and go, engines stop and start again.

Both streams have one row for each tenth of a second: purchases count by 3 gem packs, ads by 5.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import millstream
from millstream import Answer, Engine, MillstreamError, ParquetFiles
from millstream.engine import answers as answer_log

from .inputs import HOUR, SCHEMA, drop_file, purchases

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ADS_SCHEMA = "gem_pack INT, cost BIGINT, time TIMESTAMP"
SOURCES = (
    "WITH p AS (SELECT *, window(time, '1 second') AS w FROM purchases), "
    "a AS (SELECT *, window(time, '1 second') AS w FROM ads) "
)
ON = "ON p.gem_pack = a.gem_pack AND p.w = a.w"
ROWS = f"{SOURCES}SELECT p.price, a.cost, p.w.end AS end FROM p JOIN a {ON} WHERE a.cost >= 3"
TOTALS = (
    f"{SOURCES}SELECT p.gem_pack, COUNT(*) AS n, SUM(a.cost) AS spent, p.w.end AS end FROM p JOIN a {ON} "
    "GROUP BY p.gem_pack, p.w"
)
LEFT = f"{SOURCES}SELECT p.price, a.cost, p.w.end AS end FROM p LEFT JOIN a {ON} AND a.cost > p.price"
SELF = (
    "WITH p AS (SELECT *, window(time, '2 seconds', '1 second') AS w FROM purchases) "
    "SELECT x.price, y.price AS other, x.w.end AS end FROM p x JOIN p y ON x.gem_pack = y.gem_pack AND x.w = y.w "
    "WHERE y.price < 12"
)
SLIDING = TOTALS.replace("'1 second'", "'3 seconds', '1 second'")


def ads(first: int, count: int) -> pa.Table:
    """Rows ``first …``: gem_pack counts modulo 5, cost is the row's number, time is a tenth of a second a row."""
    made = purchases(first, count).rename_columns(["gem_pack", "cost", "time"])
    packs = pa.array([number % 5 for number in range(first, first + count)], pa.int32())
    return made.set_column(0, "gem_pack", packs)


class Live:
    """An engine over two folders, which tests feed range by range."""

    def __init__(self, spark: SparkSession, home: Path, folder: Path, **options: Any) -> None:
        self.spark, self.home, self.folder = spark, home, folder
        self.files = 0
        for name in ("purchases", "ads"):
            (folder / name).mkdir()
        self.engine = Engine(home=home, spark=spark)
        for name, schema in (("purchases", SCHEMA), ("ads", ADS_SCHEMA)):
            source = ParquetFiles(str(folder / name), schema=schema)
            self.engine.create_stream(name, source, time="time", **options)

    def feed(self, purchases_: range | None = None, ads_: range | None = None) -> None:
        """One file, and so one micro-batch, of each stream that is given."""
        self.files += 1
        name = f"f{self.files:03d}"
        if purchases_ is not None:
            drop_file(self.folder / "purchases", name, purchases(purchases_.start, len(purchases_)))
        if ads_ is not None:
            drop_file(self.folder / "ads", name, ads(ads_.start, len(ads_)))
        self.engine.await_idle()

    def restart(self) -> Engine:
        self.engine.stop()
        self.engine = Engine(home=self.home, spark=self.spark)
        return self.engine

    def rows(self, id: str) -> list[tuple[object, ...]]:
        """All rows of all answers of a query, in order of their values."""
        return sorted_rows(pa.concat_tables([answer.table for answer in self.answers(id)]))

    def answers(self, id: str) -> list[Answer]:
        return list(self.engine.read_answers(id, limit=10_000).answers)

    def ends(self, id: str) -> list[float]:
        return [seconds(answer.window_end) for answer in self.answers(id)]


def sorted_rows(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=repr)


def seconds(moment: datetime | None) -> float:
    assert moment is not None
    return moment.timestamp()


@pytest.fixture
def live(spark: SparkSession, home: Path, tmp_path: Path) -> Iterator[Live]:
    made = Live(spark, home, tmp_path)
    yield made
    made.engine.stop()


@pytest.fixture
def plain(spark: SparkSession) -> Callable[..., list[tuple[object, ...]]]:
    """What plain Spark answers over ranges of both streams, as far as windows that end by ``closed`` seconds."""
    session = spark.newSession()

    def run(sql: str, purchases_: range, ads_: range, closed: float) -> list[tuple[object, ...]]:
        for name, table in (
            ("purchases", purchases(purchases_.start, len(purchases_))),
            ("ads", ads(ads_.start, len(ads_))),
        ):
            session.createDataFrame(table).createOrReplaceTempView(name)
        return sorted_rows(session.sql(f"SELECT * FROM ({sql}) WHERE end <= timestamp_seconds({closed})").toArrow())

    return run


def test_joins_answer_what_plain_spark_answers(live: Live, plain: Callable[..., Any]) -> None:
    """
    purchases   |--- batch 0 ---|- batch 1 -|------ batch 2 ------|     closed to 5 s
    ads         |-- batch 0 --|------ batch 1 ------|-- batch 2 --|     closed to 5 s
    """
    texts = {"rows": ROWS, "totals": TOTALS, "left": LEFT, "self": SELF, "sliding": SLIDING}
    for id, sql in texts.items():
        live.engine.create_query(sql, id=id)
    live.feed(range(25), range(18))
    live.feed(range(25, 33))
    live.feed(ads_=range(18, 44))
    live.feed(range(33, 55), range(44, 55))
    for id, sql in texts.items():
        assert live.rows(id) == plain(sql, range(55), range(55), closed=5), id
    assert live.ends("totals") == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert live.engine.query("rows").status().answer_rows == len(live.rows("rows"))


def test_a_join_sees_the_batches_of_its_cut_and_marks_partial_windows(live: Live, plain: Callable[..., Any]) -> None:
    """
    purchases   rows 0 … 24   ▼ created: cut = batch 1     rows 25 … 54
    ads         none yet      ▼ cut = batch 0              rows 0 … 54
    """
    live.feed(range(25))
    query = live.engine.create_query(ROWS)
    live.engine.create_query(TOTALS, id="totals")
    assert query.cut == {"purchases": 1, "ads": 0}
    live.feed(range(25, 55), range(55))
    # The purchases of the window [2, 3) before the cut are not seen: 2.4 s is the largest event time before it.
    assert [(seconds(a.window_end), a.partial) for a in live.answers(query.id)] == [
        (3.0, True),
        (4.0, False),
        (5.0, False),
    ]
    for id, sql in ((query.id, ROWS), ("totals", TOTALS)):
        assert live.rows(id) == plain(sql, range(25, 55), range(55), closed=5)


def test_a_deleted_join_answers_what_its_own_batches_closed_and_nothing_after(
    live: Live, plain: Callable[..., Any]
) -> None:
    for id, sql in (("gone", ROWS), ("gone-totals", TOTALS), ("stays", ROWS)):
        live.engine.create_query(sql, id=id)
    live.feed(range(35), range(25))
    live.engine.delete_query("gone")
    live.engine.delete_query("gone-totals")
    live.feed(range(35, 55), range(25, 55))
    # The ads before the deletion reach to 2.4 s: later windows were never closed by the join's own batches.
    assert live.rows("gone") == plain(ROWS, range(35), range(25), closed=2)
    assert live.rows("gone-totals") == plain(TOTALS, range(35), range(25), closed=2)
    assert [live.engine.query(id).status().state for id in ("gone", "gone-totals")] == ["deleted", "deleted"]
    assert live.rows("stays") == plain(ROWS, range(55), range(55), closed=5)
    assert list(live.engine.query("gone").answers()), "its answers can still be read, and the reading ends"


def test_an_orderly_restart_goes_on_with_joins(live: Live, plain: Callable[..., Any]) -> None:
    texts = {"rows": ROWS, "totals": TOTALS, "sliding": SLIDING}
    for id, sql in texts.items():
        live.engine.create_query(sql, id=id)
    live.feed(range(25), range(32))
    first = {id: live.engine.read_answers(id) for id in texts}
    engine = live.restart()
    live.feed(range(25, 55), range(32, 55))
    for id, sql in texts.items():
        assert live.rows(id) == plain(sql, range(55), range(55), closed=5), id
        rest = engine.read_answers(id, first[id].cursor).answers
        assert [seconds(a.window_end) for a in rest] == [3.0, 4.0, 5.0]
    engine.create_query(ROWS, id="later")
    engine.delete_query("rows")
    live.feed(range(55, 75), range(55, 75))
    assert live.ends("later") == [6.0, 7.0]
    assert live.ends("rows") == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_lagging_stream_holds_back_only_the_joins_with_it(live: Live) -> None:
    live.engine.create_query(ROWS, id="both")
    live.engine.create_query(SELF, id="alone")
    live.feed(range(25), range(15))
    live.feed(range(25, 55))
    live.feed(range(55, 65))
    assert live.ends("both") == [1.0]
    assert seconds(live.engine.query("alone").status().fired_to) >= 6.0
    live.feed(ads_=range(15, 45))
    assert live.ends("both") == [1.0, 2.0, 3.0, 4.0]


def test_an_idle_stream_follows_the_others_and_late_rows_are_counted(
    spark: SparkSession, home: Path, tmp_path: Path, plain: Callable[..., Any]
) -> None:
    """The engine's clock is far from the timeout; the ads are made idle by hand."""
    live = Live(spark, home, tmp_path, idle_timeout="1 hour")
    with live.engine:
        live.engine.create_query(ROWS, id="rows")
        live.engine.create_query(LEFT, id="left")
        assert live.engine.stream("ads").idle_timeout_seconds == 3600
        live.feed(range(25), range(15))
        live.feed(range(25, 55))
        assert live.ends("rows") == [1.0]
        live.engine._core.pipelines["ads"].last_rows -= 3_700_000_000
        live.engine._rounds.follow()
        live.engine.await_idle()
        assert seconds(live.engine.stream("ads").watermark) == 5.4
        assert live.rows("left") == plain(LEFT, range(55), range(15), closed=5)
        # 10 of these 40 rows are of windows that are closed by now: they are late, and change no answer.
        live.feed(ads_=range(40, 80))
        live.feed(range(55, 75))
        assert live.engine.stream("ads").late_rows == 10
        assert live.engine.query("rows").status().late_rows == 10
        assert live.ends("rows") == [1.0, 2.0, 6.0, 7.0]
        live.restart()
        assert seconds(live.engine.stream("ads").watermark) == 7.9
        live.engine.stop()


def test_an_answer_is_read_in_pages_by_any_engine_and_keeps_its_buckets(
    live: Live, plain: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_log, "PAGE_ROWS", 4)
    query = live.engine.create_query(ROWS, id="rows")
    live.feed(range(25), range(25))
    whole = plain(ROWS, range(25), range(25), closed=2)
    pages: list[Answer] = []
    cursor: str | None = None
    while len(pages) < 3:
        page = query.read(cursor, limit=1)
        pages += page.answers
        cursor = page.cursor
    assert [(a.offset, a.table.num_rows) for a in pages[:2]] == [(0, 4), (4, 4)]
    assert {a.total_rows for a in pages if a.window_end == pages[0].window_end} == {whole_rows(whole, 1.0)}
    # Later batches bring the frontier forward: nobody but the unread answer needs the first batch's buckets any more.
    live.feed(range(25, 55), range(25, 55))
    live.engine._core.tidy(retention=HOUR, dead_letters=HOUR)
    engine = live.restart()
    pages += list(engine.query("rows").read(cursor, limit=1).answers)
    cursor = pages[-1].cursor
    while found := engine.query("rows").read(cursor).answers:
        pages += found
        cursor = pages[-1].cursor
    assert sorted_rows(pa.concat_tables([a.table for a in pages])) == plain(ROWS, range(55), range(55), closed=5)
    for answer, after in itertools.pairwise(pages):
        ended = answer.offset + answer.table.num_rows == answer.total_rows
        assert after.offset == (0 if ended else answer.offset + answer.table.num_rows)


def whole_rows(rows: list[tuple[object, ...]], end: float) -> int:
    return sum(1 for row in rows if row[-1] == datetime.fromtimestamp(end, UTC))


def buckets(home: Path) -> set[Path]:
    return {path for path in (home / "buckets").rglob("*") if path.is_file()}


def test_buckets_of_unread_answers_go_when_the_answers_expire(live: Live) -> None:
    query = live.engine.create_query(ROWS, id="rows")
    live.feed(range(25), range(25))
    before = buckets(live.home)
    assert before
    live.feed(range(25, 55), range(25, 55))
    live.engine._core.tidy(retention=HOUR, dead_letters=HOUR)
    assert before <= buckets(live.home)
    assert live.rows("rows")
    query.delete()
    live.engine.await_idle()
    live.engine._core.tidy(retention=-10_000_000, dead_letters=HOUR)
    assert not buckets(live.home)
    assert not list((live.home / "answers").iterdir())
    named = live.engine._core.metastore.referenced_files()
    assert set(live.engine._core.home.files()) <= named


# Combinations of values on each side of a join without equality: their product is over the limit on pairs.
MANY = 7500


def test_a_join_of_too_many_pairs_fails_alone_with_its_reason(live: Live, plain: Callable[..., Any]) -> None:
    wide = SOURCES.replace("'1 second'", "'1 hour'")
    theta = f"{wide}SELECT COUNT(*) AS n FROM p JOIN a ON p.w = a.w AND p.price > a.cost GROUP BY p.w"
    live.engine.create_query(theta, id="theta")
    live.engine.create_query(TOTALS, id="totals")
    live.feed(range(MANY), range(MANY))
    live.feed(range(36_000, 36_015), range(36_000, 36_015))
    failed = live.engine.query("theta").status()
    assert failed.state == "failed"
    assert (failed.reason or "").startswith("LIMIT_EXCEEDED: ")
    assert "combinations of values, more than the limit of 50000000" in (failed.reason or "")
    assert live.engine.query("totals").status().state == "running"
    live.feed(range(36_015, 36_035), range(36_015, 36_035))
    hour = datetime.fromtimestamp(3600, UTC)
    assert [r for r in live.rows("totals") if r[-1] < hour] == plain(TOTALS, range(MANY), range(MANY), closed=750)  # type: ignore[operator]
    assert live.ends("totals")[-3:] == [3601.0, 3602.0, 3603.0]
    assert live.engine.status().error is None


def test_the_summary_of_a_replay_has_the_reason_of_a_query_that_was_stopped(
    spark: SparkSession, tmp_path: Path
) -> None:
    drop_file(tmp_path / "purchases", "a", purchases(0, MANY))
    drop_file(tmp_path / "ads", "a", ads(0, MANY))
    wide = SOURCES.replace("'1 second'", "'1 hour'")
    theta = f"{wide}SELECT COUNT(*) AS n FROM p JOIN a ON p.w = a.w AND p.price > a.cost GROUP BY p.w"
    streams = {n: {"path": str(tmp_path / n), "time": "time", "lateness": "0 seconds"} for n in ("purchases", "ads")}
    queries = [{"id": "theta", "sql": theta}, {"id": "totals", "sql": TOTALS}]
    spec = {"batch_rows": MANY, "streams": streams, "queries": queries}
    found = millstream.replay(spec, tmp_path / "out", spark=spark)["queries"]
    assert "more than the limit of 50000000" in found["theta"]["stopped"]
    assert found["totals"]["answer_rows"] > 0
    assert "stopped" not in found["totals"]


DIFFERING = SOURCES.replace("'1 second'", "'2 seconds'", 1)
SIX = " JOIN ".join(["p", *(f"a a{n} ON a{n}.w = p.w" for n in range(5))])


@pytest.fixture(scope="module")
def wrong(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """One engine for all wrong joins: it goes on after each of them."""
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "home").mkdir()
    live = Live(spark, folder / "home", folder)
    yield live.engine
    live.engine.stop()


@pytest.mark.parametrize(
    ("sql", "code", "underlined", "hint"),
    [
        (f"{SOURCES}SELECT p.price FROM p JOIN a USING (gem_pack)", "NO_COMMON_WINDOW", "JOIN a", "ON p.w = a.w"),
        (f"{DIFFERING}SELECT p.price FROM p JOIN a {ON}", "BAD_WINDOW", "window(time, '1 second')", "the same size"),
        (
            f"{SOURCES}SELECT p.price FROM p JOIN a ON p.w = a.w AND p.time = a.cost",
            "SQL_TYPE",
            "p.time = a.cost",
            "cast one side",
        ),
        (f"{SOURCES}SELECT p.price FROM {SIX}", "UNSUPPORTED", "JOIN", "at most 5 streams"),
        (f"{SOURCES}SELECT gem_pack FROM p JOIN a {ON}", "SQL_ANALYSIS", "gem_pack", "a.gem_pack or p.gem_pack"),
    ],
    ids=["no common window", "differing windows", "types", "six streams", "ambiguous"],
)
def test_wrong_joins_are_refused_with_place_and_form(
    wrong: Engine, sql: str, code: str, underlined: str, hint: str
) -> None:
    with pytest.raises(MillstreamError) as refused:
        wrong.create_query(sql)
    error = refused.value
    assert error.position is not None
    assert (error.code, sql[error.position.start : error.position.stop]) == (code, underlined)
    assert hint in (error.hint or "")
    assert wrong.queries() == []
