"""Starts a Flink cluster in a Java machine of its own and submits queries to it, for `flink_process`.

Runs under the interpreter of Flink's environment, which has nothing of Millstream. Speaks JSON lines: a request on
standard input, its reply on what was standard output; Java and PyFlink print to standard error instead.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

# The column that tells which window an answer belongs to; the sink has a directory for each of its values.
WINDOW_END = "window_end"
# Lines of a Java exception that are kept: the first says what was asked, the causes say why it failed.
KEPT_LINES = 6

Commands = dict[str, Callable[..., dict[str, Any]]]


class Session:
    """One cluster for the life of the process, and a table environment for each run."""

    def __init__(self) -> None:
        self._cluster: Any = None
        self._port = 0
        self._tables: Any = None

    def start(self, settings: dict[str, str], slots: int) -> dict[str, Any]:
        """Start the cluster: one task manager with so many slots, in PyFlink's Java machine."""
        from pyflink.java_gateway import get_gateway

        jvm = get_gateway().jvm
        configuration = jvm.org.apache.flink.configuration.Configuration()
        for name, value in settings.items():
            configuration.setString(name, value)
        runtime = jvm.org.apache.flink.runtime
        builder = runtime.minicluster.MiniClusterConfiguration.Builder().setConfiguration(configuration)
        self._cluster = runtime.minicluster.MiniCluster(builder.setNumSlotsPerTaskManager(slots).build())
        self._cluster.start()
        self._port = self._cluster.getRestAddress().get().getPort()
        version = runtime.util.EnvironmentInformation.getVersion()
        return {"port": self._port, "version": version, "java": jvm.java.lang.System.getProperty("java.version")}

    def begin(self, settings: dict[str, str]) -> dict[str, Any]:
        """Begin a run: jobs submitted from now on have these settings."""
        from pyflink.common import Configuration
        from pyflink.table import EnvironmentSettings, TableEnvironment

        configuration = Configuration()
        remote = {"execution.target": "remote", "rest.address": "localhost", "rest.port": str(self._port)}
        for name, value in (settings | remote).items():
            configuration.set_string(name, value)
        made = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
        self._tables = TableEnvironment.create(made)
        return {}

    def submit(self, name: str, database: str, tables: list[str], query: str, answers: str) -> dict[str, Any]:
        """Submit a job that writes the answers of a query into a folder. Its tables are in a database of its own."""
        self._tables.execute_sql(f"CREATE DATABASE {database}")
        self._tables.use_database(database)
        for table in tables:
            self._tables.execute_sql(table)
        columns = self._columns(query)
        if WINDOW_END not in columns:
            raise ValueError(f"the query has no column {WINDOW_END}; its columns: {', '.join(columns)}")
        kinds = [f"`{column}` {'STRING' if column == WINDOW_END else kind}" for column, kind in columns.items()]
        self._tables.execute_sql(
            f"CREATE TABLE answers ({', '.join(kinds)}) PARTITIONED BY ({WINDOW_END}) "
            f"WITH ('connector' = 'filesystem', 'path' = '{answers}', 'format' = 'csv')"
        )
        taken = [f"CAST(`{c}` AS STRING)" if c == WINDOW_END else f"`{c}`" for c in columns]
        self._tables.get_config().set("pipeline.name", name)
        result = self._tables.execute_sql(f"INSERT INTO answers SELECT {', '.join(taken)} FROM ({query}) AS asked")
        return {"job": str(result.get_job_client().get_job_id())}

    def close(self) -> dict[str, Any]:
        if self._cluster is not None:
            self._cluster.close()
        return {}

    def _columns(self, query: str) -> dict[str, str]:
        """Names and types. PyFlink has no words for the types in SQL, so Java is asked."""
        found = self._tables.sql_query(query)._j_table.getResolvedSchema().getColumns()
        return {c.getName(): c.getDataType().getLogicalType().copy(True).asSerializableString() for c in found}


def reason(error: Exception) -> str:
    """What went wrong, without the frames of Java's stack trace.

    >>> reason(ValueError("no\\n\\tat org.apache.Flink.run(Flink.java:1)\\nCaused by: java.io.IOException: full"))
    'ValueError: no; Caused by: java.io.IOException: full'
    """
    lines = [line.strip() for line in f"{type(error).__name__}: {error}".splitlines()]
    told = [line for line in lines if line and not line.startswith(("at ", "..."))]
    return "; ".join(told[:1] + told[1:][-(KEPT_LINES - 1) :])


def answer(line: bytes, commands: Commands) -> dict[str, Any]:
    """The reply to a request.

    >>> answer(b'{"do": "add", "x": 1}', {"add": lambda x: {"sum": x + 1}})
    {'reply': {'sum': 2}}
    """
    try:
        request = json.loads(line)
        return {"reply": commands[request.pop("do")](**request)}
    except Exception as error:
        return {"error": reason(error)}


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer until told to close, or until whoever asks is gone."""
    session = Session()
    commands: Commands = {
        "start": session.start,
        "begin": session.begin,
        "submit": session.submit,
        "close": session.close,
    }
    for line in requests:
        replies.write(json.dumps(answer(line, commands)).encode() + b"\n")
        replies.flush()


if __name__ == "__main__":
    # Only replies may go where the other side reads them.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, replies)
