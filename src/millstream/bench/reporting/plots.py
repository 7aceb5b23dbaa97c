"""The plots of a suite. Each function writes one file, SVG or PNG by its name; False where there was nothing to draw,
or matplotlib is not there to draw it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from millstream.bench.driving.model import RunResult
from millstream.bench.reporting import figures
from millstream.bench.reporting.figures import components, most_queries, warm_up_end
from millstream.bench.reporting.outcomes import PARTS, Cell, distinct_names
from millstream.bench.reporting.sharing import named
from millstream.cli.output import count

if TYPE_CHECKING:
    from millstream.bench.reporting.comparing import Difference

# Text, axes and grids; the page puts its own colour of text in its place, light or dark.
INK = "#24292f"
# Colours that the colour-blind can tell apart and that show on white and on black; a system has its own everywhere.
COLOURS = {
    "millstream": "#0072b2",
    "millstream-frame": "#009e73",
    "millstream-rows": "#56b4e9",
    "millstream-drained": "#7a8b00",
    "spark": "#d55e00",
    "spark-merged": "#e69f00",
    "flink": "#cc79a7",
}
OTHER_COLOURS = ("#8c6bb1", "#b15928", "#5f6b73")
PHASE_COLOURS = (
    *("#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#cc79a7", "#8c6bb1", "#7a8b00", "#5f6b73"),
    *("#3b528b", "#8dd3c7", "#b15928", "#f0b6d5", "#c4a000", "#fb8072", "#1b7837", "#a6a6a6", "#b2df8a", "#6a3d9a"),
)
# A bar that is so many times as long as the shortest is cut off, with its number at the end.
LONGEST_BAR = 25
# An end of a range that is not known, or not above zero, is drawn so many times away.
OPEN_END = 4
MARKERS = "osD^vPX"
FEW_POINTS = 3
DASHES: tuple[Any, ...] = ("-", "--", "-.", (0, (1, 1)))
VERDICT_COLOURS = {"better": "#009e73", "worse": "#d55e00"}

# Inches; a panel stays readable at half the width of a page.
PANEL_WIDTH, PANEL_HEIGHT = 5.2, 3.4
# A panel of bars: so much for each, and at least; and for each entry of the legend beside it.
LINE_HEIGHT, SHORT_HEIGHT, ENTRY_HEIGHT = 0.34, 2.2, 0.24
PNG_DPI = 160
# A logarithmic axis that spans less is almost linear, and has even ticks.
EVEN_TICKS_BELOW = 8
# One that spans more has ticks at the decades only.
DECADES_ABOVE = 1000
# Latencies that lie further apart than this are on a logarithmic axis.
LOG_SECONDS_ABOVE = 30
# So that the highest line is not the edge.
ROOM_ABOVE = 1.08
# Rows: an axis of a shorter queue would have no whole numbers on it.
LEAST_QUEUE = 10
# A legend that covers no line.
BESIDE = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}

# Of any type: matplotlib names each of its settings in its types, where it is installed.
STYLE: dict[Any, Any] = {
    # Text stays text: small files that can be searched.
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.18,
    "grid.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
}


def throughput(runs: Sequence[RunResult], path: Path) -> bool:
    """Slowest and overall data throughput against the number of queries, a line for each system."""
    kept = [run for run in runs if run.taken_rate > 0 and most_queries(run.spec) > 0]

    def paint(left: Any, right: Any) -> None:
        for some, name, look in _series(kept, "queries"):
            queries = [most_queries(run.spec) for run in some]
            left.plot(queries, [run.taken_rate for run in some], **look, label=name)
            right.plot(queries, [run.overall_rate for run in some], **look, label=name)
        for axes, title in ((left, "Slowest data throughput, rows/s"), (right, "Overall data throughput, rows/s")):
            axes.set(title=title, xlabel="concurrent queries", xscale="log", yscale="log")
            _ticks_at(axes.xaxis, sorted({most_queries(run.spec) for run in kept}))
            _log_ticks(axes.yaxis)
            axes.legend()

    return bool(kept) and _drawn(path, paint, columns=2)


def latency(runs: Sequence[RunResult], path: Path) -> bool:
    """Event-time latency over time, median and p99, and its distribution from p40 to p99."""
    kept = [run for run in runs if figures.cdf(run)]

    def paint(left: Any, right: Any) -> None:
        for run, name, look in _looks(kept):
            steps = figures.latency_over_time(run)
            times = [at for at, _ in steps]
            left.plot(times, [one.p50 for _, one in steps], **look, **_dots(times), label=name)
            dotted = {"color": look["color"], "linestyle": ":", "linewidth": 1.2}
            left.plot(times, [one.p99 for _, one in steps], **dotted, **_dots(times))
            points = figures.cdf(run)
            right.plot([value for value, _ in points], [percent for _, percent in points], **look, label=name)
        left.set(title="Event-time latency: p50, p99 dotted", ylabel="seconds")
        right.set(title="Distribution after the warm-up", xlabel="event-time latency, seconds", ylabel="% of answers")
        _over_time(left, kept)
        _seconds_scale(left, "y")
        _seconds_scale(right, "x", zero=False)
        right.legend(**BESIDE)

    return bool(kept) and _drawn(path, paint, columns=2)


def rates(runs: Sequence[RunResult], path: Path) -> bool:
    """Rows a second over time, input and overall."""
    kept = [run for run in runs if any(rate.input > 0 for rate in figures.rates(run))]

    def paint(left: Any, right: Any) -> None:
        for run, name, look in _looks(kept):
            steps = figures.rates(run)
            left.plot([one.at for one in steps], [one.input for one in steps], **look, label=name)
            right.plot([one.at for one in steps], [one.overall for one in steps], **look, label=name)
        for axes, title in ((left, "Input rows/s"), (right, "Overall rows/s")):
            axes.set(title=title, yscale="log")
            _over_time(axes, kept)
            _log_ticks(axes.yaxis)
        right.legend(**BESIDE)

    return bool(kept) and _drawn(path, paint, columns=2)


def deployment(runs: Sequence[RunResult], path: Path) -> bool:
    """Latency of creates and deletes over time: until acknowledged, and until in effect; the longest of each step."""
    kept = [run for run in runs if run.deployments]

    def paint(left: Any, right: Any) -> None:
        panels: tuple[tuple[Any, figures.DeploymentKind, str], ...] = (
            (left, "acknowledged", "Until acknowledged"),
            (right, "effective", "Until in effect"),
        )
        for axes, until, title in panels:
            for run, name, look in _looks(kept):
                steps = figures.deployment_over_time(run, until)
                times = [at for at, _ in steps]
                axes.plot(times, [one.p50 for _, one in steps], **look, **_dots(times), label=name)
                dotted = {"color": look["color"], "linestyle": ":", "linewidth": 1.2}
                axes.plot(times, [one.most for _, one in steps], **dotted, **_dots(times))
            axes.set(title=f"{title}: p50, max dotted", ylabel="seconds")
            _over_time(axes, kept)
            _seconds_scale(axes, "y")
        right.legend(**BESIDE)

    return bool(kept) and _drawn(path, paint, columns=2)


def fluctuation(run: RunResult, path: Path) -> bool:
    """The number of queries over time, and beneath it latency and throughput (AStream's figure 16)."""
    speeds, steps = figures.rates(run), figures.latency_over_time(run)

    def paint(top: Any, middle: Any, bottom: Any) -> None:
        colour = colour_of(run.spec.system)
        times = [sample.at for sample in run.queue]
        top.step(times, [sample.queries for sample in run.queue], where="post", color=INK)
        top.set(title=f"{run.spec.workload}, {run.spec.system}", ylabel="queries")
        middle.plot([at for at, _ in steps], [one.p50 for _, one in steps], color=colour, label="p50")
        middle.plot([at for at, _ in steps], [one.p99 for _, one in steps], color=colour, linestyle=":", label="p99")
        middle.set(ylabel="latency, s")
        bottom.plot([one.at for one in speeds], [one.input for one in speeds], color=colour, label="input")
        bottom.plot([s.at for s in speeds], [s.overall for s in speeds], color=colour, linestyle="--", label="overall")
        bottom.set(ylabel="rows/s", yscale="log")
        for axes in (top, middle, bottom):
            _over_time(axes, [run], last=axes is bottom)
        top.set_ylim(bottom=0)
        top.yaxis.get_major_locator().set_params(integer=True)
        _seconds_scale(middle, "y")
        _log_ticks(bottom.yaxis)
        for axes in (middle, bottom):
            axes.legend(**BESIDE)

    moved = any(one.input > 0 for one in speeds)
    return moved and _drawn(path, paint, rows=3, width=1.6 * PANEL_WIDTH, height=0.55 * PANEL_HEIGHT)


def sharing(runs: Sequence[RunResult], path: Path) -> bool:
    """Shares of the sum of phases against the number of queries, stacked (AStream's figure 18)."""
    kept = sorted((run for run in runs if any(components(run).values())), key=lambda run: most_queries(run.spec))

    def paint(axes: Any) -> None:
        parts_of = [components(run) for run in kept]
        bars = [{name: 100 * spent / sum(one.values()) for name, spent in one.items()} for one in parts_of]
        below = [0.0] * len(kept)
        for name, colour in _phases(kept):
            parts = [bar.get(name, 0.0) for bar in bars]
            axes.bar(range(len(kept)), parts, bottom=below, color=colour, label=named(name), width=0.7)
            below = [low + part for low, part in zip(below, parts, strict=True)]
        axes.set_xticks(range(len(kept)), [count(most_queries(run.spec)) for run in kept])
        axes.set(title="Time by component", xlabel="concurrent queries", ylabel="% of the sum of phases", ylim=(0, 100))
        axes.grid(visible=False, axis="x")
        axes.legend(**BESIDE, reverse=True)

    return bool(kept) and _drawn(path, paint, width=1.7 * PANEL_WIDTH)


def breakdown(runs: Sequence[RunResult], path: Path) -> bool:
    """Time by component for each million rows, as its system counts it, a bar for each run."""
    kept = [run for run in runs if any(components(run).values()) and figures.rows_counted(run) > 0]

    def paint(axes: Any) -> None:
        ends = [0.0] * len(kept)
        for name, colour in _phases(kept):
            parts = [components(run).get(name, 0.0) * 1e9 / figures.rows_counted(run) for run in kept]
            axes.barh(range(len(kept)), parts, left=ends, color=colour, label=name, height=0.7)
            ends = [end + part for end, part in zip(ends, parts, strict=True)]
        longest = max((end for end in ends if end <= LONGEST_BAR * min(ends)), default=max(ends))
        axes.set_xlim(0, 1.15 * longest)
        for line, end in enumerate(ends):
            axes.text(min(1.01 * end, 1.02 * longest), line, f" {tick(float(f'{end:.2g}'))}", va="center", fontsize=9)
        axes.set_yticks(range(len(kept)), [name for _, name, _ in _looks(kept)])
        axes.invert_yaxis()
        axes.set(title="Time for each million rows", xlabel="ms, as the system counts them")
        axes.xaxis.set_major_formatter(lambda value, _: tick(value))
        axes.grid(visible=False, axis="y")
        axes.legend(**BESIDE)

    height = max(SHORT_HEIGHT, 1.2 + LINE_HEIGHT * len(kept), 0.4 + ENTRY_HEIGHT * len(_phases(kept)))
    return bool(kept) and _drawn(path, paint, width=1.6 * PANEL_WIDTH, height=height)


def cores(runs: Sequence[RunResult], path: Path) -> bool:
    """Input rows a second against the number of cores, beside what twice the cores would give at best."""
    kept = [run for run in runs if run.taken_rate > 0]

    def paint(axes: Any) -> None:
        for some, name, look in _series(kept, "cores"):
            numbers = [run.spec.cores for run in some]
            axes.plot(numbers, [run.taken_rate for run in some], **look, label=name)
            each = some[0].taken_rate / numbers[0]
            axes.plot(numbers, [each * n for n in numbers], color=look["color"], linestyle=":", linewidth=1.2)
        axes.set(title="Input rows/s by cores (dotted: in proportion)", xlabel="cores", ylabel="rows/s")
        axes.set_xticks(sorted({run.spec.cores for run in kept}))
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda value, _: tick(value))
        axes.legend()

    return bool(kept) and _drawn(path, paint)


