"""A stream's rows as Flink reads them: CSV without a head, and the tables over it.

Flink's package from PyPI reads no Parquet. Timestamps are whole microseconds since 1970, so that it need not parse
dates; it keeps their milliseconds, the finest that its event time has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv

from millstream.errors import BenchError
from millstream.sources.schema import parse_ddl

EVENT_TIME = "time"
# How often a source looks for files: a fraction of the beat in which the driver writes them.
MONITOR = "50 ms"

_TYPES = {
    "boolean": "BOOLEAN",
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "date": "DATE",
}
_TIMES = ("timestamp", "timestamp_ntz")


def reads(text: str, stream: str) -> bool:
    """Whether a query's text names a stream: as a word, but not for a name that the text gives to something else.

    >>> text = "SELECT a.x FROM b AS a JOIN TABLE(TUMBLE(TABLE c, DESCRIPTOR(`time`), INTERVAL '1' SECOND)) ON a.x = x"
    >>> [stream for stream in "abc" if reads(text, stream)]
    ['b', 'c']
    """
    return re.search(rf"(?<!\bAS )(?<!\bAS `)\b{re.escape(stream)}\b(?!`?\.)", text, re.IGNORECASE) is not None


def write_rows(rows: pa.Table, path: Path) -> None:
    """Write a file of the queue, so that it appears whole."""
    columns = [rows[name].cast(_written(rows.schema.field(name).type)) for name in rows.column_names]
    hidden = path.with_name(f".{path.name}")
    csv.write_csv(pa.table(columns, rows.column_names), hidden, csv.WriteOptions(include_header=False))
    hidden.rename(path)


def _written(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def create_tables(stream: str, schema: str, directories: Sequence[Path]) -> list[str]:
    """The statements for a stream whose rows come in these directories: one table, or several and a view of all.

    >>> print(create_tables("s", "key BIGINT, time TIMESTAMP", [Path("/in")])[0])
    CREATE TABLE `s` (`key` BIGINT, `time micros` BIGINT, `time` AS TO_TIMESTAMP_LTZ(`time micros` / 1000, 3),
     WATERMARK FOR `time` AS `time` - INTERVAL '0.001' SECOND) WITH ('connector' = 'filesystem', 'format' = 'csv',
     'source.monitor-interval' = '50 ms', 'path' = 'file:///in')
    """
    # Many rows share a millisecond: a watermark that has reached it would make the rest of them late.
    watermark = f"WATERMARK FOR `{EVENT_TIME}` AS `{EVENT_TIME}` - INTERVAL '0.001' SECOND"
    columns = ", ".join([*_columns(schema), watermark])
    options = f"'connector' = 'filesystem', 'format' = 'csv', 'source.monitor-interval' = '{MONITOR}'"
    names = [stream] if len(directories) == 1 else [f"{stream} {number}" for number in range(len(directories))]
    tables = [
        f"CREATE TABLE `{name}` ({columns}) WITH ({options}, 'path' = '{directory.resolve().as_uri()}')"
        for name, directory in zip(names, directories, strict=True)
    ]
    if len(names) > 1:
        tables.append(f"CREATE VIEW `{stream}` AS " + " UNION ALL ".join(f"SELECT * FROM `{name}`" for name in names))
    return tables


def _columns(schema: str) -> list[str]:
    """Computed columns stand behind those of the file."""
    read, computed = [], []
    for column in parse_ddl(schema):
        kind = column.type.kind
        if kind in _TIMES:
            read.append(f"`{column.name} micros` BIGINT")
            computed.append(f"`{column.name}` AS TO_TIMESTAMP_LTZ(`{column.name} micros` / 1000, 3)")
        elif kind == "decimal":
            read.append(f"`{column.name}` DECIMAL({column.type.precision}, {column.type.scale})")
        elif kind in _TYPES:
            read.append(f"`{column.name}` {_TYPES[kind]}")
        else:
            raise BenchError("FLINK_FAILED", f"column {column.name!r} of type {column.type} cannot be read from CSV")
    return [*read, *computed]
