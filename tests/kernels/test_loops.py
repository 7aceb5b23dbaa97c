"""Compiled loops against NumPy: every type of values, sums that wrap around, windows without rows, nowhere to keep what
was compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millstream.kernels import compiled, loops
from millstream.kernels.aggregate import accumulate_rows
from millstream.kernels.batch import EXACT, EXACT_COMPILED
from millstream.kernels.classes import class_table
from millstream.model.expression import Column
from millstream.model.group import Measure, Member
from millstream.model.query import Aggregate, WindowSpec
from millstream.model.selection import Attribute, Leaf
from millstream.model.types import LONG

from .plain import batch_of

TOP = 2**63 - 1
RANDOM = np.random.default_rng(7)
TYPES = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32)


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("low", [-100, 0, 5])
def test_rows_are_located(type_: type, low: int) -> None:
    if low < 0 and np.dtype(type_).kind == "u":
        low = 0
    values = (low + RANDOM.integers(0, 100, 1000)).astype(type_)
    table, keys = RANDOM.integers(0, 50, 100) * 1000, RANDOM.integers(0, 1000, 1000)
    found = compiled.locate(values, low, table, keys)
    assert found.dtype == np.uint32
    assert found.tolist() == (table[values.astype(np.int64) - low] + keys).tolist()


def test_codes_fill_32_bits() -> None:
    table, keys = np.array([0, compiled.MOST_CODES - 10]), np.array([3, 9])
    assert compiled.locate(np.array([7, 8]), 7, table, keys).tolist() == [3, compiled.MOST_CODES - 1]


@pytest.mark.parametrize("type_", TYPES)
def test_values_are_marked(type_: type) -> None:
    values = RANDOM.integers(3, 120, 500).astype(type_)
    low = int(values.min())
    codes, used = compiled.mark(values, low, 200)
    assert codes.dtype == np.int64
    assert codes.tolist() == [int(value) - low for value in values]
    assert np.flatnonzero(used).tolist() == sorted(set(codes.tolist()))


def test_the_largest_long_integers_are_marked() -> None:
    codes, used = compiled.mark(np.array([TOP, TOP - 2]), TOP - 2, 3)
    assert codes.tolist() == [2, 0]
    assert used.tolist() == [True, False, True]


@pytest.mark.parametrize("type_", [np.uint32, np.int64])
def test_weights_are_added_up(type_: type) -> None:
    codes = RANDOM.integers(0, 40, 1000).astype(type_)
    weights = RANDOM.integers(-(2**50), 2**50, 1000)
    sums = compiled.add_up(codes, weights, 50)
    expected = np.zeros(50, np.int64)
    np.add.at(expected, codes, weights)
    assert sums.tolist() == expected.tolist()


@pytest.mark.parametrize("type_", [np.int32, np.int64])
@pytest.mark.parametrize("narrower", [0, 3])
def test_layers_are_piled(type_: Any, narrower: int) -> None:
    """Running sums wrap around in the type of the layers; columns that the plane lacks stay as they are below."""
    limits = np.iinfo(type_)
    below = RANDOM.integers(limits.min, limits.max, (6, 10), type_)
    below[0] = 0
    plane = RANDOM.integers(limits.min // 2, limits.max // 2, (5, 10 - narrower), np.int64)
    here = np.full((6, 10), 77, type_)
    compiled.pile(below, plane, here)
    expected = below.copy()
    with np.errstate(over="ignore"):
        expected[1:, : 10 - narrower] += np.cumsum(plane, axis=0).astype(type_)
    assert here.tolist() == expected.tolist()


@pytest.mark.parametrize("type_", [np.int32, np.int64])
def test_windows_have_the_keys_with_rows(type_: Any) -> None:
    limits = np.iinfo(type_)
    layers, other = (RANDOM.integers(limits.min, limits.max, (20, 12), type_) for _ in range(2))
    corners = RANDOM.integers(0, 20, (9, 4))
    # A window without rows between two that have some.
    corners[4] = [3, 3, 7, 7]
    with np.errstate(over="ignore"):
        rows = layers[corners[:, 0]] - layers[corners[:, 1]] - layers[corners[:, 2]] + layers[corners[:, 3]]
        plane = other[corners[:, 0]] - other[corners[:, 1]] - other[corners[:, 2]] + other[corners[:, 3]]
    width = 10
    counts, keys, found = compiled.answered(layers, corners, width)
    window, key = np.nonzero(rows[:, :width])
    assert counts.tolist() == np.bincount(window, minlength=9).tolist()
    assert counts[4] == 0
    assert keys.tolist() == key.tolist()
    assert found.dtype == np.int64
    assert found.tolist() == rows[window, key].tolist()
    picked = compiled.picked(other, corners, counts, keys)
    assert picked.dtype == np.int64
    assert picked.tolist() == plane[window, key].tolist()


def test_no_windows() -> None:
    counts, keys, found = compiled.answered(np.zeros((3, 2), np.int64), np.empty((0, 4), np.int64), 2)
    assert (len(counts), len(keys), len(found)) == (0, 0, 0)


def test_arrays_that_cannot_be_written_to_and_parts_of_others() -> None:
    """As Arrow gives them, and as slices of planes are."""
    values = pa.array([5, 7, 5], pa.int64()).to_numpy()
    assert not values.flags.writeable
    assert compiled.mark(values, 5, 3)[0].tolist() == [0, 2, 0]
    every_second = np.arange(10)[::2]
    assert compiled.locate(every_second, 0, np.arange(10), values[:1].repeat(5)).tolist() == [5, 7, 9, 11, 13]
    assert compiled.add_up(every_second.astype(np.int8), np.ones(5, np.int64), 9).tolist() == [1, 0] * 4 + [1]


SCRIPT = "from millstream.kernels import compiled; import numpy as np; print(compiled.add_up(*[np.arange(3)] * 2, 3))"


def _add_up_elsewhere(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True, timeout=300
    )


def test_loops_are_kept_and_a_damaged_one_is_compiled_again(tmp_path: Path) -> None:
    """As after a power failure, which leaves a file without its content."""
    assert _add_up_elsewhere(tmp_path).stderr == ""
    kept = sorted(tmp_path.rglob("loops.add_up-*.nbi"))
    assert len(kept) == 1
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb?")}
    assert _add_up_elsewhere(tmp_path).stdout == "[0 1 2]\n"
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb?")}
    kept[0].write_bytes(b"")
    again = _add_up_elsewhere(tmp_path)
    assert again.stdout == "[0 1 2]\n"
    assert "add_up is compiled for this process alone" in again.stderr


def test_loops_are_compiled_where_nothing_can_be_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a container whose file system is read-only."""
    compile_ = loops.numba.njit

    def njit(signatures: list[Any], **options: bool) -> Any:
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return compile_(signatures, **options)

    monkeypatch.setattr(loops.numba, "njit", njit)
    assert loops._compiled((loops.LONG,))(lambda number: number + 1)(41) == 42
    assert "no locator available" in caplog.text