def density(runs: Sequence[RunResult], path: Path) -> bool:
    """Input rows a second against the rows of each second of event time, and the seconds of it that pass in one."""
    kept = [run for run in runs if run.taken_rate > 0 and run.spec.density]

    def paint(left: Any, right: Any) -> None:
        for some, name, look in _series(kept, "density"):
            densities = [run.spec.density for run in some]
            left.plot(densities, [run.taken_rate for run in some], **look, label=name)
            right.plot(densities, [run.taken_rate / run.spec.density for run in some], **look, label=name)
        for axes, title in ((left, "Input rows/s"), (right, "Seconds of event time in a second")):
            axes.set(title=title, xlabel="rows for each second of event time", xscale="log")
            _ticks_at(axes.xaxis, sorted({run.spec.density for run in kept}))
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter(lambda value, _: tick(value))
        left.legend()

    return bool(kept) and _drawn(path, paint, columns=2)


def queue(runs: Sequence[RunResult], path: Path) -> bool:
    """Rows that waited over time for each rate tried; dashed is the slope on which the verdict rests."""
    kept = [run for run in runs if run.queue]

    def paint(axes: Any) -> None:
        for number, run in enumerate(sorted(kept, key=lambda one: -one.spec.rate)):
            colour = PHASE_COLOURS[number % len(PHASE_COLOURS)]
            word = "sustained" if run.verdict.sustained else "not sustained"
            times, waiting = [s.at for s in run.queue], [s.due - s.taken for s in run.queue]
            axes.plot(times, waiting, color=colour, linewidth=1.2, label=f"{count(run.spec.rate)} rows/s: {word}")
            ends = _slope(run)
            axes.plot([at for at, _ in ends], [rows for _, rows in ends], color=colour, linestyle="--")
        axes.set(title="Rows that wait (dashed: slope)", ylabel="rows")
        _over_time(axes, kept)
        low, high = axes.yaxis.get_data_interval()
        axes.set_ylim(min(0, low), ROOM_ABOVE * max(high, LEAST_QUEUE))
        axes.yaxis.set_major_formatter(lambda value, _: tick(value))
        axes.legend(**BESIDE)

    return bool(kept) and _drawn(path, paint, width=1.5 * PANEL_WIDTH)


