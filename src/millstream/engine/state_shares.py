"""Whose the buckets are: the bytes of state that each query holds, and who holds too many.

A bucket belongs in equal shares to the queries of its group that still need it: those with a window to fire that begins
before the bucket ends. So a query pays for what it keeps from being removed, and queries that share pay less than each
would alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from millstream.catalog.records import Frontier
from millstream.config import Limits
from millstream.config.limits import over
from millstream.engine.firing import lowest_needed
from millstream.engine.owners import over_together
from millstream.model.legs import query_of_member
from millstream.model.query import WindowSpec

# (end, bytes) of a group's buckets.
Sizes = Sequence[tuple[int, int]]


def shares(
    sizes: Mapping[str, Sizes], frontiers: Iterable[Frontier], window: Callable[[str], WindowSpec | None]
) -> dict[str, int]:
    """Bytes by query; the legs of a join count on it."""
    by_group: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for one in frontiers:
        needed = lowest_needed([one], {}, window).get(one.group)
        if needed is not None:
            by_group[one.group].append((needed, query_of_member(one.query)))
    found: Counter[str] = Counter()
    for group, users in by_group.items():
        users.sort()
        for (_, query), held in zip(users, _shared(sizes.get(group, ()), [start for start, _ in users]), strict=True):
            found[query] += held
    return dict(found)


def _shared(sizes: Sizes, starts: Sequence[int]) -> list[int]:
    """The bytes of each user, given where it begins to need slices, ascending: a bucket is shared by the first so many
    of them."""
    if not sizes:
        return [0] * len(starts)
    ends = np.array([end for end, _ in sizes], np.int64)
    users = np.searchsorted(np.array(starts, np.int64), ends, side="left")
    lengths = np.array([length for _, length in sizes], np.float64)
    each = np.bincount(users, weights=lengths / np.maximum(users, 1), minlength=len(starts) + 1)
    return [int(held) for held in np.cumsum(each[::-1])[::-1][1:]]


def over_state(held: Mapping[str, int], owner: Callable[[str], str], limits: Limits) -> dict[str, str]:
    """The queries to stop, with the reason."""
    limit = limits.query_state_bytes
    stopped = {
        query: over("query_state_bytes", "the query", size, limit, "bytes of state")
        for query, size in held.items()
        if size > limit
    }
    rest = {query: size for query, size in held.items() if query not in stopped}
    return stopped | over_together("owner_state_bytes", rest, owner, limits.owner_state_bytes, "bytes of state")
