"""``millstream bench``: the benchmarks, each run beside plain Spark in the same session."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from millstream.cli import output
from millstream.cli.options import Json

app = typer.Typer(no_args_is_help=True, help="Measure; ratios within one run count, not single figures.")


@app.callback()
def benches() -> None:
    """Keeps ``scale`` a command of its own while it is the only one."""


@app.command()
def scale(
    out: Annotated[Path, typer.Option("--out", "-o", help="The directory for JSON and plots.")] = Path("bench-results"),
    quick: Annotated[bool, typer.Option("--quick", help="Smaller input; shows the shape in a few minutes.")] = False,
    as_json: Json = False,
) -> None:
    """Throughput and deployment latency at 1 to 1000 queries, beside plain Spark on the same files.

    \b
    Examples:
    millstream bench scale --quick
    millstream bench scale --out bench-results/
    """
    # Loaded by name: benchmarks import Spark and more, which no other command needs.
    run = import_module("millstream.bench.scale").run
    console = output.console(stderr=True)
    result: dict[str, Any] = run(out=out, quick=quick, say=lambda line: console.print(line, markup=False))
    if as_json:
        output.print_json(result)
