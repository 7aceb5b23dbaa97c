"""What a micro-batch of a user's streaming DataFrame reads, from the plan that Spark has made of it.

Spark hands ``foreachBatch`` the rows alone, and a row costs more on its way to Python than all that is done with it
there. Where the DataFrame does nothing but read columns of Parquet files, workers read the same files themselves.
Everything else about the stream stays Spark's: which files there are, in which micro-batch, and what has been done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from millstream.model.stream import Field
from millstream.sources.files import PARQUET_TROUBLE
from millstream.sources.parquet import exact_footer
from millstream.sources.splits import Split, split_rows

# Options of Spark's reader under which it gives other rows than are in the files, and settings that must have these
# values for the same reason.
_CHANGING = frozenset(("datetimerebasemode", "int96rebasemode", "ignorecorruptfiles", "ignoremissingfiles"))
_PLAIN = {
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.fieldId.read.enabled": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
# Summaries of other files, which Spark lists and does not read.
_SUMMARIES = ("_metadata", "_common_metadata")
# Rows of one task, at most: what it keeps of them has to fit into the memory of a worker, however many files wait.
TASK_ROWS = 1 << 22


@dataclass(frozen=True)
class Scan:
    """The columns of a micro-batch, and the files they are read from."""

    columns: tuple[str, ...]
    paths: tuple[str, ...]


def scanned_files(session: SparkSession, rows: DataFrame, query: str, batch: int) -> Scan | None:
    """What the rows of a micro-batch are read from, in the streaming query with this name; None where its plan does
    more than read columns of Parquet files, or cannot be seen. Settings are those of the rows: Spark gives each
    streaming query a copy of its session."""
    running = next((one for one in session.streams.active if one.name == query), None)
    if running is None or any(rows.sparkSession.conf.get(key) != value for key, value in _PLAIN.items()):
        return None
    try:
        execution = running._jsq.streamingQuery().lastExecution()
        if execution is None or execution.currentBatchId() != batch:
            return None
        relation = _relation(execution.optimizedPlan())
        # An URL holds no line break.
        text = None if relation is None else _lines(session, relation.inputFiles())
    except Py4JError:
        return None
    urls = [] if text is None else [urlsplit(url) for url in text.split("\n") if url]
    if text is None or any(url.scheme != "file" for url in urls):
        # Spark may have ways and rights to other file systems that workers have not.
        return None
    paths = (unquote(url.path) for url in urls)
    return Scan(tuple(rows.columns), tuple(path for path in paths if not _is_summary(path)))


def _is_summary(path: str) -> bool:
    name = PurePosixPath(path).name
    return name.startswith(_SUMMARIES) and "=" not in name


def _lines(session: SparkSession, texts: Any) -> str:
    """A Java array in one call, however many files there are."""
    jvm: Any = session.sparkContext._jvm
    return str(jvm.org.apache.hadoop.util.StringUtils.join("\n", texts))


def _relation(plan: Any) -> Any:
    """The relation below projections to columns of the same names, if that is all."""
    while _kind(plan) == "Project":
        listed = plan.projectList()
        if any(_kind(listed.apply(i)) != "AttributeReference" for i in range(listed.length())):
            return None
        plan = plan.child()
    if _kind(plan) != "LogicalRelation":
        return None
    relation = plan.relation()
    if _kind(relation) != "HadoopFsRelation" or _kind(relation.fileFormat()) != "ParquetFileFormat":
        return None
    options = str(relation.options().keys().mkString(" ")).lower().split()
    return None if _CHANGING.intersection(options) or relation.partitionSchema().length() else relation


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def exact_splits(scan: Scan, fields: Sequence[Field], parallelism: int) -> list[list[Split]] | None:
    """The files divided among tasks; None where one cannot be read, or has not the columns of the stream as they are:
    Spark then says what is to be read from it."""
    if not {field.name for field in fields} <= set(scan.columns):
        return None
    footers = []
    try:
        for path in sorted(scan.paths):
            footer = exact_footer(path, fields)
            if footer is None:
                return None
            footers.append(footer)
    except PARQUET_TROUBLE:
        return None
    tasks = max(parallelism, -(-sum(footer.rows for footer in footers) // TASK_ROWS))
    return split_rows([(footer, 0, footer.rows) for footer in footers], tasks)
