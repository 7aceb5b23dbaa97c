"""Windows of a query's sources in expressions: ``0.#start`` and ``0.#end``, and the struct of both.

A window is known by its struct, its start or its end. The coalesce of the windows of several sources, as USING makes it
over a full join, is a window too: of whichever of them is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millstream.model.expression import Call, Column, Expression, columns, rewrite
from millstream.model.join import leg_column, leg_of
from millstream.model.query import WINDOW_END, WINDOW_START
from millstream.model.types import DataType
from millstream.sql.functions import typed

_FIELDS = frozenset([WINDOW_START, WINDOW_END])
_TIMES = ("timestamp", "timestamp_ntz")
_WHOLE = {"timestamp": "window", "timestamp_ntz": "window_ntz"}


@dataclass(frozen=True, slots=True)
class WindowOf:
    """What an expression says of a window: ``field`` is ``#start``, ``#end`` or empty for the struct; ``legs`` are the
    sources whose window it is, the first that is there."""

    field: str
    legs: tuple[int, ...]


def leg_window(leg: int, kind: DataType) -> Call:
    """The window of a source whose event time is of type ``kind``."""
    return whole(Column(leg_column(leg, WINDOW_START), kind), Column(leg_column(leg, WINDOW_END), kind))


def whole(start: Expression, end: Expression) -> Call:
    """The struct of a window.

    >>> from millstream.model.types import TIMESTAMP
    >>> whole(Column("0.#start", TIMESTAMP), Column("0.#end", TIMESTAMP)).type.kind
    'window'
    """
    return Call("Window", (start, end), DataType(_WHOLE[start.type.kind]))


def is_whole(expression: Expression) -> bool:
    return isinstance(expression, Call) and expression.op == "Window"


def start_of(expression: Expression) -> Expression:
    """The start of a struct; other expressions are themselves."""
    return expression.args[0] if isinstance(expression, Call) and expression.op == "Window" else expression


def coalesced(windows: tuple[Expression, ...]) -> Call | None:
    """The coalesce of structs as a struct, None when some of them are none. A source's start and end are NULL together,
    when it is not there, so the fields can be coalesced one by one."""
    structs = [window for window in windows if isinstance(window, Call) and window.op == "Window"]
    if len(structs) < len(windows):
        return None
    fields = [tuple(part for struct in structs for part in _parts(struct.args[at])) for at in (0, 1)]
    start, end = (typed(Call("Coalesce", parts, parts[0].type)) for parts in fields)
    return whole(start, end)


def _parts(expression: Expression) -> tuple[Expression, ...]:
    return expression.args if isinstance(expression, Call) and expression.op == "Coalesce" else (expression,)


def cast_whole(window: Expression, target: DataType) -> Call | None:
    """A struct cast to a struct of other timestamps, None for anything else."""
    if not isinstance(window, Call) or window.op != "Window" or target.kind not in _WHOLE.values():
        return None
    if window.type == target:
        return window
    field = next(DataType(kind) for kind, struct in _WHOLE.items() if struct == target.kind)
    start, end = (typed(Call("Cast", (part,), field)) for part in window.args)
    return whole(start, end)


def of_window(expression: Expression) -> bool:
    """Whether the expression reads the start or end of some source's window."""
    return any(name[0].isdigit() and leg_of(name)[1] in _FIELDS for name in columns(expression))


def of_windows_only(expression: Expression) -> bool:
    return all(name[0].isdigit() and leg_of(name)[1] in _FIELDS for name in columns(expression))


def window_of(expression: Expression) -> WindowOf | None:
    """Which window the expression is, or gives the start or end of; None for anything else."""
    if isinstance(expression, Column):
        if not expression.name[0].isdigit():
            return None
        leg, name = leg_of(expression.name)
        return WindowOf(name, (leg,)) if name in _FIELDS else None
    if not isinstance(expression, Call):
        return None
    if expression.op == "Window":
        start = window_of(expression.args[0])
        return start and WindowOf("", start.legs)
    if expression.op == "Cast" and expression.type.kind in _TIMES and expression.args[0].type.kind in _TIMES:
        return window_of(expression.args[0])
    if expression.op == "Coalesce":
        parts = [window_of(part) for part in expression.args]
        known = [part for part in parts if part is not None]
        if len(known) == len(parts) and len({part.field for part in known}) == 1:
            return WindowOf(known[0].field, tuple(dict.fromkeys(leg for part in known for leg in part.legs)))
    return None


def over_groups(expression: Expression, kind: DataType, always: Callable[[tuple[int, ...]], bool]) -> Expression:
    """The expression after grouping by a window of ``kind`` timestamps: windows that every row has are the group's."""

    def change(node: Expression) -> Expression | None:
        found = window_of(node)
        if found is None or not always(found.legs):
            return None
        if found.field:
            return _typed_field(Column(found.field, kind), node.type)
        start, end = (_typed_field(Column(name, kind), start_of(node).type) for name in (WINDOW_START, WINDOW_END))
        return whole(start, end)

    return rewrite(expression, change)


def _typed_field(column: Column, kind: DataType) -> Expression:
    return column if column.type == kind else typed(Call("Cast", (column,), kind))
