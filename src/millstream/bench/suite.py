"""``make bench``: Millstream beside plain Spark and Flink, section by section, as a directory with a page and plots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from millstream.bench.campaign import Asked, Campaign
from millstream.bench.driving.model import Claim, RunResult, Search, Suite
from millstream.bench.machine import describe_machine
from millstream.bench.reporting.figures import deployment, latency
from millstream.bench.reporting.page import write_page
from millstream.bench.reporting.storing import save
from millstream.bench.reporting.tables import print_suite
from millstream.bench.systems.kinds import FLINK, MILLSTREAM, MILLSTREAM_FRAME, MILLSTREAM_ROWS, SPARK, SPARK_MERGED
from millstream.bench.workloads.catalogue import WORKLOADS
from millstream.config import available_cores, nearest
from millstream.errors import SpecError

# Rows a second to start a search with: about what each system sustains at most on two cores, with one query.
HIGH = {MILLSTREAM: 32e6, MILLSTREAM_FRAME: 24e6, MILLSTREAM_ROWS: 6e6, SPARK: 8e6, SPARK_MERGED: 8e6, FLINK: 2e6}
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
# The first micro-batches of more jobs of plain Spark's than so many take as long as a whole run; theirs are longer.
FEW_JOBS, LONGER = 5, 3
# Rows a second of runs that show what happens, not how much is possible.
MODEST = 200_000.0


@dataclass(frozen=True)
class Options:
    """``sections`` empty is all of them; ``quick`` has shorter runs and fewer candidates."""

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
        return self.sections or tuple(SECTIONS)


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
        return 3 if self.options.quick else 5

    def asked(self, workload: str, system: str = MILLSTREAM, **more: Any) -> Asked:
        return Asked(workload, system, **{"seconds": self.seconds, "seed": self.options.seed, **more})

    def sustained(self, queries: int, system: str = MILLSTREAM) -> Search:
        """The search at a number of static aggregations and a million rows for each second, once for each system."""
        key = (system, queries)
        if key not in self.searches:
            slow = system in (SPARK, SPARK_MERGED) and queries > FEW_JOBS
            seconds = self.seconds * (LONGER if slow else 1)
            asked = self.asked("astream-static", system, queries=queries, seconds=seconds)
            self.searches[key] = self.campaign.search(asked, start_of(system, queries), self.candidates)
        return self.searches[key]

    def rate(self, queries: int, share: float = LOAD) -> float:
        best = self.sustained(queries).best
        return (best.spec.rate if best else 500_000.0) * share

    def so_far(self, machine: dict[str, Any], asked: dict[str, Any]) -> Suite:
        """What is to be kept of all sections that have run."""
        campaign = self.campaign
        runs = (tuple(campaign.searches), tuple(campaign.runs))
        return Suite("Millstream benchmark", machine, asked, *runs, tuple(self.claims), tuple(campaign.failures))

    def claim(self, name: str, wanted: float, got: float | None, unit: str, source: str, at_most: bool = False) -> None:
        self.claims.append(Claim(name, wanted, got, at_most, unit, source))


def _single(bench: _Bench) -> None:
    """One aggregation: every system on its own."""
    systems = [MILLSTREAM, MILLSTREAM_FRAME, MILLSTREAM_ROWS, SPARK, *([FLINK] if bench.options.flink else [])]
    found = {system: bench.sustained(1, system) for system in systems}
    plain = _rate(found[SPARK])
    source = "sustainable throughput of astream-static, 1 query"
    bench.claim(
        "1 aggregation, columnar source, of plain Spark", 2.0, _of(_rate(found[MILLSTREAM]), plain), "×", source
    )
    names = {MILLSTREAM_FRAME: "the same streaming DataFrame", MILLSTREAM_ROWS: "one whose rows Spark has to make"}
    for system, name in names.items():
        bench.claim(f"1 aggregation, {name}, of plain Spark", 0.91, _of(_rate(found[system]), plain), "×", source)


def _queries(bench: _Bench) -> None:
    """From 1 to 1000 aggregations, and plain Spark at the numbers it can run, also merged by hand."""
    ours = {number: bench.sustained(number) for number in ((1, MANY) if bench.options.quick else (1, 10, 100, MANY))}
    plain = [bench.sustained(number, SPARK) for number in ((1, 20) if bench.options.quick else (1, 5, 20))]
    if not bench.options.quick:
        bench.sustained(20, SPARK_MERGED)
    many = _overall(ours[MANY])
    best = max((rate for search in plain if (rate := _overall(search)) is not None), default=None)
    source = "sustainable throughput of astream-static"
    bench.claim("1000 aggregations, overall, of plain Spark at its best number", 1000.0, _of(many, best), "×", source)
    inputs = _of(_rate(ours[MANY]), _rate(ours[1]))
    bench.claim("1000 aggregations: input rate of that at 1", 0.6, inputs, "×", source)
    shares = [] if (run := ours[MANY].best) is None else [sharing_share(run)]
    bench.claim(
        "query-sets and bit-sets at 1000 queries, of processing", 0.2, shares[0] if shares else None, "×",
        "phases of the best run at 1000 queries", at_most=True,
    )  # fmt: skip


def _latency(bench: _Bench) -> None:
    """Event-time latency of 1000 queries with windows of a second, at a share of what is sustained."""
    asked = bench.asked("astream-second", queries=MANY, density=LIVE)
    found = bench.campaign.search(asked, bench.rate(MANY, 1.0), bench.candidates)
    best = found.best
    if best is None:
        bench.claim("event-time latency p99 at 70 %, 1000 queries, 1 s windows", 2.0, None, "s", "", at_most=True)
        return
    rate = best.spec.rate * LOAD
    runs = [latency(bench.campaign.run(asked, rate)) for _ in range(1 if bench.options.quick else LATENCY_RUNS)]
    p99s = [found.p99 for found in runs if found]
    source = f"astream-second at {rate / 1e6:.2f} M rows/s, the median of {', '.join(f'{p99:.1f}' for p99 in p99s)} s"
    p99 = median(p99s) if p99s else None
    bench.claim("event-time latency p99 at 70 %, 1000 queries, 1 s windows", 2.0, p99, "s", source, at_most=True)


def _deployment(bench: _Bench) -> None:
    """Creates and deletes while data flow: AStream's second scenario, and as many as are sustained."""
    result = bench.campaign.run(bench.asked("astream-sc2-50", seconds=bench.seconds * 2), bench.rate(100))
    sealed, effective = deployment(result, "acknowledged"), deployment(result, "effective")
    source = f"astream-sc2-50 at {result.spec.rate / 1e6:.2f} M rows/s"
    bench.claim("deployment p99, to the sealed epoch", 0.3, sealed.p99 if sealed else None, "s", source, at_most=True)
    bench.claim(
        "deployment p99, to the first micro-batch", 1.0, effective.p99 if effective else None, "s", source, at_most=True
    )
    churn = bench.campaign.run(bench.asked("astream-churn", queries=MANY), bench.rate(MANY, 0.5))
    rate = requests_a_second(churn) if churn.verdict.sustained else None
    bench.claim("creates and deletes a second, 1000 running", CHURN_RATE, rate, "/s", "astream-churn")


