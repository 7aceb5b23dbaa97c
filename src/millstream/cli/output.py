"""How the command line speaks: tables for people, JSON for programs, errors with the text they are about."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from millstream.errors import MillstreamError
from millstream.server.wire import error_to_json, to_json

EXIT_ERROR = 1
EXIT_NOT_RUNNING = 3

STATE_COLOURS = {
    "running": "green",
    "deleting": "yellow",
    "deleted": "dim",
    "failed": "red",
    "stopped": "red",
    "retrying": "yellow",
}

# Into a pipe or file tables are not cut to the width of a screen.
PIPE_WIDTH = 240

# Columns whose values are read as one word.
UNBROKEN = ("id", "query", "stream", "state", "watermark")

# A query's text in a list takes at most this many characters.
SHORT_SQL = 72


def console(stderr: bool = False) -> Console:
    """A console on the stream as it is now; made anew each time, since tests and pipes exchange the streams."""
    found = Console(stderr=stderr, highlight=False, soft_wrap=False)
    if not found.is_terminal:
        found.width = PIPE_WIDTH
    return found


def print_json(value: Any) -> None:
    """One JSON document on standard output, indented for a terminal and on one line for a pipe."""
    indent = 2 if sys.stdout.isatty() else None
    print(json.dumps(to_json(value), indent=indent, ensure_ascii=False), flush=True)


def report(error: MillstreamError, as_json: bool) -> int:
    """Show an error on standard error and give the exit code it means."""
    if as_json:
        print(json.dumps(error_to_json(error), ensure_ascii=False), file=sys.stderr, flush=True)
    else:
        console(stderr=True).print(coloured(error), soft_wrap=True)
    return EXIT_NOT_RUNNING if error.code == "NOT_RUNNING" else EXIT_ERROR


def coloured(error: MillstreamError) -> Text:
    """The rendered error: the code red, the underlining yellow, the hint cyan."""
    text = Text()
    for number, line in enumerate(error.render().split("\n")):
        if number:
            text.append("\n")
        if number == 0:
            code, colon, rest = line.partition(":")
            text.append(code + colon, style="bold red")
            text.append(rest, style="bold")
        elif line.strip() and not line.strip().strip("^"):
            text.append(line, style="bold yellow")
        elif line.startswith("hint:"):
            text.append(line, style="cyan")
        else:
            text.append(line)
    return text


def table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[str] = (), title: str | None = None
) -> Table:
    """A table without heavy lines; the columns of ``right`` hold numbers."""
    result = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left", title_style="bold")
    for name in columns:
        numeric = name in right
        result.add_column(name, justify="right" if numeric else "left", no_wrap=numeric or name in UNBROKEN)
    for row in rows:
        result.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    return result


def facts(pairs: Iterable[tuple[str, Any]]) -> Table:
    """Names and values, one pair a line."""
    result = Table(box=None, pad_edge=False, show_header=False)
    result.add_column(style="dim", no_wrap=True)
    result.add_column(overflow="fold")
    for name, item in pairs:
        result.add_row(name, item if isinstance(item, Text) else Text(str(item)))
    return result


def state(word: str) -> Text:
    return Text(word, style=STATE_COLOURS.get(word, ""))


# What the branches of a tree are drawn with.
BRANCHES = "│├└─ "


def branch(line: str, head: bool = False) -> Text:
    """A line of a drawn tree: the branches dim, what hangs on them bold, facts plain."""
    rest = line.lstrip(BRANCHES)
    drawn = line[: len(line) - len(rest)]
    text = Text(drawn, style="dim")
    text.append(rest, style="bold cyan" if head else "bold" if drawn.endswith("─ ") else "")
    return text


def count(number: float) -> str:
    """A count for people.

    >>> count(950), count(12_345), count(1_234_567), count(5e9)
    ('950', '12.3k', '1.23M', '5.00G')
    """
    for limit, unit, digits in ((1e9, "G", 2), (1e6, "M", 2), (1e4, "k", 1)):
        if number >= limit:
            return f"{number / (1e3 if unit == 'k' else limit):.{digits}f}{unit}"
    return f"{number:.0f}"


def size(number: float) -> str:
    """A number of bytes for people.

    >>> size(512), size(2048), size(3 * 2**30)
    ('512 B', '2.0 KiB', '3.0 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def seconds(number: float) -> str:
    """A short time for people.

    >>> seconds(0.0412), seconds(0.21), seconds(12.3), seconds(75), seconds(4000)
    ('0.04 s', '0.2 s', '12.3 s', '1 min 15 s', '1 h 6 min')
    """
    if number < 60:
        return f"{number:.2f} s" if number < 0.1 else f"{number:.1f} s"
    minutes, rest = divmod(int(number), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def clock(moment: datetime | None) -> str:
    """A time of day to the millisecond, with its date when it is not today's; all times are UTC.

    >>> clock(None), clock(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    ('–', '2026-01-02 03:04:05')
    """
    if moment is None:
        return "–"
    day = "" if moment.date() == datetime.now(UTC).date() else f"{moment:%Y-%m-%d} "
    fraction = f"{moment:.%f}"[:4].rstrip("0").rstrip(".")
    return f"{day}{moment:%H:%M:%S}{fraction}"


def short(sql: str, width: int = SHORT_SQL) -> str:
    """A query's text on one line, cut to ``width``.

    >>> short("SELECT  x\\n FROM s"), short("SELECT a, b FROM s", 10)
    ('SELECT x FROM s', 'SELECT a,…')
    """
    line = " ".join(sql.split())
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


def value(cell: Any) -> str:
    """A value of an answer in one cell or field."""
    plain = to_json(cell)
    if plain is None:
        return "NULL"
    if isinstance(plain, bool):
        return str(plain).lower()
    if isinstance(plain, dict):
        return ", ".join(f"{name} {value(item)}" for name, item in plain.items())
    return str(plain)
