"""Fields of dates and timestamps, truncation, and conversion from and to numbers; the time zone is UTC."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.model.expression import Call, Expression, Literal
from millstream.model.types import DATE, INTEGER, LONG, STRING, TIMESTAMP, DataType, decimal
from millstream.sql.functions import decimals, timetext
from millstream.sql.functions.literals import text
from millstream.sql.functions.table import Function, Template, add, always

_TIMES = ("timestamp", "timestamp_ntz")

_TRUNCATE_DATE = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "year"),
    **dict.fromkeys(("MONTH", "MON", "MM"), "month"),
    "QUARTER": "quarter",
    "WEEK": "week",
}
_TRUNCATE = {
    **_TRUNCATE_DATE,
    **dict.fromkeys(("DAY", "DD"), "day"),
    **{unit: unit.lower() for unit in ("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")},
}

# The letters of Spark's datetime patterns that mean the same in strftime.
_FORMATS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S", "SSS": "%g", "SSSSSS": "%f"}


def _of_date(call: Call) -> DataType | None:
    return INTEGER if call.args[0].type == DATE else None


def _of_time(call: Call) -> DataType | None:
    return INTEGER if call.args[0].type.kind in _TIMES else None


def _date_of_date(call: Call) -> DataType | None:
    return DATE if call.args[0].type == DATE else None


def _long_of_timestamp(call: Call) -> DataType | None:
    return LONG if call.args[0].type == TIMESTAMP else None


def _fraction_type(call: Call) -> DataType | None:
    return decimal(8, 6) if _of_time(call) else None


def _field(function: str, offset: int = 0) -> Template:
    shift = f" + {offset}" if offset > 0 else f" - {-offset}" if offset < 0 else ""
    return lambda call, args: f"CAST({function}({args[0]}){shift} AS INTEGER)"


def _unit(expression: Expression, units: dict[str, str]) -> str | None:
    """The truncation unit of a literal; an unknown one gives NULL in Spark."""
    return units.get(str(expression.value).upper()) if isinstance(expression, Literal) and expression.value else None


def _trunc_timestamp_type(call: Call) -> DataType | None:
    unit, time = call.args
    return TIMESTAMP if isinstance(unit, Literal) and time.type == TIMESTAMP else None


def _trunc_timestamp(call: Call, args: Sequence[str]) -> str:
    unit = _unit(call.args[0], _TRUNCATE)
    return f"date_trunc('{unit}', {args[1]})" if unit else "CAST(NULL AS TIMESTAMP)"


def _trunc_date_type(call: Call) -> DataType | None:
    date, unit = call.args
    return DATE if isinstance(unit, Literal) and date.type == DATE else None


def _trunc_date(call: Call, args: Sequence[str]) -> str:
    unit = _unit(call.args[1], _TRUNCATE_DATE)
    return f"CAST(date_trunc('{unit}', {args[0]}) AS DATE)" if unit else "CAST(NULL AS DATE)"


def _format(pattern: str) -> str | None:
    """A datetime pattern as strftime's, or None when it uses other letters.

    >>> _format("yyyy-MM-dd'T'HH:mm"), _format("EEE")
    ('%Y-%m-%dT%H:%M', None)
    """
    out, index = "", 0
    while index < len(pattern):
        letter = pattern[index]
        if letter == "'":
            end = pattern.find("'", index + 1)
            if end <= index + 1:
                return None
            out, index = out + pattern[index + 1 : end].replace("%", "%%"), end + 1
            continue
        run = len(pattern) - index - len(pattern[index:].lstrip(letter))
        token = pattern[index : index + run]
        if token in _FORMATS:
            out += _FORMATS[token]
        elif letter in "-/:., _":
            out += token
        else:
            return None
        index += run
    return out


def _date_format_type(call: Call) -> DataType | None:
    time, pattern = call.args
    if time.type.kind not in _TIMES or not isinstance(pattern, Literal) or pattern.value is None:
        return None
    return STRING if _format(str(pattern.value)) is not None else None


def _date_format(call: Call, args: Sequence[str]) -> str:
    assert isinstance(call.args[1], Literal)
    pattern = text(_format(str(call.args[1].value)) or "")
    return f"strftime({args[0]}, {pattern})"


def _seconds_of_minute(call: Call, args: Sequence[str]) -> str:
    return decimals.unscaled(f"microsecond({args[0]})", call.type)


def _unix_timestamp_type(call: Call) -> DataType | None:
    return LONG if call.args[0].type.kind in (*_TIMES, "date") else None


def _unix(unit: int) -> Template:
    return lambda call, args: timetext.floor_micros(args[0], unit)


def _unix_timestamp(call: Call, args: Sequence[str]) -> str:
    # Towards zero, unlike unix_seconds.
    return f"epoch_us(CAST({args[0]} AS TIMESTAMP)) // 1000000"


def _from_units_type(call: Call) -> DataType | None:
    return TIMESTAMP if call.args[0].type.integral else None


def _from_units(unit: int) -> Template:
    return lambda call, args: timetext.from_units(args[0], unit)


def _difference_type(call: Call) -> DataType | None:
    return INTEGER if all(arg.type == DATE for arg in call.args) else None


def _make_date_type(call: Call) -> DataType | None:
    return DATE if all(arg.type == INTEGER for arg in call.args) else None


def _make_date(call: Call, args: Sequence[str]) -> str:
    year, month, day = args
    text = f"format('{{:04d}}', {year}) || '-' || {month} || '-' || {day}"
    return f"CASE WHEN {year} BETWEEN 0 AND 9999 THEN TRY_CAST({text} AS DATE) END"


def _enter_fields() -> None:
    of_date = [
        ("Year", ("year",), "year", 0, "year"),
        ("Quarter", ("quarter",), "quarter", 0, "quarter, 1 to 4"),
        ("Month", ("month",), "month", 0, "month, 1 to 12"),
        ("DayOfMonth", ("day", "dayofmonth"), "day", 0, "day of the month"),
        ("DayOfWeek", ("dayofweek",), "dayofweek", 1, "day of the week, 1 is Sunday"),
        ("WeekDay", ("weekday",), "isodow", -1, "day of the week, 0 is Monday"),
        ("DayOfYear", ("dayofyear",), "dayofyear", 0, "day of the year"),
        ("WeekOfYear", ("weekofyear",), "week", 0, "ISO week of the year"),
        ("YearOfWeek", ("extract(yearofweek)",), "isoyear", 0, "year that the ISO week belongs to"),
    ]
    for op, names, function, offset, about in of_date:
        add(Function(op, names, f"{about} of a date", _of_date, _field(function, offset)))
    days = "days from 1970-01-01 to a date"
    add(Function("UnixDate", ("unix_date",), days, _of_date, lambda _, a: f"CAST({a[0]} - make_date(0) AS INTEGER)"))
    for unit in ("hour", "minute", "second"):
        add(Function(unit.capitalize(), (unit,), f"{unit} of a timestamp", _of_time, _field(unit)))
    fraction = "second with fraction of a timestamp"
    add(Function("SecondWithFraction", ("extract(second)",), fraction, _fraction_type, _seconds_of_minute))


def _enter() -> None:
    _enter_fields()
    truncated = "timestamp cut to year, quarter, month, week, day, hour, minute, second, millisecond or microsecond"
    add(Function("TruncTimestamp", ("date_trunc",), truncated, _trunc_timestamp_type, _trunc_timestamp))
    add(Function("TruncDate", ("trunc",), "date cut to year, quarter, month or week", _trunc_date_type, _trunc_date))
    formatted = "timestamp as text; pattern of yyyy, MM, dd, HH, mm, ss, SSS, SSSSSS, separators and quoted text"
    add(Function("DateFormatClass", ("date_format",), formatted, _date_format_type, _date_format))
    seconds = "seconds since 1970 of a date or timestamp"
    add(Function("UnixTimestamp", ("unix_timestamp",), seconds, _unix_timestamp_type, _unix_timestamp))
    add(Function("ToUnixTimestamp", ("to_unix_timestamp",), seconds, _unix_timestamp_type, _unix_timestamp))
    for op, name, unit, to_op, to_name in (
        ("UnixSeconds", "unix_seconds", 1_000_000, "SecondsToTimestamp", "timestamp_seconds"),
        ("UnixMillis", "unix_millis", 1_000, "MillisToTimestamp", "timestamp_millis"),
        ("UnixMicros", "unix_micros", 1, "MicrosToTimestamp", "timestamp_micros"),
    ):
        about = name.removeprefix("unix_")
        add(Function(op, (name,), f"whole {about} since 1970 of a timestamp", _long_of_timestamp, _unix(unit)))
        about = f"timestamp so many {about} after 1970"
        add(Function(to_op, (to_name,), about, _from_units_type, _from_units(unit), always))
    days = "days from the second date to the first"
    add(
        Function(
            "DateDiff",
            ("datediff", "date_diff"),
            days,
            _difference_type,
            lambda _, a: f"CAST({a[0]} - {a[1]} AS INTEGER)",
        )
    )
    last = "last day of the date's month"
    add(Function("LastDay", ("last_day",), last, _date_of_date, lambda _, args: f"last_day({args[0]})"))
    add(
        Function(
            "MakeDate", ("make_date",), "date of year (0 to 9999), month and day", _make_date_type, _make_date, always
        )
    )


_enter()
