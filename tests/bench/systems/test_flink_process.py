"""The worker as a real process. Under this interpreter, which has no Flink, it speaks as it would with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.postgres import free_port

from millstream.bench.systems.flink_process import HOME, WORKER, Cluster, Worker, interpreter
from millstream.errors import BenchError

PYTHON = Path(sys.executable)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    made = Worker(PYTHON, tmp_path / "log")
    yield made
    made.close()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_environment_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME, str(tmp_path / "away"))
    with pytest.raises(BenchError) as refused:
        interpreter()
    assert refused.value.code == "FLINK_MISSING"
    assert str(tmp_path / "away") in refused.value.message
    assert "make flink" in (refused.value.hint or "")


def test_a_named_environment_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(PYTHON)
    monkeypatch.setenv(HOME, str(tmp_path))
    assert interpreter() == tmp_path / "bin" / "python"


def test_a_failure_is_told_and_the_worker_goes_on(worker: Worker) -> None:
    for _ in range(2):
        with pytest.raises(BenchError, match=r"cannot start.*No module named 'pyflink'") as refused:
            worker.ask("start", settings={}, slots=1)
        assert refused.value.code == "FLINK_FAILED"
    with pytest.raises(BenchError, match=r"cannot dance.*KeyError"):
        worker.ask("dance")


def test_a_worker_that_dies_is_told_with_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "log"
    worker = Worker(PYTHON, log)
    log.write_text("out of memory\n", encoding="utf-8")
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(BenchError, match="ended with code -9") as refused:
        worker.ask("start", settings={}, slots=1)
    assert refused.value.detail == "out of memory"
    worker.close()


def test_a_worker_that_is_stopped_is_not_waited_for_without_end(tmp_path: Path) -> None:
    worker = Worker(PYTHON, tmp_path / "log")
    os.kill(worker.pid, signal.SIGSTOP)
    with pytest.raises(BenchError, match="does not answer"):
        worker.ask("start", limit=0.2, settings={}, slots=1)
    os.kill(worker.pid, signal.SIGKILL)
    worker.close()
    assert not alive(worker.pid)


def test_closing_ends_the_process(worker: Worker) -> None:
    worker.close()
    assert not alive(worker.pid)


def test_requests_and_replies_are_lines_of_json_and_nothing_else() -> None:
    requests = [b'{"do": "start", "settings": {}, "slots": 1}', b"no json", b'["no", "object"]', b'{"do": "close"}']
    done = subprocess.run(
        [sys.executable, str(WORKER)], input=b"\n".join(requests) + b"\n", capture_output=True, check=True
    )
    replies = [json.loads(line) for line in done.stdout.splitlines()]
    assert [list(reply) for reply in replies] == [["error"], ["error"], ["error"], ["reply"]]
    assert "JSONDecodeError" in replies[1]["error"]


def test_a_cluster_that_is_gone_is_told() -> None:
    with pytest.raises(BenchError, match="does not answer GET /jobs/overview") as refused:
        Cluster(free_port()).jobs()
    assert refused.value.code == "FLINK_FAILED"
