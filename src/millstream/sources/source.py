"""The sources a user hands to ``create_stream``: directories of files, generators, or any streaming DataFrame.

A columnar source streams descriptor rows only; ``splits`` turns the descriptors of a micro-batch into splits, which
workers read by themselves.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from pyspark.sql import DataFrame, SparkSession

from millstream.config import nearest
from millstream.errors import SourceError
from millstream.model.stream import Field
from millstream.model.types import parse_type
from millstream.sources.files import SUFFIXES, format_of, local_path
from millstream.sources.generators import (
    GENERATORS,
    MICROS,
    AStreamGenerator,
    GamingGenerator,
    RowGenerator,
    generator_from,
)
from millstream.sources.parquet import Footer, read_footer
from millstream.sources.rows_due import FORMAT, RowsDue
from millstream.sources.schema import infer_fields, parse_ddl
from millstream.sources.splits import FileSplit, Split, merged, split_bytes, split_range, split_rows

# Files of one micro-batch: bounds its memory and time after a pause; small files still come in good numbers.
MAX_FILES_PER_BATCH = 64
# Rows a generator gives to one micro-batch: about a second of ingest on two cores.
MAX_ROWS_PER_BATCH = 4_000_000
# Spark forgets files this much older than the newest it has seen and ignores them if they come later. Its own
# default, a week, would silently drop old files copied into the directory with their dates.
MAX_FILE_AGE = "3650d"
# The columns of Spark's binaryFile format, which a streaming reader must be told.
_FILE_ROW = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"


@runtime_checkable
class Source(Protocol):
    """What the engine asks of a source. ``describe`` is kept in the metastore; ``source_from`` reads it back."""

    columnar: ClassVar[bool]

    def describe(self) -> dict[str, str]: ...

    def fields(self, spark: SparkSession) -> tuple[Field, ...]: ...

    def dataframe(self, spark: SparkSession) -> DataFrame:
        """The streaming DataFrame: rows of the stream, or descriptor rows if columnar."""

    def splits(self, rows: Sequence[Sequence[Any]], parallelism: int) -> list[list[Split]]:
        """Descriptor rows of a micro-batch as one list of splits for each task; never empty lists."""


@dataclass(frozen=True, slots=True)
class _Files:
    """A directory that keeps growing. Files are immutable and appear under their name when complete (write, then
    rename); names that start with ``_`` or ``.`` are no input."""

    path: str
    schema: str | None = None
    max_files_per_batch: int = MAX_FILES_PER_BATCH

    columnar: ClassVar[bool] = True
    format: ClassVar[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", str(self.path))
        if "://" not in self.path:
            object.__setattr__(self, "path", str(Path(self.path).expanduser().absolute()))
        if self.max_files_per_batch < 1:
            raise SourceError(
                "BAD_STREAM", f"max_files_per_batch is {self.max_files_per_batch}, but must be at least 1"
            )
        if self.schema is not None:
            parse_ddl(self.schema)

    def describe(self) -> dict[str, str]:
        description = {"source": self.format, "path": self.path, "max_files_per_batch": str(self.max_files_per_batch)}
        return description | ({"schema": self.schema} if self.schema is not None else {})

    def fields(self, spark: SparkSession) -> tuple[Field, ...]:
        """The schema given, or that of the first file by name."""
        if self.schema is not None:
            return parse_ddl(self.schema)
        self._check_directory()
        first = _first_file(self.path, self.format, spark)
        if first is None:
            hint = 'give the stream a schema, like schema="user_id BIGINT, time TIMESTAMP", or put a first file there'
            raise SourceError("BAD_STREAM", f"no {self.format} file in {self.path} to take the columns from", hint=hint)
        return infer_fields(first, self.format)

    def dataframe(self, spark: SparkSession) -> DataFrame:
        self._check_directory()
        stream = spark.readStream.format("binaryFile").schema(_FILE_ROW).option("recursiveFileLookup", "true")
        stream = stream.option("pathGlobFilter", "*{" + ",".join(SUFFIXES[self.format]) + "}")
        stream = stream.option("maxFilesPerTrigger", self.max_files_per_batch).option("maxFileAge", MAX_FILE_AGE)
        # Without the column `content` Spark lists the files and never opens them.
        return stream.load(self.path).select("path", "length")

    def _check_directory(self) -> None:
        local = local_path(self.path)
        if local is not None and not os.path.isdir(local):
            what = "is a file" if os.path.exists(local) else "does not exist"
            raise SourceError("BAD_STREAM", f"the stream's directory {local} {what}", hint="create the directory first")

    def splits(self, rows: Sequence[Sequence[Any]], parallelism: int) -> list[list[Split]]:
        files = sorted((_plain(str(row[0])), int(row[1])) for row in rows)
        if self.format != "parquet":
            return split_bytes([(FileSplit(path, self.format), size) for path, size in files], parallelism)
        footers: list[Footer] = []
        unreadable: list[list[Split]] = []
        for path, _ in files:
            try:
                footers.append(read_footer(path))
            except SourceError:
                # Reading it fails in the task in the same way; there it becomes a dead letter of the stream.
                unreadable.append([FileSplit(path, self.format)])
        readable = split_rows([(footer, 0, footer.rows) for footer in footers], parallelism)
        return merged([readable, unreadable], parallelism)


class ParquetFiles(_Files):
    """A growing directory of Parquet files."""

    __slots__ = ()
    format: ClassVar[str] = "parquet"


class CsvFiles(_Files):
    """A growing directory of CSV files with a header; columns are found by name, empty values are NULL."""

    __slots__ = ()
    format: ClassVar[str] = "csv"


class JsonFiles(_Files):
    """A growing directory of files with one JSON object on each line; missing keys are NULL, others are not read."""

    __slots__ = ()
    format: ClassVar[str] = "json"


def _plain(path: str) -> str:
    """Spark writes local paths as ``file:/…``."""
    return local_path(path) or path


def _first_file(path: str, file_format: str, spark: SparkSession) -> str | None:
    local = local_path(path)
    if local is None:
        files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(path).select("path")
        found = [row[0] for row in files.collect()]
    else:
        found = [os.path.join(folder, name) for folder, _, names in os.walk(local) for name in names]
    return min((file for file in found if format_of(file) == file_format), default=None)


@dataclass(frozen=True, slots=True)
class Generator:
    """A generator as a stream: paced by the clock if it has a rate, else as fast as the engine takes it.

    ``rows`` ends the stream after so many rows. ``began`` is the clock, in microseconds, when row 0 is due; it is kept
    over restarts, so that a paced stream catches up with the time it missed, ``max_rows_per_batch`` at a time.
    """

    generator: RowGenerator
    rows: int | None = None
    max_rows_per_batch: int = MAX_ROWS_PER_BATCH
    began: int | None = None

    columnar: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.began is None:
            object.__setattr__(self, "began", time.time_ns() // 1000)
        if self.max_rows_per_batch < 1:
            raise SourceError("BAD_STREAM", f"max_rows_per_batch is {self.max_rows_per_batch}, but must be at least 1")

    @classmethod
    def live(cls, generator: type[RowGenerator], **options: Any) -> Generator:
        """A paced generator whose event time is the clock's: row 0 is due, and happens, now.

        Options of the source and of the generator may be mixed.
        """
        now = time.time_ns() // MICROS * MICROS // 1000
        own = {name: options.pop(name) for name in ("rows", "max_rows_per_batch") if name in options}
        return cls(generator(start=now, **options), began=now, **own)

    def describe(self) -> dict[str, str]:
        own = {"rows": self.rows, "max_rows_per_batch": self.max_rows_per_batch, "began": self.began}
        return self.generator.describe() | {name: str(value) for name, value in own.items() if value is not None}

    def fields(self, spark: SparkSession) -> tuple[Field, ...]:
        return self.generator.fields

    def dataframe(self, spark: SparkSession) -> DataFrame:
        spark.dataSource.register(RowsDue)
        options = {
            "rate": self.generator.rate,
            "rows": self.rows,
            "limit": self.max_rows_per_batch,
            "began": self.began,
        }
        text = json.dumps({name: value for name, value in options.items() if value is not None})
        return spark.readStream.format(FORMAT).option("pace", text).load()

    def splits(self, rows: Sequence[Sequence[Any]], parallelism: int) -> list[list[Split]]:
        ranges = [split_range(self.generator, int(row[0]), int(row[1]), parallelism) for row in rows]
        return merged(ranges, parallelism)


@dataclass(frozen=True, slots=True)
class DataFrameSource:
    """A user's streaming DataFrame. It cannot be described, so it is handed in again after a restart."""

    df: DataFrame

    columnar: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.df.isStreaming:
            hint = "build it with spark.readStream; recorded data are for replay"
            raise SourceError("BAD_STREAM", "the DataFrame is not a streaming one", hint=hint)

    def describe(self) -> dict[str, str]:
        return {"source": "dataframe"}

    def fields(self, spark: SparkSession) -> tuple[Field, ...]:
        fields = []
        for column in self.df.schema.fields:
            try:
                fields.append(Field(column.name, parse_type(column.dataType.jsonValue())))
            except ValueError as error:
                hint = "select the columns the stream needs, with nested ones taken apart"
                raise SourceError(
                    "BAD_STREAM", f"column {column.name!r} of the DataFrame: {error}", hint=hint
                ) from None
        return tuple(fields)

    def dataframe(self, spark: SparkSession) -> DataFrame:
        return self.df

    def splits(self, rows: Sequence[Sequence[Any]], parallelism: int) -> list[list[Split]]:
        raise SourceError("INTERNAL", "the rows of a DataFrame stream are not descriptors")


