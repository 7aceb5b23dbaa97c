"""``millstream replay``: many queries over recorded data, to the end, as Parquet."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from millstream.cli import output
from millstream.cli.hosting import LOG_FILE, spark_log
from millstream.cli.options import Json
from millstream.config import load_replay_spec

if TYPE_CHECKING:
    from millstream.engine.replay import ReplayProgress

# A spec may have thousands of queries; a terminal shows the first of them, the summary file has all.
SHOWN_QUERIES = 40

STAGES = {"open": "opening", "run": "running", "flush": "flushing", "write": "writing answers", "done": "done"}


def replay(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="The replay spec, in YAML.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="The directory for the answers.", show_default=False)],
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if any query was refused or stopped.")] = False,
    as_json: Json = False,
) -> None:
    """Run the queries of a spec over recorded data, to the end.

    Writes one Parquet file for each query and summary.json. A query that is refused is reported, and the others run.

    \b
    Example, spec.yaml:
    batch_rows: 1000
    streams:
      purchases: {path: purchases.parquet, time: time, lateness: 0 seconds}
    queries:
      - {id: revenue, sql: "SELECT SUM(price) FROM purchases GROUP BY window(time, '8 seconds')"}
      - {id: visitor, sql: "SELECT …", create_at_batch: 5, delete_at_batch: 20}

    \b
    millstream replay spec.yaml --out answers/
    """
    # Read before Spark starts: a mistake in the spec is told at once.
    load_replay_spec(spec)
    summary = _run(spec, out, quiet=as_json)
    failed = [name for name, item in _queries(summary).items() if item.get("error") or item.get("stopped")]
    if as_json:
        output.print_json(summary)
    else:
        _show(summary, out)
    raise typer.Exit(output.EXIT_ERROR if strict and failed else 0)


def _run(spec: Path, out: Path, quiet: bool) -> Mapping[str, Any]:
    from millstream.engine.replay import replay as run_replay

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with (
        tempfile.TemporaryDirectory(prefix="millstream-log-") as scratch,
        Progress(*columns, console=output.console(stderr=True), disable=quiet, transient=True) as progress,
        spark_log(Path(scratch) / LOG_FILE),
    ):
        return run_replay(spec, out, progress=_shown_in(progress))


def _shown_in(progress: Progress) -> Callable[[ReplayProgress], None]:
    task = progress.add_task("starting Spark", total=None, figures="")

    def show(now: ReplayProgress) -> None:
        figures = (
            f"{output.count(now.rows)} rows, batch {now.round} of {now.rounds}, {output.count(now.answers)} answers"
        )
        progress.update(
            task,
            description=STAGES.get(now.stage, now.stage),
            total=now.total_rows or None,
            completed=now.rows,
            figures=figures,
        )

    return show


def _queries(summary: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return dict(summary.get("queries", {}))


def _show(summary: Mapping[str, Any], out: Path) -> None:
    console = output.console()
    numbers = ("rows", "late", "rejected", "batches")
    streams = [
        (name, *(item.get(key, 0) for key in ("rows_in", "late_rows", "rejected_rows", "batches")))
        for name, item in summary.get("streams", {}).items()
    ]
    console.print(output.table(("stream", *numbers), streams, right=numbers))
    console.print()
    queries = _queries(summary)
    ran = [(name, item) for name, item in queries.items() if not item.get("error")]
    refused = [(name, item) for name, item in queries.items() if item.get("error")]
    figures = ("windows", "answer rows", "late")
    lines = [
        (name, *(item.get(key, 0) for key in ("windows_fired", "answer_rows", "late_rows")))
        for name, item in ran[:SHOWN_QUERIES]
    ]
    if ran:
        console.print(output.table(("query", *figures), lines, right=figures))
    if len(ran) > SHOWN_QUERIES:
        console.print(Text(f"and {len(ran) - SHOWN_QUERIES} more", style="dim"))
    for name, item in refused[:SHOWN_QUERIES]:
        console.print(Text(f"refused {name}: {item['error']['code']}: {item['error']['message']}", style="yellow"))
    stopped = [(name, item["stopped"]) for name, item in ran if item.get("stopped")]
    for name, reason in stopped[:SHOWN_QUERIES]:
        console.print(Text(f"stopped {name}: {reason}", style="yellow"))
    total = sum(item.get("answer_rows", 0) for _, item in ran)
    console.print(
        Text(f"{len(ran)} queries answered with {total} rows, {len(refused)} refused; answers in {out}", style="bold"),
        soft_wrap=True,
    )
