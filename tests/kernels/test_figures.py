"""What ingest measures of a stream, against the rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millstream.kernels.figures import delays, group_figures, moments
from millstream.kernels.group import Group
from millstream.kernels.ingest import Tally, slice_cells
from millstream.model import codec
from millstream.model.expression import Column
from millstream.model.group import Member
from millstream.model.query import Aggregate, WindowSpec
from millstream.model.selection import Attribute, Leaf
from millstream.model.statistics import Figures, GroupFigures, Moments, faded, together
from millstream.model.types import LONG

from .plain import batch_of, version_of

PRICE = Column("price", LONG)
KEY = Column("key", LONG)


def _group(queries: int) -> Group:
    members = [
        Member(
            f"q{n}",
            n,
            Leaf(Attribute(PRICE, "integer"), ((n, n + 1),)),
            WindowSpec(10, 10),
            (Aggregate("sum", PRICE, LONG),),
            None,
            (),
        )
        for n in range(queries)
    ]
    return Group(version_of(members, (KEY,)))


def _batch(prices: list[int | None]) -> pa.Table:
    times = pa.array(range(len(prices)), pa.int64()).cast(pa.timestamp("us", "UTC"))
    keys = [n % 3 for n in range(len(prices))]
    return pa.table({"price": pa.array(prices, pa.int64()), "key": pa.array(keys, pa.int64()), "time": times})


def test_rows_by_class_and_keys() -> None:
    group = _group(3)
    (found,) = slice_cells(group, batch_of(_batch([0, 0, 1, 2, 2, 2, 7, None])), None, Tally())
    figures = group_figures(group, found.cells)
    assert figures.rows == (2.0, 1.0, 3.0)
    assert figures.keys == 3


def test_moments_leave_out_null() -> None:
    found = moments([_group(2)], batch_of(_batch([1, None, 3])))
    assert found == {"price": Moments(2.0, 4.0, 10.0)}
    assert found["price"].mean == 2.0
    assert found["price"].variance == 1.0


def test_delays_are_counted_by_powers_of_two() -> None:
    clock = 10_000_000
    times = np.array([clock, clock - 1_000, clock - 3_000, clock - 3_500, clock + 5_000_000])
    assert delays(times, clock) == (2.0, 1.0, 2.0)
    figures = Figures(delays=delays(times, clock))
    assert figures.delay(0.3) == 1.0
    assert figures.delay(1.0) == 4.0


def test_a_sample_stands_for_all_rows() -> None:
    times = np.zeros(100_000, np.int64)
    assert sum(delays(times, 1_000)) == pytest.approx(100_000)


def test_tasks_add_up_and_batches_fade() -> None:
    one = Figures(10, 100, (4.0, 6.0), {"price": Moments(10, 20, 50)}, {"g-1": GroupFigures(2, 5, (7.0, 3.0))})
    both = together([one, one])
    assert both.rows == 20
    assert both.delays == (8.0, 12.0)
    assert both.groups == {"g-1": GroupFigures(2, 5, (14.0, 6.0))}
    after = one
    for _ in range(2000):
        after = faded(after, one)
    assert after.rows == pytest.approx(10 * 64, rel=0.01)
    assert after.moments["price"].mean == pytest.approx(2.0)


def test_a_new_version_begins_anew_and_old_groups_are_forgotten() -> None:
    old = Figures(groups={"g-1": GroupFigures(1, 5, (7.0,)), "g-2": GroupFigures(1, 1, (1.0,))})
    new = Figures(groups={"g-1": GroupFigures(2, 4, (1.0, 2.0))})
    assert faded(old, new).groups == {"g-1": GroupFigures(2, 4, (1.0, 2.0))}


def test_figures_survive_the_metastore() -> None:
    one = Figures(10, 100, (4.0, 6.0), {"price": Moments(10, 20, 50)}, {"g-1": GroupFigures(2, 5, (7.0, 3.0))})
    assert codec.loads(codec.dumps(one)) == one
