"""Which Java Spark gets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.errors import MillstreamError
from millstream.runtime import java


def runtime(path: Path, version: str | None) -> Path:
    """A directory that looks like a Java runtime."""
    (path / "bin").mkdir(parents=True)
    program = path / "bin" / "java"
    program.write_text('#!/bin/sh\nfor a in "$@"; do echo "[$a]"; done\n')
    program.chmod(0o755)
    if version:
        (path / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return path


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java, and with a place to write launchers."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(java, "_bundled_java", lambda: None)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    return tmp_path


@pytest.mark.parametrize("version", ["17.0.15", "25", None])
def test_a_fit_java_is_left_alone(bare: Path, monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    home = runtime(bare / "jdk", version)
    monkeypatch.setenv("PATH", str(home / "bin"))
    java.ensure_java()
    assert "JAVA_HOME" not in os.environ
    monkeypatch.setenv("JAVA_HOME", str(home))
    java.ensure_java()
    assert os.environ["JAVA_HOME"] == str(home)


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2"])
def test_an_old_java_does_not_count(bare: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(runtime(bare / "jdk", version)))
    with pytest.raises(MillstreamError, match="no Java 17 or later") as refused:
        java.ensure_java()
    assert refused.value.hint is not None
    assert "millstream[java]" in refused.value.hint


def test_the_bundled_java_starts_without_the_argument_it_does_not_know(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = runtime(bare / "with space's", "25") / "bin" / "java"
    monkeypatch.setattr(java, "_bundled_java", lambda: bundled)
    # ``ensure_java`` sets the variable for good; this makes the end of the test take it back.
    monkeypatch.setenv("JAVA_HOME", str(bare / "gone"))
    java.ensure_java()
    launcher = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    assert launcher.is_relative_to(bare / "prefix")
    arguments = ["-cp", "a b", java.DROPPED_ARGUMENT, "--add-opens=x", "Main", ""]
    shown = subprocess.run([launcher, *arguments], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines() == ["[-cp]", "[a b]", "[--add-opens=x]", "[Main]", "[]"]
    before = launcher.stat().st_mtime_ns
    java.ensure_java()
    assert launcher.stat().st_mtime_ns == before


def test_the_launcher_goes_to_the_cache_when_the_packages_are_read_only(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bare / "prefix").write_text("a file, where a directory is needed")
    monkeypatch.setattr(Path, "home", lambda: bare / "user")
    monkeypatch.setattr(java, "_bundled_java", lambda: runtime(bare / "jdk", "25") / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(bare / "gone"))
    java.ensure_java()
    assert os.environ["JAVA_HOME"] == str(bare / "user" / ".cache" / "millstream" / "java")
