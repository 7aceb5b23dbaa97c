"""What plain Spark's reports say, without Spark: a session that starts nothing; its queries run when a test says so.

A file of a stream holds ten rows, a tenth of a second of event time apart: file 3 those of [3 s, 4 s).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.bench.driving.model import Emission, Pull, QuerySpec, StreamSpec
from millstream.bench.systems import spark
from millstream.bench.systems.spark import SparkSystem
from millstream.bench.systems.spark_files import Extent, extent_of, read_log
from millstream.bench.systems.spark_jobs import Intake, Job
from millstream.bench.systems.spark_reports import Batch, unseen
from millstream.bench.systems.system import Queue
from millstream.sources.generators import DEFAULT_START

SECOND = 1_000_000
ROWS = 10
SUMS = "SELECT k, SUM(x) AS s FROM {} GROUP BY k, window(time, '1 second')"
OF_A, OF_B = SUMS.format("a"), SUMS.format("b")
JOIN = "SELECT l.x FROM a AS l JOIN b AS r ON l.k = r.k AND l.w = r.w"
SELF_JOIN = "SELECT l.x FROM a AS l JOIN a AS r ON l.k = r.k AND l.w = r.w"


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def second(number: float) -> int:
    return DEFAULT_START + round(number * SECOND)


def asked(name: str, text: str, slide: int = SECOND) -> QuerySpec:
    return QuerySpec(name, text, slide, slide)


class Report:
    """Java's side of a report; ``pressed`` counts how many have been made JSON."""

    pressed = 0

    def __init__(self, report: dict[str, Any]) -> None:
        self.report = report

    def batchId(self) -> int:
        return int(self.report["batchId"])

    def durationMs(self) -> Report:
        return self

    def containsKey(self, phase: str) -> bool:
        return phase in self.report["durationMs"]

    def json(self) -> str:
        Report.pressed += 1
        return json.dumps(self.report)


@dataclass
class Query:
    """A query of the session, and Java's side of it. ``seen``: files that each source has read."""

    sources: tuple[Path, ...]
    folder: Path
    reports: list[Report] = field(default_factory=list)
    seen: list[set[str]] = field(default_factory=list)
    batches: int = 0
    isActive: bool = True

    def __post_init__(self) -> None:
        self._jsq = self
        self.seen = [set() for _ in self.sources]

    def lastProgress(self) -> Report | None:
        return self.reports[-1] if self.reports else None

    def recentProgress(self) -> list[Report]:
        return self.reports[-int(spark.KEPT_PROGRESS) :]

    def stop(self) -> None:
        self.isActive = False

    def exception(self) -> None:
        return None

    def idle(self, back: int = 0) -> None:
        """A trigger that finds nothing to do reports the batch to come, or one before it again."""
        self.batches -= back
        self._report(0.0, {"triggerExecution": 1}, {})
        self.batches += back

    def run(self, at: float = 1000.0, took: float = 0.5, **times: float) -> None:
        """A batch over all files that no batch has read. Spark counts no rows, as where none can pass."""
        for number in range(len(self.sources)):
            self._read(number)
        phases = {"addBatch": round(took * 900), "triggerExecution": round(took * 1000)}
        self._report(at, phases, {name: moment(second(value) / SECOND) for name, value in times.items()})
        self.batches += 1

    def _read(self, number: int) -> None:
        directory, log = self.sources[number], self.folder / "checkpoint" / "sources" / str(number)
        log.mkdir(parents=True, exist_ok=True)
        new = sorted({path.name for path in directory.iterdir()} - self.seen[number])
        lines = [json.dumps({"path": f"file://{directory}/{name}", "batchId": self.batches}) for name in new]
        (log / str(self.batches)).write_text("\n".join(["v1", *lines]), encoding="utf-8")
        self.seen[number] |= set(new)

    def _report(self, at: float, phases: dict[str, int], times: dict[str, str]) -> None:
        offset = {"logOffset": self.batches}
        sources = [{"description": f"FileStreamSource[file:{d}]", "endOffset": offset} for d in self.sources]
        body = {"batchId": self.batches, "timestamp": moment(at), "numInputRows": 0, "durationMs": phases}
        self.reports.append(Report({**body, "sources": sources, "eventTime": times}))


