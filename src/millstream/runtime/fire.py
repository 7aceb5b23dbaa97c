"""The fire of some groups inside a Spark task: read buckets, answer windows, bring small buckets together."""

from __future__ import annotations

import itertools
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa

from millstream.config import Limits
from millstream.errors import DamagedFile, reason_for
from millstream.kernels import bucket
from millstream.kernels.answering import Due, Fired
from millstream.kernels.answers import Part
from millstream.kernels.bucket import Cells
from millstream.kernels.checksum import checksum
from millstream.kernels.fire import Piece, by_start, can_keep, fire
from millstream.kernels.group import Group
from millstream.kernels.guard import NOBODYS_FAULT, hold_process
from millstream.kernels.merge import merge
from millstream.kernels.stack import SPARE_BYTES, SliceId, Stack, slice_id, spare
from millstream.model.plan import Bucket, BucketFile, Damage, FireResult
from millstream.model.types import DataType
from millstream.runtime import loading
from millstream.runtime.damage import DueWindows, Lost, find_damage, lacking, mark, read_cells
from millstream.runtime.home import BUCKETS, Home
from millstream.runtime.loading import load_group
from millstream.runtime.worker import evaluator, write_answers


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
    checksum: int | None = None
    body: int | None = None


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
    lost: tuple[Lost, ...] = ()


@dataclass(frozen=True)
class FireTask:
    home: Home
    stream: str
    time_type: DataType
    items: tuple[FireItem, ...]
    limits: Limits = field(default_factory=Limits)
    aside: bool = False


def stem_of(aside: bool) -> str:
    """What the names of files begin with that a fire writes: those of a failed one are known by it."""
    return "aside" if aside else "fire"


def run_fire(task: FireTask) -> tuple[FireResult, dict[str, float]]:
    """Fire all items; their answers go to one file."""
    hold_process(task.limits.worker_memory)
    parts: list[Part] = []
    windows: dict[str, int] = {}
    rows: dict[str, int] = {}
    counted: dict[str, int] = {}
    failures: dict[str, int] = {}
    broken: dict[str, str] = {}
    replaced: list[tuple[str, int]] = []
    compacted: list[_Compacted] = []
    damaged: list[Damage] = []
    held: list[str] = []
    incomplete: dict[str, int] = {}
    seconds: dict[str, float] = defaultdict(float)
    for item in task.items:
        started = time.perf_counter()
        try:
            stacks, pieces = read_slices(task.home, item.versions, item.buckets, item.needed_from)
        except DamagedFile:
            damaged += find_damage(task.home, item.versions, item.buckets)
            held += [one.query for one in item.due]
            continue
        read = time.perf_counter()
        in_read = _in_classes(stacks)
        seconds["fire: read"] += read - started - in_read
        groups = [*(stack.group for stack in stacks), *(piece.group for piece in pieces), *_lost_groups(task, item)]
        due = [found for one in item.due if (found := _due(one, groups)) is not None]
        fired = fire_apart(due, pieces, task.time_type, stacks, task.limits)
        if item.lost:
            incomplete |= _mark(task.home, item, fired, due)
        in_answer = _in_classes(stacks) + fired.seconds_in_classes
        seconds["fire: answer"] += time.perf_counter() - read - in_answer
        seconds["fire: classes"] += in_read + in_answer
        parts += fired.parts
        windows |= fired.windows
        rows |= fired.rows
        counted |= fired.groups
        failures |= fired.failures
        broken |= fired.broken
        if item.compact:
            compacted += _compact(task.home, item, replaced)
    started = time.perf_counter()
    answers = write_answers(task.home, f"{task.stream}-{stem_of(task.aside)}", parts)
    files, origins = _write_compacted(task, compacted)
    seconds["fire: write"] += time.perf_counter() - started
    result = FireResult(answers, windows, rows, failures, broken, files, tuple(replaced), origins)
    lacks = replace(result, damaged=tuple(damaged), held=tuple(held), incomplete_by_query=incomplete)
    return replace(lacks, groups_by_query=counted), dict(seconds)


