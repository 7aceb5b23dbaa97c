"""The DuckDB statement that joins the rows of a window.

The order of the joins is decided here and not by DuckDB, so that the rows come in the same order whenever the same
legs are joined, and so that tables are built of single legs wherever the tree allows it: one side streams through
them, and no pair of rows is ever kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from millstream.model.expression import Call, Column, Expression, Literal, columns, conjuncts, rewrite
from millstream.model.join import JoinNode, JoinQuery, Ranking, Tree, joins_of, leaves_of, leg_column, leg_of, legs_of
from millstream.model.query import WINDOW_END, WINDOW_START
from millstream.model.types import BOOLEAN, DataType
from millstream.sql.functions import Program, translate
from millstream.sql.functions.folding import folded
from millstream.sql.functions.literals import identifier

# DuckDB's own choices that would change the order of rows or build a table of pairs.
DISABLED_OPTIMIZERS = "join_order,build_side_probe_side"

_MIRRORED = {"left": "right", "right": "left", "full": "full"}
_BOUNDS = (WINDOW_START, WINDOW_END)
_Pairs = list[tuple[Expression, Expression]]


@dataclass(frozen=True, slots=True)
class Input:
    """A column that a leg hands over, and what the statement calls it: DuckDB's identifiers ignore case."""

    name: str
    type: DataType
    inside: str


@dataclass(frozen=True, slots=True)
class Statement:
    """``joined`` gives the rows that pass all conditions; outputs are computed after the skipped rows are gone."""

    inputs: tuple[tuple[Input, ...], ...]
    joined: str
    columns: tuple[str, ...]
    program: Program
    outputs: tuple[str, ...]

    def rows(self, skip: int) -> str:
        """Answers without the first ``skip`` rows, in columns ``v0``, ``v1`` …"""
        offset = f" OFFSET {int(skip)}" if skip else ""
        return self.program.select(self.outputs, f"(SELECT {_listed(self.columns)} FROM {self.joined}{offset})")

    @property
    def count(self) -> str:
        return f"SELECT count(*) FROM {self.joined}"


def leg_table(leg: int) -> str:
    """The name under which the statement reads a leg."""
    return f"leg{leg}"


def reads_window(query: JoinQuery) -> bool:
    """Whether the conditions of a query, and so the number of its rows, depend on the bounds of the window."""
    return any(leg_of(name)[1] in _BOUNDS for condition in _conditions(query) for name in columns(condition))


def statement(query: JoinQuery, sizes: Sequence[int], start: int, end: int) -> Statement:
    """The statement for legs of these sizes in the window from ``start`` to ``end``."""
    window = _Window(start, end, _unmatched(query.tree))
    read = [*_conditions(query), *(output.expression for output in query.outputs)]
    inputs = _inputs(len(sizes), [window.bounded(expression) for expression in read])
    builder = _Builder(window, inputs, sizes)
    part = builder.part(query.tree)
    if query.where is not None:
        part = builder.filtered(part, [builder.inner(c) for c in conjuncts(query.where)])
    if query.ranking is not None:
        part = builder.ranked(part, query.ranking)
    program = Program()
    values = [f"{program.value(builder.inner(o.expression))} AS v{i}" for i, o in enumerate(query.outputs)]
    return Statement(inputs, part.sql, tuple(builder.columns(part.legs)), program, tuple(values))


def _conditions(query: JoinQuery) -> Iterator[Expression]:
    """All expressions of a query but its outputs."""
    for node in joins_of(query.tree):
        for pair in node.equal:
            yield from pair
        if node.residual is not None:
            yield node.residual
    if query.where is not None:
        yield query.where
    if query.ranking is not None:
        yield from query.ranking.partition
        yield from (order.expression for order in query.ranking.order)


def _unmatched(tree: Tree) -> frozenset[int]:
    """The legs that an outer join can leave without a row."""
    found: set[int] = set()
    for node in joins_of(tree):
        if node.kind in ("left", "full"):
            found.update(leaves_of(node.right))
        if node.kind in ("right", "full"):
            found.update(leaves_of(node.left))
    return frozenset(found)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "TRUE"


