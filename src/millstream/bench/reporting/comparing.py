"""``millstream bench compare A B``: what is different between two suites, beyond their noise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.text import Text

from millstream.bench.driving.model import RunResult, Search, Suite
from millstream.bench.plot import MISSING
from millstream.bench.report import ratio
from millstream.bench.reporting import plots
from millstream.bench.reporting.bands import DEFAULT_BAND, LEAST_BAND, Band, Figure
from millstream.bench.reporting.brackets import bracket_of
from millstream.bench.reporting.figures import deployment, latency, most_queries, peak_rate
from millstream.bench.reporting.outcomes import Cell, distinct_names, outcome_of
from millstream.bench.reporting.storing import load
from millstream.bench.tables import NONE, times_text
from millstream.cli.output import count, table

PLOT = "ratios.svg"
# Options that say where and how a suite was asked for, not what.
NOT_MEASURED = ("out", "began")
GIB = 1 << 30
BANDS = (
    f"noise: the range of the runs of a cell (at least ±{LEAST_BAND:.0%}), ±{DEFAULT_BAND:.0%} where there is only one;"
    " a searched rate may be anything in its bracket, from the highest sustained to the lowest that was not, and the"
    " noise comes on top; a difference lies outside the noise of both"
).replace("%", " %")
OTHER_RATE = "at another rate"
OTHER_RATE_NOTE = (
    f"{OTHER_RATE}: the runs of A and B were asked for different rates, and what differs may be that of the loads"
)

Word = Literal["better", "worse", "same", "only in A", "only in B", "other machine"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure of a run. ``at``, for those that are searched: what it is where all of a rate is taken; the others are
    of single runs."""

    name: str
    unit: str
    more_is_better: bool
    of: Callable[[RunResult], float | None]
    at: Callable[[RunResult, float], float] | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """A metric of a cell in both suites. Only ``better`` and ``worse`` are differences."""

    cell: Cell
    metric: str
    unit: str
    a: Band | None
    b: Band | None
    verdict: Word

    @property
    def ratio(self) -> float | None:
        """B by A; None where a side is missing or nothing."""
        if self.a is None or self.b is None or not self.b.middle:
            return None
        return ratio(self.b.middle, self.a.middle)

    @property
    def ratio_range(self) -> tuple[float, float]:
        """From the lowest of B by the highest of A to the opposite; only where there is a ratio."""
        assert self.a is not None
        assert self.b is not None
        # Either end may be open: a search that never failed knows no rate above.
        return self.b.low / self.a.high, self.b.high / self.a.low if self.a.low > 0 else float("inf")

    @property
    def other_rate(self) -> bool:
        """Whether the two sides are figures of different loads."""
        return self.a is not None and self.b is not None and not self.a.at_rate_of(self.b)


def _sustained(rate: Callable[[RunResult], float]) -> Callable[[RunResult], float]:
    """A search that sustained no rate has found 0."""
    return lambda run: rate(run) if run.verdict.sustained else 0.0


def _event(name: str) -> Callable[[RunResult], float | None]:
    return lambda run: getattr(latency(run), name, None)


def _deployed(run: RunResult) -> float | None:
    found = deployment(run)
    return None if found is None else found.p99


def _overall_at(run: RunResult, rate: float) -> float:
    return rate * most_queries(run.spec)


METRICS = (
    Metric("sustainable input", "rows/s", True, _sustained(lambda run: run.taken_rate), lambda run, rate: rate),
    Metric("sustainable overall", "rows/s", True, _sustained(lambda run: run.overall_rate), _overall_at),
    Metric("event-time latency p50", "s", False, _event("p50")),
    Metric("event-time latency p99", "s", False, _event("p99")),
    Metric("deployment p99", "s", False, _deployed),
)


