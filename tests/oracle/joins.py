"""A join in parts, from which the user's text and the text for plain Spark are built."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from .expressions import Sql
from .queries import END, Clauses, Item, RankingCase, WindowCase, grouping_text, laid_out

# What the join kinds leave unmatched rows of: such a row has NULL for the other side.
UNMATCHED = {"LEFT JOIN": "left", "RIGHT JOIN": "right", "FULL JOIN": "left right"}
HALF_JOINS = ("LEFT SEMI JOIN", "LEFT ANTI JOIN")

Side = Callable[[Sql], str]


def engine_side(sql: Sql) -> str:
    return sql.engine


def twin_side(sql: Sql) -> str:
    return sql.twin


@dataclass(frozen=True, slots=True)
class LegCase:
    """A source: a stream with its window as the column ``w``, under an alias. ``table`` is the name of its CTE, which
    several legs can have in common; without one it is a subquery in FROM."""

    alias: str
    stream: str
    time: str
    columns: tuple[str, ...]
    where: Sql | None = None
    # Columns that the source computes beside those of its stream.
    extra: tuple[Item, ...] = ()
    table: str | None = None

    def text(self, window: WindowCase) -> str:
        """What the user writes."""
        computed = [f"{item.sql.engine} AS {item.alias}" for item in self.extra]
        columns = ["*", *computed, f"{window.call(self.time)} AS w"]
        where = f" WHERE {self.where.engine}" if self.where else ""
        return f"SELECT {', '.join(columns)} FROM {self.stream}{where}"

    def twin(self, window: WindowCase, source: str, on_time: str | None) -> str:
        """The same rows of ``source``, without those that are late for a window."""
        columns = [*(f"`{c}`" for c in self.columns), *(f"{i.sql.twin} AS {i.alias}" for i in self.extra), "w"]
        conditions = [*([on_time] if on_time else []), *([self.where.twin] if self.where else [])]
        where = f" WHERE {' AND '.join(f'({c})' for c in conditions)}" if conditions else ""
        windowed = f"(SELECT *, {window.call(self.time)} AS w FROM {source}) AS {self.stream}"
        return f"SELECT {', '.join(columns)} FROM {windowed}{where}"


@dataclass(frozen=True, slots=True)
class Joined:
    """``left kind right``, with the conditions in parts. ``tie`` are the windows that are equated, as SQL spells them;
    with ``using`` the columns and the window are equated by name instead. A row of the left meets at most about
    ``share`` of the right."""

    kind: str
    left: Tree
    right: Tree
    equal: tuple[tuple[Sql, Sql], ...] = ()
    conditions: tuple[Sql, ...] = ()
    tie: tuple[str, str] = ("", "")
    using: tuple[str, ...] = ()
    share: float = 1.0

    def terms(self, side: Side, operator: str) -> list[str]:
        """The conjuncts of ON."""
        equal = [f"{side(one)} {operator} {side(two)}" for one, two in self.equal]
        return [*equal, f"{self.tie[0]} = {self.tie[1]}", *(side(condition) for condition in self.conditions)]


Tree = int | Joined


def joins_of(tree: Tree) -> Iterator[Joined]:
    if isinstance(tree, Joined):
        yield from joins_of(tree.left)
        yield from joins_of(tree.right)
        yield tree


def each_join(tree: Tree, change: Callable[[Joined], Joined]) -> Tree:
    """The tree with every join changed."""
    if isinstance(tree, int):
        return tree
    return change(replace(tree, left=each_join(tree.left, change), right=each_join(tree.right, change)))


def patterns(tree: Tree) -> frozenset[frozenset[int]]:
    """The sets of legs that a row can have, of those that can be read above the tree."""
    if isinstance(tree, int):
        return frozenset([frozenset([tree])])
    left, right = patterns(tree.left), patterns(tree.right)
    if tree.kind in HALF_JOINS:
        return left
    found = {one | two for one in left for two in right}
    kept = UNMATCHED.get(tree.kind, "").split()
    return frozenset(found.union(*([left] if "left" in kept else []), *([right] if "right" in kept else [])))


def visible(tree: Tree) -> list[int]:
    return sorted(frozenset().union(*patterns(tree)))


@dataclass(frozen=True, slots=True)
class JoinCase:
    """A join with its life in batches. ``at`` is the window that every row has, as SQL spells it.

    ``grouped``: GROUP BY keys and window; otherwise the rows themselves, or the ``distinct`` ones.
    """

    id: str
    legs: tuple[LegCase, ...]
    tree: Tree
    items: tuple[Item, ...]
    where: Sql | None
    window: WindowCase
    at: str
    keys: tuple[Sql, ...] = ()
    having: Sql | None = None
    create_at: int = 0
    delete_at: int | None = None
    grouped: bool = False
    distinct: bool = False
    ranking: RankingCase | None = None
    grouping: str = "text"
    window_place: int = 0
    # Sources between commas, all conditions in WHERE.
    comma: bool = False
    layout: str = "line"
    # How columns are equated: ``<=>`` would match NULLs.
    operator: str = "="

    @property
    def streams(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(leg.stream for leg in self.legs))

    @property
    def bounds(self) -> list[float]:
        """The size of the values behind each column; unknown where a star stands for several."""
        starred = any(item.sql.engine.endswith("*") for item in self.items)
        return [] if starred else [item.sql.range.bound for item in self.items]

    @property
    def sql(self) -> str:
        """The user's text."""
        tables = {leg.table: leg.text(self.window) for leg in self.legs if leg.table}
        sources = [leg.table or f"({leg.text(self.window)})" for leg in self.legs]
        items = [f"{i.sql.engine} AS {i.alias}" if i.alias else i.sql.engine for i in self.items]
        groups = [grouping_text(key, self.items, self.grouping) for key in self.keys]
        groups.insert(self.window_place, self.at)
        clauses = self._clauses(engine_side, sources, items, groups)
        if tables:
            clauses.insert(0, ("WITH", ", ".join(f"{name} AS ({text})" for name, text in tables.items())))
        if self.ranking:
            names = [item.alias or "" for item in self.items]
            clauses = self.ranking.ranked(clauses, names, [i.sql.engine for i in self.items], self.at)
        return laid_out(clauses, self.layout)

    def twin(self, sources: Mapping[str, str], on_time: Mapping[str, str | None]) -> str:
        """The text for plain Spark, over ``sources`` that have the rows of each stream's cut, and ``on_time`` that says
        which of them count in a window ``w``, where some do not. The column ``__end`` is the window's end."""
        places = enumerate(self.items)
        items = [i.sql.twin if i.sql.engine.endswith("*") else f"{i.sql.twin} AS c{place}" for place, i in places]
        rows = [f"({leg.twin(self.window, sources[leg.stream], on_time[leg.stream])})" for leg in self.legs]
        groups = [*(key.twin for key in self.keys), self.at]
        items.append(f"{self.at}.end AS {END}")
        clauses = self._clauses(twin_side, rows, items, groups)
        if self.ranking:
            names = [f"c{place}" for place in range(len(self.items))]
            clauses = self.ranking.ranked(clauses, names, [i.sql.twin for i in self.items], self.at, END)
        return laid_out(clauses, "line")

    def _clauses(self, side: Side, sources: list[str], items: list[str], groups: list[str]) -> Clauses:
        named = [f"{source} AS {leg.alias}" for source, leg in zip(sources, self.legs, strict=True)]
        where = [side(self.where)] if self.where else []
        if self.comma:
            where = [term for join in joins_of(self.tree) for term in join.terms(side, self.operator)] + where
        clauses = [("SELECT DISTINCT" if self.distinct else "SELECT", ", ".join(items))]
        clauses.append(("FROM", ", ".join(named) if self.comma else self._joined(self.tree, named, side)))
        if where:
            clauses.append(("WHERE", " AND ".join(where)))
        if self.grouped:
            clauses.append(("GROUP BY", ", ".join(groups)))
        if self.having:
            clauses.append(("HAVING", side(self.having)))
        return clauses

    def _joined(self, tree: Tree, named: list[str], side: Side) -> str:
        if isinstance(tree, int):
            return named[tree]
        left, right = self._joined(tree.left, named, side), self._joined(tree.right, named, side)
        right = right if isinstance(tree.right, int) else f"({right})"
        if tree.using:
            return f"{left} {tree.kind} {right} USING ({', '.join(tree.using)})"
        return f"{left} {tree.kind} {right} ON {' AND '.join(tree.terms(side, self.operator))}"
