"""Explain: what a query shares with whom, drawn as a tree, with sizes as they are now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from millstream.catalog.metastore import QueryRecord
from millstream.engine.core import Core
from millstream.kernels.classes import table_of
from millstream.model.group import GroupVersion, Member
from millstream.model.join import JoinNode, JoinQuery, Tree, leg_of
from millstream.model.legs import leg_attributes, leg_fields, leg_member, query_of_member
from millstream.model.query import LogicalQuery
from millstream.model.text import window_text, written


@dataclass(frozen=True, slots=True)
class Source:
    """What a query has of one stream. ``runs`` are cells by (key, class): what a join pairs and an aggregation adds
    up."""

    stream: str
    alias: str
    where: str | None
    keys: tuple[str, ...]
    keeps: tuple[str, ...]
    group: str
    version: int
    shared_with: tuple[str, ...]
    classes: int
    measures: int
    buckets: int
    bytes: int
    slices: int
    runs: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """``tree`` is the drawing, line by line."""

    query: str
    sql: str
    state: str
    window: str | None
    sources: tuple[Source, ...]
    windows: int
    answer_rows: int
    tree: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.tree)


def explain(core: Core, record: QueryRecord) -> Explanation:
    query = record.query
    if isinstance(query, JoinQuery):
        sources = tuple(_leg(core, record, query, leg) for leg in range(len(query.legs)))
        below = list(_join(query, query.tree, sources))
    else:
        sources = (_single(core, record, query),)
        below = _facts(sources[0])
    window = None if query.window is None else window_text(query.window)
    head = f"{record.id}  {record.state}  {window or 'no window: answered batch by batch'}"
    told = [f"answered {record.windows:,} windows with {record.answer_rows:,} rows", *_result(query)]
    tree = (head, *_branch(told, [below]))
    return Explanation(record.id, record.sql, record.state, window, sources, record.windows, record.answer_rows, tree)


def _branch(lines: list[str], below: list[list[str]]) -> Iterator[str]:
    """Plain lines, then sub-trees with their branches."""
    yield from (f"│  {line}" for line in lines)
    for number, part in enumerate(below):
        last = number == len(below) - 1
        yield f"{'└' if last else '├'}─ {part[0]}"
        yield from (f"{' ' if last else '│'}  {line}" for line in part[1:])


def _result(query: LogicalQuery | JoinQuery) -> list[str]:
    grouped = isinstance(query, LogicalQuery) or query.grouped
    if grouped and query.window is None:
        return []
    if not grouped:
        return ["rows are built when they are read; only their number is stored"]
    return [f"grouped by {', '.join(map(_plain(query), query.keys)) or 'the window alone'}"]


def _plain(query: LogicalQuery | JoinQuery) -> Callable[..., str]:
    if isinstance(query, LogicalQuery):
        return written
    return lambda expression: written(expression, lambda name: _named(query, name))


def _named(query: JoinQuery, name: str) -> str:
    leg, plain = leg_of(name)
    return f"{query.legs[leg].alias}.{plain}"


def _join(query: JoinQuery, tree: Tree, sources: tuple[Source, ...]) -> list[str]:
    if not isinstance(tree, JoinNode):
        source = sources[tree]
        name = source.stream if source.alias == source.stream else f"{source.alias}: {source.stream}"
        facts = _facts(source)
        return [f"{name}  {facts[0]}", *facts[1:]]
    show = _plain(query)
    on = [f"{show(left)} = {show(right)}" for left, right in tree.equal]
    on += [] if tree.residual is None else [show(tree.residual)]
    head = f"{tree.kind} join on {' AND '.join(on) or 'the window alone'}"
    return [head, *_branch([], [_join(query, tree.left, sources), _join(query, tree.right, sources)])]


def _facts(source: Source) -> list[str]:
    others = len(source.shared_with)
    company = "alone" if not others else f"with {others} other {'query' if others == 1 else 'queries'}"
    lines = [f"group {source.group} version {source.version}, {company}"]
    if source.where:
        lines.append(f"where {source.where}")
    lines.append(f"keys {', '.join(source.keys) or 'none'}; {source.classes} classes, {source.measures} measures")
    if source.keeps:
        lines.append(f"keeps the rows' {', '.join(source.keeps)}")
    size = f"{source.buckets} buckets of {source.slices} slices, {source.bytes:,} bytes, {source.runs:,} runs"
    return [*lines, f"stored now: {size}"]


def _leg(core: Core, record: QueryRecord, query: JoinQuery, leg: int) -> Source:
    mine = query.legs[leg]
    where = None if mine.where is None else written(mine.where)
    keys = tuple(written(e, lambda name: leg_of(name)[1]) for e in leg_attributes(query, leg))
    keeps = tuple(field.name for field in leg_fields(query, leg))
    group = next(one.group for one in record.legs if one.leg == leg)
    return _source(core, (mine.stream, mine.alias, where, keys, keeps), group, leg_member(record.id, leg))


def _single(core: Core, record: QueryRecord, query: LogicalQuery) -> Source:
    where = None if query.where is None else written(query.where)
    keys = tuple(map(written, query.keys))
    return _source(core, (query.stream, query.stream, where, keys, ()), record.group, record.id)


def _source(
    core: Core,
    about: tuple[str, str, str | None, tuple[str, ...], tuple[str, ...]],
    group: str,
    member: str,
) -> Source:
    version = core.registry.version(group)
    members: tuple[Member, ...] = version.members if version is not None else ()
    own = query_of_member(member)
    others = tuple(dict.fromkeys(q for m in members if (q := query_of_member(m.query)) != own))
    stored = core.pipelines[about[0]].buckets.between(group, -(2**63), 2**63 - 1)
    return Source(
        *about,
        group=group,
        version=version.version if version is not None else 0,
        shared_with=others,
        classes=_classes(version),
        measures=len(version.measures) if version is not None else 0,
        buckets=len(stored),
        bytes=sum(one.bucket.length for one in stored),
        slices=len({(one.bucket.start, one.bucket.end) for one in stored}),
        runs=sum(one.bucket.cells for one in stored),
    )


def _classes(version: GroupVersion | None) -> int:
    return 0 if version is None else table_of(version).classes
