"""The comparison of answers, without Spark."""

from __future__ import annotations

import math
from decimal import Decimal

import pyarrow as pa
import pytest

from .compare import difference


def doubles(*values: float | None) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.float64())})


def words(*values: str | None) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.string())})


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (words("a", "b", None), words(None, "b", "a")),
        (doubles(math.nan, None, -0.0), doubles(0.0, math.nan, None)),
        (doubles(0.1 + 0.2, math.inf), doubles(math.inf, 0.3)),
        (
            pa.table({"x": pa.array([1.0, 1.0 + 1e-15]), "y": [2.0, 1.0]}),
            pa.table({"x": pa.array([1.0, 1.0]), "y": [2.0, 1.0]}),
        ),
        (pa.table({"d": [Decimal("1.50")]}), pa.table({"d": [Decimal("1.50")]})),
    ],
)
def test_the_same_rows_in_any_order(a: pa.Table, b: pa.Table) -> None:
    assert difference(a, b) is None
    assert difference(b, a) is None


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (words("a", "a"), words("a")),
        (words("a", None), words("a", "a")),
        (words("a"), words("a").rename_columns(["X"])),
        (pa.table({"x": pa.array([1], pa.int32())}), pa.table({"x": pa.array([1], pa.int64())})),
        (doubles(math.nan), doubles(None)),
        (doubles(1.0), doubles(1.0 + 1e-9)),
        (doubles(math.inf), doubles(-math.inf)),
        (doubles(math.nan, math.nan), doubles(math.nan, 1.0)),
        (pa.table({"d": [Decimal("1.50")]}), pa.table({"d": [Decimal("1.51")]})),
    ],
)
def test_what_differs_is_seen_from_both_sides(a: pa.Table, b: pa.Table) -> None:
    assert difference(a, b) is not None
    assert difference(b, a) is not None


def test_sums_that_cancel_are_compared_by_the_size_of_their_summands() -> None:
    assert difference(doubles(1e-9), doubles(0.0)) is not None
    assert difference(doubles(1e-9), doubles(0.0), bounds=[1e6]) is None


def test_the_report_names_missing_and_extra_rows() -> None:
    text = str(difference(words("a", "b"), words("a", "c")))
    assert "missing: ('b',)" in text
    assert "extra: ('c',)" in text
