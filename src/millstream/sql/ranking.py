"""Rankings inside a window: ``row_number() OVER (PARTITION BY window ORDER BY …)`` and the conditions that limit it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from millstream.errors import SqlError
from millstream.model.expression import Call, Column, Expression, Literal, columns, conjuncts
from millstream.model.query import RANK, WINDOW_END, WINDOW_START, Order, Ranking
from millstream.model.types import INTEGER
from millstream.sql.catalyst import Node, read_tree
from millstream.sql.constructs import RANKING_FORM
from millstream.sql.text import Text

# By the class in Spark.
FUNCTIONS = {"RowNumber": "row_number", "Rank": "rank", "DenseRank": "dense_rank"}

# A ranking that nobody limits keeps all rows; Spark's ranks are 32-bit integers.
EVERY_ROW = 2**31 - 1

_WINDOW = frozenset([WINDOW_START, WINDOW_END])
_MIRRORED: Mapping[str, str] = {
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
    "EqualTo": "EqualTo",
}


@dataclass(frozen=True, slots=True)
class Ranked:
    """A ranking, and the id of the column that holds the rank."""

    ranking: Ranking
    name: str
    at: int


def read_ranking(node: Node, expression: Callable[[Node], Expression], text: Text) -> Ranked:
    """The ranking of a Window operator above an aggregation; ``expression`` reads over the aggregation's results."""
    calls = [read_tree(item) for item in node.fields["windowExpressions"]]
    function = calls[0].children[0].children[0].name if calls[0].children[0].children else ""
    if len(calls) > 1 or function not in FUNCTIONS:
        raise not_a_ranking(text)
    partition = [expression(read_tree(item)) for item in node.fields["partitionSpec"]]
    if not any(_tells_window(part) for part in partition):
        message = f"{FUNCTIONS[function]}() over several windows is not supported"
        raise text.unsupported(message, f"rank inside each window: {RANKING_FORM}", "OVER", "QUALIFY")
    orders = [_order(read_tree(item), expression) for item in node.fields["orderSpec"]]
    ranking = Ranking(
        FUNCTIONS[function],
        tuple(part for part in partition if not columns(part) <= _WINDOW),
        tuple(order for order in orders if not columns(order.expression) <= _WINDOW),
        EVERY_ROW,
    )
    return Ranked(ranking, str(calls[0].fields["name"]), int(calls[0].fields["exprId"]["id"]))


def rank_column() -> Column:
    return Column(RANK, INTEGER)


def not_a_ranking(text: Text) -> SqlError:
    hint = f"one ranking of groups inside their window is supported: {RANKING_FORM}"
    return text.unsupported("OVER (…) is not supported here", hint, "OVER", "QUALIFY")


def _tells_window(expression: Expression) -> bool:
    if isinstance(expression, Call) and expression.op == "Window":
        return True
    return isinstance(expression, Column) and expression.name in _WINDOW


def _order(node: Node, expression: Callable[[Node], Expression]) -> Order:
    ascending = "Ascending" in str(node.fields["direction"])
    first = "NullsFirst" in str(node.fields["nullOrdering"])
    return Order(expression(node.children[0]), ascending, first)


def limited(ranking: Ranking, condition: Expression, text: Text) -> tuple[Ranking, list[Expression]]:
    """The ranking under a condition above it, and what of the condition is as good as HAVING."""
    having = []
    for part in conjuncts(condition):
        if RANK in columns(part):
            limit = _limit(part, text)
            if EVERY_ROW not in (limit, ranking.limit):
                raise text.unsupported("two limits of a rank are not supported", "limit it once", "QUALIFY", "WHERE")
            ranking = replace(ranking, limit=limit if ranking.limit == EVERY_ROW else ranking.limit)
        elif _inside_partition(ranking, part):
            having.append(part)
        else:
            message = "a condition beside the rank on other columns is not supported"
            hint = "conditions on the groups to be ranked go into HAVING"
            raise text.unsupported(message, hint, "QUALIFY", "WHERE")
    return ranking, having


def _inside_partition(ranking: Ranking, condition: Expression) -> bool:
    """Whether the condition keeps or drops partitions as a whole, so that it may as well come before the ranking."""
    fixed = {part.name for part in ranking.partition if isinstance(part, Column)}
    return columns(condition) <= _WINDOW | fixed


def _limit(condition: Expression, text: Text) -> int:
    """The largest rank that meets a condition of the form rank <= k, rank < k or rank = 1; rank >= 1 limits nothing."""
    found = _compared(condition)
    if found is not None:
        op, number = found
        if op in ("LessThan", "LessThanOrEqual") or (op == "EqualTo" and number == 1):
            limit = number - 1 if op == "LessThan" else number
            if limit >= 1:
                return limit
        if (op, number) in (("GreaterThanOrEqual", 1), ("GreaterThan", 0)):
            return EVERY_ROW
    message = "a condition on the rank other than <= k is not supported"
    hint = f"keep the first ranks, at least one: {RANKING_FORM}"
    raise text.unsupported(message, hint, "QUALIFY", "WHERE")


def _compared(condition: Expression) -> tuple[str, int] | None:
    """The operator and number of a comparison of the rank itself with a whole number."""
    if not isinstance(condition, Call) or condition.op not in _MIRRORED:
        return None
    one, two = (_uncast(argument) for argument in condition.args)
    op = condition.op
    if isinstance(one, Literal):
        one, two, op = two, one, _MIRRORED[op]
    if one != rank_column() or not isinstance(two, Literal) or not isinstance(two.value, int):
        return None
    return op, two.value


def _uncast(expression: Expression) -> Expression:
    """Without casts between integers, which Spark puts around the rank or the number."""
    if isinstance(expression, Call) and expression.op == "Cast" and expression.type.integral:
        return _uncast(expression.args[0])
    return expression
