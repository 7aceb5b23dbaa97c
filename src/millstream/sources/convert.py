"""Text to typed columns: whole columns at once, and value by value only around those that cannot be converted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.types import DataType

# Below this many values, trying them one by one is cheaper than halving again.
_ONE_BY_ONE = 32
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_INTEGER = re.compile(r"[+-]?\d{1,40}")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?)(\.\d+)?\s?(Z|[+-]\d\d(?::?\d\d)?)?)?")
ZONED = re.compile(r"\d:\d\d(:\d\d(\.\d+)?)?\s?(Z|[+-]\d\d(:?\d\d)?)$")
_WORDS = {"nan": "nan", "infinity": "inf", "+infinity": "inf", "-infinity": "-inf"}
_WORDS |= {"inf": "inf", "+inf": "inf", "-inf": "-inf"}
_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
# More digits than any decimal has, so that rounding is the only loss.
_CONTEXT = Context(prec=100, rounding=ROUND_HALF_UP)

Mask = npt.NDArray[np.bool_]
Scalar = int | float | str | bytes | bool | Decimal | None


def convert_texts(texts: pa.Array, wanted: DataType) -> tuple[pa.Array, Mask | None]:
    """A binary or string array as the wanted type, with a mask of the values that cannot be converted.

    Those are NULL in the result. NULL stays NULL and is not bad.
    """
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    if wanted.kind == "binary":
        return texts.cast(pa.binary()), None
    strings, bad = _strings(texts)
    if wanted.kind == "string":
        return strings, bad
    converted, failed = _convert(pc.utf8_trim_whitespace(strings), wanted)
    if bad is None or failed is None:
        return converted, failed if bad is None else bad
    return converted, bad | failed


def _strings(texts: pa.Array) -> tuple[pa.Array, Mask | None]:
    try:
        return texts.cast(pa.string()), None
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return _one_by_one(texts, pa.string(), lambda raw: raw.decode("utf-8") if isinstance(raw, bytes) else raw)


def _convert(texts: pa.Array, wanted: DataType) -> tuple[pa.Array, Mask | None]:
    try:
        return _whole(texts, wanted), None
    except pa.ArrowInvalid:
        if len(texts) <= _ONE_BY_ONE:
            return _one_by_one(texts, wanted.arrow, lambda text: parse_value(text, wanted))
    middle = len(texts) // 2
    halves = [_convert(texts[:middle], wanted), _convert(texts[middle:], wanted)]
    masks = [np.zeros(len(part), bool) if bad is None else bad for part, bad in halves]
    bad = np.concatenate(masks)
    return pa.concat_arrays([part for part, _ in halves]), bad if bad.any() else None


def _whole(texts: pa.Array, wanted: DataType) -> pa.Array:
    if wanted.kind in ("timestamp", "timestamp_ntz"):
        return _timestamps(texts).cast(pa.timestamp("us")).cast(wanted.arrow)
    if wanted.kind == "boolean":
        lower = pc.utf8_lower(texts)
        if not pc.all(pc.is_in(lower, value_set=pa.array(["true", "false", None]))).as_py():
            raise pa.ArrowInvalid("not a boolean")
        return pc.equal(lower, "true")
    return texts.cast(wanted.arrow)


def _timestamps(texts: pa.Array) -> pa.Array:
    """Zoned and zoneless texts, also mixed; zoneless ones are UTC."""
    naive, zoned = pa.timestamp("us"), pa.timestamp("us", tz="UTC")
    for kind in (naive, zoned):
        try:
            return texts.cast(kind)
        except pa.ArrowInvalid:
            pass
    has_zone = pc.match_substring_regex(texts, ZONED.pattern)
    with_zone = pc.if_else(has_zone, texts, None).cast(zoned).cast(naive)
    return pc.coalesce(with_zone, pc.if_else(has_zone, None, texts).cast(naive))


def _one_by_one(texts: pa.Array, arrow: pa.DataType, parse: Callable[[str], Scalar]) -> tuple[pa.Array, Mask | None]:
    values: list[Scalar] = []
    bad = np.zeros(len(texts), bool)
    for i, text in enumerate(texts.to_pylist()):
        try:
            values.append(None if text is None else parse(text))
        except ValueError:
            values.append(None)
            bad[i] = True
    return pa.array(values, arrow), bad if bad.any() else None


def parse_value(text: str, wanted: DataType) -> Scalar:
    """One value as Spark's readers take it; dates as days, timestamps as microseconds. ValueError when it is none.

    >>> from millstream.model.types import decimal
    >>> parse_value("1.255", decimal(10, 2))
    Decimal('1.26')
    """
    if wanted.kind in _BITS:
        return _integer(int(_matching(_INTEGER, text)), wanted)
    if wanted.floating:
        return float(_WORDS.get(text.lower()) or _matching(_NUMBER, text))
    if wanted.kind == "decimal":
        return rounded(Decimal(_matching(_NUMBER, text)), wanted)
    if wanted.kind == "boolean":
        return {"true": True, "false": False}.get(text.lower()) or _false(text)
    if wanted.kind == "date":
        return date.fromisoformat(_matching(_DATE, text)).toordinal() - _EPOCH_DAY
    if wanted.kind in ("timestamp", "timestamp_ntz"):
        return _micros(text)
    return text


def _matching(pattern: re.Pattern[str], text: str) -> str:
    if not pattern.fullmatch(text):
        raise ValueError(text)
    return text


def _false(text: str) -> bool:
    if text.lower() != "false":
        raise ValueError(text)
    return False


def _integer(value: int, wanted: DataType) -> int:
    limit = 1 << (_BITS[wanted.kind] - 1)
    if not -limit <= value < limit:
        raise ValueError(f"{value} is out of range")
    return value


def rounded(value: Decimal, wanted: DataType) -> Decimal:
    """Half up to the scale, as Spark does; ValueError when the digits before the point do not fit."""
    try:
        result = value.quantize(Decimal(1).scaleb(-wanted.scale), context=_CONTEXT)
    except InvalidOperation:
        raise ValueError(f"{value} has too many digits") from None
    if len(result.as_tuple().digits) > wanted.precision:
        raise ValueError(f"{value} has too many digits")
    return result


def _micros(text: str) -> int:
    """Fractions finer than a microsecond are cut off, as Spark does."""
    match = _TIMESTAMP.fullmatch(text)
    if not match:
        raise ValueError(text)
    day, clock, fraction, zone = match.groups()
    moment = datetime.fromisoformat(f"{day}T{clock or '00:00'}{(zone or '').replace('Z', '+00:00')}")
    delta = moment.replace(tzinfo=moment.tzinfo or UTC) - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + int((fraction or ".0")[1:7].ljust(6, "0"))


def json_value(value: object, wanted: DataType) -> Scalar:
    """A value of ``json.loads(…, parse_float=Decimal)`` as Spark's JSON reader takes it; ValueError when it is none.

    Dates and timestamps come back as text, for :func:`convert_texts`.
    """
    if value is None:
        return None
    if wanted.kind in ("string", "binary"):
        return _valid(value if isinstance(value, str) else json.dumps(value, default=str, separators=(",", ":")))
    if wanted.kind in ("date", "timestamp", "timestamp_ntz"):
        return _moment_text(value, wanted)
    if wanted.kind == "boolean":
        if isinstance(value, bool):
            return value
    elif isinstance(value, bool):
        pass
    elif wanted.kind in _BITS and isinstance(value, int):
        return _integer(value, wanted)
    elif wanted.floating and isinstance(value, int | float | Decimal):
        return _float(value)
    elif wanted.floating and isinstance(value, str) and value.lower() in _WORDS:
        return float(_WORDS[value.lower()])
    elif wanted.kind == "decimal" and isinstance(value, int | Decimal):
        return rounded(Decimal(value), wanted)
    elif wanted.kind == "decimal" and isinstance(value, str):
        return rounded(Decimal(_matching(_NUMBER, value.strip())), wanted)
    raise ValueError(f"{value!r} is no {wanted}")


def _valid(text: str) -> str:
    """Half a surrogate pair can be escaped in JSON but is no text."""
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError("half a surrogate pair is no text")
    return text


def _float(value: int | float | Decimal) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{value} is out of range") from None


def _moment_text(value: object, wanted: DataType) -> str:
    if isinstance(value, str):
        return _valid(value)
    # Whole numbers are seconds since 1970 for Spark, too.
    if wanted.kind != "date" and isinstance(value, int) and not isinstance(value, bool):
        try:
            return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        except (OverflowError, OSError, ValueError):
            pass
    raise ValueError(f"{value!r} is no {wanted}")
