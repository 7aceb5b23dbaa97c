"""WHERE in the form that sharing needs: a monotone formula over leaves, each the TRUE set of one attribute.

A leaf's TRUE set is a union of half-open ranges over the attribute's ordered domain, and whether NULL belongs to it:

=========  =============================================  ==========================
domain     values                                         successor of c
=========  =============================================  ==========================
integer    integers, days, microseconds, scaled decimals  c + 1
double     IEEE doubles, NaN the largest                  next double; NaN after +inf
string     UTF-8 text in byte order                       c + "\\0"
boolean    0 and 1                                        c + 1
=========  =============================================  ==========================
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from millstream.model.expression import Expression

Bound = int | float | str | None


@dataclass(frozen=True, slots=True)
class Attribute:
    """A scalar expression that predicates compare with constants; evaluated once for all queries."""

    expression: Expression
    domain: str
    # Decimal attributes are integers scaled by 10 ** scale.
    scale: int = 0


@dataclass(frozen=True, slots=True)
class Leaf:
    """TRUE iff the attribute's value lies in one of ``ranges`` (start ≤ value < stop; None is unbounded), or is NULL
    and ``null``."""

    attribute: Attribute
    ranges: tuple[tuple[Bound, Bound], ...]
    null: bool = False


@dataclass(frozen=True, slots=True)
class AllOf:
    items: tuple[Selection, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    items: tuple[Selection, ...]


Selection = Leaf | AllOf | AnyOf

EVERYTHING = AllOf(())
NOTHING = AnyOf(())


def leaves(selection: Selection) -> Iterator[Leaf]:
    if isinstance(selection, Leaf):
        yield selection
    else:
        for item in selection.items:
            yield from leaves(item)


def attributes(selection: Selection) -> tuple[Attribute, ...]:
    """The distinct attributes in order of first appearance."""
    return tuple(dict.fromkeys(leaf.attribute for leaf in leaves(selection)))
