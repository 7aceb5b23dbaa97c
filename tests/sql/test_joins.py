"""Joins in the front end: every way to write one, its normal form, the shape cache, and what wrong joins get."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from millstream.errors import SqlError
from millstream.model.codec import dumps, loads
from millstream.model.expression import Column, Expression, Literal
from millstream.model.join import JoinNode, JoinQuery, Tree
from millstream.model.query import LogicalQuery, Ranking, WindowSpec
from millstream.model.stream import Field, Stream
from millstream.model.types import BOOLEAN, INTEGER, LONG, STRING, TIMESTAMP, TIMESTAMP_NTZ, decimal, parse_type
from millstream.runtime.analyzer import SparkAnalyzer
from millstream.sql.frontend import FrontEnd

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = 1_000_000

PURCHASES = Stream(
    "purchases",
    (
        Field("time", TIMESTAMP),
        Field("user_id", LONG),
        Field("gem_pack", INTEGER),
        Field("price", INTEGER),
        Field("amount", decimal(10, 2)),
        Field("name", STRING),
        Field("ok", BOOLEAN),
    ),
    "time",
    0,
)
ADS = Stream(
    "ads",
    (Field("time", TIMESTAMP), Field("user_id", LONG), Field("gem_pack", INTEGER), Field("cost", LONG)),
    "time",
    0,
)
VIEWS = Stream("views", (Field("at", TIMESTAMP_NTZ), Field("uid", INTEGER), Field("vid", LONG)), "at", 0)
STREAMS = {stream.name: stream for stream in (PURCHASES, ADS, VIEWS)}

WINDOW = "window(time, '8 seconds', '4 seconds') AS w"
P = f"p AS (SELECT *, {WINDOW} FROM purchases WHERE price > 10)"
A = f"a AS (SELECT *, {WINDOW} FROM ads)"
V = "v AS (SELECT *, window(at, '8 seconds', '4 seconds') AS w FROM views)"
WITH = f"WITH {P}, {A}, {V} "


class CountingAnalyzer:
    """Spark's analyzer, counting how often it is asked."""

    def __init__(self, analyzer: SparkAnalyzer) -> None:
        self._analyzer = analyzer
        self.asked = 0

    def plan(self, sql: str) -> str:
        self.asked += 1
        return self._analyzer.plan(sql)

    def schema(self, sql: str) -> list[tuple[str, object]]:
        self.asked += 1
        return self._analyzer.schema(sql)


@pytest.fixture(scope="module")
def spark_analyzer(spark: SparkSession) -> Iterator[SparkAnalyzer]:
    analyzer = SparkAnalyzer(spark)
    for stream in STREAMS.values():
        analyzer.register(stream)
    yield analyzer
    for name in STREAMS:
        analyzer.unregister(name)


@pytest.fixture
def analyzer(spark_analyzer: SparkAnalyzer) -> CountingAnalyzer:
    return CountingAnalyzer(spark_analyzer)


@pytest.fixture
def front(analyzer: CountingAnalyzer) -> FrontEnd:
    return FrontEnd(analyzer, lambda: STREAMS)


def show(expression: Expression | None) -> str:
    if expression is None:
        return "*"
    if isinstance(expression, Column):
        return expression.name
    if isinstance(expression, Literal):
        return repr(expression.value)
    kind = f":{expression.type}" if "Cast" in expression.op else ""
    return f"{expression.op}({', '.join(show(argument) for argument in expression.args)}){kind}"


def show_tree(tree: Tree) -> str:
    """``(0 left 1: 0.a = 1.b; residual)``"""
    if isinstance(tree, int):
        return str(tree)
    equal = ", ".join(f"{show(one)} = {show(two)}" for one, two in tree.equal)
    residual = f"; {show(tree.residual)}" if tree.residual else ""
    return f"({show_tree(tree.left)} {tree.kind} {show_tree(tree.right)}: {equal}{residual})"


def show_ranking(ranking: Ranking) -> str:
    orders = [
        f"{show(one.expression)} {'asc' if one.ascending else 'desc'} nulls {'first' if one.nulls_first else 'last'}"
        for one in ranking.order
    ]
    partition = [show(part) for part in ranking.partition]
    return f"{ranking.function} by {partition} order {orders} <= {ranking.limit}"


def pieces(query: JoinQuery | LogicalQuery) -> dict[str, object]:
    """The parts of a query as short texts, without those that are not there."""
    found: dict[str, object] = {
        "where": query.where and show(query.where),
        "keys": [show(key) for key in query.keys],
        "aggregates": [f"{a.function}({show(a.argument)})" for a in query.aggregates],
        "having": query.having and show(query.having),
        "outputs": [show(output.expression) for output in query.outputs],
        "ranking": query.ranking and show_ranking(query.ranking),
    }
    if isinstance(query, JoinQuery):
        found["legs"] = {leg.alias: show(leg.where) for leg in query.legs}
        found["tree"] = show_tree(query.tree)
        found["grouped"] = query.grouped
    return {name: piece for name, piece in found.items() if piece}