def _visitors(bench: _Bench) -> None:
    """What 100 new queries cost 100 running ones: the rate an overloaded system takes, before and after."""
    asked, rate = bench.asked("astream-double", queries=100), bench.rate(100, 1.5)
    runs = [bench.campaign.run(asked, rate) for _ in range(1 if bench.options.quick else VISITOR_RUNS)]
    effects = [effect for run in runs if (effect := visitors_effect(run)) is not None]
    source = f"astream-double, the median of {', '.join(f'{effect:.0%}' for effect in effects)}"
    effect = median(effects) if effects else None
    bench.claim("throughput that 100 running queries lose to 100 new ones", 0.1, effect, "×", source, at_most=True)


def _cores(bench: _Bench) -> None:
    """One core against all."""
    cores = available_cores()
    bench.sustained(MANY)
    if cores > 1:
        asked = bench.asked("astream-static", queries=MANY, cores=1)
        bench.campaign.search(asked, start_of(MILLSTREAM, MANY) / cores, bench.candidates)


def _density(bench: _Bench) -> None:
    """What a thousand queries sustain where a second of event time has fewer or more rows."""
    for density in DENSITIES[::2] if bench.options.quick else DENSITIES:
        asked = bench.asked("astream-static", queries=MANY, density=density)
        # What does not depend on rows, the windows that end, is most of the work of a second with few.
        bench.campaign.search(asked, start_of(MILLSTREAM, MANY) * min(1.5, density / 1e6), bench.candidates)
    bench.sustained(MANY)


def _workloads(bench: _Bench) -> None:
    """Every workload of the catalogue, once, at a rate that two cores bear: what happens, not how much is possible."""
    workloads = [workload for workload in WORKLOADS.values() if not workload.name.startswith("poison-")]
    cells = [(bench.asked(workload.name), MODEST / len(workload.streams)) for workload in workloads]
    bench.campaign.run_together(cells)


