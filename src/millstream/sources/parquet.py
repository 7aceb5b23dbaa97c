"""Reading row ranges of Parquet files straight into Arrow, with only the row groups and columns that are needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.config import nearest
from millstream.errors import SourceError
from millstream.model.stream import Field
from millstream.model.types import FLOATING, INTEGRAL, DataType, type_from_arrow
from millstream.sources.chunk import CHUNK_ROWS, REJECTED, Chunk, Origin, Unread
from millstream.sources.files import PARQUET_TROUBLE, file_trouble, local_path, open_file
from millstream.sources.schema import UINT64_DIGITS, parquet_schema

# A recorded file made from text carries its bad rows in place, in these columns, and says so in its metadata.
MARKED = b"millstream.rejected"
REASON, ORIGIN, RAW = (f"#{name}" for name in REJECTED.names)

# Digits that hold every value of an integer type.
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
# Integers that floating-point types hold exactly.
_EXACT = {"float": ("byte", "short"), "double": ("byte", "short", "integer")}


@dataclass(frozen=True, slots=True)
class Footer:
    """What planning needs to know of a file: the rows of its row groups."""

    path: str
    group_rows: tuple[int, ...]

    @property
    def rows(self) -> int:
        return sum(self.group_rows)


def read_footer(path: str, fields: Sequence[Field] | None = None) -> Footer:
    """The footer; with fields, also checked to be of the stream's schema. SourceError BAD_FILE."""
    try:
        with open_file(path) as source:
            file = pq.ParquetFile(source)
            if fields is not None:
                check_schema(path, parquet_schema(file), fields)
            return _footer(path, file)
    except PARQUET_TROUBLE as error:
        raise file_trouble(path, error) from None


def _footer(path: str, file: pq.ParquetFile) -> Footer:
    metadata = file.metadata
    return Footer(path, tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)))


# Spark 2, and later ones on request, wrote old dates by another calendar and said so.
_WRITER, _LEGACY = b"org.apache.spark.version", b"org.apache.spark.legacyDateTime"


def exact_footer(path: str, fields: Sequence[Field]) -> Footer | None:
    """The footer of a file whose columns are the stream's as they are; None for others. Raises what Arrow raises."""
    with open_file(path) as source:
        file = pq.ParquetFile(source)
        found = parquet_schema(file)
        exact = all(found.get(field.name) == field.type.arrow for field in fields)
        # Spark compares names without their case, and refuses those that are there twice.
        distinct = len({name.lower() for name in file.schema_arrow.names}) == len(file.schema_arrow.names)
        told = file.metadata.metadata or {}
        old = _LEGACY in told or told.get(_WRITER, b"").startswith((b"1.", b"2."))
        return _footer(path, file) if exact and distinct and not old and not _is_marked(file) else None


def check_schema(path: str, found: dict[str, pa.DataType], fields: Sequence[Field]) -> None:
    """Every field must be there with a type that becomes the field's without loss."""
    for field in fields:
        arrow = found.get(field.name)
        if arrow is None:
            reason, hint = f"column {field.name!r} is missing", nearest(field.name, found)
        elif not widens(arrow, field.type):
            reason = f"column {field.name!r} is {arrow}, the stream's is {field.type}"
            hint = "give the stream a schema that fits all files"
        else:
            continue
        raise SourceError("BAD_FILE", f"cannot read {local_path(path) or path}: {reason}", hint=hint)


def widens(arrow: pa.DataType, wanted: DataType) -> bool:
    """Whether every value of the Arrow type is a value of the wanted type."""
    if arrow == pa.null():
        return True
    try:
        found = DataType("decimal", UINT64_DIGITS, 0) if arrow == pa.uint64() else type_from_arrow(arrow)
    except ValueError:
        return False
    if found == wanted or {found.kind, wanted.kind} == {"timestamp", "timestamp_ntz"}:
        return True
    if found.kind in INTEGRAL and wanted.kind in INTEGRAL:
        return INTEGRAL.index(found.kind) <= INTEGRAL.index(wanted.kind)
    if wanted.kind in FLOATING:
        return found.kind in _EXACT[wanted.kind] or (found.kind, wanted.kind) == ("float", "double")
    if wanted.kind == "decimal":
        digits = _DIGITS.get(
            found.kind, found.precision - found.scale if found.kind == "decimal" else wanted.precision + 1
        )
        return found.scale <= wanted.scale and digits <= wanted.precision - wanted.scale
    return (found.kind, wanted.kind) == ("date", "timestamp_ntz")


def read_parquet(
    path: str,
    first_row: int,
    rows: int | None,
    fields: Sequence[Field],
    columns: Sequence[str],
    unread: Unread | None = None,
) -> Iterator[Chunk]:
    """The rows ``first_row … first_row + rows`` in chunks; None means to the end."""
    types = {field.name: field.type for field in fields}
    try:
        with open_file(path) as source:
            file = pq.ParquetFile(source, pre_buffer=False)
            found = parquet_schema(file)
            check_schema(path, found, fields)
            marked = _is_marked(file)
            wanted = [*columns, *((REASON, ORIGIN, RAW) if marked else ())]
            if unread and (marked or not _can_spare(unread.column, columns, found, types)):
                unread = None
            for first, batch, span in _batches(path, file, first_row, rows, wanted, unread):
                kept = [name for name in columns if unread is None or span is None or name != unread.column]
                yield _chunk(path, first, batch, kept, types, marked, span)
    except PARQUET_TROUBLE as error:
        raise file_trouble(path, error) from None


def _is_marked(file: pq.ParquetFile) -> bool:
    return MARKED in (file.schema_arrow.metadata or {})


