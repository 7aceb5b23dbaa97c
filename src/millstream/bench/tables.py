"""The result for people: tables on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from millstream.bench.jobs import CellResult, DeployResult
from millstream.bench.report import (
    ONE,
    PLAIN_MANY,
    Measurements,
    Target,
    answers_agree,
    input_rate,
    overall_rate,
    ratio,
    targets,
)
from millstream.cli.output import count, size, table

NONE = "–"
ONE_PERCENT = 0.01

# The titles say what the short heads of the columns mean, so that the tables fit 80 characters.
THROUGHPUT = "Rows a second, best of the runs (density: rows for each second of event time; × plain 20: overall)"
PHASES = "Milliseconds for each million rows, added over tasks"
STATE = "State of closed slices, and the cells of the two layouts: classes or queries × keys × slices"


def print_report(found: Measurements, console: Console) -> None:
    """All tables, the verdict last."""
    for part in (_throughput(found), _phases(found.dense), _state(found.dense)):
        if part is not None:
            console.print(part, "")
    if found.deployment is not None:
        console.print(_deployment(found.deployment), "")
    console.print(target_table(targets(found)))
    for line in _notes(found):
        console.print(line)


def _throughput(found: Measurements) -> Any:
    if not (found.dense or found.sparse or found.plain):
        return None
    columns = ("system", "density", "queries", "input/s", "overall/s", "× plain 1", "× plain 20")
    plain_one, plain_many = input_rate(found.plain, ONE), overall_rate(found.plain, PLAIN_MANY)
    rows: list[tuple[Any, ...]] = []
    for name, cells in (("plain Spark", found.plain), ("Millstream", found.dense), ("Millstream", found.sparse)):
        for queries, result in sorted(cells.items()):
            best = result.best.throughput
            rates = (count(best.input_rate), count(best.overall_rate))
            # A ratio counts only on the same input.
            same = cells is not found.sparse
            ratios = (ratio(best.input_rate, plain_one), ratio(best.overall_rate, plain_many))
            shown = [times_text(one if same else None) for one in ratios]
            rows.append((name, count(result.cell.dataset.density), queries, *rates, *shown))
    return table(columns, rows, columns[1:], THROUGHPUT)


def _phases(cells: Mapping[int, CellResult]) -> Any:
    """Core seconds for each million rows, by phase: where the time goes as queries are added."""
    if not cells:
        return None
    names = list(dict.fromkeys(name for result in cells.values() for name in result.best.phases))
    columns = ("phase", *(f"{n} {'query' if n == 1 else 'queries'}" for n in sorted(cells)))
    rows = []
    for name in names:
        spent = [_spent(cells[queries], name) for queries in sorted(cells)]
        rows.append((name, *(f"{value:.1f}" for value in spent)))
    return table(columns, rows, columns[1:], PHASES)


def _spent(result: CellResult, phase: str) -> float:
    return result.best.phases.get(phase, 0.0) * 1e9 / result.cell.rows


def _state(cells: Mapping[int, CellResult]) -> Any:
    if not cells:
        return None
    columns = ("queries", "groups", "classes", "slices", "cells", "by class", "by query", "bytes", "each")
    rows = []
    for queries, result in sorted(cells.items()):
        run = result.best
        if run.state is None:
            continue
        state = run.state
        layouts = (count(state.cells), count(state.by_classes), count(state.by_queries))
        each = f"{state.bytes / state.cells:.1f}" if state.cells else NONE
        rows.append((queries, run.groups, run.classes, state.slices, *layouts, size(state.bytes), each))
    return table(columns, rows, columns, STATE)


def _deployment(found: DeployResult) -> Any:
    columns = ("running", "creates", "sealed p50", "sealed p99", "planned p50", "planned p99", "stream lag")
    rows: list[tuple[Any, ...]] = []
    for level in found.levels:
        sealed, planned = level.sealed, level.planned
        times = (sealed.median, sealed.p99, planned.median, planned.p99, level.lag)
        rows.append((level.running, len(sealed.values), *map(_seconds, times)))
    if found.storm is not None:
        storm = found.storm
        rate = f"{storm.achieved_rate:.0f}/s"
        sealed_times = (_seconds(storm.sealed.median), _seconds(storm.sealed.p99))
        rows.append((storm.running, rate, *sealed_times, NONE, NONE, _seconds(storm.lag)))
    title = f"Deployment while {count(found.rate)} rows/s flow"
    return table(columns, rows, columns, title)


def target_table(found: Iterable[Target]) -> Any:
    """Each target beside what was measured, met or missed by how much."""
    columns = ("target", "wanted", "measured", "")
    rows = []
    for target in found:
        sign = "≤" if target.at_most else "≥"
        got = NONE if target.got is None else figure_text(target.got, target.unit)
        rows.append((target.name, f"{sign} {target.wanted:g} {target.unit}", got, verdict(target)))
    return table(columns, rows, ("wanted", "measured"), "Targets")


def verdict(target: Target) -> Text:
    """Met or missed, and by how much.

    >>> verdict(Target("t", 500.0, 400.0)).plain, verdict(Target("t", 500.0, None)).plain
    ('missed: 400 of 500, 20 % short', 'not measured')
    """
    if target.met is None:
        return Text("not measured", style="dim")
    if target.met:
        margin = target.margin
        return Text("met" if margin is None else f"met, {margin:.2g} times", style="green")
    return Text(f"missed: {'' if target.held else 'not sustained; '}{_by_how_much(target)}", style="bold red")


def _by_how_much(target: Target) -> str:
    """What was measured beside what was wanted, and how far apart they are."""
    assert target.got is not None
    facts = f"{_figure(target.got)} of {'at most ' if target.at_most else ''}{target.wanted:g}"
    if target.reached or not target.wanted:
        return facts
    off = abs(target.got / target.wanted - 1)
    return f"{facts}, {_percent(off)} {'over' if target.at_most else 'short'}"


def _percent(share: float) -> str:
    """Whole percents; what is missed by less is still missed by something."""
    return f"{share * 100:.0f} %" if share >= ONE_PERCENT else f"{share * 100:.1g} %"


def _notes(found: Measurements) -> list[Text]:
    notes = []
    agree = answers_agree(found)
    if agree is not None:
        words = "the same answers from both systems" if agree else "DIFFERENT answers from the two systems"
        notes.append(Text(f"1 query: {words}", style="" if agree else "bold red"))
    if len(found.plain_by_store) > 1:
        rates = ", ".join(f"{name} {count(r.best.throughput.input_rate)}/s" for name, r in found.plain_by_store.items())
        notes.append(Text(f"plain Spark, 1 query, by state store: {rates}"))
    if found.machine.busy:
        notes.append(
            Text(f"the machine was busy (load {found.machine.load:.1f}): do not trust the ratios", style="yellow")
        )
    storm = found.deployment.storm if found.deployment else None
    if storm is not None and storm.refused:
        notes.append(Text(f"{storm.refused} creates were refused at {storm.asked_rate:g} a second", style="bold red"))
    # The whole of it, with the trace, is in the JSON.
    notes += [Text(f"failed: {failure.splitlines()[0]}", style="bold red") for failure in found.failures]
    return notes


def figure_text(value: float, unit: str) -> str:
    """What was measured, to three digits or the whole number.

    >>> figure_text(0.41234, "s"), figure_text(1630.4, "×")
    ('0.412 s', '1,630 ×')
    """
    return f"{_figure(value)} {unit}"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def times_text(value: float | None) -> str:
    """A ratio for people."""
    return NONE if value is None else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms"
