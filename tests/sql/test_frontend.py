"""The front end over Spark's analyzer: what texts become, how the cache stays exact, and what wrong texts get."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from millstream.errors import SqlError
from millstream.model.expression import Call, Column, Expression, Literal
from millstream.model.query import LogicalQuery, WindowSpec
from millstream.model.stream import Field, Stream
from millstream.model.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    decimal,
    parse_type,
)
from millstream.runtime.analyzer import SparkAnalyzer
from millstream.sql import frontend
from millstream.sql.frontend import FrontEnd, Refusal
from millstream.sql.windows import DurationError, parse_duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = 1_000_000

PURCHASES = Stream(
    "purchases",
    (
        Field("time", TIMESTAMP),
        Field("user_id", LONG),
        Field("gem_pack", STRING),
        Field("price", INTEGER),
        Field("amount", decimal(10, 2)),
        Field("d", DOUBLE),
        Field("ok", BOOLEAN),
        Field("day", DATE),
        Field("seen", TIMESTAMP),
    ),
    "time",
    0,
)
ADS = Stream("Ads", (Field("at", TIMESTAMP_NTZ), Field("id", INTEGER), Field("odd `name`", STRING)), "at", 0)
STREAMS = {stream.name: stream for stream in (PURCHASES, ADS)}


class CountingAnalyzer:
    """Spark's analyzer, counting how often it is asked."""

    def __init__(self, analyzer: SparkAnalyzer) -> None:
        self._analyzer = analyzer
        self.plans = 0
        self.schemas = 0

    def plan(self, sql: str) -> str:
        self.plans += 1
        return self._analyzer.plan(sql)

    def schema(self, sql: str) -> list[tuple[str, object]]:
        self.schemas += 1
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


def pieces(query: LogicalQuery) -> dict[str, object]:
    """The parts of a query as short texts, without those that are not there."""
    found: dict[str, object] = {
        "where": query.where and show(query.where),
        "keys": [show(key) for key in query.keys],
        "aggregates": [f"{a.function}({show(a.argument)}) {a.type}" for a in query.aggregates],
        "having": query.having and show(query.having),
        "outputs": {output.name: show(output.expression) for output in query.outputs},
    }
    return {name: piece for name, piece in found.items() if piece}


EIGHT = "window(time, '8 seconds')"