class Session:
    """Every step of building something gives itself."""

    def __init__(self) -> None:
        self.views: dict[str, Path] = {}
        self.queries: list[Query] = []
        self.conf = self.readStream = self.writeStream = self

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self

    def parquet(self, directory: str) -> Session:
        self._directory = Path(directory)
        return self

    def createOrReplaceTempView(self, name: str) -> None:
        self.views[name] = self._directory

    def sql(self, text: str) -> Session:
        self._text = text
        return self

    def option(self, name: str, value: str) -> Session:
        if name == "checkpointLocation":
            self._folder = Path(value).parent
        return self

    def start(self) -> Query:
        names = re.findall(r"(?:FROM|JOIN) (\w+)", self._text)
        self.queries.append(Query(tuple(self.views[name] for name in names), self._folder))
        return self.queries[-1]


@dataclass
class World:
    """Two streams: ``a`` has one file of four, ``b`` three."""

    root: Path
    session: Session
    system: SparkSystem

    def deploy(self, *queries: QuerySpec) -> list[Query]:
        queues = []
        for name, share in (("a", 1.0), ("b", 3.0)):
            (self.root / "queues" / name).mkdir(parents=True)
            queues.append(Queue(StreamSpec(name, {}, "k INT, x INT, time TIMESTAMP", share), self.path(name)))
        (self.root / "system").mkdir()
        self.system.deploy(self.root / "system", queues, queries)
        return self.session.queries

    def path(self, stream: str) -> Path:
        return self.root / "queues" / stream

    def release(self, stream: str, *numbers: int) -> None:
        for number in numbers:
            write(self.path(stream) / f"part-{number:06}.parquet", number)


