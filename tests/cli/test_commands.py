"""The other commands, exit codes and help."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main
from tests.server.fake import FakeEngine
from typer.testing import Result

from millstream.cli import replay
from millstream.cli.main import app

Millstream = Callable[..., Result]


def commands(command: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The paths of all commands below one."""
    if not hasattr(command, "commands"):
        return [path]
    return [leaf for name, child in command.commands.items() for leaf in commands(child, (*path, name))]


COMMANDS = commands(typer.main.get_command(app))


def test_the_commands_are_these() -> None:
    assert {" ".join(path) for path in COMMANDS} == {
        "backup",
        "demo",
        "restore",
        "start",
        "query create",
        "query list",
        "query show",
        "query explain",
        "query watch",
        "query delete",
        "stream list",
        "stream show",
        "status",
        "replay",
        "check",
        "bench scale",
        "bench joins",
        "bench compare",
        "bench guard",
        "bench list",
        "bench page",
        "bench run",
        "bench suite",
        "version",
    }


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_help_and_json(millstream: Millstream, path: tuple[str, ...]) -> None:
    result = millstream(*path, "-h")
    assert result.exit_code == 0
    assert "--json" in result.stdout


def test_a_replay_tells_which_queries_were_stopped_on_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    queries = {"good": {"windows_fired": 1, "answer_rows": 2}, "bad": {"answer_rows": 0, "stopped": "too many pairs"}}
    replay._show({"queries": queries}, Path("answers"))
    assert "stopped bad: too many pairs" in capsys.readouterr().out


def test_stream_list_and_show(millstream: Millstream, engine: FakeEngine) -> None:
    assert "purchases" in millstream("stream", "list").stdout
    shown = millstream("stream", "show", "purchases").stdout
    assert "decimal(10,2)" in shown
    assert "never: joins wait for it" in shown
    assert json.loads(millstream("stream", "list", "--json").stdout)["streams"][0]["rows"] == 1000
    assert json.loads(millstream("stream", "show", "purchases", "--json").stdout)["late_rows"] == 1
    missing = millstream("stream", "show", "ads")
    assert (missing.exit_code, "UNKNOWN_STREAM" in missing.stderr) == (1, True)


def test_status(millstream: Millstream, engine: FakeEngine) -> None:
    assert "0 running in 1 groups with 4 classes" in millstream("status").stdout
    body = json.loads(millstream("status", "--json").stdout)
    assert body["epoch"] == 11
    assert body["url"].startswith("http://127.0.0.1:")


def test_without_an_engine_the_exit_code_is_3(millstream: Millstream, tmp_path: Path) -> None:
    for arguments in (
        ["status"],
        ["query", "list", "--home", str(tmp_path)],
        ["status", "--url", "http://127.0.0.1:1"],
    ):
        result = millstream(*arguments)
        assert result.exit_code == 3
        assert "NOT_RUNNING" in result.stderr
    assert json.loads(millstream("status", "--json").stderr)["error"]["code"] == "NOT_RUNNING"


def test_wrong_usage_is_2(millstream: Millstream) -> None:
    assert millstream("query", "frobnicate").exit_code == 2
    assert millstream("query", "watch").exit_code == 2


def test_version(millstream: Millstream) -> None:
    assert millstream("version").stdout.startswith("millstream ")
    assert set(json.loads(millstream("version", "--json").stdout)) == {"version"}


def test_a_wrong_spec_is_told_before_spark_starts(millstream: Millstream, tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text("batch_rows: 10\nstreams: {}\nqueries: []\nbatchrows: 3\n")
    result = millstream("replay", str(spec), "--out", str(tmp_path / "out"))
    assert result.exit_code == 1
    assert "BAD_SPEC: batchrows: unknown key 'batchrows'" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_wrong_stream_file_is_told_before_spark_starts(millstream: Millstream, tmp_path: Path) -> None:
    result = millstream("start", str(tmp_path / "nowhere.yaml"))
    assert result.exit_code == 1
    assert "BAD_SPEC: cannot read" in result.stderr


def test_workloads_and_systems_are_listed(millstream: Millstream) -> None:
    shown = millstream("bench", "list")
    assert (shown.exit_code, "astream-static" in shown.stdout, "plain Spark, merged by hand" in shown.stdout) == (
        0,
        True,
        True,
    )
    listed = json.loads(millstream("bench", "list", "--json").stdout)
    assert {"millstream", "spark", "flink"} <= {one["name"] for one in listed["systems"]}
    assert len(listed["workloads"]) > 100


def test_a_run_of_what_does_not_exist_is_refused(millstream: Millstream) -> None:
    refused = millstream("bench", "run", "astream-statik")
    assert (
        refused.exit_code,
        "no workload 'astream-statik'" in refused.output,
        "astream-static" in refused.output,
    ) == (1, True, True)
    refused = millstream("bench", "suite", "--section", "singel")
    assert (refused.exit_code, "no section 'singel'" in refused.output) == (1, True)
