"""Addition to remainder, on integers (exact or failed), floating point (Java's) and decimals (exact, half up)."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.model.expression import Call
from millstream.model.types import LONG, LONG_DIGITS, DataType, decimal
from millstream.sql.functions import decimals
from millstream.sql.functions.table import Function, Let, Template, add, always, never

_WIDER = {"byte": "BIGINT", "short": "BIGINT", "integer": "BIGINT", "long": "HUGEINT"}
_SIGN_BIT = {"integer": 31, "long": 63}


def wider(type_: DataType) -> str:
    """A DuckDB type that holds every sum and product of two integers of this type."""
    return _WIDER[type_.kind]


def same_numbers(call: Call) -> bool:
    first = call.args[0].type
    return (first.integral or first.floating) and all(arg.type == first for arg in call.args)


def _decimals(call: Call) -> tuple[DataType, DataType] | None:
    if len(call.args) == 2 and all(arg.type.kind == "decimal" for arg in call.args):
        return call.args[0].type, call.args[1].type
    return None


def _overflows(call: Call) -> bool:
    """Integers can overflow always, decimals only when Spark has cut their precision."""
    pair = _decimals(call)
    if pair is None:
        return call.type.integral
    digits = decimals.product_digits if call.op.endswith("Multiply") else decimals.sum_digits
    return digits(*pair)[0] > decimals.MAX_PRECISION


def _sum_type(call: Call) -> DataType | None:
    pair = _decimals(call)
    if pair is None:
        return call.args[0].type if same_numbers(call) else None
    return _unrounded(*decimals.sum_digits(*pair))


def _product_type(call: Call) -> DataType | None:
    pair = _decimals(call)
    if pair is None:
        return call.args[0].type if same_numbers(call) else None
    return _unrounded(*decimals.product_digits(*pair))


def _unrounded(precision: int, scale: int) -> DataType | None:
    """The result type, when Spark has not cut the scale: such a result is rounded from more than 38 digits."""
    result = decimals.adjusted(precision, scale)
    return result if result.scale == scale else None


def _sum(sign: str) -> Template:
    def template(call: Call, args: Sequence[str]) -> str:
        a, b = args
        if call.type.floating:
            return f"{a} {sign} {b}"
        if call.type.integral:
            wide = wider(call.type)
            return f"TRY_CAST(CAST({a} AS {wide}) {sign} CAST({b} AS {wide}) AS {call.type.duck})"
        target = call.type.duck
        if not _overflows(call):
            return f"CAST(CAST({a} AS {target}) {sign} CAST({b} AS {target}) AS {target})"
        # Both sides have at most 38 digits at the common scale only when their whole parts leave room for it.
        return f"TRY_CAST(TRY(CAST({a} AS {target}) {sign} CAST({b} AS {target})) AS {target})"

    return template


def _product(call: Call, args: Sequence[str]) -> str:
    a, b = args
    if call.type.floating:
        return f"{a} * {b}"
    if call.type.integral:
        wide = wider(call.type)
        return f"TRY_CAST(CAST({a} AS {wide}) * CAST({b} AS {wide}) AS {call.type.duck})"
    left = call.args[0].type
    # DuckDB keeps a product of two small decimals in 18 digits; a wide left side makes it take 38.
    wide = decimal(max(left.precision, 19), left.scale).duck if call.type.precision > 18 else left.duck
    product = f"CAST({a} AS {wide}) * {b}"
    return (
        f"TRY_CAST(TRY({product}) AS {call.type.duck})" if _overflows(call) else f"CAST({product} AS {call.type.duck})"
    )


def _quotient_type(call: Call) -> DataType | None:
    pair = _decimals(call)
    if pair is None:
        both_double = all(arg.type.kind == "double" for arg in call.args)
        return call.args[0].type if both_double else None
    result = decimals.adjusted(*decimals.quotient_digits(*pair))
    # The dividend, scaled up, has this many digits; it must fit a HUGEINT.
    digits = pair[0].precision - pair[0].scale + pair[1].scale + result.scale
    return result if digits <= decimals.MAX_PRECISION else None


def _quotient(call: Call, args: Sequence[str]) -> str | Let:
    a, b = args
    if call.type.floating:
        return f"{a} / CASE WHEN {b} = 0 THEN NULL ELSE {b} END"
    left, right = call.args[0].type, call.args[1].type
    shift = call.type.scale - left.scale + right.scale
    dividend = f"abs({decimals.scaled(a, left)}) * CAST({10**shift} AS HUGEINT)"
    divisor = f"CASE WHEN {b} = 0 THEN NULL ELSE abs({decimals.scaled(b, right)}) END"
    negative = f"({a} < 0) <> ({b} < 0)"
    return Let(
        dividend, lambda x: Let(divisor, lambda y: Let(f"{x} // {y}", lambda q: _rounded(x, y, q, negative, call.type)))
    )


def _rounded(dividend: str, divisor: str, quotient: str, negative: str, type_: DataType) -> str:
    """The decimal of a whole quotient and its rest, half up."""
    rest = f"({dividend} - {quotient} * {divisor})"
    # Twice the rest could overflow a HUGEINT.
    magnitude = f"({quotient} + CASE WHEN {rest} >= {divisor} - {rest} THEN 1 ELSE 0 END)"
    return decimals.unscaled(f"(CASE WHEN {negative} THEN -{magnitude} ELSE {magnitude} END)", type_)


def _integral_quotient_type(call: Call) -> DataType | None:
    pair = _decimals(call)
    if pair is not None:
        a, b = pair
        # Beyond 18 digits the quotient could leave the range of a long.
        return LONG if _aligned(a, b) and a.precision - a.scale + b.scale <= LONG_DIGITS else None
    return LONG if all(arg.type == LONG for arg in call.args) else None


def _aligned(a: DataType, b: DataType) -> bool:
    """Whether both fit 38 digits at their common scale."""
    scale = max(a.scale, b.scale)
    return max(a.precision - a.scale, b.precision - b.scale) + scale <= decimals.MAX_PRECISION


def _common(args: Sequence[str], a: DataType, b: DataType) -> tuple[str, str]:
    """The unscaled values of two decimals at their common scale."""
    scale = max(a.scale, b.scale)
    whole = max(a.precision - a.scale, b.precision - b.scale)
    common = decimal(max(whole + scale, 1), scale)
    left, right = (decimals.scaled(f"CAST({arg} AS {common.duck})", common) for arg in args)
    return left, right


def _integral_quotient(call: Call, args: Sequence[str]) -> str:
    pair = _decimals(call)
    if pair is None:
        a, b = (f"CAST({arg} AS HUGEINT)" for arg in args)
    else:
        a, b = _common(args, *pair)
    return f"TRY_CAST({a} // CASE WHEN {args[1]} = 0 THEN NULL ELSE {b} END AS BIGINT)"


def _remainder_type(call: Call) -> DataType | None:
    pair = _decimals(call)
    if pair is None:
        return call.args[0].type if same_numbers(call) else None
    return decimals.adjusted(*decimals.remainder_digits(*pair)) if _aligned(*pair) else None


def _remainder(call: Call, args: Sequence[str]) -> str:
    a, b = args
    pair = _decimals(call)
    if pair is not None:
        left, right = _common(args, *pair)
        return decimals.unscaled(f"({left} % CASE WHEN {b} = 0 THEN NULL ELSE {right} END)", call.type)
    if call.type.floating:
        return f"{a} % CASE WHEN {b} = 0 THEN NULL ELSE {b} END"
    # min % -1 overflows in DuckDB; x % 1 is the same 0.
    return f"{a} % CASE {b} WHEN 0 THEN NULL WHEN -1 THEN 1 ELSE {b} END"


def _positive_remainder_type(call: Call) -> DataType | None:
    return call.args[0].type if same_numbers(call) else None


def _positive_remainder(call: Call, args: Sequence[str]) -> str:
    b = args[1]
    rest = f"({_remainder(call, args)})"
    if call.type.floating:
        return f"CASE WHEN {rest} < 0 THEN ({rest} + {b}) % {b} ELSE {rest} END"
    wide = wider(call.type)
    moved = f"(CAST({rest} AS {wide}) + {b})"
    if call.type.kind in _SIGN_BIT:
        # Java's sum wraps around when the divisor is a large negative number.
        bit = _SIGN_BIT[call.type.kind]
        round_ = f"CASE WHEN {moved} < -CAST({2**bit} AS {wide}) THEN CAST({2 ** (bit + 1)} AS {wide}) ELSE 0 END"
        moved = f"({moved} + {round_})"
    safe = f"CASE {b} WHEN 0 THEN NULL ELSE CAST({b} AS {wide}) END"
    return f"CASE WHEN {rest} < 0 THEN CAST({moved} % {safe} AS {call.type.duck}) ELSE {rest} END"


def _signed_type(call: Call) -> DataType | None:
    type_ = call.args[0].type
    # Scala rounds a decimal to 34 digits when it changes the sign.
    exact = type_.kind == "decimal" and type_.precision <= 34
    return type_ if type_.integral or type_.floating or exact else None


def _negate(call: Call, args: Sequence[str]) -> str:
    if call.type.integral:
        return f"TRY_CAST(-CAST({args[0]} AS {wider(call.type)}) AS {call.type.duck})"
    return f"-{args[0]}"


def _absolute(call: Call, args: Sequence[str]) -> str:
    if call.type.integral:
        return f"TRY_CAST(abs(CAST({args[0]} AS {wider(call.type)})) AS {call.type.duck})"
    return f"abs({args[0]})"


def _integral(call: Call) -> bool:
    return call.type.integral


def _divisor_first(call: Call, args: Sequence[str], index: int) -> str | None:
    """Spark evaluates the divisor first, and the dividend only when it is not NULL."""
    return f"({args[1]}) IS NOT NULL" if index == 0 else None


def _enter() -> None:
    whole = "integers fail on overflow; decimals are exact up to 38 digits"
    for op, name, sign in (("Add", "+", "+"), ("Subtract", "-", "-")):
        template = _sum(sign)
        word = {"Add": "sum", "Subtract": "difference"}[op]
        add(Function(op, (name,), f"{word} of two numbers; {whole}", _sum_type, template, _overflows))
        add(Function(f"Try{op}", (f"try_{op.lower()}",), f"{word}, NULL on overflow", _sum_type, template))
    add(Function("Multiply", ("*",), f"product of two numbers; {whole}", _product_type, _product, _overflows))
    add(Function("TryMultiply", ("try_multiply",), "product, NULL on overflow", _product_type, _product))
    quotient = "quotient of doubles or decimals, half up; fails on division by zero"
    add(Function("Divide", ("/",), quotient, _quotient_type, _quotient, always, guard=_divisor_first))
    add(Function("TryDivide", ("try_divide",), "quotient, NULL on division by zero", _quotient_type, _quotient, never))
    add(
        Function(
            "IntegralDivide",
            ("div",),
            "whole quotient, towards zero; fails on division by zero",
            _integral_quotient_type,
            _integral_quotient,
            always,
            guard=_divisor_first,
        )
    )
    remainder = "remainder with the sign of the dividend; fails on division by zero"
    add(Function("Remainder", ("%", "mod"), remainder, _remainder_type, _remainder, always, guard=_divisor_first))
    add(Function("TryMod", ("try_mod",), "remainder, NULL on division by zero", _remainder_type, _remainder))
    add(
        Function(
            "Pmod",
            ("pmod",),
            "positive remainder of integers or floating-point numbers; fails on division by zero",
            _positive_remainder_type,
            _positive_remainder,
            always,
            guard=_divisor_first,
        )
    )
    add(
        Function(
            "UnaryMinus", ("- (sign)", "negative"), "the number with the other sign", _signed_type, _negate, _integral
        )
    )
    add(Function("UnaryPositive", ("+ (sign)", "positive"), "the number itself", _signed_type, lambda _, args: args[0]))
    add(Function("Abs", ("abs",), "absolute value", _signed_type, _absolute, _integral))


_enter()
