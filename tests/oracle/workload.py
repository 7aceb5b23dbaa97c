"""A workload of the oracle: streams, queries with lives, batches. One integer, the seed, gives all of it.

Every part draws from a generator of its own, seeded by (seed, part), and sizes are changed after drawing, so that fewer
rows or queries are a part of the same workload: that is what makes failures shrink.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import strategies as st

from millstream.engine import firing
from millstream.runtime import worker
from millstream.runtime.join_fire import Pace

from .grammar import random_query
from .join_grammar import random_join
from .joins import JoinCase
from .queries import MILLISECOND, QueryCase
from .streams import StreamCase, random_family, random_stream
from .ways import ROWS, SCANNED, SPLITS

QUERIES = 20
# The share of workloads whose streams are joined, and of joins among their queries.
JOINED = 0.5
JOINS = 0.55

Case = QueryCase | JoinCase


@dataclass(frozen=True, slots=True, repr=False)
class Workload:
    """``token`` gives the same workload again through ``Workload.parse``."""

    token: str
    streams: tuple[StreamCase, ...]
    queries: tuple[Case, ...]

    @classmethod
    def from_seed(
        cls,
        seed: int,
        *,
        rows: int | None = None,
        queries: int = QUERIES,
        batches: int | None = None,
        only: str | None = None,
    ) -> Workload:
        """``rows`` keeps the first rows of each stream, ``batches`` cuts them otherwise, ``only`` keeps one query."""
        joined = Random(f"{seed}/joined").random() < JOINED
        streams = cls._family(seed) if joined else cls._streams(seed)
        rounds = max(s.batches for s in streams)
        drawn = [cls._query(seed, i, streams, rounds, joined) for i in range(queries)]
        workload = cls(cls._token(seed, rows, queries, batches, only), tuple(streams), tuple(drawn))
        return workload.kept(rows, only).rebatched(batches)

    @staticmethod
    def _streams(seed: int) -> list[StreamCase]:
        """All streams have batches of one size; the second of two mostly ends earlier, and the first goes on beside
        it."""
        count = Random(f"{seed}/streams").choices((1, 2), (85, 15))[0]
        first, *others = [random_stream(Random(f"{seed}/stream/{i}"), f"s{i}") for i in range(count)]
        return [first, *(replace(s.keeping(s.rows // 2), batch_rows=first.batch_rows) for s in others)]

    @staticmethod
    def _family(seed: int) -> list[StreamCase]:
        rng = Random(f"{seed}/family")
        streams = random_family(rng, rng.choices((1, 2, 3), (15, 45, 40))[0])
        return [replace(s, batch_rows=streams[0].batch_rows) for s in streams]

    def kept(self, rows: int | None, only: str | None) -> Workload:
        streams = self.streams if rows is None else tuple(s.keeping(rows) for s in self.streams)
        queries = tuple(q for q in self.queries if only in (None, q.id))
        return replace(self, streams=streams, queries=queries).fitted()

    def rebatched(self, batches: int | None) -> Workload:
        if batches is None:
            return self
        batch_rows = -(-max(s.rows for s in self.streams) // batches)
        return replace(self, streams=tuple(replace(s, batch_rows=batch_rows) for s in self.streams)).fitted()

    def fitted(self) -> Workload:
        """Lives within the rounds that are left."""
        last = self.rounds - 1
        queries = (replace(q, create_at=min(q.create_at, last)) for q in self.queries)
        fitted = (
            replace(q, delete_at=q.delete_at if q.create_at < (q.delete_at or 0) <= last else None) for q in queries
        )
        return replace(self, queries=tuple(fitted))

    @staticmethod
    def _query(seed: int, place: int, streams: list[StreamCase], rounds: int, joined: bool) -> Case:
        """Some queries are earlier ones with other constants."""
        constants = Random(f"{seed}/constants/{place}")
        like = constants.randrange(place) if place and constants.random() < 0.3 else place
        shape = Random(f"{seed}/query/{like}")
        id = f"q{place:02}"
        if joined and shape.random() < JOINS:
            return random_join(shape, constants, id, streams, rounds)
        return random_query(shape, constants, id, shape.choice(streams), rounds)

    @staticmethod
    def _token(seed: int, rows: int | None, queries: int, batches: int | None, only: str | None) -> str:
        knobs = {"rows": rows, "queries": None if queries == QUERIES else queries, "batches": batches, "only": only}
        return str(seed) + "".join(f",{name}={value}" for name, value in knobs.items() if value is not None)

    @classmethod
    def parse(cls, token: str) -> Workload:
        """
        >>> Workload.parse("7,rows=20,only=q03").token
        '7,rows=20,only=q03'
        """
        seed, *knobs = token.split(",")
        values: dict[str, Any] = {}
        for knob in knobs:
            match = re.fullmatch(r"(rows|queries|batches)=(\d+)|only=(q\d+)", knob)
            if not match:
                raise ValueError(f"a workload is SEED[,rows=N][,queries=N][,batches=N][,only=qNN], not {token!r}")
            values[match[1] or "only"] = int(match[2]) if match[1] else match[3]
        return cls.from_seed(int(seed), **values)

    def __repr__(self) -> str:
        return f"Workload.parse({self.token!r})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Hypothesis prints dataclasses field by field unless they have this."""
        printer.text(repr(self))

    @property
    def rounds(self) -> int:
        return max(stream.batches for stream in self.streams)

    @property
    def batch_rows(self) -> int:
        return self.streams[0].batch_rows

    @property
    def fire_rounds(self) -> int:
        """Due windows are fired after so many rounds: answers do not depend on it."""
        return self._drawn("fires").choice((1, 3, 32, 32))

    @property
    def light(self) -> tuple[int, int]:
        """What is too light for a fire of its own, and how much heavier others must be: each group apart, or few."""
        return self._drawn("light").choice(((firing.LIGHT, firing.HEAVIER), (0, 0), (0, 0), (0, 1)))

    @property
    def aside(self) -> bool:
        """Whether what is heavy fires aside."""
        return self._drawn("aside").random() < 0.5

    @property
    def gathered_rows(self) -> int:
        """Up to how many rows chunks are put together: all of a task, none, or few."""
        return self._drawn("gathered").choice((worker.GATHERED_ROWS, 0, 0, 50))

    @property
    def compiled(self) -> bool:
        """Whether loops are compiled ones even for few rows."""
        return self._drawn("compiled").random() < 0.5

    @property
    def way(self) -> str:
        """How rows come to the engine."""
        return self._drawn("way").choice((SPLITS, SPLITS, SCANNED, ROWS))

    @property
    def pace(self) -> Pace:
        """The steps that joins are fired in: answers do not depend on them either."""
        return self._drawn("pace").choice((Pace(), Pace(1, 0), Pace(1, 0), Pace(3, 0)))

    def _drawn(self, part: str) -> Random:
        return Random(f"{self.token.partition(',')[0]}/{part}")

    def stream(self, name: str) -> StreamCase:
        return next(stream for stream in self.streams if stream.name == name)

    def spec(self, folder: Path) -> dict[str, Any]:
        """The replay spec, with the input written under ``folder``."""
        streams = {
            s.name: {"path": str(s.write(folder)), "time": s.time_name, "lateness": _lateness(s)} for s in self.streams
        }
        return {"batch_rows": self.batch_rows, "streams": streams, "queries": [_entry(q) for q in self.queries]}


def _lateness(stream: StreamCase) -> str:
    return f"{stream.lateness // MILLISECOND} milliseconds"


def _entry(query: Case) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": query.id, "sql": query.sql}
    if query.create_at:
        entry["create_at_batch"] = query.create_at
    if query.delete_at is not None:
        entry["delete_at_batch"] = query.delete_at
    return entry


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Workloads for hypothesis: the seed, and now and then other sizes than it would give."""
    seed = draw(st.integers(0, 2**31 - 1))
    rows = draw(st.sampled_from((None, None, None, None, 9, 60)))
    return Workload.from_seed(seed, rows=rows, batches=draw(st.sampled_from((None, None, None, 1, 12))))
