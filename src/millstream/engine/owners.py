"""What the queries of an owner take together, and whom to stop or refuse when it is too much."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

from millstream.config import Limits
from millstream.config.limits import excess, over
from millstream.errors import CatalogError
from millstream.model.expression import Call, Expression
from millstream.model.join import JoinQuery, joins_of
from millstream.model.plan import FireResult
from millstream.model.query import LogicalQuery
from millstream.sql.tokens import Token, tokenize


def predicates_of(query: LogicalQuery | JoinQuery) -> int:
    """The comparisons in the conditions of a query; each value of an IN list is one."""
    parts = [query.where, query.having]
    equalities = 0
    if isinstance(query, JoinQuery):
        nodes = list(joins_of(query.tree))
        equalities = sum(len(node.equal) for node in nodes)
        parts += [*(leg.where for leg in query.legs), *(node.residual for node in nodes)]
    return equalities + sum(_predicates(part) for part in parts if part is not None)


def _predicates(expression: Expression) -> int:
    """Without recursion: a condition may be as deep as it is long."""
    total, waiting = 0, [expression]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Call) and node.op in ("And", "Or", "Not"):
            waiting += node.args
        else:
            total += len(node.args) - 1 if isinstance(node, Call) and node.op == "In" else 1
    return total


def check_text(sql: str, limits: Limits) -> None:
    """Refuse a text that must have too many predicates before Spark's analyzer, which all creates share, spends seconds
    on it."""
    # A predicate takes at least two characters.
    if len(sql) <= 2 * limits.query_predicates:
        return
    predicates = _counted(tokenize(sql))
    if predicates > limits.query_predicates:
        raise _refusal("query_predicates", "the query", predicates, limits.query_predicates, "predicates")


def _counted(tokens: Sequence[Token]) -> int:
    """One for each AND and OR but that of BETWEEN, and for each value of an IN list."""
    words = Counter(token.word for token in tokens)
    values, depth, lists = 0, 0, []
    for before, token in itertools.pairwise(tokens):
        if token.text == "(":
            depth += 1
            lists += [depth] if before.word == "IN" else []
        elif token.text == ")":
            lists = [one for one in lists if one < depth]
            depth -= 1
        elif token.text == "," and lists and lists[-1] == depth:
            values += 1
    return max(words["AND"] + words["OR"] - words["BETWEEN"], 0) + values + 1


def check_query(query: LogicalQuery | JoinQuery, limits: Limits) -> None:
    """Refuse a query that is too large by itself."""
    predicates = predicates_of(query)
    if predicates > limits.query_predicates:
        raise _refusal("query_predicates", "the query", predicates, limits.query_predicates, "predicates")


class Owners:
    """The running queries by owner, with their predicates."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._owner: dict[str, str] = {}
        self._predicates: dict[str, int] = {}
        self._totals: Counter[str] = Counter()
        self._queries: Counter[str] = Counter()

    def add(self, id: str, owner: str, query: LogicalQuery | JoinQuery) -> None:
        self._owner[id] = owner
        self._predicates[id] = predicates_of(query)
        self._totals[owner] += self._predicates[id]
        self._queries[owner] += 1

    def remove(self, id: str) -> None:
        """The query takes nothing any more; whose it was is known until it is forgotten."""
        if id in self._predicates:
            owner = self._owner[id]
            self._totals[owner] -= self._predicates.pop(id)
            self._queries[owner] -= 1

    def forget(self, id: str) -> None:
        self.remove(id)
        self._owner.pop(id, None)

    def owner(self, id: str) -> str:
        return self._owner.get(id, "")

    def check(self, creates: Sequence[tuple[str, LogicalQuery | JoinQuery]]) -> None:
        """Refuse new queries, given with their owners, that would take an owner above a limit."""
        queries: Counter[str] = Counter()
        predicates: Counter[str] = Counter()
        for owner, query in creates:
            queries[owner] += 1
            predicates[owner] += predicates_of(query)
        for owner in queries:
            whose = f"the owner {owner!r}" if owner else "the owner without a name"
            limits = self._limits
            for name, amount, unit in (
                ("owner_queries", self._queries[owner] + queries[owner], "queries"),
                ("owner_predicates", self._totals[owner] + predicates[owner], "predicates"),
            ):
                if amount > getattr(limits, name):
                    raise _refusal(name, whose, amount, getattr(limits, name), unit)


def _refusal(setting: str, what: str, amount: int, limit: int, unit: str) -> CatalogError:
    return CatalogError(
        "LIMIT_EXCEEDED",
        excess(setting, what, amount, limit, unit),
        hint="delete queries that are not needed, make this one simpler, or raise the setting",
    )


def over_in_fire(result: FireResult, owner: Callable[[str], str], limits: Limits) -> dict[str, str]:
    """Of the owners whose queries had too many groups or answer rows in their windows, the queries to stop: the largest
    first, until the others are within the limit.

    A fire that catches up has many windows of a query: the rows of one of them count, on average.
    """
    means = {
        query: -(-rows // max(1, result.windows_by_query.get(query, 1))) for query, rows in result.rows_by_query.items()
    }
    groups = over_together("owner_groups", result.groups_by_query, owner, limits.owner_groups, "groups in a window")
    rows = over_together("owner_answer_rows", means, owner, limits.owner_answer_rows, "answer rows in a window")
    return rows | groups


def over_together(
    setting: str, amounts: Mapping[str, int], owner: Callable[[str], str], limit: int, unit: str
) -> dict[str, str]:
    """The queries to stop, with the reason, so that no owner's sum is above the limit.

    >>> over_together("owner_groups", {"a": 5, "b": 9, "c": 3}, lambda query: "me", 10, "groups")
    {'b': "LIMIT_EXCEEDED: the owner 'me' has 17 groups, more than the 10 of the setting owner_groups"}
    """
    if sum(amounts.values()) <= limit:
        return {}
    by_owner: dict[str, list[str]] = defaultdict(list)
    for query in sorted(amounts, key=lambda query: (-amounts[query], query)):
        by_owner[owner(query)].append(query)
    stopped: dict[str, str] = {}
    for name, queries in by_owner.items():
        total = sum(amounts[query] for query in queries)
        for query in queries:
            if total <= limit:
                break
            stopped[query] = over(setting, f"the owner {name!r}", total, limit, unit)
            total -= amounts[query]
    return stopped
