"""The command ``millstream``: its commands, and how their errors end."""

from __future__ import annotations

import atexit
import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from millstream.cli import backup, bench, check, demo, query, replay, start, status, stream
from millstream.cli.options import Json, wants_json
from millstream.cli.output import print_json, report
from millstream.errors import MillstreamError
from millstream.version import VERSION


class ErrorGroup(TyperGroup):
    """Commands whose refusals are shown as such: exit code 1, or 3 when no engine answers."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except MillstreamError as error:
            raise typer.Exit(report(error, wants_json(ctx))) from None


app = typer.Typer(
    name="millstream",
    cls=ErrorGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Hundreds of streaming SQL queries, created and deleted at run time, on one shared Spark pipeline.",
    epilog="Exit codes: 0 done, 1 refused (with the reason), 2 wrong usage, 3 no engine answers.",
)
app.command()(demo.demo)
app.command()(start.start)
app.add_typer(query.app, name="query")
app.add_typer(stream.app, name="stream")
app.command()(status.status)
app.command()(replay.replay)
app.command()(backup.backup)
app.command()(backup.restore)
app.command()(check.check)
app.add_typer(bench.app, name="bench")


@app.command()
def version(as_json: Json = False) -> None:
    """Print the version."""
    if as_json:
        print_json({"version": VERSION})
    else:
        print(f"millstream {VERSION}")


def run() -> None:
    """The entry point of the installed command."""
    atexit.register(_silence)
    app()


def _silence() -> None:
    """Native libraries report objects that outlive the interpreter, on standard error, after all Python code."""
    sys.stderr.flush()
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
