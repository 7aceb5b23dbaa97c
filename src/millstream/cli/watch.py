"""Following the answers of one query: as a live table of the newest window, or line by line for a pipe."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from millstream.cli import output
from millstream.engine.status import Answer, QueryStatus
from millstream.server.client import Client
from millstream.server.protocol import MAX_LIMIT
from millstream.server.wire import answer_to_json, column_names

# Long enough that an idle watcher costs nothing, short enough that Ctrl-C and a deleted query are noticed.
POLL_SECONDS = 5.0
# Lines of the screen that the live table leaves to its heading and foot.
RESERVED_LINES = 8


def follow(client: Client, id: str, cursor: str | None, limit: int | None) -> Iterator[Answer]:
    """Answers as they come, at most ``limit`` of them; ends when the query is deleted and read to its end."""
    taken = 0
    while True:
        wanted = MAX_LIMIT if limit is None else min(MAX_LIMIT, limit - taken)
        page = client.read(id, cursor, limit=wanted, wait=POLL_SECONDS)
        yield from page.answers
        taken += len(page.answers)
        cursor = page.cursor or cursor
        if page.finished or (limit is not None and taken >= limit):
            return


def end_of(client: Client, id: str, cursor: str | None) -> tuple[str | None, Answer | None]:
    """The cursor after the answers there are now, and the newest of them."""
    newest: Answer | None = None
    while True:
        page = client.read(id, cursor, limit=MAX_LIMIT)
        if not page.answers:
            return page.cursor or cursor, newest
        newest, cursor = page.answers[-1], page.cursor


def watch_lines(
    client: Client, query: QueryStatus, cursor: str | None, limit: int | None, *, new: bool, as_json: bool
) -> None:
    """Every row of every answer, one line each after a line of names; with JSON one line for each answer."""
    if new:
        cursor, _ = end_of(client, query.id, cursor)
    for number, answer in enumerate(follow(client, query.id, cursor, limit)):
        if as_json:
            print(json.dumps(answer_to_json(answer), ensure_ascii=False), flush=True)
            continue
        if number == 0:
            print("\t".join(heading(answer)))
        print("".join(f"{line}\n" for line in lines_of(answer)), end="", flush=True)


def heading(answer: Answer) -> list[str]:
    front = ["batch"] if answer.window_end is None else ["window_start", "window_end", "partial"]
    return [*front, *column_names(answer.table.column_names)]


def lines_of(answer: Answer) -> Iterator[str]:
    front = [answer.batch] if answer.window_end is None else [answer.window_start, answer.window_end, answer.partial]
    start = [output.value(cell) for cell in front]
    for row in rows(answer.table):
        yield "\t".join([*start, *(_field(output.value(cell)) for cell in row)])


def rows(table: pa.Table, limit: int | None = None) -> Iterator[tuple[object, ...]]:
    """The rows of a table as tuples, also where two columns have one name."""
    part = table if limit is None else table.slice(0, limit)
    return zip(*(column.to_pylist() for column in part.columns), strict=True)


def _field(text: str) -> str:
    """A value that stays on its line and in its field."""
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")


def watch_table(client: Client, query: QueryStatus, cursor: str | None, limit: int | None, console: Console) -> None:
    """The newest window's rows, drawn again with each answer."""
    cursor, newest = end_of(client, query.id, cursor)
    waiting = Text("no answer yet; the first window fires when its stream's watermark passes its end", style="dim")
    first = waiting if newest is None else picture(query, newest, console.height)
    with Live(Group(title(query), Text(), first), console=console, auto_refresh=False) as live:
        live.refresh()
        taken = 0 if newest is None else 1
        if limit is not None and taken >= limit:
            return
        for answer in follow(client, query.id, cursor, None if limit is None else limit - taken):
            live.update(Group(title(query), Text(), picture(query, answer, console.height)), refresh=True)


def title(query: QueryStatus) -> Text:
    text = Text(query.id, style="bold cyan")
    text.append(f"  {output.short(query.sql, 100)}", style="dim")
    return text


def picture(query: QueryStatus, answer: Answer, height: int) -> Group:
    """One answer as a table that fits the screen."""
    shown = max(1, height - RESERVED_LINES)
    names = column_names(answer.table.column_names)
    numeric = [n for n, field in zip(names, answer.table.schema, strict=True) if _is_number(field.type)]
    cells = [[output.value(cell) for cell in row] for row in rows(answer.table, shown)]
    more = answer.table.num_rows - len(cells)
    foot = Text(f"{answer.table.num_rows} rows" + (f", {more} not shown" if more else ""), style="dim")
    return Group(span(answer), output.table(names, cells, right=numeric), foot)


def span(answer: Answer) -> Text:
    """Which window, or which micro-batch."""
    if answer.window_end is None:
        return Text(f"batch {answer.batch}", style="bold")
    text = Text(f"window {output.clock(answer.window_start)} – {output.clock(answer.window_end)}", style="bold")
    if answer.partial:
        text.append("  partial", style="yellow")
    return text


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