FILTERED = "GreaterThan(price, 10)"
PA = {"p": FILTERED, "a": "*"}

# What stands after the CTEs p, a and v.
GOLDEN: dict[str, dict[str, object]] = {
    # The ways to write an inner join.
    "SELECT p.price, p.w.start FROM p JOIN a ON p.user_id = a.user_id AND p.gem_pack = a.gem_pack AND p.w = a.w "
    "WHERE a.gem_pack > 3": {
        "legs": {"p": FILTERED, "a": "GreaterThan(gem_pack, 3)"},
        "tree": "(0 inner 1: 0.user_id = 1.user_id, 0.gem_pack = 1.gem_pack)",
        "outputs": ["0.price", "0.#start"],
    },
    "SELECT user_id, w, cost FROM p JOIN a USING (user_id, w)": {
        "legs": PA,
        "tree": "(0 inner 1: 0.user_id = 1.user_id)",
        "outputs": ["0.user_id", "Window(0.#start, 0.#end)", "1.cost"],
    },
    "SELECT a.cost FROM p, a WHERE a.user_id = p.user_id AND p.w.start = a.w.start AND p.price < a.cost AND cost > 1": {
        "legs": {"p": FILTERED, "a": "GreaterThan(cost, Cast(1):long)"},
        "tree": "(0 inner 1: 0.user_id = 1.user_id; LessThan(Cast(0.price):long, 1.cost))",
    },
    "SELECT price FROM p CROSS JOIN a WHERE p.w.end = a.w.end": {"legs": PA, "tree": "(0 inner 1: )"},
    "SELECT cost FROM p NATURAL JOIN a": {
        "tree": "(0 inner 1: 0.time = 1.time, 0.user_id = 1.user_id, 0.gem_pack = 1.gem_pack)"
    },
    "SELECT x.price FROM (SELECT w.start AS s, price FROM p) x JOIN (SELECT w.start AS s FROM a) y ON x.s = y.s": {
        "legs": {"x": FILTERED, "y": "*"},
        "tree": "(0 inner 1: )",
    },
    "SELECT cost FROM (SELECT *, window(time, '8 seconds', '4 seconds') FROM purchases) p JOIN "
    "(SELECT *, window(time, '8 seconds', '4 seconds') FROM ads) USING (window, user_id) WHERE TRUE": {
        "legs": {"p": "*", "ads": "*"},
        "tree": "(0 inner 1: 0.user_id = 1.user_id)",
    },
    "SELECT cost FROM p JOIN a ON p.w <=> a.w AND p.user_id <=> a.user_id": {
        "tree": "(0 inner 1: ; EqualNullSafe(0.user_id, 1.user_id))"
    },
    "SELECT x.price, y.price FROM p x JOIN p y ON x.w = y.w AND x.user_id = y.gem_pack": {
        "legs": {"x": FILTERED, "y": FILTERED},
        "tree": "(0 inner 1: 0.user_id = Cast(1.gem_pack):long)",
        "outputs": ["0.price", "1.price"],
    },
    # Several sources.
    "SELECT price FROM p JOIN a ON p.user_id = a.user_id AND p.w = a.w JOIN v ON a.cost = v.vid AND v.w = p.w": {
        "legs": {**PA, "v": "*"},
        "tree": "((0 inner 1: 0.user_id = 1.user_id) inner 2: 1.cost = 2.vid)",
    },
    "SELECT price FROM v, a, p WHERE p.user_id = v.uid AND a.user_id = v.vid AND p.w = v.w AND a.w = v.w "
    "AND p.gem_pack > a.gem_pack AND v.vid < 7": {
        "legs": {"v": "LessThan(vid, Cast(7):long)", "a": "*", "p": FILTERED},
        "tree": "((0 inner 1: 0.vid = 1.user_id) inner 2: Cast(0.uid):long = 2.user_id; "
        "GreaterThan(2.gem_pack, 1.gem_pack))",
    },
    # Neither of the first two is tied to the other but through the third.
    "SELECT price FROM p, a, v WHERE p.w = v.w AND v.w = a.w AND p.price + a.cost = v.vid": {
        "tree": "((0 inner 1: ) inner 2: Add(Cast(0.price):long, 1.cost) = 2.vid)",
    },
    "SELECT price FROM p JOIN (v JOIN a ON v.w = a.w AND v.vid = a.cost) ON p.w = v.w AND p.user_id = a.user_id": {
        "legs": {"p": FILTERED, "v": "*", "a": "*"},
        "tree": "(0 inner (1 inner 2: 1.vid = 2.cost): 0.user_id = 2.user_id)",
    },
    "SELECT 1 AS n FROM p JOIN a USING (w) JOIN v ON v.w = p.w JOIN p q ON q.w = a.w AND q.price = p.price "
    "JOIN a b ON b.w = q.w AND b.user_id = p.user_id AND b.cost = v.vid": {
        "legs": {**PA, "v": "*", "q": FILTERED, "b": "*"},
        "tree": "((((0 inner 1: ) inner 2: ) inner 3: 0.price = 3.price) inner 4: 0.user_id = 4.user_id, "
        "2.vid = 4.cost)",
    },
    # Outer joins.
    "SELECT cost FROM p LEFT JOIN a ON p.w = a.w AND p.user_id = a.user_id AND a.cost > 3 AND p.price > 5 "
    "WHERE p.price < 99 AND a.cost IS NULL": {
        "legs": {"p": "And(GreaterThan(price, 10), LessThan(price, 99))", "a": "GreaterThan(cost, Cast(3):long)"},
        "tree": "(0 left 1: 0.user_id = 1.user_id; GreaterThan(0.price, 5))",
        "where": "IsNull(1.cost)",
    },
    "SELECT cost FROM p RIGHT JOIN a ON p.w = a.w AND p.user_id = a.user_id AND a.cost > 3 AND p.price > 5": {
        "legs": {"p": "And(GreaterThan(price, 10), GreaterThan(price, 5))", "a": "*"},
        "tree": "(0 right 1: 0.user_id = 1.user_id; GreaterThan(1.cost, Cast(3):long))",
    },
    "SELECT user_id, w FROM p FULL JOIN a USING (user_id, w) WHERE a.cost = 1": {
        "legs": PA,
        "tree": "(0 full 1: 0.user_id = 1.user_id)",
        "where": "EqualTo(1.cost, Cast(1):long)",
        "outputs": [
            "Coalesce(0.user_id, 1.user_id)",
            "Window(Coalesce(0.#start, 1.#start), Coalesce(0.#end, 1.#end))",
        ],
    },
    "SELECT price FROM p LEFT SEMI JOIN a ON p.w = a.w AND p.user_id = a.cost AND a.cost < 9 AND p.price > 20": {
        "legs": {"p": "And(GreaterThan(price, 10), GreaterThan(price, 20))", "a": "LessThan(cost, Cast(9):long)"},
        "tree": "(0 semi 1: 0.user_id = 1.cost)",
    },
    "SELECT price FROM p LEFT ANTI JOIN a ON p.w = a.w AND p.user_id = a.cost AND a.cost < 9 AND p.price > 20": {
        "legs": {"p": FILTERED, "a": "LessThan(cost, Cast(9):long)"},
        "tree": "(0 anti 1: 0.user_id = 1.cost; GreaterThan(0.price, 20))",
    },
    # A constant of a source is NULL in rows without the source; a column that ON equates tells them.
    "SELECT b.one, b.w FROM p LEFT JOIN (SELECT *, 1 AS one FROM a) b ON p.w = b.w AND p.user_id = b.user_id": {
        "outputs": ["If(IsNotNull(1.user_id), 1, None)", "Window(1.#start, 1.#end)"],
    },
    "SELECT b.one FROM p FULL JOIN (SELECT *, 1 AS one FROM a) b ON p.w = b.w AND p.user_id = b.user_id": {
        "outputs": ["If(IsNotNull(1.time), 1, None)"],
    },
    "SELECT price FROM p LEFT JOIN a ON p.w = a.w AND p.user_id = a.user_id WHERE a.w IS NULL": {
        "where": "IsNull(1.user_id)"
    },
    # A window that is missing equals none.
    "SELECT 1 AS n FROM p LEFT JOIN a ON p.w = a.w AND p.user_id = a.user_id JOIN v ON v.w = a.w AND v.vid = p.price": {
        "tree": "((0 left 1: 0.user_id = 1.user_id) inner 2: Cast(0.price):long = 2.vid; IsNotNull(1.user_id))"
    },
    "SELECT 1 AS n FROM p FULL JOIN a USING (w, user_id) LEFT JOIN v USING (w)": {
        "tree": "((0 full 1: 0.user_id = 1.user_id) left 2: )"
    },
    "SELECT 1 AS n FROM (SELECT p.w, p.user_id, a.cost FROM p LEFT JOIN a USING (w, user_id) WHERE a.cost > 2) j "
    "JOIN v ON j.w = v.w AND j.user_id = v.vid": {
        "tree": "((0 left 1: 0.user_id = 1.user_id) inner 2: 0.user_id = 2.vid; GreaterThan(1.cost, Cast(2):long))"
    },
    # Conditions on the window.
    "SELECT price FROM p JOIN a ON p.w = a.w AND p.w.start > TIMESTAMP '1970-01-01 00:00:01' AND a.w IS NOT NULL": {
        "legs": PA,
        "where": "GreaterThan(0.#start, 1000000)",
    },
    # Grouping.
    "SELECT p.gem_pack, p.w.start, sum(cost) AS s FROM p JOIN a USING (user_id, w) GROUP BY p.w, p.gem_pack "
    "HAVING count(*) > 3": {
        "tree": "(0 inner 1: 0.user_id = 1.user_id)",
        "grouped": True,
        "keys": ["0.gem_pack"],
        "aggregates": ["sum(1.cost)", "count(*)"],
        "having": "GreaterThan(#a1, Cast(3):long)",
        "outputs": ["#k0", "#start", "#a0"],
    },
    "SELECT w, sum(v) AS s FROM (SELECT a.w, p.price * a.cost AS v FROM p, a WHERE p.w = a.w AND p.user_id = a.user_id)"
    " GROUP BY w": {
        "aggregates": ["sum(Multiply(Cast(0.price):long, 1.cost))"],
        "outputs": ["Window(#start, #end)", "#a0"],
    },
    "SELECT w.end, count(p.price) AS c FROM p FULL JOIN a USING (user_id, w) GROUP BY w": {
        "aggregates": ["count(0.price)"],
        "outputs": ["#end", "#a0"],
    },
    "SELECT p.w, v.w AS vw, count(*) AS c FROM p JOIN v ON p.w = v.w GROUP BY p.w, v.w": {
        "outputs": ["Window(#start, #end)", "Window(Cast(#start):timestamp_ntz, Cast(#end):timestamp_ntz)", "#a0"],
    },
    "SELECT p.w, count(a.cost) AS c FROM p LEFT JOIN a USING (w) WHERE p.w.start > TIMESTAMP '1970-01-01 00:00:01' "
    "GROUP BY p.w": {"having": "GreaterThan(#start, 1000000)", "aggregates": ["count(1.cost)"]},
    "SELECT DISTINCT p.w, p.price FROM p JOIN a USING (w)": {
        "grouped": True,
        "keys": ["0.price"],
        "outputs": ["Window(#start, #end)", "#k0"],
    },
    # Rankings.
    "SELECT w, p.gem_pack, count(*) AS c FROM p JOIN a USING (user_id, w) GROUP BY w, p.gem_pack "
    "QUALIFY row_number() OVER (PARTITION BY w ORDER BY c DESC) <= 3": {
        "outputs": ["Window(#start, #end)", "#k0", "#a0"],
        "ranking": "row_number by [] order ['#a0 desc nulls last'] <= 3",
    },
    "SELECT w, gem_pack FROM (SELECT w, p.gem_pack, rank() OVER (PARTITION BY w.start ORDER BY count(*) DESC) AS r "
    "FROM p JOIN a USING (user_id, w) GROUP BY w, p.gem_pack HAVING count(*) > 1) WHERE r = 1": {
        "having": "GreaterThan(#a0, Cast(1):long)",
        "ranking": "rank by [] order ['#a0 desc nulls last'] <= 1",
        "outputs": ["Window(#start, #end)", "#k0"],
    },
    "SELECT p.w, p.ok, p.name, dense_rank() OVER (PARTITION BY p.w, p.ok ORDER BY max(cost), p.name NULLS LAST) AS r "
    "FROM p JOIN a USING (w) GROUP BY p.w, p.ok, p.name QUALIFY 4 > r AND p.ok": {
        "ranking": "dense_rank by ['#k0'] order ['#a0 asc nulls first', '#k1 asc nulls last'] <= 3",
        "having": "#k0",
        "outputs": ["Window(#start, #end)", "#k0", "#k1", "#rank"],
    },
}


