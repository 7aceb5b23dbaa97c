"""Random queries from the whole grammar, drawn so that most have answers and many have something in common.

What a query looks like and which constants stand in it come from two generators: queries drawn with the same first and
other second one differ in literals, window and life only, as the queries of users who fill in the same form do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from random import Random

from .expressions import Expressions, Leaf, Sql, arithmetic, fits, same, summable
from .numeric import FLOATS, INTEGERS, NUMBERS, UNKNOWN, Range, adjust
from .queries import MILLISECOND, WINDOW, Item, QueryCase, RankingCase, WindowCase
from .streams import MOST_ROWS, StreamCase

COMMON_KEYS = ("k", "u", "flag", "few", "tiny")
DIRECTIONS = ("", "DESC", "DESC", "ASC NULLS LAST", "DESC NULLS FIRST")
# Window slides in milliseconds.
SIZES = (
    100, 250, 500, 1_000, 1_500, 2_000, 3_000, 5_000, 7_000, 10_000, 30_000, 60_000, 90_000, 300_000, 600_000,
    3_600_000, 7_200_000, 86_400_000,
)  # fmt: skip


def random_query(shape: Random, constants: Random, id: str, stream: StreamCase, rounds: int) -> QueryCase:
    windowed = shape.random() < 0.85
    query = _aggregation(shape, constants, id, stream) if windowed else _filter(shape, constants, id, stream)
    create_at, delete_at = life(constants, rounds)
    return replace(query, create_at=create_at, delete_at=delete_at, layout=random_layout(shape))


def life(rng: Random, rounds: int, short: float = 0.4) -> tuple[int, int | None]:
    """From which batch on a query lives, and up to which: about so many of them not from the first or to the last."""
    create_at = rng.randrange(rounds) if rng.random() < short else 0
    deleted = create_at + 1 < rounds and rng.random() < short - 0.05
    # Rather late: a query that is deleted early has hardly closed a window.
    return create_at, max(rng.randrange(create_at + 1, rounds) for _ in range(2)) if deleted else None


def random_layout(rng: Random) -> str:
    return rng.choice(("line", "line", "line", "lines", "comment", "lower"))


def _spelled(rng: Random, stream: StreamCase) -> list[Leaf]:
    """The columns, written in one of the ways that Spark takes for the same (one in a query, or names would repeat)."""
    return stream.leaves(rng.choice((str, str, str, str.upper, str.lower, f"{stream.name}.{{}}".format)))


def _popular(leaves: list[Leaf], stream: StreamCase) -> list[Leaf]:
    return [leaf for leaf in leaves if leaf.sql.engine.lower().strip("`").split(".")[-1] in stream.popular]


def _filter(shape: Random, constants: Random, id: str, stream: StreamCase) -> QueryCase:
    leaves = _spelled(shape, stream)
    where = Expressions(shape, leaves, constants).predicate(3) if shape.random() < 0.9 else None
    loose = Expressions(shape, leaves, constants, stable=False)
    items = named(shape, [loose.value(3) for _ in range(shape.randint(1, 5))])
    if shape.random() < 0.15:
        items = (Item(same("*", "star")),)
    return QueryCase(id, stream.name, stream.time, items, where, None, (), None, 0, None)


def _aggregation(shape: Random, constants: Random, id: str, stream: StreamCase) -> QueryCase:
    leaves = _spelled(shape, stream)
    # Half of the queries ask about the same few columns, so that they share groups, classes and measures.
    asked = _popular(leaves, stream) if shape.random() < 0.5 else leaves
    rows = Expressions(shape, asked, constants)
    where = rows.predicate(shape.randint(0, 3)) if shape.random() < 0.75 else None
    keys = random_keys(shape, rows, leaves)
    loose = Expressions(shape, asked, constants, stable=False)
    aggregates = [random_aggregate(shape, rows, loose) for _ in range(shape.randint(1, 4))]
    results = [Leaf(a, constants_near(a)) for a in (*aggregates, *keys)] + _window_leaves(stream)
    stable = Expressions(shape, results, constants)
    items = random_items(shape, keys, aggregates, results, stable, Sql("window", WINDOW, "window"))
    having = stable.predicate(shape.randint(0, 2)) if shape.random() < 0.25 else None
    items, ranking = random_ranking(shape, items, keys) if shape.random() < 0.1 else (items, None)
    return QueryCase(
        id,
        stream.name,
        stream.time,
        items,
        where,
        _window(constants, stream),
        keys,
        having,
        0,
        None,
        grouping=shape.choice(("text", "text", "text", "alias", "ordinal")),
        window_place=shape.choice((0, len(keys), shape.randint(0, len(keys)))),
        window_word=shape.choice(("window", "window", "window", "WINDOW", "`window`", "window ")),
        inner=rows.predicate(1) if shape.random() < 0.08 else None,
        ranking=ranking,
    )


def random_keys(rng: Random, rows: Expressions, leaves: list[Leaf]) -> tuple[Sql, ...]:
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


def random_aggregate(rng: Random, rows: Expressions, loose: Expressions, most: int = MOST_ROWS) -> Sql:
    """An aggregate of at most so many rows."""
    function = rng.choice(("count", "COUNT", "sum", "SUM", "min", "max", "avg", "AVG", "Sum"))
    if function.lower() == "count" and rng.random() < 0.6:
        return same(f"{function}({rng.choice('**1')})", "bigint", Range(0, most))
    argument = (loose if rng.random() < 0.3 else rows).value(rng.choice((0, 0, 1, 2)))
    if function.lower() in ("sum", "avg"):
        while not summable(argument):
            argument = rows.number(rng.choice((0, 0, 1, 2)))
    return _aggregated(function, argument, most)


def _aggregated(function: str, a: Sql, most: int) -> Sql:
    engine, name = f"{function}({a.engine})", function.lower()
    if name == "count":
        return Sql(engine, f"count({a.twin})", "bigint", Range(0, most))
    if name in ("min", "max"):
        return replace(a, engine=engine, twin=f"{name}({a.twin})")
    exact = a.stable and (a.type == "decimal" or (name == "sum" and a.type in INTEGERS) or a.range.adds_exactly(most))
    total = Range(a.range.fraction, a.range.bound * most)
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


def constants_near(a: Sql) -> Callable[[Random], str]:
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


def random_items(
    rng: Random, keys: tuple[Sql, ...], aggregates: list[Sql], results: list[Leaf], stable: Expressions, window: Sql
) -> tuple[Item, ...]:
    """Columns over groups; the last two of ``results`` are the bounds of the window."""
    shown = [key for key in keys if rng.random() < 0.85] + aggregates
    if rng.random() < 0.35:
        shown.append(window)
    shown += [leaf.sql for leaf in results[-2:] if rng.random() < 0.35]
    for _ in range(rng.choice((0, 0, 1, 2))):
        shown.append(_over_aggregates(rng, stable, aggregates))
    rng.shuffle(shown)
    return named(rng, shown)


def _over_aggregates(rng: Random, stable: Expressions, aggregates: list[Sql]) -> Sql:
    numbers = [a for a in aggregates if a.type in NUMBERS]
    if numbers and rng.random() < 0.5:
        # Sums that may differ in the last digit only go through operations that keep that so.
        a = rng.choice(numbers)
        other = same(*rng.choice((("2", "int"), ("100", "int"), ("count(*)", "bigint"))), range=Range(0, MOST_ROWS))
        operator = rng.choice("+-*/")
        return arithmetic(operator, a, other) if fits(operator, a, other) else a
    return stable.value(2)


def named(rng: Random, shown: list[Sql]) -> tuple[Item, ...]:
    """Some with alias, some with Spark's automatic name; but no two columns of the same name."""
    seen: set[str] = set()
    items = []
    for place, sql in enumerate(shown):
        # Spark leaves out of a name where a column comes from.
        text = re.sub(r"\b\w+\.", "", sql.engine.lower().replace("(*)", "(1)"))
        alias = rng.choice((f"c{place}", f"`column {place}`", f"Total{place}")) if rng.random() < 0.5 else None
        if text in seen and alias is None:
            continue
        seen.add(text)
        items.append(Item(sql, alias))
    return tuple(items)


