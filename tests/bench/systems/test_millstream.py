"""Millstream under test: when a request took effect, and answers that count when a sink has written them."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from millstream.bench.driving.feeding import Store
from millstream.bench.driving.model import QuerySpec, RunSpec, StreamSpec
from millstream.bench.driving.run import run
from millstream.bench.journal import Planned
from millstream.bench.systems.kinds import KINDS, MILLSTREAM_DRAINED
from millstream.bench.systems.millstream import effective_at
from millstream.bench.systems.remote import RemoteSystem
from millstream.bench.workload import SCHEMA

SECOND = 1_000_000
RATE = 4000.0
TUPLES = {"source": "astream", "keys": "10", "fields_max": "500"}
A, B = (StreamSpec(name, TUPLES, SCHEMA, 0.5) for name in "AB")
WINDOWS = "a AS (SELECT *, window(time, '1 second') AS w FROM A), b AS (SELECT *, window(time, '1 second') AS w FROM B)"
JOIN = QuerySpec(
    "join",
    f"WITH {WINDOWS} SELECT a.key, b.field1 AS other FROM a JOIN b ON a.key = b.key AND a.w = b.w"
    " WHERE a.field1 < 5 AND b.field2 < 5",
    SECOND,
    SECOND,
)
ROWS = QuerySpec("rows", "SELECT key, time FROM A WHERE field1 < 100", 0, 0)


@pytest.mark.parametrize(
    ("query", "epoch", "at"),
    [
        (ROWS, 1, 1.0),
        (ROWS, 2, 3.0),
        (ROWS, 3, None),
        (JOIN, 1, 2.0),
        (JOIN, 2, 4.0),
        (JOIN, 3, None),
    ],
)
def test_a_query_is_in_effect_when_all_of_its_streams_are_planned_with_it(
    query: QuerySpec, epoch: int, at: float | None
) -> None:
    plans = [Planned(1.0, "A", 0, 1), Planned(2.0, "B", 0, 1), Planned(3.0, "A", 1, 2), Planned(4.0, "B", 1, 3)]
    assert effective_at(query, epoch, (A, B), plans) == at


@pytest.mark.slow
def test_drained_answers_count_when_their_rows_are_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    asked = RunSpec("small", MILLSTREAM_DRAINED, (A, B), (JOIN, ROWS), (), RATE, 16.0, density=int(RATE))
    system = RemoteSystem(KINDS[MILLSTREAM_DRAINED], tmp_path, 2)
    try:
        result = run(asked, system, Store(tmp_path / "rows"), tmp_path / "run", lambda share, words: None)
    finally:
        system.close()
    assert result.errors == ()
    assert result.answers > 0
    assert result.latencies
    assert all(0 <= one.processing <= one.event for one in result.latencies)
    written = {path.stem: pq.read_table(path) for path in (tmp_path / "run" / "system" / "drained").iterdir()}
    assert {name: table.num_rows > 0 for name, table in written.items()} == {"join": True, "rows": True}
    assert written["join"].column_names == ["key", "other"]
