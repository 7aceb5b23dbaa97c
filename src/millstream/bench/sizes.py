"""How much the benchmark runs: sizes that fit ten minutes on two quiet cores, or two for a look."""

from __future__ import annotations

from dataclasses import dataclass, replace

from millstream.bench.jobs import STATE_STORES
from millstream.errors import SpecError

MILLION = 1_000_000
# Fewer rows than this are a few files of nothing: the fixed cost of micro-batches would be all that is measured.
LEAST_ROWS = 160_000
# Below this many files the files get smaller instead of fewer, so that a run still has several micro-batches.
LEAST_FILES = 8


@dataclass(frozen=True)
class Sizes:
    """``rows`` is the input of Millstream's dense cells; the slower systems get a share of it."""

    rows: int
    density: int = MILLION
    sparse_density: int = MILLION // 10
    queries: tuple[int, ...] = (1, 10, 100, 1000)
    sparse_queries: tuple[int, ...] = (1, 10, 100, 1000)
    plain_queries: tuple[int, ...] = (1, 20)
    stores: tuple[str, ...] = STATE_STORES
    # Shares of ``rows``: plain Spark with one query, with twenty, and Millstream at a tenth of the density.
    plain_share: float = 0.4
    plain_many_share: float = 0.2
    sparse_share: float = 0.3
    repeats: int = 2
    # A fresh process for each dense cell, or one for all of them.
    own_processes: bool = True
    levels: tuple[int, ...] = (0, 100, 1000)
    samples: int = 120
    storm_rate: int = 100
    storm_seconds: float = 10.0

    @property
    def file_rows(self) -> int:
        return min(MILLION, self.rows // LEAST_FILES)

    @property
    def files(self) -> int:
        return -(-self.rows // self.file_rows)

    @property
    def files_per_batch(self) -> int:
        """Four million rows, about a second of work, where that leaves at least six micro-batches."""
        return max(1, min(4, self.files // 6))

    def files_for(self, share: float) -> int:
        """Files of a share of the rows; at least two micro-batches, since the first is warm-up."""
        return max(self.files_per_batch + 1, round(self.files * share))


# Ten seconds of event time are 10 M rows: the warm-up quarter of 40 M fills the longest window once.
FULL = Sizes(rows=40 * MILLION)
QUICK = Sizes(
    rows=12 * MILLION,
    sparse_queries=(1, 1000),
    stores=("rocksdb",),
    plain_many_share=0.25,
    repeats=1,
    own_processes=False,
    levels=(0, 1000),
    samples=40,
    storm_seconds=5.0,
)


def sizes_of(quick: bool, rows: int | None) -> Sizes:
    """The sizes asked for.

    >>> sizes_of(False, None).files, sizes_of(True, None).files_per_batch
    (40, 2)
    """
    chosen = QUICK if quick else FULL
    if rows is None:
        return chosen
    if rows < LEAST_ROWS:
        raise SpecError("BAD_SPEC", f"{rows} rows are too few to measure", hint=f"give at least {LEAST_ROWS}")
    return replace(chosen, rows=rows)
