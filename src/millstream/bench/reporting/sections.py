"""A workload's part of the page: plots, tables, and the reasoning of each verdict."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from statistics import median

from millstream.bench.driving.model import QuerySpec, RunResult, RunSpec, Search
from millstream.bench.reporting import figures, plots
from millstream.bench.reporting.brackets import bracket_of
from millstream.bench.reporting.figures import Distribution
from millstream.bench.reporting.markup import Markup, drawing, element, facts, folded, join, rows
from millstream.bench.reporting.outcomes import Cell, Outcome
from millstream.bench.reporting.sharing import sharing_table
from millstream.bench.reporting.tables import latency_text
from millstream.bench.tables import NONE
from millstream.cli.output import count

LATENCY_COLUMNS = ("system", "queries", "latency", "of", "mean", "min", "p50", "p90", "p95", "p99", "max")
CANDIDATE_COLUMNS = ("asked/s", "taken/s", "queue grows by", "latency grows by", "event p99", "verdict", "reason")

MILLSTREAM = "millstream"
# Whether it is Millstream.
NOT_IN_PHASES = {
    True: "those of its tasks; the JVM and the driver are not in it.",
    False: "those of its triggers, by the clock.",
}
WHERE_TIME_GOES = "Where the time goes: Millstream adds it over tasks, Spark takes it from the clock of its triggers."

UNFINISHED = "Those that waited longer than the median count in the percentiles, with their wait until the end."

# A plot's name, what draws it, and what it shows.
Plot = tuple[str, Callable[[Path], bool], str]


def anchor(workload: str) -> str:
    """The name of a workload's section in links.

    >>> anchor("AStream SC1, 100 q/s")
    'workload-astream-sc1-100-q-s'
    """
    return "workload-" + re.sub(r"[^a-z0-9]+", "-", workload.lower()).strip("-")


def workload_section(name: str, found: Sequence[Outcome], folder: Path) -> Markup:
    """The section; its plots are written to ``folder`` too."""
    drawings = [_figure(plot, anchor(name), folder) for plot in _plots(found)]
    return element(
        "section",
        element("h2", name),
        element("div", *drawings, class_="plots"),
        _latencies(found),
        sharing_table(found),
        element("h3", "Verdicts"),
        *(_verdict(outcome, number, anchor(name), folder) for number, outcome in enumerate(found)),
        _asked(found[0].run.spec),
        id=anchor(name),
    )


def _plots(found: Sequence[Outcome]) -> list[Plot]:
    """Those that have something to show for this workload."""
    sustained = [one.run for one in found if one.search is not None and one.sustained]
    shown = [one.run for one in _ends(found)]
    with_phases = [one.run for one in found if figures.components(one.run)]
    made: list[Plot] = []
    usual = _best(_usual(sustained))
    if len({figures.most_queries(run.spec) for run in usual}) > 1:
        caption = "Highest sustained rates against the number of queries: slowest and overall data throughput."
        made.append(("throughput", lambda path: plots.throughput(usual, path), caption))
    if by_cores := _along(sustained, "cores"):
        made.append(("cores", lambda path: plots.cores(by_cores, path), "Highest sustained rates by cores."))
    if by_density := _along([run for run in sustained if run.spec.density], "density"):
        caption = "Highest sustained rates by density."
        made.append(("density", lambda path: plots.density(by_density, path), caption))
    made.append(("latency", lambda path: plots.latency(shown, path), "Event-time latency over time, and its CDF."))
    made.append(("rates", lambda path: plots.rates(shown, path), "Throughput over time."))
    caption = "How long creates and deletes took, over time: those that the run ended on, until then."
    made.append(("deployment", lambda path: plots.deployment(shown, path), caption))
    made += [_fluctuation(run, number) for number, run in enumerate(shown) if _changes(run)]
    for system in dict.fromkeys(run.spec.system for run in with_phases):
        some = _best([run for run in _usual(with_phases) if run.spec.system == system])
        if len({figures.most_queries(run.spec) for run in some}) > 1:
            made.append(_sharing(system, some))
    made.append(("breakdown", lambda path: plots.breakdown(with_phases, path), WHERE_TIME_GOES))
    return made


def _usual(runs: Sequence[RunResult]) -> list[RunResult]:
    """Those at the density and on the cores of most; the others have plots of their own."""
    settings = Counter((run.spec.density, run.spec.cores) for run in runs)
    return [run for run in runs if (run.spec.density, run.spec.cores) == settings.most_common(1)[0][0]]


def _best(runs: Sequence[RunResult]) -> list[RunResult]:
    """One for each system and number of queries: that with the highest sustained rate."""
    best: dict[tuple[str, int], RunResult] = {}
    for run in sorted(runs, key=lambda run: (run.verdict.sustained, run.spec.rate)):
        best[run.spec.system, figures.most_queries(run.spec)] = run
    return [run for run in runs if any(run is one for one in best.values())]


def _along(runs: Sequence[RunResult], part: str) -> list[RunResult]:
    """Those that differ from another in one part of their cell alone: what makes a line."""
    cells = {Cell.of(run.spec) for run in runs}
    others = Counter(_rest(cell, part) for cell in cells)
    return [run for run in runs if others[_rest(Cell.of(run.spec), part)] > 1]


def _rest(cell: Cell, part: str) -> tuple[object, ...]:
    return tuple(getattr(cell, field.name) for field in fields(cell) if field.name != part)


def _fluctuation(run: RunResult, number: int) -> Plot:
    caption = f"Number of queries, latency and throughput over time: {run.spec.system}."
    return f"fluctuation-{number + 1}", lambda path: plots.fluctuation(run, path), caption


def _sharing(system: str, runs: Sequence[RunResult]) -> Plot:
    caption = f"Phases as shares of their sum, {system}: {NOT_IN_PHASES[system.startswith(MILLSTREAM)]}"
    return f"sharing-{system}", lambda path: plots.sharing(runs, path), caption


def _ends(found: Sequence[Outcome]) -> list[Outcome]:
    """Of each system the outcomes with the fewest and with the most queries; more lines cannot be read in one plot."""
    by_system: dict[str, list[Outcome]] = {}
    for outcome in found:
        by_system.setdefault(outcome.cell.system, []).append(outcome)
    kept = []
    for some in by_system.values():
        ordered = sorted(some, key=lambda outcome: outcome.cell.queries)
        kept += [ordered[0], *ordered[1:][-1:]]
    return kept


def _changes(run: RunResult) -> bool:
    """Whether the number of queries changes after the warm-up."""
    first = figures.warm_up_end(run.spec)
    return len({sample.queries for sample in run.queue if sample.at >= first}) > 1


def _figure(plot: Plot, prefix: str, folder: Path) -> Markup:
    name, draw, caption = plot
    path = folder / f"{prefix.removeprefix('workload-')}-{re.sub(r'[^a-z0-9]+', '-', name.lower())}.svg"
    if not draw(path):
        return Markup("")
    return drawing(path, plots.INK, caption)


def _latencies(found: Sequence[Outcome]) -> Markup:
    """Every distribution after the warm-up, in words and numbers."""
    lines = []
    for outcome in found:
        run = outcome.run
        kinds = (
            ("event time", figures.latency(run)),
            ("processing time", figures.latency(run, "processing")),
            ("deployment, acknowledged", figures.deployment(run, "acknowledged")),
            ("deployment, effective", figures.deployment(run)),
        )
        cell = (outcome.system, count(outcome.cell.queries))
        lines += [(*cell, name, *_parts(one)) for name, one in kinds if one is not None]
    if not lines:
        return element("p", "No answer came after the warm-up.")
    return join((element("h3", "Latencies"), rows(LATENCY_COLUMNS, lines, ("system", "latency"))))


def _parts(one: Distribution) -> tuple[str, ...]:
    times = (one.mean, one.least, one.p50, one.p90, one.p95, one.p99, one.most)
    return count(one.count), *map(latency_text, times)


def _verdict(outcome: Outcome, number: int, prefix: str, folder: Path) -> Markup:
    run, cell = outcome.run, outcome.cell
    queries = "1 query" if cell.queries == 1 else f"{count(cell.queries)} queries"
    kind = "good" if outcome.sustained else "bad"
    head = [f"{outcome.system}, {queries}: ", element("span", outcome.words, class_=f"word {kind}")]
    return element(
        "article",
        element("p", *head),
        element("p", run.verdict.reason),
        element("p", _growth(run), class_="faint"),
        _unfinished(run),
        _errors(run),
        _profiles(run),
        _candidates(outcome.search, number, prefix, folder) if outcome.search else "",
        class_="verdict",
    )


def _unfinished(run: RunResult) -> Markup:
    """How many requests the run ended on."""
    waiting, without = figures.unfinished(run, "acknowledged"), figures.unfinished(run, "effective")
    if not waiting and not without:
        return Markup("")
    words = f"never acknowledged {count(waiting)}, never in effect {count(without)}"
    return element("p", f"Of {count(len(run.deployments))} requests, before the run ended: {words}. {UNFINISHED}")


def _growth(run: RunResult) -> str:
    grown = run.verdict.latency_slope
    words = "" if grown is None else f", the event-time latency by {grown:+.4f} s each second"
    return f"At {count(run.spec.rate)} rows/s the queue grew by {_signed(run.verdict.queue_slope)} rows/s{words}."


def _signed(rate: float) -> str:
    return f"{'−' if rate < 0 else '+'}{count(abs(rate))}"


def _errors(run: RunResult) -> Markup:
    """The evidence where a system gave up; the first in view."""
    words = "1 error" if len(run.errors) == 1 else f"{len(run.errors)} errors"
    return folded(words, *(element("pre", text) for text in run.errors), opened=True) if run.errors else Markup("")


def _profiles(run: RunResult) -> Markup:
    """Files of the report's own directory: flame graphs, in which one can click."""
    kept = [name for name in run.profiles if re.fullmatch(r"[\w][\w./ -]*", name) and ".." not in name]
    title = f"Profile of {run.spec.system} at {count(run.spec.rate)} rows/s"
    frames = [element("iframe", src=name, title=title, loading="lazy", class_="profile") for name in kept]
    links = [element("p", element("a", name, href=name)) for name in kept]
    return join(folded(title, link, frame) for link, frame in zip(links, frames, strict=True))