def ratios(differences: Iterable[Difference], path: Path) -> bool:
    """The second of two suites by the first, with the range that the noise of both allows."""
    kept = [one for one in differences if one.ratio is not None]

    def paint(axes: Any) -> None:
        for line, one in enumerate(kept):
            colour = VERDICT_COLOURS.get(one.verdict, INK)
            assert one.ratio is not None
            low, high = one.ratio_range
            low, high = max(low, one.ratio / OPEN_END), min(high, one.ratio * OPEN_END)
            axes.plot([low, high], [line, line], color=colour, linewidth=3, alpha=0.4, solid_capstyle="butt")
            axes.plot([one.ratio], [line], "o", color=colour)
        axes.axvline(1.0, color=INK, linewidth=1)
        names = distinct_names([one.cell for one in kept])
        metrics = [f"{one.metric}{' (other rates)' if one.other_rate else ''}" for one in kept]
        axes.set_yticks(range(len(kept)), [f"{name}: {metric}" for name, metric in zip(names, metrics, strict=True)])
        axes.invert_yaxis()
        axes.set(title="B against A, with the noise of both", xlabel="ratio", xscale="log")
        _log_ticks(axes.xaxis)

    height = 1.2 + LINE_HEIGHT * max(2, len(kept))
    return bool(kept) and _drawn(path, paint, width=1.8 * PANEL_WIDTH, height=height)