def write(path: Path, number: int) -> None:
    times = [second(number + row / ROWS) for row in range(ROWS)]
    columns = {"k": [0] * ROWS, "x": [1] * ROWS, "time": pa.array(times, pa.timestamp("us", tz="UTC"))}
    hidden = path.parent.parent / path.name
    # Two row groups, as the driver's files have.
    pq.write_table(pa.table(columns), hidden, row_group_size=ROWS // 2)
    hidden.rename(path)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    session = Session()
    monkeypatch.setattr(spark, "build_session", lambda *arguments, **settings: session)
    made = World(tmp_path, session, SparkSystem(tmp_path, 1))
    yield made
    made.system.finish()


@pytest.mark.parametrize(
    ("texts", "taken"),
    [
        # All of a stream with a quarter of the rows, or of the one with the others, is all there is.
        pytest.param([OF_A], 40, id="one stream of two"),
        pytest.param([OF_B], 40, id="the other"),
        pytest.param([OF_A, OF_B, JOIN], 40, id="side by side"),
        pytest.param([JOIN], 40, id="both"),
        pytest.param([SELF_JOIN], 40, id="the same twice"),
    ],
)
def test_rows_that_a_query_does_not_read_it_has_taken_with_the_others(
    world: World, texts: list[str], taken: int
) -> None:
    queries = world.deploy(*(asked(str(number), text) for number, text in enumerate(texts)))
    world.release("a", 0)
    world.release("b", 0, 1, 2)
    for query in queries:
        query.run()
    assert world.system.collect().taken == taken
    world.release("a", 1)
    world.release("b", 3, 4, 5)
    assert world.system.collect().taken == taken
    for query in queries:
        query.run()
    assert world.system.collect().taken == 2 * taken


def test_a_query_ahead_in_its_stream_has_not_taken_rows_that_have_not_come(world: World) -> None:
    (query,) = world.deploy(asked("q", OF_A))
    world.release("a", 0)
    query.run()
    assert world.system.collect().taken == ROWS
    world.release("b", 0, 1, 2)
    assert world.system.collect().taken == 4 * ROWS


def test_what_has_been_taken_neither_goes_back_nor_leaps_when_a_query_comes(world: World) -> None:
    first, *_ = world.deploy(asked("q", OF_A))
    world.release("a", 0)
    world.release("b", 0, 1, 2)
    first.run()
    assert world.system.collect().taken == 40
    # A backlog of 40 rows, of which a part is forgotten, and then a query that begins behind it.
    world.release("a", 1)
    world.release("b", 3, 4, 5)
    world.system.collect()
    (world.path("b") / "part-000000.parquet").unlink()
    world.system.create([asked("late", OF_A)])
    late = world.session.queries[-1]
    assert world.system.collect().taken == 40
    first.run()
    # Of what has come since the new one was asked for, it has taken nothing.
    world.release("a", 2)
    world.release("b", 6, 7, 8)
    first.run()
    assert world.system.collect().taken == 80
    late.run()
    assert world.system.collect().taken == 120
    world.system.delete(["q", "late"])
    assert world.system.collect().taken == 120


def test_a_collect_while_a_query_starts_tells_no_more_than_it_will_have_taken(world: World) -> None:
    first, *_ = world.deploy(asked("q", OF_A))
    told: list[int] = []
    start = world.session.start

    def start_slowly() -> Query:
        world.release("a", 0)
        world.release("b", 0, 1, 2)
        first.run()
        told.append(world.system.collect().taken)
        return start()

    world.session.start = start_slowly  # type: ignore[method-assign]
    world.system.create([asked("late", OF_A)])
    assert told == [0]
    assert world.system.collect().taken == 0


def test_a_query_that_came_later_reads_only_what_comes_later_and_forgets_with_the_driver(world: World) -> None:
    world.deploy(asked("q", OF_A))
    world.release("a", 0)
    world.system.create([asked("late", OF_A)])
    (directory,) = world.session.queries[-1].sources
    world.release("a", 1, 2)
    world.system.collect()
    assert sorted(path.name for path in directory.iterdir()) == ["part-000001.parquet", "part-000002.parquet"]
    (world.path("a") / "part-000001.parquet").unlink()
    world.system.collect()
    assert [path.name for path in directory.iterdir()] == ["part-000002.parquet"]


def test_a_created_query_is_effective_when_its_first_batch_begins(world: World) -> None:
    world.deploy(asked("q", OF_A))
    world.system.create([asked("late", OF_A)])
    late = world.session.queries[-1]
    late.idle()
    assert world.system.collect().effective == ()
    world.release("a", 0)
    late.run(at=1000.0, took=4.0)
    late.run(at=1004.0)
    assert world.system.collect().effective == (("late", 1000.0),)
    assert world.system.collect().effective == ()


def test_a_pull_is_when_the_last_job_began_with_the_rows(world: World) -> None:
    one, other = world.deploy(asked("q0", OF_A), asked("q1", OF_A))
    world.release("a", 0)
    world.release("b", 0, 1, 2)
    one.run(at=1000.0)
    assert world.system.collect().pulls == ()
    other.run(at=1003.0)
    assert world.system.collect().pulls == (Pull(1003.0, 40),)
    assert world.system.collect().pulls == ()
    # One takes in two batches what the other takes in one: it had the rows with its second.
    world.release("a", 1)
    world.release("b", 3, 4, 5)
    other.run(at=1004.0)
    world.release("a", 2)
    world.release("b", 6, 7, 8)
    other.run(at=1005.0)
    one.run(at=1006.0)
    other.run(at=1007.0)
    assert world.system.collect().pulls == (Pull(1006.0, 120),)


def test_a_query_that_has_just_come_pulled_nothing_of_what_came_before(world: World) -> None:
    (first,) = world.deploy(asked("q", OF_A))
    world.release("a", 0)
    world.release("b", 0, 1, 2)
    world.system.create([asked("late", OF_A)])
    first.run(at=1000.0)
    world.session.queries[-1].run(at=1009.0)
    assert world.system.collect().pulls == (Pull(1000.0, 40),)


def test_phases_are_the_sums_so_far_and_those_at_the_end(world: World) -> None:
    one, other = world.deploy(asked("q0", OF_A), asked("q1", OF_B))
    one.run(took=2.0)
    world.system.collect()
    so_far = world.system.phases()
    assert so_far == pytest.approx({"addBatch": 1.8, "triggerExecution": 2.0})
    other.run(took=1.0)
    world.system.collect()
    assert so_far["triggerExecution"] == 2.0
    assert world.system.phases() == pytest.approx({"addBatch": 2.7, "triggerExecution": 3.0})
    assert world.system.finish() == world.system.phases()


def test_answers_are_readable_when_their_batch_ends(world: World) -> None:
    sums, plain = world.deploy(asked("sums", OF_A), asked("plain", "SELECT x FROM a", slide=0))
    world.release("a", 0, 1, 2)
    for query in (sums, plain):
        query.run(at=1000.0, took=0.5, min=0.1, max=2.8)
    sums.run(at=1001.0, took=0.5, watermark=2.8)
    assert world.system.collect().emissions == (
        Emission(1000.5, second(0.1), 1),
        Emission(1000.5, second(2.8), 1),
        Emission(1001.5, second(1), 1),
        Emission(1001.5, second(2), 1),
    )


def job(text: str, *intakes: tuple[float, float], slide: float = 1.0, length: float = 1.0, watched: bool = True) -> Job:
    """A job that has read seconds of event time of each of its sources."""
    spec = QuerySpec("q", text, round(length * SECOND), round(slide * SECOND), watched=watched)
    read = tuple(Intake("s", 0.5, first=second(first), next=second(after)) for first, after in intakes)
    return Job((spec,), text, Path(), intakes=read)


def batch(watermark: float | None, *times: float) -> Batch:
    known = 0 if watermark is None else second(watermark)
    return Batch(0, 0.0, 1.0, (), known, tuple(second(one) for one in times), {})


# Seconds of event time:    0         1         2         3
#                           |---------|---------|---------|
@pytest.mark.parametrize(
    ("made", "watermark", "ends"),
    [
        pytest.param(job(OF_A, (0, 2.5)), None, [], id="no watermark"),
        pytest.param(job(OF_A, (0, 2.5)), 0.9, [], id="within the first window"),
        pytest.param(job(OF_A, (0, 2.5)), 2.1, [1, 2], id="the first windows too"),
        pytest.param(job(OF_A, (1.4, 3.5)), 3.1, [2, 3], id="rows since the middle of a window"),
        pytest.param(job(OF_A, (0, 8.5), length=4.0, slide=2.0), 6.1, [2, 4, 6], id="sliding"),
        pytest.param(job(f"{JOIN} GROUP BY l.k, l.w", (0, 3), (0, 3)), 1.2, [1], id="an aggregated join waits"),
        pytest.param(job(JOIN, (0, 3), (0, 3)), 1.2, [1, 2, 3], id="a join writes what it has read"),
        pytest.param(job(JOIN, (0, 3), (0, 2.9)), 2.8, [1, 2], id="one stream is not so far"),
        pytest.param(job(JOIN, (0, 3)), None, [1, 2, 3], id="whatever passes its conditions"),
        pytest.param(job(JOIN, (0, 3), (1.5, 3)), 2.8, [2, 3], id="one stream begins later"),
        pytest.param(job(OF_A, (0, 2.5), watched=False), 2.1, [], id="nobody watches"),
    ],
)
def test_windows_that_a_batch_answers(made: Job, watermark: float | None, ends: list[int]) -> None:
    assert made.answers(batch(watermark, 0.0, 3.5)) == [second(end) for end in ends]
    assert made.answers(batch(watermark)) == []


def test_windows_are_answered_once() -> None:
    made = job(OF_A, (0, 9))
    found = [made.answers(batch(watermark)) for watermark in (1.5, 1.5, None, 3.0, 3.9)]
    assert found == [[second(1)], [], [], [second(2), second(3)], []]


def test_windows_before_the_later_stream_begins_are_no_answers_of_a_join() -> None:
    made = job(f"{JOIN} GROUP BY l.k, l.w", (0, 3), (1.5, 3))
    assert [made.answers(batch(watermark)) for watermark in (0.9, 2.8)] == [[], [second(2)]]


def test_a_stream_without_rows_answers_no_join() -> None:
    made = job(JOIN, (0, 3))
    made.intakes += (Intake("t", 0.5),)
    assert made.answers(batch(None)) == []
    made.intakes[1].take([Extent(ROWS, second(0), second(2))], 0)
    assert made.answers(batch(None)) == [second(1), second(2)]


def test_rows_without_a_window_are_answered_by_their_batch() -> None:
    made = job("SELECT x FROM a", (0, 2), slide=0.0, length=0.0)
    assert made.answers(batch(None, 0.1, 1.9)) == [second(0.1), second(1.9)]
    # None of a batch's rows passed.
    assert made.answers(batch(1.9)) == []


def ids(reports: Sequence[dict[str, Any]]) -> list[int]:
    return [report["batchId"] for report in reports]


@pytest.mark.parametrize(
    ("batches", "after", "found", "pressed"),
    [
        pytest.param("", -1, [], 0, id="nothing yet"),
        pytest.param("b", -1, [0], 1, id="the first"),
        pytest.param("bbbbb", 4, [], 0, id="nothing new"),
        pytest.param("bbbbb", 3, [4], 1, id="one more"),
        pytest.param("bbbbb", 1, [2, 3, 4], 3, id="several"),
        pytest.param("bbbbbi", 3, [4, 5], 2, id="an idle trigger hides none"),
        pytest.param("bbr", 0, [1, 1], 2, id="nor does one that repeats the last"),
        pytest.param("b" * 30, -1, list(range(10, 30)), 20, id="no more than are kept"),
    ],
)
def test_only_reports_that_are_new_are_pressed(
    tmp_path: Path, batches: str, after: int, found: list[int], pressed: int
) -> None:
    query = Query((), tmp_path)
    for one in batches:
        query.run() if one == "b" else query.idle(back="ir".index(one))
    Report.pressed = 0
    assert ids(unseen(query, after)) == found  # type: ignore[arg-type]
    assert Report.pressed == pressed


def test_reports_that_are_lost_lose_no_rows(world: World) -> None:
    (query,) = world.deploy(asked("q", OF_A))
    for number in range(30):
        world.release("a", number)
        world.release("b", *range(3 * number, 3 * number + 3))
        query.run()
    assert world.system.collect().taken == 30 * 40


def test_a_log_gives_each_file_once(tmp_path: Path) -> None:
    def entry(name: str, *files: tuple[int, str]) -> None:
        lines = [json.dumps({"path": f"file:///queues/a/{file}", "timestamp": 1, "batchId": n}) for n, file in files]
        (tmp_path / name).write_text("\n".join(["v1", *lines]), encoding="utf-8")

    entry("0", (0, "p0"), (0, "p1"))
    entry("1.compact", (0, "p0"), (0, "p1"), (1, "p2"), (1, "p3"))
    entry("2", (2, "p4"))
    assert sorted(read_log(tmp_path, -1, 2)) == ["p0", "p1", "p2", "p3", "p4"]
    assert sorted(read_log(tmp_path, 0, 1)) == ["p2", "p3"]
    assert read_log(tmp_path, 2, 2) == []


def test_a_file_reaches_to_where_the_next_row_is_due(tmp_path: Path) -> None:
    (tmp_path / "queue").mkdir()
    path = tmp_path / "queue" / "part-000003.parquet"
    write(path, 3)
    assert extent_of(path) == Extent(ROWS, second(3), second(4))
