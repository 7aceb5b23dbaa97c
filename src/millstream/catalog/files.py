"""The files that rows of the metastore name: buckets, answers, dead letters, group versions.

A file is written before the transaction that names it and removed after the transaction that forgets it, so a file
without a row is an orphan and a row without a file cannot be.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Table, bindparam, delete, func, insert, select, update

from millstream.catalog import tables as t
from millstream.catalog.database import Transaction
from millstream.catalog.records import AnswerRecord
from millstream.catalog.statements import chunks
from millstream.errors import EngineError
from millstream.model.plan import AnswerFile, Bucket, BucketFile

_SET_BUCKETS = (
    update(t.bucket_files).where(t.bucket_files.c.path == bindparam("at_path")).values(buckets=bindparam("text"))
)
# What write_buckets makes of none.
_NO_BUCKETS = "[]"
_a = t.answers.c
_r = t.answer_refs.c
_AFTER = (
    select(t.answers)
    .where(_a.stream == bindparam("at_stream"), _a.seq > bindparam("seq"))
    .order_by(_a.seq)
    .limit(bindparam("most"))
)


def write_buckets(buckets: Sequence[Bucket]) -> str:
    """A file's buckets as one short text; a row for each bucket would cost more than the whole commit."""
    return json.dumps([_bucket_row(b) for b in buckets], separators=(",", ":"))


def _bucket_row(b: Bucket) -> list[Any]:
    """Lists written before there were checksums end with the cells."""
    row = [b.group, b.version, b.start, b.end, b.offset, b.length, b.cells]
    more = [b.checksum, b.lost, b.body]
    while more and more[-1] is None:
        more.pop()
    return row + more


def read_buckets(text: str) -> tuple[Bucket, ...]:
    return tuple([Bucket(*row) for row in json.loads(text)])


def add_buckets(tx: Transaction, files: Sequence[BucketFile]) -> None:
    if files:
        rows = [
            {
                "path": file.path,
                "stream": file.stream,
                "batch": file.batch,
                "watermark": file.watermark,
                "buckets": write_buckets(file.buckets),
            }
            for file in files
        ]
        tx.connection.execute(insert(t.bucket_files), rows)


def remove_buckets(tx: Transaction, replaced: Sequence[tuple[str, int]]) -> None:
    """Take compacted buckets out of their files; a file that has none left is forgotten, unless an answer refers to
    it."""
    offsets: dict[str, set[int]] = defaultdict(set)
    for path, offset in replaced:
        offsets[path].add(offset)
    shorter, empty = [], []
    for path, text in _bucket_texts(tx, list(offsets)).items():
        rows = json.loads(text)
        left = [row for row in rows if row[4] not in offsets[path]]
        if len(rows) - len(left) != len(offsets[path]):
            raise EngineError("INTERNAL", f"a fire replaces buckets of {path!r} that are not there")
        if left:
            shorter.append({"at_path": path, "text": json.dumps(left, separators=(",", ":"))})
        else:
            empty.append(path)
    if shorter:
        tx.connection.execute(_SET_BUCKETS, shorter)
    _forget_buckets(tx, empty)


def set_buckets(tx: Transaction, texts: Mapping[str, str]) -> None:
    """Other descriptions of the buckets of files, by path."""
    if texts:
        tx.connection.execute(_SET_BUCKETS, [{"at_path": path, "text": text} for path, text in texts.items()])


def _forget_buckets(tx: Transaction, paths: Sequence[str]) -> list[str]:
    """Forget bucket files, and give them; those that an answer refers to stay, without buckets that a fire could
    read."""
    kept = referred(tx, paths)
    gone = [path for path in paths if path not in kept]
    if kept:
        tx.connection.execute(_SET_BUCKETS, [{"at_path": path, "text": _NO_BUCKETS} for path in sorted(kept)])
    _delete_paths(tx, t.bucket_files, gone)
    return gone


def referred(tx: Transaction, paths: Sequence[str]) -> set[str]:
    """Those of the paths that an answer which is kept refers to."""
    return {
        path
        for part in chunks(paths)
        for path in tx.connection.execute(select(_r.path).where(_r.path.in_(part)).distinct()).scalars()
    }


def _bucket_texts(tx: Transaction, paths: Sequence[str]) -> dict[str, str]:
    columns = (t.bucket_files.c.path, t.bucket_files.c.buckets)
    texts = {
        row.path: row.buckets
        for part in chunks(paths)
        for row in tx.connection.execute(select(*columns).where(t.bucket_files.c.path.in_(part)))
    }
    if len(texts) != len(paths):
        missing = next(path for path in paths if path not in texts)
        raise EngineError("INTERNAL", f"a fire replaces buckets of {missing!r}, which is no bucket file")
    return texts


def buckets(tx: Transaction, stream: str) -> list[BucketFile]:
    rows = tx.connection.execute(
        select(t.bucket_files)
        .where(t.bucket_files.c.stream == stream, t.bucket_files.c.buckets != _NO_BUCKETS)
        .order_by(t.bucket_files.c.batch, t.bucket_files.c.path)
    )
    return [BucketFile(r.path, r.stream, r.batch, r.watermark, read_buckets(r.buckets)) for r in rows]


