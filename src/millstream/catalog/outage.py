"""When the database of the metastore does not answer: which errors mean that, how long to wait, and who is told.

A transaction that failed so had no effect and is repeated from its beginning, with growing pauses, until the database
is back. Streams and fires wait as long as it takes; what a user waits for ends at a limit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar

from sqlalchemy.exc import DBAPIError, OperationalError, TimeoutError

from millstream.errors import EngineError

# What users wait at most, in seconds, unless the settings say otherwise: twice the outage that must be survived.
DEFAULT_LIMIT = 60.0
# Pauses between attempts double from the first, which a restarted server's clients hardly notice, to the longest.
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0

# SQLSTATE classes and codes after which a transaction has had no effect and may well succeed later: lost connections,
# missing resources, shutdown and start, cancelled statements, system errors.
_CLASSES = ("08", "53", "57P", "58")
_STATES = (
    "25006",  # a read-only server: the standby, while another becomes the primary
    "25P03",  # the session was idle inside its transaction for too long
    "40001",  # serialization failure
    "40P01",  # deadlock
    "55P03",  # the lock was not to be had in time
    "57014",  # cancelled by an administrator or a timeout
)
# The same for SQLite: held by a backup tool, no space, a device that fails, a file system that is gone or read-only.
_SQLITE = ("BUSY", "LOCKED", "IOERR", "FULL", "CANTOPEN", "READONLY", "PROTOCOL")

T = TypeVar("T")


class Away(EngineError):
    """The database did not answer. The transaction has had no effect and may be repeated."""


def is_outage(error: DBAPIError) -> bool:
    """Whether an error of the driver says that the database is away, rather than that we asked for something wrong."""
    name = getattr(error.orig, "sqlite_errorname", None)
    if name is not None:
        return str(name).removeprefix("SQLITE_").startswith(_SQLITE)
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return error.connection_invalidated or state.startswith(_CLASSES) or state in _STATES
    # Without a code no server has spoken: the connection broke, or there was none.
    return error.connection_invalidated or isinstance(error, OperationalError)


def away(error: Exception | str) -> Away:
    """The error that users see; ``error`` is the driver's, or the reason that somebody else waits."""
    reason = " ".join(str(getattr(error, "orig", None) or error).split())
    return Away(
        "METASTORE_AWAY",
        "the database of the metastore does not answer",
        detail=reason,
        hint="nothing was changed; try again when the database is back",
    )


def unknown(reason: str | None) -> EngineError:
    """The error of a transaction whose commit was not answered, when nobody waits any more to find out."""
    return EngineError(
        "METASTORE_AWAY",
        "the database of the metastore does not answer, and whether it made the change is not known",
        detail=reason,
        hint="look for the query when the database is back, or repeat the request with the same key",
    )


def in_doubt(error: BaseException) -> bool:
    """Whether an error leaves open if the transaction has happened. Of one that ended with ``Away`` it is known that
    it has not."""
    codes = ("METASTORE_AWAY", "METASTORE_STALE", "FENCED")
    return isinstance(error, EngineError) and error.code in codes and not isinstance(error, Away)


@contextmanager
def outages_named() -> Iterator[None]:
    """Inside this, errors of the driver that mean an outage are raised as ``Away``."""
    try:
        yield
    except DBAPIError as error:
        if not is_outage(error):
            raise
        raise away(error) from error
    except TimeoutError as error:  # every connection of the pool is in use, most likely by those who wait
        raise away(error) from error


# Seconds to wait: None is for ever, a missing value the limit of the metastore.
_patience: ContextVar[float | None] = ContextVar("patience")


@contextmanager
def waiting(seconds: float | None) -> Iterator[None]:
    """Inside this, transactions of this thread wait so long for the database; None: until it is back."""
    token = _patience.set(seconds)
    try:
        yield
    finally:
        _patience.reset(token)


class Outage:
    """Who waits for the database, and why. Safe to use from several threads."""

    def __init__(self, limit: float = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self._waiting: dict[int, str] = {}
        self._ended = threading.Event()

    @property
    def reason(self) -> str | None:
        """Why somebody waits for the database, None if nobody does."""
        return next(iter(list(self._waiting.values())), None)

    def end(self) -> None:
        """Nobody waits any more: the engine stops."""
        self._ended.set()

    def patience(self) -> float | None:
        """How long this thread waits."""
        return _patience.get(self.limit)

    def repeat(self, attempt: Callable[[], T], patience: float | None) -> T:
        """Try until the database answers, for so many seconds at most."""
        until = None if patience is None else time.monotonic() + patience
        thread = threading.get_ident()
        pause = FIRST_PAUSE
        try:
            while True:
                try:
                    return attempt()
                except Away as error:
                    left = LONGEST_PAUSE if until is None else until - time.monotonic()
                    if left <= 0:
                        raise
                    self._waiting[thread] = error.detail or error.message
                    if self._ended.wait(min(pause, left)):
                        raise
                    pause = min(2 * pause, LONGEST_PAUSE)
        finally:
            self._waiting.pop(thread, None)


def repeating(method: Callable[..., T]) -> Callable[..., T]:
    """A method that is one transaction, repeated while the database is away. Its object has an ``outage``."""

    @wraps(method)
    def repeated(self: Any, *args: Any, **kwargs: Any) -> T:
        outage: Outage = self.outage
        return outage.repeat(lambda: method(self, *args, **kwargs), outage.patience())

    return repeated


Class = TypeVar("Class", bound=type[Any])


def every_method_repeats(cls: Class) -> Class:
    """Let every public method of a class be repeated. Each must be one transaction: what it did in an attempt that
    failed is as if it had not been."""
    for name, member in list(vars(cls).items()):
        if callable(member) and not name.startswith("_") and name not in _NO_TRANSACTIONS:
            setattr(cls, name, repeating(member))
    return cls


# They end the metastore or call other methods.
_NO_TRANSACTIONS = ("close", "stop_waiting", "expire_versions")
