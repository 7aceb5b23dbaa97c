"""What columns a stream has: read from DDL text, from a Parquet footer, or inferred from the start of a text file."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.csv as pc_csv
import pyarrow.parquet as pq

from millstream.config import nearest
from millstream.errors import Position, SourceError
from millstream.model.stream import Field
from millstream.model.types import BOOLEAN, DATE, DOUBLE, LONG, STRING, TIMESTAMP, DataType, decimal, type_from_arrow
from millstream.sources.files import PARQUET_TROUBLE, bad_file, open_file

# The start of a text file from which types are inferred: enough to see rare values, small enough for every start.
INFERENCE_BYTES = 64 << 20
# JSON objects looked at; they are read one by one, so this bounds the time to about a second.
INFERENCE_LINES = 100_000
# Spark reads unsigned 64-bit integers as decimals of this many digits.
UINT64_DIGITS = 20

_TYPES: dict[str, str] = {
    "BIGINT": "long",
    "LONG": "long",
    "INT": "integer",
    "INTEGER": "integer",
    "SMALLINT": "short",
    "SHORT": "short",
    "TINYINT": "byte",
    "BYTE": "byte",
    "FLOAT": "float",
    "REAL": "float",
    "DOUBLE": "double",
    "STRING": "string",
    "BOOLEAN": "boolean",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_LTZ": "timestamp",
    "TIMESTAMP_NTZ": "timestamp_ntz",
}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_MAX_DIGITS = 38
_COLUMN = re.compile(
    r"\s*(?:`((?:[^`]|``)+)`|([A-Za-z_][A-Za-z0-9_]*))\s*:?\s*"
    r"([A-Za-z_]+)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?(?:\s+NOT\s+NULL)?\s*(?:,|$)",
    re.IGNORECASE,
)
_DDL_NAMES = {kind: name for name, kind in reversed(_TYPES.items())}
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_ddl(text: str) -> tuple[Field, ...]:
    """The fields of a Spark DDL text.

    >>> [str(field.type) for field in parse_ddl("user_id BIGINT, price DECIMAL(10,2), time TIMESTAMP")]
    ['long', 'decimal(10,2)', 'timestamp']
    """
    fields: list[Field] = []
    end = 0
    while end < len(text.rstrip()):
        match = _COLUMN.match(text, end)
        if not match:
            raise _bad_schema(text, end, len(text), "expected a column as in: price DECIMAL(10,2)")
        name = match[1].replace("``", "`") if match[1] else match[2]
        if any(name.lower() == field.name.lower() for field in fields):
            raise _bad_schema(text, match.start(1 if match[1] else 2), match.end(2), f"column {name!r} is given twice")
        fields.append(Field(name, _ddl_type(text, match)))
        end = match.end()
    if not fields or text.rstrip().endswith(","):
        raise _bad_schema(
            text, max(0, len(text.rstrip()) - 1), len(text), "expected a column as in: price DECIMAL(10,2)"
        )
    return tuple(fields)


def _ddl_type(text: str, match: re.Match[str]) -> DataType:
    name = match[3].upper()
    if name in _DECIMALS:
        precision, scale = int(match[4] or 10), int(match[5] or 0)
        if not (1 <= precision <= _MAX_DIGITS and scale <= precision):
            raise _bad_schema(text, *match.span(4), f"no decimal has {precision} digits, {scale} of them fractional")
        return decimal(precision, scale)
    if name not in _TYPES or match[4]:
        hint = nearest(name, [*dict.fromkeys(_TYPES), "DECIMAL"])
        raise _bad_schema(
            text, *match.span(3), f"unknown type {match[0].strip().rstrip(',').split(None, 1)[-1]!r}", hint
        )
    return DataType(_TYPES[name])


def _bad_schema(text: str, start: int, stop: int, reason: str, hint: str | None = None) -> SourceError:
    place = Position.of(text, start, stop)
    return SourceError("BAD_STREAM", f"bad schema: {reason}", hint=hint, position=place, text=text)


def format_ddl(fields: Iterable[Field]) -> str:
    """The text that :func:`parse_ddl` reads back.

    >>> format_ddl(parse_ddl("`a b` INT, price NUMERIC(10,2)"))
    '`a b` INT, price DECIMAL(10,2)'
    """
    return ", ".join(f"{_quoted(field.name)} {_ddl_name(field.type)}" for field in fields)


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _ddl_name(data_type: DataType) -> str:
    if data_type.kind == "decimal":
        return f"DECIMAL({data_type.precision},{data_type.scale})"
    return _DDL_NAMES[data_type.kind]


def infer_fields(path: str, file_format: str) -> tuple[Field, ...]:
    """The fields of one file: exactly for Parquet, from its start for ``csv`` and ``json``."""
    return {"parquet": _parquet_fields, "csv": _csv_fields, "json": _json_fields}[file_format](path)


def parquet_schema(file: pq.ParquetFile) -> dict[str, pa.DataType]:
    """Arrow types by column. INT96, the old timestamp of Spark, is an instant although Arrow shows no zone."""
    types = {field.name: field.type for field in file.schema_arrow}
    for i in range(len(file.schema)):
        column = file.schema.column(i)
        if column.physical_type == "INT96" and column.path in types:
            types[column.path] = pa.timestamp(types[column.path].unit, tz="UTC")
    return types


def _parquet_fields(path: str) -> tuple[Field, ...]:
    try:
        with open_file(path) as source:
            types = parquet_schema(pq.ParquetFile(source))
    except PARQUET_TROUBLE as error:
        raise bad_file(path, error) from None
    fields = []
    for name, arrow in types.items():
        try:
            data_type = decimal(UINT64_DIGITS, 0) if arrow == pa.uint64() else type_from_arrow(arrow)
        except ValueError as error:
            hint = "give the stream a schema with the columns it needs; others are not read"
            raise SourceError("BAD_FILE", f"column {name!r} of {path}: {error}", hint=hint) from None
        fields.append(Field(name, data_type))
    return tuple(fields)


def _start_of(path: str) -> bytes:
    """Whole lines from the start of a text file."""
    try:
        with open_file(path) as source:
            start: bytes = source.read(INFERENCE_BYTES)
    except OSError as error:
        raise bad_file(path, error) from None
    if len(start) == INFERENCE_BYTES and b"\n" in start:
        start = start[: start.rindex(b"\n") + 1]
    return start.removeprefix(BOM)


BOM = b"\xef\xbb\xbf"
# Only these two words: "1" and "0" are numbers.
CSV_TRUE = ("true", "True", "TRUE")
CSV_FALSE = ("false", "False", "FALSE")


def _csv_fields(path: str) -> tuple[Field, ...]:
    start = _start_of(path)
    if not start.strip():
        raise SourceError("BAD_FILE", f"cannot read {path}: the file is empty, a CSV file starts with a header")
    convert = pc_csv.ConvertOptions(
        null_values=[""], true_values=CSV_TRUE, false_values=CSV_FALSE, strings_can_be_null=True
    )
    parse = pc_csv.ParseOptions(invalid_row_handler=lambda row: "skip")
    try:
        table = pc_csv.read_csv(io.BytesIO(start), parse_options=parse, convert_options=convert)
    except pa.ArrowException as error:
        raise bad_file(path, error) from None
    _check_names(path, table.column_names)
    return tuple(
        Field(name, _text_type(column.type)) for name, column in zip(table.column_names, table.columns, strict=True)
    )


def _check_names(path: str, names: Sequence[str]) -> None:
    for name in names:
        if not name or names.count(name) > 1:
            what = "has no name" if not name else f"{name!r} is there twice"
            raise SourceError("BAD_FILE", f"cannot read {path}: a column of its header {what}")


def _text_type(arrow: pa.DataType) -> DataType:
    """Text has no zoned and zoneless timestamps, so both are TIMESTAMP, read as UTC."""
    if pa.types.is_timestamp(arrow):
        return TIMESTAMP
    known = {pa.int64(): LONG, pa.float64(): DOUBLE, pa.bool_(): BOOLEAN, pa.date32(): DATE}
    return known.get(arrow, STRING)


_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?\s?(Z|[+-]\d\d(:?\d\d)?)?")
_LONG_RANGE = range(-(2**63), 2**63)
# Two types found in one column become the wider of them; any other pair becomes text.
_WIDER = {frozenset((LONG, DOUBLE)): DOUBLE, frozenset((DATE, TIMESTAMP)): TIMESTAMP}


def _json_fields(path: str) -> tuple[Field, ...]:
    found: dict[str, DataType | None] = {}
    for line in _start_of(path).split(b"\n", INFERENCE_LINES)[:INFERENCE_LINES]:
        try:
            row = json.loads(line, parse_float=Decimal)
        except ValueError:
            continue
        for name, value in row.items() if isinstance(row, dict) else ():
            seen, kind = found.get(name), _value_type(value)
            if seen is None or kind is None or seen == kind:
                found[name] = seen or kind
            else:
                found[name] = _WIDER.get(frozenset((seen, kind)), STRING)
    if not found:
        raise SourceError(
            "BAD_FILE", f"cannot read {path}: no line holds a JSON object", hint="one object on each line"
        )
    return tuple(Field(name, kind or STRING) for name, kind in found.items())


def _value_type(value: object) -> DataType | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int):
        return LONG if value in _LONG_RANGE else DOUBLE
    if isinstance(value, Decimal | float):
        return DOUBLE
    if isinstance(value, str) and _DATE.fullmatch(value):
        return DATE
    return TIMESTAMP if isinstance(value, str) and _TIMESTAMP.fullmatch(value) else STRING