def colour_of(system: str) -> str:
    """The same for a name in every plot, also for names that are not known here."""
    return COLOURS.get(system) or OTHER_COLOURS[crc32(system.encode()) % len(OTHER_COLOURS)]


def tick(value: float) -> str:
    """A number beside an axis.

    >>> tick(0.5), tick(1500), tick(2e6), tick(-5e4)
    ('0.5', '1.5k', '2M', '-50k')
    """
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:g}{unit}"
    # What is left of a sum of steps is not a number to read.
    return f"{round(value, 9):g}"


def _drawn(
    path: Path,
    paint: Callable[..., None],
    rows: int = 1,
    columns: int = 1,
    width: float = PANEL_WIDTH,
    height: float = PANEL_HEIGHT,
) -> bool:
    """Paint panels of this size and write them."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        return False
    svg = path.suffix == ".svg"
    # The salt and the missing date: the same results give the same file.
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": path.stem}):
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        paint(*figure.subplots(rows, columns, squeeze=False, sharex=rows > 1).flat)
        figure.savefig(path, dpi=PNG_DPI, transparent=svg, metadata={"Date": None} if svg else None)
    return True


def _series(runs: Iterable[RunResult], along: str) -> list[tuple[list[RunResult], str, dict[str, Any]]]:
    """Runs that differ only ``along`` the axis, in its order, with a name and a look for their line."""
    lines: dict[tuple[Any, ...], list[RunResult]] = {}
    for run in runs:
        cell = Cell.of(run.spec)
        key = (cell.system, *(getattr(cell, part) for part in PARTS if part != along))
        lines.setdefault(key, []).append(run)
    found = [sorted(line, key=lambda run: int(getattr(Cell.of(run.spec), along))) for line in lines.values()]
    looks = _looks([line[0] for line in found], (along,))
    return [(line, name, look | {"marker": _marker(run)}) for line, (run, name, look) in zip(found, looks, strict=True)]


def _dots(places: Sequence[float]) -> dict[str, str]:
    """A line of one point or two is hardly seen."""
    return {"marker": "o"} if len(places) < FEW_POINTS else {}


def _looks(runs: Sequence[RunResult], but: Sequence[str] = ()) -> list[tuple[RunResult, str, dict[str, Any]]]:
    """A name and a look for each run: its system, and what else tells them apart; several of a system are dashed."""
    names = distinct_names([Cell.of(run.spec) for run in runs], but)
    if len(set(names)) < len(names):
        names = [f"{name}, {count(run.spec.rate)} rows/s" for name, run in zip(names, runs, strict=True)]
    seen: dict[str, int] = {}
    found = []
    for run, name in zip(runs, names, strict=True):
        number = seen[run.spec.system] = seen.get(run.spec.system, -1) + 1
        look = {"color": colour_of(run.spec.system), "linestyle": DASHES[number % len(DASHES)]}
        found.append((run, name, look))
    return found


def _marker(run: RunResult) -> str:
    names = [*COLOURS, run.spec.system]
    return MARKERS[names.index(run.spec.system) % len(MARKERS)]


def _phases(runs: Iterable[RunResult]) -> list[tuple[str, str]]:
    """The components of all runs, each with its colour; after the last colour they begin again."""
    names = list(dict.fromkeys(name for run in runs for name in components(run)))
    return [(name, PHASE_COLOURS[number % len(PHASE_COLOURS)]) for number, name in enumerate(names)]


def _slope(run: RunResult) -> list[tuple[float, float]]:
    """The ends of the line with the verdict's slope through the middle of the samples after the warm-up."""
    counted = [sample for sample in run.queue if sample.at >= warm_up_end(run.spec)]
    if not counted:
        return []
    middle = sum(sample.at for sample in counted) / len(counted)
    level = sum(sample.due - sample.taken for sample in counted) / len(counted)
    return [(at, level + run.verdict.queue_slope * (at - middle)) for at in (counted[0].at, counted[-1].at)]


