"""``make bench``: Millstream beside plain Spark and Flink, section by section, as a directory with a page and plots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from millstream.bench.campaign import Asked, Campaign
from millstream.bench.driving.model import Claim, Search, Suite
from millstream.bench.effects import requests_a_second, requests_wait_longer, sharing_share, visitors_effect
from millstream.bench.machine import describe_machine
from millstream.bench.reporting.claims import claim_json
from millstream.bench.reporting.figures import deployment, latency, most_queries
from millstream.bench.reporting.page import write_page
from millstream.bench.reporting.storing import save
from millstream.bench.reporting.tables import print_suite
from millstream.bench.systems.kinds import (
    FLINK,
    MILLSTREAM,
    MILLSTREAM_DRAINED,
    MILLSTREAM_FRAME,
    MILLSTREAM_ROWS,
    SPARK,
    SPARK_MEMORY,
    SPARK_MERGED,
)
from millstream.bench.workloads.catalogue import WORKLOADS
from millstream.bench.workloads.scripts import middle
from millstream.config import available_cores, nearest
from millstream.errors import SpecError
from millstream.sources.generators import MICROS

# Rows a second to start a search with: about what each system sustains at most on two cores, with one query over one
# stream. Where the machine is known to be slower or faster, so much less or more.
HIGH = {
    MILLSTREAM: 64e6, MILLSTREAM_DRAINED: 32e6, MILLSTREAM_FRAME: 64e6, MILLSTREAM_ROWS: 12e6, SPARK: 24e6,
    SPARK_MEMORY: 24e6, SPARK_MERGED: 24e6, FLINK: 3e6,
}  # fmt: skip
# Streams are joined, at so much less.
JOINED = 8.0
LOAD = 0.7
# One answer in a hundred is that of a second or less of a run, so one run says little of it.
LATENCY_RUNS = 3
# A run under overload has a handful of micro-batches before the newcomers come, and as many after.
VISITOR_RUNS = 3
LIVE = 0
MANY = 1000
# Rows for each second of event time, beside the million of all other sections.
DENSITIES = (100_000, 500_000, 2_000_000)
CHURN_RATE = 200.0
# Every ten seconds 50 queries at once: the p99 is that of the slowest of seven rounds. Rows of a longer run do not fit
# on many a disk.
SC2_LONGER = 4
# 200, 400 and 800 requests a second.
CHURNS = ("astream-churn", "astream-churn-400", "astream-churn-800")
# Numbers of queries at which plain Spark may be at its best on two cores, and one at which it is not any more.
PLAIN_NUMBERS = (1, 2, 3, 5, 20)
# Queries of one window, which a person can merge into a single job.
MERGED_NUMBERS = (20, 100, MANY)
# One workload of each family that every system can be asked, with those that merge by hand and those whose answers
# are rows of a join, which only a sink makes Millstream build.
BESIDE = ("gaming-sum", "gaming-many", "gaming-join", "nexmark-hppa", "ajoin-1", "astream-sc1-1")
# So few rows for each second of event time that windows close also at the rates of the slowest.
BESIDE_DENSITY = 100_000
MERGEABLE, ROWS_OF_JOINS = ("gaming-sum", "gaming-many"), ("gaming-join", "ajoin-1")
# Candidates of a search, and of one whose rate no figure asks for: there systems lie far apart, and each rate is shown
# with its bracket.
MOST_CANDIDATES, FEW_CANDIDATES = 5, 3
# A run of each workload shows what happens, and is shorter than those that a figure rests on. How often its windows
# close in it, at the least.
SHORTER = 2 / 3
CLOSINGS = 3
# The first micro-batches of more jobs of plain Spark's than so many take as long as a whole run; theirs are longer.
FEW_JOBS, LONGER = 5, 3
# Rows a second of runs that show what happens, not how much is possible: of good queries beside bad ones, and of all
# streams of a workload but for those with several, which get less.
MODEST = 200_000.0
MODEST_ALL = 1e6


@dataclass(frozen=True)
class Options:
    """``sections`` empty is all of them, or those of a ``quick`` suite, which has shorter runs and fewer candidates."""

    out: Path = Path("bench-results")
    quick: bool = False
    seed: int | None = None
    sections: tuple[str, ...] = ()
    flink: bool = False

    def __post_init__(self) -> None:
        for section in self.sections:
            if section not in SECTIONS:
                raise SpecError(
                    "BAD_SPEC", f"the benchmark has no section {section!r}", hint=nearest(section, tuple(SECTIONS))
                )

    @property
    def chosen(self) -> tuple[str, ...]:
        return self.sections or tuple(section for section in SECTIONS if not self.quick or section not in NOT_QUICK)


@dataclass
class _Bench:
    """What the sections share: the rates found so far, since later ones run at a share of them."""

    campaign: Campaign
    options: Options
    claims: list[Claim] = field(default_factory=list)
    searches: dict[tuple[str, int], Search] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return 12.0 if self.options.quick else 24.0

    @property
    def candidates(self) -> int:
        return FEW_CANDIDATES if self.options.quick else MOST_CANDIDATES

    def asked(self, workload: str, system: str = MILLSTREAM, **more: Any) -> Asked:
        return Asked(workload, system, **{"seconds": self.seconds, "seed": self.options.seed, **more})

    def sustained(self, queries: int, system: str = MILLSTREAM) -> Search:
        """The search at a number of static aggregations and a million rows for each second, once for each system."""
        key = (system, queries)
        if key not in self.searches:
            slow = system in (SPARK, SPARK_MEMORY, SPARK_MERGED) and queries > FEW_JOBS
            seconds = self.seconds * (LONGER if slow else 1)
            # Many jobs take as long to begin as to run.
            more = {"warm_up": seconds / 2} if slow else {}
            asked = self.asked("astream-static", system, queries=queries, seconds=seconds, **more)
            candidates = FEW_CANDIDATES if slow else self.candidates
            self.searches[key] = self.campaign.search(asked, self.start(asked), candidates)
        return self.searches[key]

    def start(self, asked: Asked) -> float:
        """The rate that a search begins with: of a machine whose speed is known by now, or of one like ours."""
        first = self.searches.get((MILLSTREAM, 1))
        speed = 1.0 if first is None or first.best is None else first.best.spec.rate / HIGH[MILLSTREAM]
        return start_of(asked) * speed

    def plain(self) -> str:
        """Plain Spark with the state store that is faster for one query."""
        rates = {system: _rate(self.sustained(1, system)) or 0.0 for system in (SPARK, SPARK_MEMORY)}
        return max(rates, key=lambda system: rates[system])

    def search_again(self, queries: int, system: str) -> Search:
        """Later in the run, since a machine has better and worse hours: the better of the two counts."""
        before = self.searches.pop((system, queries), None)
        again = self.sustained(queries, system)
        if before is not None and (_rate(before) or 0.0) > (_rate(again) or 0.0):
            self.searches[system, queries] = before
        return self.searches[system, queries]

    def rate(self, queries: int, share: float = LOAD) -> float:
        best = self.sustained(queries).best
        return (best.spec.rate if best else 500_000.0) * share

    def so_far(self, machine: dict[str, Any], asked: dict[str, Any]) -> Suite:
        """What is to be kept of all sections that have run."""
        campaign = self.campaign
        runs = (tuple(campaign.searches), tuple(campaign.runs))
        return Suite("Millstream benchmark", machine, asked, *runs, tuple(self.claims), tuple(campaign.failures))

    def claim(
        self,
        name: str,
        wanted: float,
        got: float | None,
        unit: str,
        source: str,
        at_most: bool = False,
        held: bool = True,
    ) -> None:
        self.claims.append(Claim(name, wanted, got, at_most, unit, source, held))


def _single(bench: _Bench) -> None:
    """One aggregation: every system on its own, and plain Spark with the faster of its state stores."""
    systems = [MILLSTREAM, MILLSTREAM_FRAME, MILLSTREAM_ROWS, *([FLINK] if bench.options.flink else [])]
    spark = bench.plain()
    found = {system: bench.sustained(1, system) for system in systems}
    plain = _rate(bench.sustained(1, spark) if bench.options.quick else bench.search_again(1, spark))
    source = "sustainable throughput of astream-static, 1 query"
    bench.claim(
        "1 aggregation, columnar source, of plain Spark", 2.0, _of(_rate(found[MILLSTREAM]), plain), "×", source
    )
    names = {MILLSTREAM_FRAME: "the same streaming DataFrame", MILLSTREAM_ROWS: "one whose rows Spark has to make"}
    for system, name in names.items():
        bench.claim(f"1 aggregation, {name}, of plain Spark", 0.91, _of(_rate(found[system]), plain), "×", source)


def _queries(bench: _Bench) -> None:
    """From 1 to 1000 aggregations, and plain Spark at the numbers it can run."""
    ours = {number: bench.sustained(number) for number in ((1, MANY) if bench.options.quick else (1, 10, 100, MANY))}
    spark = bench.plain()
    plain = [bench.sustained(number, spark) for number in ((1, 20) if bench.options.quick else PLAIN_NUMBERS)]
    many = _overall(ours[MANY])
    best = max((rate for search in plain if (rate := _overall(search)) is not None), default=None)
    source = "sustainable throughput of astream-static"
    bench.claim("1000 aggregations, overall, of plain Spark at its best number", 1000.0, _of(many, best), "×", source)
    inputs = _of(_rate(ours[MANY]), _rate(ours[1]))
    bench.claim("1000 aggregations: input rate of that at 1", 0.6, inputs, "×", source)
    shares = [] if (run := ours[MANY].best) is None else [sharing_share(run)]
    bench.claim(
        "query-sets and bit-sets at 1000 queries, of processing", 0.2, shares[0] if shares else None, "×",
        "evaluate, classes and fire: classes of the best run at 1000 queries", at_most=True,
    )  # fmt: skip


def _merged(bench: _Bench) -> None:
    """Queries of one window as a single job of plain Spark's, merged by hand, and as queries of ours."""
    for number in MERGED_NUMBERS[::2] if bench.options.quick else MERGED_NUMBERS:
        for system in (MILLSTREAM, SPARK_MERGED):
            asked = bench.asked("astream-second", system, queries=number)
            bench.campaign.search(asked, bench.start(asked), FEW_CANDIDATES)


