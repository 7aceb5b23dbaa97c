"""Groups: queries evaluated together, and the immutable versions that workers read."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.model.expression import Expression
from millstream.model.query import Aggregate, Output, Ranking, WindowSpec
from millstream.model.selection import Attribute, Selection

# count: rows whose argument is not NULL. sum: exact for integers and decimals. fsum: the argument as double (AVG of
# BIGINT, as Spark adds it). min, max: of any ordered type.
MEASURES = ("count", "sum", "fsum", "min", "max")


@dataclass(frozen=True, slots=True)
class Measure:
    """A partial aggregate that buckets hold for every cell, shared by all queries of the group that need it."""

    kind: str
    argument: Expression

    def __post_init__(self) -> None:
        if self.kind not in MEASURES:
            raise ValueError(f"unknown measure {self.kind!r}; known: {', '.join(MEASURES)}")


def measures_of(aggregate: Aggregate) -> tuple[Measure, ...]:
    """What has to be accumulated for an aggregate besides the number of rows.

    SUM, AVG, MIN and MAX are NULL when no argument was, hence the count. AVG of 64-bit integers is a sum of doubles in
    Spark; of narrower ones the exact sum gives the same double.
    """
    argument = aggregate.argument
    if argument is None:
        return ()
    count = Measure("count", argument)
    if aggregate.function == "count":
        return (count,)
    if aggregate.function == "avg":
        return (Measure("fsum" if argument.type.kind == "long" else "sum", argument), count)
    return (Measure(aggregate.function, argument), count)


@dataclass(frozen=True, slots=True)
class Member:
    """A query in a group. ``slot`` is its column in the class table; slots of deleted queries are used again.
    ``columns`` are those of the stream that the rows it selects must keep, because its answer consists of rows."""

    query: str
    slot: int
    selection: Selection
    window: WindowSpec | None
    aggregates: tuple[Aggregate, ...]
    having: Expression | None
    outputs: tuple[Output, ...]
    columns: tuple[str, ...] = ()
    ranking: Ranking | None = None


@dataclass(frozen=True, slots=True)
class GroupVersion:
    """All a worker needs to evaluate a group. Windowed groups share ``keys``; a group without window has ``keys``
    None."""

    group: str
    version: int
    stream: str
    keys: tuple[Expression, ...] | None
    attributes: tuple[Attribute, ...]
    measures: tuple[Measure, ...]
    members: tuple[Member, ...]

    @property
    def windowed(self) -> bool:
        return self.keys is not None
