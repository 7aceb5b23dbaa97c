"""The parts of the algebra alone: exact sums, limits, and that pairs of rows are never built."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.kernels.evaluate import Evaluator
from millstream.kernels.relation import Relation, TooManyPairs, TooManyRows, total_rows
from millstream.kernels.relation_group import derive, group, union, where
from millstream.kernels.relation_join import join
from millstream.kernels.relation_limbs import MOST_LIMBS, carried, fitted, product
from millstream.kernels.relation_tree import evaluate_tree
from millstream.model.expression import Call, Column, Literal
from millstream.model.group import Measure
from millstream.model.join import JOIN_KINDS, JoinNode
from millstream.model.types import BOOLEAN, DOUBLE, LONG, STRING

from .plain_join import PlainEvaluator

PLAIN = PlainEvaluator()
K0, K1, V0, V1 = (Column(name, LONG) for name in ("0.k", "1.k", "0.v", "1.v"))
D0, G0 = Column("0.d", DOUBLE), Column("0.g", LONG)
SUM = Measure("sum", V0)


def _relation(key: Column, keys: list[int | None], rows: list[list[int]]) -> Relation:
    return Relation({key: pa.array(keys, pa.int64())}, np.array(rows, np.int64), {})


def _value(limbs: tuple[np.ndarray, ...], place: int = 0) -> int:
    return sum(int(limb.flat[place]) << (32 * i) for i, limb in enumerate(limbs))


INTEGERS = st.integers(-(2**62), 2**62)


@given(st.lists(INTEGERS, min_size=1, max_size=4))
def test_carrying_changes_no_value(parts: list[int]) -> None:
    limbs = tuple(np.array([[part]]) for part in parts)
    tight = carried(limbs)
    assert len(tight) <= MOST_LIMBS
    assert _value(tight) == _value(limbs)
    assert all(0 <= int(limb[0, 0]) < 2**32 for limb in tight[:-1])


@given(st.integers(-(10**38), 10**38), st.integers(0, 2**62 - 1))
def test_products_with_large_counts_are_exact(number: int, count: int) -> None:
    limbs = carried([np.array([[(number >> (32 * i)) & 0xFFFFFFFF if i < 3 else number >> 96]]) for i in range(4)])
    assert _value(limbs) == number
    assert _value(product(limbs, np.array([[count]]))) == number * count


def test_limbs_are_carried_only_where_they_could_overflow() -> None:
    limbs = (np.array([[2**40 + 2**32 - 1]]),)
    assert fitted(limbs, 1 << 20)[0][0] is limbs[0]
    tight, fits = fitted(limbs, 1 << 25)
    assert len(tight) == 2
    assert fits
    assert not fitted(limbs, 1 << 31)[1]


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.integers(-(2**61), 2**61), st.integers(0, 2**31)), min_size=1, max_size=6),
    st.tuples(st.integers(-(2**61), 2**61), st.integers(0, 2**26)),
)
def test_sums_of_joins_are_exact_whatever_the_counts(cells: list[tuple[int, int]], cell: tuple[int, int]) -> None:
    (value, count), rows = cell, sum(n for _, n in cells)
    sum1, sum3 = Measure("sum", V1), Measure("sum", Call("Multiply", (G0, Literal(3**37, LONG)), LONG))
    left = Relation(
        {K0: pa.array([1] * len(cells)), G0: pa.array(range(len(cells)))},
        np.array([[n for _, n in cells]]),
        {SUM: (np.array([[v for v, _ in cells]]),)},
    )
    right = Relation({K1: pa.array([1])}, np.array([[count]]), {sum1: (np.array([[value]]),)})
    result = join(left, right, "inner", [(K0, K1)], None, (), PLAIN, 100, [sum3])
    assert int(result.rows[0, 0]) == rows * count
    assert _value(result.measures[SUM]) == sum(v for v, _ in cells) * count
    assert _value(result.measures[sum1]) == value * rows
    assert _value(result.measures[sum3]) == 3**37 * sum(n * place for place, (_, n) in enumerate(cells)) * count
    both = union([result, result])
    assert _value(both.measures[sum1]) == 2 * value * rows


def test_uncountable_rows_name_their_queries() -> None:
    left, right = _relation(K0, [1, 2], [[1, 1], [2**31, 5]]), _relation(K1, [1, 2], [[1, 1], [2**31, 7]])
    with pytest.raises(OverflowError, match="2\\^62 rows or more for 1 of the queries") as caught:
        join(left, right, "inner", [(K0, K1)], None, (), PLAIN, 100)
    assert isinstance(caught.value, TooManyRows)
    assert caught.value.queries == (1,)
    assert pickle.loads(pickle.dumps(caught.value)).queries == (1,)
    with pytest.raises(TooManyRows):
        total_rows(_relation(K0, [1, 2], [[2**61, 2**61]]))
    with pytest.raises(TooManyRows):
        union([_relation(K0, [1], [[2**61]]), _relation(K0, [1], [[2**61]])])
    most = _relation(K0, [1, 2], [[2**61, 2**61 - 2**10], [1, 2]])
    assert total_rows(most).tolist() == [2**62 - 2**10, 3]


def test_an_overflowed_sum_of_doubles_stays_with_its_query_and_rows() -> None:
    measure = Measure("sum", D0)
    left = Relation({K0: pa.array([1, 2])}, np.array([[1, 1]]), {measure: (np.array([[np.inf, 2.0]]),)})
    right = _relation(K1, [1, 2], [[0, 3]])
    result = join(left, right, "inner", [(K0, K1)], None, (), PLAIN, 100)
    assert result.measures[measure][0].tolist() == [[6.0]]


@pytest.mark.parametrize("kind", JOIN_KINDS)
def test_too_many_pairs_are_refused_before_they_are_made(kind: str) -> None:
    left, right = _relation(K0, [1, 1, 2], [[1, 1, 1]]), _relation(K1, [1, 1, 3], [[1, 1, 1]])
    with_values = [
        Relation({key: side.attributes[key], v: pa.array([1, 2, 3])}, side.rows, {})
        for side, key, v in ((left, K0, V0), (right, K1, V1))
    ]
    below = Call("LessThan", (V0, V1), BOOLEAN)
    with pytest.raises(TooManyPairs, match="pairs 4 combinations of values, more than the limit of 3") as caught:
        join(*with_values, kind, [(K0, K1)], below, (), PLAIN, 3)
    assert (caught.value.pairs, pickle.loads(pickle.dumps(caught.value)).limit) == (4, 3)
    join(*with_values, kind, [(K0, K1)], below, (), PLAIN, 4)


def test_a_thousand_rows_for_each_key_on_both_sides_are_never_paired() -> None:
    keys = list(range(1000))
    sum0, sum1 = Measure("sum", V0), Measure("sum", V1)
    thousand = np.full((3, 1000), 1000)
    left = Relation({K0: pa.array(keys)}, thousand, {sum0: (thousand * 2,)})
    right = Relation({K1: pa.array(keys)}, thousand, {sum1: (thousand * 3,)})
    result = join(left, right, "inner", [(K0, K1)], None, (), PLAIN, limit=1000)
    assert total_rows(result).tolist() == [10**9] * 3
    assert [_value(result.measures[m]) for m in (sum0, sum1)] == [2 * 10**9, 3 * 10**9]


def test_attributes_are_summed_away_before_columns_are_paired() -> None:
    """The left has ten values of g for each key; unless somebody needs g, it makes no pairs."""
    keys = np.repeat(np.arange(100), 10)
    left = Relation({K0: pa.array(keys), G0: pa.array(np.arange(1000))}, np.ones((2, 1000), np.int64), {})
    right = Relation({K1: pa.array(np.arange(100))}, np.full((2, 100), 5), {})
    assert join(left, right, "inner", [(K0, K1)], None, (K1,), PLAIN, limit=100).rows.tolist() == [[50] * 100] * 2
    with pytest.raises(TooManyPairs):
        join(left, right, "inner", [(K0, K1)], None, (G0,), PLAIN, limit=100)


def test_inner_joins_begin_where_fewest_columns_are_paired() -> None:
    """In the order of writing, 0 with 1 first, there would be 100 × 100 pairs."""
    k2, j1 = Column("2.k", LONG), Column("1.j", LONG)
    many = np.arange(100)
    zero = Relation({K0: pa.array([7] * 100), V0: pa.array(many)}, np.ones((1, 100), np.int64), {})
    one = Relation({K1: pa.array([7] * 100), j1: pa.array(many)}, np.ones((1, 100), np.int64), {})
    two = Relation({k2: pa.array([5])}, np.ones((1, 1), np.int64), {})
    tree = JoinNode("inner", JoinNode("inner", 0, 1, ((K0, K1),), None), 2, ((j1, k2),), None)
    result = evaluate_tree(tree, [zero, one, two], [V0], None, PLAIN, limit=100)
    assert total_rows(result).tolist() == [100]


def test_the_fewest_pairs_are_found_from_either_side_of_an_equality() -> None:
    """Leg 0 is joined last, as the right of what was joined before; a cross join would need 100 pairs."""
    keys = [Column(f"{leg}.k", LONG) for leg in range(3)]
    ten, one = pa.array(range(10)), pa.array([3])
    relations = [
        Relation({key: values}, np.ones((1, len(values)), np.int64), {})
        for key, values in zip(keys, (ten, ten, one), strict=True)
    ]
    for first, second in ((0, 1), (1, 0)):
        inner = JoinNode("inner", first, second, ((keys[first], keys[second]),), None)
        tree = JoinNode("inner", 2, inner, ((keys[2], keys[1]),), None)
        assert total_rows(evaluate_tree(tree, relations, (), None, PLAIN, limit=10)).tolist() == [1]


def test_columns_without_a_common_query_are_not_paired() -> None:
    """Query 0 selects even columns of the left and odd ones of the right, query 1 the first of each."""
    rows = np.zeros((2, 20), np.int64)
    rows[0, ::2] = 1
    other = np.zeros((2, 20), np.int64)
    other[1, 0] = rows[1, 0] = 2
    key, values = pa.array([1] * 20), pa.array(range(20))
    left, right = Relation({K0: key, V0: values}, rows, {}), Relation({K1: key, V1: values}, other, {})
    result = join(left, right, "inner", [(K0, K1)], None, (V0, V1), PLAIN, 400)
    assert result.rows.tolist() == [[0], [4]]
    outer = join(left, right, "full", [(K0, K1)], None, (V0, V1), PLAIN, 400)
    assert total_rows(outer).tolist() == [10, 4]


def test_three_parts_of_large_limbs_do_not_overflow() -> None:
    part = Relation({}, np.array([[1]]), {SUM: (np.array([[2**62 - 1]]),)})
    assert _value(union([part, part, part]).measures[SUM]) == 3 * (2**62 - 1)


def test_a_count_of_all_rows_stays_the_number_of_rows() -> None:
    counts = [Measure("count", V0), Measure("count", V1)]
    sides = []
    for key, count in zip((K0, K1), counts, strict=True):
        rows = np.array([[2, 3]])
        sides.append(Relation({key: pa.array([1, 2])}, rows, {count: (rows,)}))
    inner = join(*sides, "inner", [(K0, K1)], None, (K0,), PLAIN, 100)
    assert all(inner.measures[count][0] is inner.rows for count in counts)
    left = join(*sides, "left", [(K0, K1)], None, (K0,), PLAIN, 100)
    assert left.measures[counts[0]][0] is left.rows


def test_unmatched_is_decided_query_by_query() -> None:
    left, right = _relation(K0, [1, 2], [[1, 1], [1, 1]]), _relation(K1, [1, 2], [[4, 0], [0, 6]])
    result = join(left, right, "left", [(K0, K1)], None, (K0, K1), PLAIN, 100)
    columns = list(zip(*(column.to_pylist() for column in result.attributes.values()), strict=True))
    found = [{c: int(n) for c, n in zip(columns, line, strict=True) if n} for line in result.rows]
    assert found == [{(1, 1): 4, (2, None): 1}, {(2, 2): 6, (1, None): 1}]


def test_group_where_and_derive_on_one_relation() -> None:
    evaluator = Evaluator()
    text = Column("0.t", STRING)
    attributes = {K0: pa.array([1, 1, 2, None]), text: pa.array(["b", "a", None, "c"])}
    relation = Relation(attributes, np.array([[1, 2, 3, 4], [0, 1, 0, 1]]), {})
    assert group(relation, ()).rows.tolist() == [[10], [2]]
    by_key = group(relation, (K0,))
    assert dict(zip(by_key.attributes[K0].to_pylist(), by_key.rows.T.tolist(), strict=True)) == {
        1: [3, 1], 2: [3, 0], None: [4, 1]
    }  # fmt: skip
    above = Call("LessThan", (Literal(1, LONG), K0), BOOLEAN)
    assert where(relation, above, evaluator).rows.tolist() == [[3], [0]]
    measures = [Measure("sum", K0), Measure("count", K0), Measure("max", text)]
    result = group(derive(relation, measures, evaluator), ())
    assert [result.measures[m][0].tolist() for m in measures[:2]] == [[[9], [1]], [[6], [1]]]
    ranks = result.measures[measures[2]][0][:, 0]
    assert result.values[measures[2]].take(pa.array(ranks)).to_pylist() == ["c", "c"]
    evaluator.close()


def test_ranks_without_their_values_cannot_be_mixed() -> None:
    text = Call("Coalesce", (Column("1.t", STRING), Literal("x", STRING)), STRING)
    measure = Measure("min", text)
    left = _relation(K0, [1, 2], [[1, 1]])
    right = Relation({K1: pa.array([1])}, np.array([[1]]), {measure: (np.array([[0]]),)})
    with pytest.raises(ValueError, match="does not say what they stand for"):
        join(left, right, "left", [(K0, K1)], None, (), PLAIN, 100)
    known = Relation(right.attributes, right.rows, right.measures, {measure: pa.array(["y"])})
    result = join(left, known, "left", [(K0, K1)], None, (), PLAIN, 100)
    assert result.values[measure][int(result.measures[measure][0][0, 0])].as_py() == "x"


def test_empty_sides_and_no_queries() -> None:
    none = _relation(K1, [], [[], []])
    left = _relation(K0, [1, None], [[1, 2], [0, 1]])
    for kind, rows in {
        "inner": [0, 0],
        "left": [3, 1],
        "right": [0, 0],
        "full": [3, 1],
        "semi": [0, 0],
        "anti": [3, 1],
    }.items():
        assert total_rows(join(left, none, kind, [(K0, K1)], None, (), PLAIN, 0)).tolist() == rows
    nobody = Relation(left.attributes, np.zeros((0, 2), np.int64), {})
    assert total_rows(join(nobody, nobody, "inner", [(K0, K0)], None, (K0,), PLAIN, 9)).tolist() == []


def test_an_unknown_kind_is_refused() -> None:
    one = _relation(K0, [1], [[1]])
    with pytest.raises(ValueError, match="unknown join 'outer'"):
        join(one, one, "outer", [], None, (), PLAIN, 9)
