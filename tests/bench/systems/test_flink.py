"""Flink itself, where ``make flink`` has been run: windows with known sums, creates and deletes while rows flow.

file        0         1         2         3   …     each has 100 rows for each of four keys
event time  0 s       1 s       2 s       3 s
"""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.bench.driving.model import Emission, Pull, QuerySpec, StreamSpec
from millstream.bench.systems.flink import FlinkSystem
from millstream.bench.systems.flink_process import HOME, interpreter
from millstream.bench.systems.flink_rows import create_tables, reads, write_rows
from millstream.bench.systems.system import Queue
from millstream.bench.workloads.catalogue import WORKLOADS
from millstream.bench.workloads.load import Workload
from millstream.errors import BenchError

SECOND = 1_000_000
ROWS, KEYS = 400, 4
SCHEMA = "key BIGINT, value INT, time TIMESTAMP"
# Much longer than Flink takes to start a job or to complete a checkpoint, on the busiest machine.
PATIENCE = 120.0


def asked(name: str, window: str, length: int, slide: int, where: str = "TRUE") -> QuerySpec:
    text = (
        f"SELECT key, SUM(`value`) AS total, window_end FROM TABLE({window}) WHERE {where} "
        "GROUP BY key, window_start, window_end"
    )
    return QuerySpec(name, "", length * SECOND, slide * SECOND, text.replace("key,", "`key`,"))


TUMBLING = "TUMBLE(TABLE s, DESCRIPTOR(`time`), INTERVAL '1' SECOND)"
TUMBLE = asked("tumble", TUMBLING, 1, 1)
HOP = asked("hop", "HOP(TABLE s, DESCRIPTOR(`time`), INTERVAL '1' SECOND, INTERVAL '2' SECOND)", 2, 1, "`value` = 1")
SIDES = [f"(SELECT * FROM TABLE({TUMBLING.replace('TABLE s', f'TABLE {name}')}))" for name in "st"]
JOIN = QuerySpec(
    "join",
    "",
    SECOND,
    SECOND,
    f"SELECT l.`key` AS k, l.`value` AS x, r.`value` AS y, l.window_end AS window_end FROM {SIDES[0]} AS l "
    f"JOIN {SIDES[1]} AS r ON l.`key` = r.`key` AND l.window_start = r.window_start AND l.window_end = r.window_end",
)


# One row in four, with the second that it is in; no window.
ROWS_ALONE = QuerySpec(
    "rows", "", 0, 0, "SELECT `key`, `value`, FLOOR(`time` TO SECOND) AS window_end FROM s WHERE `value` = 2"
)


