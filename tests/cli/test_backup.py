"""The commands for backups, without an engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.catalog.builders import create, stream
from typer.testing import Result

from millstream.catalog.metastore import Metastore


def metastore(home: Path) -> Metastore:
    return Metastore.open(f"sqlite:///{home / 'metastore.db'}", holder="test")


def test_a_backup_comes_back(home: Path, tmp_path: Path, millstream: Callable[..., Result]) -> None:
    store = metastore(home)
    store.add_stream(stream())
    store.seal(create("q"))
    made = millstream("backup", str(home), str(tmp_path / "copy"), "--json")
    assert (made.exit_code, json.loads(made.stdout)) == (0, {"files": 0, "bytes": 0, "streams": 1})
    assert store.current_epoch() == 1, "the engine is not fenced off"
    store.close()
    back = millstream("restore", str(tmp_path / "copy"), str(tmp_path / "again"))
    assert (back.exit_code, "1 streams, 0 files" in back.stdout) == (0, True)
    again = metastore(tmp_path / "again")
    assert [query.id for query in again.queries()] == ["q"]
    again.close()


def test_refusals_end_with_code_1(home: Path, tmp_path: Path, millstream: Callable[..., Result]) -> None:
    missing = millstream("backup", str(tmp_path / "nowhere"), str(tmp_path / "copy"))
    assert (missing.exit_code, "BAD_FILE: there is no metastore" in missing.stderr) == (1, True)
    metastore(home).close()
    full = millstream("backup", str(home), str(home))
    assert (full.exit_code, "is not empty" in full.stderr) == (1, True)
