"""When two expressions are the same for GROUP BY: Spark looks through the order of commutative operands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from millstream.model.expression import Call, Expression

_CHAINS = frozenset(["Add", "Multiply", "And", "Or", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Greatest", "Least"])
_SYMMETRIC = frozenset(["EqualTo", "EqualNullSafe"])
_MIRRORED = {"GreaterThan": "LessThan", "GreaterThanOrEqual": "LessThanOrEqual"}


def canonical(expression: Expression) -> Expression:
    """A form that is equal for expressions that Spark takes for the same.

    >>> from millstream.model.expression import Column
    >>> from millstream.model.types import INTEGER
    >>> a, b = Column("a", INTEGER), Column("b", INTEGER)
    >>> canonical(Call("Add", (a, b), INTEGER)) == canonical(Call("Add", (b, a), INTEGER))
    True
    """
    if not isinstance(expression, Call):
        return expression
    if expression.op in _MIRRORED:
        expression = replace(expression, op=_MIRRORED[expression.op], args=expression.args[::-1])
    if expression.op in _CHAINS:
        args = sorted((canonical(argument) for argument in _chain(expression, expression)), key=repr)
        return replace(expression, args=tuple(args))
    args = [canonical(argument) for argument in expression.args]
    return replace(expression, args=tuple(sorted(args, key=repr) if expression.op in _SYMMETRIC else args))


def _chain(expression: Expression, top: Call) -> Iterator[Expression]:
    """The operands of a chain such as ``a + b + c``, whose links have the same type."""
    if isinstance(expression, Call) and (expression.op, expression.type) == (top.op, top.type):
        for argument in expression.args:
            yield from _chain(argument, top)
    else:
        yield expression
