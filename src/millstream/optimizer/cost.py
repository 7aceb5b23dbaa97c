"""What a group costs: nanoseconds of one core for a second of event time.

The weights are measurements of the kernels (docs/design): what counts is their ratio. Rows pay for locating each
attribute and for
each partial aggregate; cells (class × key × slice) pay for being stored, read and handed to the queries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from millstream.model.query import WindowSpec
from millstream.model.selection import Attribute

# Nanoseconds for one row: computing its code, and one np.bincount over it.
ROW = 8.0
ACCUMULATE = 4.0
# Nanoseconds for one row to locate a value: by table look-up, by binary search, through a dictionary, or by DuckDB.
LOCATE = {"integer": 3.0, "double": 40.0, "string": 25.0, "boolean": 12.0}
# Nanoseconds for one cell and plane to be written, read and handed to the queries.
CELL = 15.0
# Nanoseconds to clear and scan one element of the dense planes that rows are accumulated in.
DENSE = 3.0


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is known of a stream and key: rows and distinct keys for a second of event time; the defaults are the
    benchmark's."""

    rows: float = 1_000_000.0
    keys: float = 1_000.0


def slices_per_second(windows: Iterable[WindowSpec]) -> float:
    """How many slices the windows' edges cut a second into, counting coinciding edges once where they are the same
    progression."""
    progressions = {(phase % w.slide, w.slide) for w in windows for phase in (w.offset, w.offset + w.size)}
    if not progressions:
        return 0.0
    unit = math.gcd(*(step for _, step in progressions), *(phase for phase, _ in progressions))
    return min(sum(1_000_000 / step for _, step in progressions), 1_000_000 / unit)


def group_cost(
    attributes: Iterable[Attribute],
    classes: int,
    labels: int,
    planes: int,
    slices: float,
    statistics: Statistics,
) -> float:
    """The cost of evaluating a group with so many classes, ``labels`` the smaller of classes and queries, ``planes``
    partials, and ``slices`` a second."""
    row = ROW + sum(LOCATE[a.domain] for a in attributes) + ACCUMULATE * (1 + planes)
    areas = statistics.keys * max(slices, 1.0)
    cells = min(labels * areas, labels * statistics.rows)
    return statistics.rows * row + (classes * areas * DENSE + cells * CELL) * (1 + planes)
