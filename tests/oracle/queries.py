"""Random queries from the whole grammar: filters and projections, and aggregations over windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from .expressions import Expressions, Leaf, Sql, arithmetic, same, summable
from .numeric import FLOATS, INTEGERS, NUMBERS, UNKNOWN, Range, adjust
from .streams import StreamCase

# Stands for the window column in twin texts, since it is called differently in the two forms of a twin.
WINDOW = "@window"
COMMON_KEYS = ("k", "u", "flag", "few", "tiny")
# No group has more rows than a stream (``streams.MAX_ROWS``).
MOST_ROWS = 1024
MILLISECOND = 1_000
SECOND = 1_000_000
SIZES = (
    100,
    250,
    500,
    1_000,
    1_500,
    2_000,
    3_000,
    5_000,
    7_000,
    10_000,
    30_000,
    60_000,
    90_000,
    300_000,
    600_000,
    3_600_000,
    7_200_000,
    86_400_000,
)
UNITS = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second"), (1, "millisecond"))


@dataclass(frozen=True, slots=True)
class WindowCase:
    """A window in microseconds."""

    size: int
    slide: int
    offset: int

    def call(self, time: str) -> str:
        parts = [time, f"'{duration(self.size)}'"]
        if self.slide != self.size or self.offset:
            parts.append(f"'{duration(self.slide)}'")
        if self.offset:
            parts.append(f"'{duration(self.offset)}'")
        return f"window({', '.join(parts)})"

    def first_end(self, time: int) -> int:
        """The end of the first window to close among those that contain ``time``."""
        return time + self.slide - (time - self.offset - self.size) % self.slide


@dataclass(frozen=True, slots=True)
class Item:
    """A column of SELECT."""

    sql: Sql
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class QueryCase:
    """A query in parts, with its life in batches; ``delete_at`` None means that it lives to the end."""

    id: str
    stream: str
    time: str
    items: tuple[Item, ...]
    where: Sql | None
    window: WindowCase | None
    keys: tuple[Sql, ...]
    having: Sql | None
    create_at: int
    delete_at: int | None
    # How GROUP BY is written: by expression, alias or ordinal; and where the window stands in it.
    grouping: str = "text"
    window_place: int = 0

    @property
    def sql(self) -> str:
        """The user's text."""
        select = ", ".join(f"{i.sql.engine} AS {i.alias}" if i.alias else i.sql.engine for i in self.items)
        text = f"SELECT {select} FROM {self.stream}"
        if self.where:
            text += f" WHERE {self.where.engine}"
        if self.window:
            groups = [self._group(key) for key in self.keys]
            groups.insert(self.window_place, self.window.call(self.time))
            text += f" GROUP BY {', '.join(groups)}"
        return f"{text} HAVING {self.having.engine}" if self.having else text

    def _group(self, key: Sql) -> str:
        for place, item in enumerate(self.items, start=1):
            if item.sql == key and self.grouping == "ordinal":
                return str(place)
            if item.sql == key and item.alias and self.grouping == "alias":
                return item.alias
        return key.engine

    def twin(self, source: str, columns: tuple[str, ...], on_time: str | None) -> str:
        """The text for plain Spark over ``source``, the rows of the cut; columns are called ``c0``, ``c1``, …

        A windowed twin has the window's end as last column, ``e``. Where rows are late, ``on_time`` is the condition on
        ``__window`` that keeps a row in a window: then windows are made first, so that it applies to each of them.
        """
        texts = [c for i in self.items for c in ([f"`{c}`" for c in columns] if i.sql.engine == "*" else [i.sql.twin])]
        texts = [f"{text} AS c{place}" for place, text in enumerate(texts)]
        conditions = [self.where.twin] if self.where else []
        groups = [key.twin for key in self.keys]
        if self.window:
            texts.append(f"{WINDOW}.end AS e")
            call = self.window.call(self.time)
            if on_time:
                source = f"(SELECT *, {call} AS __window FROM {source})"
                conditions.insert(0, on_time)
            groups.append("__window" if on_time else call)
        text = f"SELECT {', '.join(texts)} FROM {source} AS {self.stream}"
        text += f" WHERE {' AND '.join(f'({c})' for c in conditions)}" if conditions else ""
        text += f" GROUP BY {', '.join(groups)}" if self.window else ""
        text += f" HAVING {self.having.twin}" if self.having else ""
        return text.replace(WINDOW, "__window" if on_time else "window")


def duration(micros: int) -> str:
    """
    >>> duration(90_000_000), duration(1_500_000)
    ('1 minute 30 seconds', '1 second 500 milliseconds')
    """
    rest, words = micros // MILLISECOND, []
    for size, name in UNITS:
        count, rest = divmod(rest, size)
        if count:
            words.append(f"{count} {name}{'s' if count > 1 else ''}")
    return " ".join(words) or "0 seconds"