def check_schema(query: JoinQuery | LogicalQuery, analyzer: SparkAnalyzer) -> None:
    schema = [(name, parse_type(kind)) for name, kind in analyzer.schema(query.sql)]
    assert [(output.name, output.type) for output in query.outputs] == schema


@pytest.mark.parametrize("text", GOLDEN)
def test_golden(front: FrontEnd, spark_analyzer: SparkAnalyzer, text: str) -> None:
    query = front.compile(WITH + text)
    assert isinstance(query, JoinQuery)
    found = pieces(query)
    assert {name: found.get(name) for name in GOLDEN[text]} == GOLDEN[text]
    assert query.window == WindowSpec(8 * SECOND, 4 * SECOND)
    check_schema(query, spark_analyzer)
    assert loads(dumps(query)) == query


def test_the_model_says_which_kinds_there_are(front: FrontEnd) -> None:
    query = front.compile(WITH + "SELECT 1 FROM p LEFT JOIN a USING (w) LEFT SEMI JOIN v ON v.w = p.w")
    assert isinstance(query, JoinQuery)
    assert isinstance(query.tree, JoinNode)
    assert isinstance(query.tree.left, JoinNode)
    assert [query.tree.kind, query.tree.left.kind] == ["semi", "left"]
    assert query.streams == ("purchases", "ads", "views")


