"""What joins mean: their normal form, run in DuckDB over a few rows, gives the rows that Spark gives for the text."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest

from millstream.model.expression import Expression
from millstream.model.join import JoinNode, JoinQuery, Tree, leaves_of
from millstream.model.query import WINDOW_END, WINDOW_START, Ranking, aggregate_column, key_column
from millstream.model.stream import Field, Stream
from millstream.model.types import INTEGER, LONG, STRING, TIMESTAMP, TIMESTAMP_NTZ
from millstream.runtime.analyzer import SparkAnalyzer
from millstream.sql.frontend import FrontEnd
from millstream.sql.functions import translate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = 1_000_000
NUMBERS = (Field("k", INTEGER), Field("x", INTEGER), Field("y", LONG), Field("s", STRING))
STREAMS = {
    "one": Stream("one", (Field("t", TIMESTAMP), *NUMBERS), "t", 0),
    "two": Stream("two", (Field("t", TIMESTAMP), *NUMBERS), "t", 0),
    "three": Stream("three", (Field("at", TIMESTAMP_NTZ), *NUMBERS), "at", 0),
}
ROWS = 24
SIZE, SLIDE = 4, 2


def rows_of(stream: Stream, rng: random.Random) -> pa.Table:
    """Few values, so that many rows match, and NULLs among them."""
    arrays = []
    for field in stream.fields:
        if field.name == stream.time:
            values: list[object] = [rng.randrange(9) * SECOND for _ in range(ROWS)]
            arrays.append(pa.array(values, pa.int64()).cast(field.type.arrow))
        elif field.type == STRING:
            arrays.append(pa.array([rng.choice([None, "a", "b"]) for _ in range(ROWS)], field.type.arrow))
        else:
            arrays.append(pa.array([rng.choice([None, 0, 0, 1, 1, 2]) for _ in range(ROWS)], field.type.arrow))
    return pa.table(arrays, names=[field.name for field in stream.fields])


DATA = {name: rows_of(stream, random.Random(name)) for name, stream in STREAMS.items()}


# A join in DuckDB, word by word as the model describes it.


def leg_sql(query: JoinQuery, leg: int) -> str:
    """The rows of a source under columns named by leg, once for each of their windows."""
    source = query.legs[leg]
    stream = STREAMS[source.stream]
    columns = [f'"{field.name}" AS "{leg}.{field.name}"' for field in stream.fields]
    windows = [f'"#s" AS "{leg}.{WINDOW_START}"', f'"#s" + INTERVAL {SIZE} SECOND AS "{leg}.{WINDOW_END}"']
    first = f'epoch_us("{stream.time}") // {SLIDE * SECOND} * {SLIDE * SECOND}'
    starts = ", ".join(f"make_timestamp({first} - {n * SLIDE * SECOND})" for n in range(SIZE // SLIDE))
    unnested = f'SELECT *, unnest([{starts}]) AS "#s" FROM "{source.stream}" WHERE {condition_sql(source.where)}'
    return f"(SELECT {', '.join(columns + windows)} FROM ({unnested}))"


def condition_sql(condition: Expression | None) -> str:
    return "TRUE" if condition is None else translate(condition)


def present_start(tree: Tree) -> str:
    """The window of a part's rows: that of any source which is there."""
    starts = [f'"{leg}.{WINDOW_START}"' for leg in visible(tree)]
    return f"coalesce({', '.join(starts)})"


def visible(tree: Tree) -> tuple[int, ...]:
    if isinstance(tree, JoinNode) and tree.kind in ("semi", "anti"):
        return visible(tree.left)
    return leaves_of(tree) if isinstance(tree, int) else (*visible(tree.left), *visible(tree.right))


def tree_sql(query: JoinQuery, tree: Tree) -> str:
    if isinstance(tree, int):
        return leg_sql(query, tree)
    on = [f"{present_start(tree.left)} = {present_start(tree.right)}"]
    on += [f"{translate(one)} = {translate(two)}" for one, two in tree.equal]
    on.append(condition_sql(tree.residual))
    left, right = tree_sql(query, tree.left), tree_sql(query, tree.right)
    return f"(SELECT * FROM {left} {tree.kind} JOIN {right} ON {' AND '.join(on)})"


