"""Spark's analyzer over empty views of the streams, in a session of its own."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
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

_SQL = "org.apache.spark.sql"
_CATALYST = f"{_SQL}.catalyst"
_PLAN = f"{_CATALYST}.plans.logical.LogicalPlan"


class SparkAnalyzer:
    """Implements ``millstream.sql.frontend.Analyzer``. Nothing that a text says is ever run.

    All calls into the JVM are made by one thread of its own. Parsing takes time zone and ANSI mode from the session
    that is active on the thread: there it is always ours, and on the user's threads it stays the user's.
    """

    def __init__(self, spark: SparkSession) -> None:
        # Spark prints pages of JSON through this logger for every refused query.
        logging.getLogger("SQLQueryContextLogger").disabled = True
        self._session = spark.newSession()
        for name, value in SETTINGS.items():
            self._session.conf.set(name, value)
        java: Any = self._session
        self._jvm: Any = java._jvm
        self._java: Any = java._jsparkSession
        self._thread = ThreadPoolExecutor(1, "millstream-analyzer")
        self._thread.submit(self._begin).result()

    def _begin(self) -> None:
        self._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(self._java)
        self._state = self._java.sessionState()
        self._skip = self._jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
        self._asking = Asking(self._jvm, self._state, self._skip)

    def close(self) -> None:
        self._asking.forget()
        self._thread.shutdown(wait=False)

    def register(self, stream: Stream) -> None:
        """Make the stream known; a stream of the same name is replaced."""
        self._thread.submit(self._register, stream).result()

    def _register(self, stream: Stream) -> None:
        fields = [{"name": f.name, "type": f.type.json, "nullable": True, "metadata": {}} for f in stream.fields]
        # PySpark's createDataFrame would make our session the active one of the user's Python.
        schema = self._jvm.org.apache.spark.sql.types.DataType.fromJson(
            json.dumps({"type": "struct", "fields": fields})
        )
        empty = self._java.createDataFrame(self._jvm.java.util.ArrayList(), schema)
        empty.createOrReplaceTempView("`" + stream.name.replace("`", "``") + "`")

    def unregister(self, name: str) -> None:
        self._thread.submit(self._session.catalog.dropTempView, name).result()

    def schema(self, sql: str) -> list[tuple[str, object]]:
        """Names and types of the columns of a query."""
        fields = json.loads(self._thread.submit(self._told, self._asking.schema, sql).result())["fields"]
        return [(field["name"], field["type"]) for field in fields]

    def plan(self, sql: str) -> str:
        """The analysed plan as JSON."""
        ask = self._with_all if _LOSES.search(sql) else self._asking.plan
        return self._thread.submit(self._told, ask, sql).result()

    def _with_all(self, sql: str) -> str:
        plan = self._state.executePlan(self._state.sqlParser().parsePlan(sql), self._skip).analyzed()
        return _restored(self._asking.plan(sql), plan)

    def _told(self, ask: Callable[[str], str], sql: str) -> str:
        """What Spark says, or why it refuses."""
        try:
            return ask(sql)
        except PySparkException as error:
            raise _refusal(error, sql) from None
        except Py4JJavaError as error:
            # StackOverflowError has no message.
            message = error.java_exception.getMessage() or error.java_exception.getClass().getSimpleName()
            raise Refusal("INTERNAL_ERROR", str(message).partition("\n")[0]) from None


class Asking:
    """Two questions to Spark's analyzer, each put together inside the JVM as one method from a text to a file with the
    answer.

    A call into the JVM takes a tenth of a millisecond on an idle machine and some milliseconds on a busy one, and step
    by step a plan takes thirty of them; this takes two. The file is there because a reply of more than 8 KB waits 40 ms
    for the network's acknowledgement of its first part.
    """

    def __init__(self, jvm: Any, state: Any, skip: Any) -> None:
        self._jvm = jvm
        self._lookup = jvm.java.lang.invoke.MethodHandles.publicLookup()
        self._path = self._temporary()
        self._answer = Path(self._path.toString())
        self._arguments = self._array("java.lang.Object", 1)
        parsed = self._method(f"{_CATALYST}.parser.ParserInterface", "parsePlan", "java.lang.String")
        executed = self._method(f"{_SQL}.internal.SessionState", "executePlan", _PLAN, "scala.Enumeration$Value")
        executed = jvm.java.lang.invoke.MethodHandles.insertArguments(
            executed.bindTo(state), 1, self._array("java.lang.Object", 1, skip)
        )
        analysed = self._chain(
            parsed.bindTo(state.sqlParser()), executed, self._method(f"{_SQL}.execution.QueryExecution", "analyzed")
        )
        self._plan = self._to_file(self._chain(analysed, self._method(f"{_CATALYST}.trees.TreeNode", "toJSON")))
        schema = self._method(f"{_CATALYST}.plans.QueryPlan", "schema")
        self._schema = self._to_file(self._chain(analysed, schema, self._method(f"{_SQL}.types.DataType", "json")))

    def plan(self, sql: str) -> str:
        return self._ask(self._plan, sql)

    def schema(self, sql: str) -> str:
        return self._ask(self._schema, sql)

    def _ask(self, handle: Any, sql: str) -> str:
        self._arguments[0] = sql
        handle.invokeWithArguments(self._arguments)
        return self._answer.read_text(encoding="utf-8")

    def forget(self) -> None:
        """Remove the file with the last answer."""
        self._answer.unlink(missing_ok=True)

    def _temporary(self) -> Any:
        """A file that Java removes when it ends, which it does also after a driver that was killed."""
        files = self._jvm.java.nio.file.Files
        no_attributes = self._array("java.nio.file.attribute.FileAttribute", 0)
        path = files.createTempFile("millstream-analyzer-", ".json", no_attributes)
        path.toFile().deleteOnExit()
        return path

    def _method(self, place: str, name: str, *parameters: str) -> Any:
        """A method of Java by its class, its name and the classes of its parameters. Looking for it among all methods
        of the class would be a call into the JVM for each of them."""
        load = self._jvm.java.lang.Class.forName
        kinds = self._array("java.lang.Class", len(parameters), *map(load, parameters))
        return self._lookup.unreflect(load(place).getMethod(name, kinds))

    def _chain(self, first: Any, *others: Any) -> Any:
        """Each method takes what the one before returns."""
        handles = self._jvm.java.lang.invoke.MethodHandles
        for handle in others:
            given = first.type().returnType()
            taking = handle.asType(handle.type().changeParameterType(0, given))
            first = handles.filterReturnValue(first, taking)
        return first

    def _to_file(self, handle: Any) -> Any:
        """The method with its text in a file instead of the reply."""
        insert = self._jvm.java.lang.invoke.MethodHandles.insertArguments
        options = "[Ljava.nio.file.OpenOption;"
        write = self._method(
            "java.nio.file.Files", "writeString", "java.nio.file.Path", "java.lang.CharSequence", options
        )
        no_options = self._array("java.nio.file.OpenOption", 0)
        fixed = insert(write.asFixedArity(), 0, self._array("java.lang.Object", 1, self._path))
        fixed = insert(fixed, 1, self._array("java.lang.Object", 1, no_options))
        return self._chain(handle, fixed)

    def _array(self, kind: str, size: int, *values: Any) -> Any:
        array = self._jvm.java.lang.reflect.Array.newInstance(self._jvm.java.lang.Class.forName(kind), size)
        for place, value in enumerate(values):
            array[place] = value
        return array


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