# Rankings over one stream.

GROUPS = "SELECT gem_pack, count(*) AS c FROM purchases GROUP BY gem_pack, window(time, '8 seconds')"
BY_SUM = "rank() OVER (PARTITION BY window ORDER BY sum(price))"
RANKED = {
    f"{GROUPS} QUALIFY row_number() OVER (PARTITION BY window ORDER BY c DESC) <= 3": (
        "row_number by [] order ['#a0 desc nulls last'] <= 3",
        ["#k0", "#a0"],
    ),
    f"{GROUPS} QUALIFY rank() OVER (PARTITION BY window.end ORDER BY c, gem_pack) BETWEEN 1 AND 5": (
        "rank by [] order ['#a0 asc nulls first', '#k0 asc nulls first'] <= 5",
        ["#k0", "#a0"],
    ),
    f"SELECT gem_pack, r FROM ({GROUPS.replace('AS c', f'AS c, {BY_SUM} AS r')}) WHERE r < 9L": (
        "rank by [] order ['#a1 asc nulls first'] <= 8",
        ["#k0", "#rank"],
    ),
    # Nobody limits it.
    GROUPS.replace("AS c", f"AS c, {BY_SUM} + 1 AS r"): (
        f"rank by [] order ['#a1 asc nulls first'] <= {2**31 - 1}",
        ["#k0", "#a0", "Add(#rank, 1)"],
    ),
}


