"""A query in parts, from which the user's text and the text for plain Spark are built."""

from __future__ import annotations

from dataclasses import dataclass

from .expressions import Sql

# Stands for the window column in twin texts, since it is called differently in the two forms of a twin.
WINDOW = "@window"
MILLISECOND = 1_000
SECOND = 1_000_000
# The column of a twin that has the window's end.
END = "__end"
UNITS = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second"), (1, "millisecond"))


@dataclass(frozen=True, slots=True)
class WindowCase:
    """A window in microseconds."""

    size: int
    slide: int
    offset: int

    def call(self, time: str, word: str = "window") -> str:
        parts = [time, f"'{duration(self.size)}'"]
        if self.slide != self.size or self.offset:
            parts.append(f"'{duration(self.slide)}'")
        if self.offset:
            parts.append(f"'{duration(self.offset)}'")
        return f"{word}({', '.join(parts)})"

    def first_end(self, time: int) -> int:
        """The end of the first window to close among those that contain ``time``."""
        return time + self.slide - (time - self.offset - self.size) % self.slide


@dataclass(frozen=True, slots=True)
class Item:
    """A column of SELECT."""

    sql: Sql
    alias: str | None = None


Clauses = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class RankingCase:
    """The first ranks of each window. Columns are places in SELECT: ``partition`` beside the window, and ``orders``
    with their direction. ``form``: by QUALIFY, as a column that QUALIFY limits, or as a column of a subquery."""

    function: str
    partition: tuple[int, ...]
    orders: tuple[tuple[int, str], ...]
    limit: int
    form: str = "qualify"

    def ranked(self, clauses: Clauses, names: list[str], texts: list[str], window: str, *more: str) -> Clauses:
        """The clauses of a query with the ranking; ``names`` and ``texts`` are its columns by name and as expressions,
        ``more`` other columns to keep."""
        over = self._over(names if self.form == "qualify" else texts, window)
        if self.form == "qualify":
            return [*clauses, ("QUALIFY", f"{over} <= {self.limit}")]
        inner = [(word, f"{text}, {over} AS r" if word == "SELECT" else text) for word, text in clauses]
        if self.form == "column":
            return [*inner, ("QUALIFY", f"r <= {self.limit}")]
        before, inner = ([inner[0]], inner[1:]) if inner[0][0] == "WITH" else ([], inner)
        columns = ", ".join((*names, "r", *more))
        return [*before, ("SELECT", columns), ("FROM", f"({laid_out(inner)})"), ("WHERE", f"r < {self.limit + 1}")]

    def _over(self, columns: list[str], window: str) -> str:
        partition = ", ".join((window, *(columns[place] for place in self.partition)))
        orders = ", ".join(f"{columns[place]} {direction}".strip() for place, direction in self.orders)
        return f"{self.function}() OVER (PARTITION BY {partition} ORDER BY {orders})"


@dataclass(frozen=True, slots=True)
class QueryCase:
    """A query in parts, with its life in batches; ``delete_at`` None means that it lives to the end."""

    id: str
    stream: str
    time: str
    items: tuple[Item, ...]
    where: Sql | None
    window: WindowCase | None
    keys: tuple[Sql, ...]
    having: Sql | None
    create_at: int
    delete_at: int | None
    # How GROUP BY is written: by expression, alias or ordinal; and where the window stands in it.
    grouping: str = "text"
    window_place: int = 0
    window_word: str = "window"
    # A condition of a subquery in FROM.
    inner: Sql | None = None
    layout: str = "line"
    ranking: RankingCase | None = None

    @property
    def streams(self) -> tuple[str, ...]:
        return (self.stream,)

    @property
    def bounds(self) -> list[float]:
        """The size of the values behind each column."""
        return [item.sql.range.bound for item in self.items] if self.items[0].sql.engine != "*" else []

    @property
    def sql(self) -> str:
        """The user's text."""
        select = ", ".join(f"{i.sql.engine} AS {i.alias}" if i.alias else i.sql.engine for i in self.items)
        source = (
            f"(SELECT * FROM {self.stream} WHERE {self.inner.engine}) AS {self.stream}" if self.inner else self.stream
        )
        clauses = [("SELECT", select), ("FROM", source)]
        if self.where:
            clauses.append(("WHERE", self.where.engine))
        if self.window:
            groups = [grouping_text(key, self.items, self.grouping) for key in self.keys]
            groups.insert(self.window_place, self.window.call(self.time, self.window_word))
            clauses.append(("GROUP BY", ", ".join(groups)))
        if self.having:
            clauses.append(("HAVING", self.having.engine))
        if self.ranking:
            names = [item.alias or "" for item in self.items]
            clauses = self.ranking.ranked(clauses, names, [i.sql.engine for i in self.items], "window")
        return laid_out(clauses, self.layout)

    def twin(self, source: str, columns: tuple[str, ...], on_time: str | None) -> str:
        """The text for plain Spark over ``source``, the rows of the cut; columns are called ``c0``, ``c1``, …

        A windowed twin has the window's end as column ``__end``. Where rows are late, ``on_time`` is the condition on
        ``__window`` that keeps a row in a window: then windows are made first, so that it applies to each of them.
        """
        texts = [c for i in self.items for c in ([f"`{c}`" for c in columns] if i.sql.engine == "*" else [i.sql.twin])]
        names = [f"c{place}" for place in range(len(texts))]
        shown = [f"{text} AS {name}" for text, name in zip(texts, names, strict=True)]
        conditions = [condition.twin for condition in (self.inner, self.where) if condition]
        groups = [key.twin for key in self.keys]
        if self.window:
            shown.append(f"{WINDOW}.end AS {END}")
            call = self.window.call(self.time)
            if on_time:
                source = f"(SELECT *, {call} AS __window FROM {source})"
                conditions.insert(0, on_time)
            groups.append("__window" if on_time else call)
        clauses = [("SELECT", ", ".join(shown)), ("FROM", f"{source} AS {self.stream}")]
        if conditions:
            clauses.append(("WHERE", " AND ".join(f"({c})" for c in conditions)))
        if self.window:
            clauses.append(("GROUP BY", ", ".join(groups)))
        if self.having:
            clauses.append(("HAVING", self.having.twin))
        if self.ranking:
            clauses = self.ranking.ranked(clauses, names, texts, WINDOW, END)
        return laid_out(clauses).replace(WINDOW, "__window" if on_time else "window")


def grouping_text(key: Sql, items: tuple[Item, ...], grouping: str) -> str:
    """A key in GROUP BY: by ordinal or alias where SELECT has it, else as it is."""
    for place, item in enumerate(items, start=1):
        if item.sql == key and grouping == "ordinal":
            return str(place)
        if item.sql == key and item.alias and grouping == "alias":
            return item.alias
    return key.engine


def laid_out(clauses: Clauses, layout: str = "line") -> str:
    """One line, one line for each clause, with comments, or in lower case with a semicolon: all the same to Spark."""
    words = [f"{word.lower() if layout == 'lower' else word} {text}" for word, text in clauses]
    if layout == "comment":
        return " /* it's a comment; */ ".join(words) + " -- and another"
    return "\n".join(words) if layout == "lines" else " ".join(words) + (" ;" if layout == "lower" else "")


def duration(micros: int) -> str:
    """
    >>> duration(90_000_000), duration(1_500_000)
    ('1 minute 30 seconds', '1 second 500 milliseconds')
    """
    rest, words = micros // MILLISECOND, []
    for size, name in UNITS:
        count, rest = divmod(rest, size)
        if count:
            words.append(f"{count} {name}{'s' if count > 1 else ''}")
    return " ".join(words) or "0 seconds"
