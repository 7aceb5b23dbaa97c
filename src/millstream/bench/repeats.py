"""Measuring a cell several times, each time in a folder of its own that is gone afterwards."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from millstream.bench.jobs import Cell, CellResult, Run, Tell


def repeated(cell: Cell, prefix: str, workspace: str, tell: Tell, run: Callable[[Cell, Path, Tell], Run]) -> CellResult:
    runs = []
    for number in range(cell.repeats):
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=workspace))

        def told(share: float, words: str, number: int = number) -> None:
            tell((number + share) / cell.repeats, words)

        try:
            runs.append(run(cell, folder, told))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return CellResult(cell, tuple(runs))