@pytest.mark.parametrize("sql", RANKED)
def test_rankings_over_one_stream(front: FrontEnd, spark_analyzer: SparkAnalyzer, sql: str) -> None:
    query = front.compile(sql)
    assert isinstance(query, LogicalQuery)
    assert query.ranking is not None
    assert (show_ranking(query.ranking), pieces(query)["outputs"]) == RANKED[sql]
    check_schema(query, spark_analyzer)
    assert loads(dumps(query)) == query


def test_distinct_with_the_window_is_a_grouping(front: FrontEnd) -> None:
    query = front.compile("SELECT DISTINCT window(time, '8 seconds'), price + 1 AS q FROM purchases")
    assert pieces(query) == {"keys": ["Add(price, 1)"], "outputs": ["Window(#start, #end)", "#k0"]}
    assert query.window == WindowSpec(8 * SECOND, 8 * SECOND)


# The cache. %d is an integer of one digit, %s of two, %t a string.

SHAPES = [
    "SELECT p.price + %s AS x FROM p JOIN a ON p.user_id = a.user_id AND p.w = a.w AND a.cost > %d WHERE p.name = %t",
    "SELECT p.price FROM p LEFT JOIN a ON p.w = a.w AND p.user_id + %d = a.user_id AND p.price + a.cost > %s "
    "WHERE a.cost IS NULL OR a.cost > %d",
    "SELECT a.k FROM p LEFT JOIN (SELECT *, %d AS k FROM a) a ON p.w = a.w AND p.user_id = a.user_id",
    "SELECT p.gem_pack, count(*) AS c FROM p JOIN a USING (user_id, w) WHERE p.amount > %d GROUP BY w, p.gem_pack "
    "HAVING c > %s QUALIFY row_number() OVER (PARTITION BY w ORDER BY c DESC) <= %d",
    "SELECT p.gem_pack, sum(p.price + %s) AS c FROM p JOIN a USING (user_id, w) WHERE a.cost > %s "
    "GROUP BY w, p.gem_pack QUALIFY rank() OVER (PARTITION BY w ORDER BY c DESC) < %d",
    "SELECT g, c FROM (SELECT p.gem_pack + %s AS g, count(*) AS c, rank() OVER (PARTITION BY w ORDER BY count(*)) AS r "
    "FROM p JOIN a USING (user_id, w) WHERE p.price < %s GROUP BY w, p.gem_pack + %s) WHERE r = 1",
]


