"""Random joins of two to five sources, of all kinds, drawn so that rows meet, and not too many of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from .expressions import Expressions, Leaf, Sql, boolean, same
from .grammar import (
    constants_near,
    life,
    named,
    random_aggregate,
    random_items,
    random_keys,
    random_layout,
    random_ranking,
)
from .join_keys import Source, random_equality
from .join_sizes import PAIRS_BOUND, fitting_part, fitting_windows
from .joins import HALF_JOINS, JoinCase, Joined, LegCase, Tree, joins_of, patterns, visible
from .numeric import NUMBERS
from .queries import Item
from .streams import JOIN_KEYS, StreamCase

ALIASES = ("a", "b", "c", "x", "y1")
INNER = ("JOIN", "INNER JOIN")
KINDS = {**dict.fromkeys(INNER, 25), "LEFT JOIN": 15, "RIGHT JOIN": 10, "FULL JOIN": 10, **dict.fromkeys(HALF_JOINS, 8)}


def random_join(shape: Random, constants: Random, id: str, streams: Sequence[StreamCase], rounds: int) -> JoinCase:
    """``shape`` decides what the query looks like, ``constants`` its literals, window and life."""
    drawing = _Drawing(shape, constants, random_sources(shape, constants, streams))
    grouped = shape.random() < 0.45
    sizes = [source.stream for source in drawing.sources]
    tree = fitting_part(drawing.tree(), sizes, grouped)
    query = JoinCase(
        id=id,
        legs=tuple(source.leg for source in drawing.sources[: _last_leg(tree) + 1]),
        tree=tree,
        items=(),
        where=drawing.where(tree),
        window=max(constants.choices(fitting_windows(tree, sizes, grouped), k=2), key=lambda window: window.size),
        at=drawing.present_window(tree),
        comma=all(join.kind in INNER and not join.using for join in joins_of(tree)) and shape.random() < 0.3,
        layout=random_layout(shape),
    )
    query = drawing.grouped(query) if grouped else drawing.rows(query)
    # A join closes less than its streams do.
    create_at, delete_at = life(constants, rounds, short=0.25)
    return replace(query, create_at=create_at, delete_at=delete_at)


def random_sources(shape: Random, constants: Random, streams: Sequence[StreamCase]) -> list[Source]:
    """The sources: CTEs, some of them used twice, or subqueries in FROM."""
    written = shape.choice(("table", "table", "subquery", "both"))
    spell = shape.choice((str, str, str.upper, str.lower))
    sources: list[Source] = []
    for alias in ALIASES[: shape.choices((2, 3, 4, 5), (50, 28, 12, 10))[0]]:
        stream = shape.choice(streams)
        leg = _leg(shape, constants, alias, stream, written)
        again = [s.leg for s in sources if s.stream is stream and s.leg.table]
        if again and shape.random() < 0.35:
            leg = replace(shape.choice(again), alias=alias)
        sources.append(_source(leg, stream, spell))
    return sources


def _leg(shape: Random, constants: Random, alias: str, stream: StreamCase, written: str) -> LegCase:
    own = Expressions(shape, stream.leaves(), constants)
    where = own.predicate(shape.choice((0, 0, 1, 2))) if shape.random() < 0.25 else None
    extra: tuple[Item, ...] = ()
    if shape.random() < 0.2:
        extra = (Item(shape.choice((same("5", "int"), own.value(2), own.conditional("int", 1))), "x1"),)
    table = f"{alias}_rows" if shape.random() < 0.3 else alias
    in_from = written == "subquery" or (written == "both" and shape.random() < 0.5)
    columns = tuple(stream.table.column_names)
    return LegCase(alias, stream.name, stream.time, columns, where, extra, None if in_from else table)


def _source(leg: LegCase, stream: StreamCase, spell: Callable[[str], str]) -> Source:
    leaves = stream.leaves(lambda name: f"{leg.alias}.{spell(name)}")
    for item in leg.extra:
        sql = replace(item.sql, engine=f"{leg.alias}.{item.alias}", twin=f"{leg.alias}.{item.alias}")
        leaves.append(Leaf(sql, constants_near(sql)))
    bounds = (same(f"{leg.alias}.w.{part}", stream.time_type) for part in ("start", "end"))
    return Source(leg, stream, tuple(leaves), tuple(Leaf(bound, stream.moment_constant) for bound in bounds))


def _last_leg(tree: Tree) -> int:
    return tree if isinstance(tree, int) else _last_leg(tree.right)


@dataclass(frozen=True, slots=True)
class _Drawing:
    shape: Random
    constants: Random
    sources: list[Source]

    def _leaves(self, legs: Sequence[int], windows: bool = False) -> list[Leaf]:
        """The columns of some legs; mostly those that half of all queries are about."""
        chosen = [self.sources[leg] for leg in legs]
        if self.shape.random() < 0.5:
            found = [leaf for source in chosen for leaf in source.popular]
        else:
            found = [leaf for source in chosen for leaf in source.leaves]
        return found + [leaf for source in chosen for leaf in source.windows if windows]

    def _expressions(self, leaves: Sequence[Leaf], stable: bool = True) -> Expressions:
        return Expressions(self.shape, leaves, self.constants, stable=stable)

    # The tree.

    def tree(self) -> Tree:
        """From left to right; now and then the last two sources are joined first."""
        count = len(self.sources)
        nested = count > 2 and self.shape.random() < 0.15
        using = self._common_columns() if self.shape.random() < 0.25 else None
        by_name = self.shape.choice((count, count, 1))
        tree: Tree = 0
        for leg in range(1, count - 2 if nested else count):
            by_using = using if using is not None and leg <= by_name else None
            tree = self._join(tree, leg, by_using)
        if nested:
            tree = self._join(tree, self._join(count - 2, count - 1, None), None)
        return tree

    def _common_columns(self) -> tuple[str, ...]:
        return tuple(self.shape.sample(JOIN_KEYS, self.shape.choice((0, 1, 1, 1, 2))))

    def _join(self, left: Tree, right: Tree, using: tuple[str, ...] | None) -> Joined:
        kind = self.shape.choices(list(KINDS), list(KINDS.values()))[0]
        sides = [self.sources[leg] for leg in visible(left)], [self.sources[leg] for leg in visible(right)]
        if using is not None:
            shares = [sides[1][0].share(name) for name in using]
            return Joined(kind, left, right, tie=("w", "w"), using=(*using, "w"), share=min(shares, default=1.0))
        count = self.shape.choices((0, 1, 2, 3), (6, 74, 16, 4))[0]
        found = [random_equality(self.shape, *sides) for _ in range(count)]
        field = self.shape.choice(("", "", "", ".start", ".end"))
        tie = [f"{self.shape.choice(side).leg.alias}.w{field}" for side in sides]
        return Joined(
            kind,
            left,
            right,
            equal=tuple(dict.fromkeys(one.pair for one in found)),
            conditions=self._conditions([*visible(left), *visible(right)], least=int("ANTI" in kind)),
            tie=(tie[0], tie[1]),
            share=min((one.share for one in found), default=1.0),
        )

    def _conditions(self, legs: Sequence[int], least: int) -> tuple[Sql, ...]:
        """What ON asks beside equalities; of an anti join at least something, or a self-join would keep no row."""
        found = []
        for _ in range(max(least, self.shape.choices((0, 1, 2), (76, 19, 5))[0])):
            expressions = self._expressions(self._leaves(legs))
            if self.shape.random() < 0.5:
                one, two = (expressions.leaf(NUMBERS) for _ in range(2))
                found.append(boolean(f"({{0}} {self.shape.choice(('<', '<=', '>', '<>', '<=>'))} {{1}})", one, two))
            else:
                found.append(expressions.predicate(self.shape.choice((0, 1, 2))))
        return tuple(found)

    def where(self, tree: Tree) -> Sql | None:
        if self.shape.random() < 0.8:
            return None
        leaves = self._leaves(visible(tree), windows=self.shape.random() < 0.2)
        return self._expressions(leaves).predicate(self.shape.choice((0, 1, 1, 2)))

    def present_window(self, tree: Tree) -> str:
        """A window that every row has."""
        if all(join.using for join in joins_of(tree)):
            return "w"
        always = sorted(frozenset.intersection(*patterns(tree)))
        if always:
            return f"{self.sources[self.shape.choice(always)].leg.alias}.w"
        return f"coalesce({', '.join(f'{self.sources[leg].leg.alias}.w' for leg in visible(tree))})"

    # What is selected.

    def rows(self, query: JoinCase) -> JoinCase:
        legs = visible(query.tree)
        if self.shape.random() < 0.1:
            alias = self.sources[self.shape.choice(legs)].leg.alias
            return replace(query, items=(Item(same("*" if len(legs) == 1 else f"{alias}.*", "star")),))
        distinct = self.shape.random() < 0.12
        leaves = self._leaves(legs, windows=not distinct)
        values = self._expressions(leaves, stable=distinct)
        shown = [values.value(self.shape.choice((0, 0, 1, 2))) for _ in range(self.shape.randint(1, 5))]
        if distinct:
            shown.append(same(query.at, "window"))
        elif self.shape.random() < 0.25:
            shown.append(same(f"{self.sources[self.shape.choice(legs)].leg.alias}.w", "window"))
        return replace(query, items=named(self.shape, shown), distinct=distinct)

    def grouped(self, query: JoinCase) -> JoinCase:
        leaves = self._leaves(visible(query.tree))
        rows, loose = self._expressions(leaves), self._expressions(leaves, stable=False)
        every = [leaf for leg in visible(query.tree) for leaf in self.sources[leg].leaves]
        keys = random_keys(self.shape, rows, every)
        aggregates = [random_aggregate(self.shape, rows, loose, PAIRS_BOUND) for _ in range(self.shape.randint(1, 4))]
        stream = self.sources[0].stream
        bounds = [same(f"{query.at}.{part}", stream.time_type) for part in ("start", "end")]
        results = [Leaf(result, constants_near(result)) for result in (*aggregates, *keys)]
        results += [Leaf(bound, stream.moment_constant) for bound in bounds]
        stable = self._expressions(results)
        items = random_items(self.shape, keys, aggregates, results, stable, same(query.at, "window"))
        having = stable.predicate(self.shape.randint(0, 2)) if self.shape.random() < 0.15 else None
        items, ranking = random_ranking(self.shape, items, keys) if self.shape.random() < 0.2 else (items, None)
        if ranking and ranking.form == "qualify" and query.at.startswith("coalesce"):
            # QUALIFY can name what GROUP BY computes only if SELECT has it.
            ranking = replace(ranking, form="column")
        return replace(
            query,
            items=items,
            keys=keys,
            having=having,
            grouped=True,
            ranking=ranking,
            grouping=self.shape.choice(("text", "text", "text", "alias", "ordinal")),
            window_place=self.shape.choice((0, len(keys))),
        )
