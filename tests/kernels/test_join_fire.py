"""Fire of joins from buckets, without Spark: matrices against lists, and both against the rows themselves."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import pyarrow as pa
import pytest

from millstream.kernels import ingest, join_fire
from millstream.kernels.evaluate import Evaluator
from millstream.kernels.expand import count, expand
from millstream.kernels.fire import Piece, can_keep
from millstream.kernels.group import Group
from millstream.kernels.ingest import Tally, slice_cells
from millstream.kernels.join_fire import JoinDue, JoinFired, LegSource, fire_joins
from millstream.kernels.predicate import select
from millstream.kernels.stack import Stack
from millstream.model.expression import Call, Column, Expression, Literal
from millstream.model.group import Member
from millstream.model.join import JoinNode, JoinQuery, Leg, Tree, leg_column
from millstream.model.legs import form_of, leg_fields, leg_member, leg_query
from millstream.model.query import WINDOW_END, WINDOW_START, Aggregate, Output, WindowSpec
from millstream.model.types import BOOLEAN, DOUBLE, LONG, STRING, TIMESTAMP, TIMESTAMP_NTZ, DataType

from .plain import batch_of, version_of

pytestmark = pytest.mark.usefixtures("loops")

COLUMNS: dict[str, DataType] = {"k": LONG, "g": LONG, "v": LONG, "s": STRING, "d": DOUBLE}
KINDS = (TIMESTAMP, TIMESTAMP_NTZ)
END = 40
EVALUATOR = Evaluator()


def of(leg: int, name: str) -> Column:
    return Column(f"{leg}.{name}", COLUMNS[name])


def _rows(rng: random.Random, count: int) -> pa.Table:
    values = {
        "k": [rng.choice([None, *range(6)]) for _ in range(count)],
        "g": [rng.randrange(3) for _ in range(count)],
        "v": [rng.choice([None, rng.randrange(20)]) for _ in range(count)],
        "s": [rng.choice([None, "a", "b", "c"]) for _ in range(count)],
        "d": [rng.choice([None, 0.5, 1.25]) for _ in range(count)],
    }
    table = {name: pa.array(values[name], COLUMNS[name].arrow) for name in COLUMNS}
    times = pa.array(sorted(rng.randrange(END) for _ in range(count)), pa.int64())
    return pa.table({**table, "time": times.cast(TIMESTAMP.arrow)})


def _tree(rng: random.Random, legs: int) -> Tree:
    tree: Tree = 0
    for leg in range(1, legs):
        kinds = ["inner", "inner", "left", "right", "full"] + (["semi", "anti"] if leg == legs - 1 else ["inner"] * 3)
        kind = rng.choice(kinds)
        other = rng.randrange(leg)
        name = rng.choice(["k", "g"])
        residual = None
        if rng.random() < 0.3:
            residual = Call("LessThan", (of(other, "v"), of(leg, "v")), BOOLEAN)
        if rng.random() < 0.3:
            # Of one leg alone, and in two parts.
            parts = [Call("LessThan", (of(other, "v"), Literal(rng.randrange(9, 20), LONG)), BOOLEAN)]
            parts.append(Call("IsNotNull", (of(other, "s"),), BOOLEAN))
            parts += [] if residual is None else [residual]
            residual = reduce(lambda one, two: Call("And", (one, two), BOOLEAN), parts)
        tree = JoinNode(kind, tree, leg, ((of(other, name), of(leg, name)),), residual)
    return tree


def _query(rng: random.Random, tree: Tree, legs: int, grouped: bool) -> JoinQuery:
    visible = legs - 1 if isinstance(tree, JoinNode) and tree.kind in ("semi", "anti") else legs
    size = rng.randint(2, 9)
    window = WindowSpec(size, rng.randint(1, size))
    sources = []
    for leg in range(legs):
        where: Expression | None = None
        if rng.random() < 0.7:
            where = Call("LessThan", (Column("v", LONG), Literal(rng.randrange(2, 20), LONG)), BOOLEAN)
        sources.append(Leg("s", f"l{leg}", where, Column("time", TIMESTAMP)))
    if not grouped:
        outputs = tuple(Output(f"{leg}{n}", of(leg, n)) for leg in range(visible) for n in ("k", "v", "s"))
        return JoinQuery("", tuple(sources), tree, None, window, False, (), (), None, outputs)
    leg = rng.randrange(visible)
    aggregates = (
        Aggregate("count", None, LONG),
        Aggregate("sum", of(leg, "v"), LONG),
        Aggregate("min", of(rng.randrange(visible), "s"), STRING),
        Aggregate("max", of(rng.randrange(visible), "v"), LONG),
        Aggregate("sum", of(leg, "d"), DOUBLE),
    )
    keys = (of(rng.randrange(visible), "g"),)
    names = [("g", Column("#k0", LONG)), *((f"a{i}", Column(f"#a{i}", a.type)) for i, a in enumerate(aggregates))]
    outputs = tuple(Output(name, column) for name, column in names)
    return JoinQuery("", tuple(sources), tree, None, window, True, keys, aggregates, None, outputs)


def _groups(queries: Sequence[JoinQuery], leg: int) -> Group:
    members = []
    for number, query in enumerate(queries):
        plain = leg_query(query, leg)
        selection = select(plain.where, EVALUATOR.constant)
        columns = tuple(field.name for field in leg_fields(query, leg))
        name = leg_member(f"q{number}", leg)
        members.append(Member(name, number, selection, plain.window, plain.aggregates, None, (), columns))
    return Group(version_of(members, leg_query(queries[0], leg).keys))


def _source(rng: random.Random, group: Group, table: pa.Table, kept: bool) -> LegSource:
    pieces = []
    for first in range(0, table.num_rows, max(1, table.num_rows // 2 + 1)):
        batch = batch_of(table.slice(first, table.num_rows // 2 + 1), evaluator=EVALUATOR)
        found = slice_cells(group, batch, None, Tally())
        assert not batch.broken
        pieces += [Piece(group, one.start, one.end, None, one.cells) for one in found]
    if not kept or not can_keep(group, 100, 1 << 20):
        return LegSource((), tuple(pieces))
    stack = Stack.empty(group)
    for slice_ in sorted({piece.slice for piece in pieces}):
        parts = [piece.content for piece in pieces if piece.slice == slice_]
        stack.push(slice_, parts, stack.numbers(parts))
    return LegSource((stack,), ())


def _answers(fired: JoinFired) -> dict[tuple[str, int | None], list[tuple[Any, ...]]]:
    found: dict[tuple[str, int | None], list[tuple[Any, ...]]] = {}
    for part in fired.parts:
        for r in part.ranges:
            rows = zip(*(column.slice(r.first, r.rows).to_pylist() for column in part.columns), strict=True)
            found[r.query, r.end] = sorted(rows, key=repr)
    return found


def _selected(query: JoinQuery, leg: int, table: pa.Table, start: int, end: int) -> pa.Table:
    where = query.legs[leg].where
    if where is not None:
        table = table.filter(EVALUATOR.evaluate(table, [where])[0].fill_null(False))
    times = table.column("time").cast(pa.int64()).to_numpy()
    return table.filter(pa.array((times >= start) & (times < end)))


@pytest.mark.parametrize("seed", range(40))
def test_matrices_lists_and_rows_agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    legs = rng.choice([2, 2, 3])
    grouped = rng.random() < 0.5
    tree = _tree(rng, legs)
    first = _query(rng, tree, legs, grouped)
    again = rng.randrange(10**9)
    queries = [first]
    for _ in range(rng.randint(0, 4)):
        # The same shape with other windows and conditions, so that they fire together.
        other = _query(random.Random(again + len(queries)), tree, legs, grouped)
        keep = {"keys": first.keys, "aggregates": first.aggregates, "outputs": first.outputs}
        queries.append(JoinQuery("", other.legs, tree, None, other.window, grouped, having=None, **keep))
    tables = [_rows(rng, rng.choice([0, 5, 30])) for _ in range(legs)]
    groups = [_groups(queries, leg) for leg in range(legs)]
    due = [JoinDue(f"q{n}", n, -100, 100, None) for n in range(len(queries))]
    forms = [form_of(query) for query in queries]
    fired = []
    for kept, listed in ((False, False), (True, False), (False, True)):
        # Cells of several rows, of one row each, or one chunk like this and one like that.
        monkeypatch.setattr(ingest, "ALONE", rng.choice([0.0, 0.5, 1e9]))
        sources = [_source(rng, group, table, kept) for group, table in zip(groups, tables, strict=True)]
        if listed:
            monkeypatch.setattr(join_fire, "_too_large", lambda pieces, keys, measures: True)
        fired.append(fire_joins(due, forms, sources, TIMESTAMP, EVALUATOR))
        assert not fired[-1].broken
    if grouped:
        assert _answers(fired[0]) == _answers(fired[1]) == _answers(fired[2])
    expected = _counts(queries, tables, grouped)
    for one in fired:
        _check_counts(one, expected, grouped)


def _check_counts(fired: JoinFired, expected: dict[tuple[str, int], int], grouped: bool) -> None:
    """The rows that a window's answer has, or that its groups count, are those of the join itself."""
    counts = {(r.query, r.end): r.rows for r in fired.counted}
    if grouped:
        counts = {at: sum(row[1] for row in rows) for at, rows in _answers(fired).items()}
    assert {at: counts.get(at, 0) for at in expected} == expected


