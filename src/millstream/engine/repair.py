"""Mending damaged files: group versions from the queries' definitions, bucket files from their sources.

A batch whose files are damaged is ingested again, with the plan and the group versions of the first time, from what
its tasks read then. Ingest is deterministic: the file that comes out is the same, or the source has changed, and takes
the place of the damaged one under its name. After an upgrade the bytes may differ; such a file takes its place in the
metastore. Compacted buckets come back as the buckets of their batches. What cannot be had again is declared lost, and
the fire goes on without it.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from millstream.catalog.metastore import Metastore
from millstream.catalog.outage import in_doubt
from millstream.config import Limits
from millstream.crashpoints import crash_point
from millstream.engine.buckets import Stored
from millstream.engine.leftovers import no_leftovers_of_batch
from millstream.engine.mending import run_mending
from millstream.engine.pipeline import WRITER, Pipeline
from millstream.engine.registry import Registry
from millstream.errors import DamagedFile, EngineError
from millstream.kernels.merge import merge
from millstream.kernels.stack import slice_id
from millstream.model.plan import BatchResult, Bucket, BucketFile, Damage, Recipe
from millstream.runtime.damage import find_damage, read_cells, version_damage
from millstream.runtime.faults import of_the_machine
from millstream.runtime.fire import BucketRef
from millstream.runtime.home import GROUPS, Home
from millstream.runtime.loading import load_group
from millstream.runtime.worker import IngestTask
from millstream.sources.recipes import splits_from
from millstream.sources.splits import Split

# A rebuild that fails so often, and not for a fault of the machine, will not succeed: the data are lost.
MOST_TRIES = 3

RunIngest = Callable[[IngestTask, Sequence[list[Split]]], BatchResult]
# What makes a bucket of a batch: group, version, start and end of its slice.
Key = tuple[str, int, int, int]


class NotRebuilt(Exception):
    """Why the data cannot be had again."""


@dataclass
class Mended:
    """What has been done about damaged files since the start."""

    rebuilt: int = 0
    lost: int = 0


class Repair:
    """Called by a fire that holds the locks of all streams concerned; ``ingest`` is the Spark job."""

    def __init__(
        self,
        metastore: Metastore,
        registry: Registry,
        home: Home,
        ingest: RunIngest,
        pipelines: Mapping[str, Pipeline],
        limits: Limits | None = None,
    ) -> None:
        self._metastore = metastore
        self._limits = limits or Limits()
        self._registry = registry
        self._home = home
        self._ingest = ingest
        self._pipelines = pipelines
        self._tries: Counter[str] = Counter()
        # One batch is ingested again at a time: what a failed try leaves behind is known by its batch.
        self._lock = threading.Lock()
        self._hopeless: set[str] = set()
        # Files that a worker could not read once, and that were whole when looked at again.
        self._whole: set[str] = set()
        self.mended = Mended()

    def repair(self, damaged: Sequence[Damage]) -> None:
        """Mend what is damaged for the driver too, and declare lost what cannot be mended. A file that is whole for
        it stays as it is, and the fire is repeated: a worker has lost its mount, or the file was away for a moment."""
        with self._lock:
            self._check_home()
            self._still_whole(self._repair(damaged))

    def _check_home(self) -> None:
        """A home whose file system is away has lost nothing."""
        if not self._home.there:
            hint = "mount it; everything goes on by itself"
            raise EngineError("DISK_ERROR", f"the home {self._home.root} is not there", hint=hint)

    def _still_whole(self, paths: set[str]) -> None:
        """The second time is an error that people see, and not a fire that is repeated as fast as it can."""
        again = sorted(paths & self._whole)
        self._whole ^= paths
        if again:
            hint = "look after the disks and mounts of the workers; the fire is repeated"
            raise EngineError("DISK_ERROR", f"a worker cannot read {again[0]}, which is whole", hint=hint)

    def mend(self, path: str, refs: Sequence[BucketRef]) -> bool:
        """Make a file again that a reader needs: a group version, or the bucket file in which the buckets lie that an
        answer is built from. False if that cannot be done."""
        if path.startswith(GROUPS):
            return self._registry.restore(path)
        with self._lock:
            found = None if path in self._hopeless else self._metastore.batch_of(path)
            if found is None:
                return False
            wanted = {(ref.offset, ref.length, ref.checksum) for ref in refs if ref.path == path}
            mended = self._mended(path, self._pipelines[found[0]], found[1], wanted)
            if mended:
                self.mended.rebuilt += 1
            else:
                self._hopeless.add(path)
            return mended

    def _mended(self, path: str, pipeline: Pipeline, batch: int, wanted: set[tuple[int, int, int | None]]) -> bool:
        recipe = self._metastore.recipes(pipeline.stream.name, [batch]).get(batch)
        if recipe is None:
            return False
        try:
            made = self._again(pipeline, recipe, recipe.versions)
        except NotRebuilt:
            return False
        same = [f for f in made if wanted <= {(b.offset, b.length, b.checksum) for b in f.buckets}]
        if same:
            self._home.exchange(path, same[0].path)
        self._home.remove([file.path for file in made])
        return bool(same)

    def _repair(self, damaged: Sequence[Damage]) -> set[str]:
        """Gives the files that are whole."""
        whole: set[str] = set()
        for damage in damaged:
            if damage.offset is None:
                found = version_damage(self._home, damage.path)
                if found is None:
                    whole.add(damage.path)
                elif not self._registry.restore(damage.path):
                    self._lose_version(found)
        by_path: dict[str, set[int]] = defaultdict(set)
        for damage in damaged:
            if damage.offset is not None:
                by_path[damage.path].add(damage.offset)
        return whole | {path for path, offsets in by_path.items() if not self._mend(path, offsets)}

    def _mend(self, path: str, offsets: set[int]) -> bool:
        """False if the buckets are whole."""
        for pipeline in self._pipelines.values():
            stored = [s for s in pipeline.buckets.at(path) if s.bucket.lost is None]
            if not stored:
                continue
            reasons = self._reasons([s for s in stored if s.bucket.offset in offsets])
            bad = [s for s in stored if s.bucket.offset in reasons]
            if not bad:
                return False
            try:
                self._rebuild(pipeline, path, stored, bad)
                self.mended.rebuilt += 1
            except NotRebuilt as error:
                self._lose(pipeline, {(path, s.bucket.offset): _why(path, reasons, s, error) for s in bad})
        return True

    def _reasons(self, stored: Sequence[Stored]) -> dict[int, str]:
        """What is wrong with buckets of a file, by their offset; those that are whole are left out."""
        versions = dict.fromkeys(self._registry.path(s.bucket.group, s.bucket.version) for s in stored)
        number = {path: index for index, path in enumerate(versions)}
        refs = [_reference(s, s.bucket, number[self._registry.path(s.bucket.group, s.bucket.version)]) for s in stored]
        found = find_damage(self._home, list(versions), refs)
        return {damage.offset: damage.reason for damage in found if damage.offset is not None}

    def _rebuild(self, pipeline: Pipeline, path: str, stored: Sequence[Stored], bad: Sequence[Stored]) -> None:
        batch = stored[0].batch
        origins = self._metastore.origins(path)
        recipes = self._metastore.recipes(pipeline.stream.name, [*origins] or [batch])
        missing = [number for number in [*origins] or [batch] if number not in recipes]
        if missing:
            raise NotRebuilt(f"what batch {missing[0]} was made of is not known")
        made: list[BucketFile] = []
        with self._no_orphans(made):
            if not origins:
                made += self._again(pipeline, recipes[batch], recipes[batch].versions)
                if self._exchanged(path, stored, made):
                    return
                stored = self._own_buckets(pipeline, batch)
                if not _same_bytes(made, stored):
                    _check_writer(recipes[batch])
                chosen = _same_buckets(made, stored)
            else:
                versions = [self._registry.path(b.group, b.version) for b in (s.bucket for s in bad)]
                for recipe in recipes.values():
                    made += self._again(pipeline, recipe, tuple(dict.fromkeys(versions)))
                same_writer = all(recipe.writer == WRITER for recipe in recipes.values())
                chosen, stored = self._uncompacted(made, bad, same_writer), bad
                for file in chosen:
                    if any(b.checksum not in origins[file.batch] for b in file.buckets):
                        _check_writer(recipes[file.batch])
            replaced = [(s.path, s.bucket.offset) for s in stored]
            self._metastore.exchange_buckets(replaced, chosen)
            made[:] = [file for file in made if file.path not in {kept.path for kept in chosen}]
            emptied = pipeline.buckets.replace(replaced, chosen)
            self._home.remove(self._metastore.drop_files(emptied) if emptied else [])

    @contextmanager
    def _no_orphans(self, made: list[BucketFile]) -> Iterator[None]:
        """Remove what is still in the list at the end; not if it may be named, which the next start finds out."""
        try:
            yield
        except Exception as error:
            if not in_doubt(error):
                self._home.remove([file.path for file in made])
            raise
        self._home.remove([file.path for file in made])

    def _again(self, pipeline: Pipeline, recipe: Recipe, versions: tuple[str, ...]) -> list[BucketFile]:
        """Ingest a batch again; gives its bucket files, and removes what else it wrote."""
        known = tuple(path for path in versions if self._registry.keeps(path))
        plan = (recipe.batch, recipe.watermark, recipe.clock, known, recipe.apart)
        task = IngestTask(self._home, pipeline.stream, *plan, self._limits)
        place = f"batch {recipe.batch} of {recipe.stream}"
        try:
            with no_leftovers_of_batch(self._metastore, self._home, recipe.stream, recipe.batch):
                splits = splits_from(recipe.splits)
                result = run_mending(self._registry, self._home, lambda one: self._ingest(one, splits), task)
                crash_point("repair.ingested")
        except DamagedFile as error:
            raise NotRebuilt(f"{error.message}, which it was made with") from error
        except Exception as error:
            if of_the_machine(error):
                raise
            self._tries[place] += 1
            if self._tries[place] < MOST_TRIES:
                raise
            raise NotRebuilt(f"{place} failed when it was ingested again: {type(error).__name__}") from error
        self._tries.pop(place, None)
        self._home.remove([*(file.path for file in result.answers), *result.rejects])
        if result.rows != recipe.rows:
            self._home.remove([file.path for file in result.files])
            raise NotRebuilt(f"the source gives {result.rows} of the {recipe.rows} rows of {place}")
        return list(result.files)

    def _exchanged(self, path: str, stored: Sequence[Stored], made: Sequence[BucketFile]) -> bool:
        """Whether one of the files is the damaged one as it was, and has taken its place."""
        wanted = {s.bucket for s in stored}
        for file in made:
            if wanted <= set(file.buckets):
                self._home.exchange(path, file.path)
                return True
        return False

    def _own_buckets(self, pipeline: Pipeline, batch: int) -> list[Stored]:
        """All buckets of a batch that can still be read: without the bytes to compare, nobody can tell which task wrote
        which file, so that all files of the batch are exchanged."""
        stored = [s for s in pipeline.buckets.of_batch(batch) if s.bucket.lost is None]
        own = {path for path in {s.path for s in stored} if not self._metastore.origins(path)}
        return [s for s in stored if s.path in own]

    def _uncompacted(self, made: Sequence[BucketFile], bad: Sequence[Stored], same_writer: bool) -> list[BucketFile]:
        """Of rebuilt files, the buckets that the compacted ones were merged of: those of batches that were on time.
        Another version may have laid the same cells out in another number of them."""
        wanted = {_key(s.bucket) for s in bad}
        chosen = [
            replace(file, buckets=tuple(b for b in file.buckets if _key(b) in wanted and _on_time(file, b)))
            for file in made
        ]
        chosen = [file for file in chosen if file.buckets]
        for one in bad:
            cells = self._merged_cells(chosen, one.bucket)
            if cells != one.bucket.cells if same_writer else not cells:
                raise NotRebuilt("its batches give something else when they are ingested again")
        return chosen

    def _merged_cells(self, files: Sequence[BucketFile], wanted: Bucket) -> int:
        group = load_group(self._home, self._registry.path(wanted.group, wanted.version))
        refs = [_reference(file, b) for file in files for b in file.buckets if _key(b) == _key(wanted)]
        if not refs:
            return 0
        cells = [read_cells(self._home, ref, group) for ref in refs]
        return len(merge(cells, group.version.measures, group.full_labels))

    def _lose_version(self, damage: Damage) -> None:
        """Without its group version nobody can tell what the cells of a bucket mean."""
        for pipeline in self._pipelines.values():
            for group, version in self._registry.versions_at(damage.path):
                stored = pipeline.buckets.of_version(group, version)
                reason = f"{damage.path} {damage.reason}"
                self._lose(pipeline, {(s.path, s.bucket.offset): reason for s in stored if s.bucket.lost is None})

    def _lose(self, pipeline: Pipeline, lost: Mapping[tuple[str, int], str]) -> None:
        if lost:
            self._metastore.lose_buckets(lost)
            pipeline.buckets.lose(lost)
            self.mended.lost += len(lost)


def _why(path: str, reasons: Mapping[int, str], one: Stored, error: NotRebuilt) -> str:
    return f"{path} {reasons[one.bucket.offset]}, and {error}"


def _same_bytes(made: Sequence[BucketFile], stored: Iterable[Stored]) -> bool:
    """Whether every bucket is there as it was, at whatever place: a group version that the batch was made with may be
    forgotten, and its buckets, which nobody needs, are no longer between the others."""
    wanted = Counter(replace(s.bucket, offset=0) for s in stored)
    found = Counter(replace(bucket, offset=0) for file in made for bucket in file.buckets)
    return wanted <= found and all(bucket.checksum is not None for bucket in wanted)


def _check_writer(recipe: Recipe) -> None:
    """Other bytes than the first time: from the same software, that means other rows."""
    if recipe.writer == WRITER:
        raise NotRebuilt(f"batch {recipe.batch} gives something else when it is ingested again")


def _key(bucket: Bucket) -> Key:
    return bucket.group, bucket.version, bucket.start, bucket.end


def _on_time(file: BucketFile, bucket: Bucket) -> bool:
    return slice_id(bucket.start, bucket.end, file.watermark)[2] is None


def _same_buckets(made: Sequence[BucketFile], stored: Iterable[Stored]) -> list[BucketFile]:
    """The rebuilt files with the same buckets, though not the same bytes: another version has written them, and may
    have laid them out with another number of cells."""
    wanted = Counter(_key(s.bucket) for s in stored)
    chosen = [replace(file, buckets=tuple(b for b in file.buckets if _key(b) in wanted)) for file in made]
    if wanted != Counter(_key(b) for file in chosen for b in file.buckets):
        raise NotRebuilt("its batch gives something else when it is ingested again")
    return [file for file in chosen if file.buckets]


def _reference(file: BucketFile | Stored, b: Bucket, version: int = 0) -> BucketRef:
    place = (file.path, b.offset, b.length, b.start, b.end)
    return BucketRef(version, *place, file.batch, file.watermark, b.checksum, b.body)
