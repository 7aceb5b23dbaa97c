"""Every plot: a valid drawing with the words it should have."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure
from tests.bench.reporting.suites import MACHINE, deployed, queries, result, sweep

from millstream.bench.driving.model import Search, Suite
from millstream.bench.reporting import plots
from millstream.bench.reporting.comparing import Difference, compare
from millstream.bench.reporting.outcomes import all_runs

SVG = "{http://www.w3.org/2000/svg}"
RUNS = [search.best for search in sweep().searches if search.best]
CHANGING = sweep().runs[0]
BY_CORES = [result(rate=1000.0 * n, cores=n) for n in (1, 2, 4)]
BY_DENSITY = [result(rate=n**0.5, density=n) for n in (100_000, 2_000_000)]


def differences() -> list[Difference]:
    def suite(rate: float) -> Suite:
        return Suite("s", MACHINE, {}, (Search("t", (result(rate=rate),)),))

    return compare(suite(1000.0), suite(2000.0))


def texts(path: Path) -> str:
    root = ElementTree.parse(path).getroot()
    assert root.tag == f"{SVG}svg"
    assert list(root.iter(f"{SVG}path"))
    return "\n".join("".join(node.itertext()) for node in root.iter(f"{SVG}text"))


DRAWN: dict[str, tuple[Callable[[Path], bool], list[str]]] = {
    "throughput": (
        lambda p: plots.throughput(RUNS, p),
        ["concurrent queries", "millstream", "spark", "100", "Slowest data throughput", "Overall data throughput"],
    ),
    "latency": (lambda p: plots.latency(RUNS, p), ["millstream, 1 query", "millstream, 100 queries", "% of answers"]),
    "rates": (lambda p: plots.rates(RUNS, p), ["Input rows/s", "Overall rows/s", "millstream, 10 queries"]),
    "deployment": (
        lambda p: plots.deployment([CHANGING], p),
        ["Until acknowledged", "Until in effect", "millstream"],
    ),
    "fluctuation": (
        lambda p: plots.fluctuation(CHANGING, p),
        ["astream-sc2, millstream", "queries", "latency, s", "overall"],
    ),
    "sharing": (lambda p: plots.sharing(RUNS, p), ["read", "aggregate", "% of the sum of phases", "100"]),
    "breakdown": (
        lambda p: plots.breakdown(RUNS, p),
        ["read", "aggregate", "spark, 10 queries", "ms, as the system counts them"],
    ),
    "cores": (lambda p: plots.cores(BY_CORES, p), ["cores", "millstream", "4"]),
    "density": (
        lambda p: plots.density(BY_DENSITY, p),
        ["rows for each second of event time", "Seconds of event time in a second", "millstream", "100k", "2M"],
    ),
    "queue": (
        lambda p: plots.queue(sweep().searches[0].runs, p),
        ["8000 rows/s: not sustained", "3999 rows/s: sustained"],
    ),
    "ratios": (
        lambda p: plots.ratios(differences(), p),
        ["ratio", "millstream: sustainable input", "millstream: sustainable overall"],
    ),
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_plot_is_drawn(tmp_path: Path, name: str) -> None:
    draw, words = DRAWN[name]
    assert draw(tmp_path / "a.svg")
    found = texts(tmp_path / "a.svg")
    for word in words:
        assert word in found
    assert draw(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_results_give_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    for folder in (tmp_path, tmp_path / "again"):
        plots.throughput(RUNS, folder / "a.svg")
    assert (tmp_path / "a.svg").read_text() == (tmp_path / "again" / "a.svg").read_text()


def test_without_results_nothing_is_drawn(tmp_path: Path) -> None:
    empty = replace(result(latencies=(), phases={}, taken=0.0), queue=())
    path = tmp_path / "a.svg"
    over_time = (plots.latency, plots.rates, plots.deployment, plots.queue)
    several = (*over_time, plots.throughput, plots.sharing, plots.breakdown, plots.cores, plots.density)
    assert not any(draw([empty], path) for draw in several)
    assert not any(draw([], path) for draw in several)
    assert not plots.fluctuation(empty, path)
    assert not plots.ratios([], path)
    assert not path.exists()


def test_the_slope_of_the_verdict_goes_through_the_samples() -> None:
    """A queue that grows by 500 rows a second: the line is the queue."""
    run = result(rate=1000.0, sustained=False)
    assert plots._slope(run) == [(10.0, pytest.approx(5000.0)), (40.0, pytest.approx(20000.0))]


def test_a_system_has_one_colour() -> None:
    names = {run.spec.system for run in all_runs(sweep())} | {"spark-merged", "flink", "millstream-drained"}
    assert len({plots.colour_of(name) for name in names}) == len(names)
    assert plots.colour_of("another") == plots.colour_of("another")


def test_lines_are_told_apart_by_what_differs() -> None:
    names = [name for _, name, _ in plots._looks([result(density=100_000), result(), result(system="spark")])]
    assert names == ["millstream, density 100.0k", "millstream, density 1.00M", "spark, density 1.00M"]
    same = [name for _, name, _ in plots._looks([result(rate=100.0), result(rate=200.0)])]
    assert same == ["millstream, 100 rows/s", "millstream, 200 rows/s"]


def test_a_density_is_a_line_of_its_own() -> None:
    runs = [result(initial=queries(n), density=d) for n in (10, 1) for d in (100_000, 1_000_000)]
    lines = [[len(run.spec.initial) for run in line] for line, _, _ in plots._series(runs, "queries")]
    assert lines == [[1, 10], [1, 10]]


def test_ratios_whose_range_is_open(tmp_path: Path) -> None:
    suites = [Suite("s", MACHINE, {}, (Search("t", (result(rate=rate),)),)) for rate in (1000.0, 2000.0)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plots.ratios(compare(*suites), tmp_path / "a.svg")
    assert "sustainable input" in texts(tmp_path / "a.svg")


def test_a_dollar_is_no_formula(tmp_path: Path) -> None:
    assert plots.latency([result(system="a $x^2$ b")], tmp_path / "a.svg")
    assert "a $x^2$ b" in texts(tmp_path / "a.svg")


def test_deployments_that_never_took_effect(tmp_path: Path) -> None:
    never = tuple(replace(one, effective=None) for one in deployed(0.1))
    assert plots.deployment([result(deployments=never)], tmp_path / "a.svg")
    assert "millstream" in texts(tmp_path / "a.svg")


@pytest.mark.parametrize(("values", "scale"), [((0.5, 5.0), "linear"), ((0.5, 50.0), "log"), ((0.0, 50.0), "linear")])
def test_latencies_that_lie_far_apart_have_a_logarithmic_axis(values: tuple[float, ...], scale: str) -> None:
    axes = Figure().subplots()
    axes.plot(values, values)
    plots._seconds_scale(axes, "y")
    assert axes.get_yscale() == scale
    assert scale == "log" or axes.get_ylim()[0] == 0


def test_the_phases_of_sharing_have_the_names_of_the_paper(tmp_path: Path) -> None:
    phases = {"read": 1.0, "evaluate": 1.0, "classes": 1.0, "fire: classes": 1.0, "fire: write": 1.0, "batch": 9.0}
    assert plots.sharing([replace(run, phases=phases) for run in RUNS], tmp_path / "a.svg")
    found = texts(tmp_path / "a.svg").splitlines()
    for name in ("read", "evaluate (query-set generation)", "classes (query-set generation)"):
        assert name in found
    assert "fire: classes (with bit-set algebra)" in found
    assert "fire: write (routing copies)" in found


def test_a_breakdown_is_of_the_rows_after_the_warm_up(tmp_path: Path) -> None:
    """A thousand rows a second, 30 of the 40 seconds: 4 seconds of phases for 30,000 rows are 133,333 ms a million."""
    assert plots.breakdown([result()], tmp_path / "a.svg")
    assert "130k" in texts(tmp_path / "a.svg")


def test_a_long_legend_has_room(tmp_path: Path) -> None:
    """Matplotlib warns where it has none, and draws what there is room for."""
    many = {f"phase {number}": 1.0 for number in range(40)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plots.breakdown([replace(RUNS[0], phases=many)], tmp_path / "breakdown.png")
