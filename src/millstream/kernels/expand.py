"""The rows of a join's answer, built page by page while somebody reads them.

DuckDB joins the legs as a stream: it keeps tables of single legs, never pairs of rows, so an answer of any length is
read in the memory of its legs and one page.
"""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from types import TracebackType
from uuid import uuid4
from weakref import WeakSet

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from millstream.kernels.expand_sql import DISABLED_OPTIMIZERS, Input, Statement, leg_table, reads_window, statement
from millstream.kernels.guard import ONE_THREAD
from millstream.model.expression import columns
from millstream.model.join import JoinQuery, leg_column
from millstream.model.types import DataType

# Tables of the legs of a window, a few million rows; what does not fit goes to disk.
MEMORY = 512 << 20
# Rows that DuckDB hands over at once: enough that the handing over costs nothing, few enough to be no burden.
BATCH_ROWS = 1 << 16
# An Arrow array of text holds 2 GiB; the longest texts of all rows of a batch must fit, with room to spare.
BATCH_BYTES = 64 << 20
# Opening a database takes 20 ms, many times what a small answer takes; so some are kept for the next reader.
_KEPT_DATABASES = 4


class _Database:
    """A DuckDB instance of its own, with one thread: no other reader can change the order of rows or take memory."""

    def __init__(self, memory: int, spill: str | None) -> None:
        self.settings = (memory, spill)
        self._held = 0
        directory = Path(spill or tempfile.gettempdir()) / f"millstream-{uuid4().hex}"
        self.connection = duckdb.connect(
            ":memory:", config={**ONE_THREAD, "memory_limit": f"{memory}B", "temp_directory": str(directory)}
        )
        self.connection.execute(f"SET disabled_optimizers = '{DISABLED_OPTIMIZERS}'")

    def hold(self, legs: Sequence[pa.Table]) -> None:
        for leg, table in enumerate(legs):
            self.connection.register(leg_table(leg), table)
        self._held = len(legs)

    def let_go(self) -> None:
        for leg in range(self._held):
            self.connection.unregister(leg_table(leg))
        self._held = 0

    def close(self) -> None:
        self.connection.close()