def _counts(queries: Sequence[JoinQuery], tables: Sequence[pa.Table], grouped: bool) -> dict[tuple[str, int], int]:
    """The rows of each window's join, by query and end of the window: counted, and expanded page by page."""
    found: dict[tuple[str, int], int] = {}
    for number, query in enumerate(queries):
        end = query.window.end_after(-1)
        while end < END + query.window.size and end < 25:
            rows = [_selected(query, leg, table, end - query.window.size, end) for leg, table in enumerate(tables)]
            plain = query if not grouped else _as_rows(query)
            rows_of_join = count(plain, rows, end - query.window.size, end)
            if not grouped and rows_of_join:
                pages = list(expand(query, rows, end - query.window.size, end, 7))
                assert sum(page.num_rows for page in pages) == rows_of_join
            found[f"q{number}", end] = rows_of_join
            end += query.window.slide
    return found


def _as_rows(query: JoinQuery) -> JoinQuery:
    outputs = (Output("k", of(0, "k")),)
    return JoinQuery("", query.legs, query.tree, None, query.window, False, (), (), None, outputs)


def test_too_many_pairs_break_one_query_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    theta = JoinNode("inner", 0, 1, (), Call("LessThan", (of(0, "v"), of(1, "v")), BOOLEAN))
    query = _query(rng, theta, 2, grouped=False)
    tables = [_rows(rng, 40), _rows(rng, 40)]
    sources = [_source(rng, _groups([query], leg), table, False) for leg, table in enumerate(tables)]
    monkeypatch.setattr(join_fire, "MOST_PAIRS", 3)
    fired = fire_joins([JoinDue("q0", 0, -100, 100, None)], [form_of(query)], sources, TIMESTAMP, EVALUATOR)
    assert "more than the limit of 3" in fired.broken["q0"]


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("listed", [False, True])
def test_bounds_of_a_window_have_the_type_of_their_own_stream(
    grouped: bool, listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times of one stream have a zone, those of the other have none, and a condition reads both windows."""
    rng = random.Random(3)
    start, end = Column(leg_column(0, WINDOW_START), TIMESTAMP), Column(leg_column(1, WINDOW_END), TIMESTAMP_NTZ)
    late = Call("GreaterThan", (start, Literal(4, TIMESTAMP)), BOOLEAN)
    early = Call("LessThan", (end, Literal(20, TIMESTAMP_NTZ)), BOOLEAN)
    here = Call(
        "Or", (Call("And", (late, early), BOOLEAN), Call("LessThan", (of(0, "v"), of(1, "v")), BOOLEAN)), BOOLEAN
    )
    query = _query(rng, JoinNode("inner", 0, 1, ((of(0, "k"), of(1, "k")),), here), 2, grouped)
    legs = tuple(replace(leg, time=Column("time", kind)) for leg, kind in zip(query.legs, KINDS, strict=True))
    query = replace(query, legs=legs)
    tables = [_rows(rng, 40), _rows(rng, 40)]
    tables[1] = tables[1].set_column(5, "time", tables[1].column("time").cast(TIMESTAMP_NTZ.arrow))
    sources = [_source(rng, _groups([query], leg), table, False) for leg, table in enumerate(tables)]
    if listed:
        monkeypatch.setattr(join_fire, "_too_large", lambda pieces, keys, measures: True)
    fired = fire_joins([JoinDue("q0", 0, -100, 100, None)], [form_of(query)], sources, TIMESTAMP, EVALUATOR)
    assert not fired.broken
    assert fired.counted or fired.parts
    _check_counts(fired, _counts([query], tables, grouped), grouped)
