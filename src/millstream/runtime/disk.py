"""Faults of the machine: no space left, an I/O error, a disk that has become read-only. Nobody's query is to blame, and
they pass: what failed is repeated until they have."""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from millstream.catalog.outage import in_doubt
from millstream.errors import EngineError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FAULTS = (*_FULL, errno.EIO, errno.EROFS)
_WORDS = {
    errno.ENOSPC: "no space left",
    errno.EDQUOT: "the disk quota is used up",
    errno.EIO: "an input/output error",
    errno.EROFS: "a read-only file system",
}

# As Python writes an OSError, also inside the traceback of a task that Spark hands on as text.
_ERRNO = re.compile(r"\[Errno (\d+)\] [^:\n]*(?:: '([^'\n]*)')?")
# As SQLite, and as Java, say it.
_TEXTS = (
    ("database or disk is full", errno.ENOSPC),
    ("No space left on device", errno.ENOSPC),
    ("Disk quota exceeded", errno.EDQUOT),
    ("disk I/O error", errno.EIO),
    ("Input/output error", errno.EIO),
    ("attempt to write a readonly database", errno.EROFS),
    ("Read-only file system", errno.EROFS),
)


def disk_fault(error: BaseException, place: str = "the disk") -> EngineError | None:
    """The fault of the disk behind an error, as an error for people; None where there is none, or where something else
    is worth more: that nobody knows whether a transaction has happened. ``place`` is named where the error does not
    say which file it was."""
    if in_doubt(error):
        return None
    for one in _chain(error):
        if isinstance(one, EngineError) and one.code in ("NO_SPACE", "DISK_ERROR"):
            return one
        found = _numbered(one) or _told(str(one))
        if found is not None:
            return _fault(found[0], found[1] or place)
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _numbered(error: BaseException) -> tuple[int, str | None] | None:
    if isinstance(error, OSError) and error.errno in _FAULTS:
        return error.errno, None if error.filename is None else str(error.filename)
    return None


def _told(text: str) -> tuple[int, str | None] | None:
    for match in _ERRNO.finditer(text):
        if int(match[1]) in _FAULTS:
            return int(match[1]), match[2]
    return next(((number, None) for words, number in _TEXTS if words in text), None)


def _fault(number: int, place: str) -> EngineError:
    if number in _FULL:
        hint = "make room; everything goes on by itself"
        return EngineError("NO_SPACE", f"{_WORDS[number]} on {place}", hint=hint)
    hint = "look after the disk; everything goes on by itself once it can be written"
    return EngineError("DISK_ERROR", f"{_WORDS[number]} on {place}", hint=hint)


@contextmanager
def faults_told(place: str) -> Iterator[None]:
    """Faults of the disk inside this are told as such."""
    try:
        yield
    except Exception as error:
        fault = disk_fault(error, place)
        if fault is None or fault is error:
            raise
        raise fault from error


# Seconds before the first repetition after a fault, and the most before any other: each waits twice as long as the
# last. Space comes back when somebody makes it, so looking more often would only make noise.
FIRST_WAIT = 1.0
LONGEST_WAIT = 30.0


class Backoff:
    """When to try again; ``clock`` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wait = 0.0
        self._next = 0.0

    def failed(self) -> float:
        """Another try has failed; gives the seconds until the next."""
        self._wait = min(max(FIRST_WAIT, 2 * self._wait), LONGEST_WAIT)
        self._next = self._clock() + self._wait
        return self._wait

    def succeeded(self) -> None:
        self._wait = 0.0

    @property
    def due(self) -> bool:
        return self._clock() >= self._next
