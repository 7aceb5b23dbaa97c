"""The archive of Spark's classes: who uses it, and that Java does."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream.runtime.classes import OPTIONS, archive, make_archive, use_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment of its own, in a folder whose name has a space, without an archive."""
    folder = tmp_path / "an environment"
    monkeypatch.setattr(sys, "prefix", str(folder))
    monkeypatch.setenv(OPTIONS, "-Xmx1g")
    return folder


def test_an_archive_that_is_there_is_used_once(environment: Path) -> None:
    use_archive()
    assert os.environ[OPTIONS] == "-Xmx1g"
    assert archive().is_relative_to(environment)
    archive().parent.mkdir(parents=True)
    archive().touch()
    use_archive()
    use_archive()
    assert os.environ[OPTIONS] == f"-Xmx1g '-XX:SharedArchiveFile={archive()}' '-Xlog:cds*=off'"


def test_what_the_user_has_said_stays(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive().parent.mkdir(parents=True)
    archive().touch()
    monkeypatch.setenv(OPTIONS, "-XX:SharedArchiveFile=/other")
    use_archive()
    assert os.environ[OPTIONS] == "-XX:SharedArchiveFile=/other"
    make_archive(environment / "draft")
    made = os.environ[OPTIONS]
    use_archive()
    assert os.environ[OPTIONS] == made
    assert f"'-XX:ArchiveClassesAtExit={environment}/draft'" in made


def test_java_maps_the_archive(spark: SparkSession) -> None:
    if not archive().is_file():
        pytest.skip("this Java has made no archive (make classes)")
    gateway: Any = spark.sparkContext._gateway
    assert str(archive()) in Path(f"/proc/{gateway.proc.pid}/maps").read_text()
