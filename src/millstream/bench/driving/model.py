"""What a run of the driver is asked, and what it finds. All of it pickles, and turns into JSON and back.

Times of a run are seconds since its start, on the clock of the machine; event times are microseconds since 1970.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

# The first quarter of every run is warm-up, which no figure counts.
WARM_UP = 0.25


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """A stream. ``generator`` is the text of a row generator (`RowGenerator.describe`) without density, rate, seed and
    start, which the run decides; ``share`` is its part of the run's rate."""

    name: str
    generator: dict[str, str]
    schema: str
    share: float = 1.0


_JOIN, _GROUP_BY = re.compile(r"\bJOIN\b", re.IGNORECASE), re.compile(r"\bGROUP\s+BY\b", re.IGNORECASE)


def joins_rows(sql: str) -> bool:
    """Whether the answers of a text are the rows of a join, and no aggregates of them.

    >>> joins_rows("SELECT x FROM a JOIN b USING (x)"), joins_rows("SELECT x FROM a JOIN b USING (x) GROUP BY x")
    (True, False)
    """
    return _JOIN.search(sql) is not None and _GROUP_BY.search(sql) is None


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """A query in Spark SQL; ``length`` and ``slide`` of its window are in microseconds, 0 where it has none."""

    id: str
    sql: str
    length: int
    slide: int
    # The same question in Flink's SQL, where it can be asked.
    flink: str | None = None
    # Plain Spark's text, where its streaming refuses ``sql``.
    plain: str | None = None
    # Whether its answers count in the latency: those who disturb the others do not.
    watched: bool = True

    def share(self, streams: Iterable[StreamSpec]) -> float:
        """The part of all rows that are in streams which the query reads.

        >>> some = [StreamSpec(name, {}, "", share) for name, share in (("a", 0.5), ("b", 0.25), ("ab", 0.25))]
        >>> QuerySpec("q", "SELECT x FROM a JOIN b USING (x)", 1, 1).share(some)
        0.75
        """
        every = list(streams)
        return sum(one.share for one in every if self.reads(one)) / sum(one.share for one in every)

    def ends(self, after: int, upto: int) -> range:
        """The ends of its windows in (after, upto].

        >>> list(QuerySpec("q", "", length=8, slide=4).ends(4, 14))
        [8, 12]
        """
        if not self.slide:
            return range(0)
        first = (after - self.length) // self.slide * self.slide + self.length + self.slide
        return range(first, upto + 1, self.slide)

    def reads(self, stream: StreamSpec) -> bool:
        """Whether the query reads it: a name after FROM or JOIN, since aliases may be names of other streams."""
        return re.search(rf"\b(FROM|JOIN)\s+{re.escape(stream.name)}\b", self.sql, re.IGNORECASE) is not None


@dataclass(frozen=True, slots=True)
class Request:
    """Creates and deletes that a user sends at a moment of the run."""

    at: float
    create: tuple[QuerySpec, ...] = ()
    delete: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One run: ``rate`` rows a second over all streams, times the factor of the last of ``rates`` that has begun.

    ``density`` is rows for each second of event time, over all streams; 0 makes event time that of the clock, so that
    the density is the rate. ``initial`` queries are there before the first row.
    """

    workload: str
    system: str
    streams: tuple[StreamSpec, ...]
    initial: tuple[QuerySpec, ...]
    requests: tuple[Request, ...]
    rate: float
    seconds: float
    rates: tuple[tuple[float, float], ...] = ((0.0, 1.0),)
    density: int = 1_000_000
    seed: int = 1
    cores: int = 2


@dataclass(frozen=True, slots=True)
class QueueSample:
    """Rows that were due, that lay in the queue, and that the system had taken (by its slowest query) at a moment;
    ``readers`` are the queries that a row meets on average, fewer where some read a part of the streams only."""

    at: float
    due: int
    written: int
    taken: int
    queries: int
    readers: float


@dataclass(frozen=True, slots=True)
class Emission:
    """So many answers of windows that end at ``end`` became readable at a moment."""

    at: float
    end: int
    answers: int


@dataclass(frozen=True, slots=True)
class Pull:
    """The moment at which a system began with rows, the first ``rows`` of the run among what it has begun with."""

    at: float
    rows: int


@dataclass(frozen=True, slots=True)
class Deployment:
    """A create or delete: when it was due, acknowledged, and part of the running plan. None: not before the run ended,
    also where it still waited for the request before it."""

    kind: str
    query: str
    due: float
    acknowledged: float | None
    effective: float | None


@dataclass(frozen=True, slots=True)
class Latency:
    """An answer's latencies in seconds: since the moment its last row was due, and since the system took that row."""

    at: float
    event: float
    processing: float
    answers: int


@dataclass(frozen=True, slots=True)
class GeneratorProof:
    """What the generators did, and what they could have: ``busy`` seconds of work for ``rows`` rows; ``late`` is the
    longest that a row was in the queue after the moment it was due, beyond the beat of the files."""

    rows: int
    busy: float
    late: float

    @property
    def capacity(self) -> float:
        """Rows a second at full speed."""
        return self.rows / self.busy if self.busy else 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a run was sustained, with the slopes it rests on, and the reasoning in a sentence."""

    sustained: bool
    reason: str
    # Rows a second by which the queue grew, and seconds by which the event-time latency grew a second.
    queue_slope: float
    latency_slope: float | None


@dataclass(frozen=True, slots=True)
class RunResult:
    """``taken_rate`` is rows a second that the system took after the warm-up; ``overall_rate`` counts a row once for
    each query that it served."""

    spec: RunSpec
    began: str
    queue: tuple[QueueSample, ...]
    latencies: tuple[Latency, ...]
    deployments: tuple[Deployment, ...]
    generator: GeneratorProof
    verdict: Verdict
    taken_rate: float
    overall_rate: float
    answers: int
    # Seconds by component after the warm-up, added over tasks, as the system itself counts them.
    phases: dict[str, float] = field(default_factory=dict)
    # Exceptions and refusals: the evidence where a system gave up.
    errors: tuple[str, ...] = ()
    # What the system says of itself: version, settings.
    system: dict[str, str] = field(default_factory=dict)
    # Files of profiles, relative to the report's directory.
    profiles: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        return bool(self.errors)


@dataclass(frozen=True, slots=True)
class Search:
    """A search for the sustainable throughput: every candidate in the order tried; ``best`` is the highest sustained
    rate, None where none was."""

    title: str
    runs: tuple[RunResult, ...]

    @property
    def best(self) -> RunResult | None:
        return max((run for run in self.runs if run.verdict.sustained), key=lambda run: run.spec.rate, default=None)


@dataclass(frozen=True, slots=True)
class Claim:
    """A figure to reach, as a ratio or a bound: ``got`` None where it was not measured. ``held``: whether the runs it
    rests on were sustained; the figure of one that was not is missed, whatever it is."""

    name: str
    wanted: float
    got: float | None
    at_most: bool
    unit: str
    # Which runs it rests on, for the reader.
    source: str = ""
    held: bool = True


@dataclass(frozen=True, slots=True)
class Suite:
    """All that one ``millstream bench`` has found, by section; what a report is made of."""

    name: str
    machine: dict[str, Any]
    options: dict[str, Any]
    searches: tuple[Search, ...] = ()
    runs: tuple[RunResult, ...] = ()
    claims: tuple[Claim, ...] = ()
    failures: tuple[str, ...] = ()
