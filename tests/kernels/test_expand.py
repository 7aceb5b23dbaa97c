"""Joined rows against brute force: every kind, shapes of trees, odd keys, paging."""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millstream.kernels import expand as module
from millstream.kernels.expand import Pages, count, expand
from millstream.model.expression import Call, Column, Expression, Literal
from millstream.model.join import JoinNode, JoinQuery, Leg, Order, Ranking, Tree, leaves_of, leg_of
from millstream.model.query import Output, WindowSpec
from millstream.model.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    decimal,
)

START, END = 8_000_000, 16_000_000
WINDOW = DataType("window")
PRICE = decimal(10, 2)
TYPES = {
    "id": LONG, "i": INTEGER, "d": DOUBLE, "f": DataType("float"), "n": PRICE, "s": STRING, "b": DataType("binary"),
    "t": DATE, "z": TIMESTAMP, "u": TIMESTAMP_NTZ, "q": BOOLEAN, "o": DataType("void"),
}  # fmt: skip
POOLS: dict[str, list[Any]] = {
    "i": [None, 0, 1, 2, 3],
    "d": [None, math.nan, 0.0, -0.0, 1.5, math.inf],
    "f": [None, math.nan, 0.0, -0.0, 1.5, -math.inf],
    "n": [None, Decimal("0.00"), Decimal("1.00"), Decimal("-1.50"), Decimal("2.00")],
    "s": [None, "", "a", "A", "a ", "ä", "a\0"],
    "b": [None, b"", b"\x00", b"\xff"],
    "t": [None, datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), datetime.date(1970, 1, 1)],
    "z": [None, 0, -1, 10**15],
    "u": [None, 0, -1, 10**15],
    "q": [None, True, False],
    "o": [None],
}
KINDS = ("inner", "left", "right", "full", "semi", "anti")

Row = dict[str, Any]
Joined = dict[int, Row | None]


# --- the reference: rows as Python values, every pair looked at -------------------------------------------------


def plain(expression: Expression, row: Joined) -> Any:
    """The value of an expression; floats so that NaN equals NaN."""
    if isinstance(expression, Literal):
        return expression.value
    if isinstance(expression, Column):
        leg, name = leg_of(expression.name)
        mine = row[leg]
        if mine is None:
            return None
        return {"#start": START, "#end": END}[name] if name.startswith("#") else mine[name]
    values = [plain(argument, row) for argument in expression.args]
    if expression.op == "And":
        return False if False in values else None if None in values else True
    if expression.op == "Or":
        return True if True in values else None if None in values else False
    if expression.op == "EqualNullSafe":
        return values[0] is values[1] if None in values else equal(*values)
    if expression.op == "IsNull":
        return values[0] is None
    if expression.op == "Coalesce":
        return next((value for value in values if value is not None), None)
    return None if None in values else OPERATORS[expression.op](*values)


def equal(one: Any, other: Any) -> bool:
    return one == other or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


OPERATORS: dict[str, Callable[..., Any]] = {
    "EqualTo": equal,
    "Not": lambda a: not a,
    "LessThan": lambda a, b: a < b,
    "Add": lambda a, b: a + b,
    "Remainder": lambda a, b: math.fmod(a, b) if b else None,
    "Cast": lambda a: Decimal(a) if isinstance(a, int) else a,
}


def matches(node: JoinNode, row: Joined) -> bool:
    for one, other in node.equal:
        left, right = plain(one, row), plain(other, row)
        if left is None or right is None or not equal(left, right):
            return False
    return node.residual is None or plain(node.residual, row) is True


