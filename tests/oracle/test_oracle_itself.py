"""An oracle that cannot fail is worth nothing: it must agree with itself, and see each of a list of mistakes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from .compare import difference, rows_of
from .expected import Expected, Oracle, late_rows_of_stream
from .expressions import Sql, same
from .queries import Item, QueryCase, WindowCase
from .shrink import shrink
from .streams import StreamCase
from .verdict import Engine, mismatches, report
from .workload import Case, Workload

SECOND = 1_000_000
# Workloads with late rows, deleted queries and queries created later.
SEEDS = (12, 13)

Change = Callable[[Workload], Workload]


def pretending(oracle: Oracle, workload: Workload, change: Change) -> Engine:
    """An engine that answers as plain Spark does, but for a changed workload."""

    def run(spec: dict[str, Any], out: Path) -> object:
        out.mkdir()
        expected = answers_of(oracle, workload, change(workload))
        for id, answer in expected.items():
            pq.write_table(answer.table, out / f"{id}.parquet")
        summary = {
            "streams": {s.name: facts_of(s, workload) for s in workload.streams},
            "queries": {
                id: {"answer_rows": a.table.num_rows, "late_rows": a.late_rows, "windows_fired": a.windows}
                for id, a in expected.items()
            },
        }
        return (out / "summary.json").write_text(json.dumps(summary))

    return run


def answers_of(oracle: Oracle, workload: Workload, changed: Workload) -> dict[str, Expected]:
    """The answers of the changed workload; only queries that differ are asked again."""
    if changed.streams is not workload.streams:
        return oracle.expected(changed)
    known = oracle.expected(workload)
    differ = tuple(new for old, new in zip(workload.queries, changed.queries, strict=True) if new != old)
    return known | (oracle.expected(replace(changed, queries=differ)) if differ else {})


def facts_of(stream: StreamCase, workload: Workload) -> dict[str, int]:
    rejected = sum(time is None for time in stream.times())
    return {"rows_in": stream.rows, "rejected_rows": rejected, "late_rows": late_rows_of_stream(stream, workload)}


def each_stream(change: Callable[[StreamCase], StreamCase]) -> Change:
    return lambda workload: replace(workload, streams=tuple(change(s) for s in workload.streams))


def each_query(change: Callable[[Case], Case]) -> Change:
    return lambda workload: replace(workload, queries=tuple(change(q) for q in workload.queries))


def shifted(query: Case) -> Case:
    window = query.window
    return replace(query, window=replace(window, offset=(window.offset + 1_000) % window.slide)) if window else query


MISTAKES: dict[str, Change] = {
    "a row is lost": each_stream(lambda s: s.without(s.rows // 2, 1)),
    "a row comes twice": each_stream(lambda s: replace(s, table=pa.concat_tables([s.table.slice(0, 1), s.table]))),
    "windows are shifted": each_query(shifted),
    "late rows are kept": each_stream(lambda s: replace(s, lateness=10**15)),
    "too many rows are late": each_stream(lambda s: replace(s, lateness=0)),
    "WHERE is ignored": each_query(lambda q: replace(q, where=None)),
    "HAVING is ignored": each_query(lambda q: replace(q, having=None)),
    "the cut begins with the next batch": each_query(lambda q: replace(q, create_at=q.create_at + 1)),
    "queries see what came before them": each_query(lambda q: replace(q, create_at=0)),
    "deleted queries go on": each_query(lambda q: replace(q, delete_at=None)),
}


class Remembering(Oracle):
    """Answers the same workload object only once: ten mistakes are held against the same truth."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark)
        self.known: list[tuple[Workload, dict[str, Expected]]] = []

    def expected(self, workload: Workload) -> dict[str, Expected]:
        for known, answers in self.known:
            if known is workload:
                return answers
        self.known.append((workload, super().expected(workload)))
        return self.known[-1][1]


@pytest.fixture(scope="module")
def oracle(spark: SparkSession) -> Oracle:
    return Remembering(spark)


@pytest.fixture(scope="module")
def honest() -> list[Workload]:
    return [Workload.from_seed(seed, queries=12) for seed in SEEDS]


def test_an_honest_engine_passes(oracle: Oracle, honest: list[Workload]) -> None:
    for workload in honest:
        assert mismatches(workload, oracle, pretending(oracle, workload, lambda w: w)) == []


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_seen(oracle: Oracle, honest: list[Workload], mistake: str) -> None:
    found = []
    for workload in honest:
        found += mismatches(workload, oracle, pretending(oracle, workload, MISTAKES[mistake]))
    assert any("rows, expected" in mismatch.text for mismatch in found)


