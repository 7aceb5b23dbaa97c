"""A compiled shape: the logical query of one text with its literals as parameters, found by comparing two texts.

Nothing is known about where Spark puts a literal. So the shape is compiled twice, for the user's text and for a
sentinel text in which every literal has another value. Where the two logical queries differ there must be literals,
and the pair of values tells which token they came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from millstream.model.expression import Call, Expression, Literal
from millstream.model.join import JoinQuery
from millstream.model.query import LogicalQuery, Output, Ranking, WindowSpec
from millstream.model.types import INTEGER, LONG, STRING, DataType
from millstream.sql.shape import Constant
from millstream.sql.slots import changed, query_expressions

Query = LogicalQuery | JoinQuery

_NOTHING = Literal(None, DataType("void"))


@dataclass(frozen=True, slots=True)
class Parameter:
    """In place of a literal: the constant at ``index``, after a minus sign when ``negative``."""

    index: int
    negative: bool


@dataclass(frozen=True, slots=True)
class Hole:
    """A call with parameters somewhere below it."""

    call: Call
    arguments: tuple[Pattern, ...]


Pattern = Expression | Parameter | Hole

# An output's name: parts of text between the constants that Spark wrote into it, or None where only Spark can tell.
Name = tuple[str | Parameter, ...] | None


class NotAlike(Exception):
    """The two queries differ in more than literals, so the shape cannot be bound."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of a ranking: a constant, less ``minus``."""

    index: int
    minus: int


@dataclass(frozen=True, slots=True)
class Template:
    """What ``bind`` fills in: the first query, a pattern for each of its expressions, the names of its outputs, and the
    limit of its ranking where that is a constant of the text."""

    query: Query
    patterns: tuple[Pattern, ...]
    names: tuple[Name, ...]
    limit: Limit | None = None

    @property
    def named(self) -> bool:
        """Whether the names of the outputs are known without asking Spark."""
        return None not in self.names


def learn(first: Query, second: Query, constants: tuple[Sequence[Constant], Sequence[Constant]]) -> Template:
    """The template of two queries of one shape.

    :raises NotAlike: when they differ in anything but literals of the text.
    """
    learner = _Learner(*constants)
    if _frame(first) != _frame(second):
        raise NotAlike
    return Template(
        query=first,
        patterns=learner.each(query_expressions(first), query_expressions(second)),
        names=tuple(learner.name(one.name, two.name) for one, two in zip(first.outputs, second.outputs, strict=True)),
        limit=learner.limit(first.ranking, second.ranking),
    )


def _frame(query: Query) -> Query:
    """What queries of one shape have in common beside expressions: everything but text, names, window and limit."""
    outputs = tuple(replace(output, name="") for output in query.outputs)
    ranking = query.ranking and replace(query.ranking, limit=1)
    if isinstance(query, JoinQuery):
        return changed(replace(query, sql="", outputs=outputs, ranking=ranking), _blank)
    return changed(replace(query, sql="", outputs=outputs, ranking=ranking), _blank)


def _blank(expression: Expression) -> Expression:
    return _NOTHING


