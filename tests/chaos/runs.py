"""Runs of the workload under fire, and the comparison with the undisturbed run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos import workload
from tests.chaos.forks import ForkServers

DONE, STOPPED, KILLED = 0, 3, -9
# Runs at the same time: one waits for the disk or for its reader while another computes.
AT_ONCE = 2


@dataclass(frozen=True)
class Kill:
    """Where a process dies: at a crash point (``name:n``), or after some seconds; ``options`` go to the child."""

    at: str | None = None
    after: float | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.at or f"after {self.after:.3f} s"


class Run:
    """One home and its processes. ``url`` names the metastore where it is not inside the home."""

    def __init__(self, servers: ForkServers, folder: Path, prepared: Path, url: str | None = None) -> None:
        self.folder = folder
        self.deaths: list[str] = []
        self._servers = servers
        self._options = {} if url is None else {"url": url}
        folder.mkdir(parents=True)
        for file in prepared.iterdir():
            shutil.copy(file, folder)

    def start(self, kill: Kill | None = None, **options: Any) -> int:
        """One process, from its start to its end; gives its exit code."""
        kill = kill or Kill()
        chosen = {**self._options, **kill.options, **options, "crash_at": kill.at, "kill_after": kill.after}
        code = self._servers.run(self.folder, **chosen)
        if code == KILLED:
            self.deaths.append(str(kill))
        elif code not in (DONE, STOPPED):
            raise AssertionError(f"{self.folder} after {self.deaths}: exit code {code}\n{self.log()}")
        return code

    def start_well(self, kill: Kill) -> int:
        """The same, and no stream stops with an error."""
        code = self.start(kill)
        self._expect_no_error(code)
        return code

    def finish(self, kills: Iterable[Kill] = ()) -> list[Kill]:
        """Die as asked, one process after the other, then run to the end; gives the kills that came too late."""
        waiting = list(kills)
        while waiting:
            if self.start_well(waiting[0]) == DONE:
                return waiting
            del waiting[0]
        self._expect_no_error(code := self.start())
        assert code == DONE, f"{self.folder} after {self.deaths}: killed by somebody else"
        return []

    def _expect_no_error(self, code: int) -> None:
        if code == STOPPED:
            raise AssertionError(f"{self.folder} after {self.deaths}: {self.error()}")

    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "error.json").read_text())
        return found

    def log(self) -> str:
        return (self.folder / "child.log").read_text()

    def report(self) -> dict[str, Any]:
        """What came of it, without the name of the folder."""
        text = (self.folder / "report.json").read_text()
        found: dict[str, Any] = json.loads(text.replace(str(self.folder), "."))
        return found

    def passes(self) -> list[list[tuple[str, str]]]:
        """The crash points that each process has passed: name, and path of the file where there is one."""
        processes: list[list[tuple[str, str]]] = []
        for line in (self.folder / "passes").read_text().split("\n")[:-1]:
            name, _, about = line.partition(" ")
            if name == "start":
                processes.append([])
            else:
                processes[-1].append((name, about))
        return processes


def together(jobs: Iterable[Callable[[], Run]]) -> list[Run]:
    """Several runs, some at a time; the first that fails is told when all have ended."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [done.result() for done in [pool.submit(job) for job in jobs]]


def prepare(folder: Path, queries: dict[str, str], seed: int, **sizes: int) -> Path:
    """A folder with what every run of a seed begins with."""
    folder.mkdir(parents=True)
    made = workload.make(seed, folder, **sizes)
    (folder / "workload.json").write_text(json.dumps(made.dumps()))
    (folder / "queries.json").write_text(json.dumps(queries))
    return folder


def by_unit(answers: Sequence[Any]) -> dict[str, Any]:
    """Answers by window or batch, rows sorted; pieces are put together, and every unit comes once and whole."""
    units: dict[str, Any] = {}
    for window, partial, batch, offset, total, rows in answers:
        partial_before, read, before = units.get(f"{window} {batch}", (partial, 0, []))
        assert (partial_before, offset) == (partial, read), f"a piece of {window} {batch} is lost or comes twice"
        units[f"{window} {batch}"] = (partial, read + len(rows), before + rows)
        assert read + len(rows) <= total, f"{window} {batch} comes twice"
    totals = {f"{window} {batch}": total for window, _, batch, _, total, _ in answers}
    assert {unit: read for unit, (_, read, _) in units.items()} == totals
    return {unit: [partial, sorted(rows)] for unit, (partial, _, rows) in units.items()}


def check(report: dict[str, Any], expected: dict[str, Any]) -> None:
    """Nothing lost, nothing twice, everything in force, no file too many or too few."""
    for query, answers in report["answers"].items():
        found = by_unit(answers)
        assert found == by_unit(expected["answers"][query]), f"answers of {query}"
        kept = by_unit(report["kept"].get(query, []))
        assert list(kept) == list(found)[len(found) - len(kept) :], f"answers kept of {query}"
        assert all(found[unit] == answer for unit, answer in kept.items()), f"answers kept of {query}"
    for name in ("figures", "streams", "dead", "running", "members"):
        assert report[name] == expected[name], name
    assert report["members"] == len(report["running"]), "queries that run and members of groups"
    assert report["files"] == report["named"], "files in the home and files that the metastore names"


def undisturbed(run: Run, check_passes: Callable[[list[str]], None] = lambda passes: None) -> dict[str, Any]:
    """The report of a run that nobody disturbs."""
    run.finish()
    report = run.report()
    check(report, report)
    check_passes([name for name, _ in run.passes()[0]])
    return report
