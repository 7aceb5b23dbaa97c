"""Whether a query may be to blame for a job that failed, and what to tell of it.

Not to blame are the disk, the network, the metastore, the source, an engine that stops and a JVM that is gone: leaving
queries out would change nothing. What a task says is read from the last line of its Python traceback, never from the
whole text, which may quote what users have written.
"""

from __future__ import annotations

import builtins
import re

import duckdb
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from millstream.errors import DamagedFile, EngineError, MillstreamError
from millstream.runtime.disk import disk_fault

# Spark's words for a Python worker, or a whole executor, that is gone: killed, out of memory, or crashed.
_DEATHS = ("Python worker exited unexpectedly", "Python worker has crashed", "ExecutorLostFailure")
_DIED = "a worker process that died"
# Results are descriptions; only a query with very many of them makes these too large.
_TOO_LARGE = "spark.driver.maxResultSize"
_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*))?$")
# Reasons are shown in tables; the log has the rest.
LONGEST_REASON = 300


def may_be_a_query(error: BaseException) -> bool:
    """Whether the job may succeed without one of its queries."""
    if isinstance(error, (PySparkException, Py4JJavaError)):
        return _task_may_be(_text(error))
    # Py4J's other errors tell of a JVM that is gone.
    environmental = (MillstreamError, OSError, Py4JError, duckdb.IOException)
    return isinstance(error, Exception) and not isinstance(error, environmental)


def of_the_machine(error: BaseException) -> bool:
    """Whether the same job may pass later, however often it fails now: the disk, the way to it, the metastore or
    Spark is away. A file that is missing is not among these."""
    if disk_fault(error) is not None:
        return True
    if isinstance(error, (PySparkException, Py4JJavaError)):
        raised = _raised(_text(error))
        kind = None if raised is None else getattr(builtins, raised[0], None)
    else:
        kind = type(error)
    if not isinstance(kind, type) or issubclass(kind, (FileNotFoundError, DamagedFile, Py4JJavaError)):
        return False
    return issubclass(kind, (OSError, EngineError, Py4JError))


def reason_of(error: BaseException) -> str:
    """The error in one line, for people: what the task raised, without the stack of Spark around it."""
    text = _text(error)
    if not isinstance(error, (PySparkException, Py4JJavaError)):
        return _short(f"{type(error).__name__}: {text}" if text else type(error).__name__)
    raised = _raised(text)
    if raised is not None:
        return _short(f"{raised[0].rsplit('.', 1)[-1]}: {raised[1]}" if raised[1] else raised[0])
    return _DIED if any(death in text for death in _DEATHS) else _short(text.strip().partition("\n")[0])


def raised_in_task(error: BaseException, kind: type[BaseException]) -> bool:
    """Whether a job has failed because this was raised in the Python of a task."""
    raised = _raised(_text(error))
    return raised is not None and raised[0] == f"{kind.__module__}.{kind.__qualname__}"


def _text(error: BaseException) -> str:
    """Spark's errors ask the JVM for their text, which may be gone."""
    try:
        return str(error)
    except (OSError, Py4JError):
        return type(error).__name__


def _task_may_be(text: str) -> bool:
    raised = _raised(text)
    if raised is not None:
        return not _environmental(raised[0])
    return any(words in text for words in (*_DEATHS, _TOO_LARGE))


def _raised(text: str) -> tuple[str, str] | None:
    """Class and message of the exception that ended the task's Python, None where it raised none."""
    _, found, rest = text.rpartition(_TRACEBACK)
    if not found:
        return None
    for line in rest.split("\n"):
        match = _RAISED.match(line.rstrip())
        if match is not None:
            return match[1], match[2] or ""
    return None


def _environmental(name: str) -> bool:
    if name.startswith(("millstream.errors.", "py4j.")) or name.endswith("duckdb.IOException"):
        return True
    kind = getattr(builtins, name, None)
    return isinstance(kind, type) and issubclass(kind, OSError)


def _short(text: str) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= LONGEST_REASON else line[: LONGEST_REASON - 1] + "…"
