"""A small disk of its own for a test: a file system in memory that can be filled to the last byte."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PAGE = 4096


@contextmanager
def small_disk(place: Path, megabytes: int) -> Iterator[Path]:
    """Mounted at ``place``; needs root, as containers of CI have."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can mount a small file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def free_bytes(place: Path) -> int:
    state = os.statvfs(place)
    return state.f_bavail * state.f_frsize


@contextmanager
def filled(place: Path, left: int = 0) -> Iterator[None]:
    """No more than ``left`` bytes are free, as far as whole pages allow."""
    ballast = place / "ballast"
    with open(ballast, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(free_bytes(place) - left, 1))
    try:
        yield
    finally:
        ballast.unlink()


@contextmanager
def read_only(place: Path) -> Iterator[None]:
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(place)], check=True)
