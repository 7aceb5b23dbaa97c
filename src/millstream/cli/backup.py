"""``millstream backup`` and ``millstream restore``: a copy of a home, and a home from a copy."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli import output
from millstream.cli.options import Json

if TYPE_CHECKING:
    from millstream.engine.backup import Backup

MetastoreUrl = Annotated[
    str | None,
    typer.Option(
        "--metastore-url",
        help="The metastore, where it is in PostgreSQL.",
        envvar="MILLSTREAM_METASTORE_URL",
        show_default=False,
    ),
]


def backup(
    home: Annotated[Path, typer.Argument(metavar="HOME", help="The engine's home directory.", show_default=False)],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="A directory to be made.", show_default=False)],
    metastore_url: MetastoreUrl = None,
    as_json: Json = False,
) -> None:
    """Copy a home, while its engine runs or not.

    The copy is itself a home, of one moment, with its metastore in SQLite: an engine started on it goes on from that
    moment.
    """
    from millstream.engine.backup import back_up

    made = back_up(home.expanduser(), target.expanduser(), metastore_url)
    _tell(f"backed up {home} in {target}", made, as_json)


def restore(
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="What backup has made.", show_default=False)],
    home: Annotated[Path, typer.Argument(metavar="HOME", help="A directory to be made.", show_default=False)],
    metastore_url: MetastoreUrl = None,
    as_json: Json = False,
) -> None:
    """Make a home of a backup; with --metastore-url its metastore goes into an empty PostgreSQL database."""
    from millstream.engine import backup as backups

    made = backups.restore(source.expanduser(), home.expanduser(), metastore_url)
    _tell(f"restored {source} in {home}", made, as_json)


def _tell(done: str, made: Backup, as_json: bool) -> None:
    if as_json:
        output.print_json(asdict(made))
    else:
        output.console().print(f"{done}: {made.streams} streams, {made.files} files, {output.size(made.bytes)}")
