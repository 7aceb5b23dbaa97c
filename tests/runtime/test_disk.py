"""Faults of the disk are told apart from everything else, however far they have travelled."""

from __future__ import annotations

import errno
import sqlite3

import pytest
from sqlalchemy.exc import OperationalError

from millstream.catalog.outage import away, unknown
from millstream.errors import EngineError
from millstream.runtime.disk import LONGEST_WAIT, Backoff, disk_fault, faults_told

TASK = """An error occurred while calling o42.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 7.0 failed 3 times
Traceback (most recent call last):
  File "worker.py", line 300, in _write_buckets
OSError: [Errno 28] No space left on device: '/data/home/buckets/purchases/7-0123456789ab.bucket'
"""


def wrapped(cause: BaseException) -> RuntimeError:
    error = RuntimeError("the job failed")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/d/x"), "NO_SPACE", "no space left on /d/x"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "NO_SPACE", "the disk quota is used up on /home"),
        (OSError(errno.EIO, "Input/output error", "/d/x"), "DISK_ERROR", "an input/output error on /d/x"),
        (OSError(errno.EROFS, "Read-only file system"), "DISK_ERROR", "a read-only file system on /home"),
        (RuntimeError(TASK), "NO_SPACE", "no space left on /data/home/buckets/purchases/7-0123456789ab.bucket"),
        (RuntimeError("java.io.IOException: No space left on device"), "NO_SPACE", "no space left on /home"),
        (
            OperationalError("INSERT …", {}, sqlite3.OperationalError("database or disk is full")),
            "NO_SPACE",
            "no space left on /home",
        ),
        (
            wrapped(OperationalError("COMMIT", {}, sqlite3.OperationalError("disk I/O error"))),
            "DISK_ERROR",
            "an input/output error on /home",
        ),
    ],
)
def test_a_fault_of_the_disk_is_found(error: Exception, code: str, message: str) -> None:
    fault = disk_fault(error, "/home")
    assert fault is not None
    assert (fault.code, fault.message) == (code, message)
    with pytest.raises(EngineError) as raised, faults_told("/home"):
        raise error
    assert raised.value.code == code


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOENT, "No such file or directory", "/d/x"),
        OSError("the disk is busy"),
        ValueError("28"),
        RuntimeError("OSError: [Errno 2] No such file or directory: '/d/28'"),
        EngineError("FENCED", "another engine"),
    ],
)
def test_other_errors_are_not_faults_of_the_disk(error: Exception) -> None:
    assert disk_fault(error) is None
    with pytest.raises(type(error)) as raised, faults_told("/home"):
        raise error
    assert raised.value is error


def test_that_a_commit_is_in_doubt_is_worth_more_than_why() -> None:
    full = OperationalError("COMMIT", {}, sqlite3.OperationalError("database or disk is full"))
    without_effect, doubtful = away(full), unknown("database or disk is full")
    without_effect.__cause__ = doubtful.__cause__ = full
    fault = disk_fault(without_effect)
    assert fault is not None
    assert fault.code == "NO_SPACE"
    assert disk_fault(doubtful) is None


def test_tries_become_rarer_until_one_succeeds() -> None:
    now = 100.0
    backoff = Backoff(lambda: now)
    assert backoff.due
    waits = [backoff.failed() for _ in range(8)]
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]
    assert not backoff.due
    now += LONGEST_WAIT
    assert backoff.due
    backoff.succeeded()
    assert backoff.failed() == 1
