"""Evaluates scalar expressions over Arrow tables, all of them in one DuckDB query."""

from __future__ import annotations

import atexit
import itertools
import statistics
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from weakref import WeakSet

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.config import Limits
from millstream.errors import EvaluationError
from millstream.kernels.guard import ONE_THREAD, allowance, end_process, too_long, too_much, watched
from millstream.model.expression import Column, Expression, Literal, Value, columns, rewrite
from millstream.model.types import DataType
from millstream.sql.functions import Program
from millstream.sql.functions.folding import folded

_ROW = "#row"
# Rows on which a new expression is tried before it is let loose on a chunk, and the fewest rows for which that pays.
# Few enough, since an evaluation cannot be interrupted within a vector of rows; and fewer where they would take longer
# than so many seconds.
TRIAL_ROWS = 100
TRIAL_SECONDS = 0.05
TRIED_FROM = 10 * TRIAL_ROWS
# Blocks of rows from all over a chunk that decide about an expression under suspicion, and the rows of each.
JURY = 5
JURY_ROWS = 400
# … or fewer where rows take long, down to the fewest: nobody is to wait longer than so many seconds for a block.
JURY_SECONDS = 0.02
FEWEST_ROWS = 5
# Rows that the time limit is for; more rows may take longer, in proportion.
LIMITED_ROWS = 250_000
# Expressions of which a process knows that they are quick enough.
_TRIED = 65_536
# Distinct sets of expressions whose SQL a process keeps; a group version asks for a handful.
_CACHED_QUERIES = 4096
# Characters of SQL that an evaluator keeps prepared, at about fifty bytes each. Planning a query takes milliseconds,
# running it on a few thousand rows less than one.
PREPARED_TEXT = 1 << 20

Counts = np.ndarray[tuple[int], np.dtype[np.int32]]


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Values of one expression, and how many of its operators failed on each row (None: none can)."""

    values: pa.Array
    failures: Counts | None


class Refused(EvaluationError):
    """Some of the expressions would take more than they may; ``guilty`` are they, each with its error. Of the others
    nothing is known yet."""

    def __init__(self, guilty: dict[Expression, EvaluationError]) -> None:
        first = next(iter(guilty.values()))
        super().__init__(first.code, first.message, hint=first.hint)
        self.guilty = guilty

    def __reduce__(self) -> tuple[Any, ...]:
        return Refused, (self.guilty,)


@dataclass(frozen=True, slots=True)
class _Weight:
    """What an expression takes for each row."""

    seconds: float
    size: float


# DuckDB's binding prints pages about leaks when a connection outlives the interpreter.
_open: WeakSet[Evaluator] = WeakSet()


@atexit.register
def _close_all() -> None:
    for evaluator in list(_open):
        evaluator.close()


@dataclass(frozen=True, eq=False, slots=True)
class _Query:
    """One DuckDB query for many expressions over a ``source`` of its own. ``inputs`` are the columns it reads, ``#c0``,
    ``#c1`` … inside."""

    source: str
    sql: str
    inputs: tuple[str, ...]
    counted: tuple[bool, ...]


_sources = itertools.count()


@lru_cache(maxsize=_CACHED_QUERIES)
def _plan(expressions: tuple[Expression, ...], counting: bool) -> _Query:
    """Input columns are renamed: DuckDB's identifiers ignore case, Arrow's do not."""
    inputs = tuple(sorted({name for expression in expressions for name in columns(expression)}))
    names = {name: f"#c{index}" for index, name in enumerate(inputs)}

    def renamed(node: Expression) -> Expression | None:
        return replace(node, name=names[node.name]) if isinstance(node, Column) else None

    program = Program()
    outputs, counted = [], []
    for index, expression in enumerate(expressions):
        inner = rewrite(folded(expression), renamed)
        outputs.append(f"{program.value(inner)} AS v{index}")
        failures = program.failures(inner) if counting else None
        counted.append(failures is not None)
        if failures is not None:
            outputs.append(f"CAST({failures} AS INTEGER) AS f{index}")
    source = f"millstream_{next(_sources)}"
    return _Query(source, program.select(outputs, source), inputs, tuple(counted))


