"""Following the answers of one query: as a live table of the newest window, or line by line for a pipe."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from millstream.cli import output
from millstream.engine.cursor import END, NEWEST, after_answer
from millstream.engine.status import Answer, QueryStatus
from millstream.errors import DamagedFile
from millstream.server.client import Client
from millstream.server.protocol import MAX_LIMIT
from millstream.server.wire import answer_to_json, column_names

# Long enough that an idle watcher costs nothing, short enough that Ctrl-C and a deleted query are noticed.
POLL_SECONDS = 5.0
# Lines of the screen that the live table leaves to its heading and foot.
RESERVED_LINES = 8


def follow(
    client: Client, id: str, cursor: str | None, limit: int | None, *, first_rows: bool = False
) -> Iterator[Answer]:
    """Answers as they come, at most ``limit`` of them; ends when the query is deleted and read to its end.

    A large answer comes in pieces, of which ``first_rows`` takes the first alone.
    """
    left = limit
    while True:
        most = MAX_LIMIT if left is None else min(MAX_LIMIT, left)
        try:
            page = client.read(id, cursor, limit=most, wait=POLL_SECONDS)
        except DamagedFile as error:
            if error.cursor is None:
                raise
            output.report(error, as_json=False)
            cursor = error.cursor
            continue
        yield from page.answers
        cursor = page.cursor or cursor
        ended = sum(1 for answer in page.answers if is_last(answer))
        if first_rows and cursor and page.answers and not is_last(page.answers[-1]):
            # A page ends with a piece that is not the last, so no other piece of this answer has been read.
            cursor, ended = after_answer(cursor), ended + 1
        left = None if left is None else left - ended
        if page.finished or left == 0:
            return


def is_last(answer: Answer) -> bool:
    """Whether an answer is complete with this piece."""
    return bool(answer.offset + answer.table.num_rows >= answer.total_rows)


def watch_lines(
    client: Client, query: QueryStatus, cursor: str | None, limit: int | None, *, new: bool, as_json: bool
) -> None:
    """Every row of every answer, one line each after a line of names; with JSON one line for each answer, or piece of
    a large one."""
    for number, answer in enumerate(follow(client, query.id, END if new else cursor, limit)):
        if as_json:
            print(json.dumps(answer_to_json(answer), ensure_ascii=False), flush=True)
            continue
        if answer.incomplete:
            output.console(stderr=True).print(Text(f"{span(answer).plain}: {answer.incomplete}", style="red"))
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
    waiting = Text("no answer yet; the first window fires when its stream's watermark passes its end", style="dim")
    with Live(Group(title(query), Text(), waiting), console=console, auto_refresh=False) as live:
        live.refresh()
        for answer in follow(client, query.id, cursor or NEWEST, limit, first_rows=True):
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
    more = answer.total_rows - len(cells)
    foot = Text(f"{answer.total_rows:,} rows" + (f", {more:,} not shown" if more else ""), style="dim")
    lacks = [Text(answer.incomplete, style="red")] if answer.incomplete else []
    return Group(span(answer), output.table(names, cells, right=numeric), foot, *lacks)


def span(answer: Answer) -> Text:
    """Which window, or which micro-batch."""
    if answer.window_end is None:
        return Text(f"batch {answer.batch}", style="bold")
    text = Text(f"window {output.clock(answer.window_start)} – {output.clock(answer.window_end)}", style="bold")
    if answer.partial:
        text.append("  partial", style="yellow")
    if answer.incomplete:
        text.append("  incomplete", style="red")
    return text


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
