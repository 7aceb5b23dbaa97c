"""The buckets of one stream, in memory: what a fire has to read, and what nobody needs any more."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from millstream.model.plan import Bucket, BucketFile


@dataclass(frozen=True, slots=True)
class Stored:
    """A bucket and the file it lies in; ``number`` grows with each file added."""

    bucket: Bucket
    path: str
    batch: int
    watermark: int | None
    number: int


class BucketIndex:
    """Mirrors the metastore's bucket files; built from them at start, changed after each commit."""

    def __init__(self, files: Iterable[BucketFile] = ()) -> None:
        self._lock = threading.Lock()
        self._groups: dict[str, list[Stored]] = defaultdict(list)
        self._live: dict[str, int] = {}
        self._added = 0
        self.add(files)

    def add(self, files: Iterable[BucketFile]) -> None:
        with self._lock:
            self._add(files)

    def _add(self, files: Iterable[BucketFile]) -> None:
        for file in files:
            self._added += 1
            self._live[file.path] = len(file.buckets)
            for bucket in file.buckets:
                stored = Stored(bucket, file.path, file.batch, file.watermark, self._added)
                self._groups[bucket.group].append(stored)

    def mark(self) -> int:
        """A moment: what is added later may belong to queries that nobody has heard of now."""
        with self._lock:
            return self._added

    def between(self, group: str, low: int, high: int) -> list[Stored]:
        """The group's buckets whose slices overlap [low, high)."""
        with self._lock:
            return [s for s in self._groups.get(group, ()) if s.bucket.end > low and s.bucket.start < high]

    def at(self, path: str) -> list[Stored]:
        """The buckets of a file."""
        with self._lock:
            return [s for stored in self._groups.values() for s in stored if s.path == path]

    def of_batch(self, batch: int) -> list[Stored]:
        """The buckets of a batch, and the compacted ones whose newest part is of it."""
        with self._lock:
            return [s for stored in self._groups.values() for s in stored if s.batch == batch]

    def of_version(self, group: str, version: int) -> list[Stored]:
        with self._lock:
            return [s for s in self._groups.get(group, ()) if s.bucket.version == version]

    def lose(self, lost: Mapping[tuple[str, int], str]) -> None:
        """Buckets at (path, offset) that are lost, with the reason."""
        with self._lock:
            for group, stored in self._groups.items():
                self._groups[group] = [
                    replace(s, bucket=replace(s.bucket, lost=lost[s.path, s.bucket.offset]))
                    if (s.path, s.bucket.offset) in lost
                    else s
                    for s in stored
                ]

    def replace(self, replaced: Sequence[tuple[str, int]], files: Iterable[BucketFile]) -> list[str]:
        """Put compacted buckets in place of others; gives the files that have none left."""
        gone = set(replaced)
        with self._lock:
            emptied = self._discard(lambda s: (s.path, s.bucket.offset) in gone) if gone else []
            self._add(files)
        return emptied

    def below(
        self, lowest: Mapping[str, int], mark: int, concerned: Callable[[str], bool] = lambda group: True
    ) -> list[str]:
        """Of the groups concerned, forget buckets that end at or below their lowest needed time (those not named need
        none); gives the files that have none left. ``lowest`` was found out after ``mark``, and says nothing of buckets
        added since."""

        def unneeded(one: Stored) -> bool:
            group = one.bucket.group
            return one.number <= mark and concerned(group) and one.bucket.end <= lowest.get(group, one.bucket.end)

        with self._lock:
            return self._discard(unneeded)

    def _discard(self, unneeded: Callable[[Stored], bool]) -> list[str]:
        emptied: list[str] = []
        for group, stored in list(self._groups.items()):
            kept = []
            for one in stored:
                if unneeded(one):
                    self._live[one.path] -= 1
                    if self._live[one.path] == 0:
                        emptied.append(one.path)
                        del self._live[one.path]
                else:
                    kept.append(one)
            if kept:
                self._groups[group] = kept
            else:
                del self._groups[group]
        return emptied

    def sizes(self) -> dict[str, list[tuple[int, int]]]:
        """Where the slice of each bucket ends and how many bytes it has, by group."""
        with self._lock:
            return {g: [(s.bucket.end, s.bucket.length) for s in stored] for g, stored in self._groups.items()}

    @property
    def bytes(self) -> int:
        with self._lock:
            return sum(s.bucket.length for stored in self._groups.values() for s in stored)

    @property
    def cells(self) -> int:
        with self._lock:
            return sum(s.bucket.cells for stored in self._groups.values() for s in stored)
