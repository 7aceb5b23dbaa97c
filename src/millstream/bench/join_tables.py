"""The join benchmark's result for people: tables on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from millstream.bench.join_jobs import ApartResult, JoinResult
from millstream.bench.join_report import (
    GIB,
    JoinMeasurements,
    answered,
    join_answers_agree,
    join_targets,
)
from millstream.bench.report import ratio
from millstream.bench.tables import NONE, target_table, times_text
from millstream.cli.output import count, table

# The titles say what the short heads of the columns mean, so that the tables fit 80 characters.
THROUGHPUT = "Input rows a second of all streams: answered, and with every answer written to Parquet"
PHASES = "Milliseconds for each million rows, added over tasks"
SWEEP = "{}: rows for each key and second of each side, {} queries"
WAYS = "Joins of several streams, aggregated: input rows a second"
DRAINED = "~ of each cell {} answer rows were read and written; the rate is that of all its answers at this pace"
CUT_SHORT = "* the time was up: the rate of what had been committed until then"


def print_join_report(found: JoinMeasurements, console: Console) -> None:
    """All tables, the verdict last."""
    for part in (_throughput(found), *_phases(found), _sweep(found.sweep), _ways(found), _apart(found.apart)):
        if part is not None:
            console.print(part, "")
    console.print(target_table(join_targets(found)))
    for line in _notes(found):
        console.print(line)


def _throughput(found: JoinMeasurements) -> Any:
    columns = ("workload", "system", "queries", "answered", "drained", "answer rows", "× plain")
    rows: list[tuple[Any, ...]] = []
    for name in dict.fromkeys([*found.plain, *found.ours]):
        plain = found.plain.get(name, {})
        for queries, result in sorted(plain.items()):
            rate = count(result.answered_rate)
            rows.append((name, "plain Spark", queries, NONE, rate if result.finished else f"* {rate}", NONE, NONE))
        for queries, result in sorted(found.ours.get(name, {}).items()):
            times = ratio(result.answered_rate, answered(plain, queries))
            rates = (count(result.answered_rate), _drained(result))
            rows.append((name, "Millstream", queries, *rates, count(result.answer_rows), times_text(times)))
    return table(columns, rows, columns[2:], THROUGHPUT) if rows else None


def _drained(result: JoinResult) -> str:
    rate = result.drained_rate
    if rate is None or result.drained is None:
        return NONE
    return ("" if result.drained.complete else "~ ") + count(rate)


def _phases(found: JoinMeasurements) -> Iterator[Any]:
    """Core milliseconds for each million rows, by phase: where the time goes as queries are added."""
    for name, cells in found.ours.items():
        names = list(dict.fromkeys(phase for result in cells.values() for phase in result.phases))
        columns = ("phase", *(f"{n} {'query' if n == 1 else 'queries'}" for n in sorted(cells)))
        rows = []
        for phase in names:
            spent = [cells[n].phases.get(phase, 0.0) * 1e9 / cells[n].cell.rows for n in sorted(cells)]
            rows.append((phase, *(f"{value:.0f}" for value in spent)))
        yield table(columns, rows, columns[1:], f"{name}: {PHASES}")


def _sweep(cells: Mapping[int, JoinResult]) -> Any:
    if not cells:
        return None
    first = next(iter(cells.values())).cell
    columns = ("rows a key", "answered", "drained", "answer rows")
    rows = [(per_key, count(r.answered_rate), _drained(r), count(r.answer_rows)) for per_key, r in cells.items()]
    return table(columns, rows, columns, SWEEP.format(first.workload, first.queries))


def _ways(found: JoinMeasurements) -> Any:
    columns = ("kind", "streams", "queries", "answered", "drained", "× 2-way")
    rows: list[tuple[Any, ...]] = []
    for name, cells in found.ways.items():
        for (ways, queries), result in sorted(cells.items()):
            two = cells.get((2, queries))
            times = ratio(result.answered_rate, two.answered_rate if two else None)
            rates = (count(result.answered_rate), _drained(result))
            rows.append((name, ways, queries, *rates, times_text(times)))
    return table(columns, rows, columns[1:], WAYS) if rows else None


def _apart(found: ApartResult | None) -> Any:
    if found is None:
        return None
    a, m = found.aggregation, found.memory
    columns = ("apart, one core", "time", "of DuckDB's pairs", "peak memory")

    def line(name: str, seconds: float, memory: int | None = None, compared: bool = True) -> tuple[str, ...]:
        times = f"1/{a.built / seconds:.0f}" if compared and seconds < a.built else NONE
        size = NONE if memory is None else f"{memory / GIB:.2f} GiB"
        return name, f"{seconds * 1000:.1f} ms", times, size

    rows = [
        line(f"aggregation over {count(a.pairs)} pairs: fire", a.fire),
        line("the same: ingest and fire", a.whole),
        line("DuckDB, all pairs built", a.built, compared=False),
        line("DuckDB, aggregating before it joins", a.planned),
        line(f"an answer of {count(m.answer_rows)} rows: fire", m.fire_seconds, m.fired, compared=False),
        line(f"the same: {count(m.read_rows)} rows read", m.read_seconds, m.read, compared=False),
    ]
    return table(columns, rows, columns[1:])


def _notes(found: JoinMeasurements) -> list[Text]:
    notes = []
    for name, agree in join_answers_agree(found).items():
        words = "the same rows from both systems" if agree else "DIFFERENT rows from the two systems"
        notes.append(Text(f"{name}, 1 query: {words}", style="" if agree else "bold red"))
    drained = [r for cells in found.ours.values() for r in cells.values() if r.drained and not r.drained.complete]
    if drained:
        notes.append(Text(DRAINED.format(count(max(r.cell.drain_rows for r in drained)))))
    if any(not result.finished for cells in found.plain.values() for result in cells.values()):
        notes.append(Text(CUT_SHORT))
    for name, stores in found.plain_by_store.items():
        if len(stores) > 1:
            rates = ", ".join(f"{store} {count(r.answered_rate)}/s" for store, r in stores.items())
            notes.append(Text(f"{name}: plain Spark, 1 query, by state store: {rates}"))
    if found.apart is not None and not (found.apart.aggregation.agree and found.apart.memory.agree):
        notes.append(Text("WRONG groups, or wrong rows of the large answer", style="bold red"))
    if found.machine.busy:
        words = f"the machine was busy (load {found.machine.load:.1f}): do not trust the ratios"
        notes.append(Text(words, style="yellow"))
    notes += [Text(f"failed: {failure.splitlines()[0]}", style="bold red") for failure in found.failures]
    return notes