def _can_spare(column: str, columns: Sequence[str], found: dict[str, pa.DataType], types: dict[str, DataType]) -> bool:
    """Whether statistics of the column are in the stream's unit, and rows can be counted by another."""
    return len(columns) > 1 and found[column] == types[column].arrow


def _span(file: pq.ParquetFile, group: int, unread: Unread) -> tuple[int, int] | None:
    """The smallest and the largest value of the column in a row group, as its writer noted them, where they are enough;
    None where they are not, or nothing was noted, or there are NULLs."""
    chunks = file.metadata.row_group(group)
    for index in range(chunks.num_columns):
        chunk = chunks.column(index)
        if chunk.path_in_schema == unread.column and chunk.physical_type == "INT64":
            noted = chunk.statistics
            if noted is not None and noted.has_min_max and noted.has_null_count and not noted.null_count:
                span = noted.min_raw, noted.max_raw
                return span if unread.enough(*span) else None
    return None


def _batches(
    path: str,
    file: pq.ParquetFile,
    first_row: int,
    rows: int | None,
    columns: Sequence[str],
    unread: Unread | None = None,
) -> Iterator[tuple[int, pa.Table, tuple[int, int] | None]]:
    """Pieces of the range, each with the number of its first row; and with the span of the ``unread`` column where that
    is enough, which only whole row groups have. Their columns are the others then."""
    metadata = file.metadata
    stop_row = metadata.num_rows if rows is None else min(first_row + rows, metadata.num_rows)
    begin = 0
    for group in range(metadata.num_row_groups):
        end = begin + metadata.row_group(group).num_rows
        low, high = max(begin, first_row), min(end, stop_row)
        if low < high:
            # Read in one piece, so that nothing is known of rows that could not be read.
            whole = (low, high) == (begin, end) and end - begin <= CHUNK_ROWS
            span = _span(file, group, unread) if unread and whole else None
            wanted = [name for name in columns if unread is None or span is None or name != unread.column]
            if 2 * (high - low) < end - begin:
                found = _from_cursor(path, file, group, begin, low, high, wanted)
            else:
                found = _group_batches(file, group, begin, low, high, wanted)
            yield from ((first, batch, span) for first, batch in found)
        begin = end


def _group_batches(
    file: pq.ParquetFile, group: int, begin: int, low: int, high: int, columns: Sequence[str]
) -> Iterator[tuple[int, pa.Table]]:
    position = begin
    for batch in file.iter_batches(CHUNK_ROWS, row_groups=[group], columns=list(columns), use_threads=False):
        start, stop = max(low, position), min(high, position + batch.num_rows)
        if start < stop:
            yield start, pa.Table.from_batches([batch]).slice(start - position, stop - start)
        position += batch.num_rows
        if position >= high:
            return


class _Cursor:
    """A place in a row group from which reading goes on. Micro-batches that are small against a row group follow one
    another through it; each would otherwise decode it again from its start."""

    def __init__(self, path: str, group: int, begin: int, columns: Sequence[str]) -> None:
        self.source = open_file(path)
        file = pq.ParquetFile(self.source, pre_buffer=False)
        self.batches = file.iter_batches(CHUNK_ROWS, row_groups=[group], columns=list(columns), use_threads=False)
        self.begin, self.batch = begin, pa.Table.from_batches([next(self.batches)])

    def read(self, low: int, high: int) -> Iterator[tuple[int, pa.Table]]:
        """The rows ``low … high - 1``, which are not before those of the current batch."""
        while low < high:
            end = self.begin + self.batch.num_rows
            if low < end:
                taken = min(high, end) - low
                yield low, self.batch.slice(low - self.begin, taken)
                low += taken
            else:
                self.begin, self.batch = end, pa.Table.from_batches([next(self.batches)])

    def close(self) -> None:
        self.batches.close()
        self.source.close()


# The last cursor of this process, under the key of what it reads.
_open: dict[tuple[object, ...], _Cursor] = {}


def _from_cursor(
    path: str, file: pq.ParquetFile, group: int, begin: int, low: int, high: int, columns: Sequence[str]
) -> Iterator[tuple[int, pa.Table]]:
    key = (path, file.metadata.serialized_size, file.metadata.num_rows, group, tuple(columns))
    cursor = _open.pop(key, None)
    if cursor is None or low < cursor.begin:
        for other in [*_open.values(), *([cursor] if cursor else [])]:
            other.close()
        _open.clear()
        cursor = _Cursor(path, group, begin, columns)
    yield from cursor.read(low, high)
    # Not reached when reading fails or is given up: a broken cursor is not kept.
    _open[key] = cursor


def _chunk(
    path: str,
    first: int,
    table: pa.Table,
    columns: Sequence[str],
    types: dict[str, DataType],
    marked: bool,
    span: tuple[int, int] | None,
) -> Chunk:
    rejected, positions = None, None
    if marked and table[REASON].null_count < table.num_rows:
        good = pc.is_null(table[REASON])
        bad = table.filter(pc.invert(good)).select([REASON, ORIGIN, RAW])
        rejected = bad.rename_columns(REJECTED.names)
        positions = good.to_numpy().nonzero()[0]
        table = table.filter(good)
    cast = [_cast(table[name], types[name].arrow) for name in columns]
    return Chunk(pa.table(cast, list(columns)), rejected, Origin(path, first + 1, 0, positions), span)


def _cast(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if column.type == wanted:
        return column
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_timestamp(column.type):
        if column.type.unit == "ns":
            # A plain cast cuts towards zero, which is upwards before 1970.
            column = pc.floor_temporal(column, unit="microsecond")
        column = column.cast(pa.timestamp("us", tz=column.type.tz))
    return column.cast(wanted)