def rows_of(second: int) -> pa.Table:
    """Every row has the value 1, but those of key 3, which have 2; several share a millisecond."""
    times = [second * SECOND + row * SECOND // ROWS for row in range(ROWS)]
    keys = [row % KEYS for row in range(ROWS)]
    return pa.table(
        {
            "key": pa.array(keys, pa.int64()),
            "value": pa.array([2 if key == 3 else 1 for key in keys], pa.int32()),
            "time": pa.array(times, pa.timestamp("us", tz="UTC")),
        }
    )


class Run:
    """A run of a system, and all that it has shown."""

    def __init__(self, system: FlinkSystem, folder: Path, queries: list[QuerySpec], streams: str = "s") -> None:
        self.system = system
        self.folder = folder / "run"
        self.queues = [Queue(StreamSpec(name, {}, SCHEMA), folder / name) for name in streams]
        for path in (self.folder, *(queue.directory for queue in self.queues)):
            path.mkdir()
        self.next = 0
        self.emissions: list[Emission] = []
        self.effective: list[tuple[str, float]] = []
        self.errors: list[str] = []
        self.pulls: list[Pull] = []
        self.taken = 0
        system.deploy(self.folder, self.queues, queries)

    def feed(self, files: int) -> None:
        for second in range(self.next, self.next + files):
            for queue in self.queues:
                write_rows(rows_of(second), queue.directory / f"{second:06d}.csv")
        self.next += files

    def until(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not what():
            assert time.monotonic() < deadline, (self.taken, self.emissions, self.effective, self.errors)
            time.sleep(0.1)
            seen = self.system.collect()
            self.taken = seen.taken
            self.emissions += seen.emissions
            self.effective += seen.effective
            self.errors += seen.errors
            self.pulls += seen.pulls

    def told(self, query: str) -> int:
        return sum(name == query for name, _ in self.effective)

    def ends(self) -> list[int]:
        return sorted(emission.end // SECOND for emission in self.emissions)

    def answers(self) -> list[list[tuple[str, ...]]]:
        """The rows of each job, as its files have them, with the second at which their window ends."""
        folders = sorted(self.folder.glob("job*"), key=lambda path: int(path.name[3:]))
        return [sorted(row for path in folder.glob("answers/*/part-*") for row in _rows(path)) for folder in folders]


def _rows(path: Path) -> Iterator[tuple[str, ...]]:
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.reader(file):
            yield (path.parent.name[-6:-4], *row)


@pytest.fixture(scope="module")
def flink() -> Iterator[FlinkSystem]:
    try:
        python = interpreter()
    except BenchError as error:
        pytest.skip(error.render())
    system = FlinkSystem(python=python)
    yield system
    system.close()


@pytest.mark.slow
def test_sums_of_two_queries(flink: FlinkSystem, tmp_path: Path) -> None:
    run = Run(flink, tmp_path, [TUMBLE, HOP])
    began = time.time()
    # All at once, so that the jobs have to catch up in order.
    run.feed(12)
    run.until(lambda: run.taken == 12 * ROWS and len(run.emissions) >= 22)
    # The windows that end at 12 s wait for later rows.
    assert run.ends() == sorted([*range(1, 12), *range(1, 12)])
    tumble, hop = run.answers()
    assert tumble == [(f"{s:02d}", str(key), "200" if key == 3 else "100") for s in range(1, 12) for key in range(4)]
    assert hop == [(f"{s:02d}", str(key), "100" if s == 1 else "200") for s in range(1, 12) for key in range(3)]
    assert not run.errors
    assert run.pulls[-1].rows == 12 * ROWS
    moments = [began, *(pull.at for pull in run.pulls), min(one.at for one in run.emissions if one.end == 11 * SECOND)]
    assert moments == sorted(moments)
    so_far = flink.phases()
    busy = flink.finish()
    assert any(name.startswith("Source") for name in busy)
    assert sum(busy.values()) > 0
    assert so_far.keys() == busy.keys()
    # Figures as they are, not those of seconds ago, which would be none.
    assert sum(so_far.values()) > 0
    assert "Flink" in flink.describe()["version"]


@pytest.mark.slow
def test_queries_come_and_go_while_rows_flow(flink: FlinkSystem, tmp_path: Path) -> None:
    run = Run(flink, tmp_path, [TUMBLE])
    run.feed(3)
    run.until(lambda: run.ends() == [1, 2] and run.taken == 3 * ROWS)
    began = time.time()
    flink.create([HOP])
    run.until(lambda: run.told("hop") == 1)
    assert run.effective[-1][1] >= began
    run.feed(4)
    run.until(lambda: len(run.emissions) >= 9)
    # From the fourth file on: the first window that has any of its rows ends at 4 s.
    assert run.ends() == sorted([1, 2, 3, 4, 5, 6, 4, 5, 6])
    flink.delete(["tumble"])
    run.until(lambda: run.told("tumble") == 1)
    run.feed(2)
    run.until(lambda: len(run.emissions) >= 11 and run.taken == 9 * ROWS)
    assert run.ends() == sorted([1, 2, 3, 4, 5, 6, 4, 5, 6, 7, 8])
    with pytest.raises(BenchError, match="no query 'tumble' runs"):
        flink.delete(["tumble"])
    assert not run.errors


@pytest.mark.slow
def test_a_join_of_two_streams(flink: FlinkSystem, tmp_path: Path) -> None:
    run = Run(flink, tmp_path, [JOIN], "st")
    run.feed(3)
    run.until(lambda: run.ends() == [1, 2] and run.taken == 2 * 3 * ROWS)
    pairs = run.answers()[0]
    assert len(pairs) == 2 * KEYS * 100 * 100
    assert set(pairs) == {(s, str(key), *("2" if key == 3 else "1") * 2) for s in ("01", "02") for key in range(4)}


@pytest.mark.slow
def test_a_stream_that_a_query_does_not_read_passes_with_the_other(flink: FlinkSystem, tmp_path: Path) -> None:
    run = Run(flink, tmp_path, [TUMBLE], "st")
    assert {path.name for path in run.folder.glob("job*/in/*")} == {"s-0", "s-1"}
    run.feed(3)
    run.until(lambda: run.ends() == [1, 2] and run.taken == 2 * 3 * ROWS)
    flink.create([JOIN])
    run.until(lambda: run.told("join") == 1)
    run.feed(2)
    run.until(lambda: run.ends() == [1, 2, 3, 4, 4] and run.taken == 2 * 5 * ROWS)
    assert not run.errors
    assert run.pulls[-1].rows == 2 * 5 * ROWS


@pytest.mark.slow
def test_rows_without_a_window_are_answers_of_their_second(flink: FlinkSystem, tmp_path: Path) -> None:
    run = Run(flink, tmp_path, [ROWS_ALONE])
    for second in range(1, 5):
        run.feed(1)
        run.until(lambda second=second: run.taken == second * ROWS)
    # The last two wait for later rows.
    run.until(lambda: run.ends() == [1, 2])
    began = time.time()
    run.feed(1)
    run.until(lambda: run.ends() == [1, 2, 3])
    # Readable before the rows came that showed it to be whole.
    assert run.emissions[-1].at < began
    assert [row for row in run.answers()[0] if row[0] == "02"] == [("02", "3", "2")] * 100
    assert not run.errors


@pytest.mark.slow
def test_a_job_that_fails_is_evidence_and_the_others_go_on(flink: FlinkSystem, tmp_path: Path) -> None:
    run = Run(flink, tmp_path, [TUMBLE, asked("broken", TUMBLING, 1, 1, "1 / (`value` - 1) > 5")])
    run.feed(2)
    run.until(lambda: bool(run.errors) and run.ends() == [1])
    assert len(run.errors) == 1
    assert "query 'broken'" in run.errors[0]
    assert "ArithmeticException" in run.errors[0]


@pytest.mark.slow
def test_a_text_that_flink_refuses_is_told_in_its_words(flink: FlinkSystem, tmp_path: Path) -> None:
    run = Run(flink, tmp_path, [TUMBLE])
    wrong = QuerySpec("wrong", "", 0, 0, "SELECT missing, window_end FROM s")
    with pytest.raises(BenchError, match="missing") as refused:
        flink.create([wrong])
    assert refused.value.code == "FLINK_FAILED"
    run.feed(2)
    run.until(lambda: run.ends() == [1])


def test_a_query_without_flinks_text_is_refused(tmp_path: Path) -> None:
    # Refused before anything is started, so that any interpreter does.
    system = FlinkSystem(python=tmp_path / "python")
    with pytest.raises(BenchError, match="query 'q' has no text in Flink's SQL") as refused:
        system.deploy(tmp_path, [], [QuerySpec("q", "SELECT 1", 0, 0)])
    assert refused.value.code == "UNSUPPORTED"
    system.close()


def test_without_its_environment_flink_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME, str(tmp_path))
    with pytest.raises(BenchError) as refused:
        FlinkSystem()
    assert refused.value.code == "FLINK_MISSING"


def test_rows_are_written_as_the_tables_read_them(tmp_path: Path) -> None:
    write_rows(rows_of(1).slice(3, 2), tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_text(encoding="utf-8") == "3,2,1007500\n0,1,1010000\n"
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


def test_several_directories_are_one_stream() -> None:
    statements = create_tables("s", SCHEMA, [Path("/a"), Path("/b")])
    assert [statement.split("(")[0] for statement in statements[:2]] == ["CREATE TABLE `s 0` ", "CREATE TABLE `s 1` "]
    assert statements[2] == "CREATE VIEW `s` AS SELECT * FROM `s 0` UNION ALL SELECT * FROM `s 1`"


def test_a_column_that_csv_cannot_hold_is_refused() -> None:
    with pytest.raises(BenchError, match="column 'b' of type binary"):
        create_tables("s", "a INT, b BINARY", [Path("/a")])


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("SELECT a FROM s", "s"),
        ("SELECT s FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(`time`)))", "st"),
        ("SELECT s.a FROM t AS s JOIN u AS `t` ON s.a = `t`.a", "tu"),
        ("SELECT a FROM `s`, t", "st"),
        ("SELECT a FROM streams", ""),
    ],
)
def test_streams_that_a_text_reads(text: str, read: str) -> None:
    # A column of that name is taken for the stream, which only costs the job an idle source.
    assert "".join(stream for stream in "stu" if reads(text, stream)) == read


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=lambda workload: workload.name)
def test_queries_read_the_streams_that_their_tables_are(workload: Workload) -> None:
    """In the texts of all workloads a stream follows one of three words."""
    for query in islice(workload.draw(workload.seed), 60):
        for stream in workload.streams:
            named = re.search(rf"\b(TABLE|FROM|JOIN) {stream.name}\b", query.flink or "") is not None
            assert reads(query.flink or "", stream.name) is named
