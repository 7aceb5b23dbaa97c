"""Moving dates and timestamps. Interval literals come as options (``micros``, ``months``); no value is an interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.model.expression import Call, Column
from millstream.model.query import WINDOW_START
from millstream.model.types import DATE, INTEGER, LONG, DataType
from millstream.sql.functions.literals import TIMESTAMP_MAX, TIMESTAMP_MIN
from millstream.sql.functions.table import Function, Template, add, always, eager

_TIMES = ("timestamp", "timestamp_ntz")
# Dates and timestamps are moved inside these years; DuckDB's timestamps end at 290 308 BC and 294 247 AD.
_MAX_YEAR = 290_000
_MAX_DAYS = 100_000_000

_MICROS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def _moved_date_type(call: Call) -> DataType | None:
    return DATE if call.args[0].type == DATE and call.args[1].type.kind in ("byte", "short", "integer") else None


def _moved_date(sign: str) -> Template:
    def template(call: Call, args: Sequence[str]) -> str:
        date, days = args
        inside = f"{days} BETWEEN -{_MAX_DAYS} AND {_MAX_DAYS} AND abs(year({date})) < {_MAX_YEAR}"
        return f"CASE WHEN {inside} THEN {date} {sign} CAST({days} AS INTEGER) END"

    return template


def _add_months(date: str, months: str, type_: DataType) -> str:
    inside = f"abs(CAST({months} AS BIGINT)) // 12 + abs(year({date})) < {_MAX_YEAR}"
    return f"CASE WHEN {inside} THEN CAST({date} + to_months(CAST({months} AS INTEGER)) AS {type_.duck}) END"


def _add_months_type(call: Call) -> DataType | None:
    return DATE if call.args[0].type == DATE and call.args[1].type == INTEGER else None


def _year_month_type(*kinds: str) -> Callable[[Call], DataType | None]:
    return lambda call: call.args[0].type if call.args[0].type.kind in kinds else None


def _year_month(call: Call, args: Sequence[str]) -> str:
    return _add_months(args[0], str(int(call.option("months"))), call.type)


def _day_time_type(call: Call) -> DataType | None:
    return call.args[0].type if call.args[0].type.kind in _TIMES else None


def _day_time(call: Call, args: Sequence[str]) -> str:
    micros = int(call.option("micros"))
    low, high = max(TIMESTAMP_MIN, TIMESTAMP_MIN - micros), min(TIMESTAMP_MAX, TIMESTAMP_MAX - micros)
    inside = f"epoch_us({args[0]}) BETWEEN {low} AND {high}"
    return f"CASE WHEN {inside} THEN {args[0]} + to_microseconds(CAST({micros} AS BIGINT)) END"


def _unit_add_type(call: Call) -> DataType | None:
    quantity, time = call.args
    unit = call.option("unit").upper()
    known = unit in _MICROS or unit in _MONTHS
    return time.type if known and quantity.type == LONG and time.type.kind in _TIMES else None


def _unit_add(call: Call, args: Sequence[str]) -> str:
    quantity, time = args
    unit = call.option("unit").upper()
    if unit in _MONTHS:
        months = f"CAST({quantity} AS HUGEINT) * {_MONTHS[unit]}"
        inside = f"abs({months}) // 12 + abs(year({time})) < {_MAX_YEAR}"
        return f"CASE WHEN {inside} THEN {time} + to_months(CAST({months} AS INTEGER)) END"
    micros = f"epoch_us({time}) + CAST({quantity} AS HUGEINT) * {_MICROS[unit]}"
    inside = f"{micros} BETWEEN {TIMESTAMP_MIN} AND {TIMESTAMP_MAX}"
    return f"CASE WHEN {inside} THEN make_timestamp(CAST({micros} AS BIGINT)) END"


def _unit_difference_type(call: Call) -> DataType | None:
    known = call.option("unit").upper() in _MICROS
    return LONG if known and all(arg.type.kind in _TIMES for arg in call.args) else None


def _unit_difference(call: Call, args: Sequence[str]) -> str:
    start, end = args
    unit = _MICROS[call.option("unit").upper()]
    return f"CAST((CAST(epoch_us({end}) AS HUGEINT) - epoch_us({start})) // {unit} AS BIGINT)"


def _window_type(call: Call) -> DataType | None:
    kinds = {arg.type.kind for arg in call.args}
    window = {"timestamp": "window", "timestamp_ntz": "window_ntz"}.get(next(iter(kinds)))
    return DataType(window) if window and len(kinds) == 1 else None


def _window(call: Call, args: Sequence[str]) -> str:
    """A source that an outer join leaves unmatched has no window at all: NULL, and not a struct of NULLs."""
    whole = f'struct_pack("start" := {args[0]}, "end" := {args[1]})'
    grouped = isinstance(call.args[0], Column) and call.args[0].name == WINDOW_START
    return whole if grouped else f"CASE WHEN {args[0]} IS NOT NULL THEN {whole} END"


def _enter() -> None:
    add(
        Function(
            "DateAdd",
            ("date_add", "date + days"),
            "date so many days later",
            _moved_date_type,
            _moved_date("+"),
            always,
        )
    )
    add(
        Function(
            "DateSub",
            ("date_sub", "date - days"),
            "date so many days earlier",
            _moved_date_type,
            _moved_date("-"),
            always,
        )
    )
    later = "date so many months later, cut to the last day of the month"
    add(
        Function(
            "AddMonths",
            ("add_months",),
            later,
            _add_months_type,
            lambda call, args: _add_months(args[0], args[1], call.type),
            always,
        )
    )
    moved = "moved by a literal interval of months or years"
    for op, kinds in (("DateAddYMInterval", ("date",)), ("TimestampAddYMInterval", _TIMES)):
        name = ("date + interval",) if op.startswith("Date") else ("timestamp + interval month",)
        add(Function(op, name, moved, _year_month_type(*kinds), _year_month, always))
    moved = "moved by a literal interval of days to seconds"
    add(Function("TimestampAddInterval", ("timestamp + interval",), moved, _day_time_type, _day_time, always))
    units = "timestamp so many units later"
    add(Function("TimestampAdd", ("timestampadd", "dateadd(unit)"), units, _unit_add_type, _unit_add, always))
    between = "whole units, microsecond to week, from the first timestamp to the second"
    names = ("timestampdiff", "datediff(unit)")
    add(Function("TimestampDiff", names, between, _unit_difference_type, _unit_difference))
    add(Function("Window", ("window",), "the window of a row or answer", _window_type, _window, guard=eager))


_enter()
