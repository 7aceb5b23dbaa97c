"""Whether Spark is still there. Its JVM is a process of its own and can die under the driver: killed because memory ran
out, or by hand. Then nothing runs any more, while the Python program goes on."""

from __future__ import annotations

import logging
import subprocess
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.sql import SparkSession

from millstream.errors import EngineError

# What calls into a JVM that is gone end with.
NO_ANSWER = (Py4JError, OSError, EOFError)
# The connections of a dying process close a moment before it is seen to have ended, in seconds.
LAST_BREATH = 2.0


class Liveness:
    """Knows the process behind a session; once lost, Spark stays lost."""

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        # None where Spark has started us and not the other way round.
        self._process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
        self._reason: str | None = None
        # Calls that find Spark gone are told to the user once, in our words.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)

    def lost(self, after: Exception | None = None) -> EngineError | None:
        """The error of a Spark that is gone; None while it is there. ``after`` is the error of a call that has failed:
        if it got no answer, a process that is dying is given the time to end."""
        if self._reason is None:
            self._reason = self._found(LAST_BREATH if unanswered(after) else 0.0)
        if self._reason is None:
            return None
        return EngineError(
            "SPARK_LOST",
            f"Spark is gone: {self._reason}",
            detail="nothing that was acknowledged is lost",
            hint="start the engine again on the same home; it goes on from there",
        )

    def _found(self, patience: float) -> str | None:
        context: Any = self._context
        if ended := self._ended(patience):
            return ended
        if context._jsc is None:
            return "its session was stopped"
        try:
            return "its context was stopped" if context._jsc.sc().isStopped() else None
        except NO_ANSWER as error:
            return self._ended(LAST_BREATH) or f"it does not answer ({type(error).__name__})"

    def _ended(self, patience: float) -> str | None:
        """How its process has ended, if it has, or does so before the patience is over."""
        if self._process is None or (code := _code(self._process, patience)) is None:
            return None
        return f"its process {self._process.pid} {'was killed' if code < 0 else 'has ended'} ({_how(code)})"

    def forget(self) -> None:
        """Let a new session of this program start a JVM of its own, if this one is gone: PySpark would try it for
        ever."""
        if self._process is None or self._process.poll() is None:
            return
        context: Any = SparkContext
        context._gateway = context._jvm = context._active_spark_context = None
        session: Any = SparkSession
        session._instantiatedSession = session._activeSession = None


def unanswered(error: BaseException | None) -> bool:
    """Whether a call into Spark got no answer, as from a JVM that is gone."""
    return isinstance(error, Py4JError | ConnectionError | EOFError) and not isinstance(error, Py4JJavaError)


def _code(process: subprocess.Popen[bytes], patience: float) -> int | None:
    try:
        return process.wait(patience) if patience else process.poll()
    except subprocess.TimeoutExpired:
        return None


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