def _in_classes(stacks: Sequence[Stack]) -> float:
    return sum(stack.spent_in_classes() for stack in stacks)


def _lost_groups(task: FireTask, item: FireItem) -> list[Group]:
    """Groups that made lost buckets: a query whose buckets are all lost has its definition there."""
    found = []
    for path in dict.fromkeys(lost.version for lost in item.lost):
        with suppress(DamagedFile):
            found.append(load_group(task.home, path))
    return found


def _mark(home: Home, item: FireItem, fired: Fired, due: Sequence[Due]) -> dict[str, int]:
    windows = [
        DueWindows(query, query, one.member.window, one.after, one.upto, one.partial_until)
        for one in due
        if (query := one.member.query) and one.member.window is not None
    ]
    return mark(fired, lacking(home, windows, item.lost), windows)


def fire_apart(
    due: Sequence[Due], pieces: Sequence[Piece], time_type: DataType, stacks: Sequence[Stack], limits: Limits
) -> Fired:
    """All together; if that fails, each query alone, so that the one that cannot be answered stops nobody else."""
    try:
        return fire(due, pieces, time_type, evaluator(limits), stacks, limits)
    except NOBODYS_FAULT:
        raise
    except Exception as error:
        if len(due) == 1:
            return Fired(broken={due[0].member.query: reason_for(error)})
        fired = Fired()
        for one in due:
            alone = fire_apart([one], pieces, time_type, stacks, limits)
            fired.parts += alone.parts
            fired.windows.update(alone.windows)
            fired.rows.update(alone.rows)
            fired.groups.update(alone.groups)
            fired.failures.update(alone.failures)
            fired.broken.update(alone.broken)
            fired.seconds_in_classes += alone.seconds_in_classes
        return fired


def read_slices(
    home: Home, versions: Sequence[str], buckets: Sequence[BucketRef], needed_from: int
) -> tuple[list[Stack], list[Piece]]:
    """The slices of buckets: stacks where they can be kept between fires, else the buckets themselves. Other fires will
    ask for slices from ``needed_from`` on."""

    def read(ref: BucketRef) -> Cells:
        return read_cells(home, ref, load_group(home, versions[ref.version]))

    stacks: list[Stack] = []
    pieces: list[Piece] = []
    by_version: list[list[BucketRef]] = [[] for _ in versions]
    for ref in buckets:
        by_version[ref.version].append(ref)
    for path, mine in zip(versions, by_version, strict=True):
        group = load_group(home, path)
        on_time = _by_slice([ref for ref in mine if _slice(ref)[2] is None])
        stack = kept.stack((home.root, path), group, on_time, read, needed_from)
        if stack is not None:
            stacks.append(stack)
            mine = [ref for ref in mine if _slice(ref)[2] is not None]
        pieces += [Piece(group, ref.start, ref.end, ref.watermark, read(ref)) for ref in mine]
    kept.shrink()
    return stacks, pieces


def _slice(ref: BucketRef) -> SliceId:
    return slice_id(ref.start, ref.end, ref.watermark)


def _by_slice(refs: Sequence[BucketRef]) -> dict[SliceId, list[BucketRef]]:
    """In order of their start."""
    found: dict[SliceId, list[BucketRef]] = defaultdict(list)
    for ref in sorted(refs, key=lambda ref: ref.start):
        found[_slice(ref)].append(ref)
    return found


Place = tuple[str, int]
# Slices whose keys are numbered together: each numbering looks at all keys of the stack again.
TOGETHER = 64
# A stack is made anew after so many times its slices have been dropped from it; and where it has more keys than so
# many, as soon as none of its slices is left, or it has twice the keys it began with: new ones keep coming then, and
# all have to be numbered together.
AGE = 20
FEW_KEYS = 1 << 16


