"""``make bench-joins``: joins at 1 to 500 queries beside plain Spark, n-way joins, and the price of large answers.

Each system runs in a process of its own, one after the other, on the same rows. Only ratios within one run count.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from millstream.bench.join_apart import run_apart
from millstream.bench.join_data import write_feed
from millstream.bench.join_jobs import ApartJob, ApartResult, CellFailed, JoinCell, JoinJob, JoinResult, PlainJoinJob
from millstream.bench.join_plain import run_plain_joins
from millstream.bench.join_plan import WAYS, Plan, feeds
from millstream.bench.join_plot import draw_joins
from millstream.bench.join_report import JoinMeasurements, join_json
from millstream.bench.join_run import run_joins
from millstream.bench.join_sizes import JoinSizes, join_sizes_of
from millstream.bench.join_tables import print_join_report
from millstream.bench.join_workload import DEFAULT_SEED
from millstream.bench.machine import describe_machine
from millstream.bench.plot import MISSING
from millstream.bench.process import JobFailed, run_in_process
from millstream.bench.progress import Progress, Step
from millstream.bench.report import ONE
from millstream.cli.output import count
from millstream.config import nearest
from millstream.errors import SpecError

PARTS = ("plain", "ours", "sweep", "ways", "apart")

Key = TypeVar("Key")
Found = TypeVar("Found")
# The results of a job's cells; a cell that failed is missing.
Results = Mapping[JoinCell, JoinResult]


@dataclass(frozen=True)
class Options:
    """What to run; ``sizes`` overrides ``quick``."""

    out: Path = Path("bench-results")
    quick: bool = False
    seed: int = DEFAULT_SEED
    parts: tuple[str, ...] = PARTS
    sizes: JoinSizes | None = None

    def __post_init__(self) -> None:
        for part in self.parts:
            if part not in PARTS:
                raise SpecError("BAD_SPEC", f"the benchmark has no part {part!r}", hint=nearest(part, PARTS))


def main(options: Options, console: Console | None = None) -> dict[str, Any]:
    """Run the benchmark, print its tables, keep JSON and plot; the result is what the JSON file holds."""
    screen = console or Console(stderr=True, highlight=False)
    sizes = options.sizes or join_sizes_of(options.quick)
    options.out.mkdir(parents=True, exist_ok=True)
    began = datetime.now(UTC)
    # Beside the results, not in a directory that may be memory: durability is part of what is measured.
    with tempfile.TemporaryDirectory(prefix="joins-work-", dir=options.out) as folder:
        found = _Bench(sizes, options, str(Path(folder).absolute()), screen).run()
    screen.print()
    print_join_report(found, screen)
    return _keep(found, options, sizes, began, screen)


def _keep(
    found: JoinMeasurements, options: Options, sizes: JoinSizes, began: datetime, screen: Console
) -> dict[str, Any]:
    stem = f"joins-{began:%Y%m%dT%H%M%SZ}"
    picture, results = options.out / f"{stem}.png", options.out / f"{stem}.json"
    drawn = draw_joins(found, picture)
    asked = {"seed": options.seed, "quick": options.quick, "parts": options.parts, "began": began.isoformat()}
    body = join_json(found, asked | {"sizes": asdict(sizes)})
    body |= {"file": str(results), "plot": str(picture) if drawn else None}
    results.write_text(json.dumps(body, indent=1, default=str), encoding="utf-8")
    screen.print(f"kept in {results}" + (f" and {picture}" if drawn else ""), markup=False, soft_wrap=True)
    if not drawn:
        screen.print(MISSING, markup=False)
    return body


@dataclass
class _Bench:
    """One run of the benchmark: what has been found so far, and what is next."""

    sizes: JoinSizes
    options: Options
    workspace: str
    screen: Console
    failures: list[str] = field(default_factory=list)

    def run(self) -> JoinMeasurements:
        machine = describe_machine()
        if machine.busy:
            self.screen.print(f"the machine is busy (load {machine.load:.1f}); measure again when it is quiet")
        self._plan = Plan(self.sizes, self.workspace, self.options.seed)
        self._progress = Progress(self.screen, self._steps())
        found = JoinMeasurements(machine)
        by_part = {"plain": self._plain, "ours": self._ours, "sweep": self._sweep, "ways": self._ways}
        for part, measure in by_part.items():
            if part in self.options.parts:
                found = measure(found)
        if "apart" in self.options.parts:
            found = replace(found, apart=self._apart())
        return replace(found, failures=tuple(self.failures))

    def _steps(self) -> int:
        plain = len(self.sizes.stores) + (1 if set(self.sizes.plain_queries) - {ONE} else 0)
        by_part = {"plain": plain, "ours": len(self.sizes.workloads), "sweep": 1, "ways": 1, "apart": 1}
        return sum(by_part[part] for part in self.options.parts)

    def _plain(self, found: JoinMeasurements) -> JoinMeasurements:
        """One query with each state store, then the others with the faster one."""
        cells = {kind.name: self._plan.plain(kind) for kind in self._plan.kinds}
        singles = [mine[ONE] for mine in cells.values() if ONE in mine]
        by_store: dict[str, dict[str, JoinResult]] = {}
        for store in self.sizes.stores:
            results = self._run_plain(f"plain Spark, 1 query, {store} state", singles, store)
            for name, result in _by_key({cell.workload: cell for cell in singles}, results).items():
                by_store.setdefault(name, {})[store] = result
        best = max(self.sizes.stores, key=lambda s: sum(r[s].answered_rate for r in by_store.values() if s in r))
        others = [cell for mine in cells.values() for n, cell in mine.items() if n != ONE]
        results = self._run_plain("plain Spark, more queries", others, best) if others else {}
        plain = {name: _by_key(mine, results) for name, mine in cells.items()}
        for name, stores in by_store.items():
            if best in stores:
                plain[name] = {ONE: stores[best], **plain[name]}
        return replace(found, plain=plain, plain_by_store=by_store)

    def _run_plain(self, title: str, cells: list[JoinCell], store: str) -> Results:
        cells = [self._plan.plain_warm_up(self._plan.kinds[0]), *cells]
        return self._cells(
            title,
            cells,
            lambda tell: run_in_process(run_plain_joins, PlainJoinJob(tuple(cells), self.workspace, store), tell.tell),
        )

    def _ours(self, found: JoinMeasurements) -> JoinMeasurements:
        ours, checked = {}, {}
        for kind in self._plan.kinds:
            cells, check = self._plan.ours(kind), self._plan.checked(kind)
            # Twice: the first round also pays for memory that the machine has not handed out before.
            first = {key: replace(cell, drain_rows=0) for key, cell in cells.items()}
            every = [self._plan.warm_up(kind), *first.values(), *cells.values(), check]
            results = self._run_ours(f"Millstream, {kind.name}", every)
            before = _by_key(first, results)
            ours[kind.name] = {key: _better(one, before.get(key)) for key, one in _by_key(cells, results).items()}
            if check in results:
                checked[kind.name] = results[check]
        return replace(found, ours=ours, checked=checked)

    def _sweep(self, found: JoinMeasurements) -> JoinMeasurements:
        cells = self._plan.sweep()
        warm_up = replace(next(iter(cells.values())), queries=2, drain_rows=0)
        return replace(found, sweep=_by_key(cells, self._run_ours("rows for each key", [warm_up, *cells.values()])))

    def _ways(self, found: JoinMeasurements) -> JoinMeasurements:
        cells = {name: self._plan.ways(name) for name in WAYS}
        every = [cell for mine in cells.values() for cell in mine.values()]
        warm_up = replace(every[0], queries=2, drain_rows=0)
        results = self._run_ours("joins of several streams", [warm_up, *every])
        return replace(found, ways={name: _by_key(mine, results) for name, mine in cells.items()})

    def _run_ours(self, title: str, cells: list[JoinCell]) -> Results:
        job = JoinJob(tuple(cells), self.workspace)
        return self._cells(title, cells, lambda step: run_in_process(run_joins, job, step.tell))

    def _apart(self) -> ApartResult | None:
        sizes = self.sizes
        job = ApartJob(sizes.aggregated_keys, sizes.aggregated_per_key, sizes.hot_rows, self.workspace)

        def run(step: Step) -> ApartResult:
            result = run_in_process(run_apart, job, step.tell)
            step.result = f"{count(result.memory.read_rows)} rows read in {result.memory.read_seconds:.0f} s"
            return result

        return self._tried("aggregation without pairs, and a large answer", run)

    def _cells(
        self,
        title: str,
        cells: list[JoinCell],
        run: Callable[[Step], Iterable[JoinResult | CellFailed]],
    ) -> Results:
        """Write the files that the cells need, and run them; a cell that fails does not cost the others."""

        def measured(step: Step) -> Results:
            step.tell(0.0, "writing files")
            for feed, streams in feeds(cells):
                write_feed(feed, streams)
            found: dict[JoinCell, JoinResult] = {}
            for one in run(step):
                if isinstance(one, CellFailed):
                    self.failures.append(f"{title}, {one.cell.workload}, {one.cell.queries} queries: {one.reason}")
                else:
                    found[one.cell] = one
            rates = ", ".join(count(found[c].answered_rate) if c in found else "failed" for c in cells)
            step.result = f"{rates} rows/s"
            return found

        return self._tried(title, measured) or {}

    def _tried(self, title: str, run: Callable[[Step], Found]) -> Found | None:
        """One part that fails does not cost the others: it is reported, and its targets count as not measured."""
        with self._progress.step(title) as step:
            try:
                return run(step)
            except JobFailed as error:
                self.failures.append(f"{title}: {error}")
                step.result = f"failed, {str(error).splitlines()[0]}"
                return None


def _better(result: JoinResult, before: JoinResult | None) -> JoinResult:
    """The better of two rounds; answers are read in the second."""
    if before is None or before.answered_rate <= result.answered_rate:
        return result
    return replace(result, throughput=before.throughput, commits=before.commits, phases=before.phases)


def _by_key(cells: Mapping[Key, JoinCell], results: Results) -> dict[Key, JoinResult]:
    return {key: results[cell] for key, cell in cells.items() if cell in results}
