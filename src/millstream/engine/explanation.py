"""What an explanation tells, and how it is drawn. No engine is needed to read one: it comes over HTTP as well."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

# Queries that are named of those in a group; there can be thousands.
NAMED = 5


@dataclass(frozen=True, slots=True)
class Source:
    """What a query has of one stream.

    ``alias`` is the source's name in the SQL and ``where`` its own condition. ``keys`` are the expressions that its
    rows are grouped by: what is joined on, compared or grouped by. ``keeps`` are the columns whose rows are kept, since
    they are the answer. The source is a member of ``group``, in this ``version`` of it, with ``shared_queries`` others
    (``shared_with`` names a few); they share its ``classes``, ``measures`` and buckets.

    ``buckets``, ``slices``, ``bytes`` and ``runs`` (cells by key and class, or rows where those are few) are what the
    group has stored now, for all of them. ``window_rows`` and ``window_runs`` are what this query alone has in its next
    window so far; None where nobody counted.
    """

    stream: str
    alias: str
    where: str | None
    keys: tuple[str, ...]
    keeps: tuple[str, ...]
    group: str
    version: int
    shared_queries: int
    shared_with: tuple[str, ...]
    classes: int
    measures: int
    buckets: int
    slices: int
    bytes: int
    runs: int
    window_rows: int | None = None
    window_runs: int | None = None

    @property
    def name(self) -> str:
        return self.stream if self.alias == self.stream else f"{self.alias}: {self.stream}"


@dataclass(frozen=True, slots=True)
class Joined:
    """One join of a query: of ``left`` and ``right``, which are sources (by number) or other joins.

    ``estimated_rows`` is what rows and distinct keys of both sides let expect of the next window so far, ``rows`` is
    counted. Those are rows that a join row by row would build; it reads the ``window_runs`` of its sources instead.
    """

    kind: str
    on: tuple[str, ...]
    left: int | Joined
    right: int | Joined
    estimated_rows: int | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a query shares with whom, and how much it has.

    ``grouped_by`` is None where the answer is rows. ``fired_with`` counts the other joins whose windows are answered in
    the same pass, since they have the same attributes of the same streams. ``next_window`` is the window that sizes
    are counted in: the first that has rows and has not fired. ``windows`` and ``answer_rows`` are what has been
    answered. ``tree`` is the drawing, line by line.
    """

    query: str
    sql: str
    state: str
    window: str | None
    grouped_by: tuple[str, ...] | None
    sources: tuple[Source, ...]
    join: Joined | None
    fired_with: int
    next_window: tuple[datetime, datetime] | None
    windows: int
    answer_rows: int
    tree: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        return "\n".join(self.tree)


def draw(about: Explanation) -> tuple[str, ...]:
    """The explanation as a tree: the query, its joins, its sources."""
    below = _source(about.sources[0]) if about.join is None else _join(about, about.join)
    head = f"{about.query}  {about.state}  {about.window or 'no window: answered batch by batch'}"
    return (head, *_branch(_told(about), [below]))


def _told(about: Explanation) -> list[str]:
    lines = []
    if about.window is not None:
        mean = f", {about.answer_rows / about.windows:,.0f} in each" if about.windows else ""
        lines.append(f"answered {about.windows:,} windows with {about.answer_rows:,} rows{mean}")
    else:
        lines.append(f"answered {about.answer_rows:,} rows")
    if about.grouped_by is not None:
        lines.append(f"grouped by {', '.join(about.grouped_by) or 'the window alone'}")
    elif about.join is not None:
        lines.append("rows are built when they are read; only their number is stored")
    if about.fired_with:
        lines.append(f"fired in one pass with {_count(about.fired_with, 'other join')} of the same attributes")
    if about.next_window is not None:
        start, end = about.next_window
        lines.append(f"next window {start:%Y-%m-%d %H:%M:%S} to {end:%H:%M:%S}, sizes so far below")
    return lines


def _join(about: Explanation, join: Joined) -> list[str]:
    sides = [
        _join(about, side) if isinstance(side, Joined) else _source(about.sources[side])
        for side in (join.left, join.right)
    ]
    head = f"{join.kind} join on {' AND '.join(join.on) or 'the window alone'}"
    return [head, *_branch(_sizes(about, join), sides)]


def _sizes(about: Explanation, join: Joined) -> list[str]:
    if join.estimated_rows is None:
        return []
    runs = sum(about.sources[leg].window_runs or 0 for leg in _legs(join))
    measured = "too many to count here" if join.rows is None else f"{join.rows:,} measured"
    return [f"rows: {measured}, {join.estimated_rows:,} estimated; from {_count(runs, 'run')}"]


def _legs(join: int | Joined) -> list[int]:
    return [join] if isinstance(join, int) else [*_legs(join.left), *_legs(join.right)]


def _source(source: Source) -> list[str]:
    return [source.name, *_facts(source)]


def _facts(source: Source) -> Iterator[str]:
    if source.where:
        yield f"where {source.where}"
    if source.window_rows is not None:
        yield f"{_count(source.window_rows, 'row')} in {_count(source.window_runs or 0, 'run')}"
    yield f"group {source.group} version {source.version}, {_company(source)}"
    keys = f"by {', '.join(source.keys)}; " if source.keys else ""
    yield f"{keys}{_count(source.classes, 'class', 'classes')}, {_count(source.measures, 'measure')}"
    if source.keeps:
        yield f"keeps the rows' {', '.join(source.keeps)}"
    if source.buckets:
        whose = " for all of them" if source.shared_queries else ""
        yield (
            f"stored{whose}: {_count(source.buckets, 'bucket')} of {_count(source.slices, 'slice')}, "
            f"{source.bytes:,} bytes, {_count(source.runs, 'run')}"
        )


def _company(source: Source) -> str:
    if not source.shared_queries:
        return "alone"
    more = ", …" if source.shared_queries > len(source.shared_with) else ""
    others = _count(source.shared_queries, "other query", "other queries")
    return f"with {others}: {', '.join(source.shared_with)}{more}"


def _branch(lines: list[str], below: list[list[str]]) -> Iterator[str]:
    """Plain lines, then sub-trees with their branches."""
    yield from (f"│  {line}" for line in lines)
    for number, part in enumerate(below):
        last = number == len(below) - 1
        yield f"{'└' if last else '├'}─ {part[0]}"
        yield from (f"{' ' if last else '│'}  {line}" for line in part[1:])


def _count(number: int, one: str, many: str | None = None) -> str:
    """
    >>> _count(1, "run"), _count(1200, "run"), _count(2, "class", "classes")
    ('1 run', '1,200 runs', '2 classes')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"
