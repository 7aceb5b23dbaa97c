"""Spark's analyzer over empty views of the streams, in a session of its own."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millstream.model.stream import Stream
from millstream.sql.frontend import Refusal

# The settings that decide what a text means; the user's session keeps its own.
SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.groupByOrdinal": "true",
    "spark.sql.groupByAliases": "true",
    # Otherwise SELECT … FROM csv.`path` would read files of the driver.
    "spark.sql.runSQLOnFiles": "false",
}

# A reply that does not fit the 8 KB buffer of the JVM's socket is written in two parts, and the second one waits 40 ms
# for the acknowledgement of the first. So long texts are fetched in pieces.
PIECE = 8_000

# The JSON tells neither a try_cast from a cast nor the escape character of LIKE; plans of texts with these words are
# looked at again.
_LOSES = re.compile(r"try_|\?::|escape", re.IGNORECASE)
_EXPRESSIONS = (
    "projectList",
    "condition",
    "groupingExpressions",
    "aggregateExpressions",
    "windowExpressions",
    "partitionSpec",
    "orderSpec",
)


class SparkAnalyzer:
    """Implements ``millstream.sql.frontend.Analyzer``. Nothing that a text says is ever run."""

    def __init__(self, spark: SparkSession) -> None:
        # Spark prints pages of JSON through this logger for every refused query.
        logging.getLogger("SQLQueryContextLogger").disabled = True
        self._lock = RLock()
        self._session = spark.newSession()
        for name, value in SETTINGS.items():
            self._session.conf.set(name, value)
        java: Any = self._session
        self._jvm: Any = java._jvm
        self._java: Any = java._jsparkSession
        self._skip = self._jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
        self._json = self._json_builder()

    def register(self, stream: Stream) -> None:
        """Make the stream known; a stream of the same name is replaced."""
        fields = [{"name": f.name, "type": f.type.json, "nullable": True, "metadata": {}} for f in stream.fields]
        with self._lock, self._active():
            # PySpark's createDataFrame would make our session the active one of the user's Python.
            schema = self._jvm.org.apache.spark.sql.types.DataType.fromJson(
                json.dumps({"type": "struct", "fields": fields})
            )
            empty = self._java.createDataFrame(self._jvm.java.util.ArrayList(), schema)
            empty.createOrReplaceTempView("`" + stream.name.replace("`", "``") + "`")

    def unregister(self, name: str) -> None:
        with self._lock, self._active():
            self._session.catalog.dropTempView(name)

    def schema(self, sql: str) -> list[tuple[str, object]]:
        """Names and types of the columns of a query."""
        with self._analysed(sql) as plan:
            fields = json.loads(plan.schema().json())["fields"]
        return [(field["name"], field["type"]) for field in fields]

    def plan(self, sql: str) -> str:
        """The analysed plan as JSON."""
        with self._analysed(sql) as plan:
            built = self._json.invokeWithArguments([plan])
            length = built.length()
            text = "".join(built.substring(at, min(at + PIECE, length)) for at in range(0, length, PIECE))
            return _restored(text, plan) if _LOSES.search(sql) else text

    @contextmanager
    def _analysed(self, sql: str) -> Iterator[Any]:
        with self._lock, self._active():
            try:
                state = self._java.sessionState()
                yield state.executePlan(state.sqlParser().parsePlan(sql), self._skip).analyzed()
            except PySparkException as error:
                raise _refusal(error, sql) from None
            except Py4JJavaError as error:
                # StackOverflowError has no message.
                message = error.java_exception.getMessage() or error.java_exception.getClass().getSimpleName()
                raise Refusal("INTERNAL_ERROR", str(message).partition("\n")[0]) from None

    @contextmanager
    def _active(self) -> Iterator[None]:
        """Parsing takes time zone and ANSI mode from the thread's active session, which is the user's otherwise."""
        sessions = self._jvm.org.apache.spark.sql.classic.SparkSession
        before = sessions.getActiveSession()
        sessions.setActiveSession(self._java)
        try:
            yield
        finally:
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()

    def _json_builder(self) -> Any:
        """A Java method handle from a plan to a StringBuilder of its JSON, so that the text stays in the JVM."""
        java = self._jvm.java.lang
        node = java.Class.forName("org.apache.spark.sql.catalyst.trees.TreeNode")
        text, builder = java.Class.forName("java.lang.String"), java.Class.forName("java.lang.StringBuilder")
        lookup = java.invoke.MethodHandles.publicLookup()
        to_json = lookup.findVirtual(node, "toJSON", java.invoke.MethodType.methodType(text))
        wrap = lookup.findConstructor(builder, java.invoke.MethodType.methodType(java.Void.TYPE, text))
        return java.invoke.MethodHandles.filterReturnValue(to_json, wrap)


def _restored(text: str, plan: Any) -> str:
    """The JSON of a plan with what it lacks, from the plan itself; both list nodes in pre-order."""
    items = json.loads(text)
    for item, operator in zip(items, _preorder(plan), strict=False):
        for field in _EXPRESSIONS:
            if not item.get(field):
                continue
            java = getattr(operator, field)()
            if field == "condition":
                # Of a join it is an Option.
                _restore(item[field], java.get() if operator.nodeName() == "Join" else java)
            else:
                for index, expression in enumerate(item[field]):
                    _restore(expression, java.apply(index))
    return json.dumps(items)


def _restore(items: list[dict[str, Any]], expression: Any) -> None:
    for item, java in zip(items, _preorder(expression), strict=True):
        name = item["class"].rsplit(".", 1)[-1]
        if name == "Cast":
            item["evalMode"] = java.evalMode().toString()
        elif name in ("Like", "ILike"):
            item["escapeChar"] = str(java.escapeChar())


def _preorder(node: Any) -> Iterator[Any]:
    yield node
    children = node.children()
    for index in range(children.size()):
        yield from _preorder(children.apply(index))


def _refusal(error: PySparkException, sql: str) -> Refusal:
    message = str(error)
    context = next(iter(error.getQueryContext() or []), None)
    start: int | None = None
    stop: int | None = None
    if context is not None and context.startIndex() >= 0:
        start, stop = context.startIndex(), context.stopIndex() + 1
    elif match := re.search(r"\(line (\d+), pos (\d+)\)", message):
        start = _offset(sql, int(match[1]), int(match[2]))
    return Refusal(error.getCondition() or "UNKNOWN", message, error.getMessageParameters(), start, stop)


def _offset(sql: str, line: int, column: int) -> int:
    """The character at a 1-based line and a 0-based column."""
    return sum(len(text) for text in sql.splitlines(keepends=True)[: line - 1]) + column
