"""The options that several commands share, and the client they lead to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from millstream.server.client import Client
from millstream.server.discovery import find

_JSON_KEY = "millstream.json"


def _remember_json(context: typer.Context, value: bool) -> bool:
    """Errors are reported outside the command, which then no longer knows its options."""
    context.meta[_JSON_KEY] = value
    return value


def wants_json(context: typer.Context) -> bool:
    return bool(context.meta.get(_JSON_KEY))


Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.", callback=_remember_json, is_eager=True)]
Home = Annotated[
    Path | None,
    typer.Option("--home", help="The engine's home directory (~/.millstream if not given).", envvar="MILLSTREAM_HOME"),
]
Url = Annotated[
    str | None, typer.Option("--url", help="Where the engine answers, instead of a home.", envvar="MILLSTREAM_URL")
]
Owner = Annotated[str | None, typer.Option("--owner", help="The owner of the queries.", envvar="MILLSTREAM_OWNER")]


def connect(home: Path | None, url: str | None, owner: str | None = None) -> Client:
    """A client of the engine the options name: its address, else its home, else the one that was started last."""
    address = url or find(home.expanduser() if home else None).url
    return Client(address, owner=owner or "")