def filled(shape: str, rng: random.Random) -> str:
    makers = {
        "%s": lambda: rng.randint(11, 99),
        "%d": lambda: rng.randint(0, 9),
        "%t": lambda: f"'{rng.choice('xyz')}'",
    }
    for mark, make in makers.items():
        while mark in shape:
            shape = shape.replace(mark, str(make()), 1)
    size = rng.randint(2, 9)
    return (WITH + shape).replace("'8 seconds'", f"'{size} seconds'").replace("'4 seconds'", f"'{size - 1} seconds'")


def outcome(front: FrontEnd, sql: str) -> JoinQuery | LogicalQuery | str:
    try:
        return front.compile(sql)
    except SqlError as error:
        return error.render()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_cache_is_exact(front: FrontEnd, spark_analyzer: SparkAnalyzer, shape: str) -> None:
    rng = random.Random(shape)
    for _ in range(10):
        sql = filled(shape, rng)
        assert outcome(front, sql) == outcome(FrontEnd(spark_analyzer, lambda: STREAMS), sql)


@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[4], SHAPES[5].replace("p.gem_pack + %s", "p.gem_pack")])
def test_further_texts_of_a_shape_need_no_spark(front: FrontEnd, analyzer: CountingAnalyzer, shape: str) -> None:
    rng = random.Random(shape)
    texts = {filled(shape.replace("%d", f"{n % 4 + 2}"), rng) for n in range(20)}
    queries = [front.compile(sql) for sql in sorted(texts)]
    assert analyzer.asked == 2
    assert [query.sql for query in queries] == sorted(texts)
    assert len({query.window for query in queries}) > 3


def test_a_changed_stream_is_compiled_again(analyzer: CountingAnalyzer, spark_analyzer: SparkAnalyzer) -> None:
    streams = dict(STREAMS)
    front = FrontEnd(analyzer, lambda: streams)
    sql = WITH + "SELECT cost FROM p JOIN a USING (w)"
    assert front.compile(sql).outputs[0].type == LONG
    changed = Stream("ads", (Field("time", TIMESTAMP), Field("cost", STRING)), "time", 0)
    streams["ads"] = changed
    spark_analyzer.register(changed)
    try:
        assert front.compile(sql).outputs[0].type == STRING
    finally:
        spark_analyzer.register(ADS)


# Wrong joins: (text after the CTEs, code, underlined, fragment of the message, fragment of the hint).

