"""From WHERE to a selection: negation normal form, then each leaf's TRUE set.

In negation normal form the formula is monotone in its leaves, so it suffices to know where each leaf is TRUE: FALSE
and NULL both reject a row. A leaf that is a comparison of an expression with a constant becomes ranges of that
expression; anything else becomes the ranges of a Boolean attribute.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from millstream.model.expression import Call, Expression, Value, columns
from millstream.model.selection import EVERYTHING, NOTHING, AllOf, AnyOf, Attribute, Bound, Leaf, Selection
from millstream.model.types import LONG_DIGITS, DataType

Fold = Callable[[Expression], Value]
Ranges = tuple[tuple[Bound, Bound], ...]

_FLIPPED = {
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
    "EqualTo": "EqualTo",
    "EqualNullSafe": "EqualNullSafe",
}
_NEGATED = {
    "LessThan": "GreaterThanOrEqual",
    "LessThanOrEqual": "GreaterThan",
    "GreaterThan": "LessThanOrEqual",
    "GreaterThanOrEqual": "LessThan",
    "EqualTo": "NotEqual",
}
# Digits before the point that a decimal needs to hold every value of an integral type.
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_WIDTH = {"byte": 1, "short": 2, "integer": 4, "long": 8}
_DAY = 86_400_000_000


def select(where: Expression | None, fold: Fold) -> Selection:
    """The selection that is TRUE exactly where ``where`` is; ``fold`` evaluates expressions without columns."""
    if where is None:
        return EVERYTHING
    return _normal(where, True, fold)


def collapse(where: Expression) -> Selection:
    """The whole condition as one Boolean attribute: for conditions that would cut a group into too many classes."""
    return _truth(where, True)


def _normal(node: Expression, positive: bool, fold: Fold) -> Selection:
    if isinstance(node, Call):
        if node.op == "Not":
            return _normal(node.args[0], not positive, fold)
        if node.op in ("And", "Or"):
            items = tuple(_normal(argument, positive, fold) for argument in node.args)
            return _all(items) if (node.op == "And") == positive else _any(items)
        if node.op == "Between":
            value, low, high = node.args
            both = (
                Call("GreaterThanOrEqual", (value, low), node.type),
                Call("LessThanOrEqual", (value, high), node.type),
            )
            return _normal(Call("And", both, node.type), positive, fold)
    if not columns(node):
        return EVERYTHING if fold(node) is positive else NOTHING
    return _leaf(node, positive, fold)


def _all(items: tuple[Selection, ...]) -> Selection:
    flat = [part for item in items for part in (item.items if isinstance(item, AllOf) else (item,))]
    if NOTHING in flat:
        return NOTHING
    return flat[0] if len(flat) == 1 else AllOf(tuple(dict.fromkeys(flat)))


def _any(items: tuple[Selection, ...]) -> Selection:
    flat = [part for item in items for part in (item.items if isinstance(item, AnyOf) else (item,))]
    if EVERYTHING in flat:
        return EVERYTHING
    return flat[0] if len(flat) == 1 else AnyOf(tuple(dict.fromkeys(flat)))


def _leaf(node: Expression, positive: bool, fold: Fold) -> Selection:
    if isinstance(node, Call):
        if node.op in ("IsNull", "IsNotNull"):
            return _null_test(node, positive)
        if node.op == "IsNaN":
            return _nan_test(node, positive)
        if node.op in _FLIPPED:
            return _comparison(node, positive, fold)
        if node.op == "In" and not any(columns(item) for item in node.args[1:]):
            return _membership(node, positive, fold)
    return _truth(node, positive)


def _truth(node: Expression, positive: bool) -> Selection:
    return Leaf(Attribute(node, "boolean"), ((1, None),) if positive else ((None, 1),))


def _null_test(node: Call, positive: bool) -> Selection:
    attribute = attribute_of(node.args[0])
    if attribute is None:
        return _truth(node, positive)
    return Leaf(attribute, (), True) if (node.op == "IsNull") == positive else Leaf(attribute, ((None, None),))


def _nan_test(node: Call, positive: bool) -> Selection:
    attribute = attribute_of(node.args[0])
    if attribute is None or attribute.domain != "double":
        return _truth(node, positive)
    # isnan(NULL) is FALSE, so its negation is TRUE for NULL.
    return Leaf(attribute, ((math.nan, None),)) if positive else Leaf(attribute, ((None, math.nan),), True)


def _comparison(node: Call, positive: bool, fold: Fold) -> Selection:
    left, right = node.args
    op = node.op
    if columns(left) and columns(right):
        return _truth(node, positive)
    if not columns(left):
        left, right, op = right, left, _FLIPPED[op]
    attribute = attribute_of(left)
    if attribute is None:
        return _truth(node, positive)
    constant = fold(right)
    if op == "EqualNullSafe":
        return _null_safe(attribute, constant, right.type, positive)
    if constant is None:
        return NOTHING
    wanted = op if positive else _NEGATED[op]
    return _known(attribute, _compare(attribute, wanted, constant, right.type))


def _null_safe(attribute: Attribute, constant: Value, type_: DataType, positive: bool) -> Selection:
    if constant is None:
        return Leaf(attribute, (), True) if positive else Leaf(attribute, ((None, None),))
    wanted = "EqualTo" if positive else "NotEqual"
    return Leaf(attribute, _compare(attribute, wanted, constant, type_), not positive)


def _membership(node: Call, positive: bool, fold: Fold) -> Selection:
    attribute = attribute_of(node.args[0])
    if attribute is None:
        return _truth(node, positive)
    constants = [(fold(item), item.type) for item in node.args[1:]]
    known = [(value, type_) for value, type_ in constants if value is not None]
    if positive:
        equal = [_known(attribute, _compare(attribute, "EqualTo", value, type_)) for value, type_ in known]
        return _union(attribute, equal)
    if len(known) < len(constants):
        return NOTHING
    return _all(tuple(_known(attribute, _compare(attribute, "NotEqual", value, type_)) for value, type_ in known))


def _union(attribute: Attribute, parts: list[Selection]) -> Selection:
    ranges = tuple(span for part in parts if isinstance(part, Leaf) for span in part.ranges)
    return _known(attribute, ranges)


def _known(attribute: Attribute, ranges: Ranges) -> Selection:
    return Leaf(attribute, ranges) if ranges else NOTHING


def attribute_of(expression: Expression) -> Attribute | None:
    """The attribute to compare, with widening casts taken off (their constants are taken down instead); None when the
    type has no ordered domain here."""
    inner = _unwrap(expression)
    kind = inner.type.kind
    if kind == "boolean":
        return Attribute(inner, "boolean")
    if kind == "string":
        return Attribute(inner, "string")
    if inner.type.floating:
        return Attribute(inner, "double")
    if kind == "decimal":
        return Attribute(inner, "integer", inner.type.scale) if inner.type.precision <= LONG_DIGITS else None
    if inner.type.integral or kind in ("date", "timestamp", "timestamp_ntz"):
        return Attribute(inner, "integer")
    return None


def _unwrap(expression: Expression) -> Expression:
    while isinstance(expression, Call) and expression.op == "Cast" and _exact(expression.args[0].type, expression.type):
        expression = expression.args[0]
    return expression


def _exact(inner: DataType, outer: DataType) -> bool:
    """Whether the cast keeps every value and its order, so that a constant can be compared below it."""
    if inner == outer:
        return True
    if inner.integral:
        if outer.integral:
            return _WIDTH[inner.kind] <= _WIDTH[outer.kind]
        if outer.kind == "decimal":
            return outer.precision - outer.scale >= _DIGITS[inner.kind]
        return outer.kind == "double" and inner.kind != "long"
    if inner.kind == "decimal" and outer.kind == "decimal":
        whole = outer.precision - outer.scale >= inner.precision - inner.scale
        return whole and outer.scale >= inner.scale and inner.precision <= LONG_DIGITS
    return (inner.kind, outer.kind) in (("float", "double"), ("date", "timestamp"), ("date", "timestamp_ntz"))


class _Top:
    """A bound above every value of the domain."""


_TOP = _Top()
_Edge = Bound | _Top


def _compare(attribute: Attribute, op: str, constant: Value, type_: DataType) -> Ranges:
    low, high = _bounds(attribute, constant, type_)
    if op == "LessThan":
        return _span(None, low)
    if op == "LessThanOrEqual":
        return _span(None, high)
    if op == "GreaterThan":
        return _span(high, None)
    if op == "GreaterThanOrEqual":
        return _span(low, None)
    if op == "EqualTo":
        return _span(low, high)
    return _span(None, low) + _span(high, None)


def _span(start: _Edge, stop: _Edge) -> Ranges:
    """The range between two edges: none where it starts at the top or is empty."""
    if isinstance(start, _Top):
        return ()
    end = None if isinstance(stop, _Top) else stop
    if start is not None and end is not None and not _before(start, end):
        return ()
    return ((start, end),)


def _before(start: Bound, end: Bound) -> bool:
    if isinstance(end, float) and math.isnan(end):
        return not (isinstance(start, float) and math.isnan(start))
    return start < end  # type: ignore[operator]


def _bounds(attribute: Attribute, constant: Value, type_: DataType) -> tuple[_Edge, _Edge]:
    """The half-open range of the domain's values equal to the constant; empty (low == high) where none is."""
    if attribute.domain == "string":
        assert isinstance(constant, str)
        return constant, constant + "\0"
    if attribute.domain == "boolean":
        return int(constant), int(constant) + 1  # type: ignore[arg-type]
    if attribute.domain == "double":
        return _double_bounds(float(constant))  # type: ignore[arg-type]
    if isinstance(constant, float) and not math.isfinite(constant):
        return (_TOP, _TOP) if not constant < 0 else (_LOWEST, _LOWEST)
    exact = Fraction(constant) * 10**attribute.scale  # type: ignore[arg-type]
    if attribute.expression.type.kind == "date" and type_.kind != "date":
        exact /= _DAY
    return _within(math.ceil(exact)), _within(math.floor(exact) + 1)


def _within(bound: int) -> int | _Top:
    """Beyond 64 bits nothing can lie on the other side of a bound."""
    return _TOP if bound > _HIGHEST else max(bound, _LOWEST)


# Below every 64-bit integer, for comparisons with minus infinity.
_LOWEST = -(2**63)
_HIGHEST = 2**63 - 1


def _double_bounds(value: float) -> tuple[_Edge, _Edge]:
    if math.isnan(value):
        return math.nan, _TOP
    value += 0.0  # -0.0 and 0.0 are one value
    return value, math.nan if value == math.inf else math.nextafter(value, math.inf)