def query_sql(query: JoinQuery) -> str:
    rows = f"SELECT * FROM {tree_sql(query, query.tree)} WHERE {condition_sql(query.where)}"
    if query.grouped:
        rows = grouped_sql(query, rows)
    if query.ranking:
        rows = ranked_sql(query.ranking, rows)
    outputs = [f'{translate(output.expression)} AS "c{at}"' for at, output in enumerate(query.outputs)]
    return f"SELECT {', '.join(outputs)} FROM ({rows})"


def grouped_sql(query: JoinQuery, rows: str) -> str:
    start = present_start(query.tree)
    items = [f'{start} AS "{WINDOW_START}"', f'{start} + INTERVAL {SIZE} SECOND AS "{WINDOW_END}"']
    items += [f'{translate(key)} AS "{key_column(at)}"' for at, key in enumerate(query.keys)]
    for at, one in enumerate(query.aggregates):
        call = f"{one.function}({'*' if one.argument is None else translate(one.argument)})"
        items.append(f'CAST({call} AS {one.type.duck}) AS "{aggregate_column(at)}"')
    groups = ", ".join(str(at + 1) for at in range(2 + len(query.keys)))
    return (
        f"SELECT * FROM (SELECT {', '.join(items)} FROM ({rows}) GROUP BY {groups}) WHERE {condition_sql(query.having)}"
    )


def ranked_sql(ranking: Ranking, rows: str) -> str:
    partition = ", ".join([f'"{WINDOW_START}"', *map(translate, ranking.partition)])
    orders = []
    for one in ranking.order:
        nulls = "FIRST" if one.nulls_first else "LAST"
        orders.append(f"{translate(one.expression)} {'ASC' if one.ascending else 'DESC'} NULLS {nulls}")
    over = f"{ranking.function}() OVER (PARTITION BY {partition} ORDER BY {', '.join(orders) or '1'})"
    ranked = f'SELECT *, CAST({over} AS INTEGER) AS "#rank" FROM ({rows})'
    return f'SELECT * FROM ({ranked}) WHERE "#rank" <= {ranking.limit}'


def in_duckdb(query: JoinQuery) -> Counter[tuple[object, ...]]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, table in DATA.items():
            naive = [c.cast(pa.timestamp("us")) if pa.types.is_timestamp(c.type) else c for c in table.columns]
            connection.register(name, pa.table(naive, names=table.column_names))
        return Counter(plain(row) for row in connection.execute(query_sql(query)).fetchall())


def plain(row: object) -> tuple[object, ...]:
    """A row with windows as tuples and timestamps without zone."""
    assert isinstance(row, tuple)
    return tuple(
        plain(tuple(value.values())) if isinstance(value, dict)
        else plain(tuple(value)) if isinstance(value, tuple)
        else value.replace(tzinfo=None) if isinstance(value, dt.datetime)
        else value
        for value in row
    )  # fmt: skip


@pytest.fixture(scope="module")
def front(spark: SparkSession) -> Iterator[FrontEnd]:
    analyzer = SparkAnalyzer(spark)
    for stream in STREAMS.values():
        analyzer.register(stream)
    for name, table in DATA.items():
        spark.createDataFrame(table).createOrReplaceTempView(name)
    yield FrontEnd(analyzer, lambda: STREAMS)
    for name in STREAMS:
        analyzer.unregister(name)
        spark.catalog.dropTempView(name)


def in_spark(spark: SparkSession, sql: str) -> Counter[tuple[object, ...]]:
    table = spark.sql(sql).toArrow()
    columns = [column.to_pylist() for column in table.columns]
    return Counter(plain(row) for row in zip(*columns, strict=True))


def check(front: FrontEnd, spark: SparkSession, sql: str) -> None:
    query = front.compile(sql)
    assert isinstance(query, JoinQuery)
    assert in_duckdb(query) == in_spark(spark, sql), sql


# Texts.


def cte(name: str, stream: str, where: str = "TRUE", extra: str = "") -> str:
    time = STREAMS[stream].time
    return (
        f"{name} AS (SELECT *, x + 1 AS x1, coalesce(x, 7) AS c, 5 AS five{extra}, "
        f"window({time}, '{SIZE} seconds', '{SLIDE} seconds') AS w FROM {stream} WHERE {where})"
    )


WITH = f"WITH {cte('a', 'one')}, {cte('b', 'two', 'x IS NULL OR x < 2')}, {cte('d', 'three', 'k IS NOT NULL')} "

