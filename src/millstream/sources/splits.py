"""Splits: descriptions of input, small enough to cross Spark as rows, from which a worker reads the data itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

from millstream.model.stream import Field
from millstream.sources.chunk import CHUNK_ROWS, Chunk, Origin, Unread
from millstream.sources.generators import RowGenerator
from millstream.sources.parquet import Footer, read_parquet
from millstream.sources.text import read_text

# Below these a task of its own costs more than it saves: a small Python task takes some 10 ms.
LEAST_TASK_ROWS = 50_000
LEAST_TASK_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class FileSplit:
    """Part of a file: a row range of Parquet (``first_row``, ``rows``), or a byte range of text (``start``, ``stop``),
    which means the lines that begin in it. None means to the end."""

    path: str
    format: str
    first_row: int = 0
    rows: int | None = None
    start: int = 0
    stop: int | None = None


@dataclass(frozen=True, slots=True)
class GeneratorSplit:
    """The rows ``start … stop - 1`` of a generator."""

    generator: RowGenerator
    start: int
    stop: int


Split = FileSplit | GeneratorSplit


def read_split(
    split: Split, fields: Sequence[Field], columns: Sequence[str], unread: Unread | None = None
) -> Iterator[Chunk]:
    """The rows of a split in chunks of at most ``CHUNK_ROWS``: the asked columns (at least one), in the stream's types,
    but for one that may stay ``unread`` where the file says enough about it.

    SourceError BAD_FILE when the file is unreadable, truncated or of another schema; chunks before it are good.
    """
    if isinstance(split, GeneratorSplit):
        for start in range(split.start, split.stop, CHUNK_ROWS):
            stop = min(start + CHUNK_ROWS, split.stop)
            table = split.generator.generate(start, stop, columns)
            yield Chunk(table, None, Origin(split.generator.kind, start + 1))
    elif split.format == "parquet":
        yield from read_parquet(split.path, split.first_row, split.rows, fields, columns, unread)
    else:
        yield from read_text(split.path, split.format, split.start, split.stop, fields, columns)


def split_rows(pieces: Sequence[tuple[Footer, int, int]], parallelism: int) -> list[list[Split]]:
    """Divide row ranges (footer, first row, rows) of Parquet files among tasks, in order, at row-group edges where
    that keeps the tasks about equal, since a row group cut in two is decoded by both."""
    total = sum(rows for _, _, rows in pieces)
    tasks = max(1, min(parallelism, total // LEAST_TASK_ROWS))
    edges = [round(total * i / tasks) for i in range(1, tasks)]
    cuts = _at_group_edges(pieces, edges, slack=total // tasks // 4)
    lists: list[list[Split]] = [[]]
    position = 0
    for footer, first, rows in pieces:
        begin = first
        while begin < first + rows:
            limit = cuts[len(lists) - 1] if len(lists) <= len(cuts) else total
            taken = min(first + rows - begin, limit - position)
            if taken == 0:
                lists.append([])
                continue
            lists[-1].append(FileSplit(footer.path, "parquet", begin, taken))
            begin, position = begin + taken, position + taken
    return [splits for splits in lists if splits]


def _at_group_edges(pieces: Sequence[tuple[Footer, int, int]], edges: Sequence[int], slack: int) -> list[int]:
    """Move each edge to the nearest row-group edge within the slack, if there is one."""
    known: list[int] = []
    position = 0
    for footer, first, rows in pieces:
        group = 0
        for size in footer.group_rows:
            if first < group < first + rows:
                known.append(position + group - first)
            group += size
        position += rows
        known.append(position)
    moved = []
    for edge in edges:
        near = min(known, key=lambda at: abs(at - edge), default=edge)
        moved.append(near if abs(near - edge) <= slack else edge)
    return sorted(moved)


def split_bytes(files: Sequence[tuple[FileSplit, int]], parallelism: int) -> list[list[Split]]:
    """Divide text files (split of the whole file, its size) among tasks by bytes."""
    total = sum(size for _, size in files)
    tasks = max(1, min(parallelism, total // LEAST_TASK_BYTES))
    share = -(-total // tasks) or 1
    lists: list[list[Split]] = [[] for _ in range(tasks)]
    position = 0
    for whole, size in files:
        begin = 0
        while begin < size or (size == 0 and begin == 0):
            task = min(position // share, tasks - 1)
            room = (task + 1) * share - position
            end = size if size - begin <= room else begin + room
            lists[task].append(replace(whole, start=begin, stop=None if end == size else end))
            position, begin = position + end - begin, max(end, 1)
    return [splits for splits in lists if splits]


def split_range(generator: RowGenerator, start: int, stop: int, parallelism: int) -> list[list[Split]]:
    """Divide a generator's rows among tasks."""
    tasks = max(1, min(parallelism, (stop - start) // LEAST_TASK_ROWS))
    edges = [start + (stop - start) * i // tasks for i in range(tasks + 1)]
    return [[GeneratorSplit(generator, a, b)] for a, b in pairwise(edges) if a < b]


T = TypeVar("T")


def merged(lists: Sequence[list[list[T]]], parallelism: int) -> list[list[T]]:
    """Several divisions as one: the k-th lists of all together."""
    depth = min(parallelism, max((len(division) for division in lists), default=0))
    joined: list[list[T]] = [[] for _ in range(depth)]
    for division in lists:
        for k, part in enumerate(division):
            joined[k % depth].extend(part)
    return [part for part in joined if part]
