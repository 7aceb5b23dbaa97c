"""The exception tree. One base class, one subclass for each phase, one stable code for each kind of mistake.

A message has three parts, as in PostgreSQL and Materialize: a primary line (lower case, no full stop, names the
bad value), an optional detail, and a hint that says what to do. SQL errors also carry the place in the text.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

CODES: dict[str, str] = {
    "SQL_PARSE": "the text is not Spark SQL",
    "SQL_TYPE": "an operator or function is applied to types it does not take",
    "SQL_ANALYSIS": "Spark's analyzer refuses the query for another reason",
    "UNKNOWN_STREAM": "no stream of that name",
    "UNKNOWN_COLUMN": "no column of that name",
    "UNKNOWN_FUNCTION": "no function of that name in Spark",
    "UNSUPPORTED": "valid Spark SQL that Millstream does not run; the hint names what to use instead",
    "NO_WINDOW": "an aggregation without a window",
    "NO_COMMON_WINDOW": "a join that does not equate the windows of its sources",
    "BAD_WINDOW": "a window on another column than the stream's event time, or with sizes Spark refuses",
    "BAD_SPEC": "a replay spec or stream file has unknown keys, missing keys or values of the wrong type",
    "BAD_STREAM": "a stream definition that cannot work",
    "DUPLICATE_STREAM": "a stream of that name exists already",
    "DUPLICATE_QUERY": "a query of that id exists already",
    "UNKNOWN_QUERY": "no query of that id",
    "QUERY_DELETED": "the query was deleted before",
    "LIMIT_EXCEEDED": "a query, or all queries of an owner, would take more than a limit allows",
    "QUARANTINED": "a micro-batch or a fire that fails passed without this query, which was stopped",
    "BAD_REQUEST": "a request whose body or parameters are wrong",
    "BAD_CURSOR": "a cursor that no answer of this query has given out",
    "BAD_FILE": "a file that is unreadable, truncated or of another schema",
    "DAMAGED_FILE": "a file of the home directory is missing, cut short or altered",
    "BAD_HOME": "a home directory that cannot be used",
    "NO_SPACE": "no space left on the disk",
    "DISK_ERROR": "the disk cannot be written",
    "BAD_SESSION": "a Spark session with settings the engine cannot work with",
    "HOME_IN_USE": "another engine runs on this home directory",
    "FENCED": "another engine has taken over this home directory",
    "METASTORE_AWAY": "the database of the metastore does not answer",
    "METASTORE_STALE": "the database of the metastore has lost committed transactions",
    "REPLAY_MISMATCH": "Spark planned a batch again with other offsets than the first time",
    "SPARK_LOST": "Spark has died under the engine",
    "NOT_RUNNING": "no engine answers at this address",
    "STREAM_STOPPED": "the stream's pipeline has stopped with an error",
    "FLINK_MISSING": "the benchmark's environment with Flink is not there",
    "FLINK_FAILED": "Flink refuses what the benchmark asks, has ended or does not answer",
    "INTERNAL": "a mistake in Millstream itself",
}


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a text: 1-based line and column, and the half-open range of characters meant."""

    line: int
    column: int
    start: int
    stop: int

    @classmethod
    def of(cls, text: str, start: int, stop: int) -> Position:
        """The position of ``text[start:stop]``.

        >>> Position.of("SELECT\\n  x", 9, 10)
        Position(line=2, column=3, start=9, stop=10)
        """
        line = text.count("\n", 0, start) + 1
        return cls(line, start - (text.rfind("\n", 0, start) + 1) + 1, start, stop)


class MillstreamError(Exception):
    """Base of every error that Millstream raises on purpose. Pickles, so workers can raise it too."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        detail: str | None = None,
        position: Position | None = None,
        text: str | None = None,
    ) -> None:
        assert code in CODES, code
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.detail = detail
        self.position = position
        self.text = text

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {"hint": self.hint, "detail": self.detail, "position": self.position, "text": self.text}
        return _rebuild, (type(self), self.code, self.message, fields)

    def as_dict(self) -> dict[str, Any]:
        """The one error shape of JSON output and HTTP."""
        body: dict[str, Any] = {"code": self.code, "message": self.message}
        for name in ("detail", "hint"):
            if getattr(self, name):
                body[name] = getattr(self, name)
        if self.position:
            body["position"] = asdict(self.position)
        return body

    def render(self) -> str:
        """The error for people: primary line, the underlined text, detail, hint."""
        lines = [f"{self.code}: {self.message}"]
        if self.position and self.text is not None:
            source = self.text.split("\n")[self.position.line - 1]
            width = max(1, min(self.position.stop - self.position.start, len(source) - self.position.column + 1))
            lines += [f"  line {self.position.line}, column {self.position.column}", f"    {source}"]
            lines += ["    " + " " * (self.position.column - 1) + "^" * width]
        if self.detail:
            lines.append(f"detail: {self.detail}")
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


def reason_for(error: BaseException) -> str:
    """An error in one line, as a query that is stopped for it keeps it."""
    code = getattr(error, "code", None)
    return f"{code if isinstance(code, str) else type(error).__name__}: {error}"


def _rebuild(cls: type[MillstreamError], code: str, message: str, fields: dict[str, Any]) -> MillstreamError:
    return cls(code, message, **fields)


class SqlError(MillstreamError):
    """A query's text is refused at submit time."""


class SpecError(MillstreamError):
    """A configuration file, replay spec or request is refused."""


class CatalogError(MillstreamError):
    """A stream or query that is not there, or is there already."""


class SourceError(MillstreamError):
    """Input that cannot be read as the stream's definition says."""


class EvaluationError(MillstreamError):
    """Expressions of a query that take more than they may."""


class EngineError(MillstreamError):
    """The engine, its session or its stores are not in a state to do what was asked."""


class BenchError(MillstreamError):
    """A system under test cannot do what the benchmark asks."""


class DamagedFile(EngineError):
    """A file of the home that is missing, cut short or altered; ``path`` is relative to the home. ``cursor`` is the
    place behind an answer that cannot be read because of it, from where a reader can go on."""

    def __init__(
        self,
        path: str,
        reason: str,
        *,
        hint: str | None = None,
        detail: str | None = None,
        cursor: str | None = None,
    ) -> None:
        super().__init__("DAMAGED_FILE", f"{path} {reason}", hint=hint, detail=detail)
        self.path = path
        self.reason = reason
        self.cursor = cursor

    def __reduce__(self) -> tuple[Any, ...]:
        return _damaged, (self.path, self.reason, {"hint": self.hint, "detail": self.detail, "cursor": self.cursor})

    def as_dict(self) -> dict[str, Any]:
        return super().as_dict() | ({} if self.cursor is None else {"cursor": self.cursor})


def _damaged(path: str, reason: str, fields: dict[str, Any]) -> DamagedFile:
    return DamagedFile(path, reason, **fields)
