"""From WHERE to ranges: every comparison against brute force over the values around each constant."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from millstream.kernels.evaluate import Evaluator
from millstream.kernels.predicate import collapse, select
from millstream.model.expression import Call, Column, Expression, Literal
from millstream.model.selection import EVERYTHING, NOTHING, Leaf
from millstream.model.types import BOOLEAN, DATE, DOUBLE, INTEGER, LONG, STRING, TIMESTAMP, DataType, decimal

from .plain import is_true

FOLD = Evaluator().constant
X, D, S, M, T = (
    Column("x", INTEGER),
    Column("d", DOUBLE),
    Column("s", STRING),
    Column("m", decimal(10, 2)),
    Column("t", DATE),
)
OPS: dict[str, Any] = {
    "LessThan": lambda a, b: a < b,
    "LessThanOrEqual": lambda a, b: a <= b,
    "GreaterThan": lambda a, b: a > b,
    "GreaterThanOrEqual": lambda a, b: a >= b,
    "EqualTo": lambda a, b: a == b,
}


def call(op: str, *args: Expression) -> Call:
    return Call(op, args, BOOLEAN)


def negated(node: Expression) -> Call:
    return call("Not", node)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("positive", [True, False])
def test_integer_comparisons(op: str, positive: bool) -> None:
    for constant in (-1, 0, 7):
        for flipped in (False, True):
            sides = (X, Literal(constant, INTEGER))
            node: Expression = call(op, *(sides[::-1] if flipped else sides))
            selection = select(node if positive else negated(node), FOLD)
            for value in (*range(constant - 2, constant + 3), None):
                want = value is not None and OPS[op](*((constant, value) if flipped else (value, constant))) is positive
                assert is_true(selection, {"x": value}) is want, (op, constant, value, flipped)


def _order(value: float) -> tuple[bool, float]:
    return (math.isnan(value), 0.0 if math.isnan(value) else value)


@pytest.mark.parametrize("op", OPS)
def test_double_comparisons_treat_nan_as_the_largest_value(op: str) -> None:
    values = [-math.inf, -1.5, -0.0, 0.0, 5e-324, 1.5, math.inf, math.nan]
    for constant, positive in itertools.product(values, (True, False)):
        node: Expression = call(op, D, Literal(constant, DOUBLE))
        selection = select(node if positive else negated(node), FOLD)
        for value in [*values, None]:
            want = value is not None and OPS[op](_order(value), _order(constant)) is positive
            assert is_true(selection, {"d": value}) is want, (op, constant, value, positive)


@pytest.mark.parametrize("op", OPS)
def test_constants_are_compared_below_widening_casts(op: str) -> None:
    """An integer column against 2.5 compares in decimals or doubles; the ranges are over the integers themselves."""
    for type_, text, number in (
        (decimal(11, 1), "2.5", 2.5),
        (decimal(12, 2), "3.00", 3.0),
        (DOUBLE, 2.5, 2.5),
        (DOUBLE, math.nan, math.nan),
    ):
        constant = Literal(text, type_)
        selection = select(call(op, Call("Cast", (X,), type_), constant), FOLD)
        assert all(leaf.attribute.expression == X for leaf in ([selection] if isinstance(selection, Leaf) else []))
        for value in range(0, 6):
            want = OPS[op](_order(float(value)), _order(number))
            assert is_true(selection, {"x": value}) is want, (op, text, value)


def test_a_cast_that_may_lose_values_is_an_attribute_of_its_own() -> None:
    wide = Column("l", LONG)
    selection = select(call("LessThan", Call("Cast", (wide,), DOUBLE), Literal(1.0, DOUBLE)), FOLD)
    assert isinstance(selection, Leaf)
    assert selection.attribute.expression == Call("Cast", (wide,), DOUBLE)


def test_dates_are_compared_with_timestamps_in_days() -> None:
    noon = Literal(86_400_000_000 + 43_200_000_000, TIMESTAMP)
    selection = select(call("LessThan", Call("Cast", (T,), TIMESTAMP), noon), FOLD)
    assert [is_true(selection, {"t": day}) for day in (0, 1, 2)] == [True, True, False]


@pytest.mark.parametrize(
    ("where", "true_for"),
    [
        (call("In", X, Literal(1, INTEGER), Literal(3, INTEGER)), {1, 3}),
        (call("In", X, Literal(1, INTEGER), Literal(None, INTEGER)), {1}),
        (negated(call("In", X, Literal(1, INTEGER), Literal(3, INTEGER))), {0, 2}),
        (negated(call("In", X, Literal(1, INTEGER), Literal(None, INTEGER))), set()),
        (call("IsNull", X), {None}),
        (negated(call("IsNull", X)), {0, 1, 2, 3}),
        (call("IsNotNull", X), {0, 1, 2, 3}),
        (call("EqualNullSafe", X, Literal(None, INTEGER)), {None}),
        (negated(call("EqualNullSafe", X, Literal(None, INTEGER))), {0, 1, 2, 3}),
        (call("EqualNullSafe", X, Literal(2, INTEGER)), {2}),
        (negated(call("EqualNullSafe", X, Literal(2, INTEGER))), {0, 1, 3, None}),
        (call("EqualTo", X, Literal(None, INTEGER)), set()),
        (negated(call("EqualTo", X, Literal(None, INTEGER))), set()),
        (call("Between", X, Literal(1, INTEGER), Literal(2, INTEGER)), {1, 2}),
        (negated(call("Between", X, Literal(1, INTEGER), Literal(2, INTEGER))), {0, 3}),
        (call("And", call("GreaterThan", X, Literal(0, INTEGER)), call("LessThan", X, Literal(3, INTEGER))), {1, 2}),
        (negated(call("Or", call("LessThan", X, Literal(1, INTEGER)), call("EqualTo", X, Literal(2, INTEGER)))), {1,
        3}),
    ],
)  # fmt: skip
def test_three_valued_logic(where: Expression, true_for: set[int | None]) -> None:
    selection = select(where, FOLD)
    assert {v for v in (0, 1, 2, 3, None) if is_true(selection, {"x": v})} == true_for


def test_nan_tests_and_text() -> None:
    nan = select(call("IsNaN", D), FOLD)
    assert [is_true(nan, {"d": v}) for v in (1.0, math.inf, math.nan, None)] == [False, False, True, False]
    other = select(negated(call("IsNaN", D)), FOLD)
    assert [is_true(other, {"d": v}) for v in (1.0, math.inf, math.nan, None)] == [True, True, False, True]
    text = select(call("LessThanOrEqual", S, Literal("b", STRING)), FOLD)
    assert [is_true(text, {"s": v}) for v in ("", "a", "b", "b\0", "ba", None)] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]


def test_constants_fold_and_the_rest_is_a_boolean_attribute() -> None:
    true, false, unknown = (Literal(v, BOOLEAN) for v in (True, False, None))
    assert select(None, FOLD) == EVERYTHING
    assert select(true, FOLD) == EVERYTHING
    assert select(negated(true), FOLD) == NOTHING
    assert select(unknown, FOLD) == NOTHING
    assert select(negated(unknown), FOLD) == NOTHING
    assert select(call("Or", false, call("IsNull", X)), FOLD) == select(call("IsNull", X), FOLD)
    both = call("LessThan", X, Call("Add", (X, Literal(1, INTEGER)), INTEGER))
    leaf = select(both, FOLD)
    assert isinstance(leaf, Leaf)
    assert (leaf.attribute.expression, leaf.attribute.domain) == (both, "boolean")
    assert isinstance(collapse(call("And", both, both)), Leaf)


def test_long_decimals_have_no_ordered_domain() -> None:
    wide = Column("w", DataType("decimal", 30, 3))
    leaf = select(call("LessThan", wide, Literal("1.000", DataType("decimal", 30, 3))), FOLD)
    assert isinstance(leaf, Leaf)
    assert leaf.attribute.domain == "boolean"
