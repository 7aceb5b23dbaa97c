"""Runs of the driver on real systems in their own processes: small, with answers, requests and failures."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from millstream.bench.driving.feeding import Store
from millstream.bench.driving.model import QuerySpec, Request, RunResult, RunSpec, StreamSpec
from millstream.bench.driving.run import run
from millstream.bench.systems.kinds import (
    KINDS,
    MILLSTREAM,
    MILLSTREAM_ROWS,
    SPARK,
    SPARK_MEMORY,
    SPARK_MERGED,
    system_kind,
)
from millstream.bench.systems.remote import RemoteSystem, SystemFailed
from millstream.bench.systems.spark import merge
from millstream.bench.systems.system import Seen
from millstream.bench.workload import SCHEMA
from millstream.errors import MillstreamError

TUPLES = StreamSpec("tuples", {"source": "astream", "keys": "10", "fields_max": "500"}, SCHEMA)
SECONDS = 12.0
RATE = 20_000.0


def query(number: int) -> QuerySpec:
    window = "GROUP BY key, window(time, '1 second')"
    text = f"SELECT key, SUM(field1) AS total FROM tuples WHERE field2 < {100 + number} {window}"
    return QuerySpec(f"q{number}", text, 1_000_000, 1_000_000)


def spec(system: str, *requests: Request, seconds: float = SECONDS) -> RunSpec:
    """Event time runs at the pace of the clock: a window closes each second."""
    initial = (query(0), query(1))
    return RunSpec("small", system, (TUPLES,), initial, requests, RATE, seconds, density=int(RATE))


@pytest.fixture
def system(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RemoteSystem]:
    made = RemoteSystem(KINDS[request.param], tmp_path, 2)
    yield made
    made.close()


def run_small(
    system: RemoteSystem, tmp_path: Path, *requests: Request, folder: str = "run", seconds: float = SECONDS
) -> RunResult:
    (tmp_path / folder).mkdir()
    asked = spec(system.name, *requests, seconds=seconds)
    return run(asked, system, Store(tmp_path / "rows"), tmp_path / folder, lambda a, b: None)


def run_until_answers(system: RemoteSystem, tmp_path: Path, *requests: Request) -> RunResult:
    """Longer and longer: on a busy machine the first answers may come later than the first run ends."""
    for seconds in (SECONDS, 2 * SECONDS, 12 * SECONDS):
        result = run_small(system, tmp_path, *requests, folder=f"run-{seconds:g}", seconds=seconds)
        if len(result.latencies) > 1 and all(one.effective for one in result.deployments if one.kind == "create"):
            break
    return result


@pytest.mark.slow
@pytest.mark.parametrize("system", [MILLSTREAM, SPARK_MEMORY], indirect=True)
def test_a_run_sees_rows_answers_and_requests(system: RemoteSystem, tmp_path: Path) -> None:
    changes = Request(4.0, create=(query(2),)), Request(8.0, delete=("q1",))
    result = run_until_answers(system, tmp_path, *changes)
    assert result.errors == ()
    assert result.queue[-1].taken > 0
    assert [sample.taken for sample in result.queue] == sorted(sample.taken for sample in result.queue)
    assert all(sample.taken <= sample.written for sample in result.queue)
    # Windows end at whole seconds, and no answer comes before its window is due to end.
    assert len({one.event for one in result.latencies}) > 1
    assert min(one.event for one in result.latencies) > 0
    assert all(0 <= one.processing <= one.event for one in result.latencies)
    found = {(one.kind, one.query): one for one in result.deployments}
    assert set(found) == {("create", "q2"), ("delete", "q1")}
    assert all(one.due < one.acknowledged for one in found.values())
    assert found["create", "q2"].effective is not None
    assert result.generator.capacity > RATE
    assert result.phases
    assert result.system["version"]
    # The process stays for the next run, which begins afresh.
    again = run_small(system, tmp_path, folder="again", seconds=4.0)
    assert (again.errors, again.deployments) == ((), ())
    assert again.queue[0].taken <= again.queue[0].written


@pytest.mark.slow
@pytest.mark.parametrize("system", [SPARK], indirect=True)
def test_queries_are_behind_neither_in_streams_they_do_not_read_nor_by_what_was_there_before_them(
    system: RemoteSystem, tmp_path: Path
) -> None:
    """Of two streams a query reads one; another comes when two thirds of the run are over. Counted as a part of all
    rows, or from its beginning, neither could have taken as much as half of them."""
    streams = TUPLES, replace(TUPLES, name="others")
    for seconds in (SECONDS, 2 * SECONDS, 12 * SECONDS):
        (tmp_path / f"run-{seconds:g}").mkdir()
        asked = replace(spec(SPARK, Request(2 * seconds / 3, create=(query(2),)), seconds=seconds), streams=streams)
        result = run(asked, system, Store(tmp_path / "rows"), tmp_path / f"run-{seconds:g}", lambda a, b: None)
        last = result.queue[-1]
        # On a busy machine the later query may have begun too late.
        if result.deployments and result.deployments[0].effective and last.taken > last.written / 2:
            break
    assert result.errors == ()
    assert (last.queries, last.readers) == (3, pytest.approx(1.5)), "each reads half of the rows"
    assert last.written / 2 < last.taken <= last.written
    assert [sample.taken for sample in result.queue] == sorted(sample.taken for sample in result.queue)


@pytest.mark.slow
@pytest.mark.parametrize("system", [SPARK_MERGED], indirect=True)
def test_merged_by_hand_nothing_can_be_created(system: RemoteSystem, tmp_path: Path) -> None:
    result = run_small(system, tmp_path, Request(2.0, create=(query(2),)), seconds=4.0)
    assert "merged by hand cannot be created at run time" in result.errors[0]
    assert not result.verdict.sustained
    assert "cannot be created" in result.verdict.reason


@pytest.mark.slow
@pytest.mark.parametrize("system", [MILLSTREAM_ROWS], indirect=True)
def test_a_process_that_is_killed_is_evidence(system: RemoteSystem, tmp_path: Path) -> None:
    real = system.collect

    def killed() -> Seen:
        seen = real()
        if seen.taken and system.pid is not None:
            os.kill(system.pid, signal.SIGKILL)
        return seen

    system.collect = killed  # type: ignore[method-assign]
    # It ends with the process; on a busy machine the first rows may be taken late.
    result = run_small(system, tmp_path, seconds=12 * SECONDS)
    assert result.queue[-1].taken > 0
    assert result.errors[0].startswith("the process of millstream-rows is gone")
    assert not result.verdict.sustained


def test_a_system_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    broken = RemoteSystem(replace(KINDS[MILLSTREAM], make=_broken), tmp_path, 1)
    with pytest.raises(SystemFailed, match="ValueError: no such luck"):
        broken.deploy(tmp_path, [], [])
    broken.close()


def _broken(workspace: Path, cores: int) -> object:
    raise ValueError("no such luck")


def test_unknown_systems_and_queries_that_cannot_be_merged_are_refused() -> None:
    with pytest.raises(MillstreamError, match="no system 'sparc'") as refused:
        system_kind("sparc")
    assert "spark" in (refused.value.hint or "")
    with pytest.raises(MillstreamError, match="cannot be merged"):
        merge([replace(query(0), sql="SELECT * FROM tuples")])


def test_questions_with_the_same_window_become_one() -> None:
    other = replace(query(3), sql=query(3).sql.replace("1 second", "2 seconds"))
    merged = merge([query(0), other, query(1)])
    assert [[one.id for one in specs] for specs, _ in merged] == [["q0", "q1"], ["q3"]]
    assert (
        "SUM(field1) FILTER (WHERE field2 < 100) AS q0, SUM(field1) FILTER (WHERE field2 < 101) AS q1" in merged[0][1]
    )
