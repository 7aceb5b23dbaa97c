"""Rounding, roots, powers, logarithms and bits.

Powers, exponentials and logarithms may differ from Java's in the last digit: the libraries round differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from millstream.model.expression import Call, Literal
from millstream.model.types import DOUBLE, LONG, DataType, decimal
from millstream.sql.functions import decimals
from millstream.sql.functions.decimals import MAX_PRECISION
from millstream.sql.functions.table import Function, Let, Template, add

# From here on a double has no digits after the point.
_WHOLE_DOUBLES = "1e17"
# Digits after the point that leave room for the 17 before it.
_MAX_DOUBLE_SCALE = 20
_BIT_KINDS = ("byte", "short", "integer", "long")


def _double(call: Call) -> DataType | None:
    return DOUBLE if all(arg.type == DOUBLE for arg in call.args) else None


def _whole_type(call: Call) -> DataType | None:
    type_ = call.args[0].type
    if type_.kind == "decimal":
        return decimal(min(type_.precision - type_.scale + 1, MAX_PRECISION), 0)
    return LONG if type_.kind in ("double", "long") else None


def _whole(function: str) -> Template:
    def template(call: Call, args: Sequence[str]) -> str:
        (a,) = args
        type_ = call.args[0].type
        if type_ == LONG:
            return a
        if type_ == DOUBLE:
            # Spark converts to a long before it looks at the range, and NaN becomes 0 there.
            return f"CASE WHEN isnan({a}) THEN 0 ELSE TRY_CAST({function}({a}) AS BIGINT) END"
        return f"CAST({function}({a}) AS {call.type.duck})"

    return template


def _of_double(call: Call) -> bool:
    return call.args[0].type == DOUBLE


def _scale(call: Call) -> int | None:
    scale = call.args[1]
    return scale.value if isinstance(scale, Literal) and isinstance(scale.value, int) else None


def _round_type(call: Call) -> DataType | None:
    scale, type_ = _scale(call), call.args[0].type
    if scale is None:
        return None
    if type_ == DOUBLE:
        return type_ if 0 <= scale <= _MAX_DOUBLE_SCALE else None
    if type_.integral:
        return type_ if scale >= -18 else None
    return _rounded_decimal(type_, scale) if type_.kind == "decimal" else None


def _rounded_decimal(type_: DataType, scale: int) -> DataType:
    """Rounding may need one more digit before the point."""
    whole = type_.precision - type_.scale + 1
    if scale < 0:
        return decimal(min(max(whole, -scale + 1), MAX_PRECISION), 0)
    kept = min(type_.scale, scale)
    return decimal(min(whole + kept, MAX_PRECISION), kept)


def _bround_type(call: Call) -> DataType | None:
    type_ = _round_type(call)
    return type_ if type_ and type_ != DOUBLE else None


def _round(call: Call, args: Sequence[str]) -> str | Let:
    a, scale, type_ = args[0], _scale(call) or 0, call.args[0].type
    if type_ == DOUBLE:
        return _round_double(a, scale)
    if type_.integral:
        return a if scale >= 0 else _round_integer(a, 10**-scale, type_, even=False)
    if scale >= type_.scale:
        return f"CAST({a} AS {call.type.duck})"
    if scale >= 0:
        return f"TRY_CAST({a} AS {call.type.duck})"
    return _round_decimal_up(a, type_, -scale, call.type, even=False)


def _round_double(a: str, scale: int) -> Let:
    def slow(rest: str) -> Let:
        number = decimals.from_text(f"CAST({rest} AS VARCHAR)", decimal(MAX_PRECISION, scale))
        whole = f"{a} <= -{_WHOLE_DOUBLES} OR {a} >= {_WHOLE_DOUBLES}"
        return Let(
            number.value,
            lambda text: f"CASE WHEN {whole} THEN {a} ELSE CAST(CAST({number.body(text)} AS VARCHAR) AS DOUBLE) END",
        )

    # Adding 0 takes the sign from a zero.
    return decimals.rounded_double(a, scale, lambda whole: f"{whole} / CAST(1e{scale} AS DOUBLE) + 0", slow)


def _bround(call: Call, args: Sequence[str]) -> str:
    a, scale, type_ = args[0], _scale(call) or 0, call.args[0].type
    if type_.integral:
        return a if scale >= 0 else _round_integer(a, 10**-scale, type_, even=True)
    if scale >= type_.scale:
        return f"CAST({a} AS {call.type.duck})"
    if scale < 0:
        return _round_decimal_up(a, type_, -scale, call.type, even=True)
    return _half_even(a, type_, call.type)


def _half_even(a: str, source: DataType, target: DataType) -> str:
    """Half up, unless the number is a tie whose last kept digit is even: then towards zero."""
    unit = source.scale - target.scale
    cut = f"TRY_CAST({a} AS {target.duck})"
    wide = decimal(min(source.precision + 1, MAX_PRECISION), source.scale).duck
    half = f"CAST('{Decimal(5).scaleb(unit - 1 - source.scale):f}' AS {wide})"
    step = f"CAST('{Decimal(1).scaleb(-target.scale):f}' AS {target.duck})"
    tie = f"abs(CAST({a} AS {wide}) - CAST({cut} AS {wide})) = {half}"
    odd = f"right(CAST({cut} AS VARCHAR), 1) IN ('1', '3', '5', '7', '9')"
    return f"CASE WHEN {tie} AND {odd} THEN CAST({cut} - sign({a}) * {step} AS {target.duck}) ELSE {cut} END"


def _round_integer(a: str, unit: int, type_: DataType, even: bool) -> str:
    return f"TRY_CAST({_rounded_units(f'CAST({a} AS HUGEINT)', unit, even)} * CAST({unit} AS HUGEINT) AS {type_.duck})"


def _rounded_units(value: str, unit: int, even: bool) -> str:
    """A HUGEINT divided by a power of ten, half up or half even."""
    size = f"CAST({unit} AS HUGEINT)"
    rest, quotient = f"(abs({value}) % {size})", f"(abs({value}) // {size})"
    odd = f" AND ({rest} * 2 > {size} OR {quotient} % 2 = 1)" if even else ""
    up = f"CASE WHEN {rest} * 2 >= {size}{odd} THEN 1 ELSE 0 END"
    return f"(CASE WHEN {value} < 0 THEN -({quotient} + {up}) ELSE {quotient} + {up} END)"


def _round_decimal_up(a: str, source: DataType, zeros: int, target: DataType, even: bool) -> str:
    """Round to tens, hundreds…; the digits after the point only matter by breaking ties upwards."""
    whole = f"CAST(trunc({a}) AS HUGEINT)"
    if not even:
        return f"TRY_CAST({_rounded_units(whole, 10**zeros, False)} * CAST({10**zeros} AS HUGEINT) AS {target.duck})"
    size = f"CAST({10**zeros} AS HUGEINT)"
    rest, quotient = f"(abs({whole}) % {size})", f"(abs({whole}) // {size})"
    above = f"({rest} * 2 > {size} OR ({rest} * 2 = {size} AND ({quotient} % 2 = 1 OR trunc({a}) <> {a})))"
    magnitude = f"({quotient} + CASE WHEN {above} THEN 1 ELSE 0 END) * {size}"
    return f"TRY_CAST(CASE WHEN {a} < 0 THEN -({magnitude}) ELSE {magnitude} END AS {target.duck})"


def _round_fallible(call: Call) -> bool:
    scale, type_ = _scale(call) or 0, call.args[0].type
    if type_.integral:
        return scale < 0
    return type_.kind == "decimal" and type_.precision - type_.scale + 1 + min(type_.scale, scale) > MAX_PRECISION


def _logarithm(function: str) -> Template:
    return lambda call, args: f"CASE WHEN {args[0]} > 0 THEN {function}({args[0]}) END"


def _log_of_base(call: Call, args: Sequence[str]) -> str:
    base, a = args
    return f"CASE WHEN {base} > 0 AND {a} > 0 THEN ln({a}) / ln({base}) END"


def _signum(call: Call, args: Sequence[str]) -> str:
    (a,) = args
    return (
        f"CASE WHEN {a} > 0 AND NOT isnan({a}) THEN CAST(1 AS DOUBLE) WHEN {a} < 0 THEN CAST(-1 AS DOUBLE) ELSE {a} END"
    )


def _sqrt(call: Call, args: Sequence[str]) -> str:
    return f"CASE WHEN {args[0]} < 0 THEN CAST('nan' AS DOUBLE) ELSE sqrt({args[0]}) END"


def _pow(call: Call, args: Sequence[str]) -> str:
    a, b = args
    # Java's power of 1 is NaN for NaN and infinite exponents, C's is 1.
    odd = f"{a} IS NOT NULL AND {b} <> 0 AND (isnan({a}) OR isnan({b}) OR (abs({a}) = 1 AND isinf({b})))"
    return f"CASE WHEN {odd} THEN CAST('nan' AS DOUBLE) ELSE pow({a}, {b}) END"


def _bits_type(call: Call) -> DataType | None:
    first = call.args[0].type
    return first if first.kind in _BIT_KINDS and all(arg.type == first for arg in call.args) else None


def _bits(sign: str) -> Template:
    if sign == "xor":
        return lambda call, args: f"xor({args[0]}, {args[1]})"
    return lambda call, args: f"{args[0]} {sign} {args[1]}"


def _enter() -> None:
    up, down = "smallest whole number not below", "largest whole number not above"
    add(Function("Ceil", ("ceil", "ceiling"), up, _whole_type, _whole("ceil"), _of_double))
    add(Function("Floor", ("floor",), down, _whole_type, _whole("floor"), _of_double))
    half_up = "rounded half up to a literal number of digits (of a double at least 0)"
    add(Function("Round", ("round",), half_up, _round_type, _round, _round_fallible))
    half_even = "integer or decimal rounded half even to a literal number of digits"
    add(Function("BRound", ("bround",), half_even, _bround_type, _bround, _round_fallible))
    rows: list[tuple[str, tuple[str, ...], str, Template]] = [
        ("Signum", ("sign", "signum"), "-1, 0 or 1 by the sign of a number", _signum),
        ("Sqrt", ("sqrt",), "square root, NaN of negative numbers", _sqrt),
        ("Exp", ("exp",), "e to the power", lambda _, a: f"exp({a[0]})"),
        ("Log", ("ln", "log"), "natural logarithm, NULL of numbers not above 0", _logarithm("ln")),
        ("Log10", ("log10",), "logarithm to base 10, NULL of numbers not above 0", _logarithm("log10")),
        ("Log2", ("log2",), "logarithm to base 2, NULL of numbers not above 0", _logarithm("log2")),
        ("Logarithm", ("log(base)",), "logarithm to a base, NULL of numbers not above 0", _log_of_base),
        ("Pow", ("pow", "power"), "power", _pow),
    ]
    for op, names, about, template in rows:
        add(Function(op, names, about, _double, template))
    for op, sign, about in (
        ("BitwiseAnd", "&", "and"),
        ("BitwiseOr", "|", "or"),
        ("BitwiseXor", "xor", "exclusive or"),
    ):
        add(Function(op, ("^" if sign == "xor" else sign,), f"bitwise {about} of integers", _bits_type, _bits(sign)))
    add(Function("BitwiseNot", ("~",), "bitwise complement of an integer", _bits_type, lambda _, args: f"~{args[0]}"))


_enter()
