"""The numeric types of Spark and the types of operations on them, as far as the generator must know them.

The generator needs types to build texts that Spark accepts and to choose the twin of an operator; Spark's own analysis
of the finished texts has the last word (``expected.py`` compares the schemas of both texts).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

INTEGERS = ("tinyint", "smallint", "int", "bigint")
FLOATS = ("float", "double")
NUMBERS = (*INTEGERS, *FLOATS, "decimal")

# Digits of the decimal an integer becomes beside a decimal.
_INTEGER_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
MAX_DIGITS = 38
# Spark keeps this many fractional digits when a result has more than 38 digits.
MIN_SCALE = 6
INTEGER_BOUND = {"tinyint": 2.0**7, "smallint": 2.0**15, "int": 2.0**31, "bigint": 2.0**63}

DOUBLE_BITS = 53


@dataclass(frozen=True, slots=True)
class Range:
    """What is known of the finite values: multiples of 2**-fraction (None: unknown), at most ``bound`` in size."""

    fraction: int | None
    bound: float

    def adds_exactly(self, rows: int) -> bool:
        """Whether sums of so many doubles of this range are the same in any order."""
        bits = math.log2(max(self.bound, 1.0)) + math.log2(rows)
        return self.fraction is not None and self.fraction + bits <= DOUBLE_BITS

    def plus(self, other: Range) -> Range:
        return Range(_both(self, other, max), self.bound + other.bound)

    def times(self, other: Range) -> Range:
        return Range(_both(self, other, int.__add__), self.bound * other.bound)

    def over(self, other: Range) -> Range:
        """A quotient: no divisor but 0 (which gives NULL) is smaller than the other's grain."""
        return Range(None, math.inf if other.fraction is None else self.bound * 2.0**other.fraction)

    def union(self, other: Range) -> Range:
        return Range(_both(self, other, max), max(self.bound, other.bound))


def _both(a: Range, b: Range, combine: object) -> int | None:
    assert callable(combine)
    return None if a.fraction is None or b.fraction is None else combine(a.fraction, b.fraction)


WHOLE = Range(0, 1.0)
UNKNOWN = Range(None, math.inf)


def digits_of(kind: str, digits: tuple[int, int]) -> tuple[int, int]:
    return digits if kind == "decimal" else (_INTEGER_DIGITS[kind], 0)


def common(a: str, b: str) -> str:
    """The type two numbers are brought to; Spark in ANSI mode takes (int, float) to double, lest digits are lost."""
    if a == b:
        return a
    if "decimal" in (a, b):
        return "double" if a in FLOATS or b in FLOATS else "decimal"
    if {a, b} & {"int", "bigint"} and "float" in (a, b):
        return "double"
    return max(a, b, key=NUMBERS.index)


def decimal_result(operator: str, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    """Precision and scale of ``a operator b``."""
    return adjust(*decimal_digits(operator, a, b))


def decimal_digits(operator: str, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    """The digits that an exact result needs, which may be more than there are."""
    (p1, s1), (p2, s2) = a, b
    scale = max(s1, s2)
    whole = max(p1 - s1, p2 - s2)
    results = {
        "+": (whole + scale + 1, scale),
        "-": (whole + scale + 1, scale),
        "*": (p1 + p2 + 1, s1 + s2),
        "/": (p1 - s1 + s2 + max(MIN_SCALE, s1 + p2 + 1), max(MIN_SCALE, s1 + p2 + 1)),
        "%": (min(p1 - s1, p2 - s2) + scale, scale),
        "union": (whole + scale, scale),
    }
    return results[operator]


def adjust(precision: int, scale: int) -> tuple[int, int]:
    """Spark gives up fractional digits beyond six before whole digits."""
    if precision <= MAX_DIGITS:
        return precision, scale
    return MAX_DIGITS, max(MAX_DIGITS - (precision - scale), min(scale, MIN_SCALE))
