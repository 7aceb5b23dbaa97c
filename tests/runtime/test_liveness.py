"""A Spark that is gone: what is said of it, at whatever moment of its death somebody asks."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkContext

from millstream.runtime import liveness
from millstream.runtime.liveness import Liveness


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """Stands for the JVM behind the session."""
    with subprocess.Popen(["sleep", "3600"]) as running:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=running))
        yield running
        running.kill()


def of(stopped: Any) -> Liveness:
    """The liveness of a session whose context says whether it is stopped."""
    context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=stopped)))
    return Liveness(SimpleNamespace(sparkContext=context))  # type: ignore[arg-type]


def test_a_spark_that_dies_while_it_is_asked_is_told_by_its_process(process: subprocess.Popen[bytes]) -> None:
    def dies() -> bool:
        process.kill()
        raise Py4JNetworkError("Answer from Java side is empty")

    error = of(dies).lost()
    assert error is not None
    assert error.message == f"Spark is gone: its process {process.pid} was killed (signal 9)"


def test_a_spark_that_gives_no_answer_and_runs_is_told_so(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "LAST_BREATH", 0.01)

    def silent() -> bool:
        raise Py4JNetworkError("Answer from Java side is empty")

    error = of(silent).lost()
    assert error is not None
    assert (error.code, error.message) == ("SPARK_LOST", "Spark is gone: it does not answer (Py4JNetworkError)")


@pytest.mark.parametrize(("stopped", "reason"), [(False, None), (True, "Spark is gone: its context was stopped")])
def test_a_spark_that_answers_is_believed(process: subprocess.Popen[bytes], stopped: bool, reason: str | None) -> None:
    error = of(lambda: stopped).lost()
    assert (error and error.message) == reason
