"""The columns of a random stream: each has a type, a way to draw values and a way to draw constants."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random

import pyarrow as pa

from .numeric import INTEGER_BOUND, UNKNOWN, WHOLE, Range

KEYS = ("ruby", "opal", "jade", "onyx", "Ruby", "", "beryl", "topaz")
TEXTS = (
    "", " ", "a", "abc", "ABC", "a%b", "a_b", "back\\slash", "it's", " padded ", "Straße", "éclair", "ΩMEGA", "日本語",
    "x" * 40, "50% off", "tab\there", "naïve café", "abcabc", "zz",
)  # fmt: skip
CODES = ("1", "12", "-7", " 42 ", "007", "3.5", "1e3", "x9", "", "2147483648", "true", "2024-02-29")
DAY_ZERO = date(1970, 1, 1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DOUBLE_SPECIALS = (math.nan, math.inf, -math.inf, -0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Domain:
    """A column: ``draw`` gives a value of a row (never NULL), ``constant`` the text of a literal near the values."""

    name: str
    type: str
    arrow: pa.DataType
    draw: Callable[[Random], object]
    constant: Callable[[Random], str]
    range: Range = UNKNOWN
    digits: tuple[int, int] = (0, 0)
    nulls: float = 0.0


def text_literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\t", "\\t") + "'"


def number_literal(rng: Random, value: float) -> str:
    """The number as one of Spark's kinds of literal: integer, decimal, double (two spellings)."""
    kind = rng.random()
    if not math.isfinite(value):
        return f"DOUBLE({text_literal(str(value).replace('inf', 'Infinity').replace('nan', 'NaN'))})"
    if kind < 0.5 and value == int(value) and abs(value) < 1e18:
        return str(int(value))
    plain = f"{value:.4f}".rstrip("0")
    plain = plain + "0" if plain.endswith(".") else plain
    return plain if kind < 0.8 else f"{plain}D" if kind < 0.95 else f"{plain}E0"


def moment_literal(micros: int, kind: str = "timestamp") -> str:
    moment = EPOCH + timedelta(microseconds=micros)
    return f"{kind.upper()} '{moment:%Y-%m-%d %H:%M:%S.%f}'" if moment.year > 999 else f"{kind.upper()} '1000-01-01'"


def _integer(
    name: str, kind: str, arrow: pa.DataType, size: int, extremes: float, nulls: float, hot: float = 0.0
) -> Domain:
    """Integers up to ``size``; one value in ``hot`` of the rows, and the largest there are in ``extremes`` of them."""
    limit = int(INTEGER_BOUND[kind])

    def draw(rng: Random) -> object:
        if hot and rng.random() < hot:
            return size // 2
        if rng.random() < extremes:
            return rng.choice((-limit, limit - 1, 1 - limit))
        return rng.randint(-size, size)

    def constant(rng: Random) -> str:
        return (
            str(rng.randint(-size, size))
            if rng.random() < 0.7
            else number_literal(rng, rng.randint(-4 * size, 4 * size) / 4)
        )

    bound = float(limit) if extremes else float(size)
    return Domain(name, kind, arrow, draw, constant, Range(0, bound), nulls=nulls)


def _grid(name: str, kind: str, arrow: pa.DataType, fraction: int, size: int, specials: float, nulls: float) -> Domain:
    """Multiples of 2**-fraction: their sums are exact, whatever the order."""
    steps = size << fraction

    def draw(rng: Random) -> object:
        return rng.choice(DOUBLE_SPECIALS) if rng.random() < specials else rng.randint(-steps, steps) / (1 << fraction)

    def constant(rng: Random) -> str:
        special = rng.random() < specials / 2
        return number_literal(rng, rng.choice(DOUBLE_SPECIALS) if special else rng.randint(-4 * size, 4 * size) / 4)

    return Domain(name, kind, arrow, draw, constant, Range(fraction, float(size)), nulls=nulls)


def _arbitrary(name: str, specials: float, nulls: float) -> Domain:
    def draw(rng: Random) -> object:
        return rng.choice(DOUBLE_SPECIALS) if rng.random() < specials else rng.gauss(0, 1) * 10 ** rng.randint(-3, 5)

    return Domain(
        name,
        "double",
        pa.float64(),
        draw,
        lambda rng: number_literal(rng, rng.gauss(0, 100)),
        Range(None, 1e6),
        nulls=nulls,
    )


