"""``millstream stream``: the streams of a running engine."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from millstream.cli import output
from millstream.cli.options import Home, Json, Url, connect
from millstream.engine.status import StreamStatus

app = typer.Typer(no_args_is_help=True, help="List and show streams.")

NUMBERS = ("rows/s", "rows", "late", "rejected", "batches", "batch time")


@app.command("list")
def list_streams(home: Home = None, url: Url = None, as_json: Json = False) -> None:
    """List the streams with their progress."""
    with connect(home, url) as client:
        found = client.streams()
    if as_json:
        output.print_json({"streams": found})
    else:
        output.console().print(stream_table(found))


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The stream's name.", show_default=False)],
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show one stream: its columns, its source and its progress."""
    with connect(home, url) as client:
        item = client.stream(name)
    if as_json:
        output.print_json(item)
        return
    facts = [
        ("name", item.name),
        ("state", output.state(item.state)),
        ("source", ", ".join(f"{key} {value}" for key, value in item.source.items())),
        ("event time", f"{item.time}, up to {output.seconds(item.lateness_seconds)} late"),
        ("idle", _idle(item)),
        ("watermark", output.clock(item.watermark)),
        ("rows", f"{item.rows} ({item.late_rows} late, {item.rejected_rows} rejected) in {item.batches} batches"),
        ("speed", f"{output.count(item.rows_per_second)} rows/s, last batch {output.seconds(item.last_batch_seconds)}"),
        *([("error", Text(item.error, style="red"))] if item.error else []),
    ]
    console = output.console()
    console.print(output.facts(facts))
    console.print()
    console.print(output.table(("column", "type"), item.fields))


def _idle(item: StreamStatus) -> str:
    if item.idle_timeout_seconds is None:
        return "never: joins wait for it"
    return f"after {output.seconds(item.idle_timeout_seconds)} without rows, then joins go on without it"


def stream_table(streams: list[StreamStatus] | tuple[StreamStatus, ...]) -> object:
    """The streams, one line each."""
    columns = ("stream", "state", "watermark", *NUMBERS)
    return output.table(columns, map(_row, streams), right=NUMBERS)


def _row(item: StreamStatus) -> tuple[object, ...]:
    numbers = (
        output.count(n) for n in (item.rows_per_second, item.rows, item.late_rows, item.rejected_rows, item.batches)
    )
    return (
        item.name,
        output.state(item.state),
        output.clock(item.watermark),
        *numbers,
        output.seconds(item.last_batch_seconds),
    )
