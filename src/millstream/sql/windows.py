"""Window calls: `window(time, '8 seconds', '4 seconds')` read from the text.

Spark expands a sliding window into one projection for each overlap when it analyses a query, so the durations are
read here, by the rules of Spark's own interval parser, and Spark is shown the same text with a tumbling window.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from millstream.errors import Position, SqlError
from millstream.model.query import WindowSpec
from millstream.sql.tokens import NUMBER, STRING, Token, string_value

MICROS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 7 * 86_400_000_000,
}
MONTHS = ("month", "year")

# Spark keeps durations in 64 bits.
LARGEST = 2**63 - 1

_FORM = "window durations are strings of weeks, days, hours, minutes, seconds, such as '8 seconds'"
_PART = re.compile(r"([+-]?)\s*(\d+(?:\.\d{0,9})?|\.\d{1,9})\s+([a-z]+)(?:\s+|$)")


class DurationError(ValueError):
    """A text that Spark does not take for the duration of a window."""


def parse_duration(text: str) -> int:
    """Microseconds of a duration, by the rules of Spark's interval strings.

    >>> parse_duration("1 minute 30.5 seconds"), parse_duration("INTERVAL 8 SECONDS")
    (90500000, 8000000)
    """
    rest = re.sub(r"^interval\s+", "", text.strip().lower())
    total, position = 0, 0
    while position < len(rest) or not rest:
        match = _PART.match(rest, position)
        if match is None:
            raise DurationError(f"{text!r} is not a duration")
        total += _part(text, *match.groups())
        position = match.end()
    if abs(total) > LARGEST:
        raise DurationError(f"{text!r} is too long")
    return total


def _part(text: str, sign: str, number: str, unit: str) -> int:
    name = unit.removesuffix("s")
    if name in MONTHS:
        raise DurationError(f"{text!r} has {name}s, which are not of one length")
    whole, point, fraction = number.partition(".")
    if name not in MICROS or (point and name != "second"):
        raise DurationError(f"{text!r} is not a duration")
    micros = int(whole or 0) * MICROS[name] + int((fraction + "0" * 6)[:6])
    return -micros if sign == "-" else micros


@dataclass(frozen=True, slots=True)
class Argument:
    """The tokens ``first`` (inclusive) to ``last`` (exclusive) of one argument, and their place in the text."""

    first: int
    last: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class WindowCall:
    """A call with two to four arguments; other numbers of arguments are left for Spark to refuse."""

    start: int
    stop: int
    arguments: tuple[Argument, ...]


def window_calls(tokens: Sequence[Token]) -> tuple[WindowCall, ...]:
    """The calls of ``window``, also as `` `window`(…) `` and ``window (…)``."""
    calls = []
    for index in range(len(tokens) - 1):
        if tokens[index + 1].text != "(" or tokens[index].name.lower() != "window":
            continue
        if index and tokens[index - 1].text == ".":
            continue
        call = _call(tokens, index)
        if call and 2 <= len(call.arguments) <= 4:
            calls.append(call)
    return tuple(calls)


def _call(tokens: Sequence[Token], index: int) -> WindowCall | None:
    depth, first = 0, index + 2
    arguments: list[Argument] = []
    for at in range(index + 1, len(tokens)):
        text = tokens[at].text
        depth += (text in ("(", "[")) - (text in (")", "]"))
        if (text == "," and depth == 1) or depth == 0:
            if first == at:
                return None
            arguments.append(Argument(first, at, tokens[first].start, tokens[at - 1].stop))
            first = at + 1
        if depth == 0:
            return WindowCall(tokens[index].start, tokens[at].stop, tuple(arguments))
    return None


def window_specs(sql: str, tokens: Sequence[Token], calls: Sequence[WindowCall]) -> tuple[WindowSpec, ...]:
    """The windows of the calls. Those of a query are the same; its plan tells what to say when they are not.

    :raises SqlError: BAD_WINDOW for durations that Spark refuses.
    """
    return tuple(_spec(sql, tokens, call) for call in calls)


def _spec(sql: str, tokens: Sequence[Token], call: WindowCall) -> WindowSpec:
    durations = [_duration(sql, tokens, argument) for argument in call.arguments[1:]]
    size, slide = durations[0], durations[min(1, len(durations) - 1)]
    offset = durations[2] if len(durations) > 2 else 0
    places = [*call.arguments[1:], *[call.arguments[-1]] * 2]
    if size <= 0:
        raise _bad(sql, places[0], f"the window's size is {_text(sql, places[0])}, not more than zero")
    if slide <= 0:
        raise _bad(sql, places[1], f"the window's slide is {_text(sql, places[1])}, not more than zero")
    if slide > size:
        message = f"the window's slide {_text(sql, places[1])} is larger than its size {_text(sql, places[0])}"
        raise _bad(sql, places[1], message, "the slide is at most the size, so that no row falls between two windows")
    if abs(offset) >= slide:
        raise _bad(sql, places[2], f"the window's start offset {_text(sql, places[2])} is not smaller than its slide")
    return WindowSpec(size, slide, offset % slide)


def _duration(sql: str, tokens: Sequence[Token], argument: Argument) -> int:
    parts = tokens[argument.first : argument.last]
    if all(token.kind == STRING for token in parts):
        # Spark joins neighbouring string literals.
        values = [string_value(token) for token in parts]
        try:
            return parse_duration("".join(value if value is not None else "?" for value in values))
        except DurationError as error:
            raise _bad(sql, argument, f"the window duration {error}") from None
    digits = parts[-1].text.rstrip("lL")
    if parts[-1].kind == NUMBER and digits.isdigit() and [token.text for token in parts[:-1]] in ([], ["-"]):
        micros = int(digits)
        if micros > LARGEST:
            raise _bad(sql, argument, f"the window duration {digits} is too long")
        return micros if len(parts) == 1 else -micros
    raise _bad(sql, argument, f"the window duration {_text(sql, argument)} is not a literal")


def _text(sql: str, argument: Argument) -> str:
    return sql[argument.start : argument.stop]


def _bad(sql: str, argument: Argument, message: str, hint: str = _FORM) -> SqlError:
    position = Position.of(sql, argument.start, argument.stop)
    return SqlError("BAD_WINDOW", message, hint=hint, position=position, text=sql)


def neutral(sql: str, calls: Sequence[WindowCall]) -> str:
    """The text to show Spark: every window a tumbling one of a microsecond, each character in its old place.

    >>> from millstream.sql.tokens import tokenize
    >>> text = "GROUP BY window(time, '8 seconds', '4 seconds'), a"
    >>> neutral(text, window_calls(tokenize(text)))
    'GROUP BY window(time, 1                         ), a'
    """
    for call in calls:
        start, stop = call.arguments[1].start, call.arguments[-1].stop
        blanks = re.sub(r"[^\n]", " ", sql[start + 1 : stop])
        sql = f"{sql[:start]}1{blanks}{sql[stop:]}"
    return sql