def brute(tree: Tree, legs: Sequence[list[Row]]) -> list[Joined]:
    if isinstance(tree, int):
        return [{tree: row} for row in legs[tree]]
    left, right = brute(tree.left, legs), brute(tree.right, legs)
    no_left: Joined = dict.fromkeys(leaves_of(tree.left))
    no_right: Joined = dict.fromkeys(leaves_of(tree.right))
    pairs = [[matches(tree, {**one, **other}) for other in right] for one in left]
    if tree.kind in ("semi", "anti"):
        return [one for one, found in zip(left, pairs, strict=True) if any(found) == (tree.kind == "semi")]
    rows = [
        {**a, **b} for a, found in zip(left, pairs, strict=True) for b, hit in zip(right, found, strict=True) if hit
    ]
    if tree.kind in ("left", "full"):
        rows += [{**one, **no_right} for one, found in zip(left, pairs, strict=True) if not any(found)]
    if tree.kind in ("right", "full"):
        rows += [{**no_left, **b} for j, b in enumerate(right) if not any(found[j] for found in pairs)]
    return rows


def expected(query: JoinQuery, legs: Sequence[list[Row]]) -> list[str]:
    rows = [row for row in brute(query.tree, legs) if query.where is None or plain(query.where, row) is True]
    return sorted(repr([shown(plain(o.expression, row)) for o in query.outputs]) for row in rows)


