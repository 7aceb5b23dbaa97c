"""The results of a suite, one for each search and each run of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from millstream.bench.driving.model import RunResult, RunSpec, Search, Suite
from millstream.bench.reporting.figures import most_queries
from millstream.bench.reporting.joins import rows_of_run
from millstream.cli.output import count


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """What must be the same for two results to be measurements of one thing."""

    workload: str
    system: str
    queries: int
    density: int
    cores: int

    @classmethod
    def of(cls, spec: RunSpec) -> Cell:
        return cls(spec.workload, spec.system, most_queries(spec), spec.density, spec.cores)


# What tells the cells of a workload and system apart, and how it is said.
PARTS: dict[str, Callable[[Cell], str]] = {
    "queries": lambda cell: "1 query" if cell.queries == 1 else f"{count(cell.queries)} queries",
    "density": lambda cell: f"density {count(cell.density)}" if cell.density else "density of the rate",
    "cores": lambda cell: "1 core" if cell.cores == 1 else f"{cell.cores} cores",
}


def distinct_names(cells: Sequence[Cell], but: Sequence[str] = ()) -> list[str]:
    """Each cell by its workload and system, as far as they differ, and the other parts in which some differ.

    >>> distinct_names([Cell("w", "spark", 1, 10, 2), Cell("w", "spark", 5, 10, 2)])
    ['spark, 1 query', 'spark, 5 queries']
    """
    several = [part for part in PARTS if part not in but and len({getattr(cell, part) for cell in cells}) > 1]
    heads = ["workload", "system"] if len({cell.workload for cell in cells}) > 1 else ["system"]
    return [
        ", ".join([*(getattr(cell, head) for head in heads), *(PARTS[part](cell) for part in several)])
        for cell in cells
    ]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run; of a search the highest rate that was sustained, else the lowest that was tried."""

    run: RunResult
    search: Search | None = None

    @property
    def cell(self) -> Cell:
        return Cell.of(self.run.spec)

    @property
    def system(self) -> str:
        """Its name, and of joins what became of their rows, where the name does not say it."""
        name, rows = self.run.spec.system, rows_of_run(self.run.spec)
        return name if rows is None or name.endswith(f"-{rows}") else f"{name}, {rows}"

    @property
    def sustained(self) -> bool:
        return self.run.verdict.sustained

    @property
    def words(self) -> str:
        """The verdict, short."""
        if self.search is None:
            return "failed" if self.run.failed else "sustained" if self.sustained else "not sustained"
        tried = len(self.search.runs)
        words = "1 rate" if tried == 1 else f"{tried} rates"
        return f"highest sustained of {words}" if self.sustained else f"none of {words} sustained"


def outcome_of(search: Search) -> Outcome | None:
    """None where nothing was tried."""
    if not search.runs:
        return None
    return Outcome(search.best or min(search.runs, key=lambda run: run.spec.rate), search)


def outcomes(suite: Suite) -> list[Outcome]:
    """Searches first, each in the order of the suite."""
    found = [outcome for search in suite.searches if (outcome := outcome_of(search)) is not None]
    return [*found, *(Outcome(run) for run in suite.runs)]


def by_workload(found: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    """In the order in which the workloads appear."""
    sections: dict[str, list[Outcome]] = {}
    for outcome in found:
        sections.setdefault(outcome.cell.workload, []).append(outcome)
    return sections


def all_runs(suite: Suite) -> list[RunResult]:
    """Every run once, the candidates of searches included."""
    listed = [*(run for search in suite.searches for run in search.runs), *suite.runs]
    return list({id(run): run for run in listed}.values())