def _decimal(name: str, digits: tuple[int, int], size: int, extremes: float, nulls: float) -> Domain:
    precision, scale = digits
    unit = Decimal(1).scaleb(-scale)
    limit = Decimal(10**precision - 1).scaleb(-scale)

    def draw(rng: Random) -> object:
        if rng.random() < extremes:
            return rng.choice((limit, -limit))
        return Decimal(rng.randint(-size * 10**scale, size * 10**scale)) * unit

    def constant(rng: Random) -> str:
        whole = rng.randint(-size, size)
        return str(whole) if rng.random() < 0.4 else number_literal(rng, whole + rng.choice((0.25, 0.5, 0.125)))

    return Domain(name, "decimal", pa.decimal128(*digits), draw, constant, Range(None, float(limit)), digits, nulls)


def _strings(name: str, values: tuple[str, ...], skew: float, nulls: float) -> Domain:
    weights = [1 / (place + 1) ** skew for place in range(len(values))]

    def draw(rng: Random) -> object:
        return rng.choices(values, weights)[0]

    return Domain(name, "string", pa.string(), draw, lambda rng: text_literal(rng.choice(values)), nulls=nulls)


def _days(name: str, nulls: float) -> Domain:
    def draw(rng: Random) -> object:
        if rng.random() < 0.02:
            return rng.choice((date(1, 1, 1), date(9999, 12, 31), date(1582, 10, 15), date(1900, 2, 28)))
        return DAY_ZERO + timedelta(
            days=rng.randint(19_700, 19_800) if rng.random() < 0.8 else rng.randint(-9_000, 22_000)
        )

    def constant(rng: Random) -> str:
        text = f"'{DAY_ZERO + timedelta(days=rng.randint(19_700, 19_800))}'"
        return text if rng.random() < 0.2 else f"DATE {text}"

    return Domain(name, "date", pa.date32(), draw, constant, nulls=nulls)


def _moments(name: str, nulls: float) -> Domain:
    def micros(rng: Random) -> int:
        days = rng.randint(19_700, 19_800) if rng.random() < 0.9 else rng.randint(-9_000, 22_000)
        return (
            days * 86_400_000_000
            + rng.choice((rng.randrange(86_400), rng.randrange(24) * 3600)) * 1_000_000
            + rng.choice((0, 0, 250_000, rng.randrange(1_000_000)))
        )

    return Domain(
        name, "timestamp", pa.timestamp("us", tz="UTC"), micros, lambda rng: moment_literal(micros(rng)), nulls=nulls
    )


def random_domains(rng: Random, hot: float = 0.0) -> tuple[Domain, ...]:
    """The columns of one stream, beside its event time: one or two of every ordinary type. ``hot`` is the share of
    rows that have the same ``u``."""

    def nulls() -> float:
        return rng.choice((0.0, 0.05, 0.05, 0.3))

    extremes = rng.choice((0.0, 0.0, 0.02))
    specials = rng.choice((0.0, 0.0, 0.05, 0.2))
    return (
        _strings("k", KEYS[: rng.randint(1, len(KEYS))], rng.choice((0.0, 1.0, 2.5)), nulls()),
        _integer("u", "int", pa.int32(), rng.choice((1, 5, 40)), 0.0, nulls(), hot),
        _integer("n", "int", pa.int32(), 100, extremes, nulls()),
        _integer("tiny", "tinyint", pa.int8(), 9, extremes, nulls()),
        _integer("s", "smallint", pa.int16(), 50, extremes, nulls()),
        _integer("Big", "bigint", pa.int64(), rng.choice((1_000, 10_000_000_000)), extremes, nulls()),
        _grid("d", "double", pa.float64(), 6, 1_000, specials, nulls()),
        _grid("few", "double", pa.float64(), 1, 2, specials, nulls()),
        _grid("f", "float", pa.float32(), 3, 100, specials, nulls()),
        _arbitrary("e", specials, nulls()),
        _decimal("price", (10, 2), 200, extremes, nulls()),
        _decimal("wide", (20, 4), 1_000_000, extremes, nulls()),
        _strings("t", TEXTS, 0.3, nulls()),
        _strings("item code", CODES, 0.5, nulls()),
        Domain(
            "flag",
            "boolean",
            pa.bool_(),
            lambda r: r.random() < 0.6,
            lambda r: r.choice(("TRUE", "FALSE")),
            WHOLE,
            nulls=nulls(),
        ),
        _days("day", nulls()),
        _moments("at", nulls()),
    )
