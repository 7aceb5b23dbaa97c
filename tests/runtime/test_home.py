"""Files of the home are on disk under their names before anybody is told of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millstream.runtime.home import Home


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is synced, in order."""
    paths: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        paths.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return paths


def test_a_file_is_synced_then_its_folder(tmp_path: Path, synced: list[str]) -> None:
    home = Home(str(tmp_path))
    home.create()
    synced.clear()
    path = home.write("answers", "some", "answers", [b"rows"])
    assert synced == [home.path(path), home.path("answers")]
    assert bytes(home.read(path)) == b"rows"


def test_the_name_of_a_new_folder_is_synced_too(tmp_path: Path, synced: list[str]) -> None:
    """Else the folder would be gone after a power loss, with the synced files in it."""
    home = Home(str(tmp_path / "new" / "home"))
    home.create()
    assert {str(tmp_path), str(tmp_path / "new"), home.root} <= set(synced)
    synced.clear()
    path = home.write("buckets/purchases", "1", "bucket", [b"cells"])
    assert synced == [home.path("buckets"), home.path(path), home.path("buckets/purchases")]
    synced.clear()
    home.write("buckets/purchases", "2", "bucket", [b"cells"])
    assert home.path("buckets") not in synced


def test_a_home_that_nobody_comes_back_to_is_not_synced(tmp_path: Path, synced: list[str]) -> None:
    home = Home(str(tmp_path / "home"), durable=False)
    home.create()
    home.write("buckets/purchases", "1", "bucket", [b"cells"])
    assert synced == []