GOLDEN: dict[str, dict[str, object]] = {
    f"SELECT gem_pack, SUM(price) AS revenue FROM purchases WHERE price > 10 GROUP BY gem_pack, {EIGHT}": {
        "where": "GreaterThan(price, 10)",
        "keys": ["gem_pack"],
        "aggregates": ["sum(price) long"],
        "outputs": {"gem_pack": "#k0", "revenue": "#a0"},
    },
    "SELECT window, window.start s, window.end, avg(amount) a FROM Purchases p GROUP BY window(p.time, '8 seconds')": {
        "aggregates": ["avg(amount) decimal(14,6)"],
        "outputs": {"window": "Window(#start, #end)", "s": "#start", "end": "#end", "a": "#a0"},
    },
    f"SELECT {EIGHT}.start, price + 1, sum(price) * 2 FROM purchases GROUP BY {EIGHT}, 1 + price": {
        "keys": ["Add(1, price)"],
        "aggregates": ["sum(price) long"],
        "outputs": {"window.start": "#start", "(price + 1)": "#k0", "(sum(price) * 2)": "Multiply(#a0, Cast(2):long)"},
    },
    "SELECT count(*), count(1), count(price), count(price, d), count(NULL) FROM purchases "
    "GROUP BY `window`(time, '8 seconds')": {
        "aggregates": [
            "count(*) long",
            "count(price) long",
            "count(If(And(IsNotNull(price), IsNotNull(d)), 1, None)) long",
        ],
        "outputs": {"count(1)": "#a0", "count(price)": "#a1", "count(price, d)": "#a2", "count(NULL)": "0"},
    },
    "SELECT sum(price) FILTER (WHERE ok) a, count(*) FILTER (WHERE ok) b, count_if(ok) c FROM purchases "
    f"GROUP BY {EIGHT}": {
        "aggregates": ["sum(If(ok, price, None)) long", "count(If(ok, 1, None)) long"],
        "outputs": {"a": "#a0", "b": "#a1", "c": "#a1"},
    },
    f"SELECT bool_and(ok) a, any(ok) b, try_sum(price) c, mean(d) d FROM purchases GROUP BY {EIGHT}": {
        "aggregates": ["min(ok) boolean", "max(ok) boolean", "sum(price) long", "avg(d) double"],
        "outputs": {"a": "#a0", "b": "#a1", "c": "#a2", "d": "#a3"},
    },
    f"SELECT min(gem_pack) a, max(day) b, min(time) c, sum(amount) d, avg(price) e FROM purchases GROUP BY {EIGHT}": {
        "aggregates": [
            "min(gem_pack) string",
            "max(day) date",
            "min(time) timestamp",
            "sum(amount) decimal(20,2)",
            "avg(price) double",
        ],
        "outputs": {"a": "#a0", "b": "#a1", "c": "#a2", "d": "#a3", "e": "#a4"},
    },
    f"SELECT sum(price) s FROM purchases GROUP BY {EIGHT} HAVING s > 3 AND max(d) < 2 AND window.start IS NOT NULL": {
        "aggregates": ["sum(price) long", "max(d) double"],
        "having": "And(And(GreaterThan(#a0, Cast(3):long), LessThan(#a1, Cast(2):double)), IsNotNull(#start))",
        "outputs": {"s": "#a0"},
    },
    f"WITH p AS (SELECT *, {EIGHT} FROM purchases) SELECT window.start, max(d) m FROM p x GROUP BY window": {
        "aggregates": ["max(d) double"],
        "outputs": {"start": "#start", "m": "#a0"},
    },
    "SELECT p, count(*) c FROM (SELECT time t, price * 2 p FROM PURCHASES WHERE price > 3) WHERE p < 9 "
    "GROUP BY p, window(t, '8 seconds')": {
        "where": "And(GreaterThan(price, 3), LessThan(Multiply(price, 2), 9))",
        "keys": ["Multiply(price, 2)"],
        "aggregates": ["count(*) long"],
        "outputs": {"p": "#k0", "c": "#a0"},
    },
    f"SELECT sum(price) s, s * 2 AS t FROM purchases GROUP BY {EIGHT}": {
        "aggregates": ["sum(price) long"],
        "outputs": {"s": "#a0", "t": "Multiply(#a0, Cast(2):long)"},
    },
    f"SELECT 'x' AS k, price, count(*) c FROM purchases GROUP BY k, 2, {EIGHT}, window.start": {
        "keys": ["price"],
        "aggregates": ["count(*) long"],
        "outputs": {"k": "'x'", "price": "#k0", "c": "#a0"},
    },
    f"SELECT price FROM purchases GROUP BY {EIGHT}.start, price": {"keys": ["price"], "outputs": {"price": "#k0"}},
    f"SELECT nullif(price, 3) a, nullif(sum(d), 2) b FROM purchases GROUP BY price, {EIGHT}": {
        "keys": ["price"],
        "aggregates": ["sum(d) double"],
    },
    f"SELECT price > user_id c, count(*) n FROM purchases GROUP BY user_id < price, {EIGHT}": {
        "keys": ["LessThan(user_id, Cast(price):long)"],
        "outputs": {"c": "#k0", "n": "#a0"},
        "aggregates": ["count(*) long"],
    },
    "SELECT price, amount * 2 AS x FROM purchases WHERE gem_pack LIKE 'a%' AND price IN (1, 2)": {
        "where": "And(Like(gem_pack, 'a%'), In(price, 1, 2))",
        "outputs": {"price": "price", "x": "Multiply(amount, Cast(2):decimal(1,0))"},
    },
    "SELECT price AS p, p + 1 AS q FROM purchases": {"outputs": {"p": "price", "q": "Add(price, 1)"}},
    "FROM purchases |> WHERE price > -3 |> SELECT price": {
        "where": "GreaterThan(price, -3)",
        "outputs": {"price": "price"},
    },
    "SELECT /*+ APPROX(0.05, 0.95) */ price FROM purchases WHERE time IS NOT NULL;": {"outputs": {"price": "price"}},
    "SELECT try_cast(gem_pack AS int) i, CAST(gem_pack AS int) j, gem_pack LIKE 'a/%' ESCAPE '/' l FROM purchases": {
        "outputs": {"i": "TryCast(gem_pack):integer", "j": "Cast(gem_pack):integer", "l": "Like(gem_pack, 'a/%')"},
    },
    "TABLE ads": {"outputs": {"at": "at", "id": "id", "odd `name`": "odd `name`"}},
    "(SELECT window, `odd ``name```, count(*) c FROM ads GROUP BY window (at, '1 minute'), 2)": {
        "keys": ["odd `name`"],
        "aggregates": ["count(*) long"],
        "outputs": {"window": "Window(#start, #end)", "odd `name`": "#k0", "c": "#a0"},
    },
}


@pytest.mark.parametrize("sql", GOLDEN)
def test_golden(front: FrontEnd, spark_analyzer: SparkAnalyzer, sql: str) -> None:
    query = front.compile(sql)
    found = pieces(query)
    assert {name: found.get(name) for name in GOLDEN[sql]} == GOLDEN[sql]
    schema = [(name, parse_type(kind)) for name, kind in spark_analyzer.schema(sql)]
    assert [(output.name, output.type) for output in query.outputs] == schema
    assert query.sql == sql


def test_windows_are_read(front: FrontEnd) -> None:
    sql = "SELECT count(*) FROM purchases GROUP BY window(time, '8 seconds', '4 seconds', '1 second')"
    assert front.compile(sql).window == WindowSpec(8 * SECOND, 4 * SECOND, SECOND)
    assert front.compile("SELECT price FROM purchases").window is None
    # Spark would expand this one into 86 400 projections.
    long = "SELECT count(*) FROM purchases GROUP BY window(time, '1 day', '1 second')"
    assert front.compile(long).window == WindowSpec(86_400 * SECOND, SECOND)