class _Feed:
    """What a prepared query reads, table after table: the database asks for the rows each time the query runs."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_schema__(self) -> Any:
        return self.table.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


class _Prepared:
    """The queries that a connection has prepared, each for columns of some types; those that ran longest ago go."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._feeds: OrderedDict[_Query, _Feed] = OrderedDict()
        self._text = 0

    def run(self, query: _Query, table: pa.Table) -> pa.Table:
        feed = self.feed(query, table.schema)
        feed.table = table
        try:
            return self._connection.sql(f"EXECUTE {query.source}").to_arrow_table()
        finally:
            feed.table = table.schema.empty_table()

    def feed(self, query: _Query, schema: pa.Schema) -> _Feed:
        """Prepare the query, unless it is."""
        feed = self._feeds.get(query)
        if feed is not None and feed.table.schema != schema:
            self._drop(query)
            feed = None
        if feed is None:
            feed = self._feeds[query] = self._new(query, schema)
            self._text += len(query.sql)
            while self._text > PREPARED_TEXT and len(self._feeds) > 1:
                self._drop(next(iter(self._feeds)))
        self._feeds.move_to_end(query)
        return feed

    def _new(self, query: _Query, schema: pa.Schema) -> _Feed:
        feed = _Feed(schema.empty_table())
        self._connection.register(query.source, feed)
        try:
            self._connection.execute(f"PREPARE {query.source} AS {query.sql}")
        except BaseException:
            self._connection.unregister(query.source)
            raise
        return feed

    def _drop(self, query: _Query) -> None:
        del self._feeds[query]
        self._text -= len(query.sql)
        self._connection.execute(f"DEALLOCATE {query.source}")
        self._connection.unregister(query.source)


