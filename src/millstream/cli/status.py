"""``millstream status``: the running engine at a glance."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.text import Text

from millstream.cli import output
from millstream.cli.options import Home, Json, Url, connect
from millstream.cli.stream import stream_table
from millstream.server.wire import to_json


def status(home: Home = None, url: Url = None, as_json: Json = False) -> None:
    """Show the running engine: epoch, queries, streams, speed, state.

    Exit code 3 when no engine answers, so that scripts can wait for one.
    """
    with connect(home, url) as client:
        found = client.status()
        address = client.url
    if as_json:
        output.print_json({"url": address, **to_json(found)})
        return
    uptime = (datetime.now(UTC) - found.started_at).total_seconds()
    facts = [
        ("engine", f"{address}, millstream {found.version}, up {output.seconds(max(0.0, uptime))}"),
        ("home", found.home),
        ("epoch", found.epoch),
        ("queries", f"{found.queries} running in {found.groups} groups with {found.classes} classes"),
        ("speed", f"{output.count(found.rows_per_second)} rows/s"),
        ("fires", f"{found.fires}, the last took {output.seconds(found.fire_seconds)}"),
        ("answers", f"{output.count(found.answer_rows)} rows"),
        ("state", output.size(found.state_bytes)),
    ]
    if found.metastore_away:
        facts.insert(1, ("metastore", f"away: {found.metastore_away}"))
    if found.rebuilt_files or found.lost_buckets:
        facts.append(("damage", f"{found.rebuilt_files} files rebuilt, {found.lost_buckets} buckets lost"))
    console = output.console()
    console.print(output.facts(facts))
    console.print()
    console.print(stream_table(found.streams))
    for name, error in [("fire", found.error), *((item.name, item.error) for item in found.streams)]:
        if error:
            console.print(Text(f"{name}: {error}", style="red"), soft_wrap=True)
