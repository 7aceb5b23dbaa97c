"""Questions in two dialects: Spark's SQL, which Millstream takes too, and Flink's, whose windows are table functions.

The last column of Flink's answers is ``window_end``: the end of the window, or the second of a row that has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.bench.driving.model import QuerySpec

SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Window:
    """Length and slide are in seconds."""

    length: int
    slide: int

    @property
    def sql(self) -> str:
        return f"window(time, '{self.length} seconds', '{self.slide} seconds')"

    @property
    def sliced(self) -> bool:
        """Whether it is a whole number of slides long: Flink aggregates no others that a table function makes."""
        return self.length % self.slide == 0

    def flink(self, stream: str) -> str:
        """The rows of a stream, once for each window that they are in.

        >>> Window(8, 4).flink("purchases")
        "TABLE(HOP(TABLE purchases, DESCRIPTOR(`time`), INTERVAL '4' SECOND, INTERVAL '8' SECOND))"
        """
        rows, length = f"TABLE {stream}, DESCRIPTOR(`time`)", f"INTERVAL '{self.length}' SECOND"
        if self.length == self.slide:
            return f"TABLE(TUMBLE({rows}, {length}))"
        return f"TABLE(HOP({rows}, INTERVAL '{self.slide}' SECOND, {length}))"


@dataclass(frozen=True, slots=True)
class Question:
    """The texts of a query; ``flink`` is None where Flink cannot be asked, ``plain`` is plain Spark's where its
    streaming refuses ``sql``."""

    sql: str
    flink: str | None
    window: Window | None = None
    plain: str | None = None

    def spec(self, id: str) -> QuerySpec:
        length, slide = (self.window.length, self.window.slide) if self.window else (0, 0)
        return QuerySpec(id, self.sql, length * SECOND, slide * SECOND, self.flink, self.plain)


@dataclass(frozen=True, slots=True)
class Item:
    """An output column: an expression and its name."""

    text: str
    name: str
    # Flink's text, where it is another.
    flink: str | None = None


def total(column: str, name: str) -> Item:
    """The sum of an INT, which Flink would keep as an INT and let overflow."""
    return Item(f"SUM({column})", name, f"SUM(CAST({column} AS BIGINT))")


@dataclass(frozen=True, slots=True)
class Leg:
    """A source of a join, under a name; ``condition`` may be empty."""

    name: str
    source: str
    condition: str = ""


def rows(stream: str, columns: Sequence[str], condition: str = "") -> Question:
    """Columns of the rows that pass, without a window."""
    listed = ", ".join(columns)
    return Question(
        f"SELECT {listed}, time FROM {stream}{_where(condition)}",
        f"SELECT {listed}, FLOOR(`time` TO SECOND) AS window_end FROM {stream}{_where(condition)}",
    )


def aggregation(window: Window, stream: str, condition: str, keys: Sequence[str], items: Sequence[Item]) -> Question:
    """Aggregates of the rows that pass, by keys and window; the keys are the first columns."""
    by, where = ", ".join(keys), _where(condition)
    sql = f"SELECT {by}, {_listed(items)} FROM {stream}{where} GROUP BY {by}, {window.sql}"
    if window.sliced:
        rows, edges, end = window.flink(stream), "window_start, window_end", "window_end"
    else:
        # The older way, which takes every window.
        hop = f"(`time`, INTERVAL '{window.slide}' SECOND, INTERVAL '{window.length}' SECOND)"
        rows, edges, end = stream, f"HOP{hop}", f"HOP_END{hop} AS window_end"
    flink = f"SELECT {by}, {_flink_listed(items)}, {end} FROM {rows}{where} GROUP BY {by}, {edges}"
    return Question(sql, flink, window)


@dataclass(frozen=True, slots=True)
class Join:
    """A windowed join of legs, each tied to those before it by a condition; with ``keys``, its aggregates by them and
    the window."""

    window: Window
    legs: tuple[Leg, ...]
    on: tuple[str, ...]
    items: tuple[Item, ...]
    keys: tuple[str, ...] = ()

    @property
    def question(self) -> Question:
        return Question(self.sql(), self.flink() if self.flink_answers else None, self.window)

    @property
    def flink_answers(self) -> bool:
        return self.window.sliced or not self.keys

    def sql(self, *more: str) -> str:
        """The text, with more columns if given."""
        window, first = self.window.sql, self.legs[0].name
        sources = (
            f"w{n} AS (SELECT *, {window} AS w FROM {leg.source}{_where(leg.condition)})"
            for n, leg in enumerate(self.legs, start=1)
        )
        joined = f"w1 AS {first}"
        for n, (leg, on) in enumerate(zip(self.legs[1:], self.on, strict=True), start=2):
            joined += f" JOIN w{n} AS {leg.name} ON {on} AND {first}.w = {leg.name}.w"
        by = f" GROUP BY {', '.join(self.keys)}, {first}.w" if self.keys else ""
        return f"WITH {', '.join(sources)} SELECT {', '.join([_listed(self.items), *more])} FROM {joined}{by}"

    def flink(self, *more: str) -> str:
        first, *others = self.legs
        joined = self._flink_leg(first)
        for leg, on in zip(others, self.on, strict=True):
            edges = " AND ".join(f"{first.name}.{edge} = {leg.name}.{edge}" for edge in ("window_start", "window_end"))
            joined += f" JOIN {self._flink_leg(leg)} ON {on} AND {edges}"
        window = (f"{first.name}.window_start", f"{first.name}.window_end")
        by = f" GROUP BY {', '.join([*self.keys, *window])}" if self.keys else ""
        listed = [_flink_listed(self.items), *more, f"{window[1]} AS window_end"]
        return f"SELECT {', '.join(listed)} FROM {joined}{by}"

    def _flink_leg(self, leg: Leg) -> str:
        return f"(SELECT * FROM {self.window.flink(leg.source)}{_where(leg.condition)}) AS {leg.name}"


def first_of_window(join: Join, order: str, tie: str) -> Question:
    """Of each window, the group whose column ``order`` is largest, and of those that tie the one with the smallest
    ``tie``, a number; both name output columns of a join with keys, and there are no others.

    Streaming Spark ranks no rows, so its text takes a maximum of the groups.
    """
    w = f"{join.legs[0].name}.w"
    ranked = f"PARTITION BY {w} ORDER BY {order} DESC, {tie}"
    place = f"ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY {order} DESC, {tie})"
    groups = join.flink(f"{join.legs[0].name}.window_start AS window_start")
    flink = f"SELECT {tie}, {order}, window_end FROM (SELECT *, {place} AS place FROM ({groups})) WHERE place <= 1"
    largest = f"max_by({tie}, struct({order}, -{tie})) AS {tie}, MAX({order}) AS {order}"
    return Question(
        f"{join.sql()} QUALIFY row_number() OVER ({ranked}) = 1",
        flink if join.flink_answers else None,
        join.window,
        f"SELECT {largest} FROM ({join.sql(f'{w} AS w')}) GROUP BY w",
    )


def _where(condition: str) -> str:
    return f" WHERE {condition}" if condition else ""


def _listed(items: Sequence[Item]) -> str:
    return ", ".join(f"{item.text} AS {item.name}" for item in items)


def _flink_listed(items: Sequence[Item]) -> str:
    return ", ".join(f"{item.flink or item.text} AS {item.name}" for item in items)
