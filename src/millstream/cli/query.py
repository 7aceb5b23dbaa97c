"""``millstream query``: create, list, show, explain, watch and delete queries of a running engine."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from millstream.cli import output
from millstream.cli.options import Home, Json, Owner, Url, connect
from millstream.cli.watch import watch_lines, watch_table
from millstream.engine.status import QueryStatus
from millstream.errors import MillstreamError, SpecError
from millstream.server.wire import error_to_json, to_json

app = typer.Typer(no_args_is_help=True, help="Create, list, show, explain, watch and delete queries.")

QueryId = Annotated[str, typer.Argument(metavar="ID", help="The query's id.", show_default=False)]


@app.command()
def create(
    sql: Annotated[
        str | None, typer.Argument(metavar="SQL", help="The query, or - to read it from standard input.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read the query from a file.", dir_okay=False)
    ] = None,
    id: Annotated[str | None, typer.Option("--id", help="An id of your own; made up otherwise.")] = None,
    owner: Owner = None,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Create a query in Spark SQL; it runs from the next micro-batch on.

    \b
    Examples:
    millstream query create "SELECT gem_pack, SUM(price) AS revenue FROM purchases WHERE price > 10
                             GROUP BY gem_pack, window(time, '8 seconds', '4 seconds')"
    millstream query create --file revenue.sql --owner marketing
    echo "SELECT * FROM purchases WHERE price > 90" | millstream query create -
    """
    text = _read_sql(sql, file)
    with connect(home, url, owner) as client:
        started = time.monotonic()
        created = client.create_query(text, owner=owner or "", id=id)
        elapsed = time.monotonic() - started
    if as_json:
        output.print_json({**to_json(created), "seconds": round(elapsed, 3)})
    else:
        print(f"created {created.id}  epoch {created.epoch}  in {output.seconds(elapsed)}")


def _read_sql(sql: str | None, file: Path | None) -> str:
    if (sql is None) == (file is None):
        raise typer.BadParameter("give the SQL as argument, as - for standard input, or by --file")
    if file is not None:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise SpecError("BAD_FILE", f"cannot read {file}: {reason}") from None
    else:
        text = sys.stdin.read() if sql == "-" else sql or ""
    return text.strip()


@app.command("list")
def list_queries(
    owner: Owner = None,
    state: Annotated[
        str | None, typer.Option(help="Only those in this state: running, deleting, deleted, failed.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Deleted queries too.")] = False,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List the queries: what they have fired, and what came late."""
    with connect(home, url) as client:
        found = client.queries(owner=owner, state=state)
    shown = [item for item in found if everything or state or item.state != "deleted"]
    if as_json:
        output.print_json({"queries": shown})
        return
    numbers = ("windows", "answer rows", "late", "failures")
    columns = ("id", "owner", "state", *numbers, "sql")
    console = output.console()
    console.print(output.table(columns, map(_row, shown), right=numbers))
    console.print(Text(f"{len(shown)} queries", style="dim"))


def _row(item: QueryStatus) -> tuple[object, ...]:
    numbers = (output.count(n) for n in (item.windows, item.answer_rows, item.late_rows, item.failures))
    return item.id, item.owner, output.state(item.state), *numbers, output.short(item.sql)


@app.command()
def show(id: QueryId, home: Home = None, url: Url = None, as_json: Json = False) -> None:
    """Show one query: its SQL, its columns, its cut and its counters."""
    with connect(home, url) as client:
        item = client.query(id)
    if as_json:
        output.print_json(item)
        return
    cut = ", ".join(f"{stream} from batch {batch}" for stream, batch in item.cut.items())
    facts = [
        ("id", item.id),
        ("owner", item.owner or "–"),
        ("state", output.state(item.state)),
        ("created", f"{output.clock(item.created_at)}, epoch {item.epoch}"),
        ("cut", cut),
        ("group", item.group),
        ("fired to", output.clock(item.fired_to)),
        ("windows", item.windows),
        ("answer rows", item.answer_rows),
        ("late rows", item.late_rows),
        ("failures", item.failures),
        *([("incomplete", Text(f"{item.incomplete} windows", style="red"))] if item.incomplete else []),
        *([("reason", Text(item.reason, style="red"))] if item.reason else []),
        ("columns", ", ".join(f"{name} {kind}" for name, kind in item.schema)),
    ]
    console = output.console()
    console.print(output.facts(facts))
    console.print()
    console.print(Text(item.sql.strip()))


@app.command()
def explain(id: QueryId, home: Home = None, url: Url = None, as_json: Json = False) -> None:
    """Explain a query: its joins and sources, what it shares with which queries, and how much it has.

    Rows are those of the query in its next window so far; runs are rows with the same keys and class put together,
    which is what is stored, shared and joined.
    """
    with connect(home, url) as client:
        found = client.explain(id)
    if as_json:
        output.print_json(found)
        return
    console = output.console()
    for number, text in enumerate(found.tree):
        console.print(output.branch(text, head=number == 0), soft_wrap=True)


@app.command()
def watch(
    id: QueryId,
    lines: Annotated[bool, typer.Option("--lines", help="Print every row as a line of tab-separated values.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="End after so many answers.")] = None,
    new: Annotated[bool, typer.Option("--new", help="Skip the answers there are already.")] = False,
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="Begin after this cursor of an earlier answer.")
    ] = None,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Watch the answers of a query: a live table of its newest window, or every row as it comes.

    Ends with Ctrl-C, with --limit, or when the query is deleted. Into a pipe it prints lines. With --json an answer is
    a line, or several where a join's answer is large: offset and total_rows tell which rows of it a line has.

    \b
    Examples:
    millstream query watch q-7f3a
    millstream query watch q-7f3a --lines | grep -v NULL
    millstream query watch q-7f3a --json --limit 1
    """
    with connect(home, url) as client:
        item = client.query(id)
        try:
            if as_json or lines or not sys.stdout.isatty():
                watch_lines(client, item, cursor, limit, new=new, as_json=as_json)
            else:
                watch_table(client, item, cursor, limit, output.console())
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


@app.command()
def delete(
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="The queries' ids.", show_default=False)],
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Delete queries, all of them in one epoch. Their answers stay readable until they expire."""
    with connect(home, url) as client:
        results = client.delete_queries(ids)
    errors = [item for item in results if isinstance(item, MillstreamError)]
    if as_json:
        found = [error_to_json(item) if isinstance(item, MillstreamError) else {"query": item} for item in results]
        output.print_json({"queries": found})
        raise typer.Exit(output.EXIT_ERROR if errors else 0)
    for item in results:
        if not isinstance(item, MillstreamError):
            print(f"deleted {item.id}  {item.windows} windows fired  {item.answer_rows} answer rows")
    for error in errors:
        output.report(error, as_json=False)
    raise typer.Exit(output.EXIT_ERROR if errors else 0)
