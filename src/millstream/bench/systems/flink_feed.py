"""Hands the files of the queues to Flink's jobs, in order.

Flink's source of files promises no order. Of those that wait it may read the newest first, so that a job that falls
behind would take later rows for the present and drop earlier ones as late. Here each job has directories of its own,
each read by one task, and the next file appears in one when the file before it has been opened: at most one waits.
Small files that lie in the queue by then become one, so that a job is never short of rows for the sake of order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from millstream.bench.driving.model import Pull
from millstream.bench.systems.flink_intake import Intake, pulls
from millstream.bench.systems.flink_lanes import Inflow, Lane
from millstream.bench.systems.inotify import CLOSED, CREATED, MOVED_IN, OPENED, Inotify, News
from millstream.bench.systems.system import Queue

# How often the thread looks whether it shall end, in seconds.
LOOK = 0.2


class Feed:
    """A thread that passes files on as they arrive and as Flink opens them. Its methods are called by others."""

    def __init__(self, queues: Sequence[Queue]) -> None:
        self._inflows = {q.stream.name: Inflow(q.directory, q.stream.share) for q in queues}
        self._news = Inotify()
        self._sources = {self._news.watch(i.directory, CREATED | MOVED_IN): i for i in self._inflows.values()}
        self._lanes: dict[int, tuple[Lane, Intake]] = {}
        self._intakes: dict[str, Intake] = {}
        self._told = 0
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._look()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

    def add(
        self, job: str, folder: Path, streams: Collection[str], lanes: int, from_start: bool
    ) -> dict[str, list[Path]]:
        """The directories in which a job shall read these streams; from the first row, or from the next to arrive."""
        with self._lock:
            read = {name: inflow for name, inflow in self._inflows.items() if name in streams}
            missed = 0 if from_start else sum(inflow.rows for inflow in read.values())
            intake = self._intakes[job] = Intake(self._part(read.values()), missed)
            for name, inflow in read.items():
                for number in range(lanes):
                    self._open(folder / f"{name}-{number}", inflow, number, lanes, from_start, intake)
            for lane in intake.lanes:
                lane.release()
        return {name: [x.directory for x in intake.lanes if x.inflow is i] for name, i in read.items()}

    def remove(self, job: str) -> None:
        """No more rows for this job."""
        with self._lock:
            gone = self._intakes.pop(job)
            for watch in [watch for watch, (_, intake) in self._lanes.items() if intake is gone]:
                self._news.forget(watch)
                del self._lanes[watch]

    def progress(self) -> tuple[int, tuple[Pull, ...]]:
        """Rows of all streams that every job has taken, all that have arrived where there is no job; and when all had
        begun with those that were not told before."""
        with self._lock:
            if self._error:
                raise self._error
            # What a job without streams waits for is not here.
            intakes = [intake for intake in self._intakes.values() if intake.lanes]
            taken = min((intake.taken for intake in intakes), default=self._arrived())
            found = pulls(intakes, self._told, taken)
            self._told = max(self._told, taken)
            for intake in intakes:
                intake.forget(self._told)
        return taken, found

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._news.close()

    def _arrived(self) -> int:
        return sum(inflow.rows for inflow in self._inflows.values())

    def _part(self, read: Collection[Inflow]) -> float:
        return sum(inflow.share for inflow in read) / sum(inflow.share for inflow in self._inflows.values())

    def _open(self, directory: Path, inflow: Inflow, number: int, of: int, from_start: bool, intake: Intake) -> None:
        directory.mkdir(parents=True)
        lane = Lane(directory, inflow, number, of, 0 if from_start else len(inflow.files))
        intake.lanes.append(lane)
        self._lanes[self._news.watch(directory, OPENED | CLOSED)] = lane, intake

    def _look(self) -> None:
        for inflow in self._inflows.values():
            inflow.look()

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                news = self._news.read(LOOK)
                with self._lock:
                    self._pass_on(news)
        except BaseException as error:
            self._error = error

    def _pass_on(self, news: Sequence[News]) -> None:
        at = time.time()
        for watch in {one.watch for one in news} & self._sources.keys():
            self._sources[watch].look()
        for one in news:
            if one.watch in self._lanes:
                lane, intake = self._lanes[one.watch]
                if one.kind & OPENED and lane.opened(one.name):
                    intake.begins(at)
                elif one.kind & CLOSED:
                    lane.closed(one.name)
        if news:
            for lane, _ in self._lanes.values():
                lane.release()