@dataclass
class _Kept:
    """``places`` says which buckets each slice is made of, ``used`` when the stack was last fired from, ``keys`` how
    many it had after the first fire, ``bytes`` how large it was after the last."""

    stack: Stack
    places: dict[SliceId, frozenset[Place]] = field(default_factory=dict)
    used: float = 0.0
    keys: int = 0
    bytes: int = 0

    @property
    def crowded(self) -> bool:
        """Whether most of its keys may be of slices that are gone."""
        count = self.stack.key_count
        return count > FEW_KEYS and (not self.places or count > 2 * self.keys)


class KeptStacks:
    """The stacks of group versions in a worker process. Slices on them are closed, so they never change: a fire adds
    the slices that have closed since the last one. Those that fire least recently go first; those of versions that
    have not fired for a while go in any case, since every create leaves one behind."""

    def __init__(self, limit: int, largest: int) -> None:
        self._limit = limit
        self._largest = largest
        self._stacks: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._stacks)

    def clear(self) -> None:
        self._stacks.clear()
        self._bytes = 0

    def _pop(self, key: tuple[str, str]) -> _Kept | None:
        found = self._stacks.pop(key, None)
        self._bytes -= 0 if found is None else found.bytes
        return found

    def stack(
        self,
        key: tuple[str, str],
        group: Group,
        slices: dict[SliceId, list[BucketRef]],
        read: Callable[[BucketRef], Cells],
        needed_from: int,
    ) -> Stack | None:
        """The version's stack with all these slices on it; None where it would be too large to keep. Slices before
        ``needed_from`` and these go."""
        if not slices or not group.can_be_full:
            return None
        one = self._pop(key) or _Kept(Stack.empty(group))
        one.stack.drop_below(min(needed_from, next(iter(slices))[0]))
        one.places = {slice_: one.places[slice_] for slice_ in one.stack.slices}
        wanted = {slice_: frozenset((ref.path, ref.offset) for ref in refs) for slice_, refs in slices.items()}
        if one.crowded or not self._fits(one, wanted):
            one = _Kept(Stack.empty(group))
        new = [s for s in slices if s not in one.places]
        one.stack.expect(len(new))
        for first in range(0, len(new), TOGETHER):
            parts = [(slice_, [read(ref) for ref in slices[slice_]]) for slice_ in new[first : first + TOGETHER]]
            numbers = iter(one.stack.numbers([cells for _, mine in parts for cells in mine]))
            if not can_keep(group, one.stack.key_count, self._largest):
                return None
            for slice_, mine in parts:
                one.stack.push(slice_, mine, list(itertools.islice(numbers, len(mine))))
                one.places[slice_] = wanted[slice_]
        one.used = time.monotonic()
        one.keys = one.keys or one.stack.key_count
        one.bytes = one.stack.bytes
        self._bytes += one.bytes
        self._stacks[key] = one
        return one.stack

    def _fits(self, one: _Kept, wanted: dict[SliceId, frozenset[Place]]) -> bool:
        """Whether the stack holds what is wanted, or can by adding to its top; and is not full of keys that only
        dropped slices had."""
        new = [slice_ for slice_ in wanted if slice_ not in one.places]
        same = all(one.places[slice_] == places for slice_, places in wanted.items() if slice_ in one.places)
        above = not new or not one.places or by_start(new[0]) > max(map(by_start, one.places))
        return same and above and not (one.stack.keys and one.stack.dropped > AGE * len(wanted))

    def shrink(self) -> None:
        """Let go what is too old or too much, after the stacks of a fire."""
        oldest = time.monotonic() - loading.UNUSED_SECONDS
        while self._stacks and next(iter(self._stacks.values())).used < oldest:
            self._pop(next(iter(self._stacks)))
        # Where stacks go because there are too many, others are made in their place at the next fire.
        spare.keep(SPARE_BYTES if self._bytes > self._limit else 0)
        while self._bytes > self._limit and len(self._stacks) > 1:
            self._pop(next(iter(self._stacks)))

    def rename(self, key: tuple[str, str], slice_: SliceId, place: Place) -> None:
        """The same slice from a compacted bucket."""
        if key in self._stacks and slice_ in self._stacks[key].places:
            self._stacks[key].places[slice_] = frozenset([place])


