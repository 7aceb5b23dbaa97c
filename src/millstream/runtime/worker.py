"""What runs inside a Spark task: ingest of some splits, and what fires have in common with it. No Spark in here."""

from __future__ import annotations

import ctypes
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeVar

import pyarrow as pa

from millstream.config import Limits
from millstream.errors import DamagedFile, SourceError
from millstream.kernels import answers, bucket
from millstream.kernels.answers import Part, Range
from millstream.kernels.batch import Batch, Broken
from millstream.kernels.bucket import Cells
from millstream.kernels.checksum import checksum
from millstream.kernels.evaluate import Evaluator
from millstream.kernels.figures import delays, group_figures, moments
from millstream.kernels.filter import select_rows
from millstream.kernels.group import Group, expressions
from millstream.kernels.guard import hold_process
from millstream.kernels.ingest import SliceCells, Tally, blame, late_rows, slice_cells
from millstream.kernels.merge import merge
from millstream.kernels.rows import RowTable
from millstream.model import statistics
from millstream.model.legs import query_of_member
from millstream.model.plan import AnswerFile, BatchResult, Bucket, BucketFile, Damage
from millstream.model.query import WindowSpec
from millstream.model.statistics import Figures
from millstream.model.stream import Stream
from millstream.runtime.admitting import (
    GATHERED_ROWS,
    Admission,
    Admitted,
    divided,
    gathered,
    latest_time,
    rows_together,
    together,
)
from millstream.runtime.home import ANSWERS, BUCKETS, DEAD, Home
from millstream.runtime.loading import load_group
from millstream.sources.chunk import Chunk, Unread

# glibc's names for two of its limits.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1


