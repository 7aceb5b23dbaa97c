"""A compiled shape: the logical query of one text with its literals as parameters, found by comparing two texts.

Nothing is known about where Spark puts a literal. So the shape is compiled twice, for the user's text and for a
sentinel text in which every literal has another value. Where the two logical queries differ there must be literals,
and the pair of values tells which token they came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from millstream.model.expression import Call, Expression, Literal
from millstream.model.query import Aggregate, LogicalQuery, Output, WindowSpec
from millstream.model.types import STRING
from millstream.sql.shape import Constant


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
class Template:
    """What ``bind`` fills in."""

    query: LogicalQuery
    where: Pattern | None
    keys: tuple[Pattern, ...]
    arguments: tuple[Pattern | None, ...]
    having: Pattern | None
    outputs: tuple[Pattern, ...]
    names: tuple[Name, ...]

    @property
    def named(self) -> bool:
        """Whether the names of the outputs are known without asking Spark."""
        return None not in self.names


def learn(
    first: LogicalQuery, second: LogicalQuery, constants: tuple[Sequence[Constant], Sequence[Constant]]
) -> Template:
    """The template of two queries of one shape.

    :raises NotAlike: when they differ in anything but literals of the text.
    """
    learner = _Learner(*constants)
    if first.stream != second.stream:
        raise NotAlike
    for one, two in zip(first.aggregates, second.aggregates, strict=False):
        if (one.function, one.type) != (two.function, two.type):
            raise NotAlike
    return Template(
        query=first,
        where=learner.optional(first.where, second.where),
        keys=learner.each(first.keys, second.keys),
        arguments=learner.each_optional(
            [a.argument for a in first.aggregates], [a.argument for a in second.aggregates]
        ),
        having=learner.optional(first.having, second.having),
        outputs=learner.each([o.expression for o in first.outputs], [o.expression for o in second.outputs]),
        names=tuple(learner.name(one.name, two.name) for one, two in zip(first.outputs, second.outputs, strict=True)),
    )


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

    def each_optional(
        self, first: Sequence[Expression | None], second: Sequence[Expression | None]
    ) -> tuple[Pattern | None, ...]:
        if len(first) != len(second):
            raise NotAlike
        return tuple(self.optional(one, two) for one, two in zip(first, second, strict=True))

    def optional(self, first: Expression | None, second: Expression | None) -> Pattern | None:
        if first is None or second is None:
            if first is not second:
                raise NotAlike
            return None
        return self.pattern(first, second)

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


def bind(template: Template, sql: str, constants: Sequence[Constant], window: WindowSpec | None) -> LogicalQuery:
    """The logical query of another text of the shape. Names that only Spark can tell are those of the first text."""
    first = template.query
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

    return LogicalQuery(
        sql=sql,
        stream=first.stream,
        where=None if template.where is None else fill(template.where),
        window=window,
        keys=tuple(fill(key) for key in template.keys),
        aggregates=tuple(
            Aggregate(aggregate.function, None if argument is None else fill(argument), aggregate.type)
            for aggregate, argument in zip(first.aggregates, template.arguments, strict=True)
        ),
        having=None if template.having is None else fill(template.having),
        outputs=tuple(
            Output(name(output, parts), fill(pattern))
            for output, parts, pattern in zip(first.outputs, template.names, template.outputs, strict=True)
        ),
    )


def named_by_text(template: Template, constants: Sequence[Constant]) -> bool:
    """Whether ``bind`` gives the right names for these constants."""
    return template.named and all(
        _name_text(constants[part.index]) is not None
        for name in template.names
        for part in name or ()
        if isinstance(part, Parameter)
    )
