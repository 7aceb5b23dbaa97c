"""The metastore: what the engine knows and must not lose. Every method is one transaction behind the fence.

The order of everything is the order of these transactions. A batch is planned, then committed; a change is sealed
between two plans of each stream, and that is its cut; a fire moves frontiers up to what commits have closed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Row, delete, func, insert, select, update

from millstream.catalog import batches, changelog, files, frontier, legs, reading, repairs, trials
from millstream.catalog import tables as t
from millstream.catalog.database import Database, look_into, take_over
from millstream.catalog.outage import DEFAULT_LIMIT, Outage, every_method_repeats
from millstream.catalog.records import (
    END_OF_TIME,
    START_OF_TIME,
    AnswerRecord,
    Change,
    Cut,
    Epoch,
    Fire,
    FireTrial,
    Frontier,
    GroupVersionRef,
    LegPlace,
    LegRecord,
    NewQuery,
    Placement,
    QueryRecord,
    StreamState,
    Trial,
    VersionPlace,
    is_joined,
    joined_stream,
    streams_of,
)
from millstream.errors import CatalogError, MillstreamError
from millstream.model import codec
from millstream.model.legs import leg_member, query_of_member
from millstream.model.plan import BatchResult, BucketFile, IngestPlan, Recipe
from millstream.model.statistics import Figures
from millstream.model.stream import Stream

__all__ = [
    "END_OF_TIME",
    "START_OF_TIME",
    "AnswerRecord",
    "Change",
    "Cut",
    "Epoch",
    "Fire",
    "Frontier",
    "GroupVersionRef",
    "LegPlace",
    "LegRecord",
    "Metastore",
    "NewQuery",
    "Placement",
    "QueryRecord",
    "StreamState",
    "Trial",
    "VersionPlace",
    "is_joined",
    "joined_stream",
    "leg_member",
    "streams_of",
]


# Group versions forgotten in one transaction: some milliseconds.
FORGOTTEN_AT_ONCE = 200


def wall_clock() -> int:
    return time.time_ns() // 1000


@every_method_repeats
class Metastore:
    """The metastore of one engine. Safe to use from several threads; writers wait for one another.

    While the database is away, every method waits for it: up to the limit, or as ``outage.waiting`` says.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._definitions = reading.Definitions()

    @classmethod
    def open(
        cls, url: str, *, holder: str, clock: Callable[[], int] = wall_clock, limit: float = DEFAULT_LIMIT
    ) -> Metastore:
        """Take over the database at the URL. An engine that had it before is fenced off and can do nothing more.
        ``limit``: seconds that users wait for a database that is away."""
        return cls(take_over(url, holder, clock, limit))

    @classmethod
    def look_into(cls, url: str) -> Metastore:
        """Only to read: whoever has the metastore keeps it."""
        return cls(look_into(url, wall_clock))

    @property
    def incarnation(self) -> int:
        return self._database.incarnation

    @property
    def outage(self) -> Outage:
        return self._database.outage

    def stop_waiting(self) -> None:
        """From now on a database that is away is an error at once: the engine stops."""
        self.outage.end()

    def close(self) -> None:
        self._database.close()

    def record_stop(self) -> None:
        """Note that this engine was stopped in order; the last thing that it does."""
        with self._database.write("record_stop") as tx:
            tx.connection.execute(delete(t.stops))
            tx.connection.execute(insert(t.stops).values(incarnation=self.incarnation, stopped_at=tx.now))

    def stopped_at(self) -> int | None:
        """When the engine before this one was stopped in order; None if it was not."""
        before = select(t.stops.c.stopped_at).where(t.stops.c.incarnation == self.incarnation - 1)
        with self._database.read() as tx:
            found: int | None = tx.connection.execute(before).scalar()
        return found

    # Streams

    def add_stream(self, stream: Stream) -> None:
        with self._database.write("add_stream") as tx:
            names = list(tx.connection.execute(select(t.streams.c.name)).scalars())
            if stream.name in names:
                raise CatalogError("DUPLICATE_STREAM", f"a stream {stream.name!r} exists already")
            position = tx.connection.execute(select(func.count()).select_from(t.streams)).scalar_one()
            counters = dict.fromkeys(("rows", "late_rows", "rejected_rows", "batches", "bytes"), 0)
            row = {"name": stream.name, "definition": codec.dumps(stream), "lateness": stream.lateness}
            row |= {"position": position, "planned": -1, "committed": -1, "closed_all": False}
            tx.connection.execute(insert(t.streams).values(**row, **counters))

    def streams(self) -> list[StreamState]:
        """All streams, in the order they were added."""
        with self._database.read() as tx:
            rows = tx.connection.execute(select(t.streams).order_by(t.streams.c.position)).all()
        return [_stream_state(row) for row in rows]

    # Changelog

    def seal(self, change: Change) -> Epoch:
        """Make the change the next epoch. A change that alters nothing gives the current one."""
        definitions = {create.id: codec.dumps(create.query) for create in change.creates}
        with self._database.write("seal") as tx:
            epoch = changelog.seal(tx, change, definitions)
        for create in change.creates:
            if create.id not in epoch.same_as:
                self._definitions.keep(create.id, create.query)
        return epoch

    def current_epoch(self) -> int:
        with self._database.read() as tx:
            return tx.epoch

    def epoch(self, number: int) -> Epoch | None:
        """A sealed epoch with its cuts, None if it never was or is forgotten."""
        with self._database.read() as tx:
            row = tx.connection.execute(select(t.epochs).where(t.epochs.c.number == number)).one_or_none()
        return None if row is None else Epoch(row.number, row.sealed_at, changelog.read_cuts(row.cuts))

    def epoch_plan(self, epoch: int, stream: str) -> tuple[GroupVersionRef, ...]:
        """The version of each group of the stream that batches of this epoch are ingested with."""
        with self._database.read() as tx:
            return reading.epoch_plan(tx, epoch, stream)

    def group_versions(self, stream: str) -> list[GroupVersionRef]:
        """All group versions kept: those of the current plan, and those that buckets were made with."""
        with self._database.read() as tx:
            return reading.group_versions(tx, stream)

    def expire_versions(self, stream: str) -> list[str]:
        """Forget group versions that nothing needs; the paths to remove, once running fires have ended. Thousands of
        creates leave thousands of them: they go in steps, between which others can write. After a step that fails,
        the paths of those before it are given; the next call begins with it."""
        old = self.old_versions(stream)
        gone: list[str] = []
        for first in range(0, len(old), FORGOTTEN_AT_ONCE):
            step = old[first : first + FORGOTTEN_AT_ONCE]
            try:
                self.forget_versions(stream, step)
            except MillstreamError:
                if not gone:
                    raise
                break
            gone += [path for _, _, path in step if path]
        return gone

    def old_versions(self, stream: str) -> list[tuple[str, int, str]]:
        """Group, version and path of group versions that nothing needs."""
        with self._database.read() as tx:
            return reading.old_versions(tx, stream)

    def forget_versions(self, stream: str, versions: Sequence[tuple[str, int, str]]) -> None:
        with self._database.write("forget_versions") as tx:
            reading.forget_versions(tx, stream, versions)

    # Queries

    def query(self, id: str) -> QueryRecord:
        with self._database.read() as tx:
            return reading.query(tx, self._definitions, id)

    def queries_by_id(self, ids: Sequence[str]) -> dict[str, QueryRecord]:
        """Those of the queries that there are."""
        with self._database.read() as tx:
            return reading.queries_by_id(tx, self._definitions, ids)

    def query_by_key(self, owner: str, client_key: str) -> QueryRecord | None:
        """The query that a create with this client key made before."""
        with self._database.read() as tx:
            return reading.query_by_key(tx, self._definitions, owner, client_key)

    def queries(
        self, states: Sequence[str] | None = None, owner: str | None = None, stream: str | None = None
    ) -> list[QueryRecord]:
        with self._database.read() as tx:
            return reading.queries(tx, self._definitions, states, owner, stream)

    def set_failed(self, query_id: str, reason: str) -> None:
        """Stop a query for good, or a join by the name of one of its legs. It keeps its first reason; one that was
        deleted is gone with it, one that is gone already stays as it is."""
        query_id = query_of_member(query_id)
        with self._database.write("set_failed") as tx:
            if not frontier.stop(tx, query_id, reason):
                reading.query(tx, self._definitions, query_id)

    def expire_history(self, before: int) -> list[str]:
        """Forget queries that ended and epochs sealed before a time; gives the ids of the queries. Those stay that
        answers or buckets may still know by their id."""
        with self._database.write("expire_history") as tx:
            ids = reading.expire_history(tx, before)
        self._definitions.forget(ids)
        return ids

    # Ingest

    def plan_batch(self, stream: str, batch: int, offsets: str, clock: int) -> tuple[IngestPlan, bool]:
        """The plan of a batch and whether it was committed before. Called before every run of a batch, replays too."""
        with self._database.write("plan_batch") as tx:
            return batches.plan_batch(tx, stream, batch, offsets, clock)

    def commit_batch(self, plan: IngestPlan, result: BatchResult, recipe: Recipe | None = None) -> int | None:
        """Record a batch that ran, and give the watermark after it. Doing so again has no effect."""
        with self._database.write("commit_batch") as tx:
            if recipe is not None:
                repairs.keep_recipe(tx, recipe)
            return batches.commit_batch(tx, plan, result)

    def trials(self, stream: str, batch: int) -> list[Trial]:
        """What was tried with a batch that failed, in order."""
        with self._database.read() as tx:
            return trials.of_batch(tx, stream, batch)

    def begin_trial(self, plan: IngestPlan, left_out: Sequence[str], versions: Sequence[GroupVersionRef]) -> int:
        """Write down a trial before it runs, with the group versions made for it; gives its number."""
        with self._database.write("begin_trial") as tx:
            return trials.begin(tx, plan, left_out, versions)

    def end_trial(self, plan: IngestPlan, number: int, error: str | None) -> None:
        """Write down how a trial went: without an error, it passed."""
        with self._database.write("end_trial") as tx:
            trials.end(tx, plan, number, error)

    def forget_trials(self, stream: str, batch: int) -> None:
        """Let the next attempt at a batch begin anew."""
        with self._database.write("forget_trials") as tx:
            trials.forget(tx, stream, batch)

    def fire_trials(self) -> list[FireTrial]:
        """The fires that are written down, in order."""
        with self._database.read() as tx:
            return trials.of_fires(tx)

    def begin_fire_trial(self, name: str, queries: Sequence[str], alone: bool) -> int:
        """Write down a fire of some queries before it runs; gives its number. One of the same name that was begun and
        not ended by this engine is forgotten: fires of a name come one after the other."""
        with self._database.write("begin_fire_trial") as tx:
            return trials.begin_fire(tx, name, queries, alone)

    def end_fire_trials(self, numbers: Sequence[int]) -> None:
        """Forget fires: they have passed, or nothing is held against anybody any more."""
        with self._database.write("end_fire_trials") as tx:
            trials.end_fires(tx, numbers)

    def settle_fire_trials(self, *, died: bool) -> None:
        """Write down how the engine before left the fires that it had begun: it died in them, or was stopped."""
        with self._database.write("settle_fire_trials") as tx:
            trials.settle_fires(tx, died)

    def flush_stream(self, stream: str) -> None:
        """Close all time of a finite stream, after its last batch. Doing so again has no effect."""
        with self._database.write("flush_stream") as tx:
            batches.flush_stream(tx, stream)

    def advance_idle(self, stream: str, watermark: int) -> int | None:
        """Let the watermark of an idle stream follow others, and give it. No effect while a batch runs, after the end
        of the stream, or if it is that far already."""
        with self._database.write("advance_idle") as tx:
            return batches.advance_idle(tx, stream, watermark)

    def save_figures(self, stream: str, figures: Figures) -> None:
        """Keep what was measured of a stream; nothing that was promised depends on it."""
        text = codec.dumps(figures)
        with self._database.write("save_figures") as tx:
            tx.connection.execute(delete(t.statistics).where(t.statistics.c.stream == stream))
            tx.connection.execute(insert(t.statistics).values(stream=stream, figures=text))

    def figures(self, stream: str) -> Figures:
        with self._database.read() as tx:
            text = tx.connection.execute(select(t.statistics.c.figures).where(t.statistics.c.stream == stream)).scalar()
        found = Figures() if text is None else codec.loads(text)
        assert isinstance(found, Figures)
        return found

    def closing(self, stream: str) -> list[tuple[int, int]]:
        """(batch, watermark) in order; the closing batch of E is that of the first entry with watermark ≥ E."""
        with self._database.read() as tx:
            return batches.closing(tx, stream)

    # Fire

    def frontiers(self, stream: str) -> list[Frontier]:
        """The frontiers of a stream's live windowed queries and of the legs of live joins on it; of a joined name, of
        the joins themselves."""
        with self._database.read() as tx:
            return frontier.frontiers(tx, stream)

    def joins(self) -> list[str]:
        """The joined names that live joins publish under."""
        with self._database.read() as tx:
            return legs.joins(tx)

    def commit_fire(self, fire: Fire) -> None:
        """Publish a fire: all of it, or an error and nothing."""
        with self._database.write("commit_fire") as tx:
            frontier.commit_fire(tx, fire)

    # Files

    def buckets(self, stream: str) -> list[BucketFile]:
        """The live bucket files with their live buckets, by batch."""
        with self._database.read() as tx:
            return files.buckets(tx, stream)

    def drop_files(self, paths: Sequence[str]) -> list[str]:
        """Forget bucket and dead-letter files. Gives those to remove once running fires have ended; the others are kept
        for answers that refer to them, and ``expire_answers`` gives them when their time has come."""
        with self._database.write("drop_files") as tx:
            return files.drop_files(tx, paths)

    def referenced_files(self) -> set[str]:
        """Every path that some row names. Other files are orphans, unless a job that still runs has written them."""
        with self._database.read() as tx:
            return files.referenced_files(tx)

    def dead_letters(self, stream: str) -> list[tuple[int, str]]:
        """(batch, path) of the files of rows that could not be taken."""
        with self._database.read() as tx:
            return files.dead_letters(tx, stream)

    # Damaged files

    def recipes(self, stream: str, batches: Sequence[int]) -> dict[int, Recipe]:
        """How to make the bucket files of batches again, as far as that is known."""
        with self._database.read() as tx:
            return repairs.recipes(tx, stream, batches)

    def origins(self, path: str) -> dict[int, list[int]]:
        """The batches that a compacted bucket file was made of, with the checksums of the buckets merged; none for the
        file of a batch."""
        with self._database.read() as tx:
            return repairs.origins(tx, path)

    def exchange_buckets(self, replaced: Sequence[tuple[str, int]], made: Sequence[BucketFile]) -> None:
        """Put rebuilt buckets in the place of damaged ones."""
        with self._database.write("exchange_buckets") as tx:
            repairs.exchange_buckets(tx, replaced, made)

    def lose_buckets(self, lost: Mapping[tuple[str, int], str]) -> None:
        """Note that the buckets at (path, offset) are lost for good, and why."""
        with self._database.write("lose_buckets") as tx:
            repairs.lose_buckets(tx, lost)

    def batch_of(self, path: str) -> tuple[str, int] | None:
        """The stream and the batch that a bucket file belongs to, None if it is no bucket file."""
        with self._database.read() as tx:
            return repairs.batch_of(tx, path)

    def version_place(self, path: str) -> VersionPlace | None:
        """Which group version lies at a path, None if none does."""
        with self._database.read() as tx:
            return repairs.version_place(tx, path)

    def damage(self) -> list[str]:
        """What the database finds wrong with itself."""
        return self._database.damage()

    def joined_names(self) -> list[str]:
        """Every joined name that answers may have been published under."""
        with self._database.read() as tx:
            return list(tx.connection.execute(select(t.joins.c.name).distinct().order_by(t.joins.c.name)).scalars())

    def expire_recipes(self) -> None:
        """Forget what no bucket file can need any more."""
        with self._database.write("expire_recipes") as tx:
            repairs.expire_recipes(tx)

    def incomplete(self) -> dict[str, int]:
        """Windows that were answered without lost data, by query."""
        with self._database.read() as tx:
            return repairs.incomplete(tx)

    # Answers and cursors

    def answers_after(self, stream: str, seq: int, limit: int = 1000) -> list[AnswerRecord]:
        """The next answer files of the stream, in the order of publication."""
        with self._database.read() as tx:
            return files.answers_after(tx, stream, seq, limit)

    def answer_bounds(self) -> tuple[int, int]:
        """The number of the oldest answer file kept, and the highest number given out."""
        with self._database.read() as tx:
            return files.answer_bounds(tx)

    def expire_answers(self, *, before_seq: int | None = None, before_time: int | None = None) -> list[str]:
        """Forget answer files with a lower number, or committed before a time, oldest first; the paths to remove, with
        those of bucket files that were kept for these answers alone."""
        with self._database.write("expire_answers") as tx:
            return files.expire_answers(tx, before_seq, before_time)

    def save_cursor(self, name: str, value: str) -> None:
        with self._database.write("save_cursor") as tx:
            known = update(t.cursors).where(t.cursors.c.name == name).values(value=value)
            if not tx.connection.execute(known).rowcount:
                tx.connection.execute(insert(t.cursors).values(name=name, value=value))

    def load_cursor(self, name: str) -> str | None:
        with self._database.read() as tx:
            value: str | None = tx.connection.execute(
                select(t.cursors.c.value).where(t.cursors.c.name == name)
            ).scalar()
        return value

    def drop_cursor(self, name: str) -> None:
        with self._database.write("drop_cursor") as tx:
            tx.connection.execute(delete(t.cursors).where(t.cursors.c.name == name))


def _stream_state(row: Row[Any]) -> StreamState:
    return StreamState(
        stream=codec.loads(row.definition),
        watermark=row.watermark,
        max_time=row.max_time,
        planned=row.planned,
        committed=row.committed,
        rows=row.rows,
        late_rows=row.late_rows,
        rejected_rows=row.rejected_rows,
        batches=row.batches,
        bytes=row.bytes,
        closed_all=row.closed_all,
    )
