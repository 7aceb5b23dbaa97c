"""Joins of several streams in one window, as the engine runs them.

Expressions over more than one source name their columns by leg: ``0.price`` is the column ``price`` of the first
source, ``1.#start`` the start of the window of the second. A source that an outer join leaves unmatched has NULL in
all of them, its window included.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from millstream.model.expression import Column, Expression, rewrite
from millstream.model.query import RANKINGS, Aggregate, Order, Output, Ranking, WindowSpec

__all__ = [
    "JOIN_KINDS",
    "MOST_LEGS",
    "RANKINGS",
    "JoinNode",
    "JoinQuery",
    "Leg",
    "Order",
    "Ranking",
    "Tree",
    "joins_of",
    "leaves_of",
    "leg_column",
    "leg_of",
    "legs_of",
    "of_leg",
]

JOIN_KINDS = ("inner", "left", "right", "full", "semi", "anti")
# Plans and state grow with every source.
MOST_LEGS = 5


def leg_column(leg: int, name: str) -> str:
    return f"{leg}.{name}"


def leg_of(name: str) -> tuple[int, str]:
    """The leg and the plain name of a column named by leg."""
    leg, _, plain = name.partition(".")
    return int(leg), plain


def legs_of(expression: Expression) -> frozenset[int]:
    """The legs whose columns an expression reads."""
    found: set[int] = set()

    def note(node: Expression) -> Expression | None:
        if isinstance(node, Column):
            found.add(leg_of(node.name)[0])
        return None

    rewrite(expression, note)
    return frozenset(found)


def of_leg(expression: Expression) -> Expression:
    """The same expression over the plain columns of its one leg."""
    return rewrite(
        expression, lambda node: Column(leg_of(node.name)[1], node.type) if isinstance(node, Column) else None
    )


@dataclass(frozen=True, slots=True)
class Leg:
    """A source of a join: a stream under the name the query gives it, and the conditions on its rows before they are
    joined, over the stream's own columns. ``time`` is the stream's event time, the one column that every row has."""

    stream: str
    alias: str
    where: Expression | None
    time: Column | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class JoinNode:
    """``left`` and ``right`` are legs or joins. Rows match when each pair of ``equal`` is equal (both of one type, the
    first over legs of ``left``, the second over legs of ``right``; NULL equals nothing), both lie in the same window,
    and ``residual`` is TRUE. ``semi`` and ``anti`` keep rows of the left."""

    kind: str
    left: Tree
    right: Tree
    equal: tuple[tuple[Expression, Expression], ...]
    residual: Expression | None

    def __post_init__(self) -> None:
        if self.kind not in JOIN_KINDS:
            raise ValueError(f"unknown join {self.kind!r}; known: {', '.join(JOIN_KINDS)}")


Tree = int | JoinNode


def leaves_of(tree: Tree) -> tuple[int, ...]:
    return (tree,) if isinstance(tree, int) else (*leaves_of(tree.left), *leaves_of(tree.right))


def joins_of(tree: Tree) -> Iterator[JoinNode]:
    """All joins of a tree, inner ones first."""
    if isinstance(tree, JoinNode):
        yield from joins_of(tree.left)
        yield from joins_of(tree.right)
        yield tree


@dataclass(frozen=True, slots=True)
class JoinQuery:
    """``SELECT outputs FROM tree WHERE where [GROUP BY keys, window HAVING having] [QUALIFY ranking]``.

    ``where`` is what is left of the conditions after legs and joins have taken theirs. A grouped query has its keys
    and the arguments of its aggregates over columns named by leg, and ``having``, ``outputs`` and ``ranking`` over
    ``#k…``, ``#a…``, ``#start`` and ``#end``. Without grouping the outputs are over columns named by leg.
    """

    sql: str
    legs: tuple[Leg, ...]
    tree: Tree
    where: Expression | None
    window: WindowSpec
    grouped: bool
    keys: tuple[Expression, ...]
    aggregates: tuple[Aggregate, ...]
    having: Expression | None
    outputs: tuple[Output, ...]
    ranking: Ranking | None = None

    def __post_init__(self) -> None:
        if not self.grouped and (self.keys or self.aggregates or self.having):
            raise ValueError("a join without grouping has neither keys nor aggregates")

    @property
    def streams(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(leg.stream for leg in self.legs))
