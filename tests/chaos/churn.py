"""Hours of event time in seconds: queries come and go all the time, and everything that could grow is measured.

    round k:  creates and deletes ► a batch of each stream, half a minute of event time ► fire ► read ► tidy?

No Spark: the engine's own callbacks and stores are driven by hand, as in the crash suite.
"""

from __future__ import annotations

import gc
import os
import random
from collections import deque
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import create_engine, func, select

from millstream.catalog import tables
from millstream.engine.changelog import Changelog
from millstream.engine.core import Core
from millstream.engine.registry import NewRequest
from millstream.model.join import JoinQuery
from millstream.model.plan import BatchResult
from millstream.model.query import LogicalQuery
from millstream.runtime import fire, loading
from millstream.runtime.home import Home
from millstream.runtime.worker import IngestTask
from millstream.sources.splits import FileSplit
from tests.chaos.stand_in import InProcess
from tests.chaos.workload import SCHEMAS, SECOND, START, streams

ROUND = 30 * SECOND
ROWS = 100
# Answers and queries that are gone are kept for so long, and tidied up so often.
RETENTION = 12 * ROUND
TIDY_EVERY = 4
# Queries alive at a time, and how many come and go in a round.
ALIVE, CHANGED = 14, 3


class Churn:
    def __init__(self, place: Path, queries: Mapping[str, LogicalQuery | JoinQuery], seed: int) -> None:
        self.place = place
        self.round = 0
        self._queries = dict(queries)
        self._chance = random.Random(seed)
        self._alive: deque[str] = deque()
        self._made = 0
        self._cursor: str | None = None
        self.core = Core(Home(str(place / "home")), InProcess(2), clock=self._clock)  # type: ignore[arg-type]
        self._changelog = Changelog(self.core.registry, 0.0, 1, self.core.metastore.outage)
        for stream in streams():
            self.core.add_stream(stream)
        # It is there all the time, so that what is older than every query is not all that goes.
        self._create("revenue", "for-ever")

    def _clock(self) -> int:
        return START + (self.round + 1) * ROUND

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self._one_round()
            self.round += 1

    def close(self) -> None:
        self._changelog.stop()
        self.core.close()

    def _one_round(self) -> None:
        for _ in range(CHANGED):
            self._made += 1
            self._create(self._chance.choice(list(self._queries)), f"q{self._made}")
            self._alive.append(f"q{self._made}")
        leaving = [self._alive.popleft() for _ in range(len(self._alive) - ALIVE)]
        for done in self._changelog.submit(deletes=leaving) if leaving else ():
            done.result()
        for name in SCHEMAS:
            self._batch(name)
        self.core.fire_all()
        self._read()
        if self.round % TIDY_EVERY == 0:
            self.core.tidy(RETENTION, RETENTION)

    def _create(self, kind: str, id: str) -> None:
        query = self._queries[kind]
        request = NewRequest(id, "", None, query, self.core.registry.selections_of(query))
        [done] = self._changelog.submit([request])
        done.result()

    def _batch(self, name: str) -> None:
        path = self.place / f"{name}-{self.round}.parquet"
        pq.write_table(self._rows(name), path)
        splits = [[FileSplit(str(path), "parquet", part * ROWS // 2, ROWS // 2)] for part in range(2)]

        def ingest(task: IngestTask) -> BatchResult:
            return self.core.spark.ingest(task, splits)  # type: ignore[arg-type]

        self.core.pipelines[name].process(self.round, str(self.round), ingest)
        path.unlink()
        for dead in Path(self.core.home.path("dead"), name).glob(f"{self.round}-*"):
            # Dead letters go by the age of their files, and our clock is not that of the wall.
            os.utime(dead, (self._clock() // SECOND,) * 2)

    def _rows(self, name: str) -> pa.Table:
        """Some are late, and one in a while has no time."""
        chance = self._chance
        begin = START + self.round * ROUND
        times: list[int | None] = [begin + chance.randrange(-SECOND, ROUND) for _ in range(ROWS)]
        if self.round % 5 == 0:
            times[0] = None
        value = "price" if name == "purchases" else "cost"
        return pa.table(
            {
                "user_id": pa.array([chance.randrange(12) for _ in times], pa.int32()),
                "gem_pack": pa.array([chance.randrange(5) for _ in times], pa.int32()),
                value: pa.array([chance.randrange(100) for _ in times], pa.int64()),
                "time": pa.array(times, pa.timestamp("us", tz="UTC")),
            }
        )

    def _read(self) -> None:
        """A reader that follows, and visitors who look at what is newest."""
        _, self._cursor = self.core.answers.read(self.core.metastore.query("for-ever"), self._cursor, 1000)
        for id in list(self._alive)[-2:]:
            self.core.answers.read(self.core.metastore.query(id), "newest", 1)
        self.core.registry.classes()

    # Measures

    def counts(self) -> dict[str, int]:
        """Rows of each table, files by folder, and what lies in memory, by name."""
        found = self._table_rows()
        for path in self.core.home.files():
            folder = f"files in {path.partition('/')[0]}"
            found[folder] = found.get(folder, 0) + 1
        owners = {"registry": self.core.registry, "answers": self.core.answers, "front end": self.core.front_end}
        for owner, value in owners.items():
            found |= {f"{owner} {name}": len(one) for name, one in vars(value).items() if hasattr(one, "__len__")}
        for name, pipeline in self.core.pipelines.items():
            found[f"buckets of {name}"] = sum(map(len, pipeline.buckets._groups.values()))
            found[f"bucket files of {name}"] = len(pipeline.buckets._live)
        found["definitions"] = len(self.core.metastore._definitions._kept)
        found["pages open"] = len(self.core.answers._expansions._open)
        found["groups of workers"] = len(loading.kept_groups)
        found["stacks of workers"] = len(fire.kept)
        return found

    def bytes(self) -> dict[str, int]:
        home = Path(self.core.home.root)
        found = {name: (home / name).stat().st_size for name in ("metastore.db", "metastore.db-wal")}
        for path in self.core.home.files():
            folder = f"bytes in {path.partition('/')[0]}"
            found[folder] = found.get(folder, 0) + (home / path).stat().st_size
        return found

    def objects(self) -> int:
        gc.collect()
        return len(gc.get_objects())

    def _table_rows(self) -> dict[str, int]:
        engine = create_engine(self.core.home.metastore_url())
        with engine.connect() as connection:
            found = {
                f"rows of {table.name}": connection.execute(select(func.count()).select_from(table)).scalar_one()
                for table in tables.metadata.sorted_tables
            }
        engine.dispose()
        return found


def open_files() -> int:
    """File descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))