class Evaluator:
    """One DuckDB connection with one thread, made for a process and used for many batches; not for many threads.

    >>> from millstream.model.types import INTEGER
    >>> Evaluator().evaluate(pa.table({"a": pa.array([1, None], pa.int32())}), [Column("a", INTEGER)])[0].to_pylist()
    [1, None]
    """

    def __init__(self, limits: Limits | None = None, *, in_worker: bool = False) -> None:
        limits = limits or Limits()
        # Arrow reserves a gigabyte of addresses with its first allocation: now, and not while memory is limited.
        pa.allocate_buffer(1)
        self._memory = limits.evaluation_memory
        self._connection = duckdb.connect(":memory:", config={**ONE_THREAD, "memory_limit": f"{self._memory}B"})
        self._prepared = _Prepared(self._connection)
        # A worker whose evaluation cannot be interrupted is given up; the driver cannot be.
        self._last_resort = end_process if in_worker else None
        self._seconds = limits.evaluation_time / 1e6
        self._tried: set[Expression] = set()
        # Expressions under suspicion on which the rows of the task have been tried.
        self._weighed: dict[Expression, _Weight] = {}
        self._expected_rows = 0
        _open.add(self)

    def begin(self, expected_rows: int = 0) -> None:
        """A task begins. So many rows are expected: they may come in many small tables."""
        self._expected_rows = expected_rows
        self.weigh_anew()

    def weigh_anew(self) -> None:
        """Rows follow that are not some of those before: what expressions take for each row is not known of them."""
        self._weighed.clear()

    def close(self) -> None:
        """Give the connection back; the evaluator is of no use after that."""
        if hasattr(self, "_connection"):
            self._connection.close()
            del self._connection, self._prepared

    def evaluate(self, table: pa.Table | pa.RecordBatch, expressions: Sequence[Expression]) -> list[pa.Array]:
        """The values of the expressions, each of exactly its type's Arrow type."""
        return [item.values for item in self._run(table, expressions, counting=False)]

    def evaluate_counted(self, table: pa.Table | pa.RecordBatch, expressions: Sequence[Expression]) -> list[Evaluated]:
        """The values together with the failures."""
        return self._run(table, expressions, counting=True)

    def failures(self, table: pa.Table | pa.RecordBatch, expressions: Sequence[Expression]) -> list[Counts | None]:
        """How many operators of each expression fail on each row."""
        return [item.failures for item in self._run(table, expressions, counting=True)]

    def constant(self, expression: Expression) -> Value:
        """The value of an expression without columns, in the form that literals have."""
        # Thousands of constants in a condition would take the database seconds.
        plain = folded(expression)
        if isinstance(plain, Literal):
            return plain.value
        if columns(expression):
            raise ValueError(f"not a constant: it has the columns {', '.join(sorted(columns(expression)))}")
        one_row = pa.table({_ROW: pa.array([0], pa.int8())})
        return to_value(self.evaluate(one_row, [expression])[0][0], expression.type)

    def _run(
        self, table: pa.Table | pa.RecordBatch, expressions: Sequence[Expression], counting: bool
    ) -> list[Evaluated]:
        results: dict[Expression, Evaluated] = {}
        calls: list[Expression] = []
        for expression in dict.fromkeys(expressions):
            if isinstance(expression, Column):
                results[expression] = Evaluated(_conform(table.column(expression.name), expression.type), None)
            else:
                calls.append(expression)
        if calls:
            self._try(table, calls)
            results.update(zip(calls, self._query(table, tuple(calls), counting), strict=True))
        return [results[expression] for expression in expressions]

    def _try(self, table: pa.Table | pa.RecordBatch, expressions: Sequence[Expression]) -> None:
        """Refuse new expressions that would take too long, before everybody waits for them: a few rows tell."""
        new = tuple(e for e in expressions if e not in self._tried)
        if not new or table.num_rows < TRIED_FROM:
            return
        if self._is_suspect(table, new):
            guilty = {expression: error for expression in new if (error := self._verdict(table, expression))}
            if guilty:
                raise Refused(guilty)
        if len(self._tried) > _TRIED:
            self._tried.clear()
        self._tried.update(new)

    def _is_suspect(self, table: pa.Table | pa.RecordBatch, expressions: tuple[Expression, ...]) -> bool:
        """Whether the first rows look as if the table took more time or room than is allowed: cheap, often wrong."""
        try:
            return self._looks_heavy(table, expressions)
        except EvaluationError:
            return True

    def _looks_heavy(self, table: pa.Table | pa.RecordBatch, expressions: tuple[Expression, ...]) -> bool:
        one, size = self._tasted(table.slice(0, 1), expressions)
        rows = self._rows_to_come(table)
        if size * table.num_rows > self._memory:
            return True
        tried = FEWEST_ROWS
        some, size = self._tasted(table.slice(0, tried + 1), expressions)
        if (some - one) * TRIAL_ROWS / tried < TRIAL_SECONDS:
            tried = TRIAL_ROWS
            some, size = self._tasted(table.slice(0, tried + 1), expressions)
        long = (some - one) * rows / tried > self._allowed(rows)
        return long or size * table.num_rows / tried > self._memory

    def _verdict(self, table: pa.Table | pa.RecordBatch, expression: Expression) -> EvaluationError | None:
        """Why an expression is refused, by rows from all over the table."""
        try:
            weight = self._weighed.get(expression) or self._weigh(table, expression)
        except EvaluationError as error:
            return error
        if weight.size * table.num_rows > self._memory:
            return too_much(self._memory)
        rows = self._rows_to_come(table)
        return too_long(self._seconds) if weight.seconds * rows > self._allowed(rows) else None

    def _weigh(self, table: pa.Table | pa.RecordBatch, expression: Expression) -> _Weight:
        """Medians: a row that is much longer than the others, or a moment in which the machine is slow, condemns
        nobody."""
        spread = [place * table.num_rows // JURY for place in range(JURY)]
        planning, size = _medians(self._tasted(table.slice(place, 1), (expression,)) for place in spread)
        if size * table.num_rows > self._memory:
            raise too_much(self._memory)
        block = min(self._block(table, expression, planning), table.num_rows // JURY)
        seconds, size = _medians(self._tasted(table.slice(place, block), (expression,)) for place in spread)
        found = self._weighed[expression] = _Weight((seconds - planning) / block, size / block)
        return found

    def _block(self, table: pa.Table | pa.RecordBatch, expression: Expression, planning: float) -> int:
        """Rows that are worth a look; the first few tell how long each takes."""
        some, _ = self._tasted(table.slice(0, FEWEST_ROWS), (expression,))
        each = (some - planning) / FEWEST_ROWS
        return JURY_ROWS if each * JURY_ROWS <= JURY_SECONDS else max(FEWEST_ROWS, int(JURY_SECONDS / each))

    def _tasted(self, table: pa.Table | pa.RecordBatch, expressions: tuple[Expression, ...]) -> tuple[float, int]:
        """Seconds of processor time and bytes that a few rows take."""
        query = _plan(expressions, True)
        with self._guarded(table.num_rows):
            self._prepared.feed(query, _input(table, query.inputs).schema)
        before = time.thread_time()
        found = self._query(table, expressions, counting=True)
        return time.thread_time() - before, sum(int(one.values.nbytes) for one in found)

    def _rows_to_come(self, table: pa.Table | pa.RecordBatch) -> int:
        return max(int(table.num_rows), min(self._expected_rows, LIMITED_ROWS))

    def _allowed(self, rows: int) -> float:
        """Seconds for so many rows."""
        return self._seconds * max(1.0, rows / LIMITED_ROWS)

    @contextmanager
    def _guarded(self, rows: int) -> Iterator[None]:
        interrupt = self._connection.interrupt
        with watched(interrupt, self._allowed(rows), self._last_resort), allowance(self._memory):
            yield

    def _query(
        self, table: pa.Table | pa.RecordBatch, expressions: tuple[Expression, ...], counting: bool
    ) -> list[Evaluated]:
        query = _plan(expressions, counting)
        with self._guarded(table.num_rows):
            answer = self._prepared.run(query, _input(table, query.inputs))
        results = []
        for index, (expression, counted) in enumerate(zip(expressions, query.counted, strict=True)):
            values = _conform(answer.column(f"v{index}"), expression.type)
            failed = answer.column(f"f{index}").to_numpy() if counted else None
            results.append(Evaluated(values, failed))
        return results


def _medians(tasted: Iterable[tuple[float, int]]) -> tuple[float, float]:
    seconds, sizes = zip(*tasted, strict=True)
    return statistics.median(seconds), statistics.median(sizes)


def _input(table: pa.Table | pa.RecordBatch, names: Sequence[str]) -> pa.Table:
    """The columns a query reads, timestamps without their zone; a row number when it reads none."""
    if not names:
        return pa.table({_ROW: pa.nulls(table.num_rows, pa.int8())})
    return pa.table({f"#c{index}": _naive(table.column(name)) for index, name in enumerate(names)})


def _naive(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    if pa.types.is_timestamp(column.type) and column.type != pa.timestamp("us"):
        return column.cast(pa.timestamp("us"))
    return column


def as_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array; a single chunk is taken as it is, since ``combine_chunks`` would copy it."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.nulls(0, column.type)])


def _conform(column: pa.Array | pa.ChunkedArray, type_: DataType) -> pa.Array:
    """One array of exactly the type's Arrow type."""
    array = as_array(column)
    wanted = type_.arrow
    if array.type == wanted:
        return array
    if pa.types.is_null(wanted):
        return pa.nulls(len(array))
    if pa.types.is_struct(wanted):
        fields = [_conform_timestamp(pc.struct_field(array, [i]), wanted.field(i).type) for i in range(2)]
        return pa.StructArray.from_arrays(fields, fields=list(wanted), mask=array.is_null())
    if pa.types.is_timestamp(wanted):
        return _conform_timestamp(array, wanted)
    return array.cast(wanted)


def _conform_timestamp(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(array.type) and array.type.unit == "us":
        return array.view(pa.int64()).view(wanted)
    return array.cast(wanted)


def to_value(scalar: pa.Scalar, type_: DataType) -> Value:
    """An Arrow scalar as a literal's value: days, microseconds, decimals as text."""
    if not scalar.is_valid:
        return None
    if type_.kind in ("date", "timestamp", "timestamp_ntz"):
        return int(scalar.value)
    value = scalar.as_py()
    return f"{value:f}" if type_.kind == "decimal" else value
