"""Plain Spark's side of a throughput cell: one ``StreamingQuery`` for each query, same session settings, same files.

Tuned as one would: two shuffle partitions, no adaptive planning, the fast checkpoint files of the engine's own session,
the state store that turns out faster, and output in append mode so that each window is written once.
"""

from __future__ import annotations

import json
import threading
from datetime import datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow.dataset as ds

from millstream.bench.dataset import show_files
from millstream.bench.jobs import Cell, CellResult, Digest, PlainJob, Run, Tell
from millstream.bench.measure import Commit, throughput
from millstream.bench.repeats import repeated
from millstream.bench.workload import SCHEMA, STREAM, draw_queries
from millstream.runtime.session import build_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_STATE = "org.apache.spark.sql.execution.streaming.state"
_ROCKSDB = "spark.sql.streaming.stateStore.rocksdb"
STORE_SETTINGS: dict[str, dict[str, str]] = {
    "memory": {"spark.sql.streaming.stateStore.providerClass": f"{_STATE}.HDFSBackedStateStoreProvider"},
    "rocksdb": {
        "spark.sql.streaming.stateStore.providerClass": f"{_STATE}.RocksDBStateStoreProvider",
        f"{_ROCKSDB}.changelogCheckpointing.enabled": "true",
    },
}
# All progress reports of a run are read once, after it: reading them while it runs would cost it time.
_KEPT_PROGRESS = "10000"
LOOK = 2.0
SINK_LOG = "_spark_metadata"


def run_plain(job: PlainJob, tell: Tell) -> tuple[CellResult, ...]:
    """Measure the cells one after the other in one Spark session."""
    session = build_session("bench: plain Spark", spare_slots=False)
    for name, value in STORE_SETTINGS[job.state_store].items():
        session.conf.set(name, value)
    session.conf.set("spark.sql.streaming.numRecentProgressUpdates", _KEPT_PROGRESS)
    try:
        return tuple(repeated(cell, "plain-", job.workspace, tell, partial(_run, session)) for cell in job.cells)
    finally:
        session.stop()


def _run(session: SparkSession, cell: Cell, folder: Path, tell: Tell) -> Run:
    watched = folder / "in"
    watched.mkdir()
    source = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", cell.files_per_batch).parquet(str(watched))
    source.withWatermark("time", "0 seconds").createOrReplaceTempView(STREAM)
    tell(0.0, f"starting {cell.queries} streaming queries")
    running: list[StreamingQuery] = []
    try:
        for number, query in enumerate(draw_queries(cell.queries, cell.seed)):
            running.append(_start(session.sql(query.sql), folder / str(number)))
        show_files(cell.dataset, cell.files, watched)
        _await(running, cell, tell)
        reports = [_reports(one) for one in running]
    finally:
        for one in running:
            one.stop()
    commits = [Commit(progress_end(report), int(report["numInputRows"])) for mine in reports for report in mine]
    end = max(commit.at for commit in commits)
    measured = throughput(commits, cell.queries, cell.queries, end)
    return Run(measured, tuple(commits), end, _digest(folder / "0"), _phases(reports))


def _start(rows: DataFrame, folder: Path) -> StreamingQuery:
    writer = rows.writeStream.format("parquet").outputMode("append").option("path", str(folder / "out"))
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def _await(running: list[StreamingQuery], cell: Cell, tell: Tell) -> None:
    """Wait until every query has taken all rows and published the windows that they closed."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(LOOK):
            batches = sum(_batches(query) for query in running) / len(running)
            share = min(1.0, batches * cell.files_per_batch / cell.files)
            tell(share, f"{share * cell.rows / 1e6:.1f} M rows each")

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        for query in running:
            query.processAllAvailable()
    finally:
        ended.set()
        watcher.join()


def _batches(query: StreamingQuery) -> int:
    """Micro-batches taken from the source so far: its offset counts them."""
    progress: Any = query.lastProgress
    offset = progress["sources"][0]["endOffset"] if progress else None
    known = json.loads(offset) if isinstance(offset, str) else offset
    return int(known["logOffset"]) + 1 if known else 0


def _reports(query: StreamingQuery) -> list[Any]:
    """Of the triggers that ran a batch; an idle trigger reports the batch before again, with no duration of its own."""
    return [report for report in query.recentProgress if "addBatch" in report["durationMs"]]


def progress_begin(report: Any) -> float:
    return datetime.fromisoformat(str(report["timestamp"]).replace("Z", "+00:00")).timestamp()


def progress_end(report: Any) -> float:
    return progress_begin(report) + int(report["durationMs"]["triggerExecution"]) / 1000


def _phases(reports: list[list[Any]]) -> dict[str, float]:
    """Seconds by Spark's own names, added over all batches of all queries."""
    total: dict[str, float] = {}
    for report in (report for mine in reports for report in mine):
        for phase, milliseconds in report["durationMs"].items():
            total[phase] = total.get(phase, 0.0) + int(milliseconds) / 1000
    return total


def committed_files(folder: Path) -> list[Path]:
    """The files that committed batches wrote into a folder, by the sink's own log: a batch that was stopped leaves
    others beside them, cut short."""
    entries = {path.name: path.read_text(encoding="utf-8") for path in (folder / SINK_LOG).glob("[0-9]*")}
    # The first line is a version. A compacted entry repeats those before it.
    names = {
        PurePosixPath(urlsplit(json.loads(line)["path"]).path).name
        for text in entries.values()
        for line in text.splitlines()[1:]
    }
    return sorted(folder / name for name in names)


def _digest(folder: Path) -> Digest:
    files = [str(path) for path in committed_files(folder / "out")]
    table = ds.dataset(files, format="parquet").to_table() if files else None
    if table is None:
        return Digest(0, 0)
    return Digest(table.num_rows, sum(table["total"].to_pylist()))