def test_windows_over_timestamps_without_zone(front: FrontEnd) -> None:
    query = front.compile("SELECT window, window.start FROM ads GROUP BY window(at, '1 second')")
    assert [output.type.kind for output in query.outputs] == ["window_ntz", "timestamp_ntz"]


def test_try_cast_and_escape_survive(front: FrontEnd) -> None:
    query = front.compile("SELECT gem_pack LIKE 'a!%' ESCAPE '!' FROM purchases WHERE try_cast(gem_pack AS int) > 1")
    like = query.outputs[0].expression
    assert isinstance(like, Call)
    assert like.option("escape") == "!"


DURATIONS = [
    "8 seconds",
    "1 minute 30 seconds",
    "interval 2 hours",
    "1.5 seconds",
    ".5 seconds",
    "2. seconds",
    "+ 3 hours",
]
NO_DURATIONS = ["8 secs", "8seconds", "8", "", "1.5 minutes", "1 month", "seconds", "1 second,", "1.1234567890 seconds"]


@pytest.mark.parametrize("text", ["1 week -1 day", *DURATIONS, *NO_DURATIONS])
def test_durations_are_those_of_spark(spark_analyzer: SparkAnalyzer, text: str) -> None:
    sql = f"SELECT count(*) FROM purchases GROUP BY window(time, '{text}')"
    try:
        micros = parse_duration(text)
    except DurationError:
        with pytest.raises(Refusal):
            spark_analyzer.plan(sql)
    else:
        assert f'"value":"{micros}"' in spark_analyzer.plan(sql)


# The cache.

# %s is an integer of two digits, %d of one, %i of any, %n a decimal(3,2), %e a double, %t a string; all %k are equal.
SHAPES = [
    "SELECT price FROM purchases WHERE price > %s",
    "SELECT price, d AS x FROM purchases WHERE price > %s AND amount < %n OR gem_pack = %t AND d > %e",
    "SELECT gem_pack, sum(price) r FROM purchases WHERE price > -%s AND amount >= -%n "
    "GROUP BY gem_pack, window(time, '%d seconds')",
    f"SELECT sum(price + %d) a, sum(price + %d) b FROM purchases WHERE price IN (%d, %d) GROUP BY {EIGHT}",
    "SELECT price + %k AS k, count(*) c FROM purchases GROUP BY price + %k, window(time, '8 seconds') HAVING c > %s",
    "SELECT price + %d AS k, count(*) c FROM purchases GROUP BY price + %d, window(time, '8 seconds') HAVING c > 1%d",
    "SELECT price + %s, upper(gem_pack) = %t, amount * %n FROM purchases WHERE amount > %s",
    "SELECT CASE WHEN price > %s THEN %t ELSE gem_pack END AS k, round(d, 2) > %e AS r FROM purchases",
    f"SELECT sum(price) FILTER (WHERE price > %s) AS s, avg(d * %e) AS t FROM purchases GROUP BY {EIGHT}",
    "WITH p AS (SELECT *, price * %s AS q FROM purchases WHERE gem_pack LIKE %t) "
    "SELECT q, d FROM p WHERE q BETWEEN %s AND %s",
    "SELECT coalesce(gem_pack, %t) AS g, substring(gem_pack, 1, 2) = %t AS h FROM purchases WHERE NOT price = %d",
    "SELECT price = %d, price = %d, price = %d FROM purchases",
    "SELECT price + %i AS a FROM purchases WHERE user_id < %i OR d > -%i",
    "SELECT amount + %i AS a, amount * %i AS b FROM purchases WHERE amount > %i",
]


def filled(shape: str, rng: random.Random) -> str:
    shape = shape.replace("%k", str(rng.randint(1, 9)))
    makers = {
        "%s": lambda: str(rng.randint(10, 99)),
        "%d": lambda: str(rng.randint(1, 9)),
        "%i": lambda: str(rng.randint(0, 10 ** rng.randint(1, 12))),
        "%n": lambda: f"{rng.randint(1, 9)}.{rng.randint(0, 99):02}",
        "%e": lambda: f"{rng.randint(1, 99)}e{rng.randint(0, 3)}",
        "%t": lambda: f"'{rng.choice(['a%', 'abc', 'with blank', '_', '', 'é', '10'])}'",
    }
    for mark, make in makers.items():
        while mark in shape:
            shape = shape.replace(mark, make(), 1)
    return shape


def outcome(front: FrontEnd, sql: str) -> LogicalQuery | str:
    try:
        return front.compile(sql)
    except SqlError as error:
        return error.render()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_cache_is_exact(front: FrontEnd, spark_analyzer: SparkAnalyzer, shape: str) -> None:
    rng = random.Random(shape)
    for _ in range(12):
        sql = filled(shape, rng)
        direct = outcome(FrontEnd(spark_analyzer, lambda: STREAMS), sql)
        assert outcome(front, sql) == direct
        if isinstance(direct, LogicalQuery):
            assert [name for name, _ in spark_analyzer.schema(sql)] == [output.name for output in direct.outputs]


