"""A group version made ready to run: class table, slicer, and the expressions it will ask for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from millstream.kernels.aggregate import ranked
from millstream.kernels.classes import ClassTable, table_of
from millstream.kernels.dense import Labels
from millstream.kernels.rest import Shape, Shaped, shape_of
from millstream.kernels.slices import Slicer
from millstream.model.expression import Expression, columns
from millstream.model.group import GroupVersion
from millstream.model.query import WindowSpec
from millstream.model.selection import attributes

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Group:
    """Everything derived from a version; built once for each process and version."""

    version: GroupVersion

    @cached_property
    def table(self) -> ClassTable:
        return table_of(self.version)

    @cached_property
    def windows(self) -> tuple[WindowSpec, ...]:
        return tuple(dict.fromkeys(m.window for m in self.version.members if m.window is not None))

    @cached_property
    def slicer(self) -> Slicer:
        return Slicer.of(self.windows)

    @cached_property
    def position(self) -> dict[str, int]:
        """Each member's place among the members, by query."""
        return {member.query: index for index, member in enumerate(self.version.members)}

    @cached_property
    def row_columns(self) -> tuple[str, ...]:
        """The columns that some member's rows must keep, by name."""
        return tuple(sorted({name for member in self.version.members for name in member.columns}))

    @cached_property
    def columns(self) -> frozenset[str]:
        """The columns that some member asks for."""
        asked = {name for e in (*self.selected, *self.accumulated, *self.projected) for name in columns(e)}
        return frozenset(asked.union(self.row_columns))

    @property
    def has_rows(self) -> bool:
        """Whether buckets refer to rows: their index has positions in one file, so they are never merged with those of
        another."""
        return bool(self.row_columns)

    @property
    def by_query(self) -> bool:
        """Buckets label cells with the member instead of the class where that makes fewer of them. A row that two
        members select has one class, but would be in two cells; so not where rows are kept."""
        return not self.has_rows and len(self.version.members) < self.table.classes

    @cached_property
    def labels(self) -> BoolArray:
        """``labels[member, label]``: which labels of the buckets belong to a member."""
        if self.by_query:
            return np.eye(len(self.version.members), dtype=np.bool_)
        return np.ascontiguousarray(self.table.queries.T)

    @cached_property
    def can_be_full(self) -> bool:
        """Whether buckets may have a cell for every combination: not where planes hold Arrow values."""
        return not any(m.kind in ("min", "max") and ranked(m.argument.type) for m in self.version.measures)

    @property
    def full_labels(self) -> int | None:
        """The labels of a full bucket; None where no bucket may be full."""
        return self.labels.shape[1] if self.can_be_full else None

    @cached_property
    def label_runs(self) -> Labels:
        return Labels.of(self.labels)

    @cached_property
    def shapes(self) -> tuple[Shaped, ...]:
        """What each member does after the shared part."""
        known: dict[Shape, Shape] = {}
        found = (shape_of(member) for member in self.version.members)
        return tuple((known.setdefault(shape, shape), constants) for shape, constants in found)

    @cached_property
    def selected(self) -> tuple[Expression, ...]:
        """What classifying rows needs."""
        return tuple(cut.attribute.expression for cut in self.table.cuts)

    @cached_property
    def accumulated(self) -> tuple[Expression, ...]:
        """What partial aggregates need of selected rows."""
        arguments = (measure.argument for measure in self.version.measures)
        return tuple(dict.fromkeys([*(self.version.keys or ()), *arguments]))

    @cached_property
    def projected(self) -> tuple[Expression, ...]:
        """What the answers of queries without a window need of selected rows."""
        if self.version.windowed:
            return ()
        return tuple(dict.fromkeys(out.expression for m in self.version.members for out in m.outputs))

    @cached_property
    def users_of_selected(self) -> dict[Expression, list[str]]:
        """Which queries' conditions contain an attribute."""
        users: dict[Expression, list[str]] = {}
        for member in self.version.members:
            for attribute in attributes(member.selection):
                users.setdefault(attribute.expression, []).append(member.query)
        return users

    @cached_property
    def users_of_accumulated(self) -> dict[Expression, list[str]]:
        """Which queries have an expression among their keys and arguments."""
        users: dict[Expression, list[str]] = {}
        for member in self.version.members:
            arguments = [a.argument for a in member.aggregates if a.argument is not None]
            for expression in dict.fromkeys([*(self.version.keys or ()), *arguments]):
                users.setdefault(expression, []).append(member.query)
        return users

    @cached_property
    def users_of_projected(self) -> dict[Expression, list[str]]:
        """Which queries without a window have an expression among their outputs."""
        users: dict[Expression, list[str]] = {}
        for member in self.version.members if not self.version.windowed else ():
            for expression in dict.fromkeys(out.expression for out in member.outputs):
                users.setdefault(expression, []).append(member.query)
        return users

    def last_end(self, start: int) -> int:
        """The largest end of a member's window that contains the slice starting at ``start``."""
        return max(_last_end(window, start) for window in self.windows)


def _last_end(window: WindowSpec, start: int) -> int:
    return start + window.size - (start - window.offset) % window.slide


def expressions(groups: Iterable[Group]) -> list[Expression]:
    """All that the groups ask for of every row, once each."""
    found = (e for group in groups for e in (*group.selected, *group.accumulated))
    return list(dict.fromkeys(found))
