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
    _run("millstream.bench.scale", out, {"quick": quick, **given}, as_json)


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
    _run("millstream.bench.joins", out, {"quick": quick, **given}, as_json)


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


@app.command()
def page(
    directory: Annotated[Path, typer.Argument(help="A directory that `suite` or `run` has written.")],
    as_json: Json = False,
) -> None:
    """Draw the page and the plots of a result again, from its JSON.

    \b
    Examples:
    millstream bench page bench-results/bench-20261119T230102Z
    """
    reporting, storing = (import_module(f"millstream.bench.reporting.{name}") for name in ("page", "storing"))
    written = str(reporting.write_page(storing.load(directory), directory))
    if as_json:
        output.print_json({"page": written})
    else:
        output.console().print(written, soft_wrap=True, markup=False)


@app.command()
def suite(
    out: Out = DEFAULT_OUT,
    quick: Annotated[bool, typer.Option("--quick", help="Shorter runs, fewer candidates, not every workload.")] = False,
    seed: Seed = None,
    section: Annotated[
        list[str] | None,
        typer.Option(
            "--section",
            help="Only this: single, queries, merged, latency, deployment, visitors, cores, density, poison, beside or "
            "workloads.",
        ),
    ] = None,
    flink: Annotated[bool, typer.Option("--flink", help="Flink too, where `make flink` has installed it.")] = False,
    as_json: Json = False,
) -> None:
    """Every workload and every figure, beside plain Spark and Flink, as a directory with a page and plots.

    The driver keeps its rate whatever a system does, and sees it from outside. The whole takes about four hours
    on two quiet cores.

    \b
    Examples:
    millstream bench suite --quick
    millstream bench suite --section single --section queries --flink
    """
    given = {"seed": seed, "sections": tuple(section) if section else None, "flink": flink, "quick": quick}
    _run("millstream.bench.suite", out, given, as_json)


@app.command()
def run(
    workload: Annotated[str, typer.Argument(help="A workload of `millstream bench list`.", show_default=False)],
    system: Annotated[
        list[str] | None, typer.Option("--system", help="A system of `millstream bench list`; several one by one.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=1, help="Rows a second; without it, the sustainable rate is searched.")
    ] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", min=4, help="Length of a run.")] = None,
    queries: Annotated[int | None, typer.Option("--queries", min=1, help="Concurrent queries.")] = None,
    density: Annotated[
        int | None, typer.Option("--density", min=0, help="Rows for each second of event time; 0: those of a second.")
    ] = None,
    cores: Annotated[int | None, typer.Option("--cores", min=1, help="Cores the system may use.")] = None,
    seed: Seed = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Flame graphs of the system's processes, of a run at the rate.")
    ] = False,
    out: Out = DEFAULT_OUT,
    as_json: Json = False,
) -> None:
    """Run one workload, at a rate or in search of the sustainable one.

    \b
    Examples:
    millstream bench run astream-static --queries 1000
    millstream bench run gaming-sum --system millstream --system spark --rate 500000 --density 0 --seconds 60
    """
    given = {
        "workload": workload,
        "systems": tuple(system) if system else None,
        "rate": rate,
        "seconds": seconds,
        "queries": queries,
        "density": density,
        "cores": cores,
        "seed": seed,
        "profile": profile,
    }
    _run("millstream.bench.single", out, given, as_json)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """The workloads and the systems there are."""
    from millstream.bench.systems.kinds import KINDS
    from millstream.bench.workloads.catalogue import WORKLOADS

    if as_json:
        workloads = [{"name": one.name, "title": one.title} for one in WORKLOADS.values()]
        output.print_json(
            {"workloads": workloads, "systems": [{"name": kind.name, "title": kind.title} for kind in KINDS.values()]}
        )
        return
    console = output.console()
    rows = [(one.name, one.title) for one in WORKLOADS.values()]
    console.print(output.table(("workload", "what it is"), rows, (), "Workloads"), "")
    console.print(output.table(("system", ""), [(kind.name, kind.title) for kind in KINDS.values()], (), "Systems"))


@app.command()
def guard(out: Out = DEFAULT_OUT, as_json: Json = False) -> None:
    """A short benchmark that fails where a ratio against plain Spark, in the same run, is far too small."""
    _run("millstream.bench.guard", out, {}, as_json)


def _run(module: str, out: Path, given: dict[str, Any], as_json: bool) -> None:
    # Loaded by name: benchmarks import much that no other command needs.
    bench = import_module(module)
    options = bench.Options(out=out, **{name: value for name, value in given.items() if value is not None})
    result: dict[str, Any] = bench.main(options, output.console(stderr=as_json))
    if as_json:
        output.print_json(result)
    if result["failures"]:
        raise typer.Exit(output.EXIT_ERROR)
