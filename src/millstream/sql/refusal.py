"""Spark's refusals in our words: its error conditions mapped to codes, with the place, the nearest names and a hint."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence

from millstream.errors import Position, SqlError
from millstream.model.stream import Stream
from millstream.sql.constructs import join_form
from millstream.sql.functions import supported
from millstream.sql.tokens import QUOTED, WORD, Token, locate
from millstream.sql.windows import WindowCall

AGGREGATE_NAMES = ("count", "sum", "min", "max", "avg", "mean", "count_if", "bool_and", "bool_or")
NEAREST = 3  # names shown as "did you mean"; more than three is a list, not a suggestion
SIMILAR = 0.5  # difflib's ratio from which names look like a slip of the pen

_SHORT_FIRST_LINES = {
    "MISSING_GROUP_BY": "columns beside an aggregate need GROUP BY",
    "NESTED_AGGREGATE_FUNCTION": "an aggregate stands inside another aggregate",
    "PARSE_EMPTY_STATEMENT": "the text is empty",
    "UNBOUND_SQL_PARAMETER": "parameters have no values here",
}


class Refusal(Exception):
    """Spark's parser or analyzer refuses a text; ``start`` and ``stop`` are a half-open range of its characters."""

    def __init__(
        self,
        condition: str,
        message: str,
        parameters: Mapping[str, str] | None = None,
        start: int | None = None,
        stop: int | None = None,
    ) -> None:
        super().__init__(message)
        self.condition = condition
        self.message = message
        self.parameters = dict(parameters or {})
        self.start = start
        self.stop = stop


def too_deep(sql: str) -> SqlError:
    """For texts whose expressions exhaust the stack of a parser."""
    hint = "write lists as IN (…) and long sums in parts"
    return SqlError("UNSUPPORTED", "the expressions are nested too deeply", hint=hint, text=sql)


_CLAUSES = frozenset(["SELECT", "FROM", "WHERE", "ON", "JOIN", "GROUP", "HAVING", "QUALIFY"])


def _unresolved(refusal: Refusal) -> bool:
    """What Spark says of a text of which it could not resolve a join: whatever stands above that."""
    stands_above = "'Join" in refusal.message or "usage of '*'" in refusal.message
    return stands_above or refusal.condition.startswith("UNRESOLVED_COLUMN")