def _latency(bench: _Bench) -> None:
    """Event-time latency of 1000 queries with windows of a second, at a share of what is sustained."""
    asked = bench.asked("astream-second", queries=MANY)
    best = bench.campaign.search(asked, bench.rate(MANY, 1.0), bench.candidates).best
    name = "event-time latency p99 at 70 %, 1000 queries, 1 s windows, density 1 M"
    if best is None:
        bench.claim(name, 2.0, None, "s", "", at_most=True)
        return
    rate = best.spec.rate * LOAD
    runs = [bench.campaign.run(asked, rate) for _ in range(1 if bench.options.quick else LATENCY_RUNS)]
    p99s = [found.p99 for run in runs if (found := latency(run))]
    source = f"astream-second at {rate / 1e6:.2f} M rows/s, the median of {', '.join(f'{p99:.1f}' for p99 in p99s)} s"
    held = sum(run.verdict.sustained for run in runs) > len(runs) / 2
    bench.claim(name, 2.0, median(p99s) if p99s else None, "s", source, at_most=True, held=held)


def _deployment(bench: _Bench) -> None:
    """Creates and deletes while data flow: AStream's second scenario, and as many as are sustained."""
    best = bench.campaign.search(bench.asked("astream-sc2-50"), bench.rate(100, 1.0), bench.candidates).best
    load = bench.rate(100) if best is None else best.spec.rate * LOAD
    result = bench.campaign.run(bench.asked("astream-sc2-50", seconds=bench.seconds * SC2_LONGER), load)
    sealed, effective = deployment(result, "acknowledged"), deployment(result, "effective")
    source, held = f"astream-sc2-50 at {load / 1e6:.2f} M rows/s", result.verdict.sustained
    for name, wanted, found in (("the sealed epoch", 0.3, sealed), ("the first micro-batch", 1.0, effective)):
        p99 = found.p99 if found else None
        bench.claim(f"deployment p99, to {name}", wanted, p99, "s", source, at_most=True, held=held)
    _requests(bench)


