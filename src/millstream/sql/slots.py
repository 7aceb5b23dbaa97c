"""The expressions of a query, one after the other, and the same query with others in their places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from millstream.model.expression import Expression
from millstream.model.join import JoinNode, JoinQuery, Tree
from millstream.model.query import Aggregate, LogicalQuery, Ranking
from millstream.sql.functions import check

Change = Callable[[Expression], Expression]

_Query = TypeVar("_Query", LogicalQuery, JoinQuery)


def changed(query: _Query, change: Change) -> _Query:
    """The query with each of its expressions changed; they are visited in a fixed order."""

    def optional(expression: Expression | None) -> Expression | None:
        return None if expression is None else change(expression)

    def aggregate(one: Aggregate) -> Aggregate:
        return one if one.argument is None else Aggregate(one.function, change(one.argument), one.type)

    if isinstance(query, JoinQuery):
        query = replace(
            query,
            legs=tuple([replace(leg, where=optional(leg.where)) for leg in query.legs]),
            tree=_tree(query.tree, change),
        )
    return replace(
        query,
        where=optional(query.where),
        keys=tuple([change(key) for key in query.keys]),
        aggregates=tuple([aggregate(one) for one in query.aggregates]),
        having=optional(query.having),
        outputs=tuple([replace(output, expression=change(output.expression)) for output in query.outputs]),
        ranking=None if query.ranking is None else _ranking(query.ranking, change),
    )


def _tree(tree: Tree, change: Change) -> Tree:
    if isinstance(tree, int):
        return tree
    left, right = _tree(tree.left, change), _tree(tree.right, change)
    equal = tuple([(change(one), change(two)) for one, two in tree.equal])
    return JoinNode(tree.kind, left, right, equal, None if tree.residual is None else change(tree.residual))


def _ranking(ranking: Ranking, change: Change) -> Ranking:
    partition = tuple([change(part) for part in ranking.partition])
    order = tuple([replace(one, expression=change(one.expression)) for one in ranking.order])
    return replace(ranking, partition=partition, order=order)


def query_expressions(query: LogicalQuery | JoinQuery) -> list[Expression]:
    """All expressions of a query, in the order in which ``changed`` visits them."""
    found: list[Expression] = []

    def note(expression: Expression) -> Expression:
        found.append(expression)
        return expression

    if isinstance(query, JoinQuery):
        changed(query, note)
    else:
        changed(query, note)
    return found


def check_query(query: LogicalQuery | JoinQuery) -> None:
    """Refuse a query with an expression that is not in the verified table."""
    for expression in query_expressions(query):
        check(expression)
