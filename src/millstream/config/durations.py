"""Durations in words, as people write them, and in microseconds."""

from __future__ import annotations

import re
from decimal import Decimal

from millstream.errors import SpecError

_UNITS: dict[str, int] = {
    "week": 604_800_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
_SHORT = {"d": "day", "h": "hour", "min": "minute", "m": "minute", "sec": "second", "s": "second"}
_SHORT |= {"ms": "millisecond", "us": "microsecond"}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)")
# Event times are 64-bit microseconds; half of that range leaves room to add a duration to a time.
MAX_DURATION = 2**62


def parse_duration(text: str) -> int:
    """Microseconds of a duration written in words.

    >>> parse_duration("1 minute 30 seconds"), parse_duration("500 ms"), parse_duration("0 seconds")
    (90000000, 500000, 0)
    """
    total, end = Decimal(0), 0
    while match := _PART.match(text, end):
        unit = match[2].lower()
        unit = _SHORT.get(unit, unit.removesuffix("s"))
        if unit not in _UNITS:
            raise _bad_duration(text, f"unknown unit {match[2]!r}")
        total, end = total + Decimal(match[1]) * _UNITS[unit], match.end()
    if end == 0 or text[end:].strip():
        raise _bad_duration(text, "no number with a unit" if end == 0 else f"cannot read {text[end:].strip()!r}")
    if total != int(total) or total > MAX_DURATION:
        raise _bad_duration(text, "finer than a microsecond" if total != int(total) else "too long")
    return int(total)


def _bad_duration(text: str, reason: str) -> SpecError:
    hint = 'write a number and a unit, like "5 seconds", "500 ms" or "1 minute 30 seconds"'
    return SpecError("BAD_SPEC", f"{text!r} is not a duration: {reason}", hint=hint)


def format_duration(micros: int) -> str:
    """The words that :func:`parse_duration` reads back to the same number.

    >>> format_duration(90_000_000), format_duration(0), format_duration(1_500)
    ('1 minute 30 seconds', '0 seconds', '1 millisecond 500 microseconds')
    """
    words, rest = [], micros
    for unit, size in _UNITS.items():
        count, rest = divmod(rest, size)
        if count:
            words.append(f"{count} {unit}{'' if count == 1 else 's'}")
    return " ".join(words) or "0 seconds"
