"""The plot: rows a second against the number of queries, both systems, both axes logarithmic."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from millstream.bench.jobs import CellResult
from millstream.bench.report import Measurements

MISSING = "no plot: matplotlib is not installed (pip install 'millstream[bench]')"


def draw(found: Measurements, path: Path) -> bool:
    """Write the plot; False when matplotlib is not there."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.5))
    series = [
        ("Millstream", found.dense, "o-", "tab:blue"),
        ("Millstream, 0.1 × density", found.sparse, "o:", "tab:cyan"),
        ("plain Spark", found.plain, "s--", "tab:orange"),
    ]
    for name, cells, style, colour in series:
        if cells:
            queries, inputs, overall = _points(cells)
            left.plot(queries, inputs, style, color=colour, label=name)
            right.plot(queries, overall, style, color=colour, label=name)
    for axes, title in ((left, "input rows/s"), (right, "overall rows/s (input × queries)")):
        axes.set(title=title, xlabel="concurrent queries", xscale="log", yscale="log")
        axes.grid(True, which="both", alpha=0.25)
        if axes.lines:
            axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return True


def _points(cells: Mapping[int, CellResult]) -> tuple[list[int], list[float], list[float]]:
    queries = sorted(cells)
    measured = [cells[number].best.throughput for number in queries]
    return queries, [m.input_rate for m in measured], [m.overall_rate for m in measured]
