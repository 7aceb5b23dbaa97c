"""Functions of strings. Lengths and positions count Unicode code points, as in Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.model.expression import Call, Literal
from millstream.model.types import BOOLEAN, INTEGER, STRING, DataType
from millstream.sql.functions import casing
from millstream.sql.functions.table import Function, Template, add, always, eager

# Making a longer text fails: one query could take all memory of a worker. Spark's own strings end at 2 GB.
_MAX_LENGTH = 10_000_000


def signature(result: DataType, *kinds: str) -> Callable[[Call], DataType | None]:
    """The result type for arguments of exactly these kinds."""
    return lambda call: result if tuple(arg.type.kind for arg in call.args) == kinds else None


def _not_negative(sql: str) -> str:
    """At least 0; greatest() would turn NULL into 0."""
    return f"(CASE WHEN {sql} < 0 THEN 0 ELSE {sql} END)"


def _strings(call: Call) -> DataType | None:
    return STRING if call.args and all(arg.type == STRING for arg in call.args) else None


def _call(function: str) -> Template:
    return lambda call, args: f"{function}({', '.join(args)})"


def _trim(function: str) -> Template:
    return lambda call, args: f"{function}({args[0]}, {args[1] if len(args) > 1 else repr(' ')})"


def _substring(call: Call, args: Sequence[str]) -> str:
    string, start, length = args
    position = call.args[1]
    if isinstance(position, Literal) and isinstance(position.value, int) and position.value >= 0:
        return f"substring({string}, {max(position.value, 1)}, {_not_negative(length)})"
    # A negative position counts from the end; what lies before the string still uses up length.
    begin = (
        f"(CASE WHEN {start} > 0 THEN CAST({start} AS BIGINT) - 1 "
        f"WHEN {start} < 0 THEN length({string}) + {start} WHEN {start} = 0 THEN 0 END)"
    )
    first = _not_negative(begin)
    count = _not_negative(f"({begin} + {_not_negative(length)} - {first})")
    return f"substring({string}, {first} + 1, {count})"


def _side(function: str) -> Template:
    return lambda call, args: f"{function}({args[0]}, {_not_negative(args[1])})"


def _locate(call: Call, args: Sequence[str]) -> str:
    part, string, start = args
    found = f"strpos(substring({string}, {start}), {part})"
    inside = f"CASE WHEN {part} = '' THEN 1 WHEN {found} = 0 THEN 0 ELSE {found} + {start} - 1 END"
    first = f"CASE WHEN {string} IS NULL THEN NULL WHEN {start} < 1 THEN 0 ELSE {inside} END"
    return f"CAST(CASE WHEN {start} IS NULL THEN 0 WHEN {part} IS NULL THEN NULL ELSE {first} END AS INTEGER)"


def _pad(function: str) -> Template:
    def template(call: Call, args: Sequence[str]) -> str:
        string, length, fill = args
        wanted = _not_negative(length)
        cut, filled = f"left({string}, {wanted})", f"{function}({string}, {wanted}, {fill})"
        return f"CASE WHEN {length} > {_MAX_LENGTH} THEN NULL WHEN {fill} = '' THEN {cut} ELSE {filled} END"

    return template


def _pad_may_fail(call: Call) -> bool:
    length = call.args[1]
    return not (isinstance(length, Literal) and isinstance(length.value, int) and length.value <= _MAX_LENGTH)


def _repeat(call: Call, args: Sequence[str]) -> str:
    string, times = args
    too_long = f"strlen({string}) * CAST({times} AS BIGINT) > {_MAX_LENGTH}"
    some = f"(CASE WHEN {string} = '' AND {times} > 0 THEN 1 ELSE {_not_negative(times)} END)"
    return f"CASE WHEN {too_long} THEN NULL ELSE repeat({string}, {some}) END"


def _reverse(call: Call, args: Sequence[str]) -> str:
    # DuckDB keeps combined characters together, Spark reverses code points; they agree on ASCII.
    (a,) = args
    points = f"array_to_string(list_transform(range(length({a}), 0, -1), lambda i: substring({a}, i, 1)), '')"
    return f"CASE WHEN strlen({a}) = length({a}) THEN reverse({a}) ELSE {points} END"


def _split_part(call: Call, args: Sequence[str]) -> str:
    string, separator, index = args
    whole = f"CASE WHEN abs({index}) = 1 OR {string} IS NULL THEN {string} ELSE '' END"
    part = f"CASE WHEN {separator} = '' THEN {whole} ELSE split_part({string}, {separator}, {index}) END"
    return f"CASE WHEN {index} = 0 THEN NULL ELSE {part} END"


def _concat(call: Call, args: Sequence[str]) -> str:
    return " || ".join(args)


def _sha2_type(call: Call) -> DataType | None:
    value, bits = call.args
    known = isinstance(bits, Literal) and bits.value in (0, 256)
    return STRING if value.type.kind == "binary" and known else None


def _ascii(call: Call, args: Sequence[str]) -> str:
    return f"CAST(ascii({args[0]}) AS INTEGER)"


def _positive_index(call: Call) -> bool:
    index = call.args[2]
    return not (isinstance(index, Literal) and index.value)


def _enter() -> None:
    one = signature(STRING, "string")
    rows: list[tuple[str, tuple[str, ...], str, Callable[[Call], DataType | None], Template]] = [
        ("Upper", ("upper", "ucase"), "upper case", one, lambda _, a: casing.upper(a[0])),
        ("Lower", ("lower", "lcase"), "lower case", one, lambda _, a: casing.lower(a[0])),
        (
            "InitCap",
            ("initcap",),
            "first letter of each word in upper case",
            one,
            lambda _, a: casing.capitalized(a[0]),
        ),
        (
            "Length",
            ("length", "char_length", "character_length", "len"),
            "number of characters",
            signature(INTEGER, "string"),
            lambda _, a: f"CAST(length({a[0]}) AS INTEGER)",
        ),
        (
            "OctetLength",
            ("octet_length",),
            "number of bytes",
            signature(INTEGER, "string"),
            lambda _, a: f"CAST(strlen({a[0]}) AS INTEGER)",
        ),
        (
            "StringTrim",
            ("trim", "btrim"),
            "without spaces, or the given characters, at both ends",
            _strings,
            _trim("trim"),
        ),
        (
            "StringTrimLeft",
            ("ltrim",),
            "without spaces, or the given characters, at the start",
            _strings,
            _trim("ltrim"),
        ),
        (
            "StringTrimRight",
            ("rtrim",),
            "without spaces, or the given characters, at the end",
            _strings,
            _trim("rtrim"),
        ),
        (
            "Substring",
            ("substring", "substr"),
            "part from a position, negative from the end",
            signature(STRING, "string", "integer", "integer"),
            _substring,
        ),
        ("Left", ("left",), "first characters", signature(STRING, "string", "integer"), _side("left")),
        ("Right", ("right",), "last characters", signature(STRING, "string", "integer"), _side("right")),
        (
            "StringReplace",
            ("replace",),
            "with every occurrence of a part replaced",
            signature(STRING, "string", "string", "string"),
            _call("replace"),
        ),
        (
            "StringTranslate",
            ("translate",),
            "with characters replaced one by one",
            signature(STRING, "string", "string", "string"),
            _call("translate"),
        ),
        ("StartsWith", ("startswith",), "begins with", signature(BOOLEAN, "string", "string"), _call("starts_with")),
        ("EndsWith", ("endswith",), "ends with", signature(BOOLEAN, "string", "string"), _call("ends_with")),
        ("Contains", ("contains",), "has a part", signature(BOOLEAN, "string", "string"), _call("contains")),
        (
            "StringInstr",
            ("instr",),
            "position of a part, 0 when missing",
            signature(INTEGER, "string", "string"),
            lambda _, a: f"CAST(strpos({a[0]}, {a[1]}) AS INTEGER)",
        ),
        ("Reverse", ("reverse",), "characters in reverse", one, _reverse),
        ("Ascii", ("ascii",), "code point of the first character", signature(INTEGER, "string"), _ascii),
        ("Md5", ("md5",), "MD5 digest in hexadecimal", signature(STRING, "binary"), _call("md5")),
        (
            "Sha2",
            ("sha2",),
            "SHA-256 digest in hexadecimal; only sha2(x, 256)",
            _sha2_type,
            lambda _, a: f"sha256({a[0]})",
        ),
        ("Concat", ("concat", "||"), "joined; NULL when a part is NULL", _strings, _concat),
    ]
    for op, names, about, result, template in rows:
        add(Function(op, names, about, result, template))
    for op, name, side in (("StringLPad", "lpad", "left"), ("StringRPad", "rpad", "right")):
        about = f"filled or cut to a length at the {side}; a text of more than 10 million characters fails"
        padded = signature(STRING, "string", "integer", "string")
        add(Function(op, (name,), about, padded, _pad(name), _pad_may_fail))
    repeated = "repeated; a text of more than 10 million bytes fails"
    add(Function("StringRepeat", ("repeat",), repeated, signature(STRING, "string", "integer"), _repeat, always))
    joined = "joined with a separator, NULLs left out"
    add(Function("ConcatWs", ("concat_ws",), joined, _strings, _call("concat_ws"), guard=eager))
    add(
        Function(
            "StringLocate",
            ("locate", "position"),
            "position of a part, from a position on",
            signature(INTEGER, "string", "string", "integer"),
            _locate,
            guard=eager,
        )
    )
    add(
        Function(
            "SplitPart",
            ("split_part",),
            "part between separators, negative from the end; 0 fails",
            signature(STRING, "string", "string", "integer"),
            _split_part,
            _positive_index,
        )
    )


_enter()
