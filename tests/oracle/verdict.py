"""One workload through the engine and through plain Spark, and what distinguishes the two."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq

from .compare import difference, rows_of
from .expected import Expected, Oracle, late_rows_of_stream
from .streams import StreamCase
from .workload import Case, Workload

# Runs a spec and writes answers and summary.json into a folder, as ``millstream.replay`` does.
Engine = Callable[[dict[str, Any], Path], object]
SHOWN_INPUT_ROWS = 12
SHOWN_ERROR = 2_000


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A query (or, for facts about streams, none) whose outcome is not the expected one."""

    query: str | None
    text: str


def mismatches(workload: Workload, oracle: Oracle, engine: Engine) -> list[Mismatch]:
    """Run the workload both ways and compare answers and summary."""
    with TemporaryDirectory(prefix="oracle-") as name:
        folder = Path(name)
        out = folder / "answers"
        try:
            engine(workload.spec(folder), out)
        except Exception as error:
            # A crash is a finding like any other: it shrinks, and the report says how to repeat it.
            return [Mismatch(None, f"the engine stopped: {type(error).__name__}: {str(error)[-SHOWN_ERROR:]}")]
        expected = oracle.expected(workload)
        summary = json.loads((out / "summary.json").read_text())
        found = [Mismatch(None, text) for text in _about_streams(workload, summary)]
        for query in workload.queries:
            found += [Mismatch(query.id, text) for text in _about_query(query, expected[query.id], out, summary)]
    return found


def _about_query(query: Case, expected: Expected, out: Path, summary: dict[str, Any]) -> list[str]:
    entry = summary["queries"].get(query.id)
    if entry is None:
        return ["summary.json does not name the query"]
    if entry.get("error"):
        return [f"refused: {entry['error']}"]
    if entry.get("stopped"):
        return [f"stopped on the way: {entry['stopped']}"]
    path = out / f"{query.id}.parquet"
    if not path.exists():
        return [f"no file {path.name}"]
    wrong = difference(expected.table, pq.ParquetFile(path).read(), query.bounds)
    texts = [str(wrong)] if wrong else []
    facts = {"answer_rows": expected.table.num_rows, "late_rows": expected.late_rows, "windows_fired": expected.windows}
    for name, value in facts.items():
        if value is not None and entry[name] != value:
            texts.append(f"summary.json says {name} {entry[name]}, expected {value}")
    return texts


def _about_streams(workload: Workload, summary: dict[str, Any]) -> list[str]:
    texts = []
    for stream in workload.streams:
        entry = summary["streams"][stream.name]
        rejected = sum(time is None for time in stream.times())
        facts = {"rows_in": stream.rows, "rejected_rows": rejected, "late_rows": late_rows_of_stream(stream, workload)}
        for name, value in facts.items():
            if entry[name] != value:
                texts.append(f"summary.json says {name} {entry[name]} for stream {stream.name}, expected {value}")
    return texts


def report(original: Workload, smallest: Workload, found: list[Mismatch], oracle: Oracle) -> str:
    """What to read when the oracle fails: how to run it again, and the smallest case found."""
    lines = [
        f"the engine differs from plain Spark in workload {original.token}",
        f"again: ORACLE_SEED={original.token} make oracle N=1",
    ]
    expected = oracle.expected(smallest)
    lines += [mismatch.text for mismatch in found if mismatch.query is None]
    for query in smallest.queries:
        texts = [mismatch.text for mismatch in found if mismatch.query == query.id]
        if texts or any(mismatch.query is None for mismatch in found):
            lines += ["", *_about(query, smallest), *texts, f"twin: {expected[query.id].twin}"]
    for stream in smallest.streams:
        lines += ["", *_input(stream, smallest)]
    return "\n".join(lines)


def _about(query: Case, workload: Workload) -> list[str]:
    until = "the end" if query.delete_at is None else f"batch {query.delete_at - 1}"
    marks = {name: workload.stream(name).watermarks(workload.rounds) for name in query.streams}
    return [
        f"{query.id}: {query.sql}",
        f"sees batch {query.create_at} to {until}; watermarks before each batch: {marks}",
    ]


def _input(stream: StreamCase, workload: Workload) -> list[str]:
    texts = " ".join(q.sql for q in workload.queries)
    named = [n for n in stream.table.column_names if re.search(rf"\b{re.escape(n)}\b", texts, re.IGNORECASE)]
    names = stream.table.column_names if "SELECT * FROM" in texts else named
    rows = rows_of(stream.table.select(names))
    head = f"stream {stream.name}: {stream.rows} rows, batches of {stream.batch_rows}, lateness {stream.lateness} µs"
    return [
        head,
        f"  {names}",
        *(f"  {row}" for row in rows[:SHOWN_INPUT_ROWS]),
        *(["  …"] if len(rows) > SHOWN_INPUT_ROWS else []),
    ]