def random_query(rng: Random, id: str, stream: StreamCase, rounds: int) -> QueryCase:
    windowed = rng.random() < 0.85
    query = _aggregation(rng, id, stream) if windowed else _filter(rng, id, stream)
    create_at = rng.randrange(rounds) if rng.random() < 0.4 else 0
    deleted = create_at + 1 < rounds and rng.random() < 0.35
    # Rather late: a query that is deleted early has hardly closed a window.
    delete_at = max(rng.randrange(create_at + 1, rounds) for _ in range(2)) if deleted else None
    return replace(query, create_at=create_at, delete_at=delete_at)


def _spelled(rng: Random, stream: StreamCase) -> list[Leaf]:
    """The columns, written in one of the ways that Spark takes for the same (one in a query, or names would repeat)."""
    return stream.leaves(rng.choice((str, str, str, str.upper, str.lower, f"{stream.name}.{{}}".format)))


def _filter(rng: Random, id: str, stream: StreamCase) -> QueryCase:
    leaves = _spelled(rng, stream)
    where = Expressions(rng, leaves).predicate(3) if rng.random() < 0.9 else None
    loose = Expressions(rng, leaves, stable=False)
    items = _named(rng, [loose.value(3) for _ in range(rng.randint(1, 5))])
    if rng.random() < 0.15:
        items = (Item(same("*", "star")),)
    return QueryCase(id, stream.name, stream.time, items, where, None, (), None, 0, None)


def _aggregation(rng: Random, id: str, stream: StreamCase) -> QueryCase:
    leaves = _spelled(rng, stream)
    rows = Expressions(rng, leaves)
    where = rows.predicate(rng.randint(0, 3)) if rng.random() < 0.75 else None
    keys = _keys(rng, rows, leaves)
    aggregates = [_aggregate(rng, rows, Expressions(rng, leaves, stable=False)) for _ in range(rng.randint(1, 4))]
    results = [Leaf(a, _constants(a)) for a in (*aggregates, *keys)] + _window_leaves(stream)
    items = _items(rng, stream, keys, aggregates, results)
    having = Expressions(rng, results).predicate(rng.randint(0, 2)) if rng.random() < 0.25 else None
    grouping = rng.choice(("text", "text", "text", "alias", "ordinal"))
    place = rng.choice((0, len(keys), rng.randint(0, len(keys))))
    window = _window(rng, stream)
    return QueryCase(id, stream.name, stream.time, items, where, window, keys, having, 0, None, grouping, place)


def _keys(rng: Random, rows: Expressions, leaves: list[Leaf]) -> tuple[Sql, ...]:
    count = rng.choices((0, 1, 2, 3), (20, 50, 20, 10))[0]
    common = [leaf.sql for leaf in leaves if leaf.sql.engine.lower().split(".")[-1] in COMMON_KEYS]
    keys: list[Sql] = []
    for _ in range(count):
        draw = rng.random()
        key = rng.choice(common) if draw < 0.6 else rng.choice(leaves).sql if draw < 0.8 else rows.value(2)
        # A literal in GROUP BY would be read as an ordinal.
        if key.engine not in {k.engine for k in keys} and any(leaf.sql.engine in key.engine for leaf in leaves):
            keys.append(key)
    return tuple(keys)


def _aggregate(rng: Random, rows: Expressions, loose: Expressions) -> Sql:
    function = rng.choice(("count", "COUNT", "sum", "SUM", "min", "max", "avg", "AVG", "Sum"))
    if function.lower() == "count" and rng.random() < 0.6:
        return same(f"{function}({rng.choice('**1')})", "bigint", Range(0, MOST_ROWS))
    argument = (loose if rng.random() < 0.3 else rows).value(rng.choice((0, 0, 1, 2)))
    if function.lower() in ("sum", "avg"):
        while not summable(argument):
            argument = rows.number(rng.choice((0, 0, 1, 2)))
    return _aggregated(function, argument)


