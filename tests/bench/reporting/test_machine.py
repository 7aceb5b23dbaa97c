"""What a report says of the version that it measured."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

from millstream.bench.machine import describe_machine, source_commit

GIT = shutil.which("git")
pytestmark = pytest.mark.skipif(GIT is None, reason="there is no git")
COMMIT = "-c user.name=n -c user.email=e@example.org -c commit.gpgsign=false commit --quiet --message first"


def git(folder: Path, words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words.split()], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package in a checkout with one commit."""
    folder = tmp_path / "src" / "package"
    (folder / "bench").mkdir(parents=True)
    (folder / "bench" / "machine.py").write_text("")
    git(tmp_path, "init --quiet")
    git(tmp_path, "add .")
    git(tmp_path, COMMIT)
    return folder


def source(package: Path) -> Path:
    return package / "bench" / "machine.py"


@pytest.mark.parametrize(
    ("changed", "mark"), [(None, ""), ("bench/machine.py", "+"), ("bench/new.py", "+"), ("../../notes", "")]
)
def test_the_commit_has_a_plus_where_the_package_differs(package: Path, changed: str | None, mark: str) -> None:
    if changed:
        (package / changed).write_text("changed")
    commit = git(package, "rev-parse --short HEAD")
    assert source_commit(source(package), package) == {"commit": commit + mark}


def test_outside_of_its_checkout_a_package_has_no_commit(package: Path, tmp_path: Path) -> None:
    installed = tmp_path / ".venv" / "package"
    shutil.copytree(package, installed)
    assert source_commit(source(installed), installed) == {}, "the checkout of somebody else"
    shutil.rmtree(tmp_path / ".git")
    assert source_commit(source(package), package) == {}


def test_without_git_there_is_no_commit(package: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert source_commit(source(package), package) == {}


def test_the_versions_of_a_machine_have_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.bench.machine.source_commit", lambda: {"commit": "abc1234+"})
    assert asdict(describe_machine())["versions"]["commit"] == "abc1234+"
