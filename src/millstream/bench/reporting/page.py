"""A suite as one page: ``index.html``, which needs nothing else, no network and no script."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from millstream.bench.driving.model import Claim, Suite
from millstream.bench.plot import MISSING
from millstream.bench.reporting import joins
from millstream.bench.reporting.claims import target_of
from millstream.bench.reporting.command import command_of
from millstream.bench.reporting.markup import Markup, element, facts, folded, join, rows
from millstream.bench.reporting.outcomes import Outcome, all_runs, by_workload, outcomes
from millstream.bench.reporting.sections import anchor, workload_section
from millstream.bench.reporting.tables import (
    GENERATOR_COLUMNS,
    RESULT_COLUMNS,
    RESULTS,
    WORDS,
    any_joins,
    first_line,
    generator_margins,
    margin_row,
    result_row,
)
from millstream.bench.tables import NONE, figure_text, verdict
from millstream.cli.output import size

PAGE = "index.html"
PLOTS = "plots"

# Of the machine, what stands at the top of the page.
HEADER_FACTS = (("cores", " cores"), ("processor", ""), ("system", ""))
HEADER_VERSIONS = (("millstream", "Millstream "), ("commit", "commit "))
# How to read it: the definitions, in the words of the workloads.
READING = (
    ("event-time latency", "from the moment an answer's last row was due until the answer could be read"),
    ("processing-time latency", "from the moment the system took that row until then"),
    ("deployment", "from a user's request until it was acknowledged, or part of the running plan"),
    ("sustained", "the queue of rows, and so the latency, did not keep growing"),
    ("bracket", "of a search the highest sustained … the lowest unsustained rate: it knows its rate no better"),
    ("taken, slowest data throughput", "rows a second that the slowest query took, after the warm-up"),
    (
        "overall, overall data throughput",
        "the same rows, each counted once for every query there was; what faster queries took beyond is not counted",
    ),
    ("density", "rows for each second of event time"),
    ("warm-up", "the first quarter of a run, shaded in plots, which no figure counts"),
    ("ratios", "count only between systems of one report: same machine, same input, same session"),
)


def write_page(suite: Suite, directory: Path) -> Path:
    """Write the page, and its plots as files beside it; gives the path of the page."""
    (directory / PLOTS).mkdir(parents=True, exist_ok=True)
    found = outcomes(suite)
    workloads = by_workload(found)
    sections = [workload_section(name, some, directory / PLOTS) for name, some in workloads.items()]
    body = join(
        (
            _header(suite, found, list(workloads)),
            _claims(suite.claims),
            _failures(suite.failures),
            _results(found),
            element("p", MISSING, class_="faint") if find_spec("matplotlib") is None else "",
            *sections,
            _generators(suite),
            _systems(found),
            _circumstances(suite),
        )
    )
    path = directory / PAGE
    path.write_text(_document(suite.name, body), encoding="utf-8")
    return path


def _document(title: str, body: Markup) -> str:
    css = files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Markup(css)),
    )
    return f"<!doctype html>\n{element('html', head, element('body', body), lang='en')}\n"


def _header(suite: Suite, found: list[Outcome], workloads: list[str]) -> Markup:
    began = min((run.began for run in all_runs(suite)), default="")
    machine = [f"{suite.machine[key]}{unit}" for key, unit in HEADER_FACTS if key in suite.machine]
    versions = suite.machine.get("versions") or {}
    machine += [f"{words}{versions[key]}" for key, words in HEADER_VERSIONS if key in versions]
    systems = list(dict.fromkeys(outcome.cell.system for outcome in found))
    parts = [
        ("results", "Results"),
        *((anchor(name), name) for name in workloads),
        ("generators", "Generators"),
        ("systems", "Systems"),
        ("circumstances", "Machine and repetition"),
    ]
    return element(
        "header",
        element("h1", suite.name),
        element("p", ", ".join(machine), class_="faint"),
        element("p", f"{', '.join(systems)}; begun {_moment(began)}", class_="faint") if found else "",
        element("nav", *(element("a", title, href=f"#{place}") for place, title in parts)),
    )


def _moment(iso: str) -> str:
    """A time for people.

    >>> _moment("2026-11-16T17:58:22.577305+00:00")
    '2026-11-16 17:58 UTC'
    """
    return f"{datetime.fromisoformat(iso).astimezone(UTC):%Y-%m-%d %H:%M} UTC" if iso else iso


def _claims(claims: tuple[Claim, ...]) -> Markup:
    if not claims:
        return Markup("")
    met = sum(target_of(claim).met is True for claim in claims)
    words = element("p", f"{met} of {len(claims)} figures to reach were reached.", class_="faint")
    return element("section", words, element("div", *map(_card, claims), class_="cards"))


def _card(claim: Claim) -> Markup:
    target = target_of(claim)
    kind = "" if target.met is None else " good" if target.met else " bad"
    bound = f"{'at most' if claim.at_most else 'at least'} {claim.wanted:g} {claim.unit}; "
    got = NONE if claim.got is None else figure_text(claim.got, claim.unit)
    return element(
        "article",
        element("p", got, class_="value"),
        element("p", claim.name),
        element("p", bound, element("span", verdict(target).plain, class_="word"), class_="bound"),
        element("p", claim.source, class_="source") if claim.source else "",
        class_=f"card{kind}",
    )


def _failures(failures: tuple[str, ...]) -> Markup:
    if not failures:
        return Markup("")
    shown = [folded(element("span", first_line(text), class_="word bad"), element("pre", text)) for text in failures]
    return element("section", element("h2", "What failed"), *shown)


def _results(found: list[Outcome]) -> Markup:
    if not found:
        return element("section", element("p", "Nothing was measured."), id="results")
    lines = []
    for outcome in found:
        *cells, words = result_row(outcome)
        lines.append((*cells, element("span", words, class_=f"word {'good' if outcome.sustained else 'bad'}")))
    legend = [element("p", RESULTS, ".", class_="faint")]
    legend += [element("p", joins.LEGEND, class_="faint")] if any_joins(found) else []
    return element("section", element("h2", "Results"), *legend, rows(RESULT_COLUMNS, lines, WORDS), id="results")


def _generators(suite: Suite) -> Markup:
    margins = generator_margins(all_runs(suite))
    words = (
        "What the generators could make in a second of work, against the highest rate that was asked of them. "
        "The latest row is the longest that one came after the moment it was due, beyond the beat of the files."
    )
    return element(
        "section",
        element("h2", "Were the generators fast enough?"),
        element("p", words),
        rows(GENERATOR_COLUMNS, map(margin_row, margins), WORDS) if margins else element("p", "No rows were made."),
        id="generators",
    )


def _systems(found: list[Outcome]) -> Markup:
    """What each system says of itself; runs that say the same are said once."""
    said = {(one.cell.system, tuple(one.run.system.items())): one.run.system for one in found if one.run.system}
    parts = [join((element("h3", system), facts(text.items()))) for (system, _), text in said.items()]
    return element("section", element("h2", "Systems"), *parts, id="systems")


def _circumstances(suite: Suite) -> Markup:
    command = command_of(suite)
    seeds = sorted({run.spec.seed for run in all_runs(suite)})
    return element(
        "section",
        element("h2", "Machine and repetition"),
        join((element("p", "The same again:"), element("pre", command))) if command else "",
        facts([*_machine(suite.machine), ("seeds", ", ".join(map(str, seeds)) or NONE)]),
        folded("Options", facts(suite.options.items())) if suite.options else "",
        element("p", "Every sample of every run is in ", element("code", "runs/"), ", as JSON."),
        element("h3", "How to read it"),
        facts(READING),
        id="circumstances",
    )


def _machine(machine: dict[str, Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in machine.items():
        if name == "memory_bytes" and isinstance(value, int):
            found.append(("memory", size(value)))
        elif isinstance(value, dict):
            found += [(f"{name}: {key}" if name != "versions" else key, item) for key, item in value.items()]
        else:
            found.append((name, value))
    return found
