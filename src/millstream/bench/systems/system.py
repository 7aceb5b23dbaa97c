"""The interface of a system under test. It runs in a process of its own; the driver talks to it through a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from millstream.bench.driving.model import Emission, Pull, QuerySpec, StreamSpec


@dataclass(frozen=True, slots=True)
class Queue:
    """A stream's queue of tuples: a directory to which the driver adds Parquet files, whole, in the order of their
    names."""

    stream: StreamSpec
    directory: Path


@dataclass(frozen=True, slots=True)
class Seen:
    """What a system shows since it was asked before. ``taken``: rows of all streams that every query has taken, since
    the run began; the rows of a stream that a query does not read it has taken with the others. ``effective``:
    wall-clock times at which creates and deletes became part of the plan, by query. ``pulls``: when it began with the
    rows it has taken, on the same clock; empty where it cannot tell."""

    taken: int
    emissions: tuple[Emission, ...]
    effective: tuple[tuple[str, float], ...]
    errors: tuple[str, ...] = ()
    pulls: tuple[Pull, ...] = ()


class System(Protocol):
    """Called by one thread, but for ``collect``, which another one calls meanwhile. Any method may raise: its message
    is evidence, and the run ends."""

    # The form of the files in the queues.
    form: str

    def deploy(self, folder: Path, queues: Sequence[Queue], queries: Sequence[QuerySpec]) -> None:
        """Begin a run in an empty folder: connect to the queues, with these queries from the first row on. A run
        that was begun before is over."""

    def create(self, queries: Sequence[QuerySpec]) -> None:
        """Returns when the system has acknowledged all of them."""

    def delete(self, ids: Sequence[str]) -> None: ...

    def collect(self) -> Seen:
        """What has happened since the last call; times are wall-clock seconds (``time.time``)."""

    def phases(self) -> dict[str, float]:
        """Seconds by component since the run began, as far as the system counts them; called as ``collect`` is."""

    def finish(self) -> dict[str, float]:
        """End the run; gives the phases of all of it."""

    def describe(self) -> dict[str, str]:
        """Version and settings, for the report."""

    def close(self) -> None:
        """Give everything back; the process ends."""
