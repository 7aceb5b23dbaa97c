"""The SQL front end: a user's text in, a logical query or an error with its place out.

Spark's analyzer decides what a text means. It is asked for each *shape* twice and then no more: further texts
of the shape differ in literals alone and are bound to the shape's template in well under a millisecond. The second time
needs no second text: a front end that learns ahead asks in a thread of its own, before somebody waits for it. A text
that has come before, word for word, is known.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Protocol

from millstream.errors import Position, SqlError
from millstream.model.expression import walk
from millstream.model.join import JoinQuery
from millstream.model.query import LogicalQuery, WindowSpec
from millstream.model.stream import Stream
from millstream.sql.catalyst import read_tree
from millstream.sql.plan import read_plan
from millstream.sql.refusal import Refusal, Verdict, too_deep
from millstream.sql.shape import Shape, sentinel, shape_of
from millstream.sql.slots import check_query, query_expressions
from millstream.sql.template import NotAlike, Query, Template, bind, learn, named_by_text
from millstream.sql.text import Text
from millstream.sql.tokens import locate
from millstream.sql.windows import neutral, window_specs

__all__ = ["Analyzer", "FrontEnd", "Refusal"]

# A shape takes a few kilobytes; ten thousand shapes are more than a thousand users write by hand.
SHAPES = 10_000

# Texts that are kept word for word, and their longest: programs send the same ones again and again.
TEXTS = 4_096
LONGEST_KEPT = 4_096

# A learner that Spark keeps waiting is left behind after so long.
LEAVE_SECONDS = 5.0
# Shapes that Spark can be asked about at the same time; it answers one after the other anyway.
TURNS = 64

# Longer texts are no queries; the parsers behind this recurse.
LONGEST_TEXT = 200_000

# Spark's parser takes half a minute for a few thousand nested parentheses; people do not nest a hundred.
DEEPEST_NESTING = 100

_QUERY_WORDS = frozenset(["SELECT", "WITH", "FROM", "TABLE", "VALUES"])
# First words of Spark's other statements: valid SQL, but nothing to run for ever.
_STATEMENT_WORDS = frozenset(
    {
        *(
            "ADD",
            "ALTER",
            "ANALYZE",
            "BEGIN",
            "CACHE",
            "CALL",
            "CLEAR",
            "COMMENT",
            "CREATE",
            "DECLARE",
            "DELETE",
            "DESC",
        ),
        *("DESCRIBE", "DFS", "DROP", "EXECUTE", "EXPLAIN", "FETCH", "GRANT", "INSERT", "LIST", "LOAD", "LOCK", "MERGE"),
        *("MSCK", "REFRESH", "REPAIR", "REPLACE", "RESET", "REVOKE", "SET", "SHOW", "TRUNCATE", "UNCACHE", "UNLOCK"),
        *("UPDATE", "USE"),
    }
)


class Analyzer(Protocol):
    """Spark's analyzer over empty views of the streams. Both methods raise ``Refusal``."""

    def schema(self, sql: str) -> list[tuple[str, object]]:
        """Names and types (Spark's JSON) of the columns of a query."""
        ...

    def plan(self, sql: str) -> str:
        """The analysed plan as Spark's JSON."""
        ...


