"""Shapes: which texts share one, which do not, and the sentinel text that tells literals apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.expression import Literal
from millstream.model.types import DOUBLE, INTEGER, LONG, STRING, decimal
from millstream.sql.shape import constant_of, sentinel, shape_of
from millstream.sql.tokens import tokenize

ALIKE = [
    ("a > 10", "a > 42"),
    ("a > 10 AND b < 20", "a>99 /* x */ AND b < 21"),
    ("a = 'x'", "a = 'another value'"),
    ('a = "x"', "a = 'y'"),
    ("a > 1.50", "a > 9.25"),
    ("a > 0.05", "a > 0.50"),
    ("a > 1e5", "a > 2.5e-3"),
    ("a IN (1, 2)", "a IN (8, 3)"),
    ("a > -5", "a > - 6"),
    ("a BETWEEN 10 AND 20", "a BETWEEN 30 AND 40"),
    ("a + 1 GROUP BY a + 1", "a + 2 GROUP BY a + 2"),
    ("a LIKE 'x%'", "a LIKE '%y'"),
    ("upper(a) = 'X' AND f(a, 'x')", "upper(a) = 'Y' AND f(a, 'z')"),
    ("GROUP BY window(t, '8 seconds')", "GROUP BY window(t, '1 minute', '4 seconds')"),
    ("a > 10L", "a > 11L"),
]

DIFFERENT = [
    ("a > 1000000000", "a > 3000000000"),
    ("a > 5", "a > 5L"),
    ("a > 1.5", "a > 1.50"),
    ("a > 5", "a > 5."),
    ("a > 5", "a > '5'"),
    ("a > 2147483648", "a > 2147483649"),
    ("a > 5 AND b > 5", "a > 5 AND b > 6"),
    ("round(a, 2)", "round(a, 3)"),
    ("CAST(a AS DECIMAL(10, 2))", "CAST(a AS DECIMAL(10, 3))"),
    ("GROUP BY 1", "GROUP BY 2"),
    ("GROUP BY a, 1 HAVING a > 3", "GROUP BY a, 2 HAVING a > 3"),
    ("DATE '2020-01-01'", "DATE '2020-01-02'"),
    ("t > INTERVAL 5 DAYS", "t > INTERVAL 6 DAYS"),
    ("INTERVAL '5' DAY", "INTERVAL '6' DAY"),
    ("a LIKE 'x' ESCAPE '/'", "a LIKE 'x' ESCAPE '!'"),
    ("a = 'it''s'", "a = 'it''t'"),
    ("a = 'x' 'y'", "a = 'x' 'z'"),
    ("a AS 'x'", "a AS 'y'"),
    ("/*+ APPROX(0.05, 0.95) */ a", "/*+ APPROX(0.01, 0.95) */ a"),
    ("a", "A"),
    ("a > 2F", "a > 3F"),
    ("a > 99999999999999999999", "a > 99999999999999999998"),
]


@pytest.mark.parametrize(("one", "two"), ALIKE)
def test_alike(one: str, two: str) -> None:
    assert shape_of(one).key == shape_of(two).key


def test_digits_are_told_apart() -> None:
    one, two, three = (shape_of(f"a > {number}") for number in (7, 10, 42))
    assert one.key == two.key
    assert one.digits != two.digits == three.digits


@pytest.mark.parametrize(("one", "two"), DIFFERENT)
def test_different(one: str, two: str) -> None:
    assert shape_of(one).key != shape_of(two).key


CONSTANTS = {
    "42": (Literal(42, INTEGER), Literal(-42, INTEGER)),
    "007": (Literal(7, INTEGER), Literal(-7, INTEGER)),
    "3000000000": (Literal(3_000_000_000, LONG), Literal(-3_000_000_000, LONG)),
    "5L": (Literal(5, LONG), Literal(-5, LONG)),
    "1.50": (Literal("1.50", decimal(3, 2)), Literal("-1.50", decimal(3, 2))),
    ".05": (Literal("0.05", decimal(2, 2)), Literal("-0.05", decimal(2, 2))),
    "5.": (Literal("5", decimal(1, 0)), Literal("-5", decimal(1, 0))),
    "12BD": (Literal("12", decimal(2, 0)), Literal("-12", decimal(2, 0))),
    "1e3": (Literal(1000.0, DOUBLE), Literal(-1000.0, DOUBLE)),
    "2.5D": (Literal(2.5, DOUBLE), Literal(-2.5, DOUBLE)),
    "'x'": (Literal("x", STRING), Literal("x", STRING)),
}


@pytest.mark.parametrize("text", CONSTANTS)
def test_values(text: str) -> None:
    constant = constant_of(tokenize(text)[0])
    assert constant is not None
    assert (constant.literal(False), constant.literal(True)) == CONSTANTS[text]


LITERALS = st.one_of(
    st.integers(0, 10**19).map(str),
    st.integers(0, 10**19 - 1).map(lambda n: f"{min(n, 2**63 - 1)}L"),
    st.decimals(0, 10**6, places=3).map(lambda d: format(d, "f")),
    st.floats(0, 1e300).map(lambda f: f"{f:e}"),
    st.text("abc xyz", max_size=5).map(lambda s: f"'{s}'"),
    st.sampled_from(["0", "1", "9", "0.0", ".9", "5.", "7BD", "1D", "'it''s'", "2147483647", "2147483648"]),
)


@given(st.lists(LITERALS, max_size=8))
def test_a_sentinel_has_the_same_shape_and_other_values(literals: list[str]) -> None:
    sql = " AND ".join(f"c{index} > {literal}" for index, literal in enumerate(literals))
    shape = shape_of(sql)
    text = sentinel(sql, shape)
    other = shape_of(text)
    assert (other.key, other.digits) == (shape.key, shape.digits)
    assert len(set(other.constants)) == len(other.constants)
    assert all(one != two for one, two in zip(shape.constants, other.constants, strict=True))


def test_many_small_literals_still_get_other_values() -> None:
    sql = " OR ".join(f"a = {digit}" for digit in range(10))
    shape = shape_of(sql)
    other = shape_of(sentinel(sql, shape))
    assert (other.key, other.digits) == (shape.key, shape.digits)
    assert all(one != two for one, two in zip(shape.constants, other.constants, strict=True))
