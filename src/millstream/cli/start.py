"""``millstream start``: run an engine from a file of stream definitions."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from millstream.cli import output
from millstream.cli.hosting import hosted, open_streams, serve, stay, stop_or_abandon, stop_signals
from millstream.cli.options import Home, Json
from millstream.config import load_stream_file

if TYPE_CHECKING:
    from millstream.engine.engine import Engine


def start(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The stream file, in YAML.", show_default=False)],
    home: Home = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="The HTTP port; 0 takes a free one.")
    ] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", min=0, help="Stop after so long.")] = None,
    as_json: Json = False,
) -> None:
    """Start the engine on the streams of a file, and run until Ctrl-C.

    Queries, answers and progress live in the home directory: started again on the same home, the engine goes on
    where it stopped. From another terminal, `millstream query create …` finds it.

    \b
    Example, game.yaml:
    home: game-home
    streams:
      purchases:
        source: parquet
        path: data/purchases
        time: time
        lateness: 5 seconds
    """
    definition = load_stream_file(file)
    settings = definition.settings
    place = (home or Path(settings.home)).expanduser().absolute()
    settings = replace(settings, home=str(place), http_port=settings.http_port if port is None else port)
    console = output.console(stderr=True)
    with contextlib.ExitStack() as stack:
        with console.status("starting Spark and the engine …"):
            engine = stack.enter_context(hosted(place, settings))
            remarks = open_streams(engine, definition.streams)
            server = stack.enter_context(serve(engine, settings))
        stop = stack.enter_context(stop_signals())
        # Stopped while the signals are ours: a second one ends at once.
        stack.push(stop_or_abandon(engine))
        stack.callback(server.stop)
        _announce(server.url, place, engine, as_json)
        for remark in remarks:
            console.print(Text(remark, style="yellow"), soft_wrap=True)
        stay(engine, stop, seconds)
        if not as_json:
            console.print(Text("stopping …", style="dim"))
    if not as_json:
        console.print("stopped; start again on the same home to go on")


def _announce(url: str, home: Path, engine: Engine, as_json: bool) -> None:
    streams = [item.name for item in engine.streams()]
    if as_json:
        output.print_json({"url": url, "home": str(home), "streams": streams, "resumed": engine.resumed})
        return
    console = output.console()
    console.print(f"[bold]Millstream[/bold] on {url}, home {home}", soft_wrap=True)
    for line in engine.resumed.lines() if engine.resumed else ():
        console.print(Text(line), soft_wrap=True)
    console.print(f"streams: {', '.join(streams)}", soft_wrap=True)
    console.print(f'create a query:  millstream query create "SELECT …" --home {home}', soft_wrap=True)
    console.print("stop: Ctrl-C", style="dim")