class _Databases:
    """Databases that nobody uses at the moment."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._free: list[_Database] = []

    def take(self, memory: int, spill: str | None, legs: Sequence[pa.Table]) -> _Database:
        """A database that holds the legs."""
        with self._lock:
            fitting = [i for i, database in enumerate(self._free) if database.settings == (memory, spill)]
            known = self._free.pop(fitting[0]) if fitting else None
        database = known or _Database(memory, spill)
        database.hold(legs)
        return database

    def give_back(self, database: _Database) -> None:
        database.let_go()
        with self._lock:
            self._free.append(database)
            surplus = self._free.pop(0) if len(self._free) > _KEPT_DATABASES else None
        if surplus is not None:
            surplus.close()

    def close(self) -> None:
        with self._lock:
            free, self._free = self._free, []
        for database in free:
            database.close()


_databases = _Databases()
# DuckDB's binding prints pages about leaks when a connection outlives the interpreter.
_open: WeakSet[Pages] = WeakSet()


@atexit.register
def _close_all() -> None:
    for pages in list(_open):
        pages.close()
    _databases.close()


class Pages:
    """An answer under a reader's hand: the next page continues where the last one ended. For one thread at a time.

    The order of rows follows from the query, the rows of the legs in their order, and ``memory``; how the legs are
    cut into chunks does not matter. ``spill`` is the directory for what does not fit in ``memory`` bytes (None: the
    system's own).
    """

    def __init__(
        self,
        query: JoinQuery,
        legs: Sequence[pa.Table],
        start: int,
        end: int,
        memory: int = MEMORY,
        spill: str | None = None,
    ) -> None:
        _check(query, legs)
        self._schema = pa.schema([pa.field(output.name, output.type.arrow) for output in query.outputs])
        self._types = [output.type for output in query.outputs]
        self._statement = statement(query, [leg.num_rows for leg in legs], start, end)
        self._legs = _inputs(self._statement, legs)
        self._batch_rows = _batch_rows(query, self._statement, self._legs)
        self._settings = (memory, spill)
        self._database: _Database | None = None
        self._reader: pa.RecordBatchReader | None = None
        self._rest: pa.RecordBatch | None = None
        self._position = -1
        _open.add(self)

    def __enter__(self) -> Pages:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def page(self, skip: int, rows: int) -> pa.Table:
        """At most ``rows`` rows after the first ``skip``; an empty table after the last. Any other place than the end
        of the last page starts the join again, which passes over rows without building them."""
        if skip < 0 or rows <= 0:
            raise ValueError(f"a page has a place from 0 on and at least one row, not {rows} rows from {skip}")
        if skip != self._position:
            self._start(skip)
        taken = []
        while rows and (batch := self._next()) is not None:
            taken.append(batch.slice(0, rows))
            self._rest = batch.slice(rows)
            rows -= taken[-1].num_rows
            self._position += taken[-1].num_rows
        return pa.Table.from_batches(taken, self._schema)

    def close(self) -> None:
        """Give up the stream and the memory of the join; a later page starts it again."""
        self._stop()
        if self._database is not None:
            _databases.give_back(self._database)
            self._database = None

    def _start(self, skip: int) -> None:
        self._stop()
        if self._database is None:
            self._database = _databases.take(*self._settings, self._legs)
        with _told(self._settings[0]):
            rows = self._database.connection.sql(self._statement.rows(skip))
            self._reader = rows.to_arrow_reader(self._batch_rows)
        self._position = skip

    def _stop(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader, self._rest, self._position = None, None, -1

    def _next(self) -> pa.RecordBatch | None:
        """The next rows of the stream; None at its end, where it stays."""
        if self._rest is not None and self._rest.num_rows:
            return self._rest
        if self._reader is None:
            return None
        try:
            with _told(self._settings[0]):
                batch = next(self._reader, None)
        except BaseException:
            self._stop()
            raise
        if batch is None:
            self._reader.close()
            self._reader = None
            return None
        return _typed(batch, self._types, self._schema)


def expand(
    query: JoinQuery,
    legs: Sequence[pa.Table],
    start: int,
    end: int,
    page: int,
    skip: int = 0,
    memory: int = MEMORY,
    spill: str | None = None,
) -> Iterator[pa.Table]:
    """All pages of an answer from row ``skip`` on, of ``page`` rows each but the last; ``legs`` hold the rows that
    passed the conditions of their leg and lie in the window."""
    with Pages(query, legs, start, end, memory, spill) as pages:
        while (table := pages.page(skip, page)).num_rows:
            skip += table.num_rows
            yield table


def count(
    query: JoinQuery,
    legs: Sequence[pa.Table],
    start: int | None = None,
    end: int | None = None,
    memory: int = MEMORY,
    spill: str | None = None,
) -> int:
    """The number of rows of an answer; the window is needed only where the conditions read its bounds."""
    _check(query, legs)
    if (start is None or end is None) and reads_window(query):
        raise ValueError("the conditions of the join read the window; its start and end are needed")
    asked = statement(query, [leg.num_rows for leg in legs], start or 0, end or 0)
    database = _databases.take(memory, spill, _inputs(asked, legs))
    try:
        with _told(memory):
            found = database.connection.sql(asked.count).fetchall()
    finally:
        _databases.give_back(database)
    return int(found[0][0])


def _check(query: JoinQuery, legs: Sequence[pa.Table]) -> None:
    if query.grouped:
        raise ValueError("only joins without grouping have rows to expand")
    if len(legs) != len(query.legs):
        raise ValueError(f"the join has {len(query.legs)} legs, not {len(legs)}")


@contextmanager
def _told(memory: int) -> Iterator[None]:
    """DuckDB's errors come as its own when a query starts and as Arrow's while its stream is read."""
    try:
        yield
    except (duckdb.OutOfMemoryException, OSError) as error:
        if "Out of Memory" not in str(error):
            raise
        raise MemoryError(f"the tables of the join do not fit in {memory} bytes") from error


def _inputs(asked: Statement, legs: Sequence[pa.Table]) -> list[pa.Table]:
    return [_input(leg, table, wanted) for leg, (table, wanted) in enumerate(zip(legs, asked.inputs, strict=True))]


def _input(leg: int, table: pa.Table, wanted: Sequence[Input]) -> pa.Table:
    """The columns the statement reads, in one chunk each: DuckDB's order of rows follows its vectors, and they end
    where chunks do."""
    if not wanted:
        return pa.table({leg_column(leg, "#row"): pa.nulls(table.num_rows, pa.int8())})
    return pa.table({item.inside: _plain(table.column(item.name), item.type) for item in wanted}).combine_chunks()


def _plain(column: pa.ChunkedArray, type_: DataType) -> pa.ChunkedArray | pa.Array:
    """A column as DuckDB takes it: without a zone, a dictionary or an unknown type."""
    if type_.kind == "void":
        return pa.nulls(len(column), pa.int32())
    wanted = pa.timestamp("us") if pa.types.is_timestamp(type_.arrow) else type_.arrow
    return column if column.type == wanted else column.cast(wanted)


def _typed(batch: pa.RecordBatch, types: Sequence[DataType], schema: pa.Schema) -> pa.RecordBatch:
    """A batch of exactly the answer's types."""
    arrays = []
    for column, type_ in zip(batch.columns, types, strict=True):
        if type_.kind == "void":
            arrays.append(pa.nulls(batch.num_rows))
        else:
            arrays.append(column if column.type == type_.arrow else column.cast(type_.arrow))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _batch_rows(query: JoinQuery, asked: Statement, legs: Sequence[pa.Table]) -> int:
    """Fewer rows at once where texts are long."""
    longest: dict[str, int] = {}
    for leg, (table, wanted) in enumerate(zip(legs, asked.inputs, strict=True)):
        for item in wanted:
            if item.type.kind in ("string", "binary"):
                lengths = pc.binary_length(table.column(item.inside))
                longest[leg_column(leg, item.name)] = pc.max(lengths).as_py() or 0
    width = max((sum(longest.get(n, 0) for n in columns(o.expression)) for o in query.outputs), default=0)
    return max(1, min(BATCH_ROWS, BATCH_BYTES // (width + 1)))
