"""``millstream bench compare`` and ``page`` on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.bench.reporting.suites import MACHINE, result
from typer.testing import Result

from millstream.bench.driving.model import Search, Suite, Verdict
from millstream.bench.reporting.storing import save

Millstream = Callable[..., Result]


@pytest.fixture
def directories(tmp_path: Path) -> tuple[str, str]:
    failed = Verdict(False, "not sustained", 0.0, None)
    for name, rate in (("a", 1000.0), ("b", 500.0)):
        runs = result(rate=rate), replace(result(rate=1.1 * rate), verdict=failed)
        save(Suite(name, MACHINE, {}, (Search("t", runs),)), tmp_path / name)
    return str(tmp_path / "a"), str(tmp_path / "b")


def test_a_difference_is_shown_and_no_error(millstream: Millstream, directories: tuple[str, str]) -> None:
    shown = millstream("bench", "compare", *directories)
    assert shown.exit_code == 0
    assert "worse" in shown.stdout
    assert "0.50" in shown.stdout


def test_json_and_plot(millstream: Millstream, directories: tuple[str, str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    body = json.loads(millstream("bench", "compare", *directories, "--json", "--out", str(out)).stdout)
    first = body["differences"][0]
    assert (first["cell"]["workload"], first["metric"]) == ("astream-sc1", "sustainable input")
    assert (first["ratio"], first["verdict"], body["same_machine"]) == (0.5, "worse", True)
    assert body["plot"] == str(out / "ratios.svg")
    assert (out / "ratios.svg").stat().st_size > 0


def test_nothing_in_common_has_no_plot(millstream: Millstream, directories: tuple[str, str], tmp_path: Path) -> None:
    save(Suite("empty", MACHINE, {}), tmp_path / "empty")
    shown = millstream("bench", "compare", directories[0], str(tmp_path / "empty"), "--out", str(tmp_path / "out"))
    assert shown.exit_code == 0
    assert "only in A" in shown.stdout
    assert "no plot: nothing is in both" in shown.stdout


def test_what_cannot_be_read_is_an_error(millstream: Millstream, directories: tuple[str, str], tmp_path: Path) -> None:
    missing = millstream("bench", "compare", directories[0], str(tmp_path / "nowhere"))
    assert (missing.exit_code, "BAD_FILE" in missing.stderr) == (1, True)
    as_json = millstream("bench", "compare", directories[0], str(tmp_path / "nowhere"), "--json")
    assert json.loads(as_json.stderr)["error"]["code"] == "BAD_FILE"


def test_a_page_is_drawn_again(millstream: Millstream, directories: tuple[str, str], tmp_path: Path) -> None:
    page = tmp_path / "a" / "index.html"
    shown = millstream("bench", "page", directories[0])
    assert shown.stdout == f"{page}\n"
    assert "astream-sc1" in page.read_text(encoding="utf-8")
    assert list((tmp_path / "a" / "plots").glob("*.svg"))
    page.unlink()
    assert json.loads(millstream("bench", "page", directories[0], "--json").stdout) == {"page": str(page)}
    assert page.exists()


def test_a_page_of_nothing_is_an_error(millstream: Millstream, tmp_path: Path) -> None:
    missing = millstream("bench", "page", str(tmp_path / "nowhere"))
    assert (missing.exit_code, "BAD_FILE" in missing.stderr) == (1, True)