def compare(a: Suite, b: Suite) -> list[Difference]:
    """Every metric of every cell. On another machine nothing is called a difference."""
    same_machine = not machine_differences(a, b)
    found = []
    for metric in METRICS:
        sides = _values(a, metric), _values(b, metric)
        for cell in sorted({*sides[0], *sides[1]}):
            left, right = (Band.of(side[cell]) if cell in side else None for side in sides)
            verdict: Word = _verdict(left, right, metric) if same_machine else "other machine"
            found.append(Difference(cell, metric.name, metric.unit, left, right, verdict))
    # A stable sort: metrics keep their order within a cell.
    return sorted(found, key=lambda one: one.cell)


def machine_differences(a: Suite, b: Suite) -> list[str]:
    """Empty where both ran on machines that are alike."""
    names = {"processor": "processor", "cores": "cores", "memory_bytes": "memory in GiB"}
    left, right = (_hardware(suite.machine) for suite in (a, b))
    return [f"{names[key]}: {left[key]} and {right[key]}" for key in names if left[key] != right[key]]


def notes(a: Suite, b: Suite) -> list[str]:
    """What a reader must know beside the figures."""
    found = [f"the machines differ ({words}): no figure is called a difference" for words in machine_differences(a, b)]
    for name, suite in (("A", a), ("B", b)):
        load, cores = suite.machine.get("load"), suite.machine.get("cores")
        if isinstance(load, int | float) and isinstance(cores, int) and load > cores / 2:
            found.append(f"the machine of {name} was busy (load {load:.1f}): do not trust its figures")
        found += [
            f"{name}: nothing above failed in the search {search.title!r}, so its rate is a lower bound"
            for search in suite.searches
            if search.runs and bracket_of(search).high is None
        ]
    versions = [one.machine.get("versions") or {} for one in (a, b)]
    found += [f"version of {words}" for words in _changed(*versions)]
    found += [f"option {words}" for words in _changed(a.options, b.options)]
    return found


def rate_notes(differences: Iterable[Difference]) -> list[str]:
    return [OTHER_RATE_NOTE] if any(one.other_rate for one in differences) else []


def print_comparison(a: Suite, b: Suite, differences: Sequence[Difference], console: Console) -> None:
    """One line for each metric of each cell, then what else to know."""
    columns = ("cell", "metric", "asked/s", "A", "B", "B/A", "noise", "verdict")
    rows = []
    for name, one in zip(distinct_names([one.cell for one in differences]), differences, strict=True):
        sides = (_shown(one.a, one.unit), _shown(one.b, one.unit))
        rows.append((name, one.metric, _asked(one), *sides, *_ratio(one), _coloured(one)))
    title = f"A: {a.name}, B: {b.name}"
    console.print(table(columns, rows, ("asked/s", "A", "B", "B/A", "noise"), title))
    console.print(Text(BANDS, style="dim"))
    for note in [*notes(a, b), *rate_notes(differences)]:
        console.print(Text(note, style="yellow"))


def main(before: Path, after: Path, out: Path | None, console: Console) -> dict[str, Any]:
    """Compare two directories, print it, keep the plot where ``out`` is given; the result is what JSON shows."""
    a, b = load(before), load(after)
    found = compare(a, b)
    print_comparison(a, b, found, console)
    plot = None if out is None else _plot(found, out, console)
    return {
        "a": str(before),
        "b": str(after),
        "same_machine": not machine_differences(a, b),
        "notes": [*notes(a, b), *rate_notes(found)],
        "differences": [as_json(one) for one in found],
        "plot": plot,
    }


def as_json(one: Difference) -> dict[str, Any]:
    low, high = one.ratio_range if one.ratio is not None else (None, None)
    names = ("cell", "metric", "unit", "a", "b", "verdict", "other_rate")
    return {name: getattr(one, name) for name in names} | {"ratio": one.ratio, "ratio_low": low, "ratio_high": high}


