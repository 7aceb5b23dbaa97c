"""Factorised joins against brute force: random rows, queries, kinds, trees, conditions and aggregates.

rows of a leg      r0 r1 r2 r3 …       each query selects some of them
relation           one column for each combination of attributes, one row for each query
joined             = all pairs of rows, query by query
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from millstream.kernels import relation, relation_join, relation_sums
from millstream.kernels.evaluate import Evaluator
from millstream.kernels.relation import Relation
from millstream.kernels.relation_tree import evaluate_tree
from millstream.model.expression import Call, Column, Expression, Literal
from millstream.model.group import measures_of
from millstream.model.join import JOIN_KINDS, JoinNode, Tree, leaves_of, legs_of
from millstream.model.query import Aggregate
from millstream.model.types import BOOLEAN, DOUBLE, LONG, STRING, DataType, decimal

from .plain_join import PlainEvaluator, Row, Source, answers, expected, joined, relation_of

WIDE = decimal(30, 3)
TYPES: dict[str, DataType] = {"k": LONG, "f": DOUBLE, "t": STRING, "v": LONG, "d": DOUBLE, "m": WIDE}
NO_LIMIT = 10**9
Legs = tuple[int, ...]


def _value(rng: random.Random, name: str, skew: bool) -> Any:
    if rng.random() < 0.1:
        return None
    choices: dict[str, Any] = {
        "k": lambda: 1 if skew and rng.random() < 0.7 else rng.randint(0, 2),
        "f": lambda: rng.choice([0.0, -0.0, 1.5, math.nan]),
        "t": lambda: rng.choice(["a", "ab", "é"]),
        "v": lambda: rng.choice([rng.randint(-9, 9), rng.randint(-(2**61), 2**61)]),
        "d": lambda: rng.choice([rng.randint(-64, 64) / 8, math.nan, math.inf, -math.inf] + [1.5] * 10),
        "m": lambda: Decimal(rng.randint(-(10**26), 10**26)).scaleb(-3),
    }
    return choices[name]()


def _column(leg: int, name: str) -> Column:
    return Column(f"{leg}.{name}", TYPES[name])


def _source(rng: random.Random, leg: int, queries: int) -> Source:
    skew, count = rng.random() < 0.3, rng.choice([0, 3, 4, 5, 6, 6, 7, 9, 9])
    rows: list[Row] = [{f"{leg}.{name}": _value(rng, name, skew) for name in TYPES} for _ in range(count)]
    share = [rng.choice([0.0, 0.5, 0.7, 0.8, 0.9, 1.0, 1.0]) for _ in range(queries)]
    return Source(rows, [[rng.random() < s for _ in rows] for s in share])


def _pick(rng: random.Random, legs: Legs, names: str) -> Column:
    return _column(rng.choice(legs), rng.choice(names))


def _equal(
    rng: random.Random, left: tuple[int, ...], right: tuple[int, ...]
) -> tuple[tuple[Expression, Expression], ...]:
    pairs: list[tuple[Expression, Expression]] = []
    for name in rng.sample("kft", rng.choice([0, 1, 1, 1, 1, 1, 1, 2])):
        sides: list[Expression] = [_column(rng.choice(legs), name) for legs in (left, right)]
        if name == "k" and rng.random() < 0.1:
            sides[0] = Call("Add", (sides[0], _column(rng.choice(left), "k")), LONG)
        if name == "k" and rng.random() < 0.1:
            sides[1] = Call("Coalesce", (sides[1], Literal(1, LONG)), LONG)
        pairs.append((sides[0], sides[1]))
    return tuple(pairs)


def _condition(rng: random.Random, legs: Legs) -> Expression:
    name = rng.choice("kft")
    first: Expression = _pick(rng, legs, name)
    if rng.random() < 0.3:
        filler = {"k": 1, "f": 0.0, "t": "a"}[name]
        first = Call("Coalesce", (first, Literal(filler, TYPES[name])), TYPES[name])
    found = Call(rng.choice(["LessThan", "EqualTo"]), (first, _pick(rng, legs, name)), BOOLEAN)
    return Call("And", (found, _condition(rng, legs)), BOOLEAN) if rng.random() < 0.2 else found


def _tree(rng: random.Random, legs: list[int], inner: bool) -> Tree:
    if len(legs) == 1:
        return legs[0]
    at = rng.randint(1, len(legs) - 1)
    left, right = _tree(rng, legs[:at], inner), _tree(rng, legs[at:], inner)
    mine, theirs = _visible(left), _visible(right)
    residual = _condition(rng, (*mine, *theirs)) if rng.random() < 0.3 else None
    kind = "inner" if inner else rng.choice(JOIN_KINDS)
    return JoinNode(kind, left, right, _equal(rng, mine, theirs), residual)


def _visible(tree: Tree) -> Legs:
    if isinstance(tree, int):
        return (tree,)
    return (*_visible(tree.left), *(() if tree.kind in ("semi", "anti") else _visible(tree.right)))


def _key(rng: random.Random, legs: Legs) -> Expression:
    if rng.random() < 0.3:
        return Call("Coalesce", (_pick(rng, legs, "k"), _pick(rng, legs, "k")), LONG)
    return _pick(rng, legs, "kft")


def _argument(rng: random.Random, legs: Legs, function: str) -> Expression:
    if rng.random() < 0.3:
        if function in ("min", "max") and rng.random() < 0.3:
            return Call("Concat", (_pick(rng, legs, "t"), _pick(rng, legs, "t")), STRING)
        return Call(rng.choice(["Add", "Multiply"]), (_pick(rng, legs, "k"), _pick(rng, legs, "k")), LONG)
    name = rng.choice("tvdm" if function in ("min", "max", "count") else "vdm")
    plain = _pick(rng, legs, name)
    if rng.random() < 0.2:
        filler = {"t": "b", "v": 7, "d": 2.5, "m": "3.000"}[name]
        return plain if name == "m" else Call("Coalesce", (plain, Literal(filler, plain.type)), plain.type)
    return plain


def _aggregate(rng: random.Random, legs: Legs) -> Aggregate:
    function = rng.choice(["count", "sum", "avg", "min", "max"])
    argument = _argument(rng, legs, function)
    kind = argument.type
    if function == "count":
        return Aggregate("count", argument, LONG)
    if function == "sum" and kind == WIDE:
        return Aggregate("sum", argument, decimal(38, 3))
    if function == "avg":
        return Aggregate("avg", argument, decimal(34, 7) if kind == WIDE else DOUBLE)
    return Aggregate(function, argument, kind)


def _columns_of(expression: Expression | None) -> list[Expression]:
    if expression is None or isinstance(expression, Literal):
        return []
    if isinstance(expression, Column):
        return [expression]
    return [found for argument in expression.args for found in _columns_of(argument)]


def _nodes(tree: Tree) -> list[JoinNode]:
    return [] if isinstance(tree, int) else [*_nodes(tree.left), *_nodes(tree.right), tree]


class Case:
    """A random query shape with data for several queries."""

    def __init__(self, seed: int, most_legs: int = 5, inner: bool | None = None) -> None:
        rng = random.Random(seed)
        legs = list(range(rng.choice([n for n in (2, 2, 2, 3, 3, 4, 5) if n <= most_legs])))
        self.queries = rng.choice([1, 3, 5])
        self.sources = [_source(rng, leg, self.queries) for leg in legs]
        self.tree = _tree(rng, legs, rng.random() < 0.3 if inner is None else inner)
        visible = _visible(self.tree)
        self.where = _condition(rng, visible) if rng.random() < 0.25 else None
        self.keep = tuple(dict.fromkeys(_key(rng, visible) for _ in range(rng.choice([0, 1, 1, 2, 3]))))
        self.aggregates = [_aggregate(rng, visible) for _ in range(rng.randint(0, 4))]
        self.measures = list(dict.fromkeys(m for a in self.aggregates for m in measures_of(a)))
        self.rng = rng

    def relations(self) -> list[Any]:
        needed = [c for e in self._expressions() for c in _columns_of(e)]
        found = []
        for leg, source in enumerate(self.sources):
            attributes = list(dict.fromkeys(c for c in needed if legs_of(c) == {leg}))
            # Attributes that nobody needs are summed away.
            attributes += [c for c in (_column(leg, "t"),) if self.rng.random() < 0.2 and c not in attributes]
            mine = [m for m in self.measures if legs_of(m.argument) == {leg}]
            found.append(relation_of(source, attributes, mine))
        return found

    def _expressions(self) -> list[Expression | None]:
        nodes = _nodes(self.tree)
        sides = [side for node in nodes for pair in node.equal for side in pair]
        several = [m.argument for m in self.measures if len(legs_of(m.argument)) > 1]
        return [*sides, *(node.residual for node in nodes), self.where, *self.keep, *several]

    def check(self, evaluator: Any) -> None:
        relations = self.relations()
        result = evaluate_tree(self.tree, relations, self.keep, self.where, evaluator, NO_LIMIT, self.measures)
        assert list(result.attributes) == list(self.keep)
        for query in range(self.queries):
            wanted = expected(self.tree, self.sources, query, self.where, self.keep, self.aggregates)
            assert answers(result, query, self.keep, self.aggregates) == wanted


def _small(case: Case) -> bool:
    """Whether brute force ends soon."""
    size = 1
    for leg in leaves_of(case.tree):
        size *= max(1, len(case.sources[leg].rows))
    return size < 5000


def _check_all(seeds: range, evaluator: Any, **shape: Any) -> None:
    for seed in seeds:
        case = Case(seed, **shape)
        if _small(case):
            try:
                case.check(evaluator)
            except Exception as error:
                raise AssertionError(f"seed {seed}: {case.tree}") from error


@pytest.mark.parametrize("block", range(8))
def test_random_trees(block: int) -> None:
    _check_all(range(block * 250, (block + 1) * 250), PlainEvaluator())


@pytest.mark.parametrize("block", range(2))
def test_random_inner_joins_of_up_to_five_legs_in_any_order(block: int) -> None:
    _check_all(range(50_000 + block * 250, 50_000 + (block + 1) * 250), PlainEvaluator(), inner=True)


def test_random_trees_with_the_real_evaluator() -> None:
    evaluator = Evaluator()
    _check_all(range(90_000, 90_120), evaluator, most_legs=3)
    evaluator.close()


def test_small_blocks_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relation_sums, "BLOCK_BYTES", 40)
    monkeypatch.setattr(relation, "EVALUATED_TOGETHER", 3)
    monkeypatch.setattr(relation, "NARROW", 0)
    monkeypatch.setattr(relation_join, "_MATCHED_TOGETHER", 2)
    monkeypatch.setattr(relation_join, "_TESTED_TOGETHER", 3)
    _check_all(range(70_000, 70_300), PlainEvaluator())


def test_matrices_may_lie_either_way_in_memory() -> None:
    for seed in range(80_000, 80_100):
        case = Case(seed)
        plain = [_turned(r) if n % 2 else r for n, r in enumerate(case.relations())]
        if _small(case):
            result = evaluate_tree(case.tree, plain, case.keep, case.where, PlainEvaluator(), NO_LIMIT, case.measures)
            for query in range(case.queries):
                wanted = expected(case.tree, case.sources, query, case.where, case.keep, case.aggregates)
                assert answers(result, query, case.keep, case.aggregates) == wanted


def _turned(one: Relation) -> Relation:
    rows = np.asfortranarray(one.rows)
    measures = {
        m: (rows,) if planes[0] is one.rows else tuple(np.asfortranarray(p) for p in planes)
        for m, planes in one.measures.items()
    }
    return replace(one, rows=rows, measures=measures)


def test_a_triangle_of_equalities() -> None:
    rng = random.Random(1)
    sources = [_source(rng, leg, 3) for leg in range(3)]
    ks, ts = [_column(leg, "k") for leg in range(3)], [_column(leg, "t") for leg in range(3)]
    tree = JoinNode(
        "inner", JoinNode("inner", 0, 1, ((ks[0], ks[1]),), None), 2, ((ts[1], ts[2]), (ks[0], ks[2])), None
    )
    relations = [relation_of(source, [ks[leg], ts[leg]], []) for leg, source in enumerate(sources)]
    result = evaluate_tree(tree, relations, [ts[0]], None, PlainEvaluator(), NO_LIMIT)
    assert any(joined(tree, [source.of(query) for source in sources]) for query in range(3))
    for query in range(3):
        assert answers(result, query, [ts[0]], []) == expected(tree, sources, query, None, [ts[0]], [])


def test_what_reads_no_leg_belongs_to_the_whole_tree() -> None:
    rng = random.Random(11)
    sources = [_source(rng, leg, 2) for leg in range(3)]
    ks = [_column(leg, "k") for leg in range(3)]
    one, two = Literal(1, LONG), Literal(2, LONG)
    aggregates = [Aggregate("sum", two, LONG), Aggregate("count", two, LONG)]
    measures = [m for a in aggregates for m in measures_of(a)]
    for kind in ("inner", "full"):
        tree = JoinNode(kind, JoinNode("inner", 0, 1, ((ks[0], ks[1]),), None), 2, ((ks[1], ks[2]),), None)
        relations = [relation_of(source, [ks[leg]], []) for leg, source in enumerate(sources)]
        result = evaluate_tree(tree, relations, [one], None, PlainEvaluator(), NO_LIMIT, measures)
        for query in range(2):
            assert answers(result, query, [one], aggregates) == expected(tree, sources, query, None, [one], aggregates)


def test_a_single_leg_is_filtered_and_grouped() -> None:
    source = _source(random.Random(3), 0, 2)
    k, t = _column(0, "k"), _column(0, "t")
    condition = Call("LessThan", (k, Literal(3, LONG)), BOOLEAN)
    total = Aggregate("sum", k, LONG)
    result = evaluate_tree(
        0, [relation_of(source, [k, t], [])], [t], condition, PlainEvaluator(), NO_LIMIT, measures_of(total)
    )
    for query in range(2):
        assert answers(result, query, [t], [total]) == expected(0, [source], query, condition, [t], [total])


def test_a_missing_attribute_is_named() -> None:
    source = _source(random.Random(3), 0, 1)
    with pytest.raises(ValueError, match=r"no attribute of the relations gives 0\.t"):
        evaluate_tree(0, [relation_of(source, [], [])], [_column(0, "t")], None, PlainEvaluator(), NO_LIMIT)
