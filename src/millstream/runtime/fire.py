"""The fire of some groups inside a Spark task: read buckets, answer windows, bring small buckets together."""

from __future__ import annotations

import time
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from millstream.kernels import bucket
from millstream.kernels.answering import Due, Fired
from millstream.kernels.answers import Part
from millstream.kernels.bucket import Cells
from millstream.kernels.fire import fire
from millstream.kernels.matrices import Piece, SliceId, SliceMatrix, can_keep, slice_id, slice_matrix
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
    compacted: list[_Compacted] = []
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
            compacted += _compact(task.home, item, replaced)
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
    """The slices of an item: matrices where they can be kept between fires, else the buckets themselves."""
    files: dict[str, pa.Buffer] = {}

    def read(ref: BucketRef) -> Cells:
        if ref.path not in files:
            files[ref.path] = home.read(ref.path)
        group = load_group(home, item.versions[ref.version])
        return bucket.decode(files[ref.path].slice(ref.offset, ref.length), len(group.version.measures))

    pieces: list[Piece] = []
    for (version, slice_), refs in _by_slice(item.buckets).items():
        group = load_group(home, item.versions[version])
        key = _cache_key(home, item.versions[version], slice_, refs)
        matrix = kept.get(key)
        if matrix is None:
            parts = [read(ref) for ref in refs]
            keys = sum(len(cells.keys[0]) if cells.keys else 1 for cells in parts)
            if not can_keep(group, keys, LARGEST_MATRIX):
                pieces += [Piece(group, r.start, r.end, r.watermark, c) for r, c in zip(refs, parts, strict=True)]
                continue
            matrix = slice_matrix(group, parts)
            kept.put(key, matrix)
        pieces.append(Piece(group, refs[0].start, refs[0].end, slice_[2], matrix))
    return pieces


def _by_slice(refs: Sequence[BucketRef]) -> dict[tuple[int, SliceId], list[BucketRef]]:
    found: dict[tuple[int, SliceId], list[BucketRef]] = defaultdict(list)
    for ref in refs:
        found[ref.version, slice_id(ref.start, ref.end, ref.watermark)].append(ref)
    return found


CacheKey = tuple[object, ...]


def _cache_key(home: Home, version: str, slice_: SliceId, refs: Sequence[BucketRef]) -> CacheKey:
    return home.root, version, slice_, tuple(sorted((ref.path, ref.offset) for ref in refs))


class KeptMatrices:
    """The matrices of recent slices in a worker process: each window that contains a slice asks for it again."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = 0
        self._matrices: OrderedDict[CacheKey, SliceMatrix] = OrderedDict()

    def get(self, key: CacheKey) -> SliceMatrix | None:
        if key in self._matrices:
            self._matrices.move_to_end(key)
        return self._matrices.get(key)

    def put(self, key: CacheKey, matrix: SliceMatrix) -> None:
        if key not in self._matrices:
            self._matrices[key] = matrix
            self._bytes += matrix.bytes
        while self._bytes > self._limit and self._matrices:
            self._bytes -= self._matrices.popitem(last=False)[1].bytes

    def rename(self, old: CacheKey, new: CacheKey) -> None:
        """The same slice from a compacted bucket."""
        if old in self._matrices:
            self._matrices[new] = self._matrices.pop(old)


# Matrices kept by a worker process, and the largest worth keeping; larger ones are made block by block in each fire.
kept = KeptMatrices(384 << 20)
LARGEST_MATRIX = 32 << 20


def _due(one: DueQuery, pieces: Sequence[Piece]) -> Due | None:
    """The query's definition from any version that has it; none means that no bucket concerns it."""
    for piece in pieces:
        position = piece.group.position.get(one.query)
        if position is not None:
            return Due(piece.group.version.members[position], one.after, one.upto, one.partial_until)
    return None


@dataclass(frozen=True)
class _Compacted:
    """A merged bucket, before it has a place in a file; ``key`` finds the matrix of what it replaces."""

    version: str
    bucket: Bucket
    newest: BucketRef
    data: pa.Buffer
    key: CacheKey


def _compact(home: Home, item: FireItem, replaced: list[tuple[str, int]]) -> Iterator[_Compacted]:
    """Merge the buckets of closed slices that later windows will read. Buckets of batches that came after the slice
    had closed are left alone: they do not count in every window."""
    for (version, slice_), refs in _by_slice(item.buckets).items():
        start, end, late = slice_
        if len(refs) < 2 or late is not None or end > item.closed or start < item.needed_from:
            continue
        path = item.versions[version]
        group = load_group(home, path)
        measures = group.version.measures
        data = [home.read(ref.path).slice(ref.offset, ref.length) for ref in refs]
        cells = merge([bucket.decode(part, len(measures)) for part in data], measures)
        encoded = bucket.encode(cells)
        newest = max(refs, key=lambda ref: ref.batch)
        place = Bucket(group.version.group, group.version.version, start, end, 0, len(encoded), len(cells))
        replaced += [(ref.path, ref.offset) for ref in refs]
        yield _Compacted(path, place, newest, encoded, _cache_key(home, path, slice_, refs))


def _write_compacted(task: FireTask, compacted: Sequence[_Compacted]) -> tuple[BucketFile, ...]:
    """One file for each watermark, since that is kept by file."""
    by_plan: dict[tuple[int, int | None], list[_Compacted]] = defaultdict(list)
    for one in compacted:
        by_plan[one.newest.batch, one.newest.watermark].append(one)
    files = []
    for (batch, watermark), mine in by_plan.items():
        folder, stem = f"{BUCKETS}/{task.stream}", f"{batch}-compact"
        path = task.home.write(folder, stem, "bucket", [one.data for one in mine])
        buckets, position = [], 0
        for one in mine:
            placed = replace(one.bucket, offset=position)
            position += placed.length
            buckets.append(placed)
            slice_ = slice_id(placed.start, placed.end, watermark)
            kept.rename(one.key, (task.home.root, one.version, slice_, ((path, placed.offset),)))
        files.append(BucketFile(path, task.stream, batch, watermark, tuple(buckets)))
    return tuple(files)