@dataclass(frozen=True, slots=True)
class _Window:
    """The bounds of the window: constants, except in legs that may have no row."""

    start: int
    end: int
    unmatched: frozenset[int]

    def bounded(self, expression: Expression) -> Expression:
        """The expression with constants for bounds that are always there; a window without a start is NULL."""

        def change(node: Expression) -> Expression | None:
            if isinstance(node, Column):
                return self._constant(node)
            if isinstance(node, Call) and node.op == "Window":
                return _missing_without_start(replace(node, args=tuple(self.bounded(a) for a in node.args)))
            return None

        return folded(rewrite(expression, change))

    def value(self, name: str) -> int:
        """A bound, in microseconds."""
        return self.start if name == WINDOW_START else self.end

    def _constant(self, column: Column) -> Expression | None:
        leg, name = leg_of(column.name)
        return Literal(self.value(name), column.type) if name in _BOUNDS and leg not in self.unmatched else None


def _missing_without_start(window: Call) -> Expression:
    start = window.args[0]
    if isinstance(start, Literal):
        return window
    missing = Call("IsNull", (start,), BOOLEAN)
    return Call("If", (missing, Literal(None, window.type), window), window.type)


def _inputs(legs: int, expressions: Sequence[Expression]) -> tuple[tuple[Input, ...], ...]:
    """The columns that the expressions read, by leg."""
    found: list[dict[str, DataType]] = [{} for _ in range(legs)]

    def note(node: Expression) -> Expression | None:
        if isinstance(node, Column):
            leg, name = leg_of(node.name)
            if name not in _BOUNDS:
                found[leg][name] = node.type
        return None

    for expression in expressions:
        rewrite(expression, note)
    return tuple(
        tuple(Input(name, types[name], leg_column(leg, f"c{i}")) for i, name in enumerate(sorted(types)))
        for leg, types in enumerate(found)
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of some legs: what stands behind FROM. ``rows`` guesses how many; a leaf is a single leg."""

    sql: str
    legs: frozenset[int]
    rows: int
    leaf: bool = False

    @property
    def weight(self) -> tuple[bool, int]:
        """The heavier of two parts streams; a table is built of the other. Joined rows may be more than fit."""
        return not self.leaf, self.rows


@dataclass(slots=True)
class _Region:
    """Parts joined by inner joins alone, in whatever order, and all conditions on them."""

    parts: list[_Part] = field(default_factory=list)
    pairs: _Pairs = field(default_factory=list)
    conditions: list[Expression] = field(default_factory=list)

    def keys(self, left: _Part, right: _Part) -> _Pairs:
        """The pairs that link two parts, each turned so that its first side is over ``left``."""
        found = []
        for one, other in self.pairs:
            if legs_of(one) <= left.legs and legs_of(other) <= right.legs:
                found.append((one, other))
            elif legs_of(other) <= left.legs and legs_of(one) <= right.legs:
                found.append((other, one))
        return found

    def ordered(self, parts: Sequence[_Part]) -> list[_Part]:
        """The heaviest part, then always the lightest of those that an equality links to the ones before it."""
        waiting = list(parts)
        done = max(waiting, key=lambda part: part.weight)
        ordered = [done]
        waiting.remove(done)
        while waiting:
            near = [part for part in waiting if self.keys(done, part)] or waiting
            ordered.append(min(near, key=lambda part: part.weight))
            waiting.remove(ordered[-1])
            done = replace(done, legs=done.legs | ordered[-1].legs)
        return ordered

    def take_pairs(self, left: _Part, right: _Part) -> _Pairs:
        """The linking pairs, which need not be checked again; others that both parts decide become conditions."""
        keys = self.keys(left, right)
        used = {frozenset(pair) for pair in keys}
        legs = left.legs | right.legs
        waiting = []
        for pair in self.pairs:
            if frozenset(pair) in used:
                continue
            if legs_of(pair[0]) | legs_of(pair[1]) <= legs:
                self.conditions.append(Call("EqualTo", pair, BOOLEAN))
            else:
                waiting.append(pair)
        self.pairs = waiting
        return keys

    def take_conditions(self, legs: frozenset[int]) -> list[Expression]:
        ready = [condition for condition in self.conditions if legs_of(condition) <= legs]
        self.conditions = [condition for condition in self.conditions if not legs_of(condition) <= legs]
        return ready


class _Builder:
    def __init__(self, window: _Window, inputs: Sequence[Sequence[Input]], sizes: Sequence[int]) -> None:
        self._window = window
        self._inputs = inputs
        self._sizes = sizes
        self._names = {leg_column(leg, c.name): c.inside for leg, mine in enumerate(inputs) for c in mine}
        self.numbers = count()

    def inner(self, expression: Expression) -> Expression:
        """The expression as the statement computes it, over the columns inside."""

        def renamed(node: Expression) -> Expression | None:
            return replace(node, name=self._names.get(node.name, node.name)) if isinstance(node, Column) else None

        return rewrite(self._window.bounded(expression), renamed)

    def columns(self, legs: frozenset[int]) -> list[str]:
        """All columns of some legs that anything reads."""
        names = [[*(c.inside for c in self._inputs[leg]), *self._bounds(leg)] for leg in sorted(legs)]
        return [identifier(name) for mine in names for name in mine]

    def part(self, tree: Tree) -> _Part:
        if isinstance(tree, int):
            return self._leg(tree)
        return self._inner_joins(tree) if tree.kind == "inner" else self._other_join(tree)

    def filtered(self, part: _Part, conditions: Sequence[Expression]) -> _Part:
        if not conditions:
            return part
        program = Program()
        truth = " AND ".join(program.value(condition) for condition in conditions)
        return replace(part, sql=f"({program.select([_listed(self.columns(part.legs))], part.sql)} WHERE {truth})")

    def ranked(self, part: _Part, ranking: Ranking) -> _Part:
        """Only the first rows by rank; this needs all of them."""
        program = Program()
        by = [program.value(self.inner(expression)) for expression in ranking.partition]
        order = [
            f"{program.value(self.inner(o.expression))} {'ASC' if o.ascending else 'DESC'} "
            f"NULLS {'FIRST' if o.nulls_first else 'LAST'}"
            for o in ranking.order
        ]
        over = " ".join([*([f"PARTITION BY {', '.join(by)}"] if by else []), f"ORDER BY {', '.join(order)}"])
        select = program.select([_listed(self.columns(part.legs))], part.sql)
        return replace(part, sql=f"({select} QUALIFY {ranking.function}() OVER ({over}) <= {int(ranking.limit)})")

    def _bounds(self, leg: int) -> list[str]:
        return [leg_column(leg, name) for name in _BOUNDS] if leg in self._window.unmatched else []

    def _leg(self, leg: int) -> _Part:
        sql = leg_table(leg)
        if self._bounds(leg):
            values = [f"make_timestamp({self._window.value(name)})" for name in _BOUNDS]
            bounds = [f"{v} AS {identifier(b)}" for v, b in zip(values, self._bounds(leg), strict=True)]
            sql = f"(SELECT *, {', '.join(bounds)} FROM {sql})"
        return _Part(sql, frozenset([leg]), self._sizes[leg], leaf=True)

    def _inner_joins(self, tree: JoinNode) -> _Part:
        """Left-deep, each step along an equality where there is one, small legs first."""
        region = _Region()
        self._collect(tree, region)
        parts = [self.filtered(part, region.take_conditions(part.legs)) for part in region.parts]
        ordered = self._reduced(region.ordered(parts), region)
        done = ordered[0]
        for part in ordered[1:]:
            done = self._joined("INNER", done, part, region.take_pairs(done, part))
            done = self.filtered(done, region.take_conditions(done.legs))
        return done

    def _reduced(self, parts: list[_Part], region: _Region) -> list[_Part]:
        """Parts without the rows that find no partner further on, so that no step makes rows which a later one drops:
        the first half of Yannakakis' algorithm, which is enough where the second step follows the same order."""
        if len(parts) == 2:
            return parts
        reduced = list(parts)
        for place in range(len(parts) - 1, 0, -1):
            before = next((i for i in range(place) if region.keys(parts[i], parts[place])), None)
            # Joined rows would have to be made twice.
            if before is not None and parts[place].leaf:
                keys = region.keys(parts[before], parts[place])
                kept = self._joined("SEMI", reduced[before], reduced[place], keys)
                reduced[before] = replace(reduced[before], sql=kept.sql)
        return reduced

    def _collect(self, tree: Tree, region: _Region) -> None:
        if isinstance(tree, int) or tree.kind != "inner":
            region.parts.append(self.part(tree))
            return
        self._collect(tree.left, region)
        self._collect(tree.right, region)
        region.pairs.extend((self.inner(one), self.inner(other)) for one, other in tree.equal)
        region.conditions.extend(self.inner(condition) for condition in conjuncts(tree.residual))

    def _other_join(self, node: JoinNode) -> _Part:
        left, right, kind = self.part(node.left), self.part(node.right), node.kind
        keys = [(self.inner(one), self.inner(other)) for one, other in node.equal]
        residual = [self.inner(condition) for condition in conjuncts(node.residual)]
        if kind in _MIRRORED and right.weight > left.weight:
            left, right, kind = right, left, _MIRRORED[kind]
            keys = [(other, one) for one, other in keys]
        return self._joined(kind.upper(), left, right, keys, residual)

    def _joined(self, kind: str, left: _Part, right: _Part, keys: _Pairs, on: Sequence[Expression] = ()) -> _Part:
        """``kind`` of DuckDB; the table is built of the right."""
        sides = _Side(left), _Side(right)
        names = [(sides[0].column(one, self), sides[1].column(other, self)) for one, other in keys]
        equal = [f"{identifier(one)} = {identifier(other)}" for one, other in names]
        mixed = [translate(self._split(condition, sides)) for condition in on]
        matched = " AND ".join([*equal, *mixed]) or "TRUE"
        halved = kind in ("SEMI", "ANTI")
        legs = left.legs if halved else left.legs | right.legs
        one, other = (side.sql(self, distinct=halved and side.part is right and not right.leaf) for side in sides)
        select = f"(SELECT {_listed(self.columns(legs))} FROM {one} {kind} JOIN {other} ON {matched})"
        return _Part(select, legs, max(left.rows, 0 if halved else right.rows))

    def _split(self, condition: Expression, sides: tuple[_Side, _Side]) -> Expression:
        """A condition on both sides in which all that reads one side alone is a column of that side: an ON clause has
        no place for the projections that keep nested calls short."""

        def change(node: Expression) -> Expression | None:
            legs = legs_of(node)
            for side in sides:
                if legs and legs <= side.part.legs:
                    return Column(side.column(node, self), node.type)
            return None

        return rewrite(condition, change)


class _Side:
    """One side of a join and the values that its ON clause needs of it."""

    def __init__(self, part: _Part) -> None:
        self.part = part
        self._program = Program()
        self._used: dict[str, None] = {}
        self._added: dict[Expression, str] = {}

    def column(self, expression: Expression, builder: _Builder) -> str:
        """The column that holds the value."""
        if isinstance(expression, Column):
            self._used[identifier(expression.name)] = None
            return expression.name
        if expression not in self._added:
            self._added[expression] = f"#x{next(builder.numbers)}"
        return self._added[expression]

    def sql(self, builder: _Builder, distinct: bool) -> str:
        """What stands behind FROM; ``distinct``: only the values, each once, which is all a semi-join asks for."""
        added = [f"{self._program.value(e)} AS {identifier(name)}" for e, name in self._added.items()]
        if distinct:
            wanted = _listed([*self._used, *added])
            return f"({self._program.select(['DISTINCT ' + wanted], self.part.sql)})"
        if not added:
            return self.part.sql
        return f"({self._program.select([*builder.columns(self.part.legs), *added], self.part.sql)})"