def _aggregated(function: str, a: Sql) -> Sql:
    engine, name = f"{function}({a.engine})", function.lower()
    if name == "count":
        return Sql(engine, f"count({a.twin})", "bigint", Range(0, MOST_ROWS))
    if name in ("min", "max"):
        return replace(a, engine=engine, twin=f"{name}({a.twin})")
    exact = a.stable and (a.type == "decimal" or (name == "sum" and a.type in INTEGERS) or a.range.adds_exactly)
    total = Range(a.range.fraction, a.range.bound * MOST_ROWS)
    if name == "avg":
        kind, digits = (
            ("decimal", adjust(a.digits[0] + 4, a.digits[1] + 4)) if a.type == "decimal" else ("double", (0, 0))
        )
        return Sql(engine, f"try_avg({a.twin})", kind, Range(None, a.range.bound), digits, exact)
    if a.type == "decimal":
        return Sql(engine, f"try_sum({a.twin})", "decimal", total, (a.digits[0] + 10, a.digits[1]), exact)
    if a.type in FLOATS:
        return Sql(engine, f"try_sum({a.twin})", "double", total, stable=exact)
    # Whether a running sum of bigints overflows on its way depends on the order of rows; the total does not.
    twin = f"try_cast(sum(CAST({a.twin} AS DECIMAL(20,0))) AS BIGINT)"
    return Sql(engine, twin, "bigint", Range(0, min(total.bound, 2.0**63)), stable=exact)


def _constants(a: Sql) -> Callable[[Random], str]:
    def constant(rng: Random) -> str:
        if a.type in NUMBERS:
            return rng.choice(
                ("0", "1", str(rng.randint(-5, 9)), f"{rng.randint(-50, 100)}", f"{rng.randint(-9, 9)}.5", "0.25D")
            )
        return {
            "string": "'jade'",
            "boolean": "TRUE",
            "date": "DATE '2024-01-20'",
            "timestamp": "TIMESTAMP '2024-01-20 12:00:00'",
            "timestamp_ntz": "TIMESTAMP_NTZ '2024-01-20 12:00:00'",
        }[a.type]

    return constant


def _window_leaves(stream: StreamCase) -> list[Leaf]:
    parts = (Sql(f"window.{part}", f"{WINDOW}.{part}", stream.time_type, UNKNOWN) for part in ("start", "end"))
    return [Leaf(part, lambda rng: stream.moment_constant(rng)) for part in parts]


def _items(
    rng: Random, stream: StreamCase, keys: tuple[Sql, ...], aggregates: list[Sql], results: list[Leaf]
) -> tuple[Item, ...]:
    shown = [key for key in keys if rng.random() < 0.85] + aggregates
    if rng.random() < 0.35:
        shown.append(Sql("window", WINDOW, "window"))
    shown += [leaf.sql for leaf in results[-2:] if rng.random() < 0.35]
    loose = Expressions(rng, results, stable=False)
    for _ in range(rng.choice((0, 0, 1, 2))):
        shown.append(_over_aggregates(rng, loose, Expressions(rng, results), aggregates))
    rng.shuffle(shown)
    return _named(rng, shown)


def _over_aggregates(rng: Random, loose: Expressions, stable: Expressions, aggregates: list[Sql]) -> Sql:
    numbers = [a for a in aggregates if a.type in NUMBERS]
    if numbers and rng.random() < 0.5:
        # Sums that may differ in the last digit only go through operations that keep that so.
        a = rng.choice(numbers)
        other = same(*rng.choice((("2", "int"), ("100", "int"), ("count(*)", "bigint"))), range=Range(0, MOST_ROWS))
        return arithmetic(rng.choice("+-/" if a.type == "decimal" else "+-*/"), a, other)
    return stable.value(2) if stable.leaves else rng.choice(loose.leaves).sql


def _named(rng: Random, shown: list[Sql]) -> tuple[Item, ...]:
    """Some with alias, some with Spark's automatic name; but no two columns of the same name."""
    seen: set[str] = set()
    items = []
    for place, sql in enumerate(shown):
        text = sql.engine.lower().replace("(*)", "(1)")
        alias = rng.choice((f"c{place}", f"`column {place}`", f"Total{place}")) if rng.random() < 0.5 else None
        if text in seen and alias is None:
            continue
        seen.add(text)
        items.append(Item(sql, alias))
    return tuple(items)


def _window(rng: Random, stream: StreamCase) -> WindowCase:
    """A window whose slide cuts the stream's time into at most some dozens of pieces."""
    span = max(stream.span // MILLISECOND, 1)
    slides = [s for s in SIZES if span / 40 <= s <= span / 3] or [
        max(s for s in SIZES if s <= span * 40 or s == SIZES[0])
    ]
    slide = rng.choice(slides)
    size = slide
    if rng.random() < 0.55:
        size = rng.choice(
            (slide * 2, slide * 3, slide * 5, slide + slide // 2, slide + slide // 4, slide * 8, slide + 1)
        )
    offset = rng.choice((0, 0, 0, slide // 2, slide // 10, slide - 1))
    return WindowCase(size * MILLISECOND, slide * MILLISECOND, offset * MILLISECOND)