def add_answers(tx: Transaction, stream: str, files: Sequence[AnswerFile], batch: int | None = None) -> None:
    if not files:
        return
    numbers = tx.take_seqs(len(files))
    rows = [
        {
            "seq": seq,
            "stream": stream,
            "committed_at": tx.now,
            "batch": batch,
            "path": file.path,
            "index_offset": file.index_offset,
            "index_length": file.index_length,
            "rows": file.rows,
            "queries": file.queries,
        }
        for seq, file in zip(numbers, files, strict=True)
    ]
    tx.connection.execute(insert(t.answers), rows)
    refs = [
        {"seq": seq, "path": path} for seq, file in zip(numbers, files, strict=True) for path in sorted({*file.refers})
    ]
    if refs:
        tx.connection.execute(insert(t.answer_refs), refs)


def answers_after(tx: Transaction, stream: str, seq: int, limit: int) -> list[AnswerRecord]:
    """What the files refer to is not read back: it is for clean-up, and can be long."""
    rows = tx.connection.execute(_AFTER, {"at_stream": stream, "seq": seq, "most": limit})
    return [
        AnswerRecord(
            row.seq,
            row.stream,
            row.committed_at,
            row.batch,
            AnswerFile(row.path, row.index_offset, row.index_length, row.rows, row.queries),
        )
        for row in rows
    ]


def answer_bounds(tx: Transaction) -> tuple[int, int]:
    """The number of the oldest answer file kept, of any stream, and the highest given out. Files are forgotten oldest
    first, so whoever has read up to the oldest has missed nothing."""
    oldest = tx.connection.execute(select(func.min(_a.seq))).scalar()
    return (tx.answer_seq + 1 if oldest is None else oldest, tx.answer_seq)


def expire_answers(tx: Transaction, before_seq: int | None, before_time: int | None) -> list[str]:
    """Forget answers with a lower number or committed earlier; for removal, their paths and those of the bucket files
    that were kept for them alone."""
    first = max(before_seq or 0, 0 if before_time is None else _first_kept(tx, before_time))
    paths = list(tx.connection.execute(select(_a.path).where(_a.seq < first).order_by(_a.seq)).scalars())
    mine = _r.seq < first
    let_go = list(tx.connection.execute(select(_r.path).where(mine).distinct().order_by(_r.path)).scalars())
    if let_go:
        tx.connection.execute(delete(t.answer_refs).where(mine))
    tx.connection.execute(delete(t.answers).where(_a.seq < first))
    return paths + _forget_buckets(tx, _without_buckets(tx, let_go))


def _first_kept(tx: Transaction, before: int) -> int:
    """The number that answers committed before a time end at. Clocks are set back: an answer goes only together with
    all before it, and one whose time has not come yet is as old as the next."""
    young = _a.committed_at.between(before, tx.now)
    last_old: int | None = tx.connection.execute(select(func.max(_a.seq)).where(_a.committed_at < before)).scalar()
    first_young: int | None = tx.connection.execute(select(func.min(_a.seq)).where(young)).scalar()
    if last_old is None:
        return 0
    return last_old + 1 if first_young is None else min(last_old + 1, first_young)


def _without_buckets(tx: Transaction, paths: Sequence[str]) -> list[str]:
    b = t.bucket_files.c
    return [
        path
        for part in chunks(paths)
        for path in tx.connection.execute(select(b.path).where(b.path.in_(part), b.buckets == _NO_BUCKETS)).scalars()
    ]


def add_dead_letters(tx: Transaction, stream: str, batch: int, paths: Sequence[str]) -> None:
    if paths:
        rows = [{"path": path, "stream": stream, "batch": batch} for path in paths]
        tx.connection.execute(insert(t.dead_letters), rows)


def dead_letters(tx: Transaction, stream: str) -> list[tuple[int, str]]:
    columns = (t.dead_letters.c.batch, t.dead_letters.c.path)
    rows = tx.connection.execute(select(*columns).where(t.dead_letters.c.stream == stream).order_by(*columns))
    return [(row.batch, row.path) for row in rows]


def drop_files(tx: Transaction, paths: Sequence[str]) -> list[str]:
    gone = _forget_buckets(tx, paths)
    _delete_paths(tx, t.dead_letters, gone)
    return gone


def _delete_paths(tx: Transaction, table: Table, paths: Sequence[str]) -> None:
    for part in chunks(paths):
        tx.connection.execute(delete(table).where(table.c.path.in_(part)))


def referenced_files(tx: Transaction) -> set[str]:
    tables = (t.bucket_files, t.answers, t.answer_refs, t.group_versions, t.dead_letters)
    paths: set[Any] = set()
    for table in tables:
        paths.update(tx.connection.execute(select(table.c.path)).scalars())
    return paths - {""}  # a retired group version has no file
