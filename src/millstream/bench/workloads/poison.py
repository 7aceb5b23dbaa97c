"""Queries that disturb others: each kind once beside a hundred good ones, whose latency is what counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from millstream.bench.driving.model import WARM_UP, QuerySpec, Request
from millstream.bench.workload import STREAM
from millstream.bench.workloads import astream
from millstream.bench.workloads.load import Load, Workload
from millstream.bench.workloads.scripts import static

VICTIMS = 100
SECOND = "window(time, '1 second')"
# Queries that are created and deleted again, a batch of them at a time, as long as the run goes on.
LOOP, LOOP_BATCH, LOOP_SEED = 1000, 100, 2
_PAIRS = f"(SELECT *, {SECOND} AS w FROM {STREAM})"

OFFENDERS = {
    "failing": ("fails on half of the rows", f"SELECT SUM(1000 / (field1 % 2)) AS s FROM {STREAM} GROUP BY {SECOND}"),
    "predicates": (
        "has 10,000 predicates",
        f"SELECT COUNT(*) AS n FROM {STREAM} WHERE {' AND '.join(f'field1 <> {n}' for n in range(10_000))} "
        f"GROUP BY {SECOND}",
    ),
    "groups": (
        "has a million groups",
        f"SELECT key * 250000 + field1 * 500 + field2 AS k, COUNT(*) AS n FROM {STREAM} "
        f"GROUP BY key * 250000 + field1 * 500 + field2, window(time, '5 seconds')",
    ),
    "answer": (
        "has answers of 100 million rows",
        f"SELECT a.key, b.key FROM {_PAIRS} AS a JOIN {_PAIRS} AS b ON a.w = b.w AND a.field1 = b.field1",
    ),
    "memory": (
        "makes DuckDB run out of memory",
        f"SELECT MAX(repeat('x', 1000000 + field1)) AS s FROM {STREAM} GROUP BY {SECOND}",
    ),
    "endless": (
        "makes DuckDB run for minutes",
        "SELECT SUM(length(translate(repeat(CAST(field1 AS STRING), 20000), '0123456789', 'abcdefghij'))) AS s "
        f"FROM {STREAM} GROUP BY {SECOND}",
    ),
}


@dataclass(frozen=True, slots=True)
class Poisoned(Workload):
    """``offender`` comes when a third of what is measured is over; ``loop``: others come and go all the time."""

    offender: str = ""
    loop: bool = False

    def make(self, seed: int, seconds: float, queries: int | None = None) -> Load:
        load = Workload.make(self, seed, seconds, queries)
        return replace(load, requests=tuple(self._loop(seconds) if self.loop else self._once(seconds)))

    def _once(self, seconds: float) -> Iterator[Request]:
        if self.offender:
            query = QuerySpec("offender", self.offender, 1_000_000, 1_000_000, watched=False)
            yield Request((WARM_UP + (1 - WARM_UP) / 3) * seconds, create=(query,))

    def _loop(self, seconds: float) -> Iterator[Request]:
        """A batch comes each second, and the one before goes: all of them in ten seconds."""
        texts = [query.sql for query in islice(self.draw(LOOP_SEED), LOOP)]
        alive: tuple[str, ...] = ()
        for number in range(1, int(seconds)):
            begin = number * LOOP_BATCH
            batch = tuple(
                QuerySpec(f"loop-{begin + i}", texts[(begin + i) % LOOP], 1, 1, watched=False)
                for i in range(LOOP_BATCH)
            )
            yield Request(float(number), create=batch, delete=alive)
            alive = tuple(query.id for query in batch)


def workloads() -> Iterator[Workload]:
    sums = next(one for one in astream.workloads() if one.name == "astream-static")
    good = Poisoned("poison-none", f"{VICTIMS} good queries alone", sums.streams, sums.draw, static(VICTIMS), sums.seed)
    yield good
    for name, (what, text) in OFFENDERS.items():
        yield replace(
            good, name=f"poison-{name}", title=f"{VICTIMS} good queries beside one that {what}", offender=text
        )
    title = f"{VICTIMS} good queries while {LOOP} others are created and deleted in a loop"
    yield replace(good, name="poison-loop", title=title, loop=True)
