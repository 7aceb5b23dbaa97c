"""What Spark reports of the batches of a streaming query."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from millstream.bench.plain_run import progress_begin, progress_end
from millstream.errors import EngineError
from millstream.sources.generators import MICROS

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

SOURCE = re.compile(r"FileStreamSource\[(?P<directory>.+)\]")


@dataclass(frozen=True, slots=True)
class Batch:
    """What Spark reports of a batch. ``entries``: the stream of each source, with the last entry of its log that has
    been read; ``watermark``: the one it began with; ``times``: of the oldest and the newest row that passed."""

    number: int
    began: float
    ended: float
    entries: tuple[tuple[str, int], ...]
    watermark: int
    times: tuple[int, ...]
    milliseconds: Mapping[str, int]


def batch_of(report: Mapping[str, Any]) -> Batch | None:
    """None for the report of a trigger that found nothing to do."""
    if "addBatch" not in report["durationMs"]:
        return None
    times = report.get("eventTime", {})
    return Batch(
        int(report["batchId"]),
        progress_begin(report),
        progress_end(report),
        tuple((_stream(source), _entry(source)) for source in report["sources"]),
        _micros(times.get("watermark")),
        tuple(_micros(times[name]) for name in ("min", "max") if name in times),
        report["durationMs"],
    )


def _stream(source: Mapping[str, Any]) -> str:
    """Directories have the names of their streams, also those of later queries."""
    found = SOURCE.fullmatch(source["description"])
    if found is None:
        raise EngineError("INTERNAL", f"not a source of files: {source['description']}")
    return PurePosixPath(found["directory"]).name


def _entry(source: Mapping[str, Any]) -> int:
    offset = source["endOffset"]
    known = json.loads(offset) if isinstance(offset, str) else offset
    return int(known["logOffset"]) if known else -1


def unseen(query: StreamingQuery, batch: int) -> list[dict[str, Any]]:
    """Reports after those of a batch, the oldest first. PySpark would have Java write each one that is kept as JSON,
    and parse it: most of what asking costs, and they are asked for while the query is measured."""
    java: Any = query._jsq
    last = java.lastProgress()
    if last is None or last.batchId() <= batch:
        return []
    if last.batchId() == batch + 1 and last.durationMs().containsKey("addBatch"):
        return [json.loads(last.json())]
    kept = java.recentProgress()
    found: list[dict[str, Any]] = []
    for number in reversed(range(len(kept))):
        if kept[number].batchId() <= batch:
            break
        found.append(json.loads(kept[number].json()))
    return found[::-1]


def _micros(text: str | None) -> int:
    """Microseconds of Spark's text of a time; 0 for the beginning of time, which stands for no watermark."""
    if not text:
        return 0
    return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * MICROS)
