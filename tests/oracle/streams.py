"""Random streams: rows of all types, event times with disorder, gaps and late rows, cut into batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from .domains import Domain, moment_literal, random_domains
from .expressions import Leaf, Sql

# A few streams are longer, so that more than one task of a job has rows; none has more than MOST_ROWS.
ROWS = 400
MOST_ROWS = 4096
# Streams that are joined are shorter, since rows meet.
JOINED_ROWS = 150
# The share of families in which a stream has no rows.
EMPTY = 0.05
MAX_BATCHES = 9
BASES = (
    1_704_067_200_000_000,  # 2024-01-01
    1_704_067_200_000_000,
    1_709_164_799_000_000,  # the evening before a leap day
    -10_000_000,  # around 1970
    -2_208_988_800_000_000,  # 1900
)
# Columns that every stream of a family has: joins equate them by name.
JOIN_KEYS = ("k", "u", "few", "tiny", "flag")
# Mean distance of rows, in microseconds: streams of milliseconds to streams of days.
GAPS = (997, 10_000, 50_000, 100_000, 250_000, 1_000_000, 60_000_000, 1_800_000_000)


@dataclass(frozen=True, slots=True)
class StreamCase:
    """A stream with all its rows. ``time`` is the event-time column as SQL spells it; ``lateness`` is in microseconds.

    ``base`` and ``span`` say roughly where its event times lie, so that queries have windows and constants that fit.
    """

    name: str
    time: str
    time_type: str
    domains: tuple[Domain, ...]
    table: pa.Table
    batch_rows: int
    lateness: int
    base: int
    span: int
    files: int
    # The columns that half of the queries are about.
    popular: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    @property
    def batches(self) -> int:
        return -(-self.rows // self.batch_rows)

    def times(self) -> list[int | None]:
        """Event times of all rows; None where it is missing."""
        return list(self.table.column(self.time_name).cast(pa.int64()).to_pylist())

    def watermarks(self, rounds: int) -> list[int | None]:
        """``result[b]`` is the watermark before batch b; one more for the watermark after the last."""
        marks: list[int | None] = [None]
        times = self.times()
        for batch in range(rounds):
            seen = [t for t in times[batch * self.batch_rows : (batch + 1) * self.batch_rows] if t is not None]
            reached = [max(seen) - self.lateness] if seen else []
            marks.append(max((m for m in (marks[-1], *reached) if m is not None), default=None))
        return marks

    def leaves(self, spell: Callable[[str], str] = str) -> list[Leaf]:
        """The columns; ``spell`` writes their names as some user would."""
        names = [spell(quoted(d.name)) for d in self.domains]
        columns = [
            Leaf(Sql(n, n, d.type, d.range, d.digits), d.constant) for n, d in zip(names, self.domains, strict=True)
        ]
        return [*columns, Leaf(Sql(spell(self.time), spell(self.time), self.time_type), self.moment_constant)]

    def moment_constant(self, rng: Random) -> str:
        """A literal of the time's type somewhere in the stream, now and then on a whole second."""
        micros = self.base + rng.randrange(max(self.span, 1))
        return moment_literal(micros - micros % 1_000_000 if rng.random() < 0.5 else micros, self.time_type)

    @property
    def time_name(self) -> str:
        return self.time.strip("`")

    def keeping(self, rows: int) -> StreamCase:
        """The same stream, but only its first rows."""
        return replace(self, table=self.table.slice(0, max(rows, 1)))

    def empty(self) -> StreamCase:
        return replace(self, table=self.table.slice(0, 0))

    def without(self, first: int, count: int) -> StreamCase:
        """The same stream without ``count`` of its rows."""
        return replace(self, table=pa.concat_tables([self.table.slice(0, first), self.table.slice(first + count)]))

    def write(self, folder: Path) -> Path:
        """One file, or a directory of several; replay reads them in the order of their names."""
        if self.files == 1:
            path = folder / f"{self.name}.parquet"
            pq.write_table(self.table, path)
            return path
        directory = folder / self.name
        directory.mkdir()
        share = -(-self.rows // self.files)
        for place in range(self.files):
            part = self.table.slice(place * share, share)
            if part.num_rows or place == 0:
                pq.write_table(part, directory / f"part-{place:03}.parquet")
        return directory


def quoted(name: str) -> str:
    return f"`{name}`" if " " in name else name


def random_stream(rng: Random, name: str) -> StreamCase:
    rows = rng.randint(30, ROWS) if rng.random() < 0.95 else rng.randint(ROWS, MOST_ROWS)
    base, gap = rng.choice(BASES), rng.choice(GAPS)
    return _drawn(rng, name, rows, base, gap, _time_type(rng), random_domains(rng))


def random_family(rng: Random, count: int) -> list[StreamCase]:
    """Streams that can be joined: about the same time, keys with common values, columns of their own."""
    base, gap, time_type = rng.choice(BASES), rng.choice(GAPS), _time_type(rng)
    most = rng.randint(30, JOINED_ROWS)
    span = most * gap
    mixed = rng.random() < 0.1
    streams = []
    for place in range(count):
        rows = int(most * rng.choice((0.3, 0.7, 1.0, 1.0))) if place else most
        domains = random_domains(rng, rng.choice((0.0, 0.0, 0.6)))
        if place:
            kept = {d.name for d in domains if d.name in JOIN_KEYS or rng.random() < 0.75}
            domains = tuple(d for d in rng.sample(domains, len(domains)) if d.name in kept)
        # Some begin later, some end earlier or later than the others.
        begin = base + rng.choice((0, 0, rng.randrange(span // 3)))
        pace = max(int(rng.choice((0.5, 1.0, 1.0, 1.5)) * span / rows), 1)
        kind = _time_type(rng) if mixed else time_type
        # A stream that is slow to close windows holds back all joins with it.
        streams.append(_drawn(rng, f"s{place}", rows, begin, pace, kind, domains, (0, 0, 2, 10)))
    if count > 1 and rng.random() < EMPTY:
        streams[-1] = streams[-1].empty()
    return streams


def _time_type(rng: Random) -> str:
    return rng.choice(("timestamp",) * 5 + ("timestamp_ntz",))


def _drawn(
    rng: Random,
    name: str,
    rows: int,
    base: int,
    gap: int,
    time_type: str,
    domains: tuple[Domain, ...],
    lateness_in_gaps: Sequence[int] = (0, 0, 3, 20, 100),
) -> StreamCase:
    """``rows`` rows, ``gap`` apart on average, in batches, some of them out of order."""
    batches = rng.choice((1, 2, 3, 4, 5, 6, MAX_BATCHES))
    time = rng.choice(("ts", "time", "EventTime", "`event time`"))
    lateness = rng.choice(lateness_in_gaps) * gap
    disorder = rng.choice((0.0, 0.5, 5.0, 30.0)) * gap
    missing = rng.choice((0.0, 0.0, 0.02))
    times = _event_times(rng, rows, base, gap, disorder, missing)
    columns = {d.name: _column(rng, d, rows) for d in domains}
    arrow_time = pa.timestamp("us", tz="UTC" if time_type == "timestamp" else None)
    columns[time.strip("`")] = pa.array(times, pa.int64()).cast(arrow_time)
    popular = tuple(d.name.lower() for d in rng.sample(domains, 4))
    batch_rows, files = -(-rows // batches), rng.choice((1, 1, 3))
    lateness -= lateness % 1_000
    table = pa.table(columns)
    return StreamCase(name, time, time_type, domains, table, batch_rows, lateness, base, rows * gap, files, popular)


def _event_times(rng: Random, rows: int, base: int, gap: int, disorder: float, missing: float) -> list[int | None]:
    """Rows advance by ``gap`` on average, are displaced by disorder, stand still on an edge, jump, come very late."""
    jumps, stragglers, aligned = rng.choice((0.0, 0.01)), rng.choice((0.0, 0.03)), rng.choice((0.0, 0.0, 0.3))
    clock, times = float(base), list[int | None]()
    for _ in range(rows):
        clock += rng.expovariate(1 / gap) * (50 if rng.random() < jumps else 1)
        time = clock - abs(rng.gauss(0, 1)) * disorder
        if rng.random() < stragglers:
            time -= rng.random() * 150 * gap
        micros = int(time)
        if rng.random() < aligned:
            micros -= micros % rng.choice((1_000_000, 250_000))
        times.append(None if rng.random() < missing else micros)
    return times


def _column(rng: Random, domain: Domain, rows: int) -> pa.Array:
    values = [None if rng.random() < domain.nulls else domain.draw(rng) for _ in range(rows)]
    if domain.type == "timestamp":
        return pa.array(values, pa.int64()).cast(domain.arrow)
    return pa.array(values, domain.arrow)