def _keep_memory() -> None:
    """Let the allocator keep what the kernels free: by default every array of some megabytes is mapped anew and its
    pages are cleared again, a third of the time of a fire."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_MMAP_THRESHOLD, 32 << 20)
        library.mallopt(_TRIM_THRESHOLD, 1 << 30)


_keep_memory()


@dataclass(frozen=True)
class IngestTask:
    """What all tasks of one ingest job have in common."""

    home: Home
    stream: Stream
    batch: int
    watermark: int | None
    clock: int
    versions: tuple[str, ...]
    # Whether expressions are evaluated one by one, because the batch has failed before.
    apart: bool = False
    limits: Limits = field(default_factory=Limits)
    # Read when the task is made: it travels to the workers.
    gathered_rows: int = field(default_factory=lambda: GATHERED_ROWS)


def evaluator(limits: Limits, expected_rows: int = 0) -> Evaluator:
    """That of this process, for a task that begins."""
    kept = _evaluator(limits)
    kept.begin(expected_rows)
    return kept


@lru_cache(maxsize=1)
def _evaluator(limits: Limits) -> Evaluator:
    return Evaluator(limits, in_worker=True)


def needed_columns(task: IngestTask) -> list[str]:
    """The columns to read: the event time, and what some query asks for."""
    asked = frozenset[str]().union(*(group.columns for group in _groups(task)))
    return [f.name for f in task.stream.fields if f.name == task.stream.time or f.name in asked]


def _groups(task: IngestTask) -> list[Group]:
    return [load_group(task.home, path) for path in task.versions]


def unread_times(task: IngestTask) -> Unread | None:
    """Event times that nobody asks for are not read where all rows of a row group lie in one slice of each group of
    queries, none of them late or ahead of the clock; None where they always have to be, as without windows: nothing
    would bound what is measured of delays then."""
    groups = _groups(task)
    asked = frozenset[str]().union(*(group.columns for group in groups))
    slicers = {group.slicer for group in groups if group.version.windowed}
    if task.stream.time in asked or not asked or not slicers:
        return None
    latest = latest_time(task.stream, task.clock)

    def enough(low: int, high: int) -> bool:
        if (task.watermark is not None and low < task.watermark) or (latest is not None and high > latest):
            return False
        return all(slicer.start(low) == slicer.start(high) for slicer in slicers)

    return Unread(task.stream.time, enough)


@dataclass
class _Work:
    """What a task has found so far."""

    task: IngestTask
    groups: list[Group]
    evaluator: Evaluator
    rows_kept: RowTable
    admission: Admission
    slices: dict[tuple[int, int, int], list[Cells]] = field(default_factory=lambda: defaultdict(list))
    selected: dict[str, list[tuple[pa.Array, ...]]] = field(default_factory=lambda: defaultdict(list))
    tally: Tally = field(default_factory=Tally)
    broken: Broken = field(default_factory=Broken)
    # Whether chunks are no longer put together, and large ones divided.
    one_by_one: bool = False
    late_by_window: Counter[WindowSpec] = field(default_factory=Counter)
    late: int = 0
    max_time: int | None = None
    figures: Figures = field(default_factory=Figures)
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))


# Rows of the last task of each stream in this process.
_last_rows: dict[str, int] = {}


def run_ingest(task: IngestTask, chunks: Iterable[Chunk | SourceError]) -> BatchResult:
    """Ingest chunks and write what they give; a file that could not be read comes as its error among them."""
    hold_process(task.limits.worker_memory)
    groups, damaged = [], []
    for path in task.versions:
        try:
            groups.append(load_group(task.home, path))
        except DamagedFile as error:
            damaged.append(Damage(path, None, error.reason))
    if damaged:
        return BatchResult(0, 0, None, 0, 0, damaged=tuple(damaged))
    evaluates = evaluator(task.limits, _last_rows.get(task.stream.name, 0))
    row_table = RowTable(sorted({name for group in groups for name in group.row_columns}))
    admission = Admission(task.stream, task.clock, keeps_times=unread_times(task) is None)
    work = _Work(task, groups, evaluates, row_table, admission)
    admitted = work.admission.admitted(_timed(chunks, work.seconds, "read"))
    for pieces in gathered(admitted, rows_together(task.stream, task.gathered_rows)):
        _ingest(work, pieces)
        # Not kept while the next are read.
        del pieces
    _last_rows[task.stream.name] = work.admission.rows
    started = time.perf_counter()
    result = _write(work)
    result.seconds_by_phase["write"] = time.perf_counter() - started
    return result


def _timed(
    items: Iterable[Chunk | SourceError], seconds: dict[str, float], phase: str
) -> Iterator[Chunk | SourceError]:
    iterator = iter(items)
    while True:
        started = time.perf_counter()
        item = next(iterator, None)
        seconds[phase] += time.perf_counter() - started
        if item is None:
            return
        yield item


def _ingest(work: _Work, pieces: Sequence[Admitted]) -> None:
    """Together; where that breaks an expression in small pieces, from then on: what an expression may take does not
    grow with the rows that happen to wait, or that a file has in one row group."""
    small = divided(pieces)
    if work.one_by_one or not _ingest_together(work, pieces, last=len(small) == 1):
        work.one_by_one = True
        for piece in small:
            _ingest_together(work, [piece], last=True)


def _ingest_together(work: _Work, pieces: Sequence[Admitted], last: bool) -> bool:
    """Gives whether no expression broke; the ``last`` try counts all the same."""
    table, times = together(pieces)
    started = time.perf_counter()
    broken = Broken(dict(work.broken.everywhere), dict(work.broken.selected))
    batch = Batch(table, times, work.evaluator, broken, work.task.apart)
    batch.prepare(expressions(work.groups))
    if not last and broken != work.broken:
        return False
    prepared = time.perf_counter()
    tally = Tally()
    found: list[tuple[int, SliceCells]] = []
    selected: list[tuple[str, tuple[pa.Array, ...]]] = []
    for number, group in enumerate(work.groups):
        if batch.broken:
            blame(group, batch.broken, tally)
        if group.version.windowed:
            found += [(number, cells) for cells in slice_cells(group, batch, work.task.watermark, tally)]
        else:
            selected += select_rows(group, batch, tally).items()
    if not last and broken != work.broken:
        return False
    aggregated = time.perf_counter()
    work.seconds["evaluate"] += prepared - started
    work.seconds["classes"] += batch.seconds_in_classes
    work.seconds["aggregate"] += aggregated - prepared - batch.seconds_in_classes
    work.broken = broken
    work.tally.add(tally)
    for query, rows in selected:
        work.selected[query].append(rows)
    latest = int(times.max())
    work.max_time = latest if work.max_time is None else max(work.max_time, latest)
    windows = tuple(dict.fromkeys(w for g in work.groups for w in g.windows))
    by_window, late = late_rows(times, work.task.watermark, windows)
    work.late += late
    work.late_by_window.update(by_window)
    _measure(work, batch, found)
    _keep(work, table, found)
    work.seconds["keep rows"] += time.perf_counter() - aggregated
    return True


def _measure(work: _Work, batch: Batch, found: Sequence[tuple[int, SliceCells]]) -> None:
    groups = (
        Figures(groups={work.groups[n].version.group: group_figures(work.groups[n], one.cells)}) for n, one in found
    )
    chunk = Figures(delays=delays(batch.times, work.task.clock), moments=moments(work.groups, batch))
    work.figures = statistics.together([work.figures, chunk, *groups])


def _keep(work: _Work, chunk: pa.Table, found: Sequence[tuple[int, SliceCells]]) -> None:
    """Add the chunk's cells to their slices, and the rows that any of them refers to, once, to the row table."""
    indexes = iter(work.rows_kept.add(chunk, [one.rows for _, one in found if one.rows is not None]))
    for number, one in found:
        cells = one.cells if one.rows is None else replace(one.cells, index=next(indexes))
        work.slices[number, one.start, one.end].append(cells)


