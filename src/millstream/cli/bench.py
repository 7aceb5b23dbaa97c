"""``millstream bench``: the benchmarks, each run beside plain Spark on the same machine and files."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from millstream.cli import output
from millstream.cli.options import Json

app = typer.Typer(no_args_is_help=True, help="Measure; ratios within one run count, not single figures.")

# Seed and rows are the benchmark's business; None takes its defaults.
Rows = Annotated[int | None, typer.Option("--rows", help="Rows of Millstream's input; plain Spark gets a share.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Makes the rows and the queries.")]
Parts = Annotated[list[str] | None, typer.Option("--part", help="Only this part: plain, dense, sparse or deploy.")]


@app.callback()
def benches() -> None:
    """Keeps ``scale`` a command of its own while it is the only one."""


@app.command()
def scale(
    out: Annotated[Path, typer.Option("--out", "-o", help="The directory for JSON and plots.")] = Path("bench-results"),
    quick: Annotated[bool, typer.Option("--quick", help="Smaller input; shows the shape in two minutes.")] = False,
    rows: Rows = None,
    seed: Seed = None,
    part: Parts = None,
    as_json: Json = False,
) -> None:
    """Throughput, deployment latency and state at 1 to 1000 queries, beside plain Spark on the same files.

    It takes about ten minutes on two quiet cores, and needs them quiet.

    \b
    Examples:
    millstream bench scale --quick
    millstream bench scale --part plain --part dense --rows 20000000
    """
    # Loaded by name: benchmarks import much that no other command needs.
    bench = import_module("millstream.bench.scale")
    given = {"rows": rows, "seed": seed, "parts": tuple(part) if part else None}
    options = bench.Options(out=out, quick=quick, **{name: value for name, value in given.items() if value is not None})
    result: dict[str, Any] = bench.main(options, output.console(stderr=as_json))
    if as_json:
        output.print_json(result)
    if result["failures"]:
        raise typer.Exit(output.EXIT_ERROR)
