"""How much the join benchmark runs: sizes for a quarter of an hour on two quiet cores, or a few minutes for a look."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.bench.jobs import STATE_STORES

PER_KEY = 20


@dataclass(frozen=True)
class JoinSizes:
    """``seconds`` are seconds of event time; a file of Millstream's input holds ``batch_seconds`` / 4 of them."""

    workloads: tuple[str, ...] = ("AJoin", "AStream")
    queries: tuple[int, ...] = (1, 5, 20, 100, 500)
    plain_queries: tuple[int, ...] = (1, 5, 20)
    stores: tuple[str, ...] = STATE_STORES
    per_key: int = PER_KEY
    sweep: tuple[int, ...] = (1, 5, 20, 100)
    sweep_queries: int = 20
    ways: tuple[int, ...] = (2, 3, 5)
    ways_queries: tuple[int, ...] = (1, 20)
    # Micro-batches of a throughput cell, and seconds of event time in each: a million rows of AJoin's two streams.
    batches: int = 8
    batch_seconds: int = 48
    ways_batches: int = 4
    ways_batch_seconds: int = 12
    # Plain Spark gets less input in smaller batches, and about so many seconds of the clock for a cell.
    plain_seconds: int = 24
    plain_batch_seconds: int = 4
    plain_limit: float = 60.0
    # Answer rows that are read and written for a cell: several seconds of work, since in the first of them Java still
    # compiles what the input has warmed up.
    drain_rows: int = 200_000_000
    aggregated_keys: int = 100
    aggregated_per_key: int = 1000
    # Rows of the one key on both sides: the answer has their square.
    hot_rows: int = 10_000


FULL = JoinSizes()
QUICK = JoinSizes(
    queries=(1, 20, 500),
    plain_queries=(1, 20),
    stores=("memory",),
    sweep=(1, 20, 100),
    ways_queries=(1,),
    batches=5,
    batch_seconds=24,
    ways_batch_seconds=8,
    ways_batches=3,
    plain_seconds=12,
    plain_batch_seconds=2,
    plain_limit=15.0,
    drain_rows=8_000_000,
)


def join_sizes_of(quick: bool) -> JoinSizes:
    """
    >>> join_sizes_of(True).queries
    (1, 20, 500)
    """
    return QUICK if quick else FULL
