"""Kernels take compiled loops for many rows, and NumPy for few: both have to give the same."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["numpy", "compiled"])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test runs once with no compiled loops, and once with them wherever they can be."""
    monkeypatch.setattr("millstream.kernels.compiled.MANY", 1 if request.param == "compiled" else 1 << 62)
