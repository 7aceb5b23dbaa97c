"""A served engine in memory, and the command line called on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.server.fake import FakeEngine
from typer.testing import CliRunner, Result

from millstream.cli.main import app
from millstream.server.serve import Server


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without engines or settings, on a terminal of fixed width."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("COLUMNS", "160")
    for name in ("MILLSTREAM_HOME", "MILLSTREAM_URL", "MILLSTREAM_OWNER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def engine(home: Path) -> Iterator[FakeEngine]:
    engine = FakeEngine(home)
    with Server(engine):
        yield engine


@pytest.fixture
def millstream() -> Callable[..., Result]:
    """Call the command line; the engine is found as the one started last."""

    def call(*arguments: str, input: str | None = None) -> Result:
        return CliRunner().invoke(app, list(arguments), input=input)

    return call