@pytest.mark.parametrize(("count", "expected"), [(0, False), (compiled.MANY - 1, False), (compiled.MANY, True)])
def test_few_numbers_need_no_loops(count: int, expected: bool) -> None:
    assert compiled.pays(count) is expected


@pytest.mark.usefixtures("loops")
def test_the_largest_long_integers_are_located() -> None:
    """A range up to the largest ends beyond what NumPy keeps as an integer."""
    values = [TOP - 2, TOP - 1, TOP, TOP - 1]
    table = pa.table({"time": pa.array([0] * 4, pa.int64()), "v": pa.array(values, pa.int64())})
    column = Column("v", LONG)
    leaf = Leaf(Attribute(column, "integer"), ((TOP, None),))
    member = Member("q", 0, leaf, WindowSpec(2, 2, 0), (Aggregate("count", None, LONG),), None, ())
    classes = class_table((leaf.attribute,), (member,))
    batch = batch_of(table)
    found = batch.codes(classes, batch.keys(()))
    assert [int(code) for code in found] == [int(code) for code in batch.labels(classes)]
    assert len({int(found[row]) for row in (0, 1, 3)}) == 1
    assert found[2] != found[0]


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("rows", [1, 2, 127, 128, 1000])
@pytest.mark.parametrize("odd", [0, 1])
def test_numbers_of_rows_and_sums_in_one_pass_are_exact(rows: int, odd: int) -> None:
    """Just below the bound, at it, and far beyond it, where none are packed; and where one number is much larger than
    the others together."""
    shift = max(1, rows.bit_length())
    bound = EXACT_COMPILED >> shift
    column = Column("v", LONG)
    measure = Measure("sum", column)
    for largest in (bound // rows - 1, bound // rows, bound // rows + 1, bound - rows, bound, 2**53, 2**62, TOP):
        for sign in (1, -1):
            numbers = [sign * min(TOP, largest)] + [sign * (1 if odd else min(TOP, largest))] * (rows - 1)
            table = pa.table({"time": pa.array([0] * rows, pa.int64()), "v": pa.array(numbers, pa.int64())})
            batch = batch_of(table)
            cells = np.arange(rows) % 3 if rows > 3 else np.zeros(rows, np.int64)
            counted, known = accumulate_rows([measure], batch, cells, 3)
            expected = [sum(numbers[row] for row in range(rows) if cells[row] == cell) for cell in range(3)]
            assert counted.tolist() == np.bincount(cells, minlength=3).tolist()
            if measure in known:
                assert known[measure][0].tolist() == expected
            else:
                assert sum(map(abs, numbers)) > min(EXACT, EXACT_COMPILED // 4) >> shift


def test_without_numba_numpy_does_everything(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """As where its NumPy is another than Numba goes with: an ImportError when it is imported."""
    monkeypatch.setitem(sys.modules, "millstream.kernels.loops", None)
    monkeypatch.delattr("millstream.kernels.loops", raising=False)
    compiled._usable.cache_clear()
    try:
        assert not compiled.pays(1 << 40)
        assert not compiled.pays(1 << 40)
    finally:
        compiled._usable.cache_clear()
    assert len(caplog.records) == 1
    assert "NumPy takes" in caplog.text
