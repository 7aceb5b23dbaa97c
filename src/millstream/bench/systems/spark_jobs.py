"""A streaming query of plain Spark: the rows it has taken, and the windows it has answered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.bench.driving.model import Pull, QuerySpec, joins_rows
from millstream.bench.systems.spark_files import Extent
from millstream.bench.systems.spark_reports import Batch

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(slots=True)
class Intake:
    """What a source of a job has read of its stream: the last entry of its log, rows, and event times as a file's."""

    stream: str
    share: float
    entry: int = -1
    rows: int = 0
    first: int | None = None
    next: int = 0

    def take(self, files: Iterable[Extent], entry: int) -> None:
        self.entry = entry
        for file in files:
            self.rows += file.rows
            self.first = file.first if self.first is None else min(self.first, file.first)
            self.next = max(self.next, file.next)


@dataclass(eq=False, slots=True)
class Job:
    """A query of Spark's for one or several of the questions; ``before`` rows of all streams came before it was asked
    for, at run time if ``late``."""

    specs: tuple[QuerySpec, ...]
    text: str
    folder: Path
    before: int = 0
    late: bool = False
    query: StreamingQuery | None = None
    batch: int = -1
    intakes: tuple[Intake, ...] = ()
    # What it had taken with each batch, and when that began.
    pulls: list[Pull] = field(default_factory=list)
    # The event time up to which windows have been answered.
    answered: int | None = None

    @property
    def taken(self) -> int:
        """Rows of all streams: those it has read, as a part of all. Who reads a stream twice has two parts of it.

        Spark's own count of rows will not do: files, or parts of them, that no row can pass are not read, and two
        sources that read the same are read once, now and then.
        """
        share = sum(one.share for one in self.intakes)
        return self.before + (round(sum(one.rows for one in self.intakes) / share) if share else 0)

    def begun_with(self, rows: int) -> float | None:
        """When the batch began with which it had taken so many rows; None if they came before it. Asked for more and
        more rows."""
        while self.pulls and self.pulls[0].rows < rows:
            del self.pulls[0]
        return self.pulls[0].at if self.pulls and rows > self.before else None

    def answers(self, batch: Batch) -> list[int]:
        """Event times of the answers that a batch wrote, which has been taken."""
        watched = [spec for spec in self.specs if spec.watched]
        ends = [end for spec in watched if not spec.slide for end in batch.times]
        firsts = [one.first for one in self.intakes if one.first is not None]
        until = self._complete(batch)
        if not until:
            return ends
        # A window in which one of the streams has no rows yet is no answer of a join.
        after = max(firsts) if self.answered is None else self.answered
        self.answered = max(after, until)
        return ends + [end for spec in watched for end in spec.ends(after, until)]

    def _complete(self, batch: Batch) -> int:
        """Up to where a batch answers all windows. Aggregates are written when the watermark has passed them; rows of
        a join that is not aggregated, as soon as both sides are there."""
        return min(one.next for one in self.intakes) if joins_rows(self.text) else batch.watermark
