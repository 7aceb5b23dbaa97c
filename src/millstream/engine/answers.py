"""Reading answers: from any cursor, in the order in which they were published.

The answers of joins are built when they are read, and given in pieces; a cursor can lie between two of them.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from millstream.catalog.metastore import AnswerRecord, Metastore, QueryRecord
from millstream.engine.cursor import END, NEWEST, Cursor, parse_cursor
from millstream.engine.expansion import Described, Expansions
from millstream.engine.status import Answer, moment
from millstream.errors import CatalogError, DamagedFile, EngineError
from millstream.kernels.answers import AnswerReader, Place, Range
from millstream.model.join import JoinQuery
from millstream.model.query import LogicalQuery
from millstream.runtime.fire import BucketRef
from millstream.runtime.home import Home, checksum_in
from millstream.runtime.join_fire import described_legs

# Open answer files: each costs its index in memory, the rows stay mapped.
OPEN_FILES = 256
# Answer files looked up at a time.
PAGE = 200
# Rows of a join's answer that are built at a time, and after which a read gives what it has.
PAGE_ROWS = 100_000


# Given a damaged file, and the buckets that an answer is built from.
Mend = Callable[[str, Sequence[BucketRef]], bool]


def schema_of(query: LogicalQuery | JoinQuery) -> pa.Schema:
    """The answer's columns as Spark names and types them."""
    return pa.schema([pa.field(out.name, out.type.arrow) for out in query.outputs])


class AnswerLog:
    """``mend`` makes a damaged file again from which rows are built; False if it cannot."""

    def __init__(self, metastore: Metastore, home: Home, mend: Mend = lambda path, refs: False) -> None:
        self._metastore = metastore
        self._mend = mend
        self._home = home
        self._open: OrderedDict[str, AnswerReader] = OrderedDict()
        self._lock = threading.Lock()
        self._news = threading.Condition()
        self._expansions = Expansions(home)

    def published(self) -> None:
        """Wake readers that wait; called after every commit that may have brought answers."""
        with self._news:
            self._news.notify_all()

    def wait(self, seconds: float) -> None:
        with self._news:
            self._news.wait(seconds)

    def read(
        self, record: QueryRecord, cursor: str | None, limit: int, most: int | None = None
    ) -> tuple[list[Answer], str]:
        """The query's next answers, at most ``limit``, and the cursor after them. ``most`` rows (None: a page) end a
        read before that, so that no reader has to hold all that are waiting. A search that finds none still moves the
        cursor on, so the files of other queries are looked through once."""
        if cursor in (NEWEST, END):
            cursor = str(self._newest(record) if cursor == NEWEST else self._end())
        at = parse_cursor(cursor)
        oldest, newest = self._metastore.answer_bounds()
        if cursor is not None:
            _check_bounds(at, oldest, newest)
        found: list[Answer] = []
        rows, most = 0, most or PAGE_ROWS
        for unit in self._units(record.stream, at.seq):
            begin = at if unit[0].seq == at.seq else Cursor(unit[0].seq)
            try:
                for answer in self._answers(record, unit, begin, most):
                    found.append(answer)
                    rows += answer.table.num_rows
                    if len(found) >= limit or rows >= most:
                        return found, answer.cursor
            except DamagedFile:
                if not found:
                    raise
                # The next read begins with the answer that is damaged, and gives the error.
                return found, found[-1].cursor
            at = Cursor(unit[-1].seq + 1)
        # Files of other streams are behind the reader too: when they expire, it has missed nothing.
        return found, str(Cursor(max(at.seq, newest + 1)))

    def _newest(self, record: QueryRecord) -> Cursor:
        """Before the query's newest answer; the indexes of the files are enough to find it."""
        place: Cursor | None = None
        for unit in self._units(record.stream, 1):
            try:
                answers = sum(1 for reader in map(self._reader, unit) for _ in reader.ranges(record.id))
            except DamagedFile:
                continue
            if answers:
                place = Cursor(unit[0].seq, 0 if unit[0].batch is not None else answers - 1)
        return place or self._end()

    def _end(self) -> Cursor:
        return Cursor(self._metastore.answer_bounds()[1] + 1)

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

    def _answers(self, record: QueryRecord, unit: list[AnswerRecord], begin: Cursor, most: int) -> Iterator[Answer]:
        schema = schema_of(record.query)
        with _behind(Cursor(unit[-1].seq + 1)):
            found = [(reader, one) for reader in map(self._reader, unit) for one in reader.ranges(record.id)]
        batch = unit[0].batch
        if batch is not None:
            if found and begin.answers == 0:
                with _behind(Cursor(unit[0].seq, 1)):
                    rows = pa.concat_tables([reader.read(one, schema) for reader, one in found])
                yield Answer(record.id, None, None, False, batch, rows, str(Cursor(unit[0].seq, 1)), rows.num_rows)
            return
        for number, (reader, one) in enumerate(found):
            if number < begin.answers:
                continue
            skip = begin.rows if number == begin.answers else 0
            if one[0].described:
                yield from self._built(record, reader, one, Cursor(unit[0].seq, number, skip), most)
            else:
                with _behind(Cursor(unit[0].seq, number + 1)):
                    table = reader.read(one, schema)
                yield _answer(record, one[0], table, Cursor(unit[0].seq, number + 1), table.num_rows)

    def _built(
        self, record: QueryRecord, reader: AnswerReader, found: tuple[Range, Place], at: Cursor, most: int
    ) -> Iterator[Answer]:
        """The rows of a join's answer, a page of at most so many at a time."""
        assert isinstance(record.query, JoinQuery)
        one = found[0]
        assert one.start is not None
        assert one.end is not None
        while at.rows < one.rows:
            with _behind(Cursor(at.seq, at.answers + 1)):
                described = Described(record.query, record.id, reader.description(found), one.start, one.end)
                table = self._page((record.id, at.seq, at.answers), described, range(at.rows, one.rows), most)
            offset, last = at.rows, at.rows + table.num_rows
            if not table.num_rows:
                raise EngineError("INTERNAL", f"an answer of {one.rows} rows ends after {offset}", detail=record.id)
            at = Cursor(at.seq, at.answers + 1) if last >= one.rows else replace(at, rows=last)
            yield _answer(record, one, table, at, one.rows, offset)
            if last >= one.rows:
                return

    def _page(self, key: tuple[str, int, int], described: Described, left: range, most: int) -> pa.Table:
        """A page of the rows that are left; files that it is built from are mended if need be, each once."""
        tried: set[str] = set()
        while True:
            try:
                return self._expansions.page(key, described, left, most)
            except DamagedFile as error:
                refs = [ref for _, mine in described_legs(described.description) for ref in mine]
                if error.path in tried or not self._mend(error.path, refs):
                    raise
                tried.add(error.path)

    def _reader(self, record: AnswerRecord) -> AnswerReader:
        path = record.file.path
        with self._lock:
            if path in self._open:
                self._open.move_to_end(path)
                return self._open[path]
        reader = self._opened(record)
        with self._lock:
            self._open[path] = reader
            while len(self._open) > OPEN_FILES:
                self._open.popitem(last=False)
        return reader

    def _opened(self, record: AnswerRecord) -> AnswerReader:
        path, place = record.file.path, (record.file.index_offset, record.file.index_length)
        try:
            return AnswerReader(self._home.open(path), *place, checksum_in(path))
        except (pa.ArrowException, KeyError) as error:
            # Files of earlier versions carry no checksum.
            raise DamagedFile(path, f"has no index: {error}") from None

    def streams(self) -> list[str]:
        """The streams, and sets of joined streams, that have answers."""
        return sorted({record.stream for record in self._metastore.queries()})

    def everything(self, stream: str) -> Iterator[AnswerReader]:
        """Every answer file of a stream, for reading all queries in one pass."""
        for record in self._records(stream, 0):
            yield self._opened(record)

    def built(self, query: JoinQuery, id: str, reader: AnswerReader, found: tuple[Range, Place]) -> Iterator[pa.Table]:
        """All rows of a join's answer, page by page."""
        one = found[0]
        assert one.start is not None
        assert one.end is not None
        described = Described(query, id, reader.description(found), one.start, one.end)
        yield from self._expansions.pages(described, PAGE_ROWS)

    def close(self) -> None:
        self._expansions.close()


