"""The same values give the same bytes, whatever the memory held before."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millstream.kernels.nulls import blanked


def _dirty(values: list[Any], kind: pa.DataType, under: int) -> pa.Array:
    """An array with some bytes under its NULLs."""
    clean = pa.array(values, kind)
    data = np.frombuffer(clean.buffers()[1], np.uint8).copy()
    width = kind.bit_width // 8
    for place, value in enumerate(values):
        if value is None:
            data[place * width : (place + 1) * width] = under
    return pa.Array.from_buffers(kind, len(values), [clean.buffers()[0], pa.py_buffer(data.tobytes())])


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, 3], pa.int8()),
        ([None, 2, None], pa.int64()),
        ([1.5, None], pa.float64()),
        ([1.5, None], pa.float32()),
        ([date(2026, 1, 2), None], pa.date32()),
        ([7, None], pa.timestamp("us", "UTC")),
        ([7, None], pa.timestamp("us")),
        ([Decimal("1.50"), None, Decimal("-2.25")], pa.decimal128(10, 2)),
        ([Decimal("1.50"), None], pa.decimal128(38, 2)),
        ([None, None], pa.decimal128(4, 4)),
    ],
)
def test_zeros_under_nulls(values: list[Any], kind: pa.DataType) -> None:
    found = [blanked(_dirty(values, kind, under)) for under in (0, 255)]
    assert [one.to_pylist() for one in found] == [pa.array(values, kind).to_pylist()] * 2
    assert found[0].type == kind
    assert [buffer.to_pybytes() for buffer in found[0].buffers()] == [b.to_pybytes() for b in found[1].buffers()]


def test_zeros_under_nulls_of_booleans() -> None:
    dirty = pa.Array.from_buffers(pa.bool_(), 3, [pa.py_buffer(b"\x05"), pa.py_buffer(b"\xff")])
    found = blanked(dirty)
    assert found.to_pylist() == [True, None, True]
    assert [buffer.to_pybytes()[:1] for buffer in found.buffers()] == [b"\x05", b"\x05"]


def test_a_part_of_a_column() -> None:
    whole = _dirty([1, None, 3, None, 5], pa.int64(), 255)
    part = blanked(whole.slice(1, 3))
    assert part.to_pylist() == [None, 3, None]
    assert np.frombuffer(part.buffers()[1], np.int64)[:3].tolist() == [0, 3, 0]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2, 3]),
        pa.array(["a", None, "b"]),
        pa.array([b"a", None]),
        pa.array([True, None, False]),
        pa.nulls(3),
        pa.array([], pa.int64()),
    ],
)
def test_values_stay_as_they_are(column: pa.Array) -> None:
    assert blanked(column).equals(column)
    assert blanked(column).type == column.type