def random_ranking(
    rng: Random, items: tuple[Item, ...], keys: tuple[Sql, ...]
) -> tuple[tuple[Item, ...], RankingCase | None]:
    """A ranking of groups, and their columns, all of which have names then. Rows of one rank are any engine's choice,
    so that ``row_number`` orders by all keys."""
    places = [place for place, item in enumerate(items) if item.sql.stable and item.sql.type != "window"]
    if not places:
        return items, None
    of_keys = [place for place in places if items[place].sql in keys]
    orders = rng.sample(places, min(len(places), rng.choice((1, 1, 2))))
    partition = tuple(rng.sample(of_keys, 1)) if len(of_keys) > 1 and rng.random() < 0.4 else ()
    functions = ["rank", "dense_rank"]
    if {items[place].sql for place in of_keys} == set(keys):
        functions.append("row_number")
    function = rng.choice(functions)
    if function == "row_number":
        orders += [place for place in of_keys if place not in orders]
    directed = tuple((place, rng.choice(DIRECTIONS)) for place in orders)
    aliased = tuple(replace(item, alias=item.alias or f"g{place}") for place, item in enumerate(items))
    form = rng.choice(("qualify", "qualify", "column", "subquery"))
    return aliased, RankingCase(function, partition, directed, rng.choice((1, 1, 2, 3)), form)


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