def shown(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return round(value.replace(tzinfo=datetime.UTC).timestamp() * 1_000_000)
    return value


def answered(tables: Iterator[pa.Table] | Sequence[pa.Table]) -> list[str]:
    rows: list[str] = []
    for table in tables:
        columns = [table.column(i).to_pylist() for i in range(table.num_columns)]
        rows.extend(repr([shown(value) for value in row]) for row in zip(*columns, strict=True))
    return rows


# --- making queries and legs -------------------------------------------------------------------------------------


def col(leg: int, name: str) -> Column:
    return Column(f"{leg}.{name}", TIMESTAMP if name.startswith("#") else TYPES[name])


def call(op: str, *args: Expression, to: DataType = BOOLEAN) -> Call:
    return Call(op, args, to)


def ids(tree: Tree) -> tuple[Output, ...]:
    """The row ids of all legs that can be seen above the tree."""
    return tuple(Output("id", col(leg, "id")) for leg in sorted(seen(tree)))


def seen(tree: Tree) -> tuple[int, ...]:
    if isinstance(tree, int):
        return (tree,)
    return seen(tree.left) if tree.kind in ("semi", "anti") else (*seen(tree.left), *seen(tree.right))


def join(
    kind: str, left: Tree, right: Tree, *equal: tuple[Expression, Expression], on: Expression | None = None
) -> JoinNode:
    return JoinNode(kind, left, right, equal, on)


def query_of(
    tree: Tree, outputs: Sequence[Output] | None = None, where: Expression | None = None, ranking: Ranking | None = None
) -> JoinQuery:
    legs = tuple(Leg("stream", f"l{i}", None) for i in range(max(leaves_in(tree)) + 1))
    chosen = ids(tree) if outputs is None else tuple(outputs)
    return JoinQuery("", legs, tree, where, WindowSpec(END - START, END - START), False, (), (), None, chosen, ranking)


def leaves_in(tree: Tree) -> tuple[int, ...]:
    return leaves_of(tree)


def random_leg(rng: random.Random, rows: int) -> list[Row]:
    return [{"id": i, **{name: rng.choice(pool) for name, pool in POOLS.items()}} for i in range(rows)]


def table_of(rows: Sequence[Row], names: Sequence[str] = tuple(TYPES)) -> pa.Table:
    return pa.table({name: pa.array([row[name] for row in rows], TYPES[name].arrow) for name in names})


def random_legs(rng: random.Random, count: int, most: int = 7) -> list[list[Row]]:
    return [random_leg(rng, rng.randrange(0, most)) for _ in range(count)]


def random_condition(rng: random.Random, left: Sequence[int], right: Sequence[int]) -> Expression:
    one, other = col(rng.choice(left), "i"), col(rng.choice(right), "i")
    total = call("Add", one, other, to=INTEGER)
    return rng.choice(
        [
            call("LessThan", one, other),
            call("EqualNullSafe", one, other),
            call("Or", call("IsNull", col(rng.choice(right), "#start")), call("LessThan", one, other)),
            call("EqualTo", col(rng.choice(left), "#end"), col(rng.choice(right), "#end")),
            call(
                "Not", call("EqualTo", call("Remainder", total, Literal(2, INTEGER), to=INTEGER), Literal(0, INTEGER))
            ),
            call("And", call("LessThan", total, Literal(5, INTEGER)), call("LessThan", Literal(0, INTEGER), one)),
            call("And", call("IsNull", col(rng.choice(left), "s")), call("LessThan", Literal(0, INTEGER), other)),
        ]
    )


def random_key(rng: random.Random, left: Sequence[int], right: Sequence[int]) -> tuple[Expression, Expression]:
    name = rng.choice("iidfnsbtzuq")
    one, other = col(rng.choice(left), name), col(rng.choice(right), name)
    if name == "i" and rng.random() < 0.3:
        return call("Cast", one, to=PRICE), col(rng.choice(right), "n")
    if name == "i" and rng.random() < 0.3:
        return call("Add", one, Literal(1, INTEGER), to=INTEGER), other
    return one, other


def random_tree(rng: random.Random, legs: Sequence[int], kinds: Sequence[str]) -> Tree:
    if len(legs) == 1:
        return legs[0]
    cut = rng.randrange(1, len(legs))
    left, right = random_tree(rng, legs[:cut], kinds), random_tree(rng, legs[cut:], kinds)
    one, other = seen(left), seen(right)
    keys = [random_key(rng, one, other) for _ in range(rng.choice([0, 1, 1, 1, 2]))]
    on = random_condition(rng, one, other) if rng.random() < 0.4 else None
    return JoinNode(rng.choice(kinds), left, right, tuple(keys), on)


def check(query: JoinQuery, legs: Sequence[list[Row]]) -> None:
    tables = [table_of(leg) for leg in legs]
    wanted = expected(query, legs)
    found = answered(expand(query, tables, START, END, page=1000))
    assert sorted(found) == wanted
    assert count(query, tables, START, END) == len(wanted)


# --- the tests ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [name for name in TYPES if name != "id"])
def test_keys_of_every_type_in_every_kind_of_join(kind: str, name: str) -> None:
    rng = random.Random(f"{kind} {name}")
    for _ in range(3):
        legs = [random_leg(rng, 9), random_leg(rng, 6)]
        check(query_of(join(kind, 0, 1, (col(0, name), col(1, name)))), legs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keyed", [True, False])
def test_residual_conditions(kind: str, keyed: bool) -> None:
    rng = random.Random(f"{kind} {keyed}")
    for _ in range(8):
        keys = [(col(0, "q"), col(1, "q"))] if keyed else []
        tree = join(kind, 0, 1, *keys, on=random_condition(rng, [0], [1]))
        check(query_of(tree), [random_leg(rng, 8), random_leg(rng, 8)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(0, 0), (0, 4), (4, 0), (1, 1), (3, 3)])
def test_empty_legs_and_joins_without_any_condition(kind: str, sizes: tuple[int, int]) -> None:
    legs = [random_leg(random.Random(1), size) for size in sizes]
    check(query_of(join(kind, 0, 1)), legs)
    check(query_of(join(kind, 0, 1, (col(0, "i"), col(1, "i")))), legs)


@pytest.mark.parametrize("seed", range(60))
def test_random_trees(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(4):
        size = rng.randrange(2, 6)
        kinds = KINDS if seed % 2 else ("inner", "inner", "left", "full")
        tree = random_tree(rng, range(size), kinds)
        where = random_condition(rng, seen(tree), seen(tree)) if rng.random() < 0.3 else None
        check(query_of(tree, where=where), random_legs(rng, size))


@pytest.mark.parametrize("seed", range(20))
def test_inner_joins_in_any_order_of_writing(seed: int) -> None:
    rng = random.Random(seed)
    order = rng.sample(range(4), 4)
    tree: Tree = order[0]
    for leg in order[1:]:
        known = seen(tree)
        keys = [(col(known[-1], "i"), col(leg, "i"))] if rng.random() < 0.7 else []
        if rng.random() < 0.3 and len(known) > 1:
            keys.append((call("Add", col(known[0], "i"), col(known[1], "i"), to=INTEGER), col(leg, "i")))
        tree = join("inner", tree, leg, *keys, on=random_condition(rng, known, [leg]) if rng.random() < 0.3 else None)
    check(query_of(tree), random_legs(rng, 4, most=9))


def test_a_side_that_spans_legs_waits_for_all_of_them() -> None:
    """Leg 2 is joined before leg 1 is there, so its second key becomes a condition."""
    total = call("Add", col(0, "i"), col(1, "i"), to=INTEGER)
    tree = join("inner", join("inner", 0, 1), 2, (col(0, "s"), col(2, "s")), (total, col(2, "i")))
    rng = random.Random(5)
    check(query_of(tree), [random_leg(rng, 12), random_leg(rng, 4), random_leg(rng, 10)])


def test_a_leg_joined_with_itself() -> None:
    leg = random_leg(random.Random(2), 12)
    check(
        query_of(join("inner", 0, 1, (col(0, "i"), col(1, "i")), on=call("LessThan", col(0, "id"), col(1, "id")))),
        [leg, leg],
    )
    check(
        query_of(join("full", 0, 1, (call("Add", col(0, "i"), Literal(1, INTEGER), to=INTEGER), col(1, "i")))),
        [leg, leg],
    )


def test_failing_operators_give_null() -> None:
    top = 2**31 - 1
    leg = [{**row, "i": i} for row, i in zip(random_leg(random.Random(0), 3), (0, 1, top), strict=True)]
    remainder = call("Remainder", col(0, "i"), col(1, "i"), to=INTEGER)
    total = call("Add", col(0, "i"), col(1, "i"), to=INTEGER)
    query = query_of(join("inner", 0, 1), [Output("r", remainder), Output("s", total)])
    found = answered(expand(query, [table_of(leg)] * 2, START, END, page=100))
    pairs = [(a, b) for a in (0, 1, top) for b in (0, 1, top)]
    assert sorted(found) == sorted(repr([a % b if b else None, a + b if a + b <= top else None]) for a, b in pairs)


def test_a_failing_condition_keeps_no_row() -> None:
    leg = random_leg(random.Random(3), 9)
    odd = call("EqualTo", call("Remainder", col(0, "i"), col(1, "i"), to=INTEGER), Literal(0, INTEGER))
    for kind in KINDS:
        check(query_of(join(kind, 0, 1, on=odd)), [leg, leg])


def test_the_window_is_null_where_a_leg_has_no_row() -> None:
    def window(leg: int) -> Call:
        return call("Window", col(leg, "#start"), col(leg, "#end"), to=WINDOW)

    either = [call("Coalesce", col(0, bound), col(1, bound), to=TIMESTAMP) for bound in ("#start", "#end")]
    outputs = [
        Output("w", window(0)), Output("w", window(1)), Output("w", call("Window", *either, to=WINDOW)),
        Output("w", call("Coalesce", window(0), window(1), to=WINDOW)), Output("start", col(1, "#start")),
        Output("none", call("IsNull", window(0))),
    ]  # fmt: skip
    query = query_of(join("full", 0, 1, (col(0, "i"), col(1, "i"))), outputs)
    legs = [table_of([{**random_leg(random.Random(0), 1)[0], "i": i} for i in (1, number)]) for number in (2, 3)]
    (table,) = expand(query, legs, START, END, page=10)
    assert [field.type for field in table.schema] == [output.type.arrow for output in outputs]
    start, end = (datetime.datetime.fromtimestamp(t // 1_000_000, datetime.UTC) for t in (START, END))
    it = {"start": start, "end": end}
    found = sorted(zip(*(table.column(i).to_pylist() for i in range(6)), strict=True), key=str)
    assert found == sorted(
        [(it, it, it, it, start, False), (it, None, it, it, None, False), (None, it, it, it, start, True)], key=str
    )


def test_conditions_on_the_window_need_its_bounds_to_be_counted() -> None:
    late = call("LessThan", col(0, "#start"), Literal(START, TIMESTAMP))
    legs = [table_of(random_leg(random.Random(0), 2))] * 2
    query = query_of(join("inner", 0, 1), where=late)
    with pytest.raises(ValueError, match="start and end are needed"):
        count(query, legs)
    assert count(query, legs, START, END) == 0
    assert count(query, legs, START - 1, END - 1) == 4
    assert count(query_of(join("inner", 0, 1)), legs) == 4


def test_columns_have_the_types_and_names_of_the_query() -> None:
    leg = random_leg(random.Random(4), 20)
    outputs = [Output("same", col(leg_, name)) for leg_ in (0, 1) for name in TYPES]
    query = query_of(join("left", 0, 1, (col(0, "s"), col(1, "s"))), outputs)
    table = pa.concat_tables(expand(query, [table_of(leg), table_of(leg)], START, END, page=7))
    assert table.column_names == ["same"] * len(outputs)
    assert [field.type for field in table.schema] == [output.type.arrow for output in outputs]
    legs = [[{**row, "z": row["z"], "u": row["u"]} for row in leg]] * 2
    assert sorted(answered([table])) == expected(query, legs)


def test_values_of_zero_keep_their_sign() -> None:
    legs = [[{**random_leg(random.Random(0), 1)[0], "d": d} for d in (0.0, -0.0)]] * 2
    query = query_of(
        join("inner", 0, 1, (col(0, "d"), col(1, "d"))), [Output("a", col(0, "d")), Output("b", col(1, "d"))]
    )
    check(query, legs)


def test_legs_may_be_dictionaries_chunks_and_other_zones() -> None:
    table = pa.table(
        {
            "S": pa.chunked_array([pa.array(["a"]).dictionary_encode(), pa.array(["b", None]).dictionary_encode()]),
            "s": pa.array(["x", "y", "z"], pa.large_string()),
            "z": pa.array([0, 1, 2], pa.timestamp("us", tz="Europe/Berlin")),
        }
    )
    outputs = [
        Output(name, Column(f"{leg}.{name}", type_))
        for leg in (0, 1)
        for name, type_ in (("S", STRING), ("s", STRING), ("z", TIMESTAMP))
    ]
    query = query_of(join("inner", 0, 1, (Column("0.S", STRING), Column("1.S", STRING))), outputs)
    found = pa.concat_tables(expand(query, [table, table], START, END, page=7))
    assert [field.type for field in found.schema] == [output.type.arrow for output in outputs]
    assert sorted(answered([found])) == ["['a', 'x', 0, 'a', 'x', 0]", "['b', 'y', 1, 'b', 'y', 1]"]


def test_the_first_rows_by_rank() -> None:
    leg = [{**random_leg(random.Random(0), 1)[0], "id": i, "i": i % 3} for i in range(9)]
    ranking = Ranking("row_number", (col(0, "i"),), (Order(col(1, "id"), False, False),), 2)
    query = query_of(join("inner", 0, 1, (col(0, "id"), col(1, "id"))), ranking=ranking)
    assert sorted(answered(expand(query, [table_of(leg)] * 2, START, END, page=100))) == [
        f"[{i}, {i}]" for i in range(3, 9)
    ]


# --- pages -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long() -> tuple[JoinQuery, list[pa.Table], list[str]]:
    """An answer of some hundred rows, with NULLs on both sides."""
    rng = random.Random(7)
    tree = join("full", join("inner", 0, 1, (col(0, "i"), col(1, "i"))), 2, (col(0, "s"), col(2, "s")))
    query, legs = query_of(tree), [table_of(random_leg(rng, 14)) for _ in range(3)]
    (table,) = expand(query, legs, START, END, page=10**6)
    return query, legs, answered([table])


@pytest.mark.parametrize("page", [1, 2, 3, 7, 50, 10**6])
@pytest.mark.parametrize("skip", [0, 1, 13])
def test_pages_of_all_sizes_give_the_same_rows(
    long: tuple[JoinQuery, list[pa.Table], list[str]], page: int, skip: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH_ROWS", 5)
    query, legs, rows = long
    tables = list(expand(query, legs, START, END, page, skip))
    assert answered(tables) == rows[skip:]
    assert all(table.num_rows == page for table in tables[:-1])


def test_chunks_do_not_change_the_order() -> None:
    rng = random.Random(1)
    legs = [table_of(random_leg(rng, 5000), ["id", "i", "s"]) for _ in range(2)]
    cut = [
        pa.concat_tables([leg.slice(0, 1), leg.slice(1, 2047), leg.slice(2048, 100), leg.slice(2148)]) for leg in legs
    ]
    on = call(
        "EqualTo",
        call("Remainder", call("Add", col(0, "id"), col(1, "id"), to=LONG), Literal(1000, LONG), to=LONG),
        Literal(1, LONG),
    )
    query = query_of(join("left", 0, 1, (col(0, "i"), col(1, "i")), on=on))
    whole, parts = (pa.concat_tables(expand(query, given, START, END, page=10**5)) for given in (legs, cut))
    assert whole.num_rows > 1000
    assert whole.equals(parts)


def test_a_reader_can_go_on_go_back_and_pass_the_end(long: tuple[JoinQuery, list[pa.Table], list[str]]) -> None:
    query, legs, rows = long
    with Pages(query, legs, START, END) as pages:
        assert pages.schema.names == ["id"] * 3
        for skip, size in [
            (0, 5),
            (5, 5),
            (5, 5),
            (100, 3),
            (2, 1),
            (3, 4),
            (len(rows) - 1, 9),
            (len(rows), 9),
            (10**6, 2),
        ]:
            assert answered([pages.page(skip, size)]) == rows[skip : skip + size], (skip, size)
        pages.close()
        assert answered([pages.page(5, 5)]) == rows[5:10]
        with pytest.raises(ValueError, match="not 0 rows"):
            pages.page(0, 0)


def test_the_next_page_continues_the_open_stream(
    long: tuple[JoinQuery, list[pa.Table], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    query, legs, rows = long
    starts: list[int] = []
    start = Pages._start

    def noted(pages: Pages, skip: int) -> None:
        starts.append(skip)
        start(pages, skip)

    monkeypatch.setattr(Pages, "_start", noted)
    with Pages(query, legs, START, END) as pages:
        for skip in range(0, len(rows) + 30, 10):
            pages.page(min(skip, len(rows)), 10)
        assert starts == [0], "not even after the end"
        pages.page(0, 10)
    assert starts == [0, 0]


def test_readers_at_the_same_time_do_not_disturb_each_other(long: tuple[JoinQuery, list[pa.Table], list[str]]) -> None:
    query, legs, rows = long
    readers = [Pages(query, legs, START, END) for _ in range(6)]
    for skip in range(0, 60, 6):
        for reader in readers:
            assert answered([reader.page(skip, 6)]) == rows[skip : skip + 6]
    for reader in readers:
        reader.close()


def hot(rows: int) -> tuple[JoinQuery, list[pa.Table]]:
    """One key on both sides: rows² pairs."""
    leg = pa.table({"i": pa.array(np.zeros(rows, np.int32)), "id": pa.array(np.arange(rows))})
    return query_of(join("inner", 0, 1, (col(0, "i"), col(1, "i")))), [leg, leg]


@pytest.mark.parametrize("kind", ["inner", "left", "right", "full"])
def test_a_long_answer_is_read_in_a_small_memory(kind: str) -> None:
    """Ten million rows of two numbers are 160 MB; DuckDB gets 8 MB and no disk, Arrow never holds more than a few
    batches."""
    query, legs = hot(3200)
    query = query_of(join(kind, 0, 1, *query.tree.equal))  # type: ignore[union-attr]
    before, most, total = pa.total_allocated_bytes(), 0, 0
    with Pages(query, legs, START, END, memory=8 << 20, spill="/dev/null") as pages:
        while (table := pages.page(total, 100_000)).num_rows:
            total += table.num_rows
            most = max(most, table.nbytes)
    assert total == 3200**2
    assert most <= 100_000 * 17
    assert pa.total_allocated_bytes() - before < 16 << 20


def test_a_table_of_one_key_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    """Rows of one key cannot be parted, not even on disk."""
    query, legs = hot(1_000_000)
    with Pages(query, legs, START, END, memory=8 << 20, spill=str(tmp_path)) as pages:
        with pytest.raises(MemoryError, match="8388608 bytes"):
            pages.page(0, 1)
        with pytest.raises(MemoryError, match="8388608 bytes"):
            pages.page(0, 1)


def test_tables_that_do_not_fit_go_to_disk(tmp_path: Path) -> None:
    rows = 1_000_000
    leg = pa.table({"i": pa.array(np.arange(rows, dtype=np.int32)), "id": pa.array(np.arange(rows))})
    query = query_of(join("inner", 0, 1, (col(0, "i"), col(1, "i"))))
    pages = list(expand(query, [leg, leg], START, END, page=7000, memory=24 << 20, spill=str(tmp_path)))
    found = np.concatenate([np.asarray(page.column(1)) for page in pages])
    assert np.array_equal(np.sort(found), np.arange(rows))


def test_long_texts_come_in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_BYTES", 1 << 20)
    leg = pa.table({"s": pa.array(["x" * (1 << 18), None])})
    query = query_of(join("inner", 0, 1), [Output("s", col(0, "s"))])
    with Pages(query, [leg, leg], START, END) as pages:
        assert pages.page(0, 1).num_rows == 1
        assert pages._rest is not None
        assert pages._rest.num_rows <= 3
    empty = pa.table({"s": pa.array([], pa.string())})
    assert not list(expand(query, [empty, empty], START, END, page=1))


def test_rows_without_partners_further_on_are_never_joined() -> None:
    """Legs 0 and 1 share one key, 10^10 pairs; leg 2 has no row for any of them."""
    rows = 100_000
    leg = pa.table({"i": pa.array(np.zeros(rows, np.int32)), "id": pa.array(np.arange(rows))})
    last = pa.table({"i": pa.array([0], pa.int32()), "id": pa.array([-1])})
    for link in (0, 1):
        first = join("inner", 0, 1, (col(0, "i"), col(1, "i")))
        query = query_of(join("inner", first, 2, (col(link, "id"), col(2, "id"))))
        assert count(query, [leg, leg, last]) == 0


def test_a_failing_stream_starts_again(
    long: tuple[JoinQuery, list[pa.Table], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    query, legs, rows = long
    monkeypatch.setattr(module, "BATCH_ROWS", 5)
    with Pages(query, legs, START, END) as pages:
        pages.page(0, 5)
        reader = pages._reader
        pages._reader = pa.RecordBatchReader.from_batches(pages.schema, (1 / 0 for _ in "x"))  # type: ignore[misc]
        with pytest.raises(ZeroDivisionError):
            pages.page(5, 5)
        assert reader is not None
        reader.close()
        assert answered([pages.page(5, 5)]) == rows[5:10]


def test_only_rows_of_the_right_legs_are_expanded() -> None:
    query, legs = hot(2)
    with pytest.raises(ValueError, match="2 legs, not 1"):
        Pages(query, legs[:1], START, END)
    grouped = JoinQuery("", query.legs, query.tree, None, query.window, True, (), (), None, ())
    with pytest.raises(ValueError, match="without grouping"):
        count(grouped, legs)
