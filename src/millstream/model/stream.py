"""A stream: a named, typed, shared input with an event-time column and an allowed lateness."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.model.types import DataType


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: DataType


@dataclass(frozen=True, slots=True)
class Stream:
    """``source`` is the source's own description, as JSON-like pairs, so that a restart can build it again."""

    name: str
    fields: tuple[Field, ...]
    time: str
    lateness: int
    source: tuple[tuple[str, str], ...] = ()
    # Rows further ahead of the plan's clock than this go to the dead letters; None turns the check off.
    max_skew: int | None = None
    # After so long without rows the watermark follows that of other streams; None: never.
    idle_timeout: int | None = None

    def __post_init__(self) -> None:
        names = [field.name for field in self.fields]
        if self.time not in names:
            raise ValueError(
                f"the event-time column {self.time!r} is not a column; existing columns: {', '.join(names)}"
            )
        if self.field(self.time).type.kind not in ("timestamp", "timestamp_ntz"):
            raise ValueError(
                f"the event-time column {self.time!r} is of type {self.field(self.time).type}, not a timestamp"
            )
        if self.lateness < 0:
            raise ValueError("the allowed lateness is at least 0")
        if self.idle_timeout is not None and self.idle_timeout <= 0:
            raise ValueError("the idle timeout is longer than 0")

    def field(self, name: str) -> Field:
        return next(field for field in self.fields if field.name == name)
