"""The plot of the join benchmark: input rows a second against the number of queries, a picture for each workload."""

from __future__ import annotations

from pathlib import Path

from millstream.bench.join_report import JoinMeasurements


def draw_joins(found: JoinMeasurements, path: Path) -> bool:
    """Write the plot; False when matplotlib is not there."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys([*found.ours, *found.plain])) or ["joins"]
    figure, every = pyplot.subplots(1, len(names), figsize=(5.5 * len(names), 4.5), squeeze=False)
    for axes, name in zip(every[0], names, strict=True):
        ours, plain = found.ours.get(name, {}), found.plain.get(name, {})
        series: list[tuple[str, dict[int, float | None], str, str]] = [
            ("Millstream, answered", {n: r.answered_rate for n, r in ours.items()}, "o-", "tab:blue"),
            ("Millstream, drained", {n: r.drained_rate for n, r in ours.items()}, "o:", "tab:cyan"),
            ("plain Spark", {n: r.answered_rate or None for n, r in plain.items()}, "s--", "tab:orange"),
        ]
        for label, rates, style, colour in series:
            points = sorted((n, rate) for n, rate in rates.items() if rate)
            if points:
                axes.plot(*zip(*points, strict=True), style, color=colour, label=label)
        axes.set(title=f"{name}: input rows/s", xlabel="concurrent joins", xscale="log", yscale="log")
        axes.grid(True, which="both", alpha=0.25)
        if axes.lines:
            axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return True
