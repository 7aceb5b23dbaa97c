"""Suites as files."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.bench.reporting.suites import MACHINE, deployed, result, sweep

from millstream.bench.driving.model import Deployment, Latency, Search, Suite, Verdict
from millstream.bench.reporting.storing import load, save
from millstream.errors import MillstreamError


def test_a_suite_comes_back_as_it_was(tmp_path: Path) -> None:
    suite = sweep()
    save(suite, tmp_path)
    assert load(tmp_path) == suite
    assert len(list((tmp_path / "runs").glob("*.json"))) == 10


def test_odd_floats_come_back_to_the_bit(tmp_path: Path) -> None:
    odd = (math.nan, math.inf, -math.inf, -0.0, 5e-324, 0.1 + 0.2, 1.7976931348623157e308, 2.0**53 + 2)
    latencies = tuple(Latency(value, value, value, 2**60) for value in odd)
    run = replace(result(latencies=latencies), verdict=Verdict(False, "ä\n\u2028\x00", math.nan, math.inf))
    suite = Suite("odd", {}, {}, runs=(replace(run, phases={"": math.nan}),))
    save(suite, tmp_path)
    # NaN is not equal to itself; its text is.
    assert repr(load(tmp_path)) == repr(suite)
    assert "NaN," not in next((tmp_path / "runs").iterdir()).read_text()


def test_a_run_of_two_lists_is_stored_once(tmp_path: Path) -> None:
    run = result(deployments=deployed(0.1))
    suite = Suite("s", MACHINE, {}, (Search("t", (run,)),), (run,))
    save(suite, tmp_path)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["001-astream-sc1-millstream-10q.json"]
    assert load(tmp_path) == suite


def test_runs_that_got_another_number_are_not_there_twice(tmp_path: Path) -> None:
    """A suite is saved after each section, and searches come before runs of their own."""
    run, searched = result(), replace(result(rate=500.0), spec=replace(result().spec, workload="other"))
    save(Suite("s", MACHINE, {}, runs=(run,)), tmp_path)
    suite = Suite("s", MACHINE, {}, (Search("t", (searched,)),), (run,))
    save(suite, tmp_path)
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert [name[:9] for name in names] == ["001-other", "002-astre"]
    assert load(tmp_path) == suite


def test_a_suite_without_runs(tmp_path: Path) -> None:
    save(Suite("empty", {}, {}), tmp_path)
    assert load(tmp_path) == Suite("empty", {}, {})


def test_the_json_has_the_verdict_of_each_claim(tmp_path: Path) -> None:
    claims = json.loads(save(sweep(), tmp_path).read_text())["suite"]["claims"]
    assert [(one["met"], one["verdict"], one["held"]) for one in claims] == [
        (True, "met, 1.2 times", True),
        (False, "missed: 0.45 of at most 0.3, 50 % over", True),
        (None, "not measured", True),
        (False, "missed: not sustained; 230 of 200", False),
    ]


def test_earlier_results_come_back(tmp_path: Path) -> None:
    """Claims once said nothing of what they rest on."""
    path = save(sweep(), tmp_path)
    body = json.loads(path.read_text())
    for claim in body["suite"]["claims"]:
        for later in ("held", "met", "verdict"):
            del claim[later]
    path.write_text(json.dumps(body))
    held = tuple(replace(claim, held=True) for claim in sweep().claims)
    assert load(tmp_path) == replace(sweep(), claims=held)


def test_requests_that_were_never_acknowledged_come_back(tmp_path: Path) -> None:
    never = Deployment("create", "q1", 30.0, None, None)
    save(Suite("s", MACHINE, {}, runs=(result(deployments=(never,)),)), tmp_path)
    assert load(tmp_path).runs[0].deployments == (never,)


def broken(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def without_spec(path: Path) -> None:
    body = json.loads(path.read_text())
    del body["run"]["spec"]["rate"]
    path.write_text(json.dumps(body))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda suite, run: suite.unlink(), "there are no results of a benchmark"),
        (lambda suite, run: cut(suite), "suite.json is no JSON, or cut short"),
        (lambda suite, run: cut(run), "10q.json is no JSON, or cut short"),
        (lambda suite, run: run.write_bytes(b"\xff\xfe\x00"), "is no JSON, or cut short"),
        (lambda suite, run: run.unlink(), "cannot read"),
        (lambda suite, run: suite.write_text("[1, 2]"), "is not a result of this benchmark"),
        (lambda suite, run: broken(suite, format="else"), "is not a result of this benchmark"),
        (lambda suite, run: broken(suite, version=1), "is of version 1, and this Millstream reads version 2"),
        (lambda suite, run: broken(suite, suite=None), "lacks part of a suite"),
        (lambda suite, run: without_spec(run), "lacks part of a run"),
    ],
    ids=["none", "suite cut", "run cut", "binary", "run gone", "list", "format", "version", "empty", "a key"],
)
def test_files_that_cannot_be_read_are_named_with_a_hint(tmp_path: Path, damage: Any, message: str) -> None:
    suite = save(Suite("s", MACHINE, {}, runs=(result(),)), tmp_path)
    damage(suite, next((tmp_path / "runs").iterdir()))
    with pytest.raises(MillstreamError, match=message) as error:
        load(tmp_path)
    assert error.value.code == "BAD_FILE"
    assert error.value.hint


def test_the_detail_says_which_key_is_missing(tmp_path: Path) -> None:
    save(Suite("s", MACHINE, {}, runs=(result(),)), tmp_path)
    without_spec(next((tmp_path / "runs").iterdir()))
    with pytest.raises(MillstreamError) as error:
        load(tmp_path)
    assert error.value.detail is not None
    assert error.value.detail.startswith("spec.rate")
