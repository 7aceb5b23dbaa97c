"""A Spark data source whose stream is one row (start, stop) for each micro-batch: the rows of a generator now due."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

FORMAT = "millstream_rows_due"


class RowsDue(DataSource):
    """Option ``pace`` is JSON: ``limit`` rows of a micro-batch; where given, ``rate`` and ``began`` of the clock, and
    ``rows`` in all."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "start BIGINT, stop BIGINT"

    def simpleStreamReader(self, schema: StructType) -> RowsDueReader:
        return RowsDueReader(json.loads(self.options["pace"]))


def _end_quietly(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """The process that runs the reader beside the driver ends by a broken pipe whenever a query is stopped, and would
    print that into the user's terminal."""
    if not isinstance(error, BrokenPipeError):
        sys.__excepthook__(kind, error, trace)


class RowsDueReader(SimpleDataSourceStreamReader):
    """The simple reader hands its row to Spark beside the offset, so that reading it needs no Python worker."""

    def __init__(self, pace: dict[str, Any]) -> None:
        self.pace = pace
        sys.excepthook = _end_quietly

    def initialOffset(self) -> dict[str, int]:
        return {"row": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int, int]], dict[str, int]]:
        first = start["row"]
        stop = max(first, rows_due(self.pace, first, time.time_ns() // 1000))
        return iter([(first, stop)] if stop > first else []), {"row": stop}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[int, int]]:
        return iter([(start["row"], end["row"])] if end["row"] > start["row"] else [])


def rows_due(pace: dict[str, Any], first: int, clock: int) -> int:
    """The row before which all are due at ``clock`` (microseconds), at most the limit after ``first``.

    >>> rows_due({"limit": 50, "rate": 10, "began": 0}, 0, 2_000_000)
    20
    """
    stop = first + int(pace["limit"])
    if "rate" in pace:
        stop = min(stop, (clock - int(pace["began"])) * int(pace["rate"]) // 1_000_000)
    return min(stop, int(pace["rows"])) if "rows" in pace else stop
