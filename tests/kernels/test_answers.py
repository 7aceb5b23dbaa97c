"""Answer files: what is written is what is read, in the types of the query."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from millstream.kernels import answers
from millstream.kernels.answers import AnswerReader, Encoded, Part, Range

LEAST, MOST = -(1 << 63), (1 << 63) - 1


class Bytes:
    """An answer file in memory."""

    def __init__(self, encoded: Encoded) -> None:
        self._data = pa.py_buffer(b"".join(encoded.data))

    def checked(self, offset: int, length: int, expected: int | None) -> pa.Buffer:
        return self._data.slice(offset, length)


def written(*columns: pa.Array) -> Encoded:
    return answers.encode([Part(columns, (Range("q", 0, 1, False, 0, len(columns[0])),))])


def read(encoded: Encoded, schema: pa.Schema, query: str = "q") -> pa.Table:
    reader = AnswerReader(Bytes(encoded), encoded.index_offset, encoded.index_length)
    (found,) = reader.ranges(query)
    return reader.read(found, schema)


@pytest.mark.parametrize(
    "values",
    [
        [0, 1, 2],
        [-128, 127],
        [-129],
        [128],
        [-32768, 32767],
        [-32769],
        [32768],
        [-(1 << 31), (1 << 31) - 1],
        [-(1 << 31) - 1],
        [1 << 31],
        [LEAST, MOST],
        [5, None, -7],
        [None, 1 << 40],
        [None, None],
    ],
)
def test_long_integers_come_back_as_they_were(values: list[int | None]) -> None:
    column = pa.array(values, pa.int64())
    table = read(written(column), pa.schema([("total", pa.int64())]))
    assert table.schema.names == ["total"]
    assert table.column(0).type == pa.int64()
    assert table.column(0).to_pylist() == values


def test_other_types_are_stored_as_they_are() -> None:
    columns = {
        "small": pa.array([1, 2], pa.int32()),
        "text": pa.array(["a", None]),
        "real": pa.array([0.5, float("inf")]),
        "time": pa.array([datetime(2026, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
    }
    table = read(written(*columns.values()), pa.schema({name: column.type for name, column in columns.items()}))
    assert table.to_pydict() == {name: column.to_pylist() for name, column in columns.items()}


def test_without_the_names_the_types_are_those_of_the_query_all_the_same() -> None:
    table = read(written(pa.array([1, 2], pa.int64()), pa.array([3, 4], pa.int32())), pa.schema([]))
    assert table.schema.types == [pa.int64(), pa.int32()]
    assert table.column_names == ["0", "1"]
    assert all(field.metadata is None for field in table.schema)


def test_a_window_is_its_range_of_the_part() -> None:
    ranges = (Range("a", 0, 1, False, 0, 2), Range("b", 0, 1, False, 2, 1))
    encoded = answers.encode([Part((pa.array([1, 2, 70_000], pa.int64()),), ranges)])
    schema = pa.schema([("n", pa.int64())])
    assert read(encoded, schema, "a").column(0).to_pylist() == [1, 2]
    assert read(encoded, schema, "b").column(0).to_pylist() == [70_000]


def test_a_file_of_an_earlier_version_has_all_its_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_narrow", lambda column: column)
    table = read(written(pa.array([1, 2], pa.int64())), pa.schema([("n", pa.int64())]))
    assert table.column(0).to_pylist() == [1, 2]


@pytest.mark.parametrize(("values", "bits"), [([127], 8), ([128], 16), ([-32769], 32), ([1 << 31], 64)])
def test_long_integers_are_stored_in_the_fewest_bits(values: list[int], bits: int) -> None:
    part = written(pa.array(values, pa.int64())).data[0]
    assert pa.ipc.open_stream(part).schema.types == [pa.int64() if bits == 64 else getattr(pa, f"int{bits}")()]
