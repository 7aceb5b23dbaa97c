"""The regression guard: the ratios of a real run, and what it says when one is too small."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from millstream.bench.guard import Options, main, targets
from millstream.runtime.classes import OPTIONS

GOOD = {"millstream 1": 4e6, "millstream 10": 3e6, "plain 1": 3e6, "plain 10": 4e5}


@pytest.mark.parametrize(
    ("changed", "missed"),
    [
        ({}, []),
        ({"millstream 1": 1.4e6}, ["1 query: rows/s against plain Spark"]),
        ({"millstream 10": 5e5}, ["10 queries: rows/s against plain Spark"]),
    ],
)
def test_a_ratio_that_is_too_small_is_named(changed: dict[str, float], missed: list[str]) -> None:
    assert [target.name for target in targets(GOOD | changed) if not target.met] == missed


@pytest.mark.slow
@pytest.mark.alone
def test_the_engine_keeps_its_ratios_against_plain_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ratios within one run, with generous bounds: a time would say more about the machine than about us."""
    # Both with a Java that compiles as it does for users.
    monkeypatch.setenv(OPTIONS, "")
    result = main(Options(out=tmp_path), Console(quiet=True))
    assert result["failures"] == [], result["rates"]
    assert not list(tmp_path.iterdir()), "nothing is left behind"