def _poison(bench: _Bench) -> None:
    """The latency of good queries beside each offender, against that of the same queries alone."""
    names = [name for name in WORKLOADS if name.startswith("poison-")]
    seconds = bench.seconds * (1 if bench.options.quick else 5)
    alone: float | None = None
    for name in names:
        length = 600.0 if name == "poison-loop" and not bench.options.quick else seconds
        result = bench.campaign.run(bench.asked(name, density=LIVE, seconds=length), MODEST)
        found = latency(result)
        p99 = found.p99 if found and not result.errors else None
        if alone is None:
            alone = p99
        else:
            title = f"latency p99 of {WORKLOADS[name].title}, of that alone"
            bench.claim(title, 2.0, _of(p99, alone), "×", name, at_most=True)


SECTIONS: dict[str, Callable[[_Bench], None]] = {
    "single": _single,
    "queries": _queries,
    "latency": _latency,
    "deployment": _deployment,
    "visitors": _visitors,
    "cores": _cores,
    "density": _density,
    "poison": _poison,
    "workloads": _workloads,
}
# About as many steps as each section has, for the progress line.
STEPS = {"single": 4, "queries": 7, "latency": 4, "deployment": 2, "visitors": 3, "cores": 2, "density": 3, "poison": 8}


def main(options: Options, console: Console | None = None) -> dict[str, Any]:
    """Run the sections, print tables, keep JSON, plots and the page; the result says where."""
    screen = console or Console(stderr=True, highlight=False)
    machine = describe_machine()
    if machine.busy:
        screen.print(f"the machine is busy (load {machine.load:.1f}); measure again when it is quiet")
    began = datetime.now(UTC)
    directory = options.out / f"bench-{began:%Y%m%dT%H%M%SZ}"
    steps = sum(STEPS.get(section, len(WORKLOADS)) for section in options.chosen)
    asked = {"seed": options.seed, "quick": options.quick, "began": began.isoformat()}
    with Campaign(directory, screen, steps).opened() as campaign:
        bench = _Bench(campaign, options)
        for number, section in enumerate(options.chosen, 1):
            SECTIONS[section](bench)
            suite = bench.so_far(asdict(machine), {**asked, "sections": list(options.chosen[:number])})
            # Whoever ends a long run early has the sections that are complete.
            save(suite, directory)
            write_page(suite, directory)
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
        "claims": [asdict(claim) for claim in suite.claims],
        "failures": list(suite.failures),
    }


def start_of(system: str, queries: int) -> float:
    """The rate that a search begins with. Queries that share their work cost little: a thousand a quarter of the rate.

    >>> start_of("spark", 20), round(start_of("millstream", 1000))
    (400000.0, 8038037)
    """
    shared: float = queries ** (0.2 if system == MILLSTREAM else 1.0)
    return HIGH[system] / shared


def requests_a_second(run: RunResult) -> float | None:
    """Creates and deletes that were acknowledged within the run, over the time since the first was due."""
    if not run.spec.requests:
        return None
    done = sum(one.acknowledged <= run.spec.seconds for one in run.deployments)
    return done / (run.spec.seconds - run.spec.requests[0].at)


def sharing_share(run: RunResult) -> float | None:
    """The share of the tasks' time that goes into finding the queries of each row, and the members of classes."""
    total = sum(run.phases.get(phase, 0.0) for phase in TASK_PHASES)
    return sum(run.phases.get(phase, 0.0) for phase in SHARING_PHASES) / total if total else None


# What a task's time is made of; "batch" and "fire" are the whole of it once more.
TASK_PHASES = (
    "read", "evaluate", "classes", "aggregate", "keep rows", "write", "fire: read", "fire: answer", "fire: write"
)  # fmt: skip
SHARING_PHASES = ("evaluate", "classes")


def visitors_effect(run: RunResult) -> float | None:
    """The share of the rate that was lost: a quarter of the run before the newcomers, against the last quarter."""
    arrival = min((request.at for request in run.spec.requests), default=None)
    if arrival is None:
        return None
    before = _taken(run, 0.0, arrival / 2, arrival)
    after = _taken(run, arrival, (arrival + run.spec.seconds) / 2, run.spec.seconds)
    return None if before is None or after is None else 1 - after / before


def _taken(run: RunResult, after: float, since: float, until: float) -> float | None:
    """Rows a second, from the end of one micro-batch to that of another: an overloaded system takes seconds for each,
    and says what it has taken when it is done. None of them ended before the moment ``after``."""
    ends = [sample for before, sample in pairwise(run.queue) if sample.taken > before.taken and sample.at > after]
    first = next((sample for sample in reversed(ends) if sample.at <= since), None)
    last = next((sample for sample in reversed(ends) if sample.at <= until), None)
    if first is None or last is None or first == last:
        return None
    return (last.taken - first.taken) / (last.at - first.at)


def _rate(search: Search) -> float | None:
    return search.best.spec.rate if search.best else None


def _overall(search: Search) -> float | None:
    return search.best.spec.rate * len(search.best.spec.initial) if search.best else None


def _of(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below else above / below
