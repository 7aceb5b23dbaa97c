"""The process that is killed: an engine without Spark that does a workload, as far as it has not been done before.

It finds everything it needs in its folder, and goes on where the last process died:

    workload.json  queries.json  *.parquet     what to do
    home/                                      the engine's home
    client/                                    what its clients know: acknowledged changes, rounds done, pages read
    passes                                     every crash point passed, a line each; the last process is the last part
    report.json                                what came of it
"""

from __future__ import annotations

import json
import os
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from millstream import crashpoints
from millstream.catalog.metastore import QueryRecord
from millstream.engine import answers, firing
from millstream.engine.changelog import Changelog
from millstream.engine.core import Core
from millstream.engine.pipeline import Pipeline
from millstream.engine.registry import NewRequest
from millstream.engine.status import Answer
from millstream.errors import CatalogError, MillstreamError
from millstream.kernels import join_fire
from millstream.model import codec
from millstream.runtime.home import Home
from millstream.runtime.worker import IngestTask
from millstream.server.discovery import Endpoint, announce, withdraw
from millstream.sources.recipes import splits_text
from millstream.sources.splits import FileSplit, Split
from tests.chaos import workload
from tests.chaos.clients import Clients
from tests.chaos.stand_in import Checkpoint, InProcess
from tests.chaos.workload import Action, Workload

# Pages so small that cursors lie inside of answers.
PAGE_ROWS = 25
OWNER = "chaos"


def main(folder: str, options: dict[str, Any]) -> int:
    """Do what is left of the workload of a folder. 0 when it is done, 3 when a stream has stopped with an error."""
    place = Path(folder)
    os.environ["HOME"] = folder
    answers.PAGE_ROWS = PAGE_ROWS
    join_fire.MOST_PAIRS = workload.MOST_PAIRS
    # Every group but the lightest of a stream is heavy.
    firing.LIGHT, firing.HEAVIER = 1, 0
    crashpoints.observe(_observer(place, options.get("crash_at")))
    try:
        child = Child(place, options)
        child.run()
    except MillstreamError as error:
        _write_json(place / "error.json", error.as_dict())
        return 3
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _observer(place: Path, crash_at: str | None) -> crashpoints.Observer:
    """Keep a journal of the points passed, then die where asked."""
    journal = os.open(place / "passes", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(journal, b"start\n")
    switch = crashpoints.Switch.parse(crash_at or f"{crashpoints.ANY}:0")

    def observe(name: str, about: str) -> None:
        os.write(journal, f"{name} {about}\n".encode())
        switch(name, about)

    return observe


def _write_json(file: Path, value: object) -> None:
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps(value))
    draft.replace(file)


