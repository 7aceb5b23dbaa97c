"""Spark's result types of decimal arithmetic (``DecimalPrecision`` with ``allowPrecisionLoss`` on)."""

from __future__ import annotations

from millstream.model.types import DataType, decimal

MAX_PRECISION = 38
# Spark keeps at least so many digits after the point when a result needs more than 38 digits.
MIN_ADJUSTED_SCALE = 6

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


def scaled(sql: str, type_: DataType) -> str:
    """The unscaled integer of a decimal, as HUGEINT."""
    if type_.scale == 0:
        return f"CAST({sql} AS HUGEINT)"
    # The digits without the point are the unscaled value; a cast to another scale would need more than 38 digits.
    if type_.precision + type_.scale > MAX_PRECISION:
        return f"CAST(replace(CAST({sql} AS VARCHAR), '.', '') AS HUGEINT)"
    wide = f"CAST({sql} AS DECIMAL({type_.precision + type_.scale},{type_.scale}))"
    return f"CAST({wide} * CAST({10**type_.scale} AS DECIMAL({type_.scale + 1},0)) AS HUGEINT)"
