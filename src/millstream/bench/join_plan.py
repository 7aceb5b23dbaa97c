"""Which cells the join benchmark runs, over which files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from millstream.bench.join_data import Feed
from millstream.bench.join_jobs import EVERYTHING, JoinCell
from millstream.bench.join_sizes import JoinSizes
from millstream.bench.join_workload import AJOIN, SOURCES, WORKLOADS, Workload, chain, complex_query

# Files of a micro-batch of Millstream's input: enough for two cores to share.
FILES_IN_BATCH = 4
WAYS = {"AJoin chains": chain, "AStream complex": complex_query}


@dataclass(frozen=True)
class Plan:
    """The cells of a run; all of them are over files below ``workspace``."""

    sizes: JoinSizes
    workspace: str
    seed: int

    @property
    def kinds(self) -> list[Workload]:
        return [WORKLOADS[name] for name in self.sizes.workloads]

    def ours(self, kind: Workload) -> dict[int, JoinCell]:
        feed = self._feed(kind.name, kind, self.sizes.per_key, self.sizes.batch_seconds, self.sizes.batches)
        return {n: self._cell(kind, feed, n) for n in self.sizes.queries}

    def warm_up(self, kind: Workload) -> JoinCell:
        """One that is not reported: it starts the workers and lets Java compile."""
        return self._cell(kind, self.ours(kind)[self.sizes.queries[0]].feed, 2, drained=False)

    def plain(self, kind: Workload) -> dict[int, JoinCell]:
        sizes = self.sizes
        files = max(2, sizes.plain_seconds // sizes.plain_batch_seconds)
        folder = str(Path(self.workspace) / f"data-plain-{kind.name}")
        feed = Feed(folder, kind.name, sizes.per_key, sizes.plain_batch_seconds, files, self.seed)
        return {
            n: JoinCell(kind.name, feed, files, 1, n, self.seed, seconds=sizes.plain_limit) for n in sizes.plain_queries
        }

    def plain_warm_up(self, kind: Workload) -> JoinCell:
        """One that is not reported, as Millstream has it."""
        return replace(self.plain(kind)[self.sizes.plain_queries[0]], queries=1, files=2)

    def checked(self, kind: Workload) -> JoinCell:
        """The first query on plain Spark's input, with all of its answers read."""
        feed = next(iter(self.plain(kind).values())).feed
        return JoinCell(kind.name, feed, feed.files, 1, 1, self.seed, drain_rows=EVERYTHING)

    def sweep(self) -> dict[int, JoinCell]:
        found = {}
        for per_key in self.sizes.sweep:
            # The same number of rows, so the fewer for each key, the more seconds.
            seconds = self.sizes.batch_seconds * self.sizes.per_key // per_key
            feed = self._feed(f"sweep-{per_key}", AJOIN, per_key, seconds, self.sizes.batches)
            found[per_key] = self._cell(AJOIN, feed, self.sizes.sweep_queries)
        return found

    def ways(self, name: str) -> dict[tuple[int, int], JoinCell]:
        sizes, make = self.sizes, WAYS[name]
        widest = make(max(sizes.ways))
        feed = self._feed(f"ways-{widest.name}", widest, sizes.per_key, sizes.ways_batch_seconds, sizes.ways_batches)
        return {(n, q): self._cell(make(n), feed, q) for q in sizes.ways_queries for n in sizes.ways}

    def _feed(self, name: str, kind: Workload, per_key: int, batch_seconds: int, batches: int) -> Feed:
        folder = str(Path(self.workspace) / f"data-{name.replace(' ', '-')}")
        return Feed(
            folder, kind.name, per_key, max(1, batch_seconds // FILES_IN_BATCH), batches * FILES_IN_BATCH, self.seed
        )

    def _cell(self, kind: Workload, feed: Feed, queries: int, drained: bool = True) -> JoinCell:
        rows = self.sizes.drain_rows if drained else 0
        return JoinCell(kind.name, feed, feed.files, FILES_IN_BATCH, queries, self.seed, rows)


def feeds(cells: list[JoinCell]) -> Iterator[tuple[Feed, int]]:
    """The feeds of some cells, each with the number of streams that are read of it."""
    streams: dict[Feed, int] = {}
    for cell in cells:
        streams[cell.feed] = min(len(SOURCES), max(streams.get(cell.feed, 0), cell.kind.ways))
    yield from streams.items()
