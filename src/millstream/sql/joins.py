"""The normal form of a join: every condition at the lowest place where it means the same.

Conditions on one source go to that source, equalities between the two sides of a join to its ``equal``, other
conditions over several sources to the ``residual`` of the lowest inner join that sees them. Outer joins let through
only what the tables below say. Equalities of windows tie the sources to one window and vanish.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from millstream.errors import SqlError
from millstream.model.expression import Call, Column, Expression, Literal, conjuncts
from millstream.model.join import JoinNode, Leg, Tree, legs_of, of_leg
from millstream.model.stream import Stream
from millstream.model.types import BOOLEAN
from millstream.sql.drafts import Draft, Joined, Source, all_of, always, any_present, visible
from millstream.sql.leg_windows import of_window, window_of
from millstream.sql.text import Text

_SIDES = ("left", "right")

# Into which sides of a join a condition on its rows (WHERE) can go: those whose rows the join only keeps or drops.
_WHERE_INTO = {
    "inner": ("left", "right"),
    "left": ("left",),
    "right": ("right",),
    "full": (),
    "semi": ("left",),
    "anti": ("left",),
}
# And a conjunct of ON: those of which a row that fails it could be left out before.
_ON_INTO = {
    "inner": ("left", "right"),
    "left": ("right",),
    "right": ("left",),
    "full": (),
    "semi": ("left", "right"),
    "anti": ("right",),
}


@dataclass(frozen=True, slots=True)
class Named:
    """A source by the name the query gives it."""

    alias: str
    stream: Stream
    time: Column


@dataclass(frozen=True, slots=True)
class NormalForm:
    """``where`` are the conditions that no leg and no join could take."""

    legs: tuple[Leg, ...]
    tree: Tree
    where: tuple[Expression, ...]


def normal_form(draft: Draft, named: Sequence[Named], text: Text) -> NormalForm:
    """Bring a draft of a join to its normal form.

    :raises SqlError: NO_COMMON_WINDOW when some source is not tied to the window of the others.
    """
    placing = _Placing(named, text)
    placed = placing.place(draft, [])
    placing.check_tied(placed)
    legs = tuple(
        Leg(one.stream.name, one.alias, all_of(placing.conditions.get(leg, [])), _event_time(one.stream))
        for leg, one in enumerate(named)
    )
    return NormalForm(legs, placed.tree, tuple(placed.rest))


def _event_time(stream: Stream) -> Column:
    return Column(stream.time, stream.field(stream.time).type)


@dataclass(slots=True)
class _Placed:
    """A part in normal form. ``rest`` are conditions for above it. Parts that inner joins connect are ``units``, and
    ``ties`` the pairs of units whose windows are equal."""

    tree: Tree
    rest: list[Expression]
    units: list[frozenset[int]]
    ties: list[tuple[int, int]] = field(default_factory=list)

    def unit_of(self, legs: Iterable[int]) -> int | None:
        return next((at for at, unit in enumerate(self.units) if unit.issuperset(legs)), None)


class _Placing:
    def __init__(self, named: Sequence[Named], text: Text) -> None:
        self._named = named
        self._text = text
        self._times: Mapping[int, Column] = {leg: one.time for leg, one in enumerate(named)}
        self.conditions: dict[int, list[Expression]] = {}

    def place(self, draft: Draft, where: Sequence[Expression]) -> _Placed:
        """Place the conditions inside the draft, and those that WHERE puts on it."""
        where = [*(part for condition in draft.above for part in conjuncts(condition)), *where]
        if isinstance(draft, Source):
            return self._at_leg(draft.leg, where)
        return self._at_join(draft, where)

    def _at_leg(self, leg: int, where: Sequence[Expression]) -> _Placed:
        kept = [condition for condition in where if not self._holds(condition)]
        self.conditions.setdefault(leg, []).extend(of_leg(one) for one in kept if not of_window(one))
        return _Placed(leg, [one for one in kept if of_window(one)], [frozenset([leg])])

    def _holds(self, condition: Expression) -> bool:
        """Whether every row of a source meets the condition: it has an event time, and one window."""
        if not isinstance(condition, Call):
            return condition == Literal(True, BOOLEAN)
        if condition.op == "IsNotNull":
            return condition.args[0] in self._times.values() or window_of(condition.args[0]) is not None
        return condition.op == "EqualTo" and of_window(condition) and condition.args[0] == condition.args[1]

    def _at_join(self, draft: Joined, where: Sequence[Expression]) -> _Placed:
        kind = draft.kind
        inside: dict[str, list[Expression]] = {side: [] for side in _SIDES}
        above = self._sift(draft, where, _WHERE_INTO[kind], inside)
        across = self._sift(draft, draft.on, _ON_INTO[kind], inside)
        left, right = self.place(draft.left, inside["left"]), self.place(draft.right, inside["right"])
        join = _Join(draft, left, right, self)
        for condition in across:
            join.enter(condition)
        if kind == "inner":
            for condition in above:
                join.enter(condition)
        else:
            join.rest += above
        join.take_back(left.rest, "left")
        join.take_back(right.rest, "right")
        return join.placed()

    def _sift(
        self, draft: Joined, conditions: Sequence[Expression], into: Sequence[str], inside: dict[str, list[Expression]]
    ) -> list[Expression]:
        """Give the sides what they can take; what is left over is returned."""
        left_over = []
        for condition in conditions:
            legs = legs_of(condition)
            sides = [side for side in into if legs <= visible(draft.left if side == "left" else draft.right)]
            if sides:
                inside[sides[0]].append(condition)
            elif condition != Literal(True, BOOLEAN):
                left_over.append(condition)
        return left_over

    # What is missing.

    def present(self, draft: Draft, legs: tuple[int, ...]) -> Expression:
        return any_present(draft, legs, self._times)

    def check_tied(self, placed: _Placed) -> None:
        """Refuse a part whose units are not all tied to one window."""
        reached, found = {0}, True
        while found:
            found = False
            for one, two in placed.ties:
                if (one in reached) != (two in reached):
                    reached |= {one, two}
                    found = True
        for at, unit in enumerate(placed.units):
            if at not in reached:
                raise self.untied(placed.units[0], unit)

    def untied(self, one: Iterable[int], two: Iterable[int]) -> SqlError:
        first, second = self._named[min(one)], self._named[min(two)]
        message = f"{first.alias} and {second.alias} are joined without a common window"
        sources = [(first.alias, first.stream), (second.alias, second.stream)]
        return self._text.no_common_window(message, sources, wrong=1)

    def misplaced(self, kind: str) -> SqlError:
        message = f"a condition on the window or on several sources below a {kind.upper()} JOIN is not supported"
        hint = "put it into WHERE of the whole query, or into ON of a join of these sources"
        return self._text.unsupported(message, hint, f"{kind} JOIN", f"{kind} OUTER JOIN", "JOIN")


class _Join:
    """One join in the making."""

    def __init__(self, draft: Joined, left: _Placed, right: _Placed, placing: _Placing) -> None:
        self._draft = draft
        self._left = left
        self._right = right
        self._placing = placing
        self._equal: dict[tuple[Expression, Expression], None] = {}
        self._residual: list[Expression] = []
        self._ties: list[tuple[int, int]] = []
        self.rest: list[Expression] = []

    def enter(self, condition: Expression) -> None:
        """A condition over both sides, or one of ON that must stay there."""
        if of_window(condition):
            if not self._tie(condition):
                self._above(condition)
            return
        pair = self._pair(condition)
        if pair is None:
            self._residual.append(condition)
        else:
            self._equal[pair] = None

    def _above(self, condition: Expression) -> None:
        """Conditions on windows are tested on whole rows."""
        if self._draft.kind != "inner":
            raise self._placing.misplaced(self._draft.kind)
        self.rest.append(condition)

    def _pair(self, condition: Expression) -> tuple[Expression, Expression] | None:
        """The two sides of an equality, in the order of the join's sides."""
        if not isinstance(condition, Call) or condition.op != "EqualTo":
            return None
        left, right = visible(self._draft.left), visible(self._draft.right)
        one, two = condition.args
        for first, second in ((one, two), (two, one)):
            if legs_of(first) and legs_of(second) and legs_of(first) <= left and legs_of(second) <= right:
                return first, second
        return None

    def _tie(self, condition: Expression) -> bool:
        """Take an equality of windows of the two sides. A window that is missing equals none, which the sides' being in
        the same window does not say."""
        pair = self._pair(condition)
        windows = [window_of(side) for side in pair] if pair else [None, None]
        one, two = windows
        if one is None or two is None or one.field != two.field:
            return False
        first, second = self._left.unit_of(one.legs), self._right.unit_of(two.legs)
        if first is None or second is None:
            return False
        self._ties.append((first, second + len(self._left.units)))
        for draft, legs in ((self._draft.left, one.legs), (self._draft.right, two.legs)):
            if not always(draft, legs):
                self._residual.append(self._placing.present(draft, legs))
        return True

    def take_back(self, conditions: Sequence[Expression], side: str) -> None:
        """Conditions on the rows of a side that it could not take itself."""
        kind = self._draft.kind
        for condition in conditions:
            if side in _WHERE_INTO[kind] and (kind != "inner" or of_window(condition)):
                self.rest.append(condition)
            elif side in _ON_INTO[kind] and not of_window(condition):
                self._residual.append(condition)
            else:
                raise self._placing.misplaced(kind)

    def placed(self) -> _Placed:
        node = JoinNode(self._draft.kind, self._left.tree, self._right.tree, tuple(self._equal), all_of(self._residual))
        if self._draft.kind == "inner":
            ties = [(one + len(self._left.units), two + len(self._left.units)) for one, two in self._right.ties]
            units = self._left.units + self._right.units
            return _Placed(node, self.rest, units, [*self._left.ties, *ties, *self._ties])
        for side in (self._left, self._right):
            self._placing.check_tied(side)
        if not self._ties:
            raise self._placing.untied(visible(self._draft.left), visible(self._draft.right))
        return _Placed(node, self.rest, [visible(self._draft)])