class Verdict:
    """Puts a refusal of one text into our words."""

    def __init__(
        self, sql: str, tokens: Sequence[Token], calls: Sequence[WindowCall], streams: Mapping[str, Stream]
    ) -> None:
        self._sql = sql
        self._tokens = tokens
        self._calls = calls
        self._streams = streams

    def error(self, refusal: Refusal) -> SqlError:
        condition = refusal.condition
        place = self._window_in_on() if _unresolved(refusal) else None
        if place is not None:
            message = "window(…) cannot stand in the condition of a join"
            return self._error("NO_COMMON_WINDOW", message, self._join_hint(), place)
        if condition.startswith("UNRESOLVED_COLUMN") or condition == "FIELD_NOT_FOUND":
            return self._column(refusal)
        if condition == "TABLE_OR_VIEW_NOT_FOUND" or condition.startswith("REQUIRES_SINGLE_PART_NAMESPACE"):
            return self._stream(refusal)
        if condition == "UNRESOLVED_ROUTINE":
            return self._function(refusal)
        if condition.startswith("DATATYPE_MISMATCH"):
            return self._type(refusal)
        if condition.startswith(("PARSE_", "INVALID_NUMERIC_LITERAL", "INVALID_ESC")):
            return self._parse(refusal)
        if condition == "MISSING_AGGREGATION":
            return self._missing(refusal)
        if condition == "MISSING_GROUP_BY" and (qualify := locate(self._tokens, "QUALIFY")):
            return self._aggregate_in_qualify(qualify)
        if condition == "AMBIGUOUS_REFERENCE":
            return self._ambiguous(refusal)
        if condition == "_LEGACY_ERROR_TEMP_1039":
            return self._several_windows()
        if condition == "FAILED_TO_PARSE_TOO_COMPLEX" or "StackOverflowError" in refusal.message:
            return too_deep(self._sql)
        return self._error("SQL_ANALYSIS", _first_line(refusal), None, self._place(refusal))

    def _aggregate_in_qualify(self, place: tuple[int, int]) -> SqlError:
        message = "an aggregate inside QUALIFY is not Spark SQL"
        hint = "name it in SELECT: SELECT count(*) AS n … QUALIFY rank() OVER (PARTITION BY window ORDER BY n) = 1"
        return self._error("SQL_ANALYSIS", message, hint, place)

    def _window_in_on(self) -> tuple[int, int] | None:
        """A window call in the condition of a join: walking back from it, the first clause is ON."""
        for call in reversed(self._calls):
            depth = 0
            for token in reversed([token for token in self._tokens if token.stop <= call.start]):
                depth += (token.text == ")") - (token.text == "(")
                if depth <= 0 and token.word in _CLAUSES:
                    if token.word == "ON":
                        return call.start, call.stop
                    break
        return None

    def _column(self, refusal: Refusal) -> SqlError:
        name = _plain(refusal.parameters.get("objectName") or refusal.parameters.get("fieldName", "?"))
        place = self._place(refusal) or self._word(name.split(".")[-1])
        known = self._columns()
        qualify = locate(self._tokens, "QUALIFY")
        if qualify and name.split(".")[-1] in known and place is not None and place[0] < qualify[0]:
            # Spark blames the grouping for the columns of an aggregate that it does not expect there.
            return self._aggregate_in_qualify(qualify)
        if name.split(".")[0].lower() == "window" and refusal.condition != "FIELD_NOT_FOUND":
            return self._window_column(place)
        if refusal.condition == "FIELD_NOT_FOUND":
            known = [_plain(part) for part in refusal.parameters.get("fields", "").split(",")]
        near = _near(name.split(".")[-1], known)
        hint = f"did you mean {near}? " if near else ""
        return self._error("UNKNOWN_COLUMN", f"unknown column {name}", f"{hint}columns: {', '.join(known)}", place)

    def _window_column(self, place: tuple[int, int] | None) -> SqlError:
        """``window`` is unknown where no window call gives it: none is there, Spark refuses it, or it comes later."""
        times = {stream.time.lower() for stream in self._streams.values()}
        for call in self._calls:
            first = call.arguments[0]
            if self._tokens[first.last - 1].name.lower() not in times:
                written = self._sql[first.start : first.stop]
                return self._bad_window(f"the window is over {written}, which is not an event-time column")
        example = min((stream.time for stream in self._streams.values()), default="time")
        hint = f"window comes from GROUP BY window({example}, '10 seconds') and is known in SELECT and HAVING"
        return self._error("UNKNOWN_COLUMN", "unknown column window", hint, place)

    def _bad_window(self, message: str) -> SqlError:
        times = ", ".join(f"{stream.name}: {stream.time}" for stream in self._streams.values())
        first = self._calls[0].arguments[0] if self._calls else None
        place = (first.start, first.stop) if first else self._word("window")
        return self._error("BAD_WINDOW", message, f"event-time columns are {times}", place)

    def _stream(self, refusal: Refusal) -> SqlError:
        name = _plain(refusal.parameters.get("relationName") or refusal.parameters.get("identifier", "?"))
        known = sorted(stream.name for stream in self._streams.values())
        near = _near(name, known)
        hint = f"did you mean {near}? " if near else ""
        listed = f"streams: {', '.join(known)}" if known else "there are no streams yet"
        place = self._place(refusal) or self._word(name.split(".")[0])
        return self._error("UNKNOWN_STREAM", f"unknown stream {name}", f"{hint}{listed}", place)

    def _function(self, refusal: Refusal) -> SqlError:
        name = _plain(refusal.parameters.get("routineName", "?"))
        near = _near(name, [*AGGREGATE_NAMES, *(row[0] for row in supported() if row[0].isidentifier())])
        hint = f"did you mean {near}?" if near else "the SQL reference lists the functions"
        return self._error("UNKNOWN_FUNCTION", f"unknown function {name}", hint, self._name_only(refusal, name))

    def _type(self, refusal: Refusal) -> SqlError:
        expression = refusal.parameters.get("sqlExpr", "").strip('"')
        if expression.startswith("window("):
            return self._bad_window(
                f"the window is over {_first_argument(expression)}, which is not an event-time column"
            )
        if refusal.condition.endswith("FILTER_NOT_BOOLEAN"):
            kind = refusal.parameters.get("type", "?").strip('"').lower()
            place = self._word(expression) or locate(self._tokens, "WHERE", "HAVING")
            return self._error("SQL_TYPE", f"the condition {expression} is of type {kind}, not boolean", None, place)
        message = _first_line(refusal)
        reason = message.partition("due to data type mismatch:")[2].strip() or message
        reason = reason.replace('"', "").rstrip(". ")
        hint = "cast one side, so that both have the same type" if "DIFF_TYPES" in refusal.condition else None
        return self._error("SQL_TYPE", f"{expression}: {_lower(reason)}", hint, self._place(refusal))

    def _parse(self, refusal: Refusal) -> SqlError:
        if refusal.condition != "PARSE_SYNTAX_ERROR":
            return self._error("SQL_PARSE", _first_line(refusal), None, self._place(refusal))
        near = refusal.parameters.get("error", "").strip()
        place = self._place(refusal)
        if near == "end of input":
            return self._error("SQL_PARSE", "the text ends too early", _unbalanced(self._tokens), place)
        extra = refusal.parameters.get("hint", "").lstrip(": ")
        return self._error("SQL_PARSE", f"syntax error at {near}", _unbalanced(self._tokens) or extra or None, place)

    def _missing(self, refusal: Refusal) -> SqlError:
        name = refusal.parameters.get("expression", "?").strip('"')
        message = f"{name} is neither in GROUP BY nor inside an aggregate"
        return self._error("SQL_ANALYSIS", message, f"add {name} to GROUP BY, or write max({name})", self._word(name))

    def _ambiguous(self, refusal: Refusal) -> SqlError:
        name = _plain(refusal.parameters.get("name", "?"))
        choices = [_plain(choice) for choice in refusal.parameters.get("referenceNames", "").strip("[]").split(", ")]
        message = f"the column {name} is ambiguous: several sources have it"
        hint = f"write {' or '.join(choices)}" if any(choices) else "write the source before it"
        return self._error("SQL_ANALYSIS", message, hint, self._place(refusal) or self._word(name.split(".")[-1]))

    def _several_windows(self) -> SqlError:
        if len(self._named_streams()) > 1 or "JOIN" in (token.word for token in self._tokens):
            message = "the windows of a join are columns of its sources"
            return self._error("NO_COMMON_WINDOW", message, self._join_hint(), self._call_place())
        message = "a query has one window, and this one has several"
        hint = "write the same window everywhere, or create one query for each window"
        return self._error("UNSUPPORTED", message, hint, self._call_place())

    def _join_hint(self) -> str:
        named = [(stream.name, stream) for stream in self._named_streams()]
        if len(named) == 1:
            [(_, stream)] = named
            named = [("a", stream), ("b", stream)]
        return f"equate a window of each source: {join_form(named[:2])}"

    # Places and names.

    def _error(self, code: str, message: str, hint: str | None, place: tuple[int, int] | None) -> SqlError:
        position = Position.of(self._sql, *place) if place else None
        return SqlError(code, message, hint=hint, position=position, text=self._sql)

    def _place(self, refusal: Refusal) -> tuple[int, int] | None:
        if refusal.start is None:
            return None
        stop = refusal.stop if refusal.stop is not None else self._token_end(refusal.start)
        return min(refusal.start, len(self._sql)), min(stop, len(self._sql))

    def _token_end(self, start: int) -> int:
        return next((token.stop for token in self._tokens if token.start <= start < token.stop), start + 1)

    def _name_only(self, refusal: Refusal, name: str) -> tuple[int, int] | None:
        """Spark points at the whole call; the mistake is in its name."""
        place = self._place(refusal)
        if place and self._sql[place[0] :].lower().startswith(name.lower()):
            return place[0], place[0] + len(name)
        return place

    def _word(self, name: str) -> tuple[int, int] | None:
        named = [token for token in self._tokens if token.kind in (WORD, QUOTED) and token.name.lower() == name.lower()]
        return (named[0].start, named[0].stop) if named else None

    def _call_place(self) -> tuple[int, int] | None:
        return (self._calls[-1].start, self._calls[-1].stop) if self._calls else None

    def _columns(self) -> list[str]:
        """The columns of the streams that the text names, or of all streams when it names none."""
        streams = self._named_streams() or list(self._streams.values())
        return list(dict.fromkeys(field.name for stream in streams for field in stream.fields))

    def _named_streams(self) -> list[Stream]:
        """The streams that the text names, in that order."""
        words = [token.name.lower() for token in self._tokens if token.kind in (WORD, QUOTED)]
        named = [stream for stream in self._streams.values() if stream.name.lower() in words]
        return sorted(named, key=lambda stream: words.index(stream.name.lower()))