TEXTS = [
    "SELECT a.k, b.x, a.w FROM a JOIN b ON a.k = b.k AND a.w = b.w WHERE a.x > 0 AND b.y < a.y",
    "SELECT * FROM a JOIN b USING (k, w)",
    "SELECT a.k, b.k, w FROM a FULL JOIN b USING (k, w)",
    "SELECT *, a.w.start, b.w.end FROM a FULL JOIN b USING (k, w)",
    "SELECT b.five, b.c, b.x1, b.w, b.w.start FROM a LEFT JOIN b ON a.w = b.w AND a.k = b.k AND b.x = 1 AND a.x > 0",
    "SELECT a.five, b.five, a.c, b.c FROM a FULL JOIN b ON a.w = b.w AND a.k = b.k AND b.x = 1 AND a.x > 0",
    "SELECT a.five, b.five FROM a RIGHT JOIN b ON a.w = b.w AND a.k = b.k AND b.x = 1 AND a.x > 0 WHERE b.y = 1",
    "SELECT a.k FROM a LEFT JOIN b ON a.w = b.w AND a.k = b.k WHERE b.w IS NULL",
    "SELECT a.k FROM a LEFT JOIN b ON a.w = b.w WHERE b.five IS NULL OR b.w.start IS NOT NULL AND b.x = a.x",
    "SELECT a.k, b.k FROM a FULL JOIN b ON a.w = b.w AND a.k = b.k WHERE a.w IS NULL OR b.w IS NULL",
    "SELECT a.k FROM a LEFT SEMI JOIN b ON a.w = b.w AND a.k = b.k AND a.x > 0 AND b.x = 1 AND a.y < b.y",
    "SELECT a.k, w FROM a LEFT ANTI JOIN b USING (k, w) WHERE a.x >= 0",
    "SELECT a.k FROM a LEFT ANTI JOIN b ON a.w = b.w AND a.x > 0 AND a.k = b.k",
    "SELECT p.k, q.x FROM a p, a q WHERE p.w.end = q.w.end AND p.k = q.x AND p.y <=> q.y",
    "SELECT a.k, d.k FROM d, b, a WHERE a.k = d.x AND d.w = a.w AND b.w = a.w AND b.k = d.k AND a.x + b.x = d.x",
    "SELECT 1 FROM a LEFT JOIN b ON a.w = b.w AND a.k = b.k LEFT JOIN d ON b.w = d.w AND a.x = d.x",
    "SELECT a.x, d.x FROM a LEFT JOIN b ON a.w = b.w AND a.k = b.k JOIN d ON b.w = d.w AND a.x = d.x",
    "SELECT a.x, d.x, coalesce(a.w, b.w) FROM a FULL JOIN b USING (w, k) LEFT JOIN d USING (w, k)",
    "SELECT w, k, a.five, d.c FROM a FULL JOIN b USING (w, k) FULL JOIN d USING (w, k)",
    "SELECT a.x, j.y, j.five FROM a LEFT JOIN (SELECT b.y, b.k, d.five, b.w FROM b JOIN d ON b.w = d.w AND b.x = d.x "
    "WHERE b.y + d.y > 0) j ON j.w = a.w AND j.k = a.k",
    "SELECT a.x, j.five FROM a JOIN (SELECT b.w, b.k, d.five FROM b LEFT JOIN d USING (w, x) WHERE d.five = 5) j "
    "ON j.w = a.w AND j.k = a.k AND j.five = 5",
    "SELECT a.x FROM a LEFT JOIN b ON a.w = b.w AND 1 = 0",
    "SELECT a.x FROM a LEFT ANTI JOIN b ON a.w = b.w AND 1 = 0",
    "SELECT a.x, b.x FROM a FULL JOIN b ON a.w = b.w AND 1 = 0 WHERE 1 = 1",
    "SELECT a.x FROM a JOIN b ON a.w = b.w WHERE a.w.start > TIMESTAMP '1970-01-01 00:00:02'",
    "SELECT a.w, b.w, d.w FROM a JOIN b USING (w) JOIN d ON d.w.start = b.w.start AND d.k = b.k AND a.k = d.k",
    "SELECT a.k, a.w.start, sum(b.x), count(*) AS n FROM a JOIN b ON a.k = b.k AND a.w = b.w GROUP BY a.k, a.w "
    "HAVING n > 1",
    "SELECT w, count(*), count(b.five), sum(b.c), max(a.c) FROM a FULL JOIN b USING (k, w) GROUP BY w",
    "SELECT b.five, a.w, count(b.five), min(b.s) FROM a LEFT JOIN b ON a.k = b.k AND a.w = b.w GROUP BY a.w, b.five",
    "SELECT d.w, a.w, d.w.start, count(*) FROM a JOIN d ON a.k = d.k AND a.w = d.w GROUP BY d.w, a.w",
    "SELECT a.w.end, count(*) FROM a JOIN b USING (w, k) WHERE b.w.start > TIMESTAMP '1970-01-01 00:00:02' GROUP BY 1",
    "SELECT a.w, b.w IS NULL, count(*) FROM a LEFT JOIN b USING (w, k) GROUP BY a.w, b.w IS NULL",
    "SELECT DISTINCT a.w, b.x, 3 AS three FROM a JOIN b USING (w, k)",
    "SELECT w.start, sum(v) FROM (SELECT a.w, a.y * b.y AS v FROM a, b WHERE a.w = b.w AND a.k = b.k) GROUP BY w",
    "SELECT a.w, a.s, count(*) AS n FROM a JOIN b USING (w, k) GROUP BY a.w, a.s "
    "QUALIFY rank() OVER (PARTITION BY a.w ORDER BY n DESC) <= 1",
    "SELECT w, s, n, r FROM (SELECT a.w, a.s, count(*) AS n, dense_rank() OVER (PARTITION BY a.w ORDER BY count(*)) "
    "AS r FROM a JOIN b USING (w, k) GROUP BY a.w, a.s HAVING count(*) > 1) WHERE r < 3 AND w IS NOT NULL",
    "SELECT a.w, a.s, a.x, row_number() OVER (PARTITION BY a.w.start, a.s ORDER BY a.x NULLS LAST) AS r "
    "FROM a JOIN b USING (w, k) GROUP BY a.w, a.s, a.x",
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_normal_form_means_the_text(front: FrontEnd, spark: SparkSession, text: str) -> None:
    check(front, spark, WITH + text)


# Random texts.

KINDS = ("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
COLUMNS = ("k", "x", "y", "x1", "c", "five")


def random_text(rng: random.Random) -> str:
    names = rng.sample(["a", "b", "d", "p"], rng.choice([2, 2, 3, 3, 4]))
    sources = {"a": "a", "b": "b", "d": "d", "p": "a AS p"}
    seen, text = [names[0]], sources[names[0]]
    for name in names[1:]:
        kind = rng.choice(KINDS)
        on = [f"{rng.choice(seen)}.w.start = {name}.w.start", f"{rng.choice(seen)}.k = {name}.{rng.choice(COLUMNS)}"]
        on += [random_condition(rng, [*seen, name]) for _ in range(rng.choice([0, 0, 1, 2]))]
        text += f" {kind} {sources[name]} ON {' AND '.join(on)}"
        if "SEMI" not in kind and "ANTI" not in kind:
            seen.append(name)
    conditions = [random_condition(rng, seen) for _ in range(rng.choice([0, 1, 2]))]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    if rng.random() < 0.3:
        return random_grouping(rng, seen, text + where)
    outputs = [f"{name}.{column} AS {name}_{column}" for name in seen for column in rng.sample(COLUMNS, 2)]
    outputs += [f"{name}.w.end AS {name}_end" for name in rng.sample(seen, 1)]
    return f"SELECT {', '.join(outputs)} FROM {text}{where}"


def random_grouping(rng: random.Random, names: list[str], rows: str) -> str:
    """Every row has the window of some source."""
    window = f"coalesce({', '.join(f'{name}.w' for name in names)})" if len(names) > 1 else f"{names[0]}.w"
    key, value, other = (f"{rng.choice(names)}.{rng.choice(COLUMNS)}" for _ in range(3))
    aggregates = f"count(*) AS n, sum({value}) AS s, count({other}) AS m, min({value} + {other}) AS low"
    return f"SELECT {window} AS w, {key} AS g, {aggregates} FROM {rows} GROUP BY 1, 2 HAVING n > 1"


def random_condition(rng: random.Random, names: list[str]) -> str:
    one, two = (f"{rng.choice(names)}.{rng.choice(COLUMNS)}" for _ in range(2))
    forms = (
        f"{one} > {rng.randrange(2)}",
        f"{one} = {two}",
        f"{one} <= {two}",
        f"({one} IS NULL OR {two} = 1)",
        f"{one} IS NOT NULL",
        f"{one} <=> {two}",
    )
    return rng.choice(forms)


@pytest.mark.parametrize("seed", range(25))
def test_random_joins(front: FrontEnd, spark: SparkSession, seed: int) -> None:
    check(front, spark, WITH + random_text(random.Random(seed)))
