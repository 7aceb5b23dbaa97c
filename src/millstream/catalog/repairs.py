"""What damaged files are mended with, and what is known of those that cannot be: recipes of batches, the batches that
compacted files were made of, lost buckets, and how many windows were answered without them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence

from sqlalchemy import bindparam, delete, insert, select, update

from millstream.catalog import tables as t
from millstream.catalog.database import Transaction
from millstream.catalog.files import add_buckets, remove_buckets, set_buckets
from millstream.catalog.records import VersionPlace
from millstream.catalog.statements import chunks
from millstream.model import codec
from millstream.model.legs import query_of_member
from millstream.model.plan import BucketFile, Recipe

_r = t.recipes.c
_o = t.bucket_origins.c
_b = t.bucket_files.c
_i = t.incomplete.c

_ADD_INCOMPLETE = (
    update(t.incomplete).where(_i.query == bindparam("at_query")).values(windows=_i.windows + bindparam("more"))
)
# Where a bucket's row in the text of its file says why it is lost.
_LOST = 8


def keep_recipe(tx: Transaction, recipe: Recipe) -> None:
    """With the commit of the batch; doing so again has no effect."""
    mine = (_r.stream == recipe.stream, _r.batch == recipe.batch)
    if tx.connection.execute(select(_r.batch).where(*mine)).first() is None:
        text = codec.dumps(recipe)
        tx.connection.execute(insert(t.recipes), {"stream": recipe.stream, "batch": recipe.batch, "recipe": text})


def recipes(tx: Transaction, stream: str, batches: Sequence[int]) -> dict[int, Recipe]:
    """The recipes that are kept, by batch."""
    rows = tx.connection.execute(select(_r.batch, _r.recipe).where(_r.stream == stream, _r.batch.in_(list(batches))))
    return {row.batch: codec.loads(row.recipe) for row in rows}


def keep_origins(tx: Transaction, origins: Mapping[str, Mapping[int, Sequence[int]]]) -> None:
    rows = [
        {"path": path, "batch": batch, "checksums": json.dumps(list(checksums))}
        for path, batches in origins.items()
        for batch, checksums in batches.items()
    ]
    if rows:
        tx.connection.execute(insert(t.bucket_origins), rows)


def origins(tx: Transaction, path: str) -> dict[int, list[int]]:
    """The batches that a compacted file was made of, with the checksums of their buckets; none for the file of a
    batch."""
    rows = tx.connection.execute(select(_o.batch, _o.checksums).where(_o.path == path).order_by(_o.batch))
    return {row.batch: json.loads(row.checksums) for row in rows}


def expire_recipes(tx: Transaction) -> None:
    """Forget recipes of batches that no bucket file comes from any more."""
    tx.connection.execute(delete(t.bucket_origins).where(_o.path.not_in(select(_b.path))))
    own = select(_b.path).where(_b.stream == _r.stream, _b.batch == _r.batch)
    compacted = select(_o.path).join(t.bucket_files, _b.path == _o.path)
    compacted = compacted.where(_b.stream == _r.stream, _o.batch == _r.batch)
    tx.connection.execute(delete(t.recipes).where(~own.exists(), ~compacted.exists()))
    tx.connection.execute(delete(t.incomplete).where(_i.query.not_in(select(t.queries.c.id))))


def exchange_buckets(tx: Transaction, replaced: Sequence[tuple[str, int]], files: Sequence[BucketFile]) -> None:
    """Put rebuilt buckets in the place of damaged ones."""
    remove_buckets(tx, replaced)
    add_buckets(tx, files)


def lose_buckets(tx: Transaction, lost: Mapping[tuple[str, int], str]) -> None:
    """Note why the buckets at (path, offset) are lost; one that is gone meanwhile is passed over."""
    by_path: dict[str, dict[int, str]] = defaultdict(dict)
    for (path, offset), reason in lost.items():
        by_path[path][offset] = reason
    changed: dict[str, str] = {}
    for part in chunks(list(by_path)):
        for row in tx.connection.execute(select(_b.path, _b.buckets).where(_b.path.in_(part))):
            buckets = json.loads(row.buckets)
            for bucket in buckets:
                if bucket[4] in by_path[row.path]:
                    bucket += [None] * (_LOST + 1 - len(bucket))
                    bucket[_LOST] = by_path[row.path][bucket[4]]
            changed[row.path] = json.dumps(buckets, separators=(",", ":"))
    set_buckets(tx, changed)


def batch_of(tx: Transaction, path: str) -> tuple[str, int] | None:
    """The stream and the batch that a bucket file belongs to."""
    row = tx.connection.execute(select(_b.stream, _b.batch).where(_b.path == path)).first()
    return None if row is None else (row.stream, row.batch)


def version_place(tx: Transaction, path: str) -> VersionPlace | None:
    v, e = t.group_versions.c, t.epochs.c
    row = tx.connection.execute(
        select(v.group_name, v.version, v.stream, v.epoch, e.sealed_at)
        .join(t.epochs, v.epoch == e.number, isouter=True)
        .where(v.path == path)
    ).first()
    return None if row is None else VersionPlace(*row)


def add_incomplete(tx: Transaction, windows: Mapping[str, int]) -> None:
    """Count windows that were answered without lost data."""
    for member, more in windows.items():
        query = query_of_member(member)
        if not tx.connection.execute(_ADD_INCOMPLETE, {"at_query": query, "more": more}).rowcount:
            tx.connection.execute(insert(t.incomplete), {"query": query, "windows": more})


def incomplete(tx: Transaction) -> dict[str, int]:
    """Windows answered without lost data, by query; few queries have any."""
    return {row.query: row.windows for row in tx.connection.execute(select(_i.query, _i.windows))}