# A shape and, where decimals are about, the digits of its integers.
_Key = tuple[str, tuple[int, ...] | None]
# The windows of a text's window calls; those of a query are all the same.
_Specs = tuple[WindowSpec, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    """What is known of a shape: its first query, then its template, or that it has none."""

    streams: tuple[Stream, ...]
    shape: Shape
    query: Query
    template: Template | None = None
    alone: bool = False

    @property
    def key(self) -> _Key:
        return self.shape.key, self.shape.digits if _has_decimals(self.query) else None


class FrontEnd:
    """Compiles texts; any number of threads may do so at once."""

    def __init__(self, analyzer: Analyzer, streams: Callable[[], Mapping[str, Stream]]) -> None:
        self._analyzer = analyzer
        self._streams = streams
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self._texts: OrderedDict[str, tuple[tuple[Stream, ...], Query]] = OrderedDict()
        self._lock = Lock()
        # Whoever asks Spark about a shape holds one of these, so that texts that come together ask once.
        self._turns = [Lock() for _ in range(TURNS)]
        self._new: SimpleQueue[_Entry | None] | None = None
        self._learner: Thread | None = None

    def learn_ahead(self) -> None:
        """From now on new shapes are learnt in a thread of their own, until ``close``."""
        self._new = SimpleQueue()
        self._learner = Thread(target=self._learn_new, args=(self._new,), name="millstream-learn", daemon=True)
        self._learner.start()

    def close(self) -> None:
        if self._new is not None and self._learner is not None:
            self._new.put(None)
            self._learner.join(LEAVE_SECONDS)

    def compile(self, sql: str) -> LogicalQuery | JoinQuery:
        """The query of a text: over one stream, or a join.

        :raises SqlError: with code, hint and place, for every text that Spark or Millstream refuses.
        """
        _check_size(sql)
        streams = {stream.name: stream for stream in self._streams().values()}
        query = self._known(sql, streams)
        if query is None:
            query = self._compile(sql, streams)
            self._know(sql, query, streams)
        return query

    def _compile(self, sql: str, streams: Mapping[str, Stream]) -> Query:
        shape = shape_of(sql)
        _check_statement(sql, shape)
        _check_nesting(sql, shape)
        specs = window_specs(sql, shape.tokens, shape.windows)
        if len(set(specs)) > 1:
            return self._analyse(sql, shape, specs, streams)
        entry = self._entry(shape, streams)
        if entry is None or (entry.template is None and not entry.alone):
            with self._turn(shape):
                entry = self._entry(shape, streams)
                if entry is None:
                    return self._first(sql, shape, specs, streams)
                if entry.template is None and not entry.alone and shape.constants == entry.shape.constants:
                    return self._again(entry, sql, specs)
                if entry.template is None and not entry.alone:
                    entry = self._learn(entry, streams)
        if entry.template is None:
            return self._analyse(sql, shape, specs, streams)
        try:
            return self._bind(entry.template, sql, shape, specs)
        except (SqlError, Refusal, NotAlike):
            # Some functions of the table take only certain literals; the analysis knows the place of the error.
            return self._analyse(sql, shape, specs, streams)

    # The cache.

    def _known(self, sql: str, streams: Mapping[str, Stream]) -> Query | None:
        """The query that the very same text gave before, unless one of its streams is another one by now."""
        with self._lock:
            found = self._texts.get(sql)
            if found is None or any(streams.get(stream.name) is not stream for stream in found[0]):
                return None
            self._texts.move_to_end(sql)
            return found[1]

    def _know(self, sql: str, query: Query, streams: Mapping[str, Stream]) -> None:
        known = _streams_of(query, streams)
        if known is not None and len(sql) <= LONGEST_KEPT:
            with self._lock:
                self._texts[sql] = (known, query)
                self._texts.move_to_end(sql)
                if len(self._texts) > TEXTS:
                    self._texts.popitem(last=False)

    def _turn(self, shape: Shape) -> Lock:
        return self._turns[hash(shape.key) % TURNS]

    def _learn_new(self, new: SimpleQueue[_Entry | None]) -> None:
        while (entry := new.get()) is not None:
            with self._turn(entry.shape):
                streams = {stream.name: stream for stream in self._streams().values()}
                known = self._entry(entry.shape, streams)
                if known is not None and known.template is None and not known.alone:
                    with suppress(Exception):
                        # Nobody waits for it: whoever needs the shape learns it and is told what is wrong.
                        self._learn(known, streams)

    def _entry(self, shape: Shape, streams: Mapping[str, Stream]) -> _Entry | None:
        """The shape's entry, unless one of its streams is another one by now."""
        with self._lock:
            for key in ((shape.key, None), (shape.key, shape.digits)):
                entry = self._entries.get(key)
                if entry is None:
                    continue
                if all(streams.get(stream.name) == stream for stream in entry.streams):
                    self._entries.move_to_end(key)
                    return entry
                del self._entries[key]
        return None

    def _keep(self, entry: _Entry) -> None:
        key = entry.key
        with self._lock:
            self._entries[key] = entry
            self._entries.move_to_end(key)
            while len(self._entries) > SHAPES:
                self._entries.popitem(last=False)

    def _first(self, sql: str, shape: Shape, specs: _Specs, streams: Mapping[str, Stream]) -> Query:
        query = self._analyse(sql, shape, specs, streams)
        known = _streams_of(query, streams)
        if known is not None:
            entry = _Entry(known, shape, query)
            self._keep(entry)
            if self._new is not None:
                self._new.put(entry)
        return query

    def _again(self, entry: _Entry, sql: str, specs: _Specs) -> Query:
        """The same literals as the first time: blanks, comments and window durations may differ."""
        if isinstance(entry.query, JoinQuery):
            return replace(entry.query, sql=sql, window=specs[0])
        return replace(entry.query, sql=sql, window=specs[0] if entry.query.window else None)

    def _learn(self, entry: _Entry, streams: Mapping[str, Stream]) -> _Entry:
        text = sentinel(entry.query.sql, entry.shape)
        shape = shape_of(text)
        specs = window_specs(text, shape.tokens, shape.windows)
        try:
            if (shape.key, shape.digits) != (entry.shape.key, entry.shape.digits):
                raise NotAlike
            other = self._analyse(text, shape, specs, streams)
            template = learn(entry.query, other, (entry.shape.constants, shape.constants))
            entry = replace(entry, template=template)
        except (NotAlike, SqlError):
            # Then a literal decides more than a value here: each text of this shape goes to Spark.
            entry = replace(entry, alone=True)
        self._keep(entry)
        return entry

    def _bind(self, template: Template, sql: str, shape: Shape, specs: _Specs) -> Query:
        query = bind(template, sql, shape.constants, specs[0] if template.query.window else None)
        check_query(query)
        if named_by_text(template, shape.constants):
            return query
        names = [name for name, _ in self._analyzer.schema(neutral(sql, shape.windows))]
        outputs = tuple(replace(output, name=name) for output, name in zip(query.outputs, names, strict=True))
        return replace(query, outputs=outputs)

    # One text.

    def _analyse(self, sql: str, shape: Shape, specs: _Specs, streams: Mapping[str, Stream]) -> Query:
        try:
            plan = self._analyzer.plan(neutral(sql, shape.windows))
        except Refusal as refusal:
            raise Verdict(sql, shape.tokens, shape.windows, streams).error(refusal) from None
        try:
            return read_plan(read_tree(json.loads(plan)), Text(sql, shape.tokens, shape.windows, streams), specs)
        except RecursionError:
            raise too_deep(sql) from None


def _streams_of(query: Query, streams: Mapping[str, Stream]) -> tuple[Stream, ...] | None:
    """The streams that a query reads; None where it names one that is not there."""
    names = query.streams if isinstance(query, JoinQuery) else (query.stream,)
    known = tuple(streams[name] for name in names if name in streams)
    return known if len(known) == len(names) else None


def _has_decimals(query: Query) -> bool:
    """Only beside decimals does Spark look at the digits of an integer literal."""
    types = [aggregate.type for aggregate in query.aggregates]
    types += [node.type for expression in query_expressions(query) for node in walk(expression)]
    return any(kind.kind == "decimal" for kind in types)


def _check_size(sql: str) -> None:
    if len(sql) > LONGEST_TEXT:
        message = f"the text has {len(sql)} characters, more than {LONGEST_TEXT}"
        raise SqlError("SQL_PARSE", message, hint="shorten the query")


def _check_nesting(sql: str, shape: Shape) -> None:
    depth = 0
    for token in shape.tokens:
        depth += (token.text == "(") - (token.text == ")")
        if depth > DEEPEST_NESTING:
            raise too_deep(sql)


def _check_statement(sql: str, shape: Shape) -> None:
    """One SELECT, optionally with semicolons after it: anything else could do things when Spark analyses it."""
    words = [token for token in shape.tokens if token.text != "("]
    if not words or words[0].text == ";":
        raise SqlError("SQL_PARSE", "the text is empty", hint="write SELECT … FROM stream", text=sql)
    first = words[0]
    if first.word not in _QUERY_WORDS:
        what = f"{first.word} is not a query" if first.word else f"a query does not start with {first.text}"
        position = Position.of(sql, first.start, first.stop)
        code = "UNSUPPORTED" if first.word in _STATEMENT_WORDS else "SQL_PARSE"
        raise SqlError(code, what, hint="write SELECT … FROM stream", position=position, text=sql)
    ended = False
    for token in shape.tokens:
        if ended and token.text != ";":
            position = Position.of(sql, token.start, token.stop)
            hint = "create one query for each statement"
            raise SqlError("SQL_PARSE", "a second statement follows the first", hint=hint, position=position, text=sql)
        ended = ended or token.text == ";"
    named = any(token.word == "INSERT" for token in shape.tokens)
    insert = locate(shape.tokens, "INSERT INTO", "INSERT OVERWRITE") if named else None
    if insert is not None:
        position = Position.of(sql, *insert)
        raise SqlError(
            "UNSUPPORTED", "INSERT is not a query", hint="write SELECT … FROM stream", position=position, text=sql
        )
