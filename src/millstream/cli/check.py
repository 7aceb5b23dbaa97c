"""``millstream check``: whether the files of a home are what was written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from millstream.cli import output
from millstream.cli.options import Json
from millstream.config import Settings

if TYPE_CHECKING:
    from millstream.engine.check import Finding


def check(
    home: Annotated[
        Path | None,
        typer.Argument(
            metavar="HOME", help="The engine's home directory (~/.millstream if not given).", envvar="MILLSTREAM_HOME"
        ),
    ] = None,
    metastore_url: Annotated[
        str | None, typer.Option("--metastore-url", help="Where the metastore is, if not inside the home.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Verify all checksums of a home, and that files and metastore agree. Nothing is changed, and an engine may run.

    Exit code 1 when something is damaged: buckets and group versions will be rebuilt where their sources are still
    there, answers will not.
    """
    # What reads buckets takes a while to import, which other commands need not pay.
    from millstream.engine.check import check_home, report_as_dict

    place = (home or Path(Settings().home)).expanduser().absolute()
    report = check_home(str(place), metastore_url)
    if as_json:
        output.print_json(report_as_dict(report))
    else:
        console = output.console()
        bad = {kind: sum(f.kind == kind for f in report.findings) for kind in report.checked}
        rows = [(kind, count, bad[kind]) for kind, count in report.checked.items()]
        console.print(output.table(("what", "checked", "damaged"), rows, right=("checked", "damaged")))
        for title, findings in (("damaged", report.findings), ("lost before", report.lost)):
            if findings:
                console.print()
                console.print(output.table((title, "file", "problem"), map(_row, findings)))
        if report.unnamed:
            remark = (
                f"{report.unnamed} files that the metastore does not name; the next start removes those of dead jobs"
            )
            console.print(Text(remark, style="dim"))
        console.print(Text("all good", style="green") if report.good else Text("damaged", style="bold red"))
    raise typer.Exit(0 if report.good else output.EXIT_ERROR)


def _row(finding: Finding) -> tuple[str, str, str]:
    return finding.kind, finding.path, finding.problem