def _candidates(search: Search, number: int, prefix: str, folder: Path) -> Markup:
    lines = []
    for run in search.runs:
        event, grown = figures.latency(run), run.verdict.latency_slope
        slopes = (f"{_signed(run.verdict.queue_slope)} rows/s", NONE if grown is None else f"{grown:+.4f} s/s")
        word = "sustained" if run.verdict.sustained else "not sustained"
        p99 = latency_text(event.p99 if event else None)
        lines.append((count(run.spec.rate), count(run.taken_rate), *slopes, p99, word, run.verdict.reason))
    caption = "The queue at each rate tried."
    figure = _figure((f"queue-{number + 1}", lambda path: plots.queue(search.runs, path), caption), prefix, folder)
    table = rows(CANDIDATE_COLUMNS, lines, ("verdict", "reason"))
    known = element("p", f"The sustainable rate lies in {bracket_of(search).words} (rows/s).")
    return folded(f"The search: {search.title}", known, table, element("div", figure, class_="plots"))


def _asked(spec: RunSpec) -> Markup:
    """What the workload is: its streams, and a query of it."""
    streams = [(one.name, f"{one.schema}; {_settings(one.generator)}; share {one.share:g}") for one in spec.streams]
    streams += [("requests", _requests(spec))] if spec.requests else []
    query = _first_query(spec)
    shown = [element("h3", "A query of it"), element("pre", query.sql)] if query else []
    return folded("Streams and queries", facts(streams), *shown)


def _requests(spec: RunSpec) -> str:
    """How often they come in this run, which may be shorter than the script of its workload: then that is squeezed."""
    gaps = [after.at - before.at for before, after in pairwise(spec.requests)]
    often = f", each {median(gaps):.1f} s" if gaps else ""
    creates = max(len(one.create) for one in spec.requests)
    deletes = max(len(one.delete) for one in spec.requests)
    return f"{len(spec.requests)} times{often} in {spec.seconds:g} s: up to {creates} creates and {deletes} deletes"


def _settings(generator: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in generator.items())


def _first_query(spec: RunSpec) -> QuerySpec | None:
    created = (query for request in spec.requests for query in request.create)
    return next(iter(spec.initial), None) or next(created, None)
