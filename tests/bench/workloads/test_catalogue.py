"""Every workload of the catalogue: queries that Millstream accepts, answers that are plain Spark's, the same for a
seed."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.oracle.compare import difference

import millstream
from millstream.bench.driving.model import QuerySpec, StreamSpec
from millstream.bench.workloads.catalogue import WORKLOADS, find
from millstream.bench.workloads.load import Workload
from millstream.errors import SpecError
from millstream.model.stream import Stream
from millstream.runtime.analyzer import SparkAnalyzer
from millstream.sources.generators import generator_from
from millstream.sources.schema import parse_ddl
from millstream.sql.frontend import FrontEnd

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = list(WORKLOADS.values())
# Queries of a workload that are looked at.
LOOKED_AT = 60
# Of each workload, so many are given to Spark's analyzer, which takes its time.
COMPILED = 12

each = pytest.mark.parametrize("workload", ALL, ids=lambda workload: workload.name)


def queries_of(workload: Workload, count: int = LOOKED_AT) -> list[QuerySpec]:
    return list(islice(workload.draw(workload.seed), count))


@each
def test_the_same_seed_makes_the_same_load(workload: Workload) -> None:
    load = workload.make(7, 60.0)
    assert load == workload.make(7, 60.0)
    every = [*load.initial, *(query for request in load.requests for query in request.create)]
    assert len({query.id for query in every}) == len(every) > 0


@each
def test_fewer_queries_are_the_beginning_of_more(workload: Workload) -> None:
    few, many = (workload.make(7, 60.0, queries) for queries in (400, 450))
    assert many.initial[: len(few.initial)] == few.initial


@pytest.mark.parametrize(
    "name", ["astream-static", "astream-join-static", "astream-complex", "ajoin-20", "gaming-many"]
)
def test_another_seed_draws_other_queries(name: str) -> None:
    workload = find(name)
    assert [q.sql for q in workload.make(7, 60.0).initial] != [q.sql for q in workload.make(8, 60.0).initial]


@each
def test_the_streams_share_the_rate(workload: Workload) -> None:
    assert sum(stream.share for stream in workload.streams) == pytest.approx(1.0)


@each
def test_the_text_of_a_stream_is_a_generator_of_its_columns(workload: Workload) -> None:
    for stream in workload.streams:
        generator = generator_from(stream.generator)
        assert generator.fields == parse_ddl(stream.schema)
        assert generator.describe().items() >= stream.generator.items()
        assert stream.generator.keys().isdisjoint(("rate", "density", "seed", "start"))


def test_known_workloads() -> None:
    """(initial queries, at last)"""
    expected = {
        "astream-single": (1, 1),
        "astream-sc1-1": (1, 20),
        "astream-sc1-10": (1, 60),
        "astream-sc1-100": (1, 1000),
        "astream-sc2-50": (50, 50),
        "astream-churn": (1000, 1000),
        "astream-churn-800": (1000, 1000),
        "astream-double": (100, 200),
        "ajoin-500": (500, 500),
        "gaming-many-join": (20, 20),
        "nexmark-hppa-30": (30, 30),
        "nexmark-adhoc-10-10-5-20": (20, 30),
    }
    for name, (initial, last) in expected.items():
        load = find(name).make(1, 120.0)
        change = sum(len(request.create) - len(request.delete) for request in load.requests)
        assert (len(load.initial), len(load.initial) + change) == (initial, last), name


@pytest.mark.parametrize("count", [1, 20, 100])
def test_filtered_joins_have_a_predicate_on_each_source(count: int) -> None:
    workload = find(f"ajoin-filtered-{count}")
    queries = workload.make(workload.seed, 10.0).initial
    assert len(queries) == count
    assert all(query.sql.count("WHERE") == 2 and "GROUP BY" not in query.sql for query in queries)


@pytest.mark.parametrize("name", ["astream-single", "astream-join-single", "ajoin-1", "gaming-sum", "nexmark-hotcat"])
def test_every_system_can_be_asked_the_single_queries(name: str) -> None:
    (query,) = find(name).make(find(name).seed, 10.0).initial
    assert query.flink is not None


def test_similarity_is_what_was_asked_for() -> None:
    for percent in (0, 25, 50, 100):
        for query in queries_of(find(f"ajoin-similar-{percent}")):
            sources = re.findall(r" FROM (s\d)\)", query.sql)
            joined = re.search(r" ON s1\.(a\d) = s2\.(a\d) ", query.sql)
            assert joined is not None
            common = [source == place for source, place in zip(sources, ("s1", "s2"), strict=True)]
            attributes = [name == "a1" and same for name, same in zip(joined.groups(), common, strict=True)]
            assert sum(common) * sum(attributes) / 4 == percent / 100


def test_queries_read_the_streams_that_their_texts_name_as_sources() -> None:
    """Aliases of a join of two of five streams are names of others."""
    for percent, numbers in ((0, {2}), (25, {2}), (100, {2})):
        workload = find(f"ajoin-similar-{percent}")
        for query in queries_of(workload):
            sources = set(re.findall(r" FROM (s\d)\)", query.sql))
            assert {one.name for one in workload.streams if query.reads(one)} == sources
            assert len(sources) in numbers
            assert query.share(workload.streams) == pytest.approx(0.4)


@each
def test_every_query_reads_a_stream_of_its_workload(workload: Workload) -> None:
    assert all(query.share(workload.streams) > 0 for query in queries_of(workload))


def test_one_row_is_shared_by_the_given_part_of_the_queries() -> None:
    for percent in (5, 25, 50, 75):
        for query in queries_of(find(f"ajoin-shared-{percent}"), 20):
            for low, high in re.findall(r"BETWEEN (\d+) AND (\d+)", query.sql):
                assert (int(high) - int(low) + 1) / 500 == percent / 100


def test_selective_joins_keep_the_given_part_of_each_side() -> None:
    for percent in (10, 50, 90):
        for query in queries_of(find(f"ajoin-selective-{percent}"), 20):
            ranges = re.findall(r"BETWEEN (\d+) AND (\d+)", query.sql)
            assert len(ranges) == 2
            assert "GROUP BY" not in query.sql
            assert {(int(high) - int(low) + 1) / 500 for low, high in ranges} == {percent / 100}


def test_complex_queries_join_one_to_five_streams() -> None:
    numbers = [query.sql.count("JOIN") + 1 for query in queries_of(find("astream-complex"))]
    assert set(numbers) == {1, 2, 3, 4, 5}


def test_rates() -> None:
    assert find("astream-static").make(1, 80.0).rates == ((0.0, 1.0),)
    assert find("gaming-overload").make(1, 80.0).rates == ((0.0, 1.2),)
    (began, full), (fell, low), (rose, again) = find("gaming-rates").make(1, 80.0).rates
    assert (began, fell, rose) == (0.0, 40.0, 60.0)
    assert (full, low, again) == (1.0, pytest.approx(1 / 3), 1.0)


def test_an_ad_hoc_run_with_numbers_of_its_own() -> None:
    workload = find("nexmark-hotcat-adhoc-3-2-7-4")
    load = workload.make(1, 70.0)
    assert len(load.initial) == 4
    assert load.requests[1].at == 14.0
    assert (len(load.requests[1].create), len(load.requests[1].delete)) == (3, 2)
    assert {query.sql for query in load.initial} == {find("nexmark-hotcat").make(1, 1.0).initial[0].sql}


@pytest.mark.parametrize(
    ("name", "meant"),
    [("nexmark-hpa", "nexmark-hppa"), ("astream-sc2-51", "astream-sc2-50"), ("nexmark-adhoc-1-1-0-1", "nexmark-adhoc")],
)
def test_an_unknown_name_gets_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(SpecError, match=f"no workload '{name}'") as caught:
        find(name)
    assert (caught.value.hint or "").startswith(f"did you mean '{meant}")


@pytest.mark.parametrize(("seconds", "queries", "text"), [(0.0, None, "0.0 seconds"), (10.0, 0, "0 queries")])
def test_a_run_has_time_and_queries(seconds: float, queries: int | None, text: str) -> None:
    with pytest.raises(SpecError, match=text):
        find("astream-static").make(1, seconds, queries)


@pytest.mark.slow
def test_millstream_accepts_every_query(spark: SparkSession) -> None:
    """With the windows that the catalogue says they have."""
    analyzer = SparkAnalyzer(spark)
    asked: set[tuple[object, str]] = set()
    for workload in ALL:
        streams = {s.name: Stream(s.name, parse_ddl(s.schema), "time", 0) for s in workload.streams}
        queries = {query.sql: query for query in queries_of(workload, COMPILED)}
        new = [query for sql, query in queries.items() if (tuple(streams.items()), sql) not in asked]
        asked |= {(tuple(streams.items()), query.sql) for query in new}
        for stream in streams.values():
            analyzer.register(stream)
        front = FrontEnd(analyzer, lambda streams=streams: streams)
        for query in new:
            compiled = front.compile(query.sql)
            window = (compiled.window.size, compiled.window.slide) if compiled.window else (0, 0)
            assert window == (query.length, query.slide), (workload.name, query.sql)
    analyzer.close()
    assert len(asked) > 200


DENSITY = 1000
SECONDS = 21
# Queries, and what is changed so that rows meet although there are few.
CASES: dict[str, tuple[int, dict[str, str]]] = {
    "nexmark-adhoc-10-10-5-20": (4, {"open_auctions": "100"}),
    "basic-map": (1, {}),
    "basic-join": (1, {}),
    "gaming-many": (3, {}),
    "gaming-large": (1, {}),
    "gaming-skew": (1, {}),
    "gaming-many-join": (4, {"users": "300"}),
    "astream-sc2-10": (5, {}),
    "astream-join-static": (2, {}),
    "astream-complex": (6, {"keys": "100"}),
    "ajoin-similar-25": (2, {}),
    "ajoin-selective-50": (2, {}),
    "ajoin-shared-50": (2, {}),
}


@pytest.fixture
def plain(spark: SparkSession) -> Callable[[dict[str, pa.Table]], Callable[[str], pa.Table]]:
    """Plain Spark over tables."""

    def over(tables: dict[str, pa.Table]) -> Callable[[str], pa.Table]:
        session = spark.newSession()
        for name, table in tables.items():
            session.createDataFrame(table).createOrReplaceTempView(name)
        return lambda sql: session.sql(sql).toArrow()

    return over


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_answers_are_those_of_plain_spark(
    spark: SparkSession, plain: Callable[..., Callable[[str], pa.Table]], tmp_path: Path, name: str
) -> None:
    workload, (count, changes) = find(name), CASES[name]
    tables = {stream.name: some_rows(stream, changes) for stream in workload.streams}
    queries = queries_of(workload, count)
    spec = {
        "batch_rows": DENSITY * 3,
        "streams": {
            stream: {"path": written(table, tmp_path / stream), "time": "time"} for stream, table in tables.items()
        },
        "queries": [{"id": query.id, "sql": query.sql} for query in queries],
    }
    summary = millstream.replay(spec, tmp_path / "out", spark=spark)
    ask, found = plain(tables), 0
    for query in queries:
        assert "error" not in summary["queries"][query.id], summary["queries"][query.id]
        answers = pq.ParquetFile(tmp_path / "out" / f"{query.id}.parquet").read()
        for text in {query.sql, query.plain or query.sql}:
            assert difference(ask(text), answers) is None, text
        found += answers.num_rows
    assert found > 0


def some_rows(stream: StreamSpec, changes: dict[str, str]) -> pa.Table:
    """As many as fall to the stream; streams have seeds of their own."""
    seed, density = zlib.crc32(stream.name.encode()), round(DENSITY * stream.share)
    generator = generator_from(stream.generator | changes | {"seed": str(seed), "density": str(density)})
    return generator.generate(0, SECONDS * density)


def written(table: pa.Table, folder: Path) -> str:
    folder.mkdir()
    pq.write_table(table, folder / "rows.parquet")
    return str(folder)


@pytest.mark.slow
def test_streaming_spark_takes_its_own_text_of_the_hottest_category(
    spark: SparkSession, plain: Callable[..., Callable[[str], pa.Table]], tmp_path: Path
) -> None:
    """It refuses the ranking; what it answers of the closed windows is the same."""
    workload = find("nexmark-hotcat")
    (query,) = queries_of(workload, 1)
    assert query.plain is not None
    session = spark.newSession()
    tables = {stream.name: some_rows(stream, {"open_auctions": "100"}) for stream in workload.streams}
    for stream in workload.streams:
        rows = session.readStream.schema(stream.schema).parquet(written(tables[stream.name], tmp_path / stream.name))
        rows.withWatermark("time", "0 seconds").createOrReplaceTempView(stream.name)
    running = (
        session.sql(query.plain)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start(str(tmp_path / "out"))
    )
    try:
        running.processAllAvailable()
    finally:
        running.stop()
    closed = session.read.parquet(str(tmp_path / "out")).toArrow()
    whole = plain(tables)(query.sql)
    # The last window is still open.
    assert closed.num_rows == whole.num_rows - 1
    assert set(map(str, closed.to_pylist())) <= set(map(str, whole.to_pylist()))
