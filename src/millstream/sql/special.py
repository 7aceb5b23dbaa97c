"""Expressions of a plan that are read otherwise than operator by operator: columns, windows, what is not repeatable."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.model.expression import Call, Expression
from millstream.model.types import BOOLEAN, parse_type
from millstream.sql.catalyst import Node, to_expression
from millstream.sql.constructs import NONDETERMINISTIC, SUBQUERIES, SUBQUERY
from millstream.sql.drafts import Draft, Source, always, any_present, none_present
from millstream.sql.joins import Named
from millstream.sql.leg_windows import cast_whole, coalesced, is_whole, start_of, window_of
from millstream.sql.text import Text

_EQUALITIES = ("EqualTo", "EqualNullSafe")


class Special:
    """``columns`` says what the attributes below an operator stand for, ``draft`` whose rows these are; the reader of
    the plan keeps both."""

    def __init__(self, text: Text, columns: dict[int, Expression], named: Sequence[Named]) -> None:
        self._text = text
        self._named = named
        self.columns = columns
        self.draft: Draft = Source(0)

    def meaning(self, node: Node) -> Expression | None:
        """What ``to_expression`` asks of every node."""
        if node.name == "AttributeReference":
            return self.columns[int(node.fields["exprId"]["id"])]
        construct = SUBQUERY if node.name in SUBQUERIES else NONDETERMINISTIC.get(node.name)
        if construct:
            raise self._text.refusal(construct)
        if node.name == "GetStructField":
            whole = self._read(node.children[0])
            if isinstance(whole, Call) and whole.op == "Window":
                return whole.args[int(node.fields["ordinal"])]
        if node.name in ("IsNull", "IsNotNull"):
            return self._presence(node)
        return self._of_structs(node)

    def is_window(self, expression: Expression) -> bool:
        return window_of(expression) is not None

    def _read(self, node: Node) -> Expression:
        return to_expression(node, self.meaning)

    def _presence(self, node: Node) -> Expression | None:
        """A source's window is NULL where an outer join leaves the source out, and nowhere else."""
        if not _simple(node.children[0]):
            return None
        argument = self._read(node.children[0])
        found = window_of(argument)
        if found is None or always(self.draft, found.legs):
            return Call(node.name, (start_of(argument),), BOOLEAN) if is_whole(argument) else None
        times = {leg: one.time for leg, one in enumerate(self._named)}
        test = none_present if node.name == "IsNull" else any_present
        return test(self.draft, found.legs, times)

    def _of_structs(self, node: Node) -> Expression | None:
        """Operators on the structs of windows, in terms of their starts and ends."""
        if not node.children or not all(_struct(child) for child in node.children):
            return None
        if node.name == "Cast":
            return cast_whole(self._read(node.children[0]), parse_type(node.fields["dataType"]))
        if node.name == "Coalesce":
            return coalesced(tuple(self._read(child) for child in node.children))
        if node.name in _EQUALITIES:
            return self._equality(node)
        return None

    def _equality(self, node: Node) -> Expression | None:
        sides = tuple(self._read(child) for child in node.children)
        starts = tuple(start_of(side) for side in sides)
        if not all(is_whole(side) for side in sides) or starts[0].type != starts[1].type:
            return None
        windows = [window_of(side) for side in sides]
        # Windows that are there are equal or not, and `<=>` is `=`.
        there = all(found is not None and always(self.draft, found.legs) for found in windows)
        return Call("EqualTo" if there else node.name, starts, BOOLEAN)


def _struct(node: Node) -> bool:
    """Whether the node is of a struct type, which only windows are."""
    if node.name in ("AttributeReference", "Cast"):
        return isinstance(node.fields.get("dataType"), dict)
    return node.name in ("Coalesce", "Alias", "KnownNotNull", "KnownNullable") and all(map(_struct, node.children))


def _simple(node: Node) -> bool:
    """Whether the node can be a window or its start or end: nothing else is worth reading twice."""
    names = ("AttributeReference", "GetStructField", "Cast", "Coalesce", "Alias", "KnownNotNull", "KnownNullable")
    return node.name in names and all(map(_simple, node.children))
