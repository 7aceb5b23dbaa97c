"""The process that is killed, or whose parts are killed: an engine on Spark that does the workload by rounds.

    round k:  changes of k ► a file for each stream ► wait until all of it is processed and fired ► read with cursors

A batch is a round, so what a query sees follows from the workload, whatever was killed. What its clients know is in
``client/``; a process that is started again goes on with the round in which the one before died.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream import Engine, MillstreamError, ParquetFiles
from millstream.config import Settings
from millstream.engine import answers
from millstream.engine.core import Core
from millstream.errors import CatalogError
from millstream.runtime.home import Home
from tests.chaos import disturb
from tests.chaos.child import OWNER, PAGE_ROWS, _figures, _plain, _stream_figures, _write_json
from tests.chaos.clients import Clients
from tests.chaos.stand_in import InProcess
from tests.chaos.workload import QUERIES, SCHEMAS, Action, Workload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(folder: str, options: dict[str, Any]) -> int:
    place = Path(folder)
    answers.PAGE_ROWS = PAGE_ROWS
    try:
        RealChild(place, options).run()
    except MillstreamError as error:
        _write_json(place / "error.json", error.as_dict())
        traceback.print_exc()
        return 3
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


class RealChild:
    """``options``: ``master`` of a cluster with the processes ``hosts`` of its workers; ``disturb``, by round, what to
    kill while the round's batches run."""

    def __init__(self, place: Path, options: dict[str, Any]) -> None:
        self.place = place
        self.work = Workload.loads(json.loads((place / "workload.json").read_text()))
        self.clients = Clients(place / "client")
        self.master: str | None = options.get("master")
        self.hosts: list[int] = options.get("hosts", [])
        self.plan: dict[str, str] = options.get("disturb", {})
        self.engine = self.open()

    def open(self) -> Engine:
        settings = Settings(parallelism=2)
        engine = Engine(home=self.place / "home", spark=self.session(), settings=settings)
        known = {stream.name for stream in engine.streams()}
        for name, schema in SCHEMAS.items():
            folder = self.place / "in" / name
            folder.mkdir(parents=True, exist_ok=True)
            if name not in known:
                files = ParquetFiles(str(folder), schema=schema, max_files_per_batch=1)
                engine.create_stream(name, files, time="time", lateness="1 second")
        print("running", flush=True)
        return engine

    def session(self) -> SparkSession | None:
        if self.master is None:
            return None
        from tests.chaos.cluster import session

        return session(self.master)

    def run(self) -> None:
        for number in range(self.clients.round, self.work.rounds):
            for action in self.work.actions:
                if action.round == number and not self.clients.acknowledged(action.key):
                    self.change(action)
                    self.clients.acknowledge(action.key)
            self.one_round(number)
            self.read_all()
            self.clients.finish_round(number + 1)
        self.finish()

    def change(self, action: Action) -> None:
        query = action.query
        if action.kind == "create":
            made = self.engine.create_query(QUERIES[query], owner=OWNER, id=query, key=query)
            assert made.id == query
            return
        try:
            self.engine.delete_query(query)
        except CatalogError as error:
            # The first request did it, and nobody could tell us.
            if error.code != "QUERY_DELETED":
                raise

    def one_round(self, number: int) -> None:
        kind = self.plan.get(str(number))
        if kind is None:
            self.feed(number)
            self.engine.await_idle()
        elif kind == "spark":
            disturb.lose_spark(self, number)
        else:
            done = threading.Event()
            killer = threading.Thread(target=disturb.kill_during, args=(self, kind, done), daemon=True)
            with disturb.armed(self, kind, number):
                killer.start()
                self.feed(number)
                self.engine.await_idle()
            done.set()
            killer.join()

    def feed(self, number: int) -> None:
        """Let the round's files appear, each under its name and whole."""
        for name in SCHEMAS:
            source, target = self.place / "rounds" / name / f"{number}.parquet", self.place / "in" / name
            if source.exists() and not (target / source.name).exists():
                (target / f".{source.name}").write_bytes(source.read_bytes())
                (target / f".{source.name}").rename(target / source.name)

    def killed(self, what: str) -> None:
        """Keep account of what was killed, for the parent."""
        with open(self.place / "killed", "a") as file:
            file.write(f"{what}\n")

    def read_all(self) -> None:
        for query, (_, limit) in self.work.readers.items():
            if not self.clients.acknowledged(f"create {query}"):
                continue
            cursor = self.clients.cursor(query)
            while True:
                page = self.engine.read_answers(query, cursor, limit)
                if not page.answers:
                    break
                self.clients.keep_page(query, cursor, page.cursor, [_plain(answer) for answer in page.answers])
                cursor = page.cursor

    def finish(self) -> None:
        figures = {record.id: _timeless(_figures(record)) for record in self.engine._core.metastore.queries()}
        streams = {state.stream.name: _stream_figures(state) for state in self.engine._core.metastore.streams()}
        self.engine.stop()
        # Files of tasks that were killed are swept at the next start, which needs no Spark.
        core = Core(Home(str(self.place / "home")), InProcess(1))  # type: ignore[arg-type]
        core.sweep()
        paths = [path for name in SCHEMAS for _, path in core.metastore.dead_letters(name)]
        report = {
            "answers": {query: self.clients.answers(query) for query in figures},
            "figures": figures,
            "streams": streams,
            "dead": sorted(line for path in paths for line in Path(core.home.path(path)).read_text().splitlines()),
            "files": sorted(core.home.files()),
            "named": sorted(core.metastore.referenced_files()),
        }
        core.close()
        _write_json(self.place / "report.json", report)


def _timeless(figures: dict[str, Any]) -> dict[str, Any]:
    """How far a frontier goes beyond the last window that was due depends on when fires ran."""
    return {name: value for name, value in figures.items() if name != "fired_to"}


if __name__ == "__main__":
    code = main(sys.argv[1], json.loads(sys.argv[2]))
    sys.stderr.flush()
    os._exit(code)
