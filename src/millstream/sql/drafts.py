"""The sources of a query as its text joins them, before conditions are moved to where they belong.

Conditions read columns named by leg. Above an outer join some sources may be missing from a row, with NULL in all of
their columns; *patterns* are the sets of sources that a row can have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce

from millstream.model.expression import Call, Column, Expression, Literal
from millstream.model.join import leg_of
from millstream.model.types import BOOLEAN
from millstream.sql.leg_windows import of_window


@dataclass(slots=True)
class Source:
    """A leg, and the conditions (``above``) that WHERE puts on it."""

    leg: int
    above: list[Expression] = field(default_factory=list)


@dataclass(slots=True)
class Joined:
    """A join with the conjuncts of its ON, and the conditions that WHERE puts on its rows."""

    kind: str
    left: Draft
    right: Draft
    on: list[Expression] = field(default_factory=list)
    above: list[Expression] = field(default_factory=list)


Draft = Source | Joined
Patterns = frozenset[frozenset[int]]

# On which sides of a join of this kind a row may be missing.
UNMATCHED = {"inner": "", "left": "right", "right": "left", "full": "left right", "semi": "", "anti": ""}


def patterns(draft: Draft) -> Patterns:
    """The sets of visible sources that a row of the draft can have.

    >>> sorted(map(sorted, patterns(Joined("left", Source(0), Source(1)))))
    [[0], [0, 1]]
    """
    if isinstance(draft, Source):
        return frozenset([frozenset([draft.leg])])
    left, right = patterns(draft.left), patterns(draft.right)
    if draft.kind in ("semi", "anti"):
        return left
    found = {one | two for one in left for two in right}
    if "right" in UNMATCHED[draft.kind]:
        found |= left
    if "left" in UNMATCHED[draft.kind]:
        found |= right
    return frozenset(found)


def visible(draft: Draft) -> frozenset[int]:
    """The sources whose columns can be read above the draft."""
    return frozenset().union(*patterns(draft))


def always(draft: Draft, legs: tuple[int, ...]) -> bool:
    """Whether every row has at least one of the sources."""
    return all(not pattern.isdisjoint(legs) for pattern in patterns(draft))


def all_of(conditions: list[Expression]) -> Expression | None:
    if not conditions:
        return None
    return reduce(lambda one, two: Call("And", (one, two), BOOLEAN), conditions)


def any_present(draft: Draft, legs: tuple[int, ...], times: Mapping[int, Column]) -> Expression:
    """A condition over rows of the draft: one of the sources is there. ``times`` are the event times of all legs."""
    tests: list[Expression] = [Call("IsNotNull", (_witness(draft, leg, times),), BOOLEAN) for leg in legs]
    return reduce(lambda one, two: Call("Or", (one, two), BOOLEAN), tests)


def none_present(draft: Draft, legs: tuple[int, ...], times: Mapping[int, Column]) -> Expression:
    tests: list[Expression] = [Call("IsNull", (_witness(draft, leg, times),), BOOLEAN) for leg in legs]
    return reduce(lambda one, two: Call("And", (one, two), BOOLEAN), tests)


def _witness(draft: Draft, leg: int, times: Mapping[int, Column]) -> Column:
    """A column of the source that is NULL exactly in the rows that do not have it.

    The event time is one. Where a left join supplies the source, a column that its ON equates is a better one: rows
    that match have it, and the join reads it anyway.
    """
    if isinstance(draft, Source):
        return times[leg]
    side = draft.left if leg in visible(draft.left) else draft.right
    supplied = {"left": draft.right, "right": draft.left}.get(draft.kind)
    if side is supplied and always(side, (leg,)):
        for condition in draft.on:
            for column in condition.args if isinstance(condition, Call) and condition.op == "EqualTo" else ():
                if isinstance(column, Column) and leg_of(column.name)[0] == leg and not of_window(column):
                    return column
    return _witness(side, leg, times)


# Operators that give NULL when an argument is NULL.
_STRICT = frozenset(
    {"Cast", "TryCast", "Add", "Subtract", "Multiply", "Divide", "Remainder", "UnaryMinus", "Abs"}
    | {"Upper", "Lower", "Length", "Window"}
)


def strict(expression: Expression) -> bool:
    """Whether the expression is certainly NULL when all its columns are."""
    if isinstance(expression, Column):
        return True
    if isinstance(expression, Literal):
        return expression.value is None
    if expression.op in _STRICT:
        return any(strict(argument) for argument in expression.args)
    if expression.op == "Coalesce":
        return all(strict(argument) for argument in expression.args)
    if expression.op == "If":
        condition, _, other = expression.args
        tested = isinstance(condition, Call) and condition.op == "IsNotNull" and strict(condition.args[0])
        return tested and other == Literal(None, other.type)
    return False


def unmatched_to_null(expression: Expression, side: Draft, joined: Joined, times: Mapping[int, Column]) -> Expression:
    """What an expression over a side becomes above an outer join that may not find a row of that side: a constant,
    say, is NULL then too."""
    if strict(expression):
        return expression
    common = frozenset.intersection(*patterns(side))
    legs = (min(common),) if common else tuple(sorted(visible(side)))
    return Call("If", (any_present(joined, legs, times), expression, Literal(None, expression.type)), expression.type)
