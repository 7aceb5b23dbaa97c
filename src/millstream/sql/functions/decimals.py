"""Spark's result types of decimal arithmetic (``DecimalPrecision`` with ``allowPrecisionLoss`` on)."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from millstream.model.types import DataType, decimal
from millstream.sql.functions.table import Let

MAX_PRECISION = 38
# Spark keeps at least so many digits after the point when a result needs more than 38 digits.
MIN_ADJUSTED_SCALE = 6

# More zeros than a decimal has digits, on either side of the digits of a double.
_ZEROS = 400
_PADDING = f"repeat('0', {_ZEROS})"
# Below so many units the product of a double and a power of ten is off by less than a millionth of a unit.
_CLEAR_UNITS = "1e9"
_CLEAR_DISTANCE = "1e-5"

_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 20}


def adjusted(precision: int, scale: int) -> DataType:
    """The type of a result that would need ``precision`` digits.

    >>> str(adjusted(41, 23)), str(adjusted(21, 2))
    ('decimal(38,20)', 'decimal(21,2)')
    """
    if precision <= MAX_PRECISION:
        return decimal(precision, scale)
    whole = precision - scale
    return decimal(MAX_PRECISION, max(MAX_PRECISION - whole, min(scale, MIN_ADJUSTED_SCALE)))


def sum_digits(a: DataType, b: DataType) -> tuple[int, int]:
    scale = max(a.scale, b.scale)
    return max(a.precision - a.scale, b.precision - b.scale) + scale + 1, scale


def product_digits(a: DataType, b: DataType) -> tuple[int, int]:
    return a.precision + b.precision + 1, a.scale + b.scale


def quotient_digits(a: DataType, b: DataType) -> tuple[int, int]:
    scale = max(MIN_ADJUSTED_SCALE, a.scale + b.precision + 1)
    return a.precision - a.scale + b.scale + scale, scale


def remainder_digits(a: DataType, b: DataType) -> tuple[int, int]:
    scale = max(a.scale, b.scale)
    return min(a.precision - a.scale, b.precision - b.scale) + scale, scale


def digits_of(integral: DataType) -> int:
    """How many digits Spark gives an integer type when it becomes a decimal."""
    return _DIGITS[integral.kind]


def from_text(number: str, type_: DataType) -> Let:
    """The decimal of a number's text, half up. DuckDB misreads texts with an exponent, so the point is moved here."""
    return Let(number, lambda bound: _moved_point(bound, type_))


def _moved_point(number: str, type_: DataType) -> str:
    whole = f"regexp_extract({number}, '^[+-]?([0-9]*)', 1)"
    fraction = f"regexp_extract({number}, '[.]([0-9]*)', 1)"
    exponent = f"TRY_CAST(regexp_extract({number}, '[eE]([+-]?[0-9]+)$', 1) AS INTEGER)"
    # Zeros on both sides make every place of the point a place inside the digits.
    places = f"CASE WHEN {exponent} < -{_ZEROS} THEN -{_ZEROS} ELSE {exponent} END"
    digits = f"({_PADDING} || {whole} || {fraction} || {_PADDING})"
    before = f"(length({whole}) + {_ZEROS} + {places})"
    moved = f"(left({digits}, {before}) || '.' || substring({digits}, {before} + 1))"
    sign = f"CASE WHEN starts_with({number}, '-') THEN '-' ELSE '' END"
    text = f"CASE WHEN {exponent} > {_ZEROS} THEN NULL ELSE {sign} || {moved} END"
    return (
        f"CASE WHEN contains(lower({number}), 'e') THEN TRY_CAST({text} AS {type_.duck}) "
        f"ELSE TRY_CAST({number} AS {type_.duck}) END"
    )


def rounded_double(a: str, scale: int, fast: Callable[[str], str], slow: Callable[[str], str | Let]) -> Let:
    """Round a double half up from its shortest text, as Spark does it.

    Away from ties the product with the power of ten decides, exactly: ``fast`` gets the whole units, signed. Near ties
    and for large numbers ``slow`` gets the double itself.
    """
    units = f"abs({a}) * CAST(1e{scale} AS DOUBLE)"

    def choose(units: str) -> str | Let:
        clear = f"{units} < {_CLEAR_UNITS} AND abs({units} - floor({units}) - 0.5) > {_CLEAR_DISTANCE}"
        whole = f"(CASE WHEN {a} < 0 THEN -floor({units} + 0.5) ELSE floor({units} + 0.5) END)"
        rest = slow(f"(CASE WHEN {clear} THEN NULL ELSE {a} END)")
        if isinstance(rest, Let):
            body = rest.body
            return Let(rest.value, lambda bound: f"CASE WHEN {clear} THEN {fast(whole)} ELSE {body(bound)} END")
        return f"CASE WHEN {clear} THEN {fast(whole)} ELSE {rest} END"

    return Let(units, choose)


def from_double(a: str, type_: DataType) -> Let:
    """The decimal of a double, half up; NULL when it does not fit."""
    return rounded_double(
        a, type_.scale, lambda whole: unscaled(f"CAST({whole} AS BIGINT)", type_),
        lambda rest: from_text(f"CAST({rest} AS VARCHAR)", type_),
    )  # fmt: skip


def unscaled(sql: str, type_: DataType) -> str:
    """The decimal whose unscaled value is the HUGEINT ``sql``; NULL when it has too many digits."""
    whole = f"TRY_CAST({sql} AS DECIMAL(38,0))"
    if type_.scale:
        # A product with the unit of the scale keeps the unscaled value and moves the point.
        whole = f"{whole} * CAST('{Decimal(1).scaleb(-type_.scale):f}' AS DECIMAL({type_.scale},{type_.scale}))"
    return f"TRY_CAST({whole} AS {type_.duck})"


def scaled(sql: str, type_: DataType) -> str:
    """The unscaled integer of a decimal, as HUGEINT."""
    if type_.scale == 0:
        return f"CAST({sql} AS HUGEINT)"
    # The digits without the point are the unscaled value; a cast to another scale would need more than 38 digits.
    if type_.precision + type_.scale > MAX_PRECISION:
        return f"CAST(replace(CAST({sql} AS VARCHAR), '.', '') AS HUGEINT)"
    wide = f"CAST({sql} AS DECIMAL({type_.precision + type_.scale},{type_.scale}))"
    return f"CAST({wide} * CAST({10**type_.scale} AS DECIMAL({type_.scale + 1},0)) AS HUGEINT)"
