"""What the oracle says of joins: it sees each of a list of mistakes, and agrees with joins worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from .compare import rows_of
from .expected import Oracle
from .expressions import same
from .joins import JoinCase, Joined, LegCase, each_join
from .queries import Item, WindowCase
from .streams import StreamCase
from .test_oracle_itself import SECOND, Change, Remembering, each_query, each_stream, pretending
from .verdict import mismatches
from .workload import Case, Workload

# Workloads with late rows, deleted joins, NULL keys and joins of all kinds.
SEEDS = (5, 207)


def each_join_query(change: Callable[[JoinCase], JoinCase]) -> Change:
    def changed(query: Case) -> Case:
        return change(query) if isinstance(query, JoinCase) else query

    return each_query(changed)


def joined(change: Callable[[Joined], Joined]) -> Change:
    return each_join_query(lambda query: replace(query, tree=each_join(query.tree, change)))


def kinds(**other: str) -> Change:
    """Joins of other kinds, each given by the first word of its own."""
    return joined(lambda join: replace(join, kind=other.get(join.kind.split()[-2:][0], join.kind)))


MISTAKES: dict[str, Change] = {
    "a row is lost": each_stream(lambda s: s.without(s.rows // 2, 1) if s.rows else s),
    "NULL keys match": each_join_query(lambda q: replace(q, operator="<=>")),
    "unmatched rows are dropped": kinds(LEFT="JOIN", RIGHT="JOIN", FULL="JOIN"),
    "unmatched rows of the right are dropped": kinds(FULL="LEFT JOIN"),
    "unmatched rows appear": kinds(INNER="LEFT JOIN"),
    "anti is semi": kinds(ANTI="LEFT SEMI JOIN"),
    "semi is anti": kinds(SEMI="LEFT ANTI JOIN"),
    "conditions of ON are ignored": joined(lambda join: replace(join, conditions=())),
    "only the last attribute is compared": joined(lambda join: replace(join, equal=join.equal[-1:])),
    "WHERE is ignored": each_join_query(lambda q: replace(q, where=None)),
    "conditions on sources are ignored": each_join_query(
        lambda q: replace(q, legs=tuple(replace(leg, where=None) for leg in q.legs))
    ),
    "DISTINCT is ignored": each_join_query(lambda q: replace(q, distinct=False)),
    "one rank too many": each_join_query(
        lambda q: replace(q, ranking=q.ranking and replace(q.ranking, limit=q.ranking.limit + 1))
    ),
    "late rows are kept": each_stream(lambda s: replace(s, lateness=10**15)),
    "deleted joins go on": each_join_query(lambda q: replace(q, delete_at=None)),
}


class OneStreamDecides(Oracle):
    """A mistaken oracle: a deleted join fires what some of its streams have closed."""

    def last_end(self, closed: list[int | None]) -> int:
        return max(mark for mark in closed if mark is not None)


class LateOfOneStream(Oracle):
    """A mistaken oracle: late rows of all streams but the first are kept."""

    def _twin(self, query: Case, streams: list[StreamCase], late: list[int]) -> str:
        return super()._twin(query, streams, [late[0], *(0 for _ in late[1:])])


@pytest.fixture(scope="module")
def oracle(spark: SparkSession) -> Oracle:
    return Remembering(spark)


@pytest.fixture(scope="module")
def honest() -> list[Workload]:
    return [only_joins(Workload.from_seed(seed)) for seed in SEEDS]


def only_joins(workload: Workload) -> Workload:
    return replace(workload, queries=tuple(q for q in workload.queries if isinstance(q, JoinCase)))


def test_an_honest_engine_passes(oracle: Oracle, honest: list[Workload]) -> None:
    for workload in honest:
        assert len(workload.queries) > 5
        assert mismatches(workload, oracle, pretending(oracle, workload, lambda w: w)) == []


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_seen(oracle: Oracle, honest: list[Workload], mistake: str) -> None:
    found = []
    for workload in honest:
        found += mismatches(workload, oracle, pretending(oracle, workload, MISTAKES[mistake]))
    assert any("rows, expected" in mismatch.text for mismatch in found)


#   seconds         0    1    2    3    4    5    6
#   batch 0   a     r0        r1                         watermark of a afterwards 2
#             b     s0   s1                              watermark of b afterwards 1
#   batch 1   a          r2             r3               r2 is late for [0, 2); then 4
#             b          s2                  s3          s2 is not, on b; then 5
#   batch 2   a                    r4             r5     r4 is late for [2, 4); then 6
#             b                    s4 s5                 both are late for [2, 4); still 5
A = [0, 2, 1, 4, 3, 6]
B = [0, 1, 1, 5, 3, 3]


def by_hand(kind: str, create_at: int = 0, delete_at: int | None = None) -> Workload:
    """Rows of a and b in the same window of two seconds, counted by window."""
    at = "coalesce(a.w, b.w)" if kind == "FULL JOIN" else "a.w"
    legs = tuple(LegCase(name, name, "ts", ("v", "ts"), table=f"{name}_rows") for name in ("a", "b"))
    query = JoinCase(
        id="q00",
        legs=legs,
        tree=Joined(kind, 0, 1, tie=("a.w", "b.w")),
        items=(Item(same(f"{at}.end", "timestamp"), "e"), Item(same("count(*)", "bigint"), "n")),
        where=None,
        window=WindowCase(2 * SECOND, 2 * SECOND, 0),
        at=at,
        create_at=create_at,
        delete_at=delete_at,
        grouped=True,
    )
    return Workload("by hand", (stream("a", A), stream("b", B)), (query,))


def stream(name: str, seconds: list[int]) -> StreamCase:
    times = pa.array([second * SECOND for second in seconds]).cast(pa.timestamp("us", tz="UTC"))
    table = pa.table({"v": pa.array(range(len(seconds)), pa.int32()), "ts": times})
    return StreamCase(name, "ts", "timestamp", (), table, 2, 0, 0, 10 * SECOND, 1)


@pytest.mark.parametrize(
    ("workload", "answers", "late"),
    [
        (by_hand("JOIN"), {2: 3, 6: 1}, 4),
        (by_hand("LEFT JOIN"), {2: 3, 4: 1, 6: 1, 8: 1}, 4),
        (by_hand("LEFT ANTI JOIN"), {4: 1, 8: 1}, 4),
        # From batch 1 on: a has closed [0, 2), b has not, so that s2 is alone there.
        (by_hand("FULL JOIN", create_at=1), {2: 1, 6: 1, 8: 1}, 4),
        # Deleted before batch 2: a has closed 4, b 5.
        (by_hand("LEFT JOIN", delete_at=2), {2: 3, 4: 1}, 1),
        # Deleted before batch 1: a has closed 2, b 1.
        (by_hand("LEFT JOIN", delete_at=1), {}, 0),
    ],
)
def test_late_rows_and_lives_by_hand(oracle: Oracle, workload: Workload, answers: dict[int, int], late: int) -> None:
    expected = oracle.expected(workload)["q00"]
    assert {end // SECOND: count for end, count in rows_of(expected.table)} == answers
    assert expected.late_rows == late
    assert expected.windows == len(answers)


@pytest.mark.parametrize(
    ("mistaken", "workload"),
    [(OneStreamDecides, by_hand("LEFT JOIN", delete_at=1)), (LateOfOneStream, by_hand("LEFT JOIN"))],
)
def test_each_stream_counts(oracle: Oracle, spark: SparkSession, mistaken: type[Oracle], workload: Workload) -> None:
    assert mismatches(workload, oracle, pretending(mistaken(spark), workload, lambda w: w))
