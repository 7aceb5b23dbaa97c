"""Runs of the workload on the real engine, killed and started again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.chaos import workload
from tests.chaos.runs import DONE, KILLED, Kill, by_unit

ROOT = Path(__file__).resolve().parents[2]
# How long a process may take before it is taken to hang, in seconds: many times what it needs.
HANGS = 3600.0
ROUNDS = 10
# The engine runs by the clock of the wall, for which rows of the far future are of the past, and limits are its own.
LEFT_OUT = (workload.FAILED, workload.OFFENDER)


def prepare(folder: Path, seed: int) -> Path:
    """What every run of a seed begins with: the workload, and a file for each stream and round."""
    folder.mkdir(parents=True)
    made = workload.make(seed, folder, rounds=ROUNDS)
    actions = [replace(action, during=None) for action in made.actions if action.query not in LEFT_OUT]
    readers = {name: how for name, how in made.readers.items() if name not in LEFT_OUT}
    made = replace(made, actions=actions, readers=readers)
    (folder / "workload.json").write_text(json.dumps(made.dumps()))
    for name in workload.SCHEMAS:
        table = _without_future(pq.read_table(folder / f"{name}.parquet"))
        (folder / f"{name}.parquet").unlink()
        (folder / "rounds" / name).mkdir(parents=True)
        for number, first, last in made.batches[name]:
            pq.write_table(table.slice(first, last - first), folder / "rounds" / name / f"{number}.parquet")
    return folder


def _without_future(table: pa.Table) -> pa.Table:
    times = table.column("time").cast(pa.int64())
    known = pc.if_else(pc.less(times, workload.START + workload.SKEW), table.column("time"), None)
    return table.set_column(table.schema.get_field_index("time"), table.schema.field("time"), known)


class RealRun:
    """One home and its processes."""

    def __init__(self, folder: Path, prepared: Path) -> None:
        self.folder = folder
        self.deaths: list[str] = []
        shutil.copytree(prepared, folder)

    def finish(self, kills: Iterable[Kill] = (), **options: Any) -> None:
        """Die as asked, one process after the other, then run to the end."""
        for kill in kills:
            assert self.start(kill, **options) == KILLED, f"{kill} comes too late, after {self.deaths}"
            self.deaths.append(str(kill))
        code = self.start(**options)
        assert code == DONE, f"exit code {code} after {self.deaths}\n{self.log()}"

    def start(self, kill: Kill | None = None, **options: Any) -> int:
        """One process, from its start to its end. A time to be killed counts from when the engine runs."""
        kill = kill or Kill()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        environment |= {} if kill.at is None else {"MILLSTREAM_CRASH_AT": kill.at}
        command = [sys.executable, "-m", "tests.chaos.real_child", str(self.folder), json.dumps(options)]
        with open(self.folder / "child.log", "ab") as log:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, env=environment, cwd=ROOT, start_new_session=True
            )
        try:
            assert process.stdout is not None
            if kill.after is not None and process.stdout.readline():
                time.sleep(kill.after)
                os.killpg(process.pid, signal.SIGKILL)
            return process.wait(HANGS)
        finally:
            process.kill()

    def killed(self) -> list[str]:
        """What the process has killed of itself."""
        file = self.folder / "killed"
        return file.read_text().splitlines() if file.exists() else []

    def log(self) -> str:
        return (self.folder / "child.log").read_text(errors="replace")[-20_000:]

    def report(self) -> dict[str, Any]:
        """What came of it, without the name of the folder."""
        text = (self.folder / "report.json").read_text()
        found: dict[str, Any] = json.loads(text.replace(str(self.folder), "."))
        return found


def check(report: dict[str, Any], expected: dict[str, Any]) -> None:
    """Nothing lost, nothing twice, everything in force, no file too many or too few."""
    assert report["figures"].keys() == expected["figures"].keys()
    for query, answers in report["answers"].items():
        assert by_unit(answers) == by_unit(expected["answers"][query]), f"answers of {query}"
    for name in ("figures", "streams", "dead"):
        assert report[name] == expected[name], name
    assert report["files"] == report["named"], "files in the home and files that the metastore names"
