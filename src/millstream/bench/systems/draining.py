"""A Parquet sink behind every query of an engine under test: each answer is read, its rows built, and written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from millstream.bench.join_drain import GROUP_ROWS, parquet_writer
from millstream.engine.engine import Engine


class Drain:
    """Sinks that follow the fires; ``written`` is called with the windows' ends when the answers of a query are."""

    def __init__(
        self, engine: Engine, folder: Path, readers: int, written: Callable[[Mapping[str, Sequence[int]]], None]
    ) -> None:
        folder.mkdir()
        self._engine, self._folder = engine, folder
        self._written = written
        self._sinks: dict[str, _Sink] = {}
        # Batches and fires come from threads of their own.
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(readers, thread_name_prefix="bench-drain")
        self.errors: list[str] = []

    def follow(self, ends: Mapping[str, Sequence[int]]) -> None:
        """These windows have answers now; they are read in turn."""
        for query, mine in ends.items():
            self._pool.submit(self._sink(query).catch_up).add_done_callback(partial(self._done, query, mine))

    def _sink(self, query: str) -> _Sink:
        with self._lock:
            if query not in self._sinks:
                self._sinks[query] = _Sink(self._engine, query, self._folder / f"{query}.parquet")
            return self._sinks[query]

    def _done(self, query: str, ends: Sequence[int], done: Future[None]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            self._written({query: ends})
        else:
            self.errors.append(f"the sink of {query}: {type(error).__name__}: {error}")

    def close(self) -> None:
        """What waits is given up; the files are whole."""
        self._pool.shutdown(cancel_futures=True)
        for sink in self._sinks.values():
            sink.close()


class _Sink:
    """One query's sink, and its cursor."""

    def __init__(self, engine: Engine, query: str, path: Path) -> None:
        self._engine, self._query = engine, query
        self._writer = parquet_writer(path, engine.query(query).schema)
        self._cursor: str | None = None
        self._lock = threading.Lock()

    def catch_up(self) -> None:
        """Write all answers that there are."""
        with self._lock:
            while (page := self._engine.read_answers(self._query, self._cursor, rows=GROUP_ROWS)).answers:
                for answer in page.answers:
                    self._writer.write_table(answer.table)
                self._cursor = page.cursor

    def close(self) -> None:
        with self._lock:
            self._writer.close()
