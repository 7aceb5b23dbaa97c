"""An engine's core without Spark: the same stores, callbacks and task functions, in this process and thread."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.engine.core import Core
from millstream.engine.pipeline import Pipeline
from millstream.engine.registry import NewRequest
from millstream.engine.status import Answer
from millstream.model.expression import Call, Column, Literal
from millstream.model.join import JoinNode, JoinQuery, Leg, leg_column
from millstream.model.plan import BatchResult, FireResult
from millstream.model.query import Aggregate, LogicalQuery, Output, WindowSpec, aggregate_column, key_column
from millstream.model.stream import Field, Stream
from millstream.model.types import BOOLEAN, INTEGER, LONG, TIMESTAMP
from millstream.runtime.fire import FireTask, run_fire
from millstream.runtime.home import Home
from millstream.runtime.jobs import _read
from millstream.runtime.join_fire import JoinTask, run_join_fire
from millstream.runtime.loading import kept_groups
from millstream.runtime.worker import IngestTask, merged, run_ingest
from millstream.sources.recipes import splits_text
from millstream.sources.splits import FileSplit, Split

from .inputs import drop_file, purchases

SECOND = 1_000_000
PURCHASES, COPIES = "purchases", "copies"
PRICE, PACK = Column("price", LONG), Column("gem_pack", INTEGER)
FIELDS = (Field("gem_pack", INTEGER), Field("price", LONG), Field("time", TIMESTAMP))


class InProcess:
    """What the core asks of Spark. Group versions are read anew each time, as a worker does that has just started."""

    parallelism = 2

    class analyzer:
        @staticmethod
        def register(stream: Stream) -> None: ...

    def __init__(self) -> None:
        self.ingested: list[int] = []

    def ingest(self, task: IngestTask, splits: Sequence[list[Split]]) -> BatchResult:
        kept_groups.clear()
        self.ingested.append(task.batch)
        return merged([run_ingest(task, _read(task, part)) for part in splits])

    def fire(self, tasks: Sequence[FireTask | JoinTask]) -> tuple[list[FireResult], dict[str, float]]:
        kept_groups.clear()
        done = [run_join_fire(task) if isinstance(task, JoinTask) else run_fire(task) for task in tasks]
        return [result for result, _ in done], {}


def stream(name: str = PURCHASES) -> Stream:
    return Stream(name, FIELDS, "time", 0)


def sums(above: int = -1, size: int = 2, slide: int | None = None) -> LogicalQuery:
    """SELECT gem_pack, sum(price) FROM purchases WHERE price > … GROUP BY gem_pack, window(time, …)."""
    return LogicalQuery(
        sql=f"sums of prices above {above}",
        stream=PURCHASES,
        where=Call("GreaterThan", (PRICE, Literal(above, LONG)), BOOLEAN),
        window=WindowSpec(size * SECOND, (slide or size) * SECOND),
        keys=(PACK,),
        aggregates=(Aggregate("sum", PRICE, LONG),),
        having=None,
        outputs=(
            Output("gem_pack", Column(key_column(0), INTEGER)),
            Output("total", Column(aggregate_column(0), LONG)),
        ),
    )


def count() -> LogicalQuery:
    """SELECT count(*) FROM purchases GROUP BY window(time, '2 seconds'): in a group of its own."""
    return LogicalQuery(
        sql="count",
        stream=PURCHASES,
        where=None,
        window=WindowSpec(2 * SECOND, 2 * SECOND),
        keys=(),
        aggregates=(Aggregate("count", None, LONG),),
        having=None,
        outputs=(Output("n", Column(aggregate_column(0), LONG)),),
    )


def pairs(size: int = 2) -> JoinQuery:
    """The rows of purchases that have the same price in the copy of the stream, in the same window."""
    legs = (Leg(PURCHASES, "p", None), Leg(COPIES, "c", None))
    left, right = (Column(leg_column(leg, "price"), LONG) for leg in (0, 1))
    return JoinQuery(
        sql="pairs",
        legs=legs,
        tree=JoinNode("inner", 0, 1, ((left, right),), None),
        where=None,
        window=WindowSpec(size * SECOND, size * SECOND),
        grouped=False,
        keys=(),
        aggregates=(),
        having=None,
        outputs=(Output("price", left), Output("copy", right)),
    )


class Small:
    """A core on a home, with Parquet files as batches: batch n has the rows 25 n … 25 n + 24, a tenth of a second
    apart. ``tasks`` read a batch."""

    ROWS = 25

    def __init__(self, home: Path, folder: Path, *streams: str, tasks: int = 1) -> None:
        self.spark = InProcess()
        self.folder = folder
        self.tasks = tasks
        # Nobody waits for a metastore on a full disk.
        self.core = Core(Home(str(home), durable=False), self.spark, metastore_wait=0.0)  # type: ignore[arg-type]
        for name in streams or (PURCHASES,):
            if name not in self.core.pipelines:
                self.core.add_stream(stream(name))

    def create(self, id: str, query: LogicalQuery | JoinQuery) -> None:
        registry = self.core.registry
        registry.seal([NewRequest(id, "", None, query, registry.selections_of(query))], [])

    def batch(self, number: int, name: str = PURCHASES) -> None:
        """Run a batch, whose file appears now."""
        if not self.file(number).exists():
            drop_file(self.folder, f"f{number:02d}", purchases(number * self.ROWS, self.ROWS))
        splits: list[list[Split]] = []
        edges = [self.ROWS * task // self.tasks for task in range(self.tasks + 1)]
        for first, last in itertools.pairwise(edges):
            splits.append([FileSplit(str(self.file(number)), "parquet", first, last - first)])
        pipeline: Pipeline = self.core.pipelines[name]
        pipeline.process(number, f"offsets {number}", lambda task: self.spark.ingest(task, splits), splits_text(splits))

    def file(self, number: int) -> Path:
        return self.folder / f"f{number:02d}.parquet"

    def answers(self, id: str, cursor: str | None = None) -> list[Answer]:
        found, _ = self.core.answers.read(self.core.metastore.query(id), cursor, 1000)
        return found

    def totals(self, id: str) -> dict[tuple[int, int], int]:
        """The sum by window start in seconds and pack; a window that is there twice fails."""
        found: dict[tuple[int, int], int] = {}
        for answer in self.answers(id):
            assert answer.window_start is not None
            for row in rows(answer.table):
                key = (int(answer.window_start.timestamp()), row["gem_pack"])
                assert key not in found
                found[key] = row["total"]
        return found

    def paths(self, kind: str) -> list[str]:
        return sorted(path for path in self.core.home.files() if path.startswith(kind))

    def orphans(self) -> set[str]:
        return set(self.core.home.files()) - self.core.metastore.referenced_files()

    def close(self) -> None:
        self.core.close()


def rows(table: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def expected(*windows: int, size: int = 2, upto: int = 10**6) -> dict[tuple[int, int], int]:
    """The totals of the windows that begin at those seconds, of the rows below ``upto``."""
    found: dict[tuple[int, int], int] = {}
    for start in windows:
        for number in range(max(start * 10, 0), min((start + size) * 10, upto)):
            key = (start, number % 3)
            found[key] = found.get(key, 0) + number
    return found


def flip(home: Path, path: str, place: int | None = None) -> None:
    """Change one bit of a file."""
    file = home / path
    data = bytearray(file.read_bytes())
    data[len(data) // 2 if place is None else place] ^= 1
    file.write_bytes(bytes(data))


def cut(home: Path, path: str) -> None:
    file = home / path
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def lose(home: Path, path: str) -> None:
    (home / path).unlink()
