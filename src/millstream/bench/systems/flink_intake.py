"""How far jobs are in what they read, in rows of all streams: those of a stream that a job does not read it has taken
with the others."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection
from dataclasses import dataclass, field

from millstream.bench.driving.model import Pull
from millstream.bench.systems.flink_lanes import Lane


def _rows(pull: Pull) -> int:
    return pull.rows


@dataclass(slots=True)
class Intake:
    """What a job reads: ``part`` of all rows, of which ``missed`` had passed when it began. ``openings``: when it began
    with which rows, as far as they have not been told."""

    part: float
    missed: int
    lanes: list[Lane] = field(default_factory=list)
    openings: list[Pull] = field(default_factory=list)

    @property
    def taken(self) -> int:
        return self._of_all(sum(lane.taken for lane in self.lanes))

    def begins(self, at: float) -> None:
        """One of its lanes has begun with a file."""
        self.openings.append(Pull(at, self._of_all(sum(lane.begun for lane in self.lanes))))

    def begun(self, rows: int) -> float | None:
        """When it had begun with the first so many rows; None where it came after them."""
        if rows <= self._of_all(0):
            return None
        return self.openings[bisect_left(self.openings, rows, key=_rows)].at

    def forget(self, rows: int) -> None:
        """Nobody asks for the first so many rows again."""
        del self.openings[: bisect_right(self.openings, rows, key=_rows)]

    def _of_all(self, rows: int) -> int:
        return round((self.missed + rows) / self.part)


def pulls(intakes: Collection[Intake], since: int, taken: int) -> tuple[Pull, ...]:
    """When the last of the jobs had begun with rows that all have taken, beyond the first ``since``.

    The files of the job that is furthest behind are the steps.
    """
    slowest = min(intakes, key=lambda intake: intake.taken, default=None)
    if slowest is None or taken <= since:
        return ()
    steps = {one.rows for one in slowest.openings if since < one.rows <= taken} | {taken}
    moments = {rows: [at for intake in intakes if (at := intake.begun(rows)) is not None] for rows in sorted(steps)}
    return tuple(Pull(max(times), rows) for rows, times in moments.items() if times)