class _Learner:
    def __init__(self, first: Sequence[Constant], second: Sequence[Constant]) -> None:
        if len(first) != len(second) or any(one == two for one, two in zip(first, second, strict=True)):
            raise NotAlike
        self._pairs: dict[tuple[Literal, Literal], Parameter] = {}
        for index, (one, two) in enumerate(zip(first, second, strict=True)):
            for negative in (False,) if one.type == STRING else (False, True):
                pair = one.literal(negative), two.literal(negative)
                self._pairs[pair] = Parameter(index, negative)
        self._texts = [(_name_text(one), _name_text(two)) for one, two in zip(first, second, strict=True)]

    def each(self, first: Sequence[Expression], second: Sequence[Expression]) -> tuple[Pattern, ...]:
        if len(first) != len(second):
            raise NotAlike
        return tuple(self.pattern(one, two) for one, two in zip(first, second, strict=True))

    def limit(self, first: Ranking | None, second: Ranking | None) -> Limit | None:
        """Where the limits come from: ``<= k`` has the constant itself, ``< k`` one less. It must be certain which."""
        if first is None or second is None or first.limit == second.limit:
            return None
        found = [
            Limit(self._pairs[pair].index, minus)
            for minus in (0, 1)
            for kind in (INTEGER, LONG)
            if (pair := (Literal(first.limit + minus, kind), Literal(second.limit + minus, kind))) in self._pairs
        ]
        if len(found) != 1:
            raise NotAlike
        return found[0]

    def pattern(self, first: Expression, second: Expression) -> Pattern:
        if isinstance(first, Call) and isinstance(second, Call):
            if replace(first, args=()) != replace(second, args=()):
                raise NotAlike
            arguments = self.each(first.args, second.args)
            return first if arguments == first.args else Hole(first, arguments)
        if first == second:
            return first
        if isinstance(first, Literal) and isinstance(second, Literal) and (first, second) in self._pairs:
            return self._pairs[first, second]
        raise NotAlike

    def name(self, first: str, second: str) -> Name:
        """Names are followed only where each constant's text occurs once, so that its place is certain."""
        if first == second:
            return (first,)
        parts: list[str | Parameter] = [second]
        for index, (_, text) in enumerate(self._texts):
            if text is None or second.count(text) != 1:
                continue
            parts = [piece for part in parts for piece in _split(part, text, Parameter(index, False))]
        filled = "".join(part if isinstance(part, str) else self._texts[part.index][0] or "" for part in parts)
        return tuple(parts) if filled == first else None


def _split(part: str | Parameter, text: str, parameter: Parameter) -> list[str | Parameter]:
    if isinstance(part, Parameter) or text not in part:
        return [part]
    before, _, after = part.partition(text)
    return [before, parameter, after]


def _name_text(constant: Constant) -> str | None:
    """How Spark writes the constant into an automatic column name, None where that is not simply its text."""
    if constant.type == STRING:
        return constant.text if constant.text.isalnum() and constant.text.isascii() else None
    if constant.type.integral or (constant.type.kind == "decimal" and constant.type.scale < 6):
        return str(constant.value(negative=False))
    return None


def bind(template: Template, sql: str, constants: Sequence[Constant], window: WindowSpec | None) -> Query:
    """The query of another text of the shape. Names that only Spark can tell are those of the first text.

    :raises NotAlike: when the limit of a ranking would be less than one.
    """
    values: dict[Parameter, Literal] = {}

    def fill(pattern: Pattern) -> Expression:
        if isinstance(pattern, Hole):
            return replace(pattern.call, args=tuple([fill(argument) for argument in pattern.arguments]))
        if isinstance(pattern, Parameter):
            if pattern not in values:
                values[pattern] = constants[pattern.index].literal(pattern.negative)
            return values[pattern]
        return pattern

    def name(output: Output, name: Name) -> str:
        if name is None:
            return output.name
        return "".join(part if isinstance(part, str) else _name_text(constants[part.index]) or "" for part in name)

    first = template.query
    outputs = tuple(
        replace(output, name=name(output, parts)) for output, parts in zip(first.outputs, template.names, strict=True)
    )
    ranking = _limited(first.ranking, template.limit, constants)
    patterns = iter(template.patterns)
    if isinstance(first, JoinQuery):
        joined = replace(first, sql=sql, window=window or first.window, outputs=outputs, ranking=ranking)
        return changed(joined, lambda _: fill(next(patterns)))
    single = replace(first, sql=sql, window=window, outputs=outputs, ranking=ranking)
    return changed(single, lambda _: fill(next(patterns)))


def _limited(ranking: Ranking | None, limit: Limit | None, constants: Sequence[Constant]) -> Ranking | None:
    if ranking is None or limit is None:
        return ranking
    number = int(constants[limit.index].number) - limit.minus
    if number < 1:
        raise NotAlike
    return replace(ranking, limit=number)


def named_by_text(template: Template, constants: Sequence[Constant]) -> bool:
    """Whether ``bind`` gives the right names for these constants."""
    return template.named and all(
        _name_text(constants[part.index]) is not None
        for name in template.names
        for part in name or ()
        if isinstance(part, Parameter)
    )