def _write(work: _Work) -> BatchResult:
    task, admission = work.task, work.admission
    late = Counter[str]()
    for group in work.groups:
        for member in group.version.members:
            count = work.late_by_window.get(member.window, 0) if member.window else 0
            if count:
                # A row is late once for a query, also where a stream is joined with itself.
                query = query_of_member(member.query)
                late[query] = max(late[query], count)
    return BatchResult(
        rows=admission.rows,
        bytes=admission.bytes,
        max_time=work.max_time,
        late_rows=work.late,
        rejected_rows=admission.rejected_rows,
        files=_write_buckets(work),
        answers=_write_selected(work),
        rejects=_write_dead(task, admission.rejected),
        late_by_query=dict(late),
        failures_by_query=dict(work.tally.failures),
        rows_by_query=dict(work.tally.rows),
        broken=work.tally.broken,
        seconds_by_phase=dict(work.seconds),
        figures=replace(work.figures, rows=admission.rows, bytes=admission.bytes),
    )


def _write_buckets(work: _Work) -> tuple[BucketFile, ...]:
    data: list[pa.Buffer] = []
    buckets: list[Bucket] = []
    rows = work.rows_kept.encode()
    if rows is not None:
        data.append(rows)
    position = 0 if rows is None else len(rows)
    place = (0, position)
    rows_checksum = None if rows is None else checksum(rows)
    for (number, start, end), parts in sorted(work.slices.items()):
        group = work.groups[number]
        version = group.version
        cells = merge(parts, version.measures, group.full_labels)
        if cells.index is not None:
            cells = replace(cells, place=place, rows_checksum=rows_checksum)
        encoded, body = bucket.encode_apart(cells)
        where = (position, len(encoded), len(cells), checksum(encoded.slice(0, body)))
        apart = None if body == len(encoded) else body
        buckets.append(Bucket(version.group, version.version, start, end, *where, body=apart))
        data.append(encoded)
        position += len(encoded)
    if not buckets:
        return ()
    task = work.task
    path = task.home.write(f"{BUCKETS}/{task.stream.name}", str(task.batch), "bucket", data)
    return (BucketFile(path, task.stream.name, task.batch, task.watermark, tuple(buckets)),)


def _write_selected(work: _Work) -> tuple[AnswerFile, ...]:
    """Answers of queries without a window; those with the same column types share a part."""
    by_types: dict[tuple[pa.DataType, ...], list[tuple[str, list[tuple[pa.Array, ...]]]]] = defaultdict(list)
    for query, chunks in work.selected.items():
        by_types[tuple(column.type for column in chunks[0])].append((query, chunks))
    parts = [_part(queries) for queries in by_types.values()]
    return write_answers(work.task.home, f"{work.task.stream.name}-{work.task.batch}", parts)


def _part(queries: Sequence[tuple[str, list[tuple[pa.Array, ...]]]]) -> Part:
    ranges: list[Range] = []
    first = 0
    for query, chunks in queries:
        rows = sum(len(chunk[0]) for chunk in chunks)
        ranges.append(Range(query, None, None, False, first, rows))
        first += rows
    every = [chunk for _, chunks in queries for chunk in chunks]
    return Part(tuple(pa.concat_arrays([chunk[i] for chunk in every]) for i in range(len(every[0]))), tuple(ranges))


def write_answers(home: Home, stem: str, parts: Sequence[Part]) -> tuple[AnswerFile, ...]:
    if not parts:
        return ()
    encoded = answers.encode(parts)
    path = home.write(ANSWERS, stem, "answers", encoded.data, checksum=encoded.index_checksum)
    return (AnswerFile(path, encoded.index_offset, encoded.index_length, encoded.rows, encoded.queries),)


def _write_dead(task: IngestTask, rejected: Sequence[pa.Table]) -> tuple[str, ...]:
    """Dead letters as JSON lines: reason, origin, row."""
    if not rejected:
        return ()
    rows = pa.concat_tables(rejected).to_pylist()
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return (task.home.write(f"{DEAD}/{task.stream.name}", str(task.batch), "jsonl", [lines.encode()]),)


def merged(results: Sequence[BatchResult]) -> BatchResult:
    """The results of a job's tasks as one."""
    times = [r.max_time for r in results if r.max_time is not None]
    return BatchResult(
        rows=sum(r.rows for r in results),
        bytes=sum(r.bytes for r in results),
        max_time=max(times, default=None),
        late_rows=sum(r.late_rows for r in results),
        rejected_rows=sum(r.rejected_rows for r in results),
        files=tuple(f for r in results for f in r.files),
        answers=tuple(a for r in results for a in r.answers),
        rejects=tuple(p for r in results for p in r.rejects),
        late_by_query=_sums(r.late_by_query for r in results),
        failures_by_query=_sums(r.failures_by_query for r in results),
        rows_by_query=_sums(r.rows_by_query for r in results),
        broken={query: reason for r in results for query, reason in r.broken.items()},
        seconds_by_phase=_sums(r.seconds_by_phase for r in results),
        figures=statistics.together(r.figures for r in results),
        damaged=tuple(dict.fromkeys(d for r in results for d in r.damaged)),
    )


Number = TypeVar("Number", int, float)


def _sums(parts: Iterable[Mapping[str, Number]]) -> dict[str, Number]:
    total: dict[str, Number] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total[name] + value if name in total else value
    return total
