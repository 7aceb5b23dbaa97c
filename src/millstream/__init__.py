"""Millstream: many standing SQL queries over shared streams, as one Spark pipeline.

>>> from millstream import Engine, replay
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from millstream.version import VERSION as __version__

if TYPE_CHECKING:
    from millstream.engine.engine import Engine
    from millstream.engine.handle import Query
    from millstream.engine.replay import ReplayProgress, replay
    from millstream.engine.status import Answer, AnswerPage, EngineStatus, QueryRequest, QueryStatus, StreamStatus
    from millstream.errors import MillstreamError
    from millstream.sources.generators import AStreamGenerator, GamingGenerator
    from millstream.sources.source import CsvFiles, Generator, JsonFiles, ParquetFiles

# Loaded when first asked for: Spark's workers import this package too, and need neither engine nor SQL front end.
_HOMES = {
    "Engine": "engine.engine",
    "Query": "engine.handle",
    "ReplayProgress": "engine.replay",
    "replay": "engine.replay",
    "Answer": "engine.status",
    "AnswerPage": "engine.status",
    "EngineStatus": "engine.status",
    "QueryRequest": "engine.status",
    "QueryStatus": "engine.status",
    "StreamStatus": "engine.status",
    "MillstreamError": "errors",
    "AStreamGenerator": "sources.generators",
    "GamingGenerator": "sources.generators",
    "CsvFiles": "sources.source",
    "Generator": "sources.source",
    "JsonFiles": "sources.source",
    "ParquetFiles": "sources.source",
}

__all__ = [
    "AStreamGenerator",
    "Answer",
    "AnswerPage",
    "CsvFiles",
    "Engine",
    "EngineStatus",
    "GamingGenerator",
    "Generator",
    "JsonFiles",
    "MillstreamError",
    "ParquetFiles",
    "Query",
    "QueryRequest",
    "QueryStatus",
    "ReplayProgress",
    "StreamStatus",
    "__version__",
    "replay",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'millstream' has no attribute {name!r}")
    return getattr(import_module(f"millstream.{_HOMES[name]}"), name)
