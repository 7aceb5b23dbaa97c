"""A suite for people: tables on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from millstream.bench.driving.model import RunResult, Suite
from millstream.bench.reporting import joins
from millstream.bench.reporting.brackets import bracket_words
from millstream.bench.reporting.claims import target_of
from millstream.bench.reporting.figures import Distribution, deployment, latency, peak_rate
from millstream.bench.reporting.outcomes import Outcome, all_runs, outcomes
from millstream.bench.tables import NONE, target_table, times_text
from millstream.cli.output import count, seconds, table

RESULTS = (
    "Rows a second (taken: by the slowest query, the slowest data throughput; overall: once for each query, the overall"
    " data throughput), event-time latency, deployment until effective"
)
RESULT_COLUMNS = (
    "workload",
    "system",
    "queries",
    "density",
    "asked/s",
    "taken/s",
    "overall/s",
    "p50",
    "p99",
    "deploy p99",
    "bracket",
    "verdict",
)
GENERATOR = "Generators: what they could make, against what was asked"
GENERATOR_COLUMNS = ("workload", "asked/s", "capacity/s", "times", "latest row", "verdict")
# Seconds that a row may be late, beyond the beat of the files, which is half as long.
ON_TIME = 0.25
# Of the columns above, those that hold words.
WORDS = ("workload", "system", "bracket", "verdict")


@dataclass(frozen=True, slots=True)
class GeneratorMargin:
    """Of the runs of a workload the highest rate asked, the lowest capacity, the smallest ratio of the two in one run,
    and the longest that a row was late."""

    workload: str
    asked: float
    capacity: float
    times: float
    late: float

    @property
    def words(self) -> str:
        if self.times > 1:
            return "fast enough"
        # Rows are made before a run, so a generator that is slower than the rate keeps nobody waiting by itself.
        return "made ahead, on time" if self.late <= ON_TIME else "the bottleneck: measures the driver, not the system"


def print_suite(suite: Suite, console: Console) -> None:
    """All tables, the targets last."""
    found = outcomes(suite)
    if found:
        console.print(table(RESULT_COLUMNS, [_styled(one) for one in found], _numbers(RESULT_COLUMNS), RESULTS), "")
    margins = generator_margins(all_runs(suite))
    if margins:
        rows = [margin_row(one) for one in margins]
        console.print(table(GENERATOR_COLUMNS, rows, _numbers(GENERATOR_COLUMNS), GENERATOR), "")
    if suite.claims:
        console.print(target_table(target_of(claim) for claim in suite.claims))
    if any_joins(found):
        console.print(Text(joins.LEGEND, style="dim"))
    for line in _notes(found, suite.failures):
        console.print(line)


def any_joins(found: Sequence[Outcome]) -> bool:
    """Whether it matters what became of the rows of joins."""
    return any(joins.rows_of_run(one.run.spec) for one in found)


def result_row(outcome: Outcome) -> tuple[str, ...]:
    """The cells of `RESULT_COLUMNS`."""
    cell, run = outcome.cell, outcome.run
    event, deployed = latency(run), deployment(run)
    density = count(cell.density) if cell.density else "rate"
    rates = (count(peak_rate(run.spec)), count(run.taken_rate), count(run.overall_rate))
    times = (_part(event, "p50"), _part(event, "p99"), _part(deployed, "p99"))
    ends = (bracket_words(outcome.search), outcome.words)
    return cell.workload, outcome.system, count(cell.queries), density, *rates, *times, *ends


def generator_margins(runs: Iterable[RunResult]) -> list[GeneratorMargin]:
    """By workload; runs that made no row are left out."""
    by_name: dict[str, list[RunResult]] = {}
    for run in runs:
        if run.generator.rows and peak_rate(run.spec):
            by_name.setdefault(run.spec.workload, []).append(run)
    return [_margin(name, some) for name, some in by_name.items()]


def _margin(workload: str, runs: Sequence[RunResult]) -> GeneratorMargin:
    pairs = [(peak_rate(run.spec), run.generator.capacity) for run in runs]
    return GeneratorMargin(
        workload,
        max(asked for asked, _ in pairs),
        min(capacity for _, capacity in pairs),
        min(capacity / asked for asked, capacity in pairs),
        max(run.generator.late for run in runs),
    )


def margin_row(one: GeneratorMargin) -> tuple[str, ...]:
    """The cells of `GENERATOR_COLUMNS`."""
    rates = (count(one.asked), count(one.capacity), times_text(one.times))
    return one.workload, *rates, latency_text(one.late), one.words


def latency_text(value: float | None) -> str:
    """A latency for people.

    >>> latency_text(0.0124), latency_text(2.345), latency_text(None)
    ('12 ms', '2.3 s', '–')
    """
    if value is None:
        return NONE
    return f"{value * 1000:.0f} ms" if value < 1 else seconds(value)


def _part(found: Distribution | None, name: str) -> str:
    return latency_text(None if found is None else getattr(found, name))


def _numbers(columns: Sequence[str]) -> list[str]:
    return [name for name in columns if name not in WORDS]


def _styled(outcome: Outcome) -> tuple[Any, ...]:
    *cells, words = result_row(outcome)
    return *cells, Text(words, style="green" if outcome.sustained else "bold red")


def _notes(found: Sequence[Outcome], failures: Sequence[str]) -> list[Text]:
    """Why what was not sustained was not; the whole of the evidence is in the JSON and on the page."""
    notes = []
    for outcome in found:
        if not outcome.sustained:
            name = f"{outcome.cell.workload}, {outcome.system}, {count(outcome.cell.queries)} queries"
            notes.append(Text(f"{name}: {outcome.run.verdict.reason}", style="yellow"))
            notes += [Text(f"  {first_line(error)}", style="red") for error in outcome.run.errors[:1]]
    return notes + [Text(f"failed: {first_line(failure)}", style="bold red") for failure in failures]


def first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]
