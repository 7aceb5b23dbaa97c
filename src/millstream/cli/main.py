"""The command ``millstream``: its commands, and how their errors end."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import Any

import typer
from typer.core import TyperGroup

from millstream.cli import bench, demo, query, replay, start, status, stream
from millstream.cli.options import Json, wants_json
from millstream.cli.output import print_json, report
from millstream.errors import MillstreamError


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
app.add_typer(bench.app, name="bench")


@app.command()
def version(as_json: Json = False) -> None:
    """Print the version."""
    number = package_version()
    if as_json:
        print_json({"version": number})
    else:
        print(f"millstream {number}")


def package_version() -> str:
    try:
        return installed_version("millstream")
    except PackageNotFoundError:
        return "unknown (not installed)"


def run() -> None:
    """The entry point of the installed command."""
    app()
