"""What random joins equate: columns of one name, of one type, of different numeric types, and expressions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from .expressions import Expressions, Leaf, Sql, arithmetic, join, negated, same
from .joins import LegCase
from .numeric import INTEGERS, NUMBERS, Range
from .streams import JOIN_KEYS, StreamCase

# The share of rows with the most frequent value, where it is not known.
USUAL_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Source:
    """A leg, and its columns as the join sees them."""

    leg: LegCase
    stream: StreamCase
    leaves: tuple[Leaf, ...]
    windows: tuple[Leaf, ...]

    @property
    def popular(self) -> list[Leaf]:
        return [leaf for leaf in self.leaves if plain_name(leaf.sql) in (*self.stream.popular, "x1")]

    def column(self, name: str) -> Sql:
        return next(leaf.sql for leaf in self.leaves if plain_name(leaf.sql) == name.lower())

    def share(self, name: str) -> float:
        """The share of rows that have the most frequent value of a column."""
        place = [column.lower() for column in self.stream.table.column_names].index(name.lower())
        values = Counter(value for value in self.stream.table.column(place).to_pylist() if value is not None)
        return max(values.values(), default=0) / max(self.stream.rows, 1)


def plain_name(sql: Sql) -> str:
    return sql.engine.partition(".")[2].strip("`").lower()


@dataclass(frozen=True, slots=True)
class Equality:
    """``share``: the share of rows of the right side that meet the same row of the left side, at most."""

    pair: tuple[Sql, Sql]
    share: float


def random_equality(rng: Random, left: Sequence[Source], right: Sequence[Source]) -> Equality:
    one, two = rng.choice(left), rng.choice(right)
    draw = rng.random()
    if draw < 0.82:
        name = rng.choice(JOIN_KEYS)
        return Equality((one.column(name), two.column(name)), two.share(name))
    if draw < 0.9:
        return _columns(rng, one, two)
    if draw < 0.93 and len(left) > 1:
        other = rng.choice([source for source in left if source is not one])
        return Equality((arithmetic("+", one.column("u"), other.column("tiny")), two.column("u")), two.share("u"))
    return Equality(_expressions(rng, one, two), USUAL_SHARE)


def _columns(rng: Random, one: Source, two: Source) -> Equality:
    """Any column, and one of the same type or, for numbers, of another."""
    sql = rng.choice(two.leaves).sql
    kinds = NUMBERS if sql.type in NUMBERS and rng.random() < 0.5 else (sql.type,)
    fitting = [leaf.sql for leaf in one.leaves if leaf.sql.type in kinds] or [one.column("k")]
    if fitting[0].type not in kinds:
        sql = two.column("k")
    known = plain_name(sql) in {name.lower() for name in two.stream.table.column_names}
    return Equality((rng.choice(fitting), sql), two.share(plain_name(sql)) if known else USUAL_SHARE)


def _expressions(rng: Random, one: Source, two: Source) -> tuple[Sql, Sql]:
    u, v = one.column("u"), two.column("u")
    number = same("1", "int", Range(0, 1.0))
    choices = (
        lambda: (arithmetic("+", u, number), v),
        lambda: (u, arithmetic("*", two.column("tiny"), number)),
        lambda: (negated("abs", u), negated("abs", v)),
        lambda: (_of(u, "coalesce({0}, 0)"), _of(v, "coalesce({0}, 0)")),
        lambda: (_of(one.column("k"), "upper({0})"), _of(two.column("k"), "upper({0})")),
        lambda: (_of(one.column("k"), "left({0}, 1)"), _of(two.column("k"), "left({0}, 1)")),
        lambda: (Expressions(rng, one.leaves).number(1, INTEGERS), Expressions(rng, two.leaves).number(1, INTEGERS)),
        lambda: (Expressions(rng, one.leaves).typed("string", 1), Expressions(rng, two.leaves).typed("string", 1)),
        lambda: (Expressions(rng, one.leaves).predicate(0), Expressions(rng, two.leaves).predicate(0)),
    )
    return rng.choice(choices)()


def _of(sql: Sql, template: str) -> Sql:
    engine, twin = join(template, sql)
    return Sql(engine, twin, sql.type, sql.range)
