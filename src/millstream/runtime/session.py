"""The Spark session: one with the settings that pay, or the user's own, checked."""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import SparkSession

from millstream.config import available_cores
from millstream.errors import EngineError
from millstream.runtime.classes import use_archive
from millstream.runtime.java import ensure_java, ensure_python

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

# Each of these was measured (docs/design): Unix sockets save 40 ms a Python stage, the file settings 60 ms a
# micro-batch.
SETTINGS: dict[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # A stream without new rows asks its source again after so long; every 10 ms, as by default, a seventh of a core.
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    # What Spark remembers of finished work, for a user interface that is off: by default a hundred thousand tasks.
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "50",
}

# What a user's session must have, and why.
REQUIRED: dict[str, tuple[str, str]] = {
    "spark.sql.session.timeZone": ("UTC", "windows and dates are computed in UTC"),
    "spark.sql.ansi.enabled": ("true", "queries have the types and results of ANSI mode"),
}


def build_session(name: str = "millstream", spare_slots: bool = True) -> SparkSession:
    """A local session for an embedded engine. ``local[n,3]`` retries failed tasks, which plain ``local[n]`` never
    does."""
    ensure_java()
    ensure_python()
    use_archive()
    cores = available_cores()
    # Ingest may fill every core; half as many more slots let a fire, or the listing of new files, begin beside it, and
    # as many again one that runs aside.
    slots = cores + 2 * max(1, cores // 2) if spare_slots else cores
    builder = SparkSession.builder.master(f"local[{slots},3]").appName(name)
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    quieten(spark)
    return spark


def quieten(spark: SparkSession) -> None:
    """Spark tells of every refused query with pages of stack trace; the user gets our error instead. So it is when its
    JVM is gone: a server of PySpark in this process would print how its connection broke."""
    spark.sparkContext.setLogLevel("ERROR")
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    server: Any = spark.sparkContext._accumulatorServer
    if server is not None:
        server.handle_error = lambda request, address: None


def check_session(spark: SparkSession) -> None:
    """Refuse a session whose settings would give other answers, naming the value to set."""
    for key, (wanted, reason) in REQUIRED.items():
        value = spark.conf.get(key)
        if str(value).lower() != wanted.lower() and not (key.endswith("timeZone") and value in ("Etc/UTC", "Z", "GMT")):
            raise EngineError(
                "BAD_SESSION",
                f"the Spark session has {key} = {value!r}",
                detail=reason,
                hint=f'set it with spark.conf.set("{key}", "{wanted}") before the engine is made',
            )
