"""The fire of some groups inside a Spark task: read buckets, answer windows, bring small buckets together."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from millstream.kernels import bucket
from millstream.kernels.answers import Part
from millstream.kernels.bucket import Cells
from millstream.kernels.fire import Due, Fired, Piece, fire
from millstream.kernels.merge import merge
from millstream.model.plan import Bucket, BucketFile, FireResult
from millstream.model.types import DataType
from millstream.runtime.home import BUCKETS, Home
from millstream.runtime.worker import evaluator, load_group, write_answers


@dataclass(frozen=True)
class DueQuery:
    query: str
    after: int
    upto: int
    partial_until: int | None


@dataclass(frozen=True)
class BucketRef:
    """A bucket to read: which of the item's versions made it, and where it lies."""

    version: int
    path: str
    offset: int
    length: int
    start: int
    end: int
    batch: int
    watermark: int | None


@dataclass(frozen=True)
class FireItem:
    """The due queries of one group with the versions and buckets their windows need; slices that start at or after
    ``needed_from`` will be read again and are worth compacting."""

    versions: tuple[str, ...]
    due: tuple[DueQuery, ...]
    buckets: tuple[BucketRef, ...]
    needed_from: int
    closed: int
    compact: bool = True


@dataclass(frozen=True)
class FireTask:
    home: Home
    stream: str
    time_type: DataType
    items: tuple[FireItem, ...]


def run_fire(task: FireTask) -> tuple[FireResult, dict[str, float]]:
    """Fire all items; their answers go to one file."""
    parts: list[Part] = []
    windows: dict[str, int] = {}
    rows: dict[str, int] = {}
    failures: dict[str, int] = {}
    broken: dict[str, str] = {}
    replaced: list[tuple[str, int]] = []
    compacted: list[tuple[Bucket, BucketRef, pa.Buffer]] = []
    seconds: dict[str, float] = defaultdict(float)
    for item in task.items:
        started = time.perf_counter()
        pieces = read_pieces(task.home, item)
        read = time.perf_counter()
        seconds["fire: read"] += read - started
        due = [found for one in item.due if (found := _due(one, pieces)) is not None]
        fired = fire_apart(due, pieces, task.time_type)
        seconds["fire: answer"] += time.perf_counter() - read
        parts += fired.parts
        windows |= fired.windows
        rows |= fired.rows
        failures |= fired.failures
        broken |= fired.broken
        if item.compact:
            _compact(item, pieces, compacted, replaced)
    started = time.perf_counter()
    answers = write_answers(task.home, f"{task.stream}-fire", parts)
    files = _write_compacted(task, compacted)
    seconds["fire: write"] += time.perf_counter() - started
    return FireResult(answers, windows, rows, failures, broken, files, tuple(replaced)), dict(seconds)


def fire_apart(due: Sequence[Due], pieces: Sequence[Piece], time_type: DataType) -> Fired:
    """All together; if that fails, each query alone, so that the one that cannot be answered stops nobody else."""
    try:
        return fire(due, pieces, time_type, evaluator())
    except Exception as error:
        if len(due) == 1:
            return Fired(broken={due[0].member.query: f"{type(error).__name__}: {error}"})
        fired = Fired()
        for one in due:
            alone = fire_apart([one], pieces, time_type)
            fired.parts += alone.parts
            fired.windows.update(alone.windows)
            fired.rows.update(alone.rows)
            fired.failures.update(alone.failures)
            fired.broken.update(alone.broken)
        return fired


def read_pieces(home: Home, item: FireItem) -> list[Piece]:
    files: dict[str, pa.Buffer] = {}
    pieces = []
    for ref in item.buckets:
        if ref.path not in files:
            files[ref.path] = home.read(ref.path)
        group = load_group(home, item.versions[ref.version])
        cells = bucket.decode(files[ref.path].slice(ref.offset, ref.length), len(group.version.measures))
        pieces.append(Piece(group, ref.start, ref.end, ref.watermark, cells))
    return pieces


def _due(one: DueQuery, pieces: Sequence[Piece]) -> Due | None:
    """The query's definition from any version that has it; none means that no bucket concerns it."""
    for piece in pieces:
        position = piece.group.position.get(one.query)
        if position is not None:
            return Due(piece.group.version.members[position], one.after, one.upto, one.partial_until)
    return None


def _compact(
    item: FireItem,
    pieces: Sequence[Piece],
    compacted: list[tuple[Bucket, BucketRef, pa.Buffer]],
    replaced: list[tuple[str, int]],
) -> None:
    """Merge the buckets of closed slices that later windows will read. Buckets of batches that came after the slice had closed
    are left alone: they do not count in every window."""
    together: dict[tuple[int, int, int], list[tuple[BucketRef, Cells]]] = defaultdict(list)
    for ref, piece in zip(item.buckets, pieces, strict=True):
        on_time = ref.watermark is None or ref.watermark < ref.end
        if on_time and ref.end <= item.closed and ref.start >= item.needed_from:
            together[ref.version, ref.start, ref.end].append((ref, piece.cells))
    for (version, start, end), found in together.items():
        if len(found) < 2:
            continue
        group = next(p.group for p, r in zip(pieces, item.buckets, strict=True) if r.version == version)
        cells = merge([cells for _, cells in found], group.version.measures)
        encoded = bucket.encode(cells)
        newest = max((ref for ref, _ in found), key=lambda ref: ref.batch)
        place = Bucket(group.version.group, group.version.version, start, end, 0, len(encoded), len(cells))
        compacted.append((place, newest, encoded))
        replaced += [(ref.path, ref.offset) for ref, _ in found]


def _write_compacted(
    task: FireTask, compacted: Sequence[tuple[Bucket, BucketRef, pa.Buffer]]
) -> tuple[BucketFile, ...]:
    """One file for each watermark, since that is kept by file."""
    by_plan: dict[tuple[int, int | None], list[tuple[Bucket, pa.Buffer]]] = defaultdict(list)
    for place, newest, data in compacted:
        by_plan[newest.batch, newest.watermark].append((place, data))
    files = []
    for (batch, watermark), mine in by_plan.items():
        buckets, position = [], 0
        for place, data in mine:
            buckets.append(Bucket(place.group, place.version, place.start, place.end, position, len(data), place.cells))
            position += len(data)
        path = task.home.write(f"{BUCKETS}/{task.stream}", f"{batch}-compact", "bucket", [data for _, data in mine])
        files.append(BucketFile(path, task.stream, batch, watermark, tuple(buckets)))
    return tuple(files)
