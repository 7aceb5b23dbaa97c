"""What an engine finds when it starts again: groups, failed queries, readers. No Spark: tasks run in the process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.engine.core import Core
from millstream.engine.registry import NewRequest
from millstream.errors import CatalogError
from millstream.model.query import LogicalQuery
from millstream.runtime.home import Home
from millstream.sources.splits import FileSplit
from tests.catalog.builders import SECOND, stream, unwindowed, windowed
from tests.chaos.stand_in import InProcess


@contextmanager
def engine(home: Path) -> Iterator[Core]:
    core = Core(Home(str(home)), InProcess(1), clock=lambda: 1_000 * SECOND)  # type: ignore[arg-type]
    try:
        yield core
    finally:
        core.close()


def create(core: Core, id: str, query: LogicalQuery) -> None:
    core.registry.seal([NewRequest(id, "me", None, query, core.registry.selections_of(query))], [])


def feed(core: Core, batch: int, seconds: list[int], name: str = "purchases") -> None:
    """A batch of rows with these times; each row's price is 20."""
    path = core.home.path(f"{name}-{batch}.parquet")
    times = pa.array([second * SECOND for second in seconds], pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table({"price": pa.array([20] * len(seconds), pa.int64()), "time": times}), path)
    splits = [[FileSplit(path, "parquet", 0, len(seconds))]]
    core.pipelines[name].process(batch, f"offsets {batch}", lambda task: core.spark.ingest(task, splits))


def test_a_group_whose_queries_are_gone_does_not_come_back(home: Path) -> None:
    """Its last version is forgotten first, since no bucket was made with it; an older one may still be needed."""
    with engine(home) as core:
        core.add_stream(stream())
        create(core, "gone", windowed())
        feed(core, 0, [1, 2])
        core.registry.seal([], ["gone"])
        core.metastore.expire_versions("purchases")
        assert [ref.retired for ref in core.metastore.group_versions("purchases")] == [False]
    with engine(home) as core:
        assert (core.registry.running, core.registry.groups) == (0, 0)
        with pytest.raises(CatalogError, match="was deleted before"):
            core.registry.seal([], ["gone"])


def test_a_failed_query_is_taken_out_of_its_group_at_the_next_start(home: Path) -> None:
    """The engine may die between the transaction that stops a query and the epoch without it."""
    with engine(home) as core:
        core.add_stream(stream())
        create(core, "failed", unwindowed())
        core.metastore.set_failed("failed", "its expression cannot be evaluated")
        assert core.registry.running == 1
    with engine(home) as core:
        assert core.registry.running == 0
        feed(core, 0, [1, 2])
        assert core.metastore.query("failed").answer_rows == 0
        assert core.metastore.query("failed").state == "failed"


def test_a_reader_of_a_quiet_stream_has_missed_nothing_when_answers_of_others_expire(home: Path) -> None:
    with engine(home) as core:
        core.add_stream(stream())
        core.add_stream(stream("ads"))
        create(core, "busy", unwindowed())
        create(core, "quiet", unwindowed("ads"))
        feed(core, 0, [1], "ads")
        record = core.metastore.query("quiet")
        found, cursor = core.answers.read(record, None, 10)
        assert len(found) == 1
        for batch in range(3):
            feed(core, batch, [1])
            found, cursor = core.answers.read(record, cursor, 10)
            assert found == []
        core.metastore.expire_answers(before_seq=4)
        found, cursor = core.answers.read(record, cursor, 10)
        assert found == []
        feed(core, 1, [2], "ads")
        found, _ = core.answers.read(record, cursor, 10)
        assert [answer.batch for answer in found] == [1]


def test_a_reader_that_is_away_too_long_is_told_so(home: Path) -> None:
    with engine(home) as core:
        core.add_stream(stream())
        create(core, "busy", unwindowed())
        feed(core, 0, [1])
        record = core.metastore.query("busy")
        _, cursor = core.answers.read(record, None, 10)
        for batch in (1, 2):
            feed(core, batch, [1])
        core.metastore.expire_answers(before_seq=3)
        with pytest.raises(CatalogError) as refusal:
            core.answers.read(record, cursor, 10)
        assert refusal.value.code == "BAD_CURSOR"
