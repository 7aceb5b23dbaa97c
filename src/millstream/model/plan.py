"""What ingest and fire write down: plans, buckets, files. All times are microseconds since 1970."""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.model.statistics import Figures


@dataclass(frozen=True, slots=True)
class IngestPlan:
    """How one micro-batch of one stream is to be processed; fixed before the job, so a replay does the same.

    ``watermark`` is the stream's watermark before this batch (None: no row seen yet); rows are late against it.
    ``clock`` is the driver's time when planned. ``offsets`` is Spark's own text for the batch.
    """

    stream: str
    batch: int
    epoch: int
    watermark: int | None
    clock: int
    offsets: str


@dataclass(frozen=True, slots=True)
class Bucket:
    """The data of one (group version, slice) written by one task: the bytes ``offset … offset + length`` of a file."""

    group: str
    version: int
    start: int
    end: int
    offset: int
    length: int
    cells: int
    # Of the first ``body`` bytes, or of all; None for buckets of versions that made none.
    checksum: int | None = None
    # Why the bytes are gone for good; windows that would read them are answered without, and say so.
    lost: str | None = None
    # Bytes before the index of rows; None: there is no index.
    body: int | None = None


@dataclass(frozen=True, slots=True)
class BucketFile:
    """A file of buckets. ``watermark`` is that of the batch's ingest plan: a window ending at E reads it iff
    watermark < E."""

    path: str
    stream: str
    batch: int
    watermark: int | None
    buckets: tuple[Bucket, ...]


@dataclass(frozen=True, slots=True)
class AnswerFile:
    """A file of answers with its own index by query at ``index_offset``; ``path`` is relative to the home's
    ``answers/``. ``refers`` are the bucket files and group-version files that the answers of this file are built from
    when somebody reads them: they are kept as long as the answers are."""

    path: str
    index_offset: int
    index_length: int
    rows: int
    queries: int
    refers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Damage:
    """What a task could not read: the bucket at ``offset`` of a file, or a group version (no offset)."""

    path: str
    offset: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """What it takes to ingest a batch again, should a file of it be damaged: ``splits`` are the source's own text of
    what each task read, ``rows`` all rows that they gave. ``writer`` names the software: the same one writes the same
    bytes. ``apart``: expressions were evaluated one by one, because the batch had failed before."""

    stream: str
    batch: int
    watermark: int | None
    clock: int
    versions: tuple[str, ...]
    splits: str
    rows: int
    writer: str
    apart: bool = False


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What the tasks of one ingest job report; committed in one transaction."""

    rows: int
    bytes: int
    max_time: int | None
    late_rows: int
    rejected_rows: int
    files: tuple[BucketFile, ...] = ()
    answers: tuple[AnswerFile, ...] = ()
    rejects: tuple[str, ...] = ()
    late_by_query: dict[str, int] = field(default_factory=dict)
    failures_by_query: dict[str, int] = field(default_factory=dict)
    rows_by_query: dict[str, int] = field(default_factory=dict)
    # Queries whose expressions could not be evaluated, with the reason: they are stopped with the commit.
    broken: dict[str, str] = field(default_factory=dict)
    seconds_by_phase: dict[str, float] = field(default_factory=dict)
    figures: Figures = field(default_factory=Figures)
    # Group versions that could not be read: nothing was ingested.
    damaged: tuple[Damage, ...] = ()


@dataclass(frozen=True, slots=True)
class FireResult:
    """What the tasks of one fire job report. ``windows`` and ``rows`` count answers and their rows by query."""

    answers: tuple[AnswerFile, ...] = ()
    windows_by_query: dict[str, int] = field(default_factory=dict)
    rows_by_query: dict[str, int] = field(default_factory=dict)
    failures_by_query: dict[str, int] = field(default_factory=dict)
    # Queries whose rest could not be evaluated, with the reason: they are stopped with the commit.
    broken: dict[str, str] = field(default_factory=dict)
    # Compaction: files written in place of buckets, and the (path, offset) of the buckets they replace.
    compacted: tuple[BucketFile, ...] = ()
    replaced: tuple[tuple[str, int], ...] = ()
    # Compaction: the batches that each file written was made of, with the checksums of their buckets.
    origins: dict[str, dict[int, tuple[int, ...]]] = field(default_factory=dict)
    # Buckets and group versions that could not be read, and the queries that were not answered because of them.
    damaged: tuple[Damage, ...] = ()
    held: tuple[str, ...] = ()
    # Windows answered without data that are lost.
    incomplete_by_query: dict[str, int] = field(default_factory=dict)
    # The most groups that a window of the query had.
    groups_by_query: dict[str, int] = field(default_factory=dict)
