"""A Parquet sink for every query: its answers are read through the engine's pages and written, up to some rows."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.bench.join_jobs import EVERYTHING, Drained
from millstream.engine.engine import Engine
from millstream.engine.status import Answer

# Rows that are read and written together: small answers would make small row groups.
GROUP_ROWS = 1 << 20
# Bytes of a page of Parquet; small pages cost a quarter of the writing.
PARQUET_PAGE = 4 << 20


# Seconds that are spent on the answers of a cell, unless all of them are wanted: the rate is known by then.
MOST_SECONDS = 20.0


class Budget:
    """Rows that may still be read by all readers together, and until when on the monotonic clock."""

    def __init__(self, rows: int, until: float = math.inf) -> None:
        self._left = rows
        self._until = until
        self._lock = Lock()
        self.taken = 0

    def take(self, rows: int) -> bool:
        """Count rows that were read; False when no more are wanted."""
        with self._lock:
            self.taken += rows
            self._left -= rows
            return self._left > 0 and time.monotonic() < self._until


def drain(engine: Engine, queries: Sequence[str], folder: Path, most: int, readers: int) -> Drained:
    """Read and write the answers of the queries, so many readers at a time."""
    folder.mkdir()
    of_rows = sum(status.answer_rows for status in engine.queries())
    began = time.monotonic()
    budget = Budget(most, math.inf if most == EVERYTHING else began + MOST_SECONDS)
    with ThreadPoolExecutor(readers) as pool:
        list(pool.map(lambda query: _sink(engine, query, folder / f"{query}.parquet", budget), queries))
    return Drained(budget.taken, of_rows, time.monotonic() - began)


def _sink(engine: Engine, query: str, path: Path, budget: Budget) -> None:
    """One query's sink; the next rows are read while the last are written."""
    if not budget.take(0):
        return
    schema = engine.query(query).schema
    with parquet_writer(path, schema) as writer, ThreadPoolExecutor(1) as pool:
        pending: Future[None] | None = None
        for group in _groups(engine, query, budget):
            if pending is not None:
                pending.result()
            pending = pool.submit(writer.write_table, group)
        if pending is not None:
            pending.result()


def parquet_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """Integers as packed differences: a fifth less time than a dictionary of them takes, in about the same room."""
    packed = [field.name for field in schema if pa.types.is_integer(field.type)]
    return pq.ParquetWriter(
        path,
        schema,
        data_page_size=PARQUET_PAGE,
        use_dictionary=[field.name for field in schema if field.name not in packed],
        column_encoding=dict.fromkeys(packed, "DELTA_BINARY_PACKED"),
    )


def _groups(engine: Engine, query: str, budget: Budget) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    for answer in _answers(engine, query):
        held.append(answer.table)
        wanted = budget.take(answer.table.num_rows)
        if not wanted or sum(table.num_rows for table in held) >= GROUP_ROWS:
            yield pa.concat_tables(held)
            held = []
        if not wanted:
            return
    if held:
        yield pa.concat_tables(held)


def _answers(engine: Engine, query: str) -> Iterator[Answer]:
    cursor = None
    while (page := engine.read_answers(query, cursor, rows=GROUP_ROWS)).answers:
        yield from page.answers
        cursor = page.cursor
