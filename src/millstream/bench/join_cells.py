"""What both systems do with a cell: a folder of its own, and a digest of what the first query answered."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.dataset as ds

from millstream.bench.jobs import Digest, Tell
from millstream.bench.join_jobs import CellFailed, JoinCell, JoinResult


def each_cell(
    cells: Sequence[JoinCell],
    prefix: str,
    workspace: str,
    tell: Tell,
    run: Callable[[JoinCell, Path, Tell], JoinResult],
) -> tuple[JoinResult | CellFailed, ...]:
    """Measure cells one after the other, each in a folder that is gone afterwards."""
    found: list[JoinResult | CellFailed] = []
    for number, cell in enumerate(cells):

        def told(share: float, words: str, number: int = number, cell: JoinCell = cell) -> None:
            tell((number + share) / len(cells), f"{cell.workload}, {cell.queries}: {words}")

        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=workspace))
        try:
            found.append(run(cell, folder, told))
        except Exception as error:
            found.append(CellFailed(cell, f"{type(error).__name__}: {error}"))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return tuple(found)


def digest(files: Sequence[Path]) -> Digest:
    """Rows and sums of the files of one query, whatever the order of the rows."""
    if not files:
        return Digest(0, 0)
    rows = total = 0
    for batch in ds.dataset([str(path) for path in files], format="parquet").to_batches(columns=["k", "x", "y"]):
        rows += batch.num_rows
        # The product ties the sides of a pair together: equal sums of the sides alone could hide wrong pairs.
        k, x, y = (column.cast("int64") for column in batch.columns)
        total += pc.sum(pc.add(k, pc.multiply(pc.add(x, 1), pc.add(y, 1)))).as_py() or 0
    return Digest(rows, total)