def _over_time(axes: Any, runs: Sequence[RunResult], last: bool = True) -> None:
    """The whole of the runs, the warm-up shaded."""
    axes.axvspan(0, max(warm_up_end(run.spec) for run in runs), color=INK, alpha=0.06, linewidth=0)
    axes.set_xlim(0, max(run.spec.seconds for run in runs))
    if last:
        axes.set_xlabel("seconds of the run")


def _seconds_scale(axes: Any, direction: str, zero: bool = True) -> None:
    """From zero, if asked for; logarithmic where latencies lie so far apart that the short ones could not be seen."""
    axis = getattr(axes, f"{direction}axis")
    low, high = axis.get_data_interval()
    if 0 < low < high / LOG_SECONDS_ABOVE:
        axes.set(**{f"{direction}scale": "log"})
        _log_ticks(axis)
    elif zero and high > 0:
        axes.set(**{f"{direction}lim": (0, ROOM_ABOVE * high)})


def _ticks_at(axis: Any, numbers: Sequence[int]) -> None:
    """Ticks of a logarithmic axis where the points are."""
    axis.set_ticks(numbers, [tick(number) for number in numbers])
    axis.set_ticks([], minor=True)


def _log_ticks(axis: Any) -> None:
    """Ticks of a logarithmic axis: even ones where it spans little, whole decades where it spans much."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    low, high = axis.get_view_interval()
    parts = (1.0, 2.0, 5.0) if high / low < DECADES_ABOVE else (1.0,)
    even = high / low < EVEN_TICKS_BELOW
    axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]) if even else LogLocator(subs=parts))
    axis.set_major_formatter(lambda value, _: tick(value))
    axis.set_minor_formatter(NullFormatter())
