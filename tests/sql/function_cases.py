"""Edge values and the expressions that are proved over them: (view, text, oracle text).

The oracle is the text that plain Spark evaluates: the same text, or its ``try_`` form where ANSI mode fails on a row.
Each view crosses its values, so that every pair of edge values meets.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class Case:
    """``single``: one operator over columns, which fails where the oracle is NULL without NULL input."""

    view: str
    text: str
    oracle: str
    single: bool = False
    close: bool = False

    def __str__(self) -> str:
        return f"{self.view}: {self.text}"


NAN, INF = math.nan, math.inf
INTEGERS = {
    "byte": [None, 0, 1, -1, 3, -7, 100, 127, -128],
    "short": [None, 0, 1, -1, 3, -7, 1000, 32767, -32768],
    "int": [None, 0, 1, -1, 2, 3, -7, 12345, 1073741825, 2147483647, -2147483648, -2147483647],
    "long": [None, 0, 1, -1, 3, -7, 2**31, 2**53 + 1, 4611686018427387905, 2**63 - 1, -(2**63), -(2**63) + 1],
}
DOUBLES = [
    None,
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.5,
    -2.5,
    1e-7,
    0.1,
    1e300,
    -1e300,
    5e-324,
    1.7976931348623157e308,
    NAN,
    INF,
    -INF,
]
FLOATS = [None, 0.0, -0.0, 1.0, -1.5, 0.1, 3.4028234663852886e38, 1.401298464324817e-45, 16777216.0, NAN, INF, -INF]
# Values for rounding and conversion, which need no partner.
MORE_DOUBLES = [
    *DOUBLES, 0.145, 2.675, 1.005, -1.005, 0.045, 1.5, -0.5, 0.49999999999999994, 1e15, 123456789.125, 1e16, 1e17,
    1.5e17, 9007199254740993.0, 2147483647.0, 2147483647.9, 2147483648.0, -2147483648.9, -2147483649.0,
    9.223372036854775e18, 9.223372036854775807e18, -9.223372036854775808e18, -1e19, 127.9, 128.0, -128.9, -129.0,
    32768.0, 1e22, 1e23, 99.995, 0.005, -0.001, 1234.5678, 12345678.9, 1e-10, 999.995, 1e30, -7.0, 100.0, 1000.0, 8.0,
    16777217.0, 0.3, 4.35, 1.15, 1e-5, 2.5e-5,
]  # fmt: skip
DECIMALS = {
    "dec": (10, 2, ["0.00", "0.01", "-0.01", "1.00", "-1.50", "2.25", "3.00", "7.77", "99999999.99", "-99999999.99"]),
    "wide": (
        20,
        4,
        ["0.0000", "0.0001", "-2.5000", "3.3333", "12345678.9012", "9999999999999999.9999", "-9999999999999999.9999"],
    ),
    "whole": (
        20,
        0,
        ["0", "1", "-3", "7", "1000", "18446744073709551615", "99999999999999999999", "-99999999999999999999"],
    ),
    "small": (5, 3, ["0.000", "0.001", "-0.005", "1.005", "-1.015", "12.345", "99.999", "-99.999"]),
    "huge": (
        38,
        10,
        ["0.0000000000", "0.0000000001", "-1.5000000000", "9" * 28 + "." + "9" * 10, "-" + "9" * 28 + "." + "9" * 10],
    ),
    "max": (38, 0, ["0", "1", "-1", "2", "-7", "9" * 38, "-" + "9" * 38, "12345678901234567890"]),
}
STRINGS = [
    None, "", " ", "a", "A", "abc", "ABC", "abcabc", "  abc  ", "Hello World", "a,b,,c", "a%b", "a_b", "a\\b", "%",
    "_", "\\", "line\nbreak", "tab\tx", "é", "e\u0301x", "日本語", "😀x😀", "o'clock", 'say "x"', "xyz" * 5, "aXbXc",
    "a-b-c", "x" * 40, "the quick BROWN fox", "1a", "b", "bc", ",", "c",
]  # fmt: skip
# Words whose case mapping is special: one to many, by context, title case, and letters of recent Unicode versions.
CASED = [
    None, "straße", "STRASSE ﬁ ﬂ", "ŉ ǰ ΐ", "ΑΣ", "ΑΣ Β", "Σ", "ΑΣΑ", "Α'Σ'", "aΣb ΣΣ", "ΑΣ.", "ΑΣ.Α", "Α.Σ", "xΣ1",
    "ΑΣ-Α", "ΑΣ\u0301Α", "İstanbul", "I\u0307", "ıi", "ǆa ǅa Ǆa", "ßa", "ﬁx", "აბგ", "ԵՒ և", "ᾳ ᾲ ᾼ", "éÉ àÀ",
    "ДОМ дом", "日本 abc", "\ua7dc\u019b", "\U00010d70\U00010d50", "ÀÉ\tÎ ô",
]  # fmt: skip
BYTES = [None, b"", b"a", b"ab", b"\xff", b"\x00", b"\x7f\x80"]
PARTNERS = [None, "", "a", "b", "bc", ",", "abc", "%", "é", "X", "xy", " ", "😀", "aa"]
NUMBER_TEXTS = [
    None, "", " ", "0", "1", "-1", "+1", " 12 ", "\t7\n", "1.5", "-1.5", ".5", "5.", "1e3", "1E-2", "1e400", "-1e400",
    "1e-400", "abc", "1a", "a1", "--1", "+-1", "127", "128", "-128", "-129", "32767", "32768", "2147483647",
    "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "99999999.995", "1.005", "-1.005", "0.005", "NaN", "nan", "Infinity", "-Infinity", "inf", "+inf", "-INF", " inf ",
    "infinity", "+Infinity", "1d", "1f", "1.5D", "1L", "1_000", "1,000", "0x10", "true", "TRUE", " true ", "t", "T",
    "f", "yes", "No", "y", "n", "on", "off", "false", "False", "1 2", "e5", "1e", "1e+", ".", "+", "-", "00012",
    "1e5", "123456789012345678901234567890", "12345678901234567890123456789012345678901", "0.1", "1e-7", "1.0E10",
    "\u00a01", "0.30000000000000004", "1.7976931348623157e308", "4.9e-324", "2.2250738585072014e-308", "1e1", "12e-1",
    "1.45e1", "3.4028236e38", "12345678901e-5", "500e-3", "1e17", "9.223372036854775e+18", "1.5e16", "-12.5e-1",
    "1e-40", "0e5", "1.e2", ".5e1",
]  # fmt: skip
DATE_TEXTS = [
    None, "", "2020-01-01", "2020-1-5", "2020", "2020-02", "2020-2", "2020-02-29", "2019-02-29", "2020-13-01",
    "2020-00-10", "2020-01-32", " 2020-01-01 ", "2020-01-01 ", "2020-01-01T", "2020-01-01 junk",
    "2020-01-01T10:11:12", "2020-01-01 10:11:12", "2020-01-01 1:2:3", "2020-01-01 10:11", "2020-01-01 10:11:12.5",
    "2020-01-01 10:11:12.123456", "2020-01-01 10:11:12.123456789", "2020-01-01 10:11:12.", "2020-01-01 24:00:00",
    "2020-01-01 23:59:60", "2020-01-01 25:00:00", "2020-01-01 10:60:00", "2020-01-01T10:11:12Z",
    "2020-01-01 10:11:12 UTC", "2020-01-01 10:11:12UTC", "2020-01-01 10:11:12+01:00", "2020-01-01 10:11:12-08:30",
    "2020-01-01 10:11:12 +02:00", "2020-01-01 10:11:12+1:00", "2020-01-01 10:11:12+19:00", "2020-01-01 10:11:12+01",
    "2020-01-01 10:11:12GMT", "0001-01-01", "9999-12-31", "1969-12-31 23:59:59.999999", "1582-10-10", "0000-01-01",
    "20-01-01", "020-01-01", "2020-001-01", "2020/01/01", "20200101", "abc", "2020-01-01x", "2020-", "2020-01-",
    "2020-01-01 10", "2020-01-01 10:", "2020-01-01 10:11:", "+2020-01-01", "12345-01-01", "epoch", "now", "infinity",
    "2020-01-01 10:11:12 ", "2020-01-01\t", "2020-01-01 10:11:12+00:00", "2020-01-01 10:11:12.5Z",
    "2020-01-01 10:11:12-00:30", "2020-01-01 10:11:12+18:00", "2020-01-01 10:11:12+18:01", "2020-01-01 10:11Z",
    "2020-06-15T00:00", "2020-01Z", "2020-01-01 10:11:12+01:60", "2020-01-01  10:11:12",
]  # fmt: skip
DAYS = [
    date(1970, 1, 1), date(1969, 12, 31), date(2020, 2, 29), date(2020, 12, 31), date(2021, 1, 3), date(2019, 12, 30),
    date(2000, 1, 31), date(1900, 3, 1), date(1582, 10, 10), date(1, 1, 1), date(9999, 12, 31), date(2024, 6, 15),
    date(2023, 3, 31), date(2016, 1, 1),
]  # fmt: skip
MICROS = [
    None, 0, -1, 1, 999_999, -999_999, -1_000_000, 1_577_836_800_000_000, 1_583_020_799_999_999,
    -62_135_596_800_000_000, 253_402_300_799_999_999, 1_582_934_400_123_456, -11_644_473_600_000_001,
    1_700_000_000_500_000, 951_782_400_000_000, 86_399_999_999, 1_609_459_199_999_999, 3_723_004_000, 1_000, -1_001,
]  # fmt: skip
NUMBERS = [None, 0, 1, -1, 2, 3, -3, 5, 12, -13, 31, 1000, -1000]


def _pairs(left: list[Any], right: list[Any], type_a: pa.DataType, type_b: pa.DataType) -> pa.Table:
    rows = list(itertools.product(left, right))
    return pa.table({"a": pa.array([r[0] for r in rows], type_a), "b": pa.array([r[1] for r in rows], type_b)})


def _decimals(name: str) -> tuple[list[Decimal | None], pa.DataType]:
    precision, scale, texts = DECIMALS[name]
    return [None, *(Decimal(text) for text in texts)], pa.decimal128(precision, scale)


def views() -> dict[str, pa.Table]:
    """The tables, by view name. Columns are ``a`` and ``b`` (and ``c`` where three meet)."""
    integers = {"byte": pa.int8(), "short": pa.int16(), "int": pa.int32(), "long": pa.int64()}
    tables = {name: _pairs(INTEGERS[name], INTEGERS[name], kind, kind) for name, kind in integers.items()}
    tables["double"] = _pairs(DOUBLES, DOUBLES, pa.float64(), pa.float64())
    tables["float"] = _pairs(FLOATS, FLOATS, pa.float32(), pa.float32())
    tables["doubles"] = pa.table({"a": pa.array(MORE_DOUBLES, pa.float64())})
    tables["boolean"] = _pairs([None, True, False], [None, True, False], pa.bool_(), pa.bool_())
    for left, right in DECIMAL_PAIRS:
        (a, kind_a), (b, kind_b) = _decimals(left), _decimals(right)
        tables[f"{left}_{right}"] = _pairs(a, b, kind_a, kind_b)
    tables["string"] = _pairs(STRINGS, PARTNERS, pa.string(), pa.string())
    tables["place"] = _pairs(STRINGS, NUMBERS, pa.string(), pa.int32())
    tables["binary"] = _pairs(BYTES, BYTES, pa.binary(), pa.binary())
    tables["cased"] = pa.table({"a": pa.array(CASED, pa.string())})
    tables["number_text"] = pa.table({"a": pa.array(NUMBER_TEXTS, pa.string())})
    tables["date_text"] = pa.table({"a": pa.array(DATE_TEXTS, pa.string())})
    tables["date"] = _pairs([None, *DAYS], [None, *DAYS], pa.date32(), pa.date32())
    tables["moved"] = _pairs([None, *DAYS], NUMBERS, pa.date32(), pa.int32())
    tables["time"] = _pairs(MICROS, MICROS, pa.timestamp("us", tz="UTC"), pa.timestamp("us", tz="UTC"))
    tables["time_ntz"] = _pairs(MICROS, MICROS, pa.timestamp("us"), pa.timestamp("us"))
    tables["shifted"] = _pairs(MICROS, NUMBERS, pa.timestamp("us", tz="UTC"), pa.int64())
    return tables


DECIMAL_PAIRS = [
    ("dec", "dec"), ("dec", "wide"), ("wide", "dec"), ("wide", "wide"), ("wide", "whole"), ("dec", "whole"),
    ("small", "dec"), ("small", "small"), ("whole", "whole"), ("huge", "small"), ("max", "max"), ("dec", "huge"),
]  # fmt: skip
_TRY = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "/": "try_divide", "%": "try_mod"}


# The quotient is 1.4999…e-20: rounding it twice would give 2e-20.
NEAR_TIE = "cast(1.00 AS decimal(20,2)) / cast('66666666666666666667' AS decimal(20,0))"


def _same(view: str, *texts: str, close: bool = False) -> list[Case]:
    return [Case(view, text, text, close=close) for text in texts]


def _arithmetic(view: str, signs: str) -> list[Case]:
    cases = []
    for sign in signs:
        tried = f"{_TRY[sign]}(a, b)"
        cases += [Case(view, f"a {sign} b", tried, single=True), Case(view, tried, tried)]
    return cases


SQL_NAMES = {"byte": "tinyint", "short": "smallint", "int": "int", "long": "bigint"}
COMPARISONS = ("a = b", "a < b", "a <= b", "a > b", "a >= b", "a <> b", "a <=> b", "a IN (b, a)", "a NOT IN (b)")
COMPARISONS += (
    "greatest(a, b)",
    "least(a, b)",
    "coalesce(a, b)",
    "nullif(a, b)",
    "a IS NULL",
    "a IS NOT NULL",
    "nvl(a, b)",
)
COMPARISONS += ("nvl2(a, b, a)", "if(a < b, a, b)", "CASE WHEN a = b THEN a WHEN a > b THEN b END", "a BETWEEN b AND a")
COMPARISONS += ("CASE a WHEN b THEN 1 ELSE 2 END", "ifnull(b, a)", "equal_null(a, b)")


def _integer_cases(view: str) -> list[Case]:
    low = {"byte": "-128Y", "short": "-32768S", "int": "-2147483648", "long": "-9223372036854775808L"}[view]
    cases = _arithmetic(view, "+-*%") + _same(view, *COMPARISONS, "a & b", "a | b", "a ^ b", "~a", "+a")
    cases += [
        Case(view, "-a", f"if(a = {low}, NULL, -a)", single=True),
        Case(view, "abs(a)", f"if(a = {low}, NULL, abs(a))", single=True),
        Case(view, "pmod(a, b)", "pmod(a, nullif(b, 0))"),
        Case(
            view,
            "a div b",
            f"a div nullif(if({view == 'long'} AND b = -1 AND a = {low}, 0, b), 0)",
        ),
        Case(view, "a / b", "try_divide(a, b)"),
        Case(view, "mod(a, b)", "try_mod(a, b)", single=True),
    ]
    cases += _same(
        view, "round(a)", "round(a, 2)", "sign(a)", "bround(a)", "a IN (1, 3, NULL)", "isnull(a)", "isnotnull(b)"
    )
    cases += [
        Case(view, f"round(a, -{n})", f"try_cast(round(cast(a AS decimal(20,0)), -{n}) AS {SQL_NAMES[view]})")
        for n in (1, 2)
    ]
    if view != "long":
        cases += _same(
            view, "cast(a AS timestamp)", "timestamp_seconds(a)", "timestamp_millis(a)", "timestamp_micros(a)"
        )
    if view == "int":
        tens = "cast(round(cast(a AS decimal(12,0)), -3) AS decimal(20,0))"
        cases.append(Case(view, "round(a, -3)", f"try_cast({tens} AS int)"))
        even = "cast(bround(cast(a AS decimal(12,0)), -1) AS decimal(20,0))"
        cases.append(Case(view, "bround(a, -1)", f"try_cast({even} AS int)"))
        cases += _same(view, "ceil(a)", "floor(a)", "sqrt(a)")
    if view == "long":
        cases += _same(view, "ceil(a)", "floor(a)")
    return cases


def _cast_cases() -> list[Case]:
    cases = []
    numbers = (
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "decimal(10,2)",
        "decimal(20,4)",
        "decimal(3,0)",
        "decimal(38,15)",
        "boolean",
    )
    sources = [
        "byte",
        "short",
        "int",
        "long",
        "doubles",
        "float",
        "dec_dec",
        "wide_dec",
        "small_small",
        "huge_small",
        "max_max",
        "boolean",
    ]
    for view in [*sources, "number_text"]:
        for target in numbers:
            if view == "doubles" and target == "decimal(38,15)":
                # Java 17 writes some doubles of 17 digits longer than needed; from 2^53 on that shows.
                small = "if(abs(a) < 9e15, a, 0D)"
                cases.append(Case(view, f"cast({small} AS {target})", f"try_cast({small} AS {target})"))
                continue
            tried = f"try_cast(a AS {target})"
            quiet = view in ("doubles", "float") and target.startswith("decimal")
            cases += [Case(view, f"cast(a AS {target})", tried, single=not quiet), Case(view, tried, tried)]
    for view in (
        "byte",
        "short",
        "int",
        "long",
        "dec_dec",
        "wide_dec",
        "small_small",
        "huge_small",
        "max_max",
        "boolean",
    ):
        cases += _same(view, "cast(a AS string)", "concat(a, 'x', b)")
    for view in ("date", "time", "time_ntz"):
        cases += _same(
            view,
            "cast(a AS string)",
            "cast(a AS date)",
            "cast(a AS timestamp)",
            "cast(a AS timestamp_ntz)",
            "to_date(a)",
        )
    for target in ("date", "timestamp", "timestamp_ntz"):
        cases.append(Case("date_text", f"cast(a AS {target})", f"try_cast(a AS {target})", single=True))
    cases += [
        Case("date_text", "to_date(a)", "try_cast(a AS date)"),
        Case("date_text", "to_timestamp(a)", "try_cast(a AS timestamp)"),
    ]
    for target in ("bigint", "int", "smallint", "tinyint", "double"):
        cases.append(Case("time", f"cast(a AS {target})", f"try_cast(a AS {target})", single=True))
    cases += _same("int", "cast(a AS timestamp)", "cast(cast(a AS timestamp) AS bigint)")
    cases += _same(
        "int", "cast(NULL AS int)", "cast(NULL AS string)", "coalesce(NULL, a)", "NULL", "cast(NULL AS decimal(10,2))"
    )
    return cases


def _decimal_cases() -> list[Case]:
    cases = []
    for left, right in DECIMAL_PAIRS:
        view = f"{left}_{right}"
        signs = {"huge_small": "%", "max_max": "+-%", "dec_huge": "%", "wide_wide": "+-/%", "whole_whole": "+-*%"}.get(
            view, "+-*/%"
        )
        cases += _arithmetic(view, signs)
        cases += _same(view, "a = b", "a < b", "a >= b", "a <=> b", "coalesce(a, b)", "greatest(a, b)", "least(a, b)")
        if "huge" not in view and "max" not in view:
            cases += _same(view, "-a", "abs(b)")
        if left == right:
            cases += _same(view, *COMPARISONS)
    cases += _same("dec_dec", NEAR_TIE)
    for view in ("dec_dec", "small_small", "small_dec", "wide_dec", "dec_wide"):
        cases.append(Case(view, "a div b", "a div nullif(b, 0)", single=True))
    for left in ("dec", "wide", "small", "max"):
        view = next(v for v in (f"{left}_{left}", f"{left}_dec") if tuple(v.split("_")) in DECIMAL_PAIRS)
        cases += _same(
            view, "ceil(a)", "floor(a)", "round(a)", "round(a, 1)", "sign(a)", "sqrt(a)", "round(a, 5)", "bround(a, 5)"
        )
        if left != "max":
            cases += _same(
                view,
                "round(a, -1)",
                "round(a, -3)",
                "bround(a)",
                "bround(a, 1)",
                "bround(a, -1)",
                "a > 1.5",
                "a * 2",
                "a + 1",
            )
            cases += _same(
                view, "a / 3", "a * 1.19", "a IN (1, 2.25)", "a BETWEEN -1.5 AND 3", "a > 2.5e0", "1 - a", "a % 2"
            )
    return cases


def _floating_cases() -> list[Case]:
    cases = []
    for view in ("double", "float"):
        cases += _arithmetic(view, "+-*%") + _same(
            view, *COMPARISONS, "-a", "abs(a)", "isnan(a)", "nanvl(a, b)", "+a", "sign(a)"
        )
        cases += [Case(view, "a / b", "try_divide(a, b)"), Case(view, "pmod(a, b)", "pmod(a, nullif(b, 0))")]
    cases += _same(
        "doubles", "round(a)", "round(a, 1)", "round(a, 2)", "round(a, 5)", "round(a, 10)", "sqrt(a)", "sign(a)"
    )
    top = "(NOT isnan(a) AND a >= 9223372036854775808D) OR a < -9223372036854775808D"
    cases += [
        Case("doubles", f"{f}(a)", f"if({top}, NULL, {f}(if({top}, 0D, a)))", single=True) for f in ("ceil", "floor")
    ]
    cases += _same(
        "doubles",
        "exp(a)",
        "ln(a)",
        "log10(a)",
        "log2(a)",
        "log(2, a)",
        "pow(a, 2)",
        "pow(2, a)",
        "a = 0.3",
        close=True,
    )
    cases += _same("double", "pow(a, b)", "log(a, b)", close=True)
    return cases


def _string_cases() -> list[Case]:
    one = (
        "upper(a)",
        "lower(a)",
        "length(a)",
        "char_length(a)",
        "octet_length(a)",
        "trim(a)",
        "ltrim(a)",
        "rtrim(a)",
        "btrim(a)",
    )
    one += (
        "reverse(a)",
        "initcap(a)",
        "ascii(a)",
        "md5(a)",
        "sha2(a, 256)",
        "sha2(a, 0)",
        "ucase(a)",
        "lcase(a)",
        "len(a)",
    )
    one += (
        "concat(a)",
        "a || 'x'",
        "a || NULL",
        "concat('<', a, '>')",
        "concat_ws('-', a)",
        "substr(a, 2)",
        "substring(a, 2, 3)",
    )
    one += (
        "substring(a, 0, 2)",
        "substring(a, -2, 1)",
        "substring(a FROM 2 FOR 2)",
        "left(a, 2)",
        "right(a, 2)",
        "left(a, 0)",
    )
    one += (
        "right(a, -1)",
        "repeat(a, 2)",
        "repeat(a, -1)",
        "lpad(a, 5)",
        "rpad(a, 5, 'xy')",
        "lpad(a, 3, '')",
        "lpad(a, 0, 'x')",
    )
    one += (
        "a LIKE 'a%'",
        "a LIKE '%b%'",
        "a LIKE 'a_c'",
        "a LIKE '_'",
        "a LIKE ''",
        "a LIKE '%'",
        r"a LIKE 'a\\%b'",
        r"a LIKE 'a\\_b'",
    )
    one += (
        r"a LIKE 'a\\\\b'",
        "a LIKE '%x%' ESCAPE '/'",
        "a LIKE 'a/%b' ESCAPE '/'",
        "a LIKE '%_%_%'",
        "a NOT LIKE '%c'",
        "a ILIKE 'A%'",
    )
    one += (
        "a ILIKE 'É'",
        "a LIKE '%\n%'",
        "a LIKE '_x_'",
        "a RLIKE 'a.c'",
        "a RLIKE '^a'",
        "a RLIKE 'c$'",
        "a RLIKE '[a-c]+'",
        "a RLIKE '^$'",
    )
    one += (
        r"a RLIKE '\\d'",
        r"a RLIKE '^\\w+$'",
        r"a RLIKE '\\s'",
        "a RLIKE 'a|X'",
        "a RLIKE '(ab){2}'",
        "a RLIKE '^.{3}$'",
        "a RLIKE 'e.b'",
    )
    one += (
        "a RLIKE '[^a-z ]'",
        "regexp_like(a, 'b?c')",
        "a IN ('a', 'abc')",
        "a > 'abc'",
        "locate('b', a)",
        "position('c' IN a)",
    )
    one += (
        "split_part(a, ',', 2)",
        "split_part(a, ',', -1)",
        "trim('a' FROM a)",
        "trim(LEADING 'ax' FROM a)",
        "trim(TRAILING 'c ' FROM a)",
    )
    one += (
        "translate(a, 'abc', 'x')",
        "replace(a, 'b')",
        "a BETWEEN 'a' AND 'b'",
        "nullif(a, '')",
        "locate('b', a, 3)",
        "locate('b', a, 0)",
    )
    two = (
        "concat(a, b)",
        "concat_ws(b, a, a)",
        "concat_ws(',', a, b)",
        "replace(a, b, 'z')",
        "replace(a, 'a', b)",
        "startswith(a, b)",
    )
    two += (
        "endswith(a, b)",
        "contains(a, b)",
        "instr(a, b)",
        "locate(b, a)",
        "lpad(a, 7, b)",
        "rpad(a, 7, b)",
        "split_part(a, b, 1)",
    )
    two += (
        "split_part(a, b, -1)",
        "split_part(a, b, 2)",
        "translate(a, b, 'zw')",
        "translate(a, 'ab', b)",
        "trim(b FROM a)",
    )
    two += ("locate(b, a, 2)", "split_part(a, b, 9)")
    place = (
        "substring(a, b, 2)",
        "substring(a, b)",
        "substring(a, 2, b)",
        "left(a, b)",
        "right(a, b)",
        "lpad(a, b, 'xy')",
        "rpad(a, b)",
    )
    place += ("repeat(left(a, 3), b)", "locate('b', a, b)", "substring(a, -3, b)", "locate('', a, b)")
    cased = _same(
        "cased",
        "upper(a)",
        "lower(a)",
        "initcap(a)",
        "length(upper(a))",
        "reverse(a)",
        "a ILIKE '%σ%'",
        "a ILIKE 'STRASSE%'",
    )
    cases = cased + _same("string", *one, *two, *COMPARISONS) + _same("place", *place)
    cases.append(
        Case("place", "split_part(a, ',', b)", "if(b = 0, NULL, split_part(a, ',', if(b = 0, 1, b)))", single=True)
    )
    return cases


def _time_cases() -> list[Case]:
    fields = ("year", "quarter", "month", "day", "dayofmonth", "dayofweek", "weekday", "dayofyear", "weekofyear")
    cases = []
    for view in ("date", "time", "time_ntz"):
        cases += _same(view, *COMPARISONS, *(f"{field}(a)" for field in fields), "last_day(a)", "datediff(a, b)")
        cases += _same(
            view, "extract(YEAROFWEEK FROM a)", "extract(DOW FROM a)", "unix_timestamp(a)", "to_unix_timestamp(a)"
        )
        units = (
            "year",
            "YYYY",
            "quarter",
            "MM",
            "mon",
            "week",
            "DAY",
            "dd",
            "hour",
            "Minute",
            "second",
            "millisecond",
            "microsecond",
            "x",
        )
        cases += _same(view, *(f"date_trunc('{unit}', a)" for unit in units), "date_trunc(NULL, a)")
        cases += _same(
            view, *(f"trunc(a, '{unit}')" for unit in ("year", "yy", "quarter", "MONTH", "week", "day", "x"))
        )
        cases += _same(
            view,
            "a + INTERVAL 1 DAY",
            "a - INTERVAL '2' DAY",
            "a + INTERVAL 1 MONTH",
            "a - INTERVAL 13 MONTH",
            "a + INTERVAL '1' YEAR",
        )
        cases += _same(
            view,
            "a > '2000-01-01'",
            "timestampdiff(HOUR, a, b)",
            "date_format(a, 'yyyy-MM-dd HH:mm')",
            "add_months(a, 1)",
        )
        cases += _same(
            view,
            "date_diff(WEEK, a, b)",
            "timestampadd(DAY, -1, a)",
            "dateadd(MONTH, 1, a)",
            "timestampadd(YEAR, -1, a)",
        )
    for view in ("time", "time_ntz"):
        cases += _same(
            view,
            "hour(a)",
            "minute(a)",
            "second(a)",
            "extract(SECOND FROM a)",
            "date_part('hour', a)",
            "extract(minute FROM a)",
        )
        cases += _same(
            view, "a + INTERVAL 90 MINUTES", "a - INTERVAL '1 02:03:04.5' DAY TO SECOND", "a >= '2020-01-01 00:00:00'"
        )
        cases += _same(
            view,
            *(
                f"timestampdiff({unit}, a, b)"
                for unit in ("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "DAY", "WEEK")
            ),
        )
        cases += _same(
            view,
            "date_format(a, 'HH:mm:ss.SSS')",
            "date_format(a, \"yyyy/MM/dd'T'HH.SSSSSS\")",
            "date_format(a, 'yyyyMM')",
        )
    cases += _same(
        "time",
        "unix_seconds(a)",
        "unix_millis(a)",
        "unix_micros(a)",
        "timestamp_micros(unix_micros(a))",
        "a > date'2000-01-01'",
    )
    cases += _same("shifted", "cast(b AS timestamp)", "cast(cast(b AS timestamp) AS bigint)")
    cases += _same(
        "moved",
        "date_add(a, 1Y)",
        "date_sub(a, 2S)",
        "date_add(a, b)",
        "date_sub(a, b)",
        "add_months(a, b)",
        "a + b",
        "a - b",
        "unix_date(a)",
    )
    cases += _same(
        "shifted",
        "timestampadd(HOUR, b, a)",
        "timestampadd(MONTH, b, a)",
        "timestampadd(QUARTER, b, a)",
        "timestampadd(WEEK, b, a)",
    )
    cases += _same(
        "shifted", "timestamp_seconds(b)", "timestamp_millis(b)", "timestamp_micros(b)", "dateadd(SECOND, b, a)"
    )
    cases += _same("place", "make_date(2020, 1, 31)")
    cases += [Case("place", "make_date(2000 + b, 2, 29)", "try_cast(concat(2000 + b, '-02-29') AS date)")]
    return cases


def _logic_cases() -> list[Case]:
    blob = [text for text in COMPARISONS if not text.startswith(("greatest", "least"))]
    return _same("binary", *blob, "md5(a)", "sha2(a, 256)") + _same(
        "boolean",
        *COMPARISONS,
        "a AND b",
        "a OR b",
        "NOT a",
        "a AND NOT b OR b",
        "if(a, 1, 2)",
        "CASE WHEN a THEN 1 END",
        "a IS TRUE",
    )


def cases() -> list[Case]:
    found = _logic_cases() + _cast_cases() + _decimal_cases() + _floating_cases() + _string_cases() + _time_cases()
    for view in INTEGERS:
        found += _integer_cases(view)
    return list(dict.fromkeys(found))
