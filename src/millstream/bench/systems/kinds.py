"""The systems by name. Their modules are imported in their own processes only."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from millstream.bench.systems.remote import SystemKind
from millstream.bench.systems.system import System
from millstream.config import nearest
from millstream.errors import SpecError

MILLSTREAM = "millstream"
MILLSTREAM_DRAINED = "millstream-drained"
MILLSTREAM_FRAME = "millstream-frame"
MILLSTREAM_ROWS = "millstream-rows"
SPARK = "spark"
SPARK_MEMORY = "spark-memory"
SPARK_MERGED = "spark-merged"
FLINK = "flink"


def _made(module: str, name: str, workspace: Path, cores: int, **options: Any) -> System:
    made: System = getattr(import_module(f"millstream.bench.systems.{module}"), name)(workspace, cores, **options)
    return made


def _millstream(workspace: Path, cores: int) -> System:
    return _made("millstream", "MillstreamSystem", workspace, cores)


def _millstream_drained(workspace: Path, cores: int) -> System:
    return _made("millstream", "MillstreamSystem", workspace, cores, drained=True)


def _millstream_frame(workspace: Path, cores: int) -> System:
    return _made("millstream", "MillstreamSystem", workspace, cores, frame=True)


def _millstream_rows(workspace: Path, cores: int) -> System:
    return _made("millstream", "MillstreamSystem", workspace, cores, frame=True, rows=True)


def _spark(workspace: Path, cores: int) -> System:
    return _made("spark", "SparkSystem", workspace, cores)


def _spark_memory(workspace: Path, cores: int) -> System:
    return _made("spark", "SparkSystem", workspace, cores, store="memory")


def _spark_merged(workspace: Path, cores: int) -> System:
    return _made("spark", "SparkSystem", workspace, cores, merged=True)


def _flink(workspace: Path, cores: int) -> System:
    made: System = import_module("millstream.bench.systems.flink").FlinkSystem(cores)
    return made


KINDS: dict[str, SystemKind] = {
    kind.name: kind
    for kind in (
        SystemKind(MILLSTREAM, "Millstream", _millstream),
        SystemKind(MILLSTREAM_DRAINED, "Millstream, every answer written to Parquet", _millstream_drained),
        SystemKind(MILLSTREAM_FRAME, "Millstream, the same streaming DataFrame", _millstream_frame),
        SystemKind(MILLSTREAM_ROWS, "Millstream, a streaming DataFrame of Spark's rows", _millstream_rows),
        SystemKind(SPARK, "plain Spark", _spark),
        SystemKind(SPARK_MEMORY, "plain Spark, state in memory", _spark_memory),
        SystemKind(SPARK_MERGED, "plain Spark, merged by hand", _spark_merged),
        SystemKind(FLINK, "Flink SQL", _flink, form="csv"),
    )
}


def system_kind(name: str) -> SystemKind:
    if name not in KINDS:
        raise SpecError("BAD_SPEC", f"there is no system {name!r}", hint=nearest(name, tuple(KINDS)))
    return KINDS[name]
