"""The file of ``millstream start``: home, HTTP address, settings and streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from millstream.config.documents import Node, nearest, read_document
from millstream.config.settings import DURATION_SETTINGS, LEAST, TEXT_SETTINGS, Settings
from millstream.errors import SpecError


@dataclass(frozen=True, slots=True)
class StreamDefinition:
    """A stream of a stream file; ``source`` is the description from which ``sources.source_from`` builds the source."""

    name: str
    time: str
    lateness: int
    max_skew: int | None
    idle_timeout: int | None
    source: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class StreamFile:
    settings: Settings
    streams: tuple[StreamDefinition, ...]


_FILE_KEYS: dict[str, Callable[[Node], object]] = {
    "path": Node.text,
    "schema": Node.text,
    "max_files_per_batch": lambda node: node.integer(1),
}
_GENERATOR_KEYS: dict[str, Callable[[Node], object]] = {
    name: (lambda node, least=least: node.integer(least))
    for name, least in {"rate": 1, "density": 1, "seed": 0, "rows": 0, "max_rows_per_batch": 1}.items()
} | {"disorder": Node.duration}
# What may stand beside `source: …` in a stream's definition; the key `path` is required for files.
SOURCE_KEYS: dict[str, dict[str, Callable[[Node], object]]] = {
    "parquet": _FILE_KEYS,
    "csv": _FILE_KEYS,
    "json": _FILE_KEYS,
    "astream": _GENERATOR_KEYS | {"keys": lambda node: node.integer(1), "fields_max": lambda node: node.integer(1)},
    "gaming": _GENERATOR_KEYS
    | {"table": Node.text, "users": lambda node: node.integer(1), "gem_packs": lambda node: node.integer(1)},
}
_STREAM_KEYS = ("source", "time", "lateness", "max_skew", "idle_timeout")


def load_stream_file(path: str | Path) -> StreamFile:
    """Read the file of ``millstream start``; relative paths in it are relative to the file."""
    base = Path(path).absolute().parent
    top = read_document(Path(path)).keys(("home", "http", "settings", "streams"), required=("streams",))
    given: dict[str, Any] = {}
    if "home" in top:
        given["home"] = str(base / Path(top["home"].text()).expanduser())
    if "http" in top:
        http = top["http"].keys(("host", "port"))
        given |= {"http_host": http["host"].text()} if "host" in http else {}
        given |= {"http_port": http["port"].integer(0)} if "port" in http else {}
    if "settings" in top:
        given |= _settings(top["settings"])
    try:
        settings = Settings(**given)
    except SpecError as error:
        top.get("settings", top["streams"]).refuse(error.message, error.hint)
    streams = tuple(_stream(name, node, base) for name, node in top["streams"].entries())
    return StreamFile(settings, streams)


def _settings(node: Node) -> dict[str, Any]:
    known = [f.name for f in fields(Settings) if f.name not in ("home", "http_host", "http_port")]
    given: dict[str, Any] = {}
    for name, value in node.keys(known).items():
        if name in DURATION_SETTINGS:
            given[name] = value.duration()
        else:
            given[name] = value.text() if name in TEXT_SETTINGS else value.integer(LEAST[name])
    return given


def _stream(name: str, node: Node, base: Path) -> StreamDefinition:
    node.name(name)
    source = dict(node.entries()).get("source") or node.refuse(
        "missing key 'source'", f"one of: {', '.join(SOURCE_KEYS)}"
    )
    kind = source.text()
    if kind not in SOURCE_KEYS:
        source.refuse(f"unknown source {kind!r}", nearest(kind, SOURCE_KEYS))
    of_files = SOURCE_KEYS[kind] is _FILE_KEYS
    given = node.keys((*_STREAM_KEYS, *SOURCE_KEYS[kind]), required=("path", "time") if of_files else ())
    options = {key: str(read(given[key])) for key, read in SOURCE_KEYS[kind].items() if key in given}
    if "path" in options and "://" not in options["path"]:
        options["path"] = str(base / Path(options["path"]).expanduser())
    return StreamDefinition(
        name=name,
        time=given["time"].text() if "time" in given else "time",
        lateness=given["lateness"].duration() if "lateness" in given else 0,
        max_skew=given["max_skew"].duration() if "max_skew" in given else None,
        idle_timeout=given["idle_timeout"].duration() if "idle_timeout" in given else None,
        source=(("source", kind), *options.items()),
    )