def _near(name: str, known: Iterable[str]) -> str:
    by_lower = {other.lower(): other for other in known}
    found = difflib.get_close_matches(name.lower(), list(by_lower), n=NEAREST, cutoff=SIMILAR)
    return " or ".join(by_lower[other] for other in found)


def _plain(name: str) -> str:
    """Spark's quoted name without backquotes."""
    return ".".join(part.strip().strip("`") for part in name.split("`.`"))


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def _first_argument(call: str) -> str:
    return call.partition("(")[2].partition(",")[0]


def _first_line(refusal: Refusal) -> str:
    """Spark's message without condition, SQLSTATE, plan and full stop."""
    if refusal.condition in _SHORT_FIRST_LINES:
        return _SHORT_FIRST_LINES[refusal.condition]
    lines = [line for line in refusal.message.strip().split("\n") if line.strip()] or ["the query is refused"]
    line = re.sub(r"^\[[\w.]+\]\s*", "", lines[0])
    line = re.sub(r"\s*SQLSTATE:.*$", "", line)
    return _lower(line.strip().rstrip("."))


def _unbalanced(tokens: Sequence[Token]) -> str | None:
    depth = sum((token.text == "(") - (token.text == ")") for token in tokens)
    if depth == 0:
        return None
    return f"there are {abs(depth)} more opening than closing parentheses" if depth > 0 else "a ) has no ( before it"
