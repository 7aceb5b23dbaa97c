"""``millstream demo``: an engine on a generated gaming stream, with queries that come and go, live in the terminal."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from millstream.cli import output
from millstream.cli.demo_queries import random_query
from millstream.cli.demo_screen import TICKER_LINES, Frame, Tracked, line, picture
from millstream.cli.hosting import hosted, serve, stop_or_abandon, stop_signals
from millstream.cli.options import Json
from millstream.cli.watch import is_last
from millstream.config import Settings
from millstream.engine.cursor import after_answer
from millstream.engine.status import QueryRequest
from millstream.errors import EngineError, MillstreamError

if TYPE_CHECKING:
    from millstream.engine.engine import Engine

GEM_PACKS = 20
TOP_PRICE = 99
# Rows arrive up to this late, and the stream waits as long: disorder is real, but nothing is lost.
DISORDER_MICROS = 100_000
TRACKED = 12
# Latencies of the queries on the screen, over the last few seconds.
LATENCIES = 50
# Of a hundred queries, this many leave and as many come every second.
CHURN_PERCENT = 2
# Without a terminal nobody presses Ctrl-C.
UNWATCHED_SECONDS = 30.0
PICTURE_SECONDS = 0.25
# Spark starts its Python workers with the first micro-batch: seconds on a free machine, a minute on a busy one.
FIRST_ROWS_SECONDS = 90.0
# Answers taken for a tracked query at each look: more than its windows can fire in that time.
LOOK_LIMIT = 50
OWN_QUERY = (
    "SELECT gem_pack, SUM(price) AS revenue FROM purchases GROUP BY gem_pack, window(time, '8 seconds', '4 seconds')"
)


def demo(
    queries: Annotated[int, typer.Option("--queries", min=1, help="Queries that run at once.")] = 200,
    rate: Annotated[int, typer.Option("--rate", min=1, help="Purchases a second.")] = 200_000,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=1, help="Stop so long after the first answer.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Makes the stream and the queries.")] = 7,
    as_json: Json = False,
) -> None:
    """Watch hundreds of queries share one stream of purchases; they come and go while it flows.

    It runs in a temporary home and ends with Ctrl-C; without a terminal it prints a line a second and ends after half a
    minute. While it runs, your own queries join it from another terminal.

    \b
    Examples:
    millstream demo
    millstream demo --queries 1000 --rate 1000000 --seconds 60
    """
    live = sys.stdout.isatty() and not as_json
    length = seconds if seconds is not None else None if live else UNWATCHED_SECONDS
    console = output.console()
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(_temporary()))
        with output.console(stderr=True).status("starting Spark and the engine …"):
            settings = Settings(home=str(home))
            engine = stack.enter_context(hosted(home, settings))
            stop = stack.enter_context(stop_signals())
            # Stopped while the signals are ours: a second one ends at once.
            stack.push(stop_or_abandon(engine))
            show = Demo(engine, Random(seed), queries, f'millstream query create "{OWN_QUERY}" --home {home}')
            show.open(rate, seed, stop)
            server = stack.enter_context(serve(engine, settings))
        if live:
            _play_live(show, stop, length, console)
        else:
            _play_lines(show, stop, length, as_json, server.url)
        summary = show.summary()
    if as_json:
        output.print_json({"summary": summary})
    else:
        _print_summary(summary, console)


def _temporary() -> tempfile.TemporaryDirectory[str]:
    """A home for the demo. Spark may still write when it is removed, if a second Ctrl-C has cut the stop short."""
    return tempfile.TemporaryDirectory(prefix="millstream-demo-", ignore_cleanup_errors=True)


@dataclass
class Demo:
    """The queries of a running demo: which are alive, which are shown, and what was measured."""

    engine: Engine
    random: Random
    target: int
    create_command: str
    alive: list[str] = field(default_factory=list)
    tracked: dict[str, Tracked] = field(default_factory=dict)
    ticker: deque[Text] = field(default_factory=lambda: deque(maxlen=TICKER_LINES))
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=LATENCIES))
    create_seconds: list[float] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    rows_before: int = 0
    created: int = 0
    deleted: int = 0
    visitors: int = 0
    own: set[str] = field(default_factory=set)
    answered: bool = False

    def open(self, rate: int, seed: int, stop: threading.Event) -> None:
        """The stream, with event times of now, and the first queries; returns when the first rows are in, or when asked
        to stop."""
        from millstream.sources.source import GamingGenerator, Generator

        source = Generator.live(
            GamingGenerator, table="purchases", rate=rate, seed=seed, gem_packs=GEM_PACKS, disorder=DISORDER_MICROS
        )
        self.engine.create_stream("purchases", source, time="time", lateness=f"{DISORDER_MICROS // 1000} ms")
        self.create(self.target)
        deadline = time.monotonic() + FIRST_ROWS_SECONDS
        while not self.frame().status.streams[0].rows and time.monotonic() < deadline:
            if stop.wait(PICTURE_SECONDS):
                break
        self.started = time.monotonic()
        self.rows_before = self.frame().status.streams[0].rows

    def create(self, number: int) -> None:
        """New random queries, in one epoch."""
        drawn = [random_query(self.random, GEM_PACKS, TOP_PRICE) for _ in range(number)]
        before = time.monotonic()
        results = self.engine.create_queries([QueryRequest(sql, owner) for sql, owner in drawn])
        self.create_seconds.append(time.monotonic() - before)
        for result in results:
            if isinstance(result, MillstreamError):
                raise result
            self.created += 1
            self.alive.append(result.id)
            self.own.add(result.id)
            self._track(Tracked(result.id, result.owner, result.sql))
            self.ticker.append(_tick("+", "green", result.id, result.owner, result.sql))

    def churn(self) -> None:
        """Some queries leave, as many come."""
        number = max(1, self.target * CHURN_PERCENT // 100)
        leaving = [self.alive.pop(self.random.randrange(len(self.alive))) for _ in range(min(number, len(self.alive)))]
        for result in self.engine.delete_queries(leaving):
            if isinstance(result, MillstreamError):
                raise result
            self.deleted += 1
            self.tracked.pop(result.id, None)
            self.ticker.append(_tick("–", "red", result.id, result.owner, result.sql))
        self.create(number)

    def welcome(self) -> None:
        """Show the queries that others create, above ours."""
        running = {item.id: item for item in self.engine.queries(state="running")}
        for id in [item.id for item in self.tracked.values() if item.visitor and item.id not in running]:
            del self.tracked[id]
        for id, item in running.items():
            if id not in self.own and id not in self.tracked:
                self.visitors += 1
                visitor = Tracked(id, item.owner or "you", item.sql, visitor=True)
                self.tracked = {id: visitor, **self.tracked}
                self.ticker.append(_tick("+", "bold yellow", id, visitor.owner, item.sql))

    def look(self) -> None:
        """Take the newest answers of the queries on the screen."""
        for item in list(self.tracked.values())[:TRACKED]:
            try:
                page = self.engine.query(item.id).read(item.cursor, limit=LOOK_LIMIT)
            except MillstreamError:
                # Deleted from another terminal since the last look.
                self.tracked.pop(item.id, None)
                continue
            now = datetime.now(UTC)
            item.cursor = page.cursor or item.cursor
            if item.cursor and page.answers and not is_last(page.answers[-1]):
                # The first rows of a join's large answer are enough for a line on the screen.
                item.cursor = after_answer(item.cursor)
            for answer in page.answers:
                item.take(answer)
            if page.answers and page.answers[-1].window_end is not None:
                self.latencies.append((now - page.answers[-1].window_end).total_seconds())

    def frame(self) -> Frame:
        self.engine.check()
        status = self.engine.status()
        for stream in status.streams:
            if stream.error:
                raise EngineError("STREAM_STOPPED", f"stream {stream.name} stopped", detail=stream.error)
        self.answered = self.answered or status.answer_rows > 0
        latency = median(self.latencies) if self.latencies else None
        shown = list(self.tracked.values())[:TRACKED]
        return Frame(status, time.monotonic() - self.started, latency, shown, tuple(self.ticker), self.create_command)

    def summary(self) -> dict[str, Any]:
        """The run in figures."""
        frame = self.frame()
        rows = sum(stream.rows for stream in frame.status.streams) - self.rows_before
        creates = sorted(self.create_seconds[1:])
        return {
            "seconds": round(frame.seconds, 1),
            "rows": rows,
            "rows_per_second": round(rows / frame.seconds) if frame.seconds else 0,
            "latency_seconds": frame.latency,
            "queries": frame.status.queries,
            "created": self.created,
            "deleted": self.deleted,
            "visitors": self.visitors,
            "epoch": frame.status.epoch,
            "answer_rows": frame.status.answer_rows,
            "create_seconds_median": median(creates) if creates else None,
            "create_seconds_max": creates[-1] if creates else None,
        }

    def _track(self, item: Tracked) -> None:
        if len(self.tracked) < TRACKED:
            self.tracked[item.id] = item


def _tick(sign: str, style: str, id: str, owner: str, sql: str) -> Text:
    text = Text(f"{sign} {id}", style=style, no_wrap=True, overflow="ellipsis")
    text.append(f"  {owner}  ", style="dim")
    text.append(output.short(sql, 120), style="dim")
    return text


def _seconds(show: Demo, stop: threading.Event, length: float | None, step: float) -> Iterator[bool]:
    """Every ``step`` seconds until the end, and whether a whole second has passed since this was last true."""
    begin = whole = time.monotonic()
    while not stop.wait(step):
        now = time.monotonic()
        if not show.answered and now - show.started < FIRST_ROWS_SECONDS:
            begin = now
        if length is not None and now - begin >= length:
            return
        due = now - whole >= 1.0
        whole = now if due else whole
        yield due


def _play(show: Demo, stop: threading.Event, length: float | None, draw: Callable[[Frame, bool], None]) -> None:
    for whole_second in _seconds(show, stop, length, PICTURE_SECONDS):
        if whole_second:
            show.churn()
            show.welcome()
        show.look()
        draw(show.frame(), whole_second)


def _play_live(show: Demo, stop: threading.Event, length: float | None, console: Console) -> None:
    with Live(console=console, screen=True, auto_refresh=False) as live:
        _play(show, stop, length, lambda frame, _: live.update(picture(frame, console.height), refresh=True))


def _play_lines(show: Demo, stop: threading.Event, length: float | None, as_json: bool, url: str) -> None:
    if not as_json:
        print(f"serving on {url}; your own query, from another terminal:\n  {show.create_command}", flush=True)

    def draw(frame: Frame, whole_second: bool) -> None:
        if whole_second and as_json:
            output.print_json(
                {"seconds": round(frame.seconds, 1), "latency_seconds": frame.latency, "status": frame.status}
            )
        elif whole_second:
            print(line(frame), flush=True)

    _play(show, stop, length, draw)


def _print_summary(summary: dict[str, Any], console: Console) -> None:
    latency = summary["latency_seconds"]
    facts = [
        ("ran", output.seconds(summary["seconds"])),
        ("rows", f"{summary['rows']:,} at {output.count(summary['rows_per_second'])} a second"),
        ("queries", f"{summary['queries']} at the end, {summary['created']} created, {summary['deleted']} deleted"),
        ("answer rows", f"{summary['answer_rows']:,}"),
        (
            "latency",
            "–" if latency is None else f"{output.seconds(latency)} from a window's end to its answer (median)",
        ),
    ]
    if summary["create_seconds_median"] is not None:
        median_text, most = (output.seconds(summary[f"create_seconds_{name}"]) for name in ("median", "max"))
        facts.append(("create", f"{median_text} median, {most} at most, while data flowed"))
    console.print(output.facts(facts))
