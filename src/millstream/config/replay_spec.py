"""The spec of ``millstream replay``: recorded streams, and queries with the batches at which they come and go."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.config.documents import Document, Node, read_document
from millstream.errors import MillstreamError, SpecError


@dataclass(frozen=True, slots=True)
class ReplayStream:
    path: str
    time: str
    lateness: int = 0
    schema: str | None = None


@dataclass(frozen=True, slots=True)
class ReplayQuery:
    """A query that sees the batches ``create_at_batch … delete_at_batch - 1`` (None: to the end)."""

    id: str
    sql: str
    create_at_batch: int = 0
    delete_at_batch: int | None = None


@dataclass(frozen=True, slots=True)
class RefusedQuery:
    """A query of the spec that cannot run, while the others do; ``name`` is unique within the spec."""

    index: int
    id: str
    error: MillstreamError

    @property
    def name(self) -> str:
        return f"{self.id}#{self.index}"


@dataclass(frozen=True, slots=True)
class ReplaySpec:
    batch_rows: int
    streams: dict[str, ReplayStream]
    queries: tuple[ReplayQuery, ...]
    refused: tuple[RefusedQuery, ...] = ()


# A query's id becomes a file name.
_QUERY_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}")


def load_replay_spec(spec: str | Path | Mapping[str, Any]) -> ReplaySpec:
    """Read a replay spec from a file, or check one given as a dictionary, whose paths are relative to the working
    directory."""
    if isinstance(spec, Mapping):
        root, base = Node(spec, "", Document()), Path.cwd()
    else:
        root, base = read_document(Path(spec)), Path(spec).absolute().parent
    top = root.keys(("batch_rows", "streams", "queries"), required=("batch_rows", "streams", "queries"))
    batch_rows = top["batch_rows"].integer(1)
    streams = {name: _replay_stream(name, node, base) for name, node in top["streams"].entries()}
    if not streams:
        top["streams"].refuse("no stream is given")
    kept: dict[str, ReplayQuery] = {}
    refused: list[RefusedQuery] = []
    for index, node in enumerate(top["queries"].items()):
        query = _replay_query(node)
        if query.id in kept:
            refused.append(RefusedQuery(index, query.id, _duplicate(node, query.id)))
        else:
            kept[query.id] = query
    return ReplaySpec(batch_rows, streams, tuple(kept.values()), tuple(refused))


def _duplicate(node: Node, query_id: str) -> MillstreamError:
    place = node.document.places.get(f"{node.path}.id")
    message = f"{node.path}.id: a query {query_id!r} stands before it in the spec"
    text = node.document.text if place else None
    return SpecError("DUPLICATE_QUERY", message, hint="give each query its own id", position=place, text=text)


def _replay_stream(name: str, node: Node, base: Path) -> ReplayStream:
    node.name(name)
    given = node.keys(("path", "time", "lateness", "schema"), required=("path", "time"))
    path = base / Path(given["path"].text()).expanduser()
    if not path.exists():
        given["path"].refuse(f"no file or directory {path}", "a relative path is relative to the spec file")
    return ReplayStream(
        path=str(path),
        time=given["time"].text(),
        lateness=given["lateness"].duration() if "lateness" in given else 0,
        schema=given["schema"].text() if "schema" in given else None,
    )


def _replay_query(node: Node) -> ReplayQuery:
    given = node.keys(("id", "sql", "create_at_batch", "delete_at_batch"), required=("id", "sql"))
    query_id = given["id"].text()
    if not _QUERY_ID.fullmatch(query_id):
        given["id"].refuse(f"{query_id!r} cannot be a file name", "use letters, digits, '-', '_' and '.', at most 200")
    create = given["create_at_batch"].integer(0) if "create_at_batch" in given else 0
    delete = given["delete_at_batch"].integer(0) if "delete_at_batch" in given else None
    if delete is not None and delete <= create:
        given["delete_at_batch"].refuse(f"is {delete}, but must be after create_at_batch ({create})")
    return ReplayQuery(query_id, given["sql"].text(), create, delete)
