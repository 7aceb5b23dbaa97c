"""A query as the engine runs it: one user's SQL taken apart into selection, keys, aggregates and rest."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.model.expression import Expression
from millstream.model.types import DataType

# Names under which ``having`` and ``outputs`` of a windowed query see the shared part's results.
WINDOW_START = "#start"
WINDOW_END = "#end"

# The name under which outputs see the rank that a ranking gives a row.
RANK = "#rank"

RANKINGS = ("row_number", "rank", "dense_rank")

AGGREGATE_FUNCTIONS = ("count", "sum", "min", "max", "avg")


def key_column(index: int) -> str:
    return f"#k{index}"


def aggregate_column(index: int) -> str:
    return f"#a{index}"


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """A tumbling or sliding window, closed-open, in microseconds; windows start at ``offset + k * slide``."""

    size: int
    slide: int
    offset: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.slide <= self.size:
            raise ValueError(f"a window slides by more than 0 and at most its size, not {self.slide} of {self.size}")
        if not 0 <= self.offset < self.slide:
            raise ValueError(f"a window's offset lies in [0, slide), not {self.offset}")

    def end_after(self, time: int) -> int:
        """The smallest window end that is greater than ``time``: the first window containing ``time`` to close.

        >>> WindowSpec(8, 4).end_after(3), WindowSpec(8, 4).end_after(4), WindowSpec(5, 3).end_after(2)
        (4, 8, 5)
        """
        return time + self.slide - (time - self.offset - self.size) % self.slide


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate call; ``argument`` is None for COUNT(*), and over columns of the stream otherwise."""

    function: str
    argument: Expression | None
    type: DataType

    def __post_init__(self) -> None:
        if self.function not in AGGREGATE_FUNCTIONS:
            raise ValueError(f"unknown aggregate {self.function!r}; known: {', '.join(AGGREGATE_FUNCTIONS)}")


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the answer. In a windowed query the expression is over ``#k…``, ``#a…``, ``#start`` and ``#end``;
    the whole ``window`` struct is ``Call("Window", (Column(#start), Column(#end)), window)``."""

    name: str
    expression: Expression

    @property
    def type(self) -> DataType:
        return self.expression.type


@dataclass(frozen=True, slots=True)
class Order:
    expression: Expression
    ascending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Ranking:
    """Keeps the rows of an answer whose rank inside their window (and ``partition``) is at most ``limit``. The
    expressions see what the outputs see; the outputs also see the rank itself, as ``#rank``."""

    function: str
    partition: tuple[Expression, ...]
    order: tuple[Order, ...]
    limit: int

    def __post_init__(self) -> None:
        if self.function not in RANKINGS:
            raise ValueError(f"unknown ranking {self.function!r}; known: {', '.join(RANKINGS)}")


@dataclass(frozen=True, slots=True)
class LogicalQuery:
    """``SELECT outputs FROM stream WHERE where GROUP BY keys, window HAVING having [QUALIFY ranking]``.

    Without a window there are no keys and no aggregates, and the outputs are over columns of the stream.
    """

    sql: str
    stream: str
    where: Expression | None
    window: WindowSpec | None
    keys: tuple[Expression, ...]
    aggregates: tuple[Aggregate, ...]
    having: Expression | None
    outputs: tuple[Output, ...]
    ranking: Ranking | None = None

    def __post_init__(self) -> None:
        if self.window is None and (self.keys or self.aggregates or self.having or self.ranking):
            raise ValueError("a query without a window has neither keys nor aggregates")
