"""The queries of the workload, compiled once by Spark's own analyzer and handed to the children as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.model import codec
from millstream.runtime.analyzer import SparkAnalyzer
from millstream.sql.frontend import FrontEnd
from tests.chaos.workload import QUERIES, streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compile_queries(spark: SparkSession) -> dict[str, str]:
    """The text of each query's logical form, by id."""
    known = {stream.name: stream for stream in streams()}
    analyzer = SparkAnalyzer(spark)
    for stream in known.values():
        analyzer.register(stream)
    front_end = FrontEnd(analyzer, lambda: known)
    return {id: codec.dumps(front_end.compile(sql)) for id, sql in QUERIES.items()}
