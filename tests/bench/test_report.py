"""Ratios and targets, from made-up measurements."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from millstream.bench import plot
from millstream.bench.dataset import Dataset
from millstream.bench.jobs import Cell, CellResult, DeployResult, Digest, Level, Run, StateSize, Storm
from millstream.bench.machine import Machine
from millstream.bench.measure import Commit, Summary, Throughput
from millstream.bench.report import Measurements, Target, answers_agree, as_json, targets
from millstream.bench.tables import print_report, verdict

DATASET = Dataset("data", 40, 1_000_000, 1_000_000, 1)
QUIET = Machine("a processor", 2, 8 << 30, "a system", 0.1, {"python": "3.11"})


def cell(queries: int, *rates: float, files: int = 40, digest: Digest | None = None, load: int = 900) -> CellResult:
    """A result with one run for each rate (rows a second)."""
    state = StateSize(cells=load, bytes=9 * load, open_cells=0, slices=10, keys=1000, by_classes=1000, by_queries=2000)
    runs = tuple(
        Run(
            Throughput(queries, int(rate), 1.0),
            (Commit(0.0, 1),),
            1.0,
            digest or Digest(7, 70),
            {"read": 2.0},
            state=state,
        )
        for rate in rates
    )
    return CellResult(Cell(DATASET, files, 4, queries, 1, len(rates)), runs)


def deployment(p99: float = 0.1, achieved: float = 99.5) -> DeployResult:
    summary = Summary((0.05, 0.06, p99))
    return DeployResult(
        10,
        (Level(0, summary, summary, 0.2), Level(1000, summary, summary, 0.2)),
        Storm(1000, 100, achieved, summary, 0, 0.1),
    )


def everything() -> Measurements:
    dense = {1: cell(1, 3e6, 4e6), 1000: cell(1000, 3e6)}
    plain = {1: cell(1, 2e6), 20: cell(20, 1e5)}
    return Measurements(QUIET, dense, {1: cell(1, 1e6)}, plain, {"rocksdb": cell(1, 2e6)}, deployment())


def by_name(found: Measurements) -> dict[str, Target]:
    return {target.name: target for target in targets(found)}


def test_ratios_take_the_best_run_of_each_cell() -> None:
    found = by_name(everything())
    assert found["1 query: rows/s against plain Spark"].got == 2.0
    assert found["1000 queries: rows/s against our own at 1"].got == 0.75
    # 1000 queries at 3 M rows/s against 20 queries at 0.1 M rows/s
    assert found["1000 queries: overall rows/s against plain Spark's at 20"].got == pytest.approx(1500.0)
    assert all(target.met for target in found.values())


def test_state_is_judged_against_the_smaller_layout() -> None:
    found = by_name(Measurements(QUIET, dense={1: cell(1, 1.0, load=1), 1000: cell(1000, 1.0, load=1100)}))
    assert found["state: cells against the smaller layout"].got == 1.1
    assert found["state: cells against the smaller layout"].met is False
    # Nine bytes a cell against a dense count and sum of sixteen.
    assert found["state: bytes against the smaller layout"].got == pytest.approx(1.1 * 9 / 16)


@pytest.mark.parametrize(("p99", "met"), [(0.3, True), (0.31, False)])
def test_deployment_has_a_limit_at_every_level(p99: float, met: bool) -> None:
    found = by_name(Measurements(QUIET, deployment=deployment(p99)))
    sealed = [target for name, target in found.items() if name.startswith("create to sealed epoch")]
    assert len(sealed) == 3
    assert {target.met for target in sealed} == {met}


def test_creates_that_are_not_kept_up_with_miss_the_target() -> None:
    assert (
        by_name(Measurements(QUIET, deployment=deployment(achieved=80.0)))["creates a second, sustained"].met is False
    )


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    assert {target.met for target in targets(Measurements(QUIET))} == {None}
    assert {verdict(target).plain for target in targets(Measurements(QUIET))} == {"not measured"}


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (Target("more is better", 500.0, 1000.0), "met, 2 times"),
        (Target("more is better", 500.0, 450.0), "missed: 450 of 500, 10 % short"),
        (Target("more is better", 0.6, 0.36), "missed: 0.36 of 0.6, 40 % short"),
        (Target("a little", 0.6, 0.599), "missed: 0.599 of 0.6, 0.2 % short"),
        (Target("nothing", 200.0, 0.0), "missed: 0 of 200, 100 % short"),
        (Target("less is better", 0.3, 0.6, at_most=True), "missed: 0.6 of at most 0.3, 100 % over"),
        (Target("less is better", 1.0, 0.0, at_most=True), "met"),
        (Target("none is best", 0.0, 3.0, at_most=True), "missed: 3 of at most 0"),
        # What was not sustained is missed, however good it looks.
        (Target("good", 200.0, 230.0, held=False), "missed: not sustained; 230 of 200"),
        (Target("good", 0.3, 0.1, at_most=True, held=False), "missed: not sustained; 0.1 of at most 0.3"),
        (Target("bad", 200.0, 150.0, held=False), "missed: not sustained; 150 of 200, 25 % short"),
        (Target("nothing", 200.0, None, held=False), "not measured"),
    ],
)
def test_a_verdict_says_by_how_much(target: Target, words: str) -> None:
    assert verdict(target).plain == words
    assert target.met is (None if target.got is None else words.startswith("met"))


def test_answers_agree_only_on_the_same_input() -> None:
    same = Measurements(QUIET, dense={1: cell(1, 1.0)}, plain={1: cell(1, 1.0)})
    other = Measurements(QUIET, dense={1: cell(1, 1.0)}, plain={1: cell(1, 1.0, digest=Digest(7, 71))})
    shorter = Measurements(QUIET, dense={1: cell(1, 1.0)}, plain={1: cell(1, 1.0, files=20)})
    assert [answers_agree(found) for found in (same, other, shorter)] == [True, False, None]


def test_the_json_keeps_raw_numbers_and_verdicts() -> None:
    body = json.loads(json.dumps(as_json(everything(), {"seed": 5})))
    assert body["options"]["seed"] == 5
    assert body["machine"]["cores"] == 2
    assert body["dense"]["1"]["input_rate"] == 4e6
    assert [run["throughput"]["rows"] for run in body["dense"]["1"]["runs"]] == [3_000_000, 4_000_000]
    assert body["deployment"]["levels"][1]["sealed"]["values"] == [0.05, 0.06, 0.1]
    assert {target["met"] for target in body["targets"]} == {True}


def missed() -> Measurements:
    """Every figure is far from what is wanted."""
    dense = {1: cell(1, 1e6, load=10**6), 1000: cell(1000, 1e5, load=10**9)}
    return Measurements(QUIET, dense, {}, {1: cell(1, 2e6), 20: cell(20, 1e6)}, {}, deployment(p99=12.0, achieved=1.0))


@pytest.mark.parametrize(
    "found", [everything(), missed(), Measurements(QUIET, failures=("it broke",))], ids=["all", "missed", "nothing"]
)
def test_the_tables_fit_eighty_characters(found: Measurements) -> None:
    screen = Console(file=io.StringIO(), width=80)
    print_report(found, screen)
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "Targets" in text
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_the_plot_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert plot.draw(everything(), tmp_path / "scale.png")
    assert (tmp_path / "scale.png").read_bytes().startswith(b"\x89PNG")
