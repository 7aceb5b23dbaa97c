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
JoinParts = Annotated[
    list[str] | None, typer.Option("--part", help="Only this part: plain, ours, sweep, ways or apart.")
]
Out = Annotated[Path, typer.Option("--out", "-o", help="The directory for JSON and plots.")]
DEFAULT_OUT = Path("bench-results")


@app.command()
def scale(
    out: Out = DEFAULT_OUT,
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
    given = {"rows": rows, "seed": seed, "parts": tuple(part) if part else None}
    _run("millstream.bench.scale", out, quick, given, as_json)


@app.command()
def joins(
    out: Out = DEFAULT_OUT,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller input; shows the shape in three minutes.")] = False,
    seed: Seed = None,
    part: JoinParts = None,
    as_json: Json = False,
) -> None:
    """Joins at 1 to 500 queries beside plain Spark, joins of up to five streams, and the price of large answers.

    It takes about a quarter of an hour on two quiet cores, and needs them quiet.

    \b
    Examples:
    millstream bench joins --quick
    millstream bench joins --part ours --part plain
    """
    given = {"seed": seed, "parts": tuple(part) if part else None}
    _run("millstream.bench.joins", out, quick, given, as_json)


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="The directory of the earlier results.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The directory of the later results.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The directory for a plot of the ratios.")] = None,
    as_json: Json = False,
) -> None:
    """What is different between two results, beyond the noise of both.

    Several runs of one cell give the noise by their spread; a single run counts as 10 % to either side. Results of
    different machines are shown, and not called different.

    \b
    Examples:
    millstream bench compare results/monday results/tuesday
    millstream bench compare before after --json
    """
    comparing = import_module("millstream.bench.reporting.comparing")
    result = comparing.main(a, b, out, output.console(stderr=as_json))
    if as_json:
        output.print_json(result)


def _run(module: str, out: Path, quick: bool, given: dict[str, Any], as_json: bool) -> None:
    # Loaded by name: benchmarks import much that no other command needs.
    bench = import_module(module)
    options = bench.Options(out=out, quick=quick, **{name: value for name, value in given.items() if value is not None})
    result: dict[str, Any] = bench.main(options, output.console(stderr=as_json))
    if as_json:
        output.print_json(result)
    if result["failures"]:
        raise typer.Exit(output.EXIT_ERROR)
