"""How clients find the running engine."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.server.fake import FakeEngine

from millstream.errors import MillstreamError
from millstream.server.client import Client
from millstream.server.discovery import Endpoint, alive, announce, find, withdraw
from millstream.server.serve import Server

# Process ids are at most 2^22 on Linux: no process has this one.
NO_PROCESS = 2**22 + 1


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without engines."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.delenv("MILLSTREAM_HOME", raising=False)
    return tmp_path / "user"


def endpoint(home: Path, pid: int | None = None) -> Endpoint:
    return Endpoint("http://127.0.0.1:1", str(home), pid or os.getpid(), "2026-01-01T00:00:00Z", "0.1.0")


def test_an_engine_is_found_in_its_home_and_as_the_last_one_started(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce(endpoint(home))
    assert find(home) == find() == endpoint(home)
    monkeypatch.setenv("MILLSTREAM_HOME", str(home))
    assert find() == endpoint(home)


def test_a_named_home_is_not_replaced_by_the_last_engine(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce(endpoint(home))
    with pytest.raises(MillstreamError, match="no engine runs on"):
        find(tmp_path / "other")
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path / "other"))
    with pytest.raises(MillstreamError):
        find()


def test_the_file_of_a_dead_process_counts_for_nothing(home: Path) -> None:
    announce(endpoint(home, NO_PROCESS))
    assert not alive(NO_PROCESS)
    with pytest.raises(MillstreamError) as refused:
        find(home)
    assert refused.value.code == "NOT_RUNNING"


def test_a_damaged_file_counts_for_nothing(home: Path) -> None:
    (home / "engine.json").write_text('{"url": ')
    with pytest.raises(MillstreamError):
        find(home)


def test_withdrawing_leaves_the_file_of_a_later_engine(home: Path) -> None:
    announce(endpoint(home))
    later = replace(endpoint(home), url="http://127.0.0.1:2")
    announce(later)
    withdraw(endpoint(home))
    assert find(home) == later


def test_a_server_announces_itself_while_it_runs(home: Path, user: Path) -> None:
    with Server(FakeEngine(home)) as server:
        written = json.loads((home / "engine.json").read_text())
        assert written["url"] == server.url
        assert written["pid"] == os.getpid()
        assert (user / ".millstream" / "last.json").exists()
    assert not (home / "engine.json").exists()
    assert not (user / ".millstream" / "last.json").exists()
    with Client(server.url) as client, pytest.raises(MillstreamError) as refused:
        client.health()
    assert refused.value.code == "NOT_RUNNING"


def test_a_taken_port_is_named(home: Path) -> None:
    with Server(FakeEngine(home)) as server, pytest.raises(MillstreamError, match="cannot listen on"):
        Server(FakeEngine(home), port=int(server.url.rpartition(":")[2]))


def test_a_server_that_is_no_engine_is_told_apart(home: Path) -> None:
    with Client("http://127.0.0.1:1") as client, pytest.raises(MillstreamError) as refused:
        client.status()
    assert refused.value.code == "NOT_RUNNING"