def test_further_texts_of_a_shape_need_no_spark(front: FrontEnd, analyzer: CountingAnalyzer) -> None:
    text = "SELECT gem_pack, sum(price) r FROM purchases WHERE price > {} GROUP BY gem_pack, window(time, '{} seconds')"
    queries = [front.compile(text.format(constant, constant % 7 + 1)) for constant in range(10, 60)]
    assert (analyzer.plans, analyzer.schemas) == (2, 0)
    assert [show(query.where) for query in queries] == [f"GreaterThan(price, {constant})" for constant in range(10, 60)]
    assert {query.window for query in queries} == {WindowSpec(n * SECOND, n * SECOND) for n in range(1, 8)}


def test_digits_count_only_beside_decimals(front: FrontEnd, analyzer: CountingAnalyzer) -> None:
    for number in (1, 20, 300, 4000):
        front.compile(f"SELECT price FROM purchases WHERE price > {number}")
    assert analyzer.plans == 2
    for number in (1, 20, 300, 4000):
        front.compile(f"SELECT price FROM purchases WHERE amount > {number}")
    assert analyzer.plans == 2 + 4


def test_automatic_names_follow_the_literals(front: FrontEnd, analyzer: CountingAnalyzer) -> None:
    names = [front.compile(f"SELECT price > {n} FROM purchases").outputs[0].name for n in range(10, 20)]
    assert names == [f"(price > {n})" for n in range(10, 20)]
    assert (analyzer.plans, analyzer.schemas) == (2, 0)


def test_names_that_only_spark_knows_are_asked_for(front: FrontEnd, analyzer: CountingAnalyzer) -> None:
    names = [front.compile(f"SELECT d > {n}e0 FROM purchases").outputs[0].name for n in (1, 2, 3)]
    assert names == ["(d > 1.0)", "(d > 2.0)", "(d > 3.0)"]
    assert (analyzer.plans, analyzer.schemas) == (2, 2)


def test_a_literal_that_decides_more_than_a_value(front: FrontEnd, analyzer: CountingAnalyzer) -> None:
    texts = [f"SELECT date_part('{part}', time) AS x FROM purchases" for part in ("year", "month", "day", "hour")]
    assert [show(front.compile(text).outputs[0].expression).split("(")[0] for text in texts] == [
        "Year",
        "Month",
        "DayOfMonth",
        "Hour",
    ]
    # The first text, the sentinel that Spark refuses, and the other three by themselves.
    assert analyzer.plans == 5


def test_a_literal_that_is_refused_is_pointed_at_in_known_shapes(
    front: FrontEnd, spark_analyzer: SparkAnalyzer
) -> None:
    texts = [f"SELECT date_trunc('{unit}', time) AS x FROM purchases" for unit in ("DAY", "HOUR", "MINUTE", "nonsense")]
    for text in texts:
        assert outcome(front, text) == outcome(FrontEnd(spark_analyzer, lambda: STREAMS), text)


def test_a_changed_stream_is_compiled_again(analyzer: CountingAnalyzer, spark_analyzer: SparkAnalyzer) -> None:
    streams = {"things": Stream("things", (Field("t", TIMESTAMP), Field("a", INTEGER)), "t", 0)}
    front = FrontEnd(analyzer, lambda: streams)
    sql = "SELECT a FROM things WHERE a > {}"
    spark_analyzer.register(streams["things"])
    try:
        assert {front.compile(sql.format(n)).outputs[0].type for n in (1, 2, 3)} == {INTEGER}
        streams["things"] = Stream("things", (Field("t", TIMESTAMP), Field("a", DOUBLE)), "t", 0)
        spark_analyzer.register(streams["things"])
        assert {front.compile(sql.format(n)).outputs[0].type for n in (1, 2, 3)} == {DOUBLE}
    finally:
        spark_analyzer.unregister("things")
    del streams["things"]
    for number in (1, 4):
        with pytest.raises(SqlError, match="unknown stream things"):
            front.compile(sql.format(number))