@pytest.mark.parametrize("seed", [11, 104])
def test_the_twin_is_the_text_wherever_the_text_runs(oracle: Oracle, seed: int) -> None:
    """The rewriting into ``try_`` forms must not change what Spark answers without it."""
    drawn = Workload.from_seed(seed)
    on_time = tuple(replace(s, lateness=10**15, table=with_time(s)) for s in drawn.streams)
    workload = replace(
        drawn, streams=on_time, queries=tuple(replace(q, create_at=0, delete_at=None) for q in drawn.queries)
    )
    expected = oracle.expected(workload)
    compared = 0
    for stream in workload.streams:
        oracle.frame(stream.table).coalesce(1).createOrReplaceTempView(stream.name)
    for query in workload.queries:
        try:
            plain = oracle.spark.sql(query.sql).toArrow()
        except PySparkException:
            continue
        compared += 1
        assert difference(plain, expected[query.id].table, query.bounds) is None, query.sql
    assert compared > len(workload.queries) // 3


def with_time(stream: StreamCase) -> pa.Table:
    return stream.table.filter(stream.table.column(stream.time_name).is_valid())


def hand_made(times: list[int], batch_rows: int, lateness: int, query: QueryCase) -> Workload:
    table = pa.table(
        {"v": pa.array(range(len(times)), pa.int32()), "ts": pa.array(times).cast(pa.timestamp("us", tz="UTC"))}
    )
    stream = StreamCase("s0", "ts", "timestamp", (), table, batch_rows, lateness, 0, 100 * SECOND, 1)
    return Workload("hand-made", (stream,), (query,))


def sums(size: int, slide: int, create_at: int = 0, delete_at: int | None = None) -> QueryCase:
    items = (Item(Sql("window.end", "@window.end", "timestamp")), Item(same("count(*)", "bigint"), "n"))
    window = WindowCase(size * SECOND, slide * SECOND, 0)
    return QueryCase("q00", "s0", "ts", items, None, window, (), None, create_at, delete_at)


#   seconds       0    1    2    3    4    5    6    7    8
#   batch 0       r0        r1                              watermark afterwards 2
#   batch 1            r2             r3                    r2 is late for every window that ends at 2 or before; then 4
#   batch 2                      r4             r5          r4 is late for windows that end at 4 or before; then 6
TIMES = [0, 2 * SECOND, 1 * SECOND, 4 * SECOND, 3 * SECOND, 6 * SECOND]


@pytest.mark.parametrize(
    ("query", "answers", "late"),
    [
        # Tumbling by 2: r2 is late for [0, 2), r4 for [2, 4).
        (sums(2, 2), {2: 1, 4: 1, 6: 1, 8: 1}, 2),
        # Sliding by 2 over 4: r2 still counts in [0, 4), r4 in [2, 6).
        (sums(4, 2), {2: 1, 4: 3, 6: 3, 8: 2, 10: 1}, 2),
        # From batch 1 on: [0, 2) is closed already; r0 and r1 are not seen.
        (sums(4, 2, create_at=1), {4: 1, 6: 2, 8: 2, 10: 1}, 2),
        # Deleted before batch 2: only what batches 0 and 1 have closed (4 and below).
        (sums(4, 2, delete_at=2), {2: 1, 4: 3}, 1),
        # Deleted before any window has closed.
        (sums(8, 8, delete_at=1), {}, 0),
    ],
)
def test_late_rows_and_lives_by_hand(oracle: Oracle, query: QueryCase, answers: dict[int, int], late: int) -> None:
    expected = oracle.expected(hand_made(TIMES, 2, 0, query))["q00"]
    assert {end // SECOND: count for end, count in rows_of(expected.table)} == answers
    assert expected.late_rows == late
    assert expected.windows == len(answers)


def test_failures_shrink_and_the_report_says_how_to_repeat_them(oracle: Oracle) -> None:
    workload = Workload.from_seed(SEEDS[1])
    lose = MISTAKES["WHERE is ignored"]

    def found(smaller: Workload) -> bool:
        return bool(mismatches(smaller, oracle, pretending(oracle, smaller, lose)))

    smallest = shrink(workload, found, attempts=15)
    assert len(smallest.queries) == 1
    text = report(workload, smallest, mismatches(smallest, oracle, pretending(oracle, smallest, lose)), oracle)
    assert f"ORACLE_SEED={workload.token} make oracle N=1" in text
    assert smallest.queries[0].sql in text