def _requests(bench: _Bench) -> None:
    """The highest rate of creates and deletes at which neither rows nor requests wait longer and longer."""
    rate, held, source = None, False, ""
    for workload in CHURNS[:1] if bench.options.quick else CHURNS:
        run = bench.campaign.run(bench.asked(workload, queries=MANY), bench.rate(MANY, 0.5))
        good = run.verdict.sustained and not requests_wait_longer(run)
        if good or not source:
            rate, held = requests_a_second(run), good
            source = f"{workload} at {run.spec.rate / 1e6:.2f} M rows/s"
        if not good:
            break
    bench.claim("creates and deletes a second, 1000 running", CHURN_RATE, rate, "/s", source, held=held)


def _visitors(bench: _Bench) -> None:
    """What 100 new queries cost 100 running ones: the rate an overloaded system takes, before and after, and the same
    where nobody comes, since the batches of an overloaded system grow."""
    rate, effects = bench.rate(100, 1.5), {"astream-double": list[float](), "astream-static": list[float]()}
    for _ in range(1 if bench.options.quick else VISITOR_RUNS):
        for workload, found in effects.items():
            run = bench.campaign.run(bench.asked(workload, queries=100, seconds=2 * bench.seconds), rate)
            effect = visitors_effect(run, middle(run.spec.seconds))
            found += [] if effect is None else [effect]
    came, alone = (", ".join(f"{effect:.0%}" for effect in found) for found in effects.values())
    source = f"astream-double, the median of {came}, less that of the same without newcomers, {alone}"
    lost = median(effects["astream-double"]) - median(effects["astream-static"]) if all(effects.values()) else None
    bench.claim("throughput that 100 running queries lose to 100 new ones", 0.1, lost, "×", source, at_most=True)


