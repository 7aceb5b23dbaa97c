"""``make bench-scale``: how throughput, deployment latency and state change from 1 to 1000 queries, beside plain Spark.

Each system runs in a process of its own, one after the other, on the same files. Only ratios within one run count.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from millstream.bench import plot
from millstream.bench.dataset import Dataset, write_dataset
from millstream.bench.deploy_run import run_deploy
from millstream.bench.jobs import Cell, CellResult, DeployJob, MillstreamJob, PlainJob
from millstream.bench.machine import describe_machine
from millstream.bench.millstream_run import run_millstream
from millstream.bench.plain_run import run_plain
from millstream.bench.process import JobFailed, run_in_process
from millstream.bench.progress import Progress, Step
from millstream.bench.report import MANY, ONE, Measurements, as_json, input_rate
from millstream.bench.sizes import Sizes, sizes_of
from millstream.bench.tables import print_report
from millstream.bench.workload import DEFAULT_SEED
from millstream.cli.output import count
from millstream.config import nearest
from millstream.errors import SpecError

PARTS = ("plain", "dense", "sparse", "deploy")
# Deployment is measured at this share of the throughput at the most queries …
RATE_SHARE = 0.5
# … or, where that was not measured, at this many rows a second, which any two cores sustain.
FALLBACK_RATE = 500_000


@dataclass(frozen=True)
class Options:
    """What to run. ``rows`` None takes the default of the size; ``sizes`` overrides all of it."""

    out: Path = Path("bench-results")
    quick: bool = False
    rows: int | None = None
    seed: int = DEFAULT_SEED
    parts: tuple[str, ...] = PARTS
    sizes: Sizes | None = None

    def __post_init__(self) -> None:
        for part in self.parts:
            if part not in PARTS:
                raise SpecError("BAD_SPEC", f"the benchmark has no part {part!r}", hint=nearest(part, PARTS))


def main(options: Options, console: Console | None = None) -> dict[str, Any]:
    """Run the benchmark, print its tables, keep JSON and plot; the result is what the JSON file holds."""
    screen = console or Console(stderr=True, highlight=False)
    sizes = options.sizes or sizes_of(options.quick, options.rows)
    options.out.mkdir(parents=True, exist_ok=True)
    began = datetime.now(UTC)
    # Beside the results, not in a directory that may be memory: durability is part of what is measured.
    with tempfile.TemporaryDirectory(prefix="scale-work-", dir=options.out) as workspace:
        found = _Bench(sizes, options, str(Path(workspace).absolute()), screen).run()
    screen.print()
    print_report(found, screen)
    return _keep(found, options, sizes, began, screen)


def _keep(found: Measurements, options: Options, sizes: Sizes, began: datetime, screen: Console) -> dict[str, Any]:
    stem = f"scale-{began:%Y%m%dT%H%M%SZ}"
    picture, results = options.out / f"{stem}.png", options.out / f"{stem}.json"
    drawn = plot.draw(found, picture)
    asked = {"seed": options.seed, "quick": options.quick, "parts": options.parts, "began": began.isoformat()}
    body = as_json(found, asked | {"sizes": asdict(sizes)})
    body |= {"file": str(results), "plot": str(picture) if drawn else None}
    results.write_text(json.dumps(body, indent=1, default=str), encoding="utf-8")
    screen.print(f"kept in {results}" + (f" and {picture}" if drawn else ""), markup=False, soft_wrap=True)
    if not drawn:
        screen.print(plot.MISSING, markup=False)
    return body


@dataclass
class _Bench:
    """One run of the benchmark: what has been found so far, and what is next."""

    sizes: Sizes
    options: Options
    workspace: str
    screen: Console
    failures: list[str] = field(default_factory=list)

    def run(self) -> Measurements:
        machine = describe_machine()
        if machine.busy:
            self.screen.print(f"the machine is busy (load {machine.load:.1f}); measure again when it is quiet")
        parts = self.options.parts
        self._progress = Progress(self.screen, self._steps())
        found = Measurements(machine)
        dense = (
            self._dataset("dense", self.sizes.density, self.sizes.files) if {"plain", "dense"} & set(parts) else None
        )
        if dense is not None and "plain" in parts:
            by_store = self._stores(dense)
            found = replace(found, plain_by_store=by_store, plain=self._plain(dense, by_store))
        if dense is not None and "dense" in parts:
            found = replace(found, dense=self._dense(dense))
        if "sparse" in parts:
            found = replace(found, sparse=self._sparse())
        if "deploy" in parts:
            found = replace(found, deployment=self._deploy(input_rate(found.dense, max(found.dense, default=MANY))))
        return replace(found, failures=tuple(self.failures))

    def _steps(self) -> int:
        sizes, parts = self.sizes, self.options.parts
        dense = len(sizes.queries) if sizes.own_processes else 1
        many = sum(queries != ONE for queries in sizes.plain_queries)
        by_part = {"plain": len(sizes.stores) + many, "dense": dense, "sparse": 2, "deploy": 1}
        return sum(by_part[part] for part in parts) + (1 if {"plain", "dense"} & set(parts) else 0)

    def _dataset(self, name: str, density: int, files: int) -> Dataset:
        directory = str(Path(self.workspace) / f"data-{name}")
        dataset = Dataset(directory, files, self.sizes.file_rows, density, self.options.seed)
        with self._progress.step(f"files, {count(density)} rows for each second of event time") as step:
            write_dataset(dataset, lambda share: step.tell(share, f"{share * dataset.rows / 1e6:.0f} M rows"))
            step.result = f"{files} files, {count(dataset.rows)} rows"
        return dataset

    def _cell(self, dataset: Dataset, queries: int, files: int, checked: int | None = None) -> Cell:
        sizes = self.sizes
        files = min(files, dataset.files)
        return Cell(dataset, files, sizes.files_per_batch, queries, self.options.seed, sizes.repeats, checked)

    def _stores(self, dataset: Dataset) -> dict[str, CellResult]:
        """Plain Spark with one query, once with each state store."""
        cell = self._cell(dataset, ONE, self.sizes.files_for(self.sizes.plain_share))
        found = {}
        for store in self.sizes.stores:
            job = PlainJob((cell,), self.workspace, store)
            for result in self._measured(f"plain Spark, 1 query, {store} state", job):
                found[store] = result
        return found

    def _plain(self, dataset: Dataset, by_store: dict[str, CellResult]) -> dict[int, CellResult]:
        """Plain Spark's cells with the faster store."""
        if not by_store:
            return {}
        store, best = max(by_store.items(), key=lambda item: item[1].best.throughput.input_rate)
        found = {ONE: best}
        for queries in self.sizes.plain_queries:
            if queries != ONE:
                cell = self._cell(dataset, queries, self.sizes.files_for(self.sizes.plain_many_share))
                job = PlainJob((cell,), self.workspace, store)
                for result in self._measured(f"plain Spark, {queries} queries", job):
                    found[queries] = result
        return found

    def _dense(self, dataset: Dataset) -> dict[int, CellResult]:
        checked = self.sizes.files_for(self.sizes.plain_share)
        cells = [self._cell(dataset, queries, dataset.files, checked) for queries in self.sizes.queries]
        jobs = [(cell,) for cell in cells] if self.sizes.own_processes else [tuple(cells)]
        results = [r for job in jobs for r in self._measured(_title(job), MillstreamJob(job, self.workspace))]
        return {result.cell.queries: result for result in results}

    def _sparse(self) -> dict[int, CellResult]:
        """Reported, not judged: one process and one run for all."""
        sizes = self.sizes
        dataset = self._dataset("sparse", sizes.sparse_density, sizes.files_for(sizes.sparse_share))
        cells = tuple(replace(self._cell(dataset, q, dataset.files), repeats=1) for q in sizes.sparse_queries)
        title = f"{_title(cells)}, {count(sizes.sparse_density)} rows for each second"
        results = self._measured(title, MillstreamJob(cells, self.workspace))
        return {result.cell.queries: result for result in results}

    def _deploy(self, sustained: float | None) -> Any:
        rate = FALLBACK_RATE if sustained is None else max(1, int(sustained * RATE_SHARE))
        s = self.sizes
        job = DeployJob(s.levels, rate, s.samples, s.storm_rate, s.storm_seconds, self.options.seed, self.workspace)

        def run(step: Step) -> Any:
            result = run_in_process(run_deploy, job, step.tell)
            sealed = ", ".join(f"{level.running}: {level.sealed.p99 * 1000:.0f} ms" for level in result.levels)
            step.result = f"sealed p99 beside {sealed}"
            return result

        return self._tried(f"deployment beside {count(rate)} rows/s", run)

    def _measured(self, title: str, job: MillstreamJob | PlainJob) -> tuple[CellResult, ...]:
        def run(step: Step) -> tuple[CellResult, ...]:
            results = (
                run_in_process(run_millstream, job, step.tell)
                if isinstance(job, MillstreamJob)
                else run_in_process(run_plain, job, step.tell)
            )
            step.result = ", ".join(f"{count(r.best.throughput.input_rate)} rows/s" for r in results)
            return results

        return self._tried(title, run) or ()

    def _tried(self, title: str, run: Callable[[Step], Any]) -> Any:
        """One part that fails does not cost the others: it is reported, and its targets count as not measured."""
        with self._progress.step(title) as step:
            try:
                return run(step)
            except JobFailed as error:
                self.failures.append(f"{title}: {error}")
                step.result = f"failed, {str(error).splitlines()[0]}"
                return None


def _title(cells: tuple[Cell, ...]) -> str:
    numbers = ", ".join(str(cell.queries) for cell in cells)
    return f"Millstream, {numbers} {'query' if numbers == '1' else 'queries'}"
