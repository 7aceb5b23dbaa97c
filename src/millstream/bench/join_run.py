"""Millstream's side of a join cell: an engine on a fresh home, all queries, the files, and a sink for every answer."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.bench.jobs import Digest, Tell
from millstream.bench.join_cells import digest, each_cell
from millstream.bench.join_data import show_feed
from millstream.bench.join_drain import drain
from millstream.bench.join_jobs import CellFailed, Drained, JoinCell, JoinJob, JoinResult
from millstream.bench.journal import Journal
from millstream.bench.measure import throughput
from millstream.bench.millstream_run import LOOK, create
from millstream.config import Settings, available_cores
from millstream.engine.engine import Engine
from millstream.errors import EngineError
from millstream.runtime.session import build_session
from millstream.sources.source import ParquetFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_joins(job: JoinJob, tell: Tell) -> tuple[JoinResult | CellFailed, ...]:
    """Measure the cells one after the other in one Spark session."""
    session = build_session("bench: millstream joins")
    try:
        return each_cell(job.cells, "joins-", job.workspace, tell, partial(_run, session))
    finally:
        session.stop()


def _run(session: SparkSession, cell: JoinCell, folder: Path, tell: Tell) -> JoinResult:
    streams = cell.kind.streams
    tell(0.0, f"creating {cell.queries} queries")
    with Engine(home=folder / "home", spark=session, settings=Settings(parallelism=available_cores())) as engine:
        journal = Journal(engine._core.metastore)
        for stream in streams:
            (folder / stream).mkdir()
            source = ParquetFiles(str(folder / stream), cell.kind.schema, cell.files_per_batch)
            engine.create_stream(stream, source, time="time", lateness="0 seconds")
        queries = create(engine, cell.texts)
        show_feed(cell.feed, streams, cell.files, folder)
        _await_rows(engine, journal, cell, tell)
        engine._core.fire_all()
        measured = throughput(journal.commits, 1, cell.queries, time.monotonic())
        status = engine.status()
        _check(engine)
        drained, first = _drained(engine, cell, queries, folder / "out", tell)
        return JoinResult(
            cell,
            measured,
            tuple(journal.commits),
            first,
            dict(status.phases),
            status.answer_rows,
            status.fires,
            drained,
        )


def _await_rows(engine: Engine, journal: Journal, cell: JoinCell, tell: Tell) -> None:
    while not journal.await_rows(cell.rows, LOOK):
        tell(journal.rows / cell.rows, f"{journal.rows / 1e6:.1f} M rows")
        _check(engine)


def _check(engine: Engine) -> None:
    """A stream or a fire that stops ends the measurement with its reason."""
    errors = [engine.status().error, *(stream.error for stream in engine.streams())]
    errors += [query.reason for query in engine.queries()]
    for error in errors:
        if error:
            raise EngineError("STREAM_STOPPED", "the engine stopped during the benchmark", detail=error)


def _drained(
    engine: Engine, cell: JoinCell, queries: list[str], out: Path, tell: Tell
) -> tuple[Drained | None, Digest | None]:
    """Every answer in a Parquet file, the windows that the end of the input leaves open included, as plain Spark
    writes them; and what the first query's file holds, if it is all there."""
    if not cell.drain_rows:
        return None, None
    tell(1.0, "reading answers")
    for stream in cell.kind.streams:
        engine._core.pipelines[stream].flush()
    engine._core.fire_all()
    drained = drain(engine, queries, out, cell.drain_rows, available_cores())
    first = digest([out / f"{queries[0]}.parquet"]) if drained.complete else None
    return drained, first