FILE_SOURCES: dict[str, type[_Files]] = {kind.format: kind for kind in (ParquetFiles, CsvFiles, JsonFiles)}


def source_from(description: Mapping[str, str], spark: SparkSession | None = None) -> Source:
    """Build a source from what ``describe`` gave, or from a stream file's definition, where a generator without a start
    begins now."""
    options = dict(description)
    kind = options.get("source", "")
    if kind in FILE_SOURCES:
        limit = int(options.get("max_files_per_batch", MAX_FILES_PER_BATCH))
        return FILE_SOURCES[kind](options["path"], options.get("schema"), limit)
    if kind in GENERATORS:
        now = time.time_ns() // MICROS * MICROS // 1000
        began = int(options.get("began", now))
        generator = generator_from({"start": str(began)} | options)
        rows = int(options["rows"]) if "rows" in options else None
        return Generator(generator, rows, int(options.get("max_rows_per_batch", MAX_ROWS_PER_BATCH)), began)
    if kind == "dataframe":
        hint = "pass it to create_stream again under the same name"
        raise SourceError("BAD_STREAM", "a DataFrame stream cannot be built again after a restart", hint=hint)
    raise SourceError("BAD_STREAM", f"unknown source {kind!r}", hint=nearest(kind, [*FILE_SOURCES, *GENERATORS]))


__all__ = [
    "AStreamGenerator",
    "CsvFiles",
    "DataFrameSource",
    "GamingGenerator",
    "Generator",
    "JsonFiles",
    "ParquetFiles",
    "Source",
    "source_from",
]