def test_a_text_that_has_come_before_is_known(
    front: FrontEnd, analyzer: CountingAnalyzer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where each text of a shape has to go to Spark."""
    monkeypatch.setattr(frontend, "TEXTS", 3)
    texts = [f"SELECT date_part('{part}', time) AS x FROM purchases" for part in ("year", "month", "day", "hour")]
    queries = [front.compile(text) for text in texts]
    asked = analyzer.plans
    assert [front.compile(text) for text in texts[1:]] == queries[1:]
    assert analyzer.plans == asked
    assert front.compile(texts[0]) == queries[0], "the oldest is forgotten, and asked for again"
    assert analyzer.plans == asked + 1
    for _ in range(2):
        front.compile(texts[1] + " " * frontend.LONGEST_KEPT)
    assert analyzer.plans == asked + 3, "long ones are not kept"


def test_many_threads_compile_at_once(front: FrontEnd) -> None:
    failed: list[BaseException] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        try:
            for _ in range(20):
                constant = rng.randint(10, 99)
                query = front.compile(f"SELECT d FROM purchases WHERE price < {constant}")
                assert show(query.where) == f"LessThan(price, {constant})"
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


# Wrong texts: (text, code, underlined, fragment of the message, fragment of the hint).

WRONG = [
    ("", "SQL_PARSE", None, "empty", "SELECT"),
    ("  -- nothing", "SQL_PARSE", None, "empty", "SELECT"),
    (";", "SQL_PARSE", None, "empty", "SELECT"),
    ("SELECT price FROM purchases; SELECT 1", "SQL_PARSE", "SELECT", "second statement", "one query"),
    ("SELECT " + "1 + " * 60_000 + "1", "SQL_PARSE", None, "characters, more than", "shorten"),
    ("DROP TABLE purchases", "UNSUPPORTED", "DROP", "DROP is not a query", "SELECT"),
    ("INSERT INTO purchases VALUES (1)", "UNSUPPORTED", "INSERT", "INSERT is not a query", "SELECT"),
    (
        "WITH a AS (SELECT 1) INSERT INTO purchases SELECT * FROM a",
        "UNSUPPORTED",
        "INSERT INTO",
        "not a query",
        "SELECT",
    ),
    ("BEGIN SELECT 1; END", "UNSUPPORTED", "BEGIN", "BEGIN is not a query", "SELECT"),
    ("'x'", "SQL_PARSE", "'x'", "does not start with", "SELECT"),
    ("SELECT price frm x y", "SQL_PARSE", "x", "syntax error at 'x'", None),
    ("SELECT (price FROM purchases", "SQL_PARSE", "FROM", "syntax error at 'FROM'", "parenthes"),
    ("SELECT price) FROM purchases", "SQL_PARSE", ")", "syntax error at ')'", "has no ("),
    ("SELECT price FROM purchases WHERE (price > 3", "SQL_PARSE", "", "ends too early", "parenthes"),
    ("SELECT price\nFROM purchases WHERE 'abc", "SQL_PARSE", "'", "syntax error", None),
    ("SELECT price FROM purchases WHERE d > 1e400", "SQL_PARSE", "1e400", "1e400", None),
    (
        "SELECT price FROM purchases WHERE gem_pack LIKE 'x' ESCAPE 'ab'",
        "SQL_PARSE",
        "LIKE 'x' ESCAPE 'ab'",
        "escape",
        None,
    ),
    ("SELECT é FROM purchases", "SQL_ANALYSIS", "é", "é is invalid", None),
    (
        "SELECT price FROM purchase",
        "UNKNOWN_STREAM",
        "purchase",
        "unknown stream purchase",
        "mean purchases? streams: Ads,",
    ),
    ("SELECT price FROM a.b.c", "UNKNOWN_STREAM", "a", "unknown stream a.b.c", "streams: "),
    ("SELECT * FROM csv.`/etc/passwd`", "UNKNOWN_STREAM", "csv.`/etc/passwd`", "unknown stream", "streams: "),
    ("SELECT 1", "UNKNOWN_STREAM", "SELECT", "does not read a stream", "streams: Ads, purchases"),
    ("SELECT * FROM range(3)", "UNKNOWN_STREAM", "FROM", "does not read a stream", "streams: "),
    ("SELECT 'é😀', prise FROM purchases", "UNKNOWN_COLUMN", "prise", "unknown column prise", "did you mean price?"),
    ("SELECT p.price FROM purchases q", "UNKNOWN_COLUMN", "p.price", "unknown column p.price", "columns: time,"),
    (
        f"SELECT window.foo FROM purchases GROUP BY {EIGHT}",
        "UNKNOWN_COLUMN",
        "window.foo",
        "foo",
        "columns: start, end",
    ),
    (
        "SELECT window, count(*) FROM purchases GROUP BY window",
        "UNKNOWN_COLUMN",
        "window",
        "window",
        "GROUP BY window(",
    ),
    ("SELECT conut(price) FROM purchases", "UNKNOWN_FUNCTION", "conut", "unknown function conut", "mean count"),
    ("SELECT zzzzzzzzzz(price) FROM purchases", "UNKNOWN_FUNCTION", "zzzzzzzzzz", "zzzzzzzzzz", "SQL reference"),
    ("SELECT price + ok FROM purchases", "SQL_TYPE", "price + ok", "incompatible types (INT and BOOLEAN)", None),
    ("SELECT price FROM purchases WHERE gem_pack", "SQL_TYPE", "gem_pack", "of type string, not boolean", None),
    ("SELECT if(price, 1, 2) FROM purchases", "SQL_TYPE", "if(price, 1, 2)", "requires the BOOLEAN type", None),
    (
        "SELECT price, sum(d) FROM purchases",
        "SQL_ANALYSIS",
        "SELECT price, sum(d) FROM purchases",
        "need GROUP BY",
        None,
    ),
    (f"SELECT price FROM purchases GROUP BY {EIGHT}", "SQL_ANALYSIS", "price", "neither in GROUP BY", "max(price)"),
    (f"SELECT sum(sum(d)) FROM purchases GROUP BY {EIGHT}", "SQL_ANALYSIS", "sum(d)", "inside another aggregate", None),
    ("SELECT abs(1, 2) FROM purchases", "SQL_ANALYSIS", "abs(1, 2)", "requires 1 parameter", None),
    ("SELECT price FROM purchases WHERE price = :x", "SQL_ANALYSIS", ":x", "parameters have no values", None),
    ("SELECT count(*) FROM purchases", "NO_WINDOW", "count", "needs a window", "GROUP BY window(time, '10 seconds')"),
    ("SELECT ok FROM purchases GROUP BY ok", "NO_WINDOW", "GROUP BY", "needs a window", "GROUP BY ok, window(time,"),
    (
        f"SELECT count(*) FROM purchases GROUP BY date_trunc('DAY', {EIGHT}.start)",
        "NO_WINDOW",
        "GROUP BY",
        "window",
        "GROUP",
    ),
    ("SELECT count(*) FROM purchases GROUP BY window(seen, '1 second')", "BAD_WINDOW", "seen", "over seen", "is time"),
    ("SELECT count(*) FROM purchases GROUP BY window(price, '1 second')", "BAD_WINDOW", "price", "over price", "time"),
    ("SELECT window FROM purchases GROUP BY window(price, '1 second')", "BAD_WINDOW", "price", "over price", "time"),
    ("SELECT 1 FROM purchases GROUP BY window(time, '1 month')", "BAD_WINDOW", "'1 month'", "months", "seconds"),
    ("SELECT 1 FROM purchases GROUP BY window(time, '1 day', '2 days')", "BAD_WINDOW", "'2 days'", "larger", "at most"),
    (
        "SELECT 1 FROM purchases GROUP BY window(time, '0 days')",
        "BAD_WINDOW",
        "'0 days'",
        "more than zero",
        "8 seconds",
    ),
    (
        f"SELECT 1 FROM purchases GROUP BY {EIGHT}, window(time, '9 seconds')",
        "UNSUPPORTED",
        "window(time, '9 seconds')",
        "one window",
        "each window",
    ),
    (
        f"SELECT 1 FROM purchases GROUP BY {EIGHT}, window(seen, '8 seconds')",
        "UNSUPPORTED",
        "window(seen, '8 seconds')",
        "one window",
        "each window",
    ),
    (
        "SELECT 1 FROM purchases GROUP BY session_window(time, '1 day')",
        "UNSUPPORTED",
        "session_window",
        "session",
        "sliding",
    ),
    (
        f"SELECT window_time(window) FROM (SELECT {EIGHT} FROM purchases)",
        "UNSUPPORTED",
        "window_time",
        "window_time",
        "end",
    ),
    (f"SELECT {EIGHT}, price FROM purchases", "UNSUPPORTED", "window", "without GROUP BY", "GROUP BY"),
    (f"SELECT 1 FROM purchases WHERE {EIGHT}.start IS NULL", "UNSUPPORTED", "WHERE", "in WHERE", "HAVING"),
    (
        f"SELECT max(window.start) FROM purchases GROUP BY {EIGHT}",
        "UNSUPPORTED",
        "window",
        "of the window",
        "window.start",
    ),
    (
        f"SELECT 1 FROM purchases GROUP BY {EIGHT}, unix_micros(window.start) + price",
        "UNSUPPORTED",
        "GROUP BY",
        "the window and other columns",
        "group by",
    ),
    ("SELECT DISTINCT price FROM purchases", "UNSUPPORTED", "SELECT DISTINCT", "DISTINCT", "group by"),
    ("SELECT price FROM purchases ORDER BY price", "UNSUPPORTED", "ORDER BY", "ORDER BY", "sort it"),
    ("SELECT price FROM purchases SORT BY price", "UNSUPPORTED", "SORT BY", "ORDER BY", "sort it"),
    ("SELECT price FROM purchases LIMIT 3", "UNSUPPORTED", "LIMIT", "LIMIT", "WHERE"),
    ("SELECT price FROM purchases OFFSET 3", "UNSUPPORTED", "OFFSET", "OFFSET", "WHERE"),
    (
        "SELECT p.d FROM purchases p JOIN ads ON id = price",
        "NO_COMMON_WINDOW",
        "FROM purchases",
        "the source p of the join has no window",
        "p AS (SELECT *, window(time, '10 seconds') AS w FROM purchases), ads AS (SELECT *, window(at,",
    ),
    ("SELECT p.d FROM purchases p, ads", "NO_COMMON_WINDOW", "FROM purchases", "no window", "ON p.w = ads.w AND"),
    ("SELECT d FROM purchases UNION ALL SELECT id FROM ads", "UNSUPPORTED", "UNION", "UNION", "one query"),
    ("SELECT price FROM purchases INTERSECT SELECT id FROM ads", "UNSUPPORTED", "INTERSECT", "INTERSECT", "AND"),
    ("SELECT price FROM purchases EXCEPT SELECT id FROM ads", "UNSUPPORTED", "EXCEPT", "EXCEPT", "AND NOT"),
    ("SELECT 1 FROM purchases WHERE price IN (SELECT id FROM ads)", "UNSUPPORTED", "(SELECT", "subquery", "values"),
    ("SELECT (SELECT max(id) FROM ads) FROM purchases", "UNSUPPORTED", "(SELECT", "subquery", "values"),
    ("SELECT 1 FROM purchases WHERE EXISTS (SELECT 1 FROM ads)", "UNSUPPORTED", "EXISTS", "subquery", "values"),
    ("SELECT row_number() OVER (ORDER BY d) FROM purchases", "UNSUPPORTED", "OVER", "OVER", "GROUP BY"),
    ("SELECT explode(array(1)) FROM purchases", "UNSUPPORTED", "explode", "makes rows", "one by one"),
    ("SELECT x FROM purchases LATERAL VIEW explode(array(1)) AS x", "UNSUPPORTED", "LATERAL VIEW", "makes rows", "one"),
    (f"SELECT 1 FROM purchases GROUP BY CUBE(ok, {EIGHT})", "UNSUPPORTED", "CUBE", "CUBE", "each set"),
    ("SELECT 1 FROM purchases GROUP BY ok WITH ROLLUP", "UNSUPPORTED", "ROLLUP", "ROLLUP", "each set"),
    ("SELECT 1 FROM purchases GROUP BY GROUPING SETS ((ok), ())", "UNSUPPORTED", "GROUPING SETS", "SETS", "each set"),
    ("SELECT * FROM purchases PIVOT (sum(d) FOR price IN (1, 2))", "UNSUPPORTED", "PIVOT", "PIVOT", "FILTER"),
    ("SELECT * FROM purchases UNPIVOT (a FOR b IN (price, user_id))", "UNSUPPORTED", "UNPIVOT", "UNPIVOT", "one query"),
    ("SELECT * FROM purchases TABLESAMPLE (5 PERCENT)", "UNSUPPORTED", "TABLESAMPLE", "TABLESAMPLE", "WHERE"),
    (
        "SELECT price FROM purchases DISTRIBUTE BY price",
        "UNSUPPORTED",
        "DISTRIBUTE BY",
        "DISTRIBUTE BY",
        "leave it out",
    ),
    ("SELECT TRANSFORM(price) USING 'cat' AS x FROM purchases", "UNSUPPORTED", "TRANSFORM", "TRANSFORM", "functions"),
    (
        f"SELECT count(DISTINCT price) FROM purchases GROUP BY {EIGHT}",
        "UNSUPPORTED",
        "DISTINCT",
        "DISTINCT",
        "count, sum",
    ),
    (f"SELECT stddev(d) FROM purchases GROUP BY {EIGHT}", "UNSUPPORTED", "stddev", "aggregate stddev", "count, sum"),
    (
        f"SELECT collect_list(d) FROM purchases GROUP BY {EIGHT}",
        "UNSUPPORTED",
        "collect_list",
        "collect_list",
        "count, sum",
    ),
    (f"SELECT max_by(d, price) FROM purchases GROUP BY {EIGHT}", "UNSUPPORTED", "max_by", "max_by", "count, sum"),
    (f"SELECT max(window) FROM purchases GROUP BY {EIGHT}", "UNSUPPORTED", "window", "of the window", "window.start"),
    ("SELECT rand() FROM purchases", "UNSUPPORTED", "rand", "rand()", "hash"),
    ("SELECT uuid() FROM purchases", "UNSUPPORTED", "uuid", "uuid()", "hash"),
    ("SELECT now() FROM purchases", "UNSUPPORTED", "now", "now()", "event-time"),
    ("SELECT current_timestamp FROM purchases", "UNSUPPORTED", "current_timestamp", "current_timestamp", "event-time"),
    ("SELECT current_date() FROM purchases", "UNSUPPORTED", "current_date", "current_date", "event-time"),
    ("SELECT unix_timestamp() FROM purchases", "UNSUPPORTED", "unix_timestamp", "current_timestamp", "event-time"),
    (
        "SELECT levenshtein(gem_pack, 'x') FROM purchases",
        "UNSUPPORTED",
        "levenshtein",
        "function levenshtein",
        "supported",
    ),
    (
        f"SELECT count(*) FROM (SELECT ok FROM purchases GROUP BY ok, {EIGHT}) GROUP BY ok",
        "UNSUPPORTED",
        "GROUP BY",
        "over an aggregation",
        "inner query",
    ),
    (
        "WITH RECURSIVE r AS (SELECT price AS n FROM purchases UNION ALL SELECT n + 1 FROM r WHERE n < 3) TABLE r",
        "UNSUPPORTED",
        "RECURSIVE",
        "RECURSIVE",
        "without recursion",
    ),
]


@pytest.mark.parametrize(("sql", "code", "underlined", "message", "hint"), WRONG, ids=[case[0][:60] for case in WRONG])
def test_wrong_texts(
    front: FrontEnd, sql: str, code: str, underlined: str | None, message: str, hint: str | None
) -> None:
    with pytest.raises(SqlError) as caught:
        front.compile(sql)
    error = caught.value
    assert error.code == code
    assert message in error.message
    assert "\n" not in error.message
    assert "SQLSTATE" not in error.message
    assert not error.message.endswith(".")
    if hint is not None:
        assert error.hint is not None
        assert hint in error.hint
    if underlined is None:
        assert error.position is None
    else:
        assert error.position is not None
        assert sql[error.position.start : error.position.stop] == underlined
    assert error.render()


def test_nothing_is_run(front: FrontEnd, spark_analyzer: SparkAnalyzer, spark: SparkSession) -> None:
    spark_analyzer.plan("DROP VIEW purchases")
    spark_analyzer.plan("CREATE TABLE made_by_analysis(a INT) USING parquet")
    assert front.compile("SELECT price FROM purchases")
    assert not spark.catalog.tableExists("made_by_analysis")


def _active(spark: SparkSession) -> object:
    """The JVM's side of the session that is active in this thread."""
    active = type(spark).getActiveSession()
    return None if active is None else active._jsparkSession


def test_the_user_session_is_left_alone(spark: SparkSession, front: FrontEnd) -> None:
    assert "purchases" not in [table.name for table in spark.catalog.listTables()]
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    before = _active(spark)
    try:
        query = front.compile("SELECT TIMESTAMP '2020-01-01 00:00:00' AS t FROM purchases")
        assert query.outputs[0].expression == Literal(1_577_836_800 * SECOND, TIMESTAMP)
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
        assert _active(spark) == before
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


DEEP = {
    "parentheses": "(" * 5_000 + "1" + ")" * 5_000,
    "minus signs": "- " * 3_000 + "1",
    "a sum": " + ".join(["price"] * 400),
    "a long sum": " + ".join(["price"] * 9_000),
}


@pytest.mark.parametrize("case", DEEP)
def test_deep_texts_are_refused_and_harm_nobody(front: FrontEnd, case: str) -> None:
    with pytest.raises(SqlError, match="nested too deeply") as caught:
        front.compile(f"SELECT {DEEP[case]} AS x FROM purchases")
    assert caught.value.code == "UNSUPPORTED"
    assert front.compile("SELECT price FROM purchases WHERE " + " OR ".join(f"price = {n}" for n in range(900)))


def test_a_front_end_that_learns_ahead_asks_nothing_for_the_second_text(
    front: FrontEnd, analyzer: CountingAnalyzer
) -> None:
    front.learn_ahead()
    front.compile("SELECT price FROM purchases WHERE price > 1")
    front.close()
    assert analyzer.plans == 2
    found = front.compile("SELECT price FROM purchases WHERE price > 77")
    assert analyzer.plans == 2
    assert isinstance(found, LogicalQuery)
    assert "77" in show(found.where)


def test_what_cannot_be_learnt_ahead_is_told_to_who_needs_it(front: FrontEnd, analyzer: CountingAnalyzer) -> None:
    def gone(sql: str) -> str:
        raise OSError("the JVM is gone")

    front.learn_ahead()
    answer = analyzer.plan

    def once(sql: str) -> str:
        analyzer.plan = gone  # type: ignore[method-assign]
        return answer(sql)

    analyzer.plan = once  # type: ignore[method-assign]
    front.compile("SELECT price FROM purchases WHERE price > 1")
    front.close()
    with pytest.raises(OSError, match="the JVM is gone"):
        front.compile("SELECT price FROM purchases WHERE price > 77")


def test_texts_of_a_shape_that_come_together_ask_twice_in_all(front: FrontEnd, analyzer: CountingAnalyzer) -> None:
    texts = [f"SELECT price FROM purchases WHERE price > {n} AND price < {n + 100}" for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(front.compile, texts))
    assert analyzer.plans == 2
    assert [query.sql for query in found] == texts


class StubbornAnalyzer:
    """Refuses everything, with a condition the front end knows nothing about."""

    def plan(self, sql: str) -> str:
        raise Refusal("SOMETHING_NEW", "[SOMETHING_NEW] Spark has a new reason. SQLSTATE: 42000; line 1\n'Project [x]")

    def schema(self, sql: str) -> list[tuple[str, object]]:
        raise AssertionError


def test_unknown_conditions_keep_sparks_first_line() -> None:
    with pytest.raises(SqlError) as caught:
        FrontEnd(StubbornAnalyzer(), lambda: STREAMS).compile("SELECT price FROM purchases")
    assert (caught.value.code, caught.value.message) == ("SQL_ANALYSIS", "spark has a new reason")