def _cores(bench: _Bench) -> None:
    """One core against all."""
    cores = available_cores()
    bench.sustained(MANY)
    if cores > 1:
        asked = bench.asked("astream-static", queries=MANY, cores=1)
        bench.campaign.search(asked, bench.start(asked) / cores, bench.candidates)


def _density(bench: _Bench) -> None:
    """What a thousand queries sustain where a second of event time has fewer or more rows."""
    for density in DENSITIES[::2] if bench.options.quick else DENSITIES:
        asked = bench.asked("astream-static", queries=MANY, density=density)
        # What does not depend on rows, the windows that end, is most of the work of a second with few.
        bench.campaign.search(asked, bench.start(asked) * min(1.5, density / 1e6), bench.candidates)
    bench.sustained(MANY)


def _beside(bench: _Bench) -> None:
    """A workload of each family on every system; then more than each sustains of the first."""
    for name in BESIDE[:3] if bench.options.quick else BESIDE:
        systems = [MILLSTREAM, SPARK, *([FLINK] if bench.options.flink else [])]
        systems += [MILLSTREAM_DRAINED] if name in ROWS_OF_JOINS else []
        systems += [SPARK_MERGED] if name in MERGEABLE else []
        for system in systems:
            asked = bench.asked(name, system, density=BESIDE_DENSITY)
            found = bench.campaign.search(asked, bench.start(asked), FEW_CANDIDATES)
            if name == BESIDE[0] and found.best is not None:
                overload = bench.asked("gaming-overload", system, density=BESIDE_DENSITY)
                bench.campaign.run(overload, found.best.spec.rate)


def _workloads(bench: _Bench) -> None:
    """Every workload of the catalogue, once, at a rate that two cores bear: what happens, not how much is possible."""
    names = [name for name in WORKLOADS if not name.startswith("poison-")]
    bench.campaign.run_together(modest(bench.asked(name, seconds=bench.seconds * SHORTER)) for name in names)


def modest(asked: Asked) -> tuple[Asked, float]:
    """The cell with a rate, and so few rows for each second of event time that its longest windows close.

    >>> cell, rate = modest(Asked("gaming-large", "millstream", seconds=16.0))
    >>> rate, cell.density
    (1000000.0, 44444)
    """
    spec = asked.spec(1.0)
    rate = MODEST_ALL / len(spec.streams)
    queries = [*spec.initial, *(query for request in spec.requests for query in request.create)]
    longest = max((query.length + query.slide for query in queries), default=0) / MICROS
    return replace(asked, density=min(asked.density, round(rate * spec.seconds / max(CLOSINGS * longest, 1.0)))), rate


