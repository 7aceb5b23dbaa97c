"""Whom a failed job may be blamed on: texts as Spark gives them, and plain exceptions."""

from __future__ import annotations

import duckdb
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException, PythonException

from millstream.errors import DamagedFile, EngineError, SourceError
from millstream.runtime.disk import disk_fault
from millstream.runtime.faults import LONGEST_REASON, may_be_a_query, reason_of

STAGE = "Job aborted due to stage failure: Task 0 in stage 7.0 failed 3 times, most recent failure: Lost task 0.2: "
DIED = STAGE + "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed).\n\tat org.apache.Spark"


def raised(last: str, before: str = "") -> str:
    """The text of a job whose Python ended with this line."""
    frames = '  File "/lib/kernels/ingest.py", line 10, in run\n    cells = make()\n'
    trace = f"{before}Traceback (most recent call last):\n{frames}{last}\n"
    return f"{STAGE}org.apache.spark.api.python.PythonException: {trace}\n\tat org.apache.spark.Executor.run(1)"


CHAIN = raised("ValueError: first").partition("PythonException: ")[2].partition("\n\n\tat")[0]

BLAMED = {
    "a worker died": (DIED, "a worker process that died"),
    "an executor is lost": (STAGE + "ExecutorLostFailure (executor 1 exited)", "a worker process that died"),
    "memory": (raised("MemoryError"), "MemoryError"),
    "a kernel fails": (raised("ValueError: 7 is not 8"), "ValueError: 7 is not 8"),
    "arrow": (raised("pyarrow.lib.ArrowInvalid: offset overflow"), "ArrowInvalid: offset overflow"),
    "quotes the disk": (
        raised("ValueError: OSError: [Errno 28] No space left on device"),
        "ValueError: OSError: [Errno 28] No space left on device",
    ),
    "large results": (STAGE + "bigger than spark.driver.maxResultSize (1024.0 MiB)", None),
}
NOT_BLAMED = {
    "disk full": raised("OSError: [Errno 28] No space left on device: '/home/buckets'"),
    "disk full behind another": raised("OSError: [Errno 28] No space left", f"{CHAIN}\n\nDuring handling:\n\n"),
    "file gone": raised("FileNotFoundError: [Errno 2] No such file or directory: 'x'"),
    "our own": raised("millstream.errors.EngineError: the engine is stopping"),
    "damage": raised("millstream.errors.DamagedFile: buckets/purchases/1.bucket is cut short"),
    "spilling": raised("_duckdb.IOException: IO Error: No space left on device"),
    "the context stops": "Job 4 cancelled because SparkContext was shut down",
    "the source": STAGE + "java.io.FileNotFoundException: /data/x.parquet",
}


@pytest.mark.parametrize("case", BLAMED)
def test_jobs_that_a_query_may_be_to_blame_for(case: str) -> None:
    text, told = BLAMED[case]
    for error in (PySparkException(text), PythonException(text)):
        assert may_be_a_query(error)
        if told is not None:
            assert reason_of(error) == told


@pytest.mark.parametrize("case", NOT_BLAMED)
def test_jobs_that_no_query_is_to_blame_for(case: str) -> None:
    error = PySparkException(NOT_BLAMED[case])
    assert not may_be_a_query(error)
    assert (disk_fault(error) is not None) == ("No space left" in NOT_BLAMED[case])


def test_plain_exceptions() -> None:
    assert may_be_a_query(MemoryError("no memory"))
    assert may_be_a_query(ValueError("a kernel"))
    for error in (
        OSError(28, "No space left on device"),
        duckdb.IOException("IO Error: Could not write file: No space left on device"),
        DamagedFile("buckets/purchases/1.bucket", "is cut short"),
        ConnectionRefusedError("the JVM is gone"),
        Py4JNetworkError("Answer from Java side is empty"),
        EngineError("NOT_RUNNING", "the engine is stopping"),
        SourceError("BAD_FILE", "unreadable"),
        KeyboardInterrupt(),
    ):
        assert not may_be_a_query(error)


class Gone(PySparkException):
    """Its text has to come from a JVM that is gone."""

    def __str__(self) -> str:
        raise Py4JNetworkError("Answer from Java side is empty")


def test_an_error_whose_text_is_lost_is_held_against_nobody() -> None:
    assert not may_be_a_query(Gone("x"))
    assert reason_of(Gone("x")) == "Gone"


def test_reasons_are_one_short_line() -> None:
    assert reason_of(ValueError("first\nsecond")) == "ValueError: first"
    assert reason_of(MemoryError()) == "MemoryError"
    assert len(reason_of(ValueError("x" * 1000))) == LONGEST_REASON
