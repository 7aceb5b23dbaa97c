"""The tables of the metastore. Plain SQL types only: the same schema serves SQLite and PostgreSQL.

One row of ``engine`` is the head of everything: it holds the fence, the epoch and the answer counter, and every writing
transaction locks it first, so writers follow one another and both counters have no gaps that a reader could trip over.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, MetaData, Table, Text, UniqueConstraint

# Raised with every change of a table, and with every new one; `migrations.py` leads from each version to the next.
SCHEMA_VERSION = 3

# The epoch until which a group version is current, as long as no newer version has followed.
NEVER = 2**62

metadata = MetaData()


def _table(name: str, *parts: Column[int] | Column[str] | Column[bool] | UniqueConstraint | Index) -> Table:
    # The prefix lets the metastore share a PostgreSQL database with other things.
    return Table(f"millstream_{name}", metadata, *parts)


def _integer(name: str, *, key: bool = False, null: bool = False) -> Column[int]:
    return Column(name, BigInteger, primary_key=key, nullable=null, autoincrement=False)


def _text(name: str, *, key: bool = False, null: bool = False) -> Column[str]:
    return Column(name, Text, primary_key=key, nullable=null)


def _flag(name: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False)


engine = _table(
    "engine",
    Column("id", Integer, primary_key=True, autoincrement=False),
    _integer("schema_version"),
    _integer("incarnation"),
    _text("holder"),
    _integer("opened_at"),
    _integer("epoch"),
    _integer("answer_seq"),
    # How many transactions were committed; tells whether one was whose commit nobody answered.
    _integer("writes"),
)

streams = _table(
    "streams",
    _text("name", key=True),
    _integer("position"),
    _text("definition"),
    _integer("lateness"),
    _integer("watermark", null=True),
    _integer("max_time", null=True),
    _integer("planned"),
    _integer("committed"),
    _integer("rows"),
    _integer("late_rows"),
    _integer("rejected_rows"),
    _integer("batches"),
    _integer("bytes"),
    _flag("closed_all"),
)

epochs = _table("epochs", _integer("number", key=True), _integer("sealed_at"), _text("cuts"))

# Definitions are kept apart, so that the rows every batch touches stay narrow.
definitions = _table("definitions", _text("id", key=True), _text("definition"))

queries = _table(
    "queries",
    _text("id", key=True),
    _text("owner"),
    _text("client_key", null=True),
    _text("stream"),
    _flag("windowed"),
    _text("group_name"),
    _integer("slot"),
    _integer("epoch"),
    _integer("created_at"),
    _integer("first_batch"),
    _integer("last_batch", null=True),
    _integer("fired_to", null=True),
    _integer("partial_until", null=True),
    _integer("closes_at", null=True),
    _text("state"),
    _integer("deleted_epoch", null=True),
    _integer("ended_at", null=True),
    _text("reason", null=True),
    _integer("windows"),
    _integer("answer_rows"),
    _integer("late_rows"),
    _integer("failures"),
    UniqueConstraint("owner", "client_key"),
    Index("millstream_queries_state", "stream", "state"),
    Index("millstream_queries_cut", "stream", "first_batch"),
)

# The streams behind each joined name that a query ever had. Few rows: they lead from a stream to the joins on it.
joins = _table("joins", _text("name", key=True), _text("stream", key=True), Index("millstream_joins_stream", "stream"))

# The sources of joins, each with its own cut.
legs = _table(
    "legs",
    _text("query", key=True),
    _integer("leg", key=True),
    _text("stream"),
    _text("group_name"),
    _integer("slot"),
    _integer("first_batch"),
    _integer("last_batch", null=True),
    _integer("fired_to", null=True),
    _integer("partial_until", null=True),
    _integer("closes_at", null=True),
    Index("millstream_legs_cut", "stream", "first_batch"),
    Index("millstream_legs_end", "stream", "last_batch"),
)

# A version is in the epoch plans of epoch … until - 1.
group_versions = _table(
    "group_versions",
    _text("stream", key=True),
    _text("group_name", key=True),
    _integer("version", key=True),
    _integer("epoch"),
    _integer("until"),
    _text("path"),
    _integer("queries"),
    _integer("classes"),
    _flag("retired"),
    Index("millstream_group_versions_until", "stream", "until"),
)

plans = _table(
    "plans",
    _text("stream", key=True),
    _integer("batch", key=True),
    _integer("epoch"),
    _integer("watermark", null=True),
    _integer("clock"),
    _text("offsets"),
)

# A row for each event that raised a watermark: step 0 is the commit of the batch, later steps follow it.
closings = _table(
    "closings",
    _text("stream", key=True),
    _integer("batch", key=True),
    _integer("step", key=True),
    _integer("watermark"),
)

# What was tried with a batch that failed. A trial is written down before it runs; one without an outcome was cut short.
trials = _table(
    "trials",
    _text("stream", key=True),
    _integer("batch", key=True),
    _integer("number", key=True),
    _text("left_out"),
    _text("outcome", null=True),
    _text("error", null=True),
)

# Fires that run after the death of an engine. A fire is written down before it runs, and forgotten when it has passed.
fire_trials = _table(
    "fire_trials",
    _integer("number", key=True),
    _text("name"),
    _text("queries"),
    _integer("alone"),
    _integer("died"),
)

bucket_files = _table(
    "bucket_files",
    _text("path", key=True),
    _text("stream"),
    _integer("batch"),
    _integer("watermark", null=True),
    _text("buckets"),
    Index("millstream_bucket_files_stream", "stream", "batch"),
)

answers = _table(
    "answers",
    _integer("seq", key=True),
    _text("stream"),
    _integer("committed_at"),
    _integer("batch", null=True),
    _text("path"),
    _integer("index_offset"),
    _integer("index_length"),
    _integer("rows"),
    _integer("queries"),
    Index("millstream_answers_stream", "stream", "seq"),
)

# The bucket files and group versions that answers are built from when they are read.
answer_refs = _table(
    "answer_refs", _integer("seq", key=True), _text("path", key=True), Index("millstream_answer_refs_path", "path")
)

dead_letters = _table("dead_letters", _text("path", key=True), _text("stream"), _integer("batch"))

# What it takes to ingest a batch again, as long as bucket files are there that came from it.
recipes = _table("recipes", _text("stream", key=True), _integer("batch", key=True), _text("recipe"))

# The batches that a compacted bucket file was made of, and the checksums of the buckets that were merged.
bucket_origins = _table(
    "bucket_origins",
    _text("path", key=True),
    _integer("batch", key=True),
    _text("checksums"),
    Index("millstream_bucket_origins_batch", "batch"),
)

# Windows that were answered without data that are lost, by query.
incomplete = _table("incomplete", _text("query", key=True), _integer("windows"))

statistics = _table("statistics", _text("stream", key=True), _text("figures"))

cursors = _table("cursors", _text("name", key=True), _text("value"))

# The last engine that was stopped in order: one row, or none.
stops = _table("stops", _integer("incarnation", key=True), _integer("stopped_at"))