def _poison(bench: _Bench) -> None:
    """The latency of good queries beside each offender, against that of the same queries alone."""
    names = [name for name in WORKLOADS if name.startswith("poison-")]
    seconds = bench.seconds * (1 if bench.options.quick else 5)
    alone, held = None, True
    for name in names:
        length = 600.0 if name == "poison-loop" and not bench.options.quick else seconds
        result = bench.campaign.run(bench.asked(name, density=LIVE, seconds=length), MODEST)
        found = latency(result)
        p99 = found.p99 if found and not result.errors else None
        if name == "poison-none":
            alone, held = p99, result.verdict.sustained
        else:
            title = f"latency p99 of {WORKLOADS[name].title}, of that alone"
            good = held and result.verdict.sustained
            bench.claim(title, 2.0, _of(p99, alone), "×", name, at_most=True, held=good)


SECTIONS: dict[str, Callable[[_Bench], None]] = {
    "single": _single,
    "queries": _queries,
    "merged": _merged,
    "latency": _latency,
    "deployment": _deployment,
    "visitors": _visitors,
    "cores": _cores,
    "density": _density,
    "poison": _poison,
    "beside": _beside,
    "workloads": _workloads,
}
# What a quick suite has only if it is asked for by name: a hundred runs, none of which is part of a figure.
NOT_QUICK = ("workloads",)
# About as many steps as each section has, for the lines that say how far a run is.
STEPS = {
    "single": 7, "queries": 9, "merged": 6, "latency": 4, "deployment": 5, "visitors": 6, "cores": 2, "density": 4,
    "poison": 8, "beside": 22, "workloads": 115,
}  # fmt: skip


def main(options: Options, console: Console | None = None) -> dict[str, Any]:
    """Run the sections, print tables, keep JSON, plots and the page; the result says where."""
    screen = console or Console(stderr=True, highlight=False)
    machine = describe_machine()
    if machine.busy:
        screen.print(f"the machine is busy (load {machine.load:.1f}); measure again when it is quiet")
    began = datetime.now(UTC)
    directory = options.out / f"bench-{began:%Y%m%dT%H%M%SZ}"
    asked = {"seed": options.seed, "quick": options.quick, "flink": options.flink, "began": began.isoformat()}
    with Campaign(directory, screen, sum(STEPS[section] for section in options.chosen)).opened() as campaign:
        bench = _Bench(campaign, options)
        done: list[str] = []
        suite = bench.so_far(asdict(machine), {**asked, "sections": []})
        try:
            for section in options.chosen:
                SECTIONS[section](bench)
                done.append(section)
                suite = bench.so_far(asdict(machine), {**asked, "sections": list(done)})
                save(suite, directory)
                write_page(suite, directory)
        except BaseException:
            # Whoever ends a long run early has the figures of the sections that are complete, and all runs.
            begun = bench.so_far(asdict(machine), {**suite.options, "ended in": options.chosen[len(done)]})
            suite = replace(begun, claims=suite.claims)
            save(suite, directory)
            write_page(suite, directory)
            raise
    return keep(suite, directory, screen)


def keep(suite: Suite, directory: Path, screen: Console) -> dict[str, Any]:
    """Tables on the screen, everything else in the directory."""
    screen.print()
    print_suite(suite, screen)
    save(suite, directory)
    page = write_page(suite, directory)
    screen.print(f"kept in {directory}; open {page}", markup=False, soft_wrap=True)
    return {
        "directory": str(directory),
        "page": str(page),
        "claims": [claim_json(claim) for claim in suite.claims],
        "failures": list(suite.failures),
    }


def start_of(asked: Asked) -> float:
    """The rate that a search begins with. Queries that share their work cost little: a thousand a third of the rate.

    >>> start_of(Asked("astream-static", "spark", queries=20)), round(start_of(Asked("astream-static", "millstream")))
    (1200000.0, 22708057)
    >>> start_of(Asked("gaming-join", "spark"))
    3000000.0
    """
    spec = asked.spec(1.0)
    queries = most_queries(spec)
    shared: float = queries ** (1.0 if asked.system in (SPARK, SPARK_MEMORY, FLINK) else 0.15)
    return HIGH[asked.system] / shared / (JOINED if len(spec.streams) > 1 else 1.0)


def _rate(search: Search) -> float | None:
    return search.best.spec.rate if search.best else None


def _overall(search: Search) -> float | None:
    return search.best.spec.rate * len(search.best.spec.initial) if search.best else None


def _of(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below else above / below
