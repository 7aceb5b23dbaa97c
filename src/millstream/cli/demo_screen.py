"""The demo's picture: figures on top, a dozen queries with their newest answers as bars, the changelog below."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import isfinite

import pyarrow as pa
from rich.console import Group, RenderableType
from rich.layout import Layout
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from millstream.cli import output
from millstream.cli.watch import span
from millstream.engine.status import Answer, EngineStatus

BARS = "▁▂▃▄▅▆▇█"
# Bars in a line: the gem packs of a window, or the last windows of a query without keys.
BAR_COUNT = 20
TICKER_LINES = 6


@dataclass
class Tracked:
    """A query on the screen: what it asks, and what it was answered last."""

    id: str
    owner: str
    sql: str
    visitor: bool = False
    cursor: str | None = None
    newest: Answer | None = None
    history: deque[float] = field(default_factory=lambda: deque(maxlen=BAR_COUNT))

    def take(self, answer: Answer) -> None:
        self.newest = answer
        # One row and no key: the bars are the last windows instead.
        if answer.table.num_rows == 1 and "gem_pack" not in answer.table.column_names:
            self.history.extend(numbers(answer.table.column(answer.table.num_columns - 1)))


@dataclass(frozen=True)
class Frame:
    """Everything one picture shows."""

    status: EngineStatus
    seconds: float
    latency: float | None
    tracked: Sequence[Tracked]
    ticker: Sequence[Text]
    create_command: str


def numbers(column: pa.ChunkedArray) -> list[float]:
    """The values of a column as plain numbers; what is no number is left out."""
    found = (
        cell for cell in column.to_pylist() if cell is not None and not isinstance(cell, str | bytes | bool | dict)
    )
    return [float(cell) for cell in found if hasattr(cell, "__float__") and isfinite(cell)]


def bars(values: Iterable[float]) -> str:
    """Numbers as a line of bars, the largest full height.

    >>> bars([1, 4, 8]), bars([]), bars([0, 0])
    ('▁▄█', '', '▁▁')
    """
    shown = list(values)[:BAR_COUNT]
    top = max((abs(v) for v in shown), default=0.0) or 1.0
    return "".join(BARS[max(0, min(len(BARS) - 1, round(abs(v) / top * len(BARS)) - 1))] for v in shown)


def line(frame: Frame) -> str:
    """The figures of one second on one line, for logs and pipes."""
    status = frame.status
    return "  ".join(
        (
            f"{frame.seconds:4.0f} s",
            f"{output.count(status.rows_per_second)} rows/s",
            f"latency {_latency(frame)}",
            f"{status.queries} queries",
            f"epoch {status.epoch}",
            f"{sum(stream.batches for stream in status.streams)} batches",
            f"{output.count(status.answer_rows)} answer rows",
        )
    )


def picture(frame: Frame, height: int) -> Layout:
    """The whole screen."""
    layout = Layout()
    layout.split_column(
        Layout(_header(frame), size=4),
        Layout(_queries(frame), ratio=1, minimum_size=6),
        Layout(_changelog(frame), size=min(TICKER_LINES + 2, max(3, height // 4))),
        Layout(_foot(frame), size=3),
    )
    return layout


def _latency(frame: Frame) -> str:
    return "–" if frame.latency is None else output.seconds(frame.latency)


def _header(frame: Frame) -> RenderableType:
    status = frame.status
    watermark = next((stream.watermark for stream in status.streams), None)
    figures = (
        ("rows/s", output.count(status.rows_per_second)),
        ("latency", _latency(frame)),
        ("queries", str(status.queries)),
        ("groups", str(status.groups)),
        ("epoch", str(status.epoch)),
        ("watermark", "–" if watermark is None else f"{watermark:%H:%M:%S}"),
        ("batches", str(sum(stream.batches for stream in status.streams))),
        ("answer rows", output.count(status.answer_rows)),
        ("state", output.size(status.state_bytes)),
    )
    grid = Table.grid(expand=True)
    for _ in figures:
        grid.add_column(justify="center")
    grid.add_row(*(Text(value, style="bold green") for _, value in figures))
    grid.add_row(*(Text(name, style="dim") for name, _ in figures))
    return Panel(grid, title="[bold]Millstream[/bold]: one stream turns many mills", border_style="cyan")


def _queries(frame: Frame) -> RenderableType:
    grid = Table(box=None, expand=True, pad_edge=False, header_style="dim")
    grid.add_column("query", no_wrap=True)
    grid.add_column("owner", no_wrap=True)
    grid.add_column("newest window", no_wrap=True)
    grid.add_column("answer", no_wrap=True, min_width=BAR_COUNT)
    grid.add_column("largest", justify="right", no_wrap=True)
    grid.add_column("sql", no_wrap=True, overflow="ellipsis", ratio=1)
    for item in frame.tracked:
        grid.add_row(*_cells(item))
    return grid


def _cells(item: Tracked) -> tuple[Text, ...]:
    style = "bold yellow" if item.visitor else "cyan"
    front = (Text(item.id, style=style), Text(item.owner, style="dim"))
    sql = Text(output.short(item.sql, 200), style="dim")
    if item.newest is None:
        return (*front, Text("waiting", style="dim"), Text(), Text(), sql)
    values = list(item.history) or ordered_values(item.newest.table)
    largest = f"{max(values):,.2f}".removesuffix(".00") if values else f"{item.newest.table.num_rows} rows"
    window = Text(span(item.newest).plain.removeprefix("window ").replace("  partial", " ◐"))
    return (*front, window, Text(bars(values), style="magenta"), Text(largest), sql)


def ordered_values(table: pa.Table) -> list[float]:
    """The last column's numbers, in the order of the first column."""
    if table.num_rows and table.num_columns > 1 and table.column_names.count(table.column_names[0]) == 1:
        table = table.sort_by(table.column_names[0])
    return numbers(table.column(table.num_columns - 1)) if table.num_columns else []


def _changelog(frame: Frame) -> RenderableType:
    return Panel(Group(*list(frame.ticker)[-TICKER_LINES:]), title="changelog", title_align="left", border_style="dim")


def _foot(frame: Frame) -> RenderableType:
    hint = Text("your own query, from another terminal:  ", style="dim")
    hint.append(frame.create_command, style="bold")
    hint.append("\nCtrl-C ends the demo", style="dim")
    return hint
