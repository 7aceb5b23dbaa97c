"""Spark's data types, and what they are in Arrow and DuckDB.

Every value keeps Spark's type on its whole way. Decimals of up to 18 digits travel through NumPy as scaled
64-bit integers; dates as days and timestamps as microseconds since 1970.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

# Decimals with at most this many digits fit a signed 64-bit integer when scaled.
LONG_DIGITS = 18

_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}

# Both timestamps are plain TIMESTAMP in DuckDB: the session time zone is UTC, so the values are the same.
_DUCK: dict[str, str] = {
    "boolean": "BOOLEAN",
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamp_ntz": "TIMESTAMP",
    "void": "INTEGER",
}

_WINDOW_FIELD = {"window": "timestamp", "window_ntz": "timestamp_ntz"}

INTEGRAL = ("byte", "short", "integer", "long")
FLOATING = ("float", "double")


@dataclass(frozen=True, slots=True)
class DataType:
    """A Spark type. ``kind`` is Spark's JSON name; windows, the only structs, are ``window`` or ``window_ntz``."""

    kind: str
    precision: int = 0
    scale: int = 0

    def __post_init__(self) -> None:
        if self.kind != "decimal" and self.kind not in _ARROW and self.kind not in _WINDOW_FIELD:
            raise ValueError(f"unknown type {self.kind!r}; known: {', '.join([*_ARROW, 'decimal'])}")

    @property
    def integral(self) -> bool:
        return self.kind in INTEGRAL

    @property
    def floating(self) -> bool:
        return self.kind in FLOATING

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type that Spark itself maps this type to."""
        if self.kind == "decimal":
            return pa.decimal128(self.precision, self.scale)
        if self.kind in _WINDOW_FIELD:
            field = _ARROW[_WINDOW_FIELD[self.kind]]
            return pa.struct([pa.field("start", field), pa.field("end", field)])
        return _ARROW[self.kind]

    @property
    def duck(self) -> str:
        if self.kind == "decimal":
            return f"DECIMAL({self.precision},{self.scale})"
        if self.kind in _WINDOW_FIELD:
            field = _DUCK[_WINDOW_FIELD[self.kind]]
            return f'STRUCT("start" {field}, "end" {field})'
        return _DUCK[self.kind]

    @property
    def json(self) -> object:
        """Spark's JSON form, as ``StructType.fromJson`` reads it."""
        if self.kind in _WINDOW_FIELD:
            inner = _WINDOW_FIELD[self.kind]
            fields: list[object] = [
                {"name": n, "type": inner, "nullable": True, "metadata": {}} for n in ("start", "end")
            ]
            return {"type": "struct", "fields": fields}
        return str(self)

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})" if self.kind == "decimal" else self.kind


BOOLEAN = DataType("boolean")
INTEGER = DataType("integer")
LONG = DataType("long")
DOUBLE = DataType("double")
STRING = DataType("string")
DATE = DataType("date")
TIMESTAMP = DataType("timestamp")
TIMESTAMP_NTZ = DataType("timestamp_ntz")


def decimal(precision: int, scale: int) -> DataType:
    return DataType("decimal", precision, scale)


def parse_type(spark_json: object) -> DataType:
    """Read a type from the JSON that Spark writes.

    >>> parse_type("decimal(10,2)").precision
    10
    >>> parse_type({"type": "struct", "fields": [{"name": "start", "type": "timestamp"},
    ...                                          {"name": "end", "type": "timestamp"}]}).kind
    'window'
    """
    if isinstance(spark_json, dict):
        fields = [(f["name"], f["type"]) for f in spark_json.get("fields", [])]
        for kind, inner in _WINDOW_FIELD.items():
            if fields == [("start", inner), ("end", inner)]:
                return DataType(kind)
        raise ValueError(f"nested type {spark_json.get('type')!r}")
    text = str(spark_json)
    match = re.fullmatch(r"decimal\((\d+),\s*(-?\d+)\)", text)
    if match:
        return decimal(int(match[1]), int(match[2]))
    return DataType(text)


def type_from_arrow(arrow: pa.DataType) -> DataType:
    """The Spark type that an Arrow column is read as; timestamps of any unit and zone become microseconds."""
    if pa.types.is_dictionary(arrow):
        return type_from_arrow(arrow.value_type)
    if pa.types.is_decimal(arrow):
        return decimal(arrow.precision, arrow.scale)
    if pa.types.is_timestamp(arrow):
        return TIMESTAMP if arrow.tz else TIMESTAMP_NTZ
    if pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow):
        return STRING
    if pa.types.is_large_binary(arrow) or pa.types.is_fixed_size_binary(arrow):
        return DataType("binary")
    widened = {pa.uint8(): "short", pa.uint16(): "integer", pa.uint32(): "long", pa.float16(): "float"}
    if arrow in widened:
        return DataType(widened[arrow])
    if arrow == pa.date64():
        return DATE
    for kind, known in _ARROW.items():
        if arrow == known:
            return DataType(kind)
    raise ValueError(f"columns of type {arrow} are not supported")
