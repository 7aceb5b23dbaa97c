"""Millstream's side of a throughput cell: an engine on a fresh home, all queries, then the files."""

from __future__ import annotations

import time
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.bench.dataset import show_files
from millstream.bench.jobs import Cell, CellResult, Digest, MillstreamJob, Run, Tell
from millstream.bench.journal import Journal
from millstream.bench.measure import throughput
from millstream.bench.repeats import repeated
from millstream.bench.state import state_size
from millstream.bench.workload import KEYS, SCHEMA, STREAM, draw_queries
from millstream.config import Settings, available_cores
from millstream.engine.engine import Engine
from millstream.engine.status import QueryRequest
from millstream.errors import EngineError, MillstreamError
from millstream.runtime.session import build_session
from millstream.sources.source import ParquetFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How often the progress is told and the stream's health looked at, in seconds.
LOOK = 0.5


def run_millstream(job: MillstreamJob, tell: Tell) -> tuple[CellResult, ...]:
    """Measure the cells one after the other in one Spark session."""
    session = build_session("bench: millstream")
    try:
        return tuple(repeated(cell, "millstream-", job.workspace, tell, partial(_run, session)) for cell in job.cells)
    finally:
        session.stop()


def _run(session: SparkSession, cell: Cell, folder: Path, tell: Tell) -> Run:
    watched = folder / "in"
    watched.mkdir()
    tell(0.0, f"creating {cell.queries} queries")
    with Engine(home=folder / "home", spark=session, settings=Settings(parallelism=available_cores())) as engine:
        journal = Journal(engine._core.metastore)
        source = ParquetFiles(str(watched), SCHEMA, cell.files_per_batch)
        engine.create_stream(STREAM, source, time="time", lateness="0 seconds")
        first = create(engine, [query.sql for query in draw_queries(cell.queries, cell.seed)])[0]
        show_files(cell.dataset, cell.files, watched)
        await_rows(engine, journal, cell.rows, tell)
        engine._core.fire_all()
        return _result(engine, journal, cell, first, time.monotonic())


def create(engine: Engine, texts: list[str], first: int = 0) -> list[str]:
    """Create queries in one epoch, named by their number from ``first`` on; their ids."""
    made = engine.create_queries([QueryRequest(text, id=f"bench-{first + i}") for i, text in enumerate(texts)])
    for one in made:
        if isinstance(one, MillstreamError):
            raise one
    return [one.id for one in made if not isinstance(one, MillstreamError)]


def await_rows(engine: Engine, journal: Journal, rows: int, tell: Tell) -> None:
    """Wait until so many rows are committed; a stream that stops ends the wait with its reason."""
    while not journal.await_rows(rows, LOOK):
        tell(journal.rows / rows, f"{journal.rows / 1e6:.1f} M rows")
        status = engine.stream(STREAM)
        if status.error:
            raise EngineError("STREAM_STOPPED", "the stream stopped during the benchmark", detail=status.error)


def _result(engine: Engine, journal: Journal, cell: Cell, first: str, end: float) -> Run:
    status = engine.status()
    return Run(
        throughput=throughput(journal.commits, 1, cell.queries, end),
        commits=tuple(journal.commits),
        end=end,
        first_query=_digest(engine, first, cell.dataset.time_of(cell.checked_rows - 1)),
        phases=dict(status.phases),
        fires=tuple(journal.fires),
        answer_rows=status.answer_rows,
        groups=status.groups,
        classes=status.classes,
        state=state_size(engine._core, STREAM, KEYS),
    )


def _digest(engine: Engine, query: str, until: datetime) -> Digest:
    """Of the windows that end by a time: those that the checked part of the input closes."""
    rows = total = 0
    cursor = None
    while True:
        page = engine.read_answers(query, cursor)
        for answer in page.answers:
            if answer.window_end is not None and answer.window_end <= until:
                rows += answer.table.num_rows
                total += sum(answer.table["total"].to_pylist())
        if not page.answers:
            return Digest(rows, total)
        cursor = page.cursor