class Child:
    """``options``: ``url`` of the metastore, ``replan`` other batches than the first time."""

    def __init__(self, place: Path, options: dict[str, Any]) -> None:
        self.place = place
        self.work = Workload.loads(json.loads((place / "workload.json").read_text()))
        texts = json.loads((place / "queries.json").read_text())
        self.queries = {name: codec.loads(text) for name, text in texts.items()}
        self.clients = Clients(place / "client")
        self.replan = bool(options.get("replan"))
        self.round = self.clients.round
        home = Home(str(place / "home"))
        self.spark = InProcess(self.work.tasks)
        self.core = Core(home, self.spark, options.get("url"), clock=self.clock)  # type: ignore[arg-type]
        self.core.sweep()
        self.changelog = Changelog(self.core.registry, 0.0, 1, self.core.metastore.outage)
        for stream in workload.streams():
            if stream.name not in self.core.pipelines:
                self.core.add_stream(stream)
        self.checkpoints = {name: Checkpoint(home.checkpoint(name)) for name in workload.SCHEMAS}

    def clock(self) -> int:
        """It moves with the rounds, so that a repeated round finds the same time."""
        return workload.START + (self.round + 1) * workload.ROUND

    def run(self) -> None:
        endpoint = Endpoint("http://nowhere", str(self.place / "home"), os.getpid(), "", "")
        announce(endpoint)
        while self.round < self.work.rounds:
            self.one_round()
            self.round += 1
            self.clients.finish_round(self.round)
        self.finish()
        withdraw(endpoint)
        self.changelog.stop()
        self.core.close()

    def one_round(self) -> None:
        number, core = self.round, self.core
        self.change(None)
        for name in workload.SCHEMAS:
            self.batch(name)
        for kind, when in self.work.damages.items():
            if when == number and not self.clients.acknowledged(f"damage {kind}"):
                self.damage(kind)
                self.clients.acknowledge(f"damage {kind}")
        if number in self.work.idles:
            core.pipelines["ads"].last_rows = workload.START
            core.follow("ads")
        if number in self.work.fires:
            self.fire_beside()
        for query, (every, limit) in self.work.readers.items():
            if number % every == 0:
                self.read(query, limit)
        if number in self.work.tidies:
            # Files have the times of the real clock, so no dead letter is too old.
            core.tidy(workload.RETENTION_ROUNDS * workload.ROUND, workload.START)
        if number in self.work.fires:
            # What has not had its turn: a query that is stopped later must have had its answers by then.
            core.fire_all()

    def fire_beside(self) -> None:
        """Fire as a live engine does: what is heavy goes on while joins fire, answers are read, and files are tidied
        up."""
        for pipeline in self.core.pipelines.values():
            self.core.firing.fire(pipeline, aside=True)
        for name in self.core.metastore.joins():
            self.core.joining.fire(name)

    def change(self, during: str | None) -> None:
        """Send the changes of the round that were not acknowledged, one after the other, as their clients would."""
        for action in self.work.actions:
            if (action.round, action.during) == (self.round, during) and not self.clients.acknowledged(action.key):
                self.apply(action)
                self.clients.acknowledge(action.key)

    def apply(self, action: Action) -> None:
        if action.kind == "fail":
            self.core.metastore.set_failed(action.query, "stopped from outside")
            self.core.registry.remove([action.query])
        elif action.kind == "create":
            query = self.queries[action.query]
            selections = self.core.registry.selections_of(query)
            request = NewRequest(action.query, OWNER, action.query, query, selections)
            [done] = self.changelog.submit([request])
            assert done.result().id == action.query
        else:
            try:
                [done] = self.changelog.submit(deletes=[action.query])
                done.result()
            except CatalogError as error:
                # The first request did it, and nobody could tell us.
                if error.code != "QUERY_DELETED":
                    raise

    def damage(self, kind: str) -> None:
        """Cut files short, and have the process forget what it has read of them."""
        name, store = workload.DAMAGED, self.core.metastore
        if kind == workload.VERSIONS:
            paths = [ref.path for ref in store.epoch_plan(store.current_epoch(), name)]
        else:
            newest = len([one for one in self.work.batches[name] if one[0] <= self.round]) - 1
            files = [file for file in store.buckets(name) if ("compact" in file.path) == (kind == workload.COMPACTED)]
            paths = [file.path for file in files if file.batch == newest or kind == workload.COMPACTED]
        for path in paths:
            file = Path(self.core.home.path(path))
            # Of what cannot be made again no bucket may be left whole but for its index: its join would be answered,
            # and its rows could not be read, which is right and stops this reader.
            left = 1 if kind == workload.LOST else file.stat().st_size // 2
            file.write_bytes(file.read_bytes()[:left])
        self.spark.forget()

    def batch(self, name: str) -> None:
        """The stream's batch of this round, if it has one; and what the checkpoint has not seen finished."""
        rounds = [one[0] for one in self.work.batches[name]]
        if self.round in rounds:
            callback = self.callback(self.core.pipelines[name])
            checkpoint = self.checkpoints[name]
            due = rounds.index(self.round)
            # A checkpoint that is ahead goes on from there at once.
            batch = checkpoint.next if checkpoint.next > due + 1 else due
            checkpoint.run(batch, lambda number: self.plan(name, number), callback)

    def plan(self, name: str, batch: int) -> str:
        """The offsets of a new batch, as text. Planned again after a loss, more input may be there."""
        _, first, last = self.work.batches[name][batch]
        return json.dumps([first, last + 1 if self.replan else last])

    def callback(self, pipeline: Pipeline) -> Callable[[int, str], None]:
        def run(batch: int, offsets: str) -> None:
            first, last = json.loads(offsets)
            splits = self.splits(pipeline.stream.name, first, last)

            def ingest(task: IngestTask) -> Any:
                self.change(pipeline.stream.name)
                return self.core.spark.ingest(task, splits)

            forgotten = self.work.batches[workload.DAMAGED][batch][0] == self.work.damages[workload.LOST]
            known = None if forgotten and pipeline.stream.name == workload.DAMAGED else splits_text(splits)
            pipeline.process(batch, offsets, ingest, known)

        return run

    def splits(self, name: str, first: int, last: int) -> list[list[Split]]:
        edges = [first + (last - first) * part // self.work.tasks for part in range(self.work.tasks + 1)]
        path = str(self.place / f"{name}.parquet")
        return [
            [FileSplit(path, "parquet", edges[part], edges[part + 1] - edges[part])] for part in range(self.work.tasks)
        ]

    def read(self, query: str, limit: int) -> None:
        """Read on to the end of what there is; and note how a query has ended before that is forgotten."""
        if not self.clients.acknowledged(f"create {query}") or self.clients.ended(query) is not None:
            return
        record = self.core.metastore.query(query)
        cursor = self.cursor_of(query)
        while True:
            found, following = self.core.answers.read(record, cursor, limit)
            if found or following != cursor:
                self.clients.keep_page(query, cursor, following, [_plain(answer) for answer in found])
                if query == workload.SUNK:
                    for name in (query, "visitor"):
                        self.core.metastore.save_cursor(name, following)
            if not found:
                break
            cursor = following
        if record.state in ("deleted", "failed"):
            self.clients.end(query, _figures(record))

    def cursor_of(self, query: str) -> str | None:
        """A sink's cursor is what the metastore says; a page that it has kept beyond it is written again."""
        if query != workload.SUNK:
            return self.clients.cursor(query)
        cursor = self.core.metastore.load_cursor(query)
        self.clients.go_back(query, cursor)
        return cursor

    def finish(self) -> None:
        """The input has ended: everything is fired and read; then the books are checked."""
        core = self.core
        for pipeline in core.pipelines.values():
            pipeline.flush()
        core.fire_all()
        for query, (_, limit) in self.work.readers.items():
            self.read(query, limit)
        core.sweep()
        _write_json(self.place / "report.json", self.report())
        core.metastore.drop_cursor("visitor")

    def report(self) -> dict[str, Any]:
        records = {record.id: record for record in self.core.metastore.queries()}
        figures = {query: self.clients.ended(query) or _figures(records[query]) for query in workload.QUERIES}
        kept = {query: self.everything(records[query]) for query in workload.QUERIES if query in records}
        return {
            "answers": {query: self.clients.answers(query) for query in workload.QUERIES},
            "kept": kept,
            "figures": figures,
            "streams": {state.stream.name: _stream_figures(state) for state in self.core.metastore.streams()},
            "dead": sorted(self.dead_letters()),
            "files": sorted(self.core.home.files()),
            "named": sorted(self.core.metastore.referenced_files()),
            "running": sorted(record.id for record in records.values() if record.state == "running"),
            "members": self.core.registry.running,
        }

    def everything(self, record: QueryRecord) -> list[Any]:
        """All answers of a query that are kept, from the beginning."""
        found: list[Any] = []
        cursor = None
        while True:
            page, cursor = self.core.answers.read(record, cursor, 1000)
            if not page:
                return found
            found += [_plain(answer) for answer in page]

    def dead_letters(self) -> list[str]:
        paths = [path for name in workload.SCHEMAS for _, path in self.core.metastore.dead_letters(name)]
        return [line for path in paths for line in Path(self.core.home.path(path)).read_text().splitlines()]


def _plain(answer: Answer) -> list[Any]:
    """An answer, or a piece of one, as JSON: window, marks and columns, batch, place in the whole, rows."""
    rows = [[repr(value) for value in row.values()] for row in answer.table.to_pylist()]
    window = [str(answer.window_start), str(answer.window_end)]
    columns = [f"{field.name} {field.type}" for field in answer.table.schema]
    # Names of files differ from run to run.
    marks = [answer.partial, answer.incomplete and re.sub(r"-[0-9a-f]{12}", "", answer.incomplete), columns]
    return [window, marks, answer.batch, answer.offset, answer.total_rows, rows]


def _figures(record: QueryRecord) -> dict[str, Any]:
    names = ("state", "reason", "first_batch", "last_batch", "fired_to", "partial_until", "closes_at")
    counters = ("windows", "answer_rows", "late_rows", "failures")
    legs = [[leg.stream, leg.first_batch, leg.last_batch] for leg in record.legs]
    return {name: getattr(record, name) for name in (*names, *counters)} | {"legs": legs}


def _stream_figures(state: Any) -> dict[str, Any]:
    names = ("watermark", "max_time", "planned", "committed", "rows", "late_rows", "rejected_rows", "batches", "bytes")
    return {name: getattr(state, name) for name in names}
