"""Reading answers: from any cursor, in the order in which they were published.

A cursor names a unit (a fire's file, or all files of one micro-batch) and how many of its answers have been read.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Iterator

import pyarrow as pa

from millstream.catalog.metastore import AnswerRecord, Metastore, QueryRecord
from millstream.engine.status import Answer, moment
from millstream.errors import CatalogError
from millstream.kernels.answers import AnswerReader, Range
from millstream.model.query import LogicalQuery
from millstream.runtime.home import Home

# Open answer files: each costs its index in memory, the rows stay mapped.
OPEN_FILES = 256
# Answer files looked up at a time.
PAGE = 200


def schema_of(query: LogicalQuery) -> pa.Schema:
    """The answer's columns as Spark names and types them."""
    return pa.schema([pa.field(out.name, out.type.arrow) for out in query.outputs])


class AnswerLog:
    def __init__(self, metastore: Metastore, home: Home) -> None:
        self._metastore = metastore
        self._home = home
        self._open: OrderedDict[str, AnswerReader] = OrderedDict()
        self._lock = threading.Lock()
        self._news = threading.Condition()

    def published(self) -> None:
        """Wake readers that wait; called after every commit that may have brought answers."""
        with self._news:
            self._news.notify_all()

    def wait(self, seconds: float) -> None:
        with self._news:
            self._news.wait(seconds)

    def read(self, record: QueryRecord, cursor: str | None, limit: int) -> tuple[list[Answer], str]:
        """The query's next answers, and the cursor after them; a search that finds none still moves the cursor on, so
        the files of other queries are looked through once."""
        first, done = parse_cursor(cursor)
        if cursor is not None:
            self._check_kept(first + (1 if done else 0))
        found: list[Answer] = []
        for unit in self._units(record.stream, first):
            found += self._answers(record, unit)[done if unit[0].seq == first else 0 :]
            if len(found) >= limit:
                found = found[:limit]
                return found, found[-1].cursor
            cursor = write_cursor(unit[-1].seq + 1, 0)
        return found, cursor or write_cursor(1, 0)

    def _check_kept(self, needed: int) -> None:
        """A reader that comes back too late is told so, instead of missing answers without a word."""
        oldest, _ = self._metastore.answer_bounds()
        if needed < oldest:
            hint = "read from the beginning of what is kept, without a cursor; answer_retention says how long that is"
            raise CatalogError("BAD_CURSOR", "answers after this cursor are no longer kept", hint=hint)

    def _units(self, stream: str, first: int) -> Iterator[list[AnswerRecord]]:
        """Files that belong together: those of one micro-batch; a fire's files have different queries."""
        records = self._records(stream, first - 1)
        for (batch, _), files in itertools.groupby(records, key=lambda r: (r.batch, r.seq if r.batch is None else 0)):
            del batch
            yield list(files)

    def _records(self, stream: str, seq: int) -> Iterator[AnswerRecord]:
        while page := self._metastore.answers_after(stream, seq, PAGE):
            yield from page
            seq = page[-1].seq

    def _answers(self, record: QueryRecord, unit: list[AnswerRecord]) -> list[Answer]:
        schema = schema_of(record.query)
        tables: list[tuple[Range, pa.Table]] = []
        for file in unit:
            reader = self._reader(file)
            tables += [(found[0], reader.read(found, schema)) for found in reader.ranges(record.id)]
        if not tables:
            return []
        batch = unit[0].batch
        if batch is not None:
            rows = pa.concat_tables([table for _, table in tables])
            return [Answer(record.id, None, None, False, batch, rows, write_cursor(unit[0].seq, 1))]
        return [
            Answer(record.id, moment(r.start), moment(r.end), r.partial, None, table, write_cursor(unit[0].seq, n + 1))
            for n, (r, table) in enumerate(tables)
        ]

    def _reader(self, record: AnswerRecord) -> AnswerReader:
        path = record.file.path
        with self._lock:
            if path in self._open:
                self._open.move_to_end(path)
                return self._open[path]
        reader = AnswerReader(self._home.read(path), record.file.index_offset, record.file.index_length)
        with self._lock:
            self._open[path] = reader
            while len(self._open) > OPEN_FILES:
                self._open.popitem(last=False)
        return reader

    def everything(self, stream: str) -> Iterator[AnswerReader]:
        """Every answer file of a stream, for reading all queries in one pass."""
        for record in self._records(stream, 0):
            yield AnswerReader(self._home.read(record.file.path), record.file.index_offset, record.file.index_length)


def write_cursor(seq: int, done: int) -> str:
    return f"{seq}.{done}"


def parse_cursor(cursor: str | None) -> tuple[int, int]:
    """
    >>> parse_cursor("12.3"), parse_cursor(None)
    ((12, 3), (1, 0))
    """
    if cursor is None:
        return 1, 0
    seq, dot, done = cursor.partition(".")
    if not (dot and seq.isdigit() and done.isdigit()):
        hint = "give back the cursor of an answer as it was, or none to read from the beginning"
        raise CatalogError("BAD_CURSOR", f"{cursor!r} is not a cursor", hint=hint)
    return int(seq), int(done)
