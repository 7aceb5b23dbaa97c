"""Kernels take compiled loops for many rows, and NumPy for few: both have to give the same."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["numpy", "compiled", "compiled, in blocks"])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test runs with no compiled loops, with them wherever they can be, and with few keys and windows at a time."""
    monkeypatch.setattr("millstream.kernels.compiled.MANY", 1 << 62 if request.param == "numpy" else 1)
    if request.param == "compiled, in blocks":
        monkeypatch.setattr("millstream.kernels.fire.BLOCK_BYTES", 20_000)
        monkeypatch.setattr("millstream.kernels.fire.COMPILED_NUMBERS", 20)
