"""Casts between Spark's ordinary types, with ANSI rules: towards zero for integers, half up for decimals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.model.expression import Call, Expression, Literal
from millstream.model.types import DataType
from millstream.sql.functions import decimals, timetext
from millstream.sql.functions.table import Function, Let, add, strict_failure

Cast = Callable[[str, DataType, DataType], str | Let]

# Spark trims these bytes before it reads a number: control characters and the space.
_BLANK = r"[\x00-\x20\x7f]*"
_LONG_TOP = "CAST(9223372036854775808 AS DOUBLE)"
# Below this unscaled value a decimal is exact in a double, and so is its division by 10^22 or less.
_EXACT_DIGITS = 15

# Halfway from the largest float to the next power of two.
_FLOAT_END = "CAST('3.4028235677973366e38' AS DOUBLE)"

_TRUE = "('t', 'true', 'y', 'yes', '1')"
_FALSE = "('f', 'false', 'n', 'no', '0')"


def _plain(a: str, source: DataType, target: DataType) -> str:
    return f"CAST({a} AS {target.duck})"


def _tried(a: str, source: DataType, target: DataType) -> str:
    return f"TRY_CAST({a} AS {target.duck})"


def _itself(a: str, source: DataType, target: DataType) -> str:
    return a


def _truncated(a: str, source: DataType, target: DataType) -> str:
    if target.kind == "long" and source.floating:
        # 2^63 passes Spark's range check, because Long.MaxValue is rounded to it, and then saturates.
        top = f"WHEN {a} = {_LONG_TOP} THEN 9223372036854775807"
        return f"CASE {top} ELSE TRY_CAST(trunc({a}) AS BIGINT) END"
    return f"TRY_CAST(trunc({a}) AS {target.duck})"


def _not_zero(a: str, source: DataType, target: DataType) -> str:
    return f"{a} <> 0"


def _narrowed(a: str, source: DataType, target: DataType) -> str:
    # DuckDB refuses what Java rounds to infinity.
    over = f"WHEN {a} >= {_FLOAT_END} AND NOT isnan({a}) THEN CAST('inf' AS FLOAT)"
    under = f"WHEN {a} <= -{_FLOAT_END} THEN CAST('-inf' AS FLOAT)"
    return f"CASE {over} {under} ELSE CAST({a} AS FLOAT) END"


def _double_to_decimal(a: str, source: DataType, target: DataType) -> Let:
    return decimals.from_double(f"CAST({a} AS DOUBLE)" if source.kind == "float" else a, target)


def _decimal_to_floating(a: str, source: DataType, target: DataType) -> str:
    exact = f"CAST(CAST({a} AS VARCHAR) AS {target.duck})"
    if target.kind == "float":
        return exact
    if source.precision <= _EXACT_DIGITS:
        return f"CAST({a} AS DOUBLE)"
    if source.scale > 22:
        return exact
    limit = f"CAST('{decimal_text(10**_EXACT_DIGITS - 1, source.scale)}' AS {source.duck})"
    return f"CASE WHEN {a} BETWEEN -{limit} AND {limit} THEN CAST({a} AS DOUBLE) ELSE {exact} END"


def decimal_text(unscaled: int, scale: int) -> str:
    """
    >>> decimal_text(12345, 2), decimal_text(5, 3)
    ('123.45', '0.005')
    """
    digits = str(unscaled).rjust(scale + 1, "0")
    return f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits


def _text_to_integer(a: str, source: DataType, target: DataType) -> str:
    return f"TRY_CAST(regexp_extract({a}, '^{_BLANK}([+-]?[0-9]+){_BLANK}$', 1) AS {target.duck})"


def _text_to_floating(a: str, source: DataType, target: DataType) -> str:
    # What Java's Double.parseDouble reads, type suffix included, and Spark's own names of the special values.
    pattern = f"^{_BLANK}([+-]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:[eE][+-]?[0-9]+)?)[dDfF]?{_BLANK}$"
    number = f"TRY_CAST(regexp_extract({a}, '{pattern}', 1) AS {target.duck})"
    word = f"lower(trim({a}))"
    special = (
        "WHEN 'nan' THEN 'nan' WHEN 'inf' THEN 'inf' WHEN '+inf' THEN 'inf' WHEN 'infinity' THEN 'inf' "
        "WHEN '+infinity' THEN 'inf' WHEN '-inf' THEN '-inf' WHEN '-infinity' THEN '-inf'"
    )
    return f"coalesce({number}, CAST(CASE {word} {special} END AS {target.duck}))"


def _text_to_decimal(a: str, source: DataType, target: DataType) -> Let:
    pattern = f"^{_BLANK}([+-]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:[eE][+-]?[0-9]+)?){_BLANK}$"
    return decimals.from_text(f"regexp_extract({a}, '{pattern}', 1)", target)


def _text_to_boolean(a: str, source: DataType, target: DataType) -> str:
    word = f"lower(regexp_extract({a}, '^{_BLANK}([a-zA-Z01]+){_BLANK}$', 1))"
    return f"CASE WHEN {word} IN {_TRUE} THEN TRUE WHEN {word} IN {_FALSE} THEN FALSE END"


def _encoded(a: str, source: DataType, target: DataType) -> str:
    return f"encode({a})"


_INTEGERS = ("byte", "short", "integer", "long")
_FLOATS = ("float", "double")
_TIMES = ("timestamp", "timestamp_ntz")


def _rules() -> dict[tuple[str, str], Cast]:
    """How each pair of kinds is cast."""
    rules: dict[tuple[str, str], Cast] = {}

    def rule(sources: Sequence[str], targets: Sequence[str], cast: Cast) -> None:
        rules.update({(source, target): cast for source in sources for target in targets})

    numbers = (*_INTEGERS, *_FLOATS, "decimal")
    rule(_INTEGERS, (*_INTEGERS, "decimal"), _tried)
    rule(_INTEGERS, (*_FLOATS, "string"), _plain)
    rule(numbers, ("boolean",), _not_zero)
    rule(_FLOATS, _INTEGERS, _truncated)
    rule(("float",), ("double",), _plain)
    rule(("double",), ("float",), _narrowed)
    rule(_FLOATS, ("decimal",), _double_to_decimal)
    rule(("decimal",), _INTEGERS, _truncated)
    rule(("decimal",), _FLOATS, _decimal_to_floating)
    rule(("decimal",), ("decimal",), _tried)
    rule(("decimal",), ("string",), _plain)
    rule(("boolean",), (*numbers, "string"), _plain)
    rule(("string",), _INTEGERS, _text_to_integer)
    rule(("string",), _FLOATS, _text_to_floating)
    rule(("string",), ("decimal",), _text_to_decimal)
    rule(("string",), ("boolean",), _text_to_boolean)
    rule(("string",), ("binary",), _encoded)
    rule(("string",), ("date",), lambda a, s, t: timetext.read_date(a))
    rule(("string",), ("timestamp",), lambda a, s, t: timetext.read_timestamp(a, zoned=True))
    rule(("string",), ("timestamp_ntz",), lambda a, s, t: timetext.read_timestamp(a, zoned=False))
    rule(("date",), ("string",), lambda a, s, t: timetext.write_date(a))
    rule(_TIMES, ("string",), lambda a, s, t: timetext.write_timestamp(a))
    rule(("date",), _TIMES, _plain)
    rule(_TIMES, ("date",), _plain)
    rule(_TIMES, _TIMES, _itself)
    rule(("timestamp",), _INTEGERS, lambda a, s, t: f"TRY_CAST({timetext.floor_micros(a, 1_000_000)} AS {t.duck})")
    rule(("timestamp",), ("double",), lambda a, s, t: f"epoch_us({a}) / CAST(1000000 AS DOUBLE)")
    rule(_INTEGERS, ("timestamp",), lambda a, s, t: timetext.from_units(a, 1_000_000))
    return rules


_RULES = _rules()


def _cast_type(call: Call) -> DataType | None:
    source, target = call.args[0].type, call.type
    if source == target or source.kind == "void":
        return target
    return target if (source.kind, target.kind) in _RULES and _readable(call.args[0], target) else None


def _readable(argument: Expression, target: DataType) -> bool:
    """Whether a literal has a form that is read as in Spark. Time zones by name, say, must not quietly become NULL."""
    if not isinstance(argument, Literal) or not isinstance(argument.value, str) or argument.type.kind != "string":
        return True
    if target.kind == "date":
        return timetext.is_date(argument.value)
    return target.kind not in _TIMES or timetext.is_timestamp(argument.value)


def _cast(call: Call, args: Sequence[str]) -> str | Let:
    source, target = call.args[0].type, call.type
    if source == target:
        return args[0]
    if source.kind == "void":
        return f"CAST(NULL AS {target.duck})"
    return _RULES[source.kind, target.kind](args[0], source, target)


_RANK = {"boolean": 0, "byte": 1, "short": 2, "integer": 3, "long": 4, "float": 5, "double": 6}


def _cast_fallible(call: Call) -> bool:
    source, target = call.args[0].type, call.type
    if source == target or source.kind == "void" or target.kind in ("string", "binary"):
        return False
    if source.kind == "string":
        return True
    if source.kind in _RANK and target.kind in _RANK:
        return _RANK[target.kind] < _RANK[source.kind] and target.kind not in (*_FLOATS, "boolean")
    if target.kind == "decimal":
        return not _holds(source, target)
    return target.integral or (source.integral and target.kind == "timestamp")


def _holds(source: DataType, target: DataType) -> bool:
    """Whether every value of the source fits the decimal."""
    whole = target.precision - target.scale
    if source.kind == "decimal":
        # Rounding away digits can carry into one more.
        return source.precision - source.scale + (target.scale < source.scale) <= whole
    if source.kind == "boolean":
        return whole >= 1
    return source.integral and decimals.digits_of(source) - (source.kind == "long") <= whole


def _cast_failure(call: Call, args: Sequence[str], value: str) -> str:
    failed = strict_failure(call, args, value)
    if call.args[0].type.floating and call.type.kind == "decimal":
        # NaN and the infinities become NULL without an error.
        return f"{failed} AND isfinite({args[0]})"
    return failed


def _enter() -> None:
    about = (
        "conversion between the ordinary types, as CAST does in ANSI mode; floating point to string is not supported"
    )
    names = ("cast", "::", "int", "bigint", "smallint", "tinyint", "float", "double", "decimal", "string", "boolean")
    times = ("date", "timestamp", "to_date", "to_timestamp")
    add(Function("Cast", (*names, *times), about, _cast_type, _cast, _cast_fallible, _cast_failure))
    add(Function("TryCast", ("try_cast",), "as cast, but NULL instead of a failure", _cast_type, _cast))


_enter()
