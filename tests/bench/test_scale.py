"""The benchmark itself: its options, its processes, and a tiny run of all of it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from millstream.bench.deploy_run import run_deploy
from millstream.bench.jobs import DeployJob
from millstream.bench.process import JobFailed, run_in_process
from millstream.bench.scale import Options, main
from millstream.bench.sizes import FULL, QUICK, Sizes, sizes_of
from millstream.errors import SpecError


def test_every_cell_has_more_than_one_micro_batch() -> None:
    for sizes in (FULL, QUICK, Sizes(rows=160_000), Sizes(rows=100_000_000)):
        shares = (sizes.plain_share, sizes.plain_many_share, sizes.sparse_share, 1.0)
        assert min(sizes.files_for(share) for share in shares) > sizes.files_per_batch
        assert sizes.files * sizes.file_rows >= sizes.rows


def test_the_full_size_fills_the_longest_window_during_the_warm_up() -> None:
    assert FULL.rows / 4 / FULL.density >= 10
    assert FULL.file_rows == FULL.density == 1_000_000


def test_unknown_parts_and_too_few_rows_are_refused() -> None:
    with pytest.raises(SpecError, match="no part 'dens'"):
        Options(parts=("dens",))
    with pytest.raises(SpecError, match="too few"):
        sizes_of(quick=True, rows=1000)


def test_a_process_that_dies_is_told_from_one_that_answers(tmp_path: Path) -> None:
    job = DeployJob((0,), 1000, 1, 1, 0.0, 0, workspace=str(tmp_path / "missing"))
    with pytest.raises(JobFailed, match="ended with code 1"):
        run_in_process(run_deploy, job, lambda share, words: None)


@pytest.mark.slow
def test_a_tiny_run_from_end_to_end(tmp_path: Path) -> None:
    """Throughput of both systems is run by the guard, with the same cells in the same processes."""
    sizes = Sizes(rows=160_000, levels=(0, 2), samples=3, storm_rate=10, storm_seconds=1.0)
    screen = Console(file=io.StringIO(), width=100)
    result = main(Options(out=tmp_path, sizes=sizes, parts=("deploy",)), screen)
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert result["failures"] == [], text
    assert len(result["deployment"]["levels"][1]["sealed"]["values"]) == 3
    assert result["deployment"]["storm"]["refused"] == 0
    assert json.loads(Path(result["file"]).read_text(encoding="utf-8"))["targets"]
    assert "Targets" in text
    assert not list(tmp_path.glob("scale-work-*"))
