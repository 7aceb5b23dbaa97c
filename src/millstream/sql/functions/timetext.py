"""Dates and timestamps from and to text and numbers, as Spark's casts do it in UTC.

Read are ``yyyy[-m[m][-d[d]]]`` and, for timestamps, ``h[h][:m[m][:s[s][.f…]]]`` after it, with ``Z``, ``UTC``, ``GMT``
or an offset such as ``+01:00`` after the seconds. Zones by name and times without a date, which Spark reads too, are
not.
"""

from __future__ import annotations

import re

from millstream.sql.functions.literals import TIMESTAMP_MAX, TIMESTAMP_MIN

_BLANK = r"[\x00-\x20\x7f]*"
_DAY = r"[+]?([0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
_DATE = rf"(?s)^{_BLANK}{_DAY}(?:[ T].*)?)?)?{_BLANK}$"
_ZONE = r"(?: *(?:Z|UTC|GMT|([+-][0-9]{1,2}(?::[0-9]{1,2})?)))?"
_SECOND = rf"(?::([0-9]{{1,2}})(?:[.]([0-9]*))?{_ZONE})?"
_CLOCK = rf"(?:[ T]([01]?[0-9]|2[0-3])(?::([0-9]{{1,2}}){_SECOND})?)?"
_TIMESTAMP = rf"^{_BLANK}{_DAY}{_CLOCK})?)?{_BLANK}$"


def is_date(text: str) -> bool:
    """Whether ``read_date`` understands the form of the text."""
    return re.match(_DATE, text) is not None


def is_timestamp(text: str) -> bool:
    """Whether ``read_timestamp`` understands the form of the text."""
    return re.match(_TIMESTAMP, text) is not None


def _part(a: str, pattern: str, group: int, default: str) -> str:
    return f"coalesce(nullif(regexp_extract({a}, '{pattern}', {group}), ''), '{default}')"


def _day(a: str, pattern: str) -> str:
    year = f"regexp_extract({a}, '{pattern}', 1)"
    return f"{year} || '-' || {_part(a, pattern, 2, '1')} || '-' || {_part(a, pattern, 3, '1')}"


def read_date(a: str) -> str:
    return f"TRY_CAST({_day(a, _DATE)} AS DATE)"


def read_timestamp(a: str, zoned: bool) -> str:
    """The timestamp of a text; without ``zoned`` an offset in the text is read over, as for TIMESTAMP_NTZ."""
    clock = " || ':' || ".join(_part(a, _TIMESTAMP, group, "0") for group in (4, 5, 6))
    fraction = f"rpad(left(regexp_extract({a}, '{_TIMESTAMP}', 7), 6), 6, '0')"
    local = f"TRY_CAST({_day(a, _TIMESTAMP)} || ' ' || {clock} || '.' || {fraction} AS TIMESTAMP)"
    offset = f"regexp_extract({a}, '{_TIMESTAMP}', 8)"
    hours = f"CAST(coalesce(nullif(split_part(substring({offset}, 2), ':', 1), ''), '0') AS INTEGER)"
    minutes = f"CAST(coalesce(nullif(split_part({offset}, ':', 2), ''), '0') AS INTEGER)"
    sign = f"CASE WHEN starts_with({offset}, '-') THEN -1 ELSE 1 END"
    # Offsets reach 18 hours in Java; anything else is a failure.
    valid = f"{hours} * 60 + {minutes} <= 1080 AND {minutes} <= 59"
    moved = f"{local} - to_minutes({sign} * ({hours} * 60 + {minutes}))" if zoned else local
    return f"CASE WHEN {valid} THEN {moved} END"


def _year_text(a: str) -> str:
    sign = f"CASE WHEN year({a}) > 9999 THEN '+' WHEN year({a}) < 0 THEN '-' ELSE '' END"
    return f"{sign} || format('{{:04d}}', abs(year({a})))"


def write_date(a: str) -> str:
    far = f"{_year_text(a)} || strftime({a}, '-%m-%d')"
    return f"CASE WHEN year({a}) BETWEEN 1 AND 9999 THEN CAST({a} AS VARCHAR) ELSE {far} END"


def write_timestamp(a: str) -> str:
    rest = f"rtrim(rtrim(strftime({a}, '-%m-%d %H:%M:%S.%f'), '0'), '.')"
    return f"CASE WHEN year({a}) BETWEEN 1 AND 9999 THEN CAST({a} AS VARCHAR) ELSE {_year_text(a)} || {rest} END"


def floor_micros(a: str, unit: int) -> str:
    """Whole units (of ``unit`` microseconds) since 1970 of a timestamp, towards the past."""
    micros = f"epoch_us({a})"
    return f"CASE WHEN {micros} < 0 THEN ({micros} + 1) // {unit} - 1 ELSE {micros} // {unit} END"


def from_units(a: str, unit: int) -> str:
    """The timestamp so many units after 1970; NULL outside DuckDB's range of 290 000 years around it."""
    low, high = -(-TIMESTAMP_MIN // unit), TIMESTAMP_MAX // unit
    return f"CASE WHEN {a} BETWEEN {low} AND {high} THEN make_timestamp(CAST({a} AS BIGINT) * {unit}) END"
