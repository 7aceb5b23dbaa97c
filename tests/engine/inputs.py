"""Small inputs for engine tests: purchases with one row for each tenth of a second, written as files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TENTH = 100_000
HOUR = 3_600_000_000
SCHEMA = "gem_pack INT, price BIGINT, time TIMESTAMP"


def purchases(first: int, count: int) -> pa.Table:
    """Rows ``first …``: gem_pack counts modulo 3, price is the row's number, time is a tenth of a second a row."""
    number = np.arange(first, first + count)
    return pa.table(
        {
            "gem_pack": pa.array(number % 3, pa.int32()),
            "price": pa.array(number, pa.int64()),
            "time": pa.array(number * TENTH, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        }
    )


def drop_file(folder: Path, name: str, table: pa.Table) -> None:
    """Let a complete file appear under its name."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f".{name}"
    pq.write_table(table, hidden)
    hidden.rename(folder / f"{name}.parquet")
