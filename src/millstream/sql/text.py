"""A user's text while its plan is read: what errors say about it, and where they point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millstream.errors import Position, SqlError
from millstream.model.stream import Stream
from millstream.sql.constructs import Construct, join_form, unsupported
from millstream.sql.tokens import Token, locate
from millstream.sql.windows import WindowCall

_WHOLE_QUERY = ("GROUP BY", "count (", "sum (", "avg (", "min (", "max (", "HAVING", "SELECT")


@dataclass(frozen=True, slots=True)
class Text:
    """``streams`` are all streams by name."""

    sql: str
    tokens: Sequence[Token]
    calls: Sequence[WindowCall]
    streams: Mapping[str, Stream]

    def error(self, code: str, message: str, hint: str, *phrases: str) -> SqlError:
        """An error that points at the first of the phrases found in the text."""
        found = locate(self.tokens, *phrases)
        position = Position.of(self.sql, *found) if found else None
        return SqlError(code, message, hint=hint, position=position, text=self.sql)

    def unsupported(self, message: str, hint: str, *phrases: str) -> SqlError:
        return unsupported(self.sql, self.tokens, message, hint, *phrases)

    def refusal(self, construct: Construct) -> SqlError:
        return construct.refusal(self.sql, self.tokens)

    def positioned(self, error: SqlError) -> SqlError:
        """Errors about functions come from their table, which knows no text: point at the first call of that name."""
        if error.position is not None or error.text is not None:
            return error
        words = error.message.replace("(", " ").split()
        name = words[2] if words[:2] == ["the", "function"] else words[0]
        found = locate(self.tokens, f"{name} (", name)
        position = Position.of(self.sql, *found) if found else None
        return SqlError(
            error.code, error.message, hint=error.hint, detail=error.detail, position=position, text=self.sql
        )

    def no_stream(self) -> SqlError:
        names = ", ".join(sorted(stream.name for stream in self.streams.values())) or "none yet"
        message = "the query does not read a stream"
        return self.error("UNKNOWN_STREAM", message, f"streams: {names}", "FROM", "VALUES", "SELECT")

    def no_window(self, form: str) -> SqlError:
        """``form`` is the GROUP BY that would do."""
        message = "an aggregation over a stream needs a window"
        return self.error("NO_WINDOW", message, f"write GROUP BY {form}", *_WHOLE_QUERY)

    def bad_window(self, stream: Stream, column: str | None) -> SqlError:
        """A window over ``column``, which is not the stream's event time; None for an expression."""
        call = self._call_over(column)
        place = call.arguments[0] if call else None
        written = self.sql[place.start : place.stop] if place else "the column"
        message = f"the window is over {written}, not over the event time of {stream.name}"
        hint = f"the event-time column of {stream.name} is {stream.time}: write window({stream.time}, …)"
        position = Position.of(self.sql, place.start, place.stop) if place else None
        return SqlError("BAD_WINDOW", message, hint=hint, position=position, text=self.sql)

    def _call_over(self, column: str | None) -> WindowCall | None:
        """The window call over a column; for an expression the first one that is over no event time."""
        times = [stream.time.lower() for stream in self.streams.values()]
        for call in self.calls:
            argument = call.arguments[0]
            name = self.tokens[argument.last - 1].name.lower()
            plain = argument.last - argument.first == 1 or self.tokens[argument.last - 2].text == "."
            if name == column.lower() if column is not None else not (plain and name in times):
                return call
        return next(iter(self.calls), None)

    def several_windows(self, first: WindowCall, other: WindowCall, joined: bool) -> SqlError:
        """Two windows that differ, in a query over one stream or in a join."""
        position = Position.of(self.sql, other.start, other.stop)
        one, two = self.sql[first.start : first.stop], self.sql[other.start : other.stop]
        if joined:
            message = f"the windows of a join are the same, and {one} differs from {two}"
            hint = "give every source a window of the same size, slide and offset"
            return SqlError("BAD_WINDOW", message, hint=hint, position=position, text=self.sql)
        message = "a query has one window, and this one differs from the first"
        hint = "write the same window everywhere, or create one query for each window"
        return SqlError("UNSUPPORTED", message, hint=hint, position=position, text=self.sql)

    def no_common_window(self, message: str, sources: Sequence[tuple[str, Stream]], wrong: int) -> SqlError:
        """Two sources, each an alias and its stream, that are joined without a window in common: the place is that of
        source ``wrong``, and the hint shows how."""
        hint = f"equate a window of each source: {join_form(sources)}"
        alias, stream = sources[wrong]
        named = [f"{word} {name}" for name in (alias, stream.name) for word in ("JOIN", ",", "FROM")]
        return self.error("NO_COMMON_WINDOW", message, hint, *named, "JOIN", "FROM")
