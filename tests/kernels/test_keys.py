"""Keys: codes and values give every row's key back, for any types and combinations."""

from __future__ import annotations

import math
import random
from typing import Any

import pyarrow as pa
import pytest

from millstream.kernels import keys as module
from millstream.kernels.keys import align, code_keys

from .plain import canonical

pytestmark = pytest.mark.usefixtures("loops")

COLUMNS: dict[pa.DataType, list[Any]] = {
    pa.int64(): [0, 1, 2, 7, -3, 2**62, -(2**63), None],
    pa.int32(): [5, 6, 7, 8, None],
    pa.float64(): [0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, None],
    pa.float32(): [0.0, -0.0, 0.5, math.nan, None],
    pa.string(): ["", "a", "ä", "b", None],
    pa.bool_(): [True, False, None],
    pa.date32(): [0, 1, -700000, None],
    pa.decimal128(30, 2): [None],
}


def _column(rng: random.Random, rows: int) -> pa.Array:
    kind, values = rng.choice(list(COLUMNS.items()))
    if kind == pa.date32():
        return pa.array([rng.choice(values) for _ in range(rows)], pa.int32()).cast(kind)
    return pa.array([rng.choice(values) for _ in range(rows)], kind)


def _row(columns: list[pa.Array] | tuple[pa.Array, ...], at: int) -> tuple[Any, ...]:
    return tuple(canonical(column[at].as_py()) for column in columns)


@pytest.mark.parametrize("span", [module.DIRECT_SPAN, 0])
def test_a_thousand_random_keys_are_coded_and_back(span: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DIRECT_SPAN", span)
    for seed in range(500):
        rng = random.Random(seed)
        rows = rng.randint(0, 30)
        columns = [_column(rng, rows) for _ in range(rng.randint(1, 3))]
        keys = code_keys(columns, rows)
        decoded = [_row(keys.values, int(code)) for code in keys.codes]
        assert decoded == [_row(columns, i) for i in range(rows)], seed
        distinct = [_row(keys.values, i) for i in range(keys.count)]
        assert len(set(distinct)) == keys.count == len(set(decoded)), "a key has one code, and no code is unused"


def test_buckets_are_aligned_by_their_keys() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        kind = rng.choice([pa.int64(), pa.string(), pa.float64()])
        tables = []
        for _ in range(rng.randint(1, 4)):
            values = rng.sample([v for v in COLUMNS[kind] if v != 0 or kind != pa.float64()], rng.randint(1, 4))
            tables.append((pa.array(values, kind),))
        numbers, values, count = align(tables, 1)
        for table, number in zip(tables, numbers, strict=True):
            assert [_row(values, int(n)) for n in number] == [_row(table, i) for i in range(len(table[0]))]
        assert len(values[0]) == count


def test_no_keys_is_one_key() -> None:
    assert code_keys([], 3).codes.tolist() == [0, 0, 0]
    assert align([(), ()], 0)[2] == 1