def _plot(found: Sequence[Difference], out: Path, console: Console) -> str | None:
    out.mkdir(parents=True, exist_ok=True)
    if not any(one.ratio is not None for one in found):
        console.print("no plot: nothing is in both", markup=False)
        return None
    if not plots.ratios(found, out / PLOT):
        console.print(MISSING, markup=False)
        return None
    console.print(f"kept in {out / PLOT}", markup=False, soft_wrap=True)
    return str(out / PLOT)


def _values(suite: Suite, metric: Metric) -> dict[Cell, list[Figure]]:
    """Of searches or of single runs, as the metric is: the rates of the latter are asked, not found."""
    found: dict[Cell, list[Figure]] = {}
    figures = _of_runs(suite, metric) if metric.at is None else _of_searches(suite, metric, metric.at)
    for run, figure in figures:
        found.setdefault(Cell.of(run.spec), []).append(figure)
    return found


def _of_runs(suite: Suite, metric: Metric) -> Iterator[tuple[RunResult, Figure]]:
    for run in suite.runs:
        value = metric.of(run)
        if value is not None:
            yield run, Figure.exactly(value, peak_rate(run.spec))


def _of_searches(
    suite: Suite, metric: Metric, at: Callable[[RunResult, float], float]
) -> Iterator[tuple[RunResult, Figure]]:
    for search in suite.searches:
        outcome = outcome_of(search)
        value = None if outcome is None else metric.of(outcome.run)
        if outcome is not None and value is not None:
            yield outcome.run, _in_bracket(search, value, partial(at, outcome.run))


def _in_bracket(search: Search, value: float, at: Callable[[float], float]) -> Figure:
    """What was found at the highest sustained rate, and in proportion at the ends of the bracket."""
    bracket = bracket_of(search)
    if not bracket.low:
        return Figure(value, 0.0, at(bracket.most))
    return Figure(value, value * bracket.least / bracket.low, value * bracket.most / bracket.low)


def _verdict(a: Band | None, b: Band | None, metric: Metric) -> Word:
    if a is None:
        return "only in B"
    if b is None:
        return "only in A"
    if a.holds(b) or b.holds(a):
        return "same"
    return "better" if (b.middle > a.middle) == metric.more_is_better else "worse"


def _hardware(machine: Mapping[str, Any]) -> dict[str, Any]:
    """Memory in whole GiB: systems keep a little for themselves, and not always the same."""
    memory = machine.get("memory_bytes")
    rounded = round(memory / GIB) if isinstance(memory, int | float) else memory
    return {"processor": machine.get("processor"), "cores": machine.get("cores"), "memory_bytes": rounded}


def _changed(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*a, *b]):
        if name not in NOT_MEASURED and a.get(name) != b.get(name):
            yield f"{name}: {a.get(name, NONE)} and {b.get(name, NONE)}"


def _shown(band: Band | None, unit: str) -> str:
    if band is None:
        return NONE
    return f"{band.middle:.3f} s" if unit == "s" else count(band.middle)


def _ratio(one: Difference) -> tuple[str, str]:
    if one.ratio is None:
        return NONE, NONE
    low, high = one.ratio_range
    return times_text(one.ratio), f"{_end(low)} to {_end(high)}"


def _end(ratio: float) -> str:
    return "∞" if ratio == float("inf") else times_text(ratio)


def _asked(one: Difference) -> str:
    """What the runs of both sides were asked for, once where it is the same."""
    sides = [one.a.rates if one.a else (), one.b.rates if one.b else ()]
    shown = [" … ".join(dict.fromkeys(map(count, (rates[0], rates[-1])))) for rates in sides if rates]
    return ", ".join(shown if one.other_rate else shown[:1]) or NONE


def _coloured(one: Difference) -> Text:
    styles = {"better": "green", "worse": "bold red", "same": ""}
    words = f"{one.verdict}, {OTHER_RATE}" if one.other_rate else one.verdict
    return Text(words, style=styles.get(one.verdict, "dim"))
