"""Classes: the combinations of predicate intervals, and the queries each of them belongs to.

The constants of all members cut each attribute's domain into intervals; NULL is an interval of its own:

    price > 10, price <= 20          interval   0     1        2         3
                                               NULL  … < 11   11 … 20   21 …

The attributes' intervals span a grid. A grid point decides every member's selection, so points that select the same
members form one class. A row's class costs one look-up for each attribute, however many queries there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.model.group import GroupVersion, Member
from millstream.model.selection import AllOf, Attribute, Bound, Leaf, Selection, leaves

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

# A group's class table must stay in cache and its members' truth over the grid must be quick to compute.
GRID_LIMIT = 1 << 16
# Above this many classes partial aggregates by class stop paying (DESIGN: a group over 4096 classes is split).
CLASS_LIMIT = 4096


@dataclass(frozen=True)
class Cuts:
    """The sorted thresholds of one attribute. A value's interval is 1 + the number of thresholds ≤ value; NULL's is
    0."""

    attribute: Attribute
    thresholds: tuple[Bound, ...]

    @property
    def intervals(self) -> int:
        return len(self.thresholds) + 2

    def array(self) -> npt.NDArray[Any]:
        """Thresholds for ``np.searchsorted``; NaN sorts last there, as in Spark."""
        dtype: type = np.float64 if self.attribute.domain == "double" else np.int64
        return np.array(self.thresholds, dtype=dtype)

    @cached_property
    def _position(self) -> dict[object, int]:
        return {_identity(bound): index for index, bound in enumerate(self.thresholds)}

    def truth(self, leaf: Leaf) -> BoolArray:
        """In which intervals the leaf is TRUE."""
        true = np.zeros(self.intervals, dtype=np.bool_)
        true[0] = leaf.null
        position = self._position
        for start, stop in leaf.ranges:
            first = 1 if start is None else position[_identity(start)] + 2
            last = self.intervals if stop is None else position[_identity(stop)] + 2
            true[first:last] = True
        return true


def _identity(bound: Bound) -> object:
    """NaN is not equal to itself; as a threshold it is."""
    return "nan" if isinstance(bound, float) and math.isnan(bound) else bound


def _order(bound: Bound) -> tuple[bool, Bound]:
    return (isinstance(bound, float) and math.isnan(bound), bound)


def cuts_of(attribute: Attribute, selections: list[Selection]) -> Cuts:
    """The thresholds that the selections need on an attribute."""
    bounds: dict[object, Bound] = {}
    for selection in selections:
        for leaf in leaves(selection):
            if leaf.attribute == attribute:
                for span in leaf.ranges:
                    bounds.update((_identity(bound), bound) for bound in span if bound is not None)
    return Cuts(attribute, tuple(sorted(bounds.values(), key=_order)))


def truth_over(selection: Selection, cuts: list[Cuts]) -> BoolArray:
    """Where on the grid the selection is TRUE; the result broadcasts to the grid's shape."""
    if isinstance(selection, Leaf):
        axis = next(i for i, cut in enumerate(cuts) if cut.attribute == selection.attribute)
        shape = [1] * len(cuts)
        shape[axis] = -1
        return cuts[axis].truth(selection).reshape(shape)
    parts = [truth_over(item, cuts) for item in selection.items]
    if isinstance(selection, AllOf):
        return reduce(np.logical_and, parts, np.ones([1] * len(cuts), dtype=np.bool_))
    return reduce(np.logical_or, parts, np.zeros([1] * len(cuts), dtype=np.bool_))


@dataclass(frozen=True)
class ClassTable:
    """``grid`` maps a grid point (row-major over the attributes' intervals) to its class, ``len(queries)`` for none;
    ``queries[c, j]`` tells whether class c belongs to the group's j-th member."""

    cuts: tuple[Cuts, ...]
    grid: IntArray
    queries: BoolArray
    strides: tuple[int, ...] = field(default=())

    @property
    def classes(self) -> int:
        return len(self.queries)


def grid_size(selections: list[Selection], attributes: tuple[Attribute, ...]) -> int:
    return math.prod(cuts_of(attribute, selections).intervals for attribute in attributes)


def class_table(attributes: tuple[Attribute, ...], members: tuple[Member, ...]) -> ClassTable:
    """Number the distinct query-sets over the grid."""
    selections = [member.selection for member in members]
    cuts = [cuts_of(attribute, selections) for attribute in attributes]
    shape = [cut.intervals for cut in cuts]
    points = math.prod(shape)
    truth = np.empty((points, len(members)), dtype=np.bool_)
    for index, selection in enumerate(selections):
        truth[:, index] = np.broadcast_to(truth_over(selection, cuts), shape).reshape(points)
    packed = np.packbits(truth, axis=1)
    _, first, inverse = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    selected = truth[first].any(axis=1)
    count = int(selected.sum())
    # In the order of first appearance on the grid, so that the classes of a range of values are neighbours.
    order = np.argsort(np.where(selected, first, points), kind="stable")[:count]
    number = np.full(len(first), count, dtype=np.int64)
    number[order] = np.arange(count)
    strides = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    return ClassTable(tuple(cuts), number[inverse.reshape(points)], truth[first[order]], strides)


def table_of(version: GroupVersion) -> ClassTable:
    return class_table(version.attributes, version.members)
