"""What stands for Spark in the killed process: tasks run in the process itself, by the functions that Spark would call,
and a checkpoint is kept as Spark keeps it.

    offsets/N is written before the callback of batch N, commits/N after it has returned. At the start, batch N is
    repeated unless the newest file of commits/ has the number of the newest of offsets/.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from millstream.model.plan import BatchResult, FireResult
from millstream.model.stream import Stream
from millstream.runtime import fire, jobs
from millstream.runtime.fire import FireTask, KeptStacks
from millstream.runtime.join_fire import JoinTask
from millstream.runtime.loading import kept_groups, load_group
from millstream.runtime.worker import IngestTask, merged
from millstream.sources.splits import Split
from tests.chaos.workload import POISON


class NoAnalyzer:
    """Queries come compiled."""

    def register(self, stream: Stream) -> None:
        del stream

    def schema(self, sql: str) -> list[tuple[str, object]]:
        raise NotImplementedError(sql)

    def plan(self, sql: str) -> str:
        raise NotImplementedError(sql)


class InProcess:
    """The part of ``runtime.spark.Spark`` that ``Core`` uses. Tasks run one at a time, as in a worker, which has a
    process of its own; each pool keeps stacks of its own."""

    def __init__(self, parallelism: int) -> None:
        self.parallelism = parallelism
        self.analyzer = NoAnalyzer()
        self._worker = threading.Lock()
        self._kept = {aside: KeptStacks(768 << 20, 32 << 20) for aside in (False, True)}

    def ingest(self, task: IngestTask, splits: Sequence[list[Split]]) -> BatchResult:
        with self._worker:
            found = merged([jobs._ingest_splits(task, one) for one in splits]) if splits else jobs.EMPTY
        if not found.damaged and any(POISON in load_group(task.home, path).position for path in task.versions):
            raise MemoryError("a query takes all there is")
        return found

    def fire(self, tasks: Sequence[FireTask | JoinTask]) -> tuple[list[FireResult], dict[str, float]]:
        aside = any(isinstance(task, FireTask) and task.aside for task in tasks)
        with self._worker:
            fire.kept = self._kept[aside]
            found = [jobs._fire(task) for task in tasks]
        return [result for result, _ in found], {}

    def forget(self) -> None:
        """Have workers read all files again."""
        kept_groups.clear()
        for kept in self._kept.values():
            kept.clear()


class Checkpoint:
    """Spark's checkpoint of one stream. As Spark does, nothing is synced."""

    def __init__(self, folder: str) -> None:
        self._offsets = Path(folder, "offsets")
        self._commits = Path(folder, "commits")
        for one in (self._offsets, self._commits):
            one.mkdir(parents=True, exist_ok=True)

        begun, done = _newest(self._offsets), _newest(self._commits)
        self.next = begun + 1 if begun == done else begun

    def run(self, batch: int, plan: Callable[[int], str], callback: Callable[[int, str], None]) -> None:
        """Bring the stream to the end of a batch: repeat what is not known to be finished, plan what is new."""
        while self.next <= batch:
            file = self._offsets / str(self.next)
            if not file.exists():
                _write(file, plan(self.next))
            callback(self.next, file.read_text())
            _write(self._commits / str(self.next), "{}")
            self.next += 1


def _write(file: Path, text: str) -> None:
    draft = file.with_name(f".{file.name}.tmp")
    draft.write_text(text)
    draft.replace(file)


def _newest(folder: Path) -> int:
    return max((int(file.name) for file in folder.iterdir() if file.name.isdigit()), default=-1)
