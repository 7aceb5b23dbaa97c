"""Plain Spark's side of a join cell: one ``StreamingQuery`` for each query, the same text over watermarked streams.

Tuned as plain Spark is in the other benchmark. A cell that takes longer than its time is stopped, and its rate is what
it reached.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.bench.jobs import Tell
from millstream.bench.join_cells import digest, each_cell
from millstream.bench.join_data import show_feed
from millstream.bench.join_jobs import CellFailed, JoinCell, JoinResult, PlainJoinJob
from millstream.bench.measure import Commit, Throughput, throughput
from millstream.bench.plain_run import (
    _KEPT_PROGRESS,
    STORE_SETTINGS,
    _phases,
    _reports,
    _start,
    committed_files,
    progress_end,
)
from millstream.runtime.session import build_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK = 0.5
# Where some query has not committed anything when the time is up, all get so many times as long, or nothing would be
# known of them.
PATIENCE = 4


def run_plain_joins(job: PlainJoinJob, tell: Tell) -> tuple[JoinResult | CellFailed, ...]:
    """Measure the cells one after the other in one Spark session."""
    session = build_session("bench: plain Spark joins", spare_slots=False)
    for name, value in STORE_SETTINGS[job.state_store].items():
        session.conf.set(name, value)
    session.conf.set("spark.sql.streaming.numRecentProgressUpdates", _KEPT_PROGRESS)
    try:
        return each_cell(job.cells, "plain-", job.workspace, tell, partial(_run, session))
    finally:
        session.stop()


def _run(session: SparkSession, cell: JoinCell, folder: Path, tell: Tell) -> JoinResult:
    for stream in cell.kind.streams:
        (folder / stream).mkdir()
        source = session.readStream.schema(cell.kind.schema).option("maxFilesPerTrigger", cell.files_per_batch)
        rows = source.parquet(str(folder / stream))
        rows.withWatermark("time", "0 seconds").createOrReplaceTempView(stream)
    tell(0.0, f"starting {cell.queries} streaming queries")
    running: list[StreamingQuery] = []
    try:
        for number, text in enumerate(cell.texts):
            running.append(_start(session.sql(text), folder / str(number)))
        # Analysed and started before the clock runs, as Millstream's queries are created before it.
        began = time.time()
        show_feed(cell.feed, cell.kind.streams, cell.files, folder)
        finished = _await(running, cell, began, tell)
        reports = [_reports(one) for one in running]
    finally:
        for one in running:
            one.stop()
    commits = [Commit(progress_end(report), int(report["numInputRows"])) for mine in reports for report in mine]
    measured = reached(commits, cell.queries, began, time.time())
    first = digest(committed_files(folder / "0" / "out")) if finished else None
    return JoinResult(cell, measured, tuple(commits), first, _phases(reports), finished=finished)


def _await(running: Sequence[StreamingQuery], cell: JoinCell, began: float, tell: Tell) -> bool:
    """Wait until every query has taken all rows, or the time is up; tells which."""
    taken = [0] * len(running)
    while sum(taken) < cell.rows * cell.queries:
        spent = time.time() - began
        if spent > cell.seconds * PATIENCE or (spent > cell.seconds and all(taken)):
            return False
        time.sleep(LOOK)
        for one in running:
            found = one.exception()
            if found is not None:
                raise found
        taken = [_rows(one) for one in running]
        mean = sum(taken) / cell.queries
        tell(mean / cell.rows, f"{mean / 1e6:.2f} M rows each")
    return True


def _rows(query: StreamingQuery) -> int:
    reports: list[Any] = _reports(query)
    return sum(int(report["numInputRows"]) for report in reports)


def reached(commits: Sequence[Commit], queries: int, began: float, stopped: float) -> Throughput:
    """The rate after the warm-up until the last commit; of the whole time, where nothing is left after the warm-up.

    >>> reached([], 20, 100.0, 130.0).input_rate
    0.0
    >>> reached([Commit(110.0, 400)], 20, 100.0, 130.0)
    Throughput(queries=20, rows=20, seconds=10.0)
    """
    if not commits:
        return Throughput(queries, 0, stopped - began)
    end = max(commit.at for commit in commits)
    try:
        return throughput(commits, queries, queries, end)
    except ValueError:
        return Throughput(queries, sum(commit.rows for commit in commits) // queries, end - began)