def _check_bounds(at: Cursor, oldest: int, newest: int) -> None:
    """A reader that comes back too late, or has read more than there is, is told so, instead of missing answers without
    a word."""
    if at.seq + (1 if at.answers else 0) < oldest:
        hint = "read from the beginning of what is kept, without a cursor; answer_retention says how long that is"
        raise CatalogError("BAD_CURSOR", "answers after this cursor are no longer kept", hint=hint)
    if at.seq + (1 if at.answers or at.rows else 0) > newest + 1:
        detail = f"the newest answer file has the number {newest}"
        hint = f"after the restore of a backup, go on with a cursor of its time or {END}, or read without one"
        raise CatalogError("BAD_CURSOR", f"the cursor '{at}' is beyond the newest answer", detail=detail, hint=hint)


def _answer(record: QueryRecord, r: Range, table: pa.Table, cursor: Cursor, rows: int, offset: int = 0) -> Answer:
    window = (moment(r.start), moment(r.end), r.partial, None)
    return Answer(record.id, *window, table, str(cursor), rows, offset, r.incomplete)


@contextmanager
def _behind(cursor: Cursor) -> Iterator[None]:
    """Damage tells the reader where to go on."""
    try:
        yield
    except DamagedFile as error:
        raise DamagedFile(
            error.path,
            error.reason,
            detail="an answer cannot be read",
            hint=f"go on behind it with the cursor {cursor}",
            cursor=str(cursor),
        ) from None