SIX = " JOIN ".join(["p", *(f"a a{n} ON a{n}.w = p.w" for n in range(5))])
GROUPED = "count(*) AS n FROM p JOIN a USING (w, user_id) GROUP BY w, p.gem_pack"
FORM = (
    "WITH p AS (SELECT *, window(time, '10 seconds') AS w FROM purchases), "
    "a AS (SELECT *, window(time, '10 seconds') AS w FROM ads) SELECT … FROM p JOIN a ON p.w = a.w AND …"
)
WRONG = [
    ("SELECT 1 FROM p JOIN a ON p.user_id = a.user_id", "NO_COMMON_WINDOW", "JOIN a", "p and a are joined", FORM),
    ("SELECT 1 FROM p, a WHERE p.user_id = a.user_id", "NO_COMMON_WINDOW", ", a", "p and a are joined", FORM),
    ("SELECT 1 FROM p LEFT JOIN a USING (user_id) WHERE p.w = a.w", "NO_COMMON_WINDOW", "JOIN a", "p and a", FORM),
    ("SELECT 1 FROM p JOIN a ON p.w = a.w JOIN v ON v.vid = a.cost", "NO_COMMON_WINDOW", "JOIN v", "p and v", "v.w"),
    ("SELECT 1 FROM p JOIN a ON p.w.start = a.w.end", "NO_COMMON_WINDOW", "JOIN a", "p and a are joined", FORM),
    ("SELECT 1 FROM p JOIN a ON p.w = a.w OR p.price = 1", "NO_COMMON_WINDOW", "JOIN a", "p and a are joined", FORM),
    ("SELECT 1 FROM p LEFT ANTI JOIN a USING (user_id)", "NO_COMMON_WINDOW", "JOIN a", "p and a are joined", FORM),
    (
        "SELECT 1 FROM p JOIN ads b USING (user_id)",
        "NO_COMMON_WINDOW",
        "JOIN ads",
        "b of the join has no window",
        "b.w",
    ),
    (
        "SELECT 1 FROM purchases x JOIN ads y ON window(x.time, '8 seconds', '4 seconds') = "
        "window(y.time, '8 seconds', '4 seconds')",
        "NO_COMMON_WINDOW",
        "window(y.time, '8 seconds', '4 seconds')",
        "in the condition of a join",
        "purchases AS (SELECT *, window(time, '10 seconds') AS w FROM purchases), ads AS (SELECT",
    ),
    *(
        (
            f"SELECT {columns} FROM purchases x JOIN ads y ON x.user_id = y.user_id AND "
            "window(x.time, '8 seconds', '4 seconds') = window(y.time, '8 seconds', '4 seconds')",
            "NO_COMMON_WINDOW",
            "window(y.time, '8 seconds', '4 seconds')",
            "in the condition of a join",
            "purchases AS (SELECT *, window(time, '10 seconds') AS w FROM purchases), ads AS (SELECT",
        )
        for columns in ("x.price", "*", "x.user_id, y.user_id")
    ),
    (
        "SELECT gem_pack FROM purchases GROUP BY gem_pack, window(time, '8 seconds', '4 seconds') "
        "QUALIFY rank() OVER (PARTITION BY window ORDER BY sum(price)) = 1",
        "SQL_ANALYSIS",
        "QUALIFY",
        "an aggregate inside QUALIFY",
        "count(*) AS n",
    ),
    (
        "SELECT 1 FROM purchases x, ads y WHERE window(x.time, '8 seconds', '4 seconds') = "
        "window(y.time, '8 seconds', '4 seconds')",
        "NO_COMMON_WINDOW",
        "window(y.time, '8 seconds', '4 seconds')",
        "columns of its sources",
        "equate a window of each source",
    ),
    (
        "SELECT 1 FROM p JOIN (SELECT *, window(time, '9 seconds') AS w FROM ads) b USING (w)",
        "BAD_WINDOW",
        "window(time, '9 seconds')",
        "window(time, '8 seconds', '4 seconds') differs from window(time, '9 seconds')",
        "same size, slide and offset",
    ),
    (
        "SELECT 1 FROM p JOIN (SELECT *, window(timestamp_seconds(cost), '8 seconds', '4 seconds') AS w FROM ads) b "
        "USING (w)",
        "BAD_WINDOW",
        "timestamp_seconds(cost)",
        "over timestamp_seconds(cost), not over the event time of ads",
        "write window(time, …)",
    ),
    (
        "SELECT 1 FROM p JOIN (SELECT *, window(time + INTERVAL 1 DAY, '8 seconds', '4 seconds') AS w FROM ads) b "
        "USING (w)",
        "BAD_WINDOW",
        "time + INTERVAL 1 DAY",
        "event time of ads",
        "write window(time, …)",
    ),
    (f"SELECT 1 FROM {SIX}", "UNSUPPORTED", "JOIN", "more than 5 sources", "at most 5"),
    ("SELECT user_id FROM p JOIN a ON p.w = a.w", "SQL_ANALYSIS", "user_id", "user_id is ambiguous", "a.user_id or p."),
    (
        "SELECT 1 FROM p JOIN a ON p.w = a.w AND p.ok = a.cost",
        "SQL_TYPE",
        "p.ok = a.cost",
        "BOOLEAN and BIGINT",
        "cast one side",
    ),
    ("SELECT 1 FROM p JOIN a ON p.w = a.cost", "SQL_TYPE", "p.w = a.cost", "STRUCT", "cast one side"),
    ("SELECT a.price FROM p LEFT SEMI JOIN a USING (w)", "UNKNOWN_COLUMN", "a.price", "a.price", "columns"),
    (
        "SELECT a.w, count(*) FROM p LEFT JOIN a USING (w) GROUP BY a.w",
        "NO_WINDOW",
        "GROUP BY",
        "is NULL",
        "window of p",
    ),
    ("SELECT p.w, count(*) FROM p FULL JOIN a USING (w) GROUP BY p.w", "NO_WINDOW", "GROUP BY", "is NULL", "coalesce"),
    (
        "SELECT price, count(*) FROM p JOIN a USING (w) GROUP BY price",
        "NO_WINDOW",
        "GROUP BY",
        "window",
        "p.price, the",
    ),
    ("SELECT max(p.w.start) FROM p JOIN a USING (w) GROUP BY w", "UNSUPPORTED", "window", "of the window", "start"),
    ("SELECT window_time(w) FROM p JOIN a USING (w)", "UNSUPPORTED", "window_time", "window_time", "window.end"),
    (
        "SELECT count(*) FROM p JOIN a USING (w) GROUP BY window(window_time(w), '8 seconds', '4 seconds')",
        "UNSUPPORTED",
        "window_time",
        "window_time",
        "window.end",
    ),
    (
        "SELECT count(*) FROM p JOIN a USING (w) GROUP BY window(p.time, '8 seconds', '4 seconds')",
        "UNSUPPORTED",
        "GROUP BY window",
        "second window",
        "window column",
    ),
    (
        "SELECT 1 FROM p WHERE EXISTS (SELECT 1 FROM a WHERE a.w = p.w)",
        "UNSUPPORTED",
        "EXISTS",
        "subquery",
        "SEMI JOIN",
    ),
    ("SELECT 1 FROM p, LATERAL (SELECT p.price)", "UNSUPPORTED", "LATERAL", "lateral", "window column"),
    (
        "SELECT 1 FROM p JOIN (SELECT w, count(*) AS c FROM a GROUP BY w) g USING (w)",
        "UNSUPPORTED",
        "GROUP BY",
        "below a join",
        "join the streams first",
    ),
    (
        "SELECT 1 FROM p FULL JOIN (SELECT a.w FROM a LEFT JOIN v USING (w) WHERE v.vid > 1) j USING (w)",
        "UNSUPPORTED",
        "FULL JOIN",
        "below a FULL JOIN",
        "WHERE of the whole query",
    ),
    (
        "SELECT 1 FROM p LEFT JOIN a ON p.w = a.w AND a.w.start > TIMESTAMP '1970-01-01 00:00:00'",
        "UNSUPPORTED",
        "LEFT JOIN",
        "a condition on the window",
        "WHERE of the whole query",
    ),
    (
        "SELECT DISTINCT price FROM p JOIN a USING (w)",
        "UNSUPPORTED",
        "SELECT DISTINCT",
        "without the window",
        "a window",
    ),
    ("SELECT price FROM p JOIN a USING (w) LIMIT 3", "UNSUPPORTED", "LIMIT", "LIMIT", "PARTITION BY window"),
    (
        "SELECT price FROM p JOIN a USING (w) QUALIFY row_number() OVER (PARTITION BY w ORDER BY price) <= 3",
        "UNSUPPORTED",
        "OVER",
        "over rows",
        "GROUP BY keys",
    ),
    (
        f"SELECT p.gem_pack, {GROUPED} QUALIFY row_number() OVER (ORDER BY n) <= 3",
        "UNSUPPORTED",
        "OVER",
        "row_number() over several windows",
        "PARTITION BY window",
    ),
    (
        "SELECT gem_pack FROM p JOIN a USING (w, user_id, gem_pack) GROUP BY w, gem_pack "
        "QUALIFY rank() OVER (PARTITION BY w ORDER BY count(*)) = 1",
        "SQL_ANALYSIS",
        "QUALIFY",
        "an aggregate inside QUALIFY",
        "count(*) AS n",
    ),
    (
        f"SELECT p.gem_pack, sum(count(*)) OVER (PARTITION BY w), {GROUPED}",
        "UNSUPPORTED",
        "OVER",
        "OVER",
        "PARTITION BY window",
    ),
    (
        f"SELECT p.gem_pack, {GROUPED} QUALIFY rank() OVER (PARTITION BY w ORDER BY n) = 2",
        "UNSUPPORTED",
        "QUALIFY",
        "other than <= k",
        "keep the first ranks",
    ),
    (
        f"SELECT p.gem_pack, {GROUPED} QUALIFY rank() OVER (PARTITION BY w ORDER BY n) < 1",
        "UNSUPPORTED",
        "QUALIFY",
        "other than <= k",
        "at least one",
    ),
    (
        f"SELECT g FROM (SELECT p.gem_pack AS g, count(*) AS c, rank() OVER (PARTITION BY w ORDER BY count(*)) AS r, "
        f"{GROUPED}) x WHERE r <= 2 AND c > 5",
        "UNSUPPORTED",
        "WHERE",
        "beside the rank",
        "HAVING",
    ),
    (
        f"SELECT g FROM (SELECT p.gem_pack AS g, rank() OVER (PARTITION BY w ORDER BY count(*)) AS r, {GROUPED}) x "
        "WHERE r <= 2 AND r <= 3",
        "UNSUPPORTED",
        "WHERE",
        "two limits",
        "once",
    ),
]


@pytest.mark.parametrize(("text", "code", "underlined", "message", "hint"), WRONG, ids=[case[0][:70] for case in WRONG])
def test_wrong_joins(front: FrontEnd, text: str, code: str, underlined: str, message: str, hint: str | None) -> None:
    with pytest.raises(SqlError) as caught:
        front.compile(WITH + text)
    error = caught.value
    assert error.code == code, error.render()
    assert message in error.message
    assert not error.message.endswith(".")
    if hint is not None:
        assert error.hint is not None
        assert hint in error.hint
    assert error.position is not None
    assert (WITH + text)[error.position.start : error.position.stop] == underlined