# Stacks kept by a worker process in all, and the largest slice worth keeping; larger ones are stacked block by block
# in each fire.
kept = KeptStacks(768 << 20, 32 << 20)


def _due(one: DueQuery, groups: Sequence[Group]) -> Due | None:
    """The query's definition from any version that has it; none means that no bucket concerns it."""
    for group in groups:
        position = group.position.get(one.query)
        if position is not None:
            member = group.version.members[position]
            return Due(member, one.after, one.upto, one.partial_until, group.shapes[position])
    return None


@dataclass(frozen=True)
class _Compacted:
    """A merged bucket, before it has a place in a file."""

    version: str
    bucket: Bucket
    newest: BucketRef
    data: pa.Buffer
    parts: tuple[BucketRef, ...]


def _compact(home: Home, item: FireItem, replaced: list[tuple[str, int]]) -> Iterator[_Compacted]:
    """Merge the buckets of closed slices that later windows will read. Buckets of batches that came after the slice
    had closed are left alone: they do not count in every window."""
    by_slice: dict[tuple[int, SliceId], list[BucketRef]] = defaultdict(list)
    for ref in item.buckets:
        by_slice[ref.version, _slice(ref)].append(ref)
    for (version, (start, end, late)), refs in by_slice.items():
        if len(refs) < 2 or late is not None or end > item.closed or start < item.needed_from:
            continue
        path = item.versions[version]
        group = load_group(home, path)
        if group.has_rows:
            continue
        measures = group.version.measures
        try:
            cells = merge([read_cells(home, ref, group) for ref in refs], measures, group.full_labels)
        except DamagedFile:
            continue  # the answers came from what was read before; the next to read these files will mend them
        encoded = bucket.encode(cells)
        newest = max(refs, key=lambda ref: ref.batch)
        where = (0, len(encoded), len(cells), checksum(encoded))
        place = Bucket(group.version.group, group.version.version, start, end, *where)
        replaced += [(ref.path, ref.offset) for ref in refs]
        yield _Compacted(path, place, newest, encoded, tuple(refs))


def _write_compacted(
    task: FireTask, compacted: Sequence[_Compacted]
) -> tuple[tuple[BucketFile, ...], dict[str, dict[int, tuple[int, ...]]]]:
    """One file for each watermark, since that is kept by file; and the batches that each was made of."""
    by_plan: dict[tuple[int, int | None], list[_Compacted]] = defaultdict(list)
    for one in compacted:
        by_plan[one.newest.batch, one.newest.watermark].append(one)
    files = []
    origins: dict[str, dict[int, tuple[int, ...]]] = {}
    for (batch, watermark), mine in by_plan.items():
        folder, stem = f"{BUCKETS}/{task.stream}", f"{stem_of(task.aside)}-compact-{batch}"
        path = task.home.write(folder, stem, "bucket", [one.data for one in mine])
        buckets, position = [], 0
        for one in mine:
            placed = replace(one.bucket, offset=position)
            position += placed.length
            buckets.append(placed)
            slice_ = slice_id(placed.start, placed.end, watermark)
            kept.rename((task.home.root, one.version), slice_, (path, placed.offset))
        files.append(BucketFile(path, task.stream, batch, watermark, tuple(buckets)))
        origins[path] = _origins([ref for one in mine for ref in one.parts])
    return tuple(files), origins


def _origins(refs: Sequence[BucketRef]) -> dict[int, tuple[int, ...]]:
    found: dict[int, list[int]] = defaultdict(list)
    for ref in refs:
        found[ref.batch] += [] if ref.checksum is None else [ref.checksum]
    return {batch: tuple(checksums) for batch, checksums in found.items()}
