"""``millstream check``: every kind of damage is found, and nothing else. No Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millstream.cli.main import app
from millstream.engine.check import check_home
from millstream.errors import EngineError

from .inprocess import COPIES, PURCHASES, Small, cut, flip, lose, pairs, sums


@pytest.fixture
def small(home: Path, tmp_path: Path) -> Iterator[Small]:
    one = Small(home, tmp_path / "in", PURCHASES, COPIES)
    one.create("sums", sums(size=8, slide=4))
    one.create("pairs", pairs())
    for number in range(2):
        one.batch(number)
        one.batch(number, COPIES)
    one.core.fire_all()
    yield one
    one.close()


def test_a_home_in_use_is_good(small: Small, home: Path) -> None:
    report = check_home(str(home))
    assert report.good
    assert report.checked["answer files"] == 2
    assert all(report.checked[kind] > 0 for kind in ("group versions", "buckets", "row tables"))
    assert report.unnamed == 0
    # Looking takes nothing away from the engine that has the home.
    small.batch(2)


@pytest.mark.parametrize("damage", [flip, cut, lose])
@pytest.mark.parametrize("kind", ["groups", "buckets", "answers"])
def test_damage_is_found(small: Small, home: Path, damage: object, kind: str) -> None:
    path = small.paths(kind)[0]
    damage(home, path)  # type: ignore[operator]
    report = check_home(str(home))
    assert not report.good
    assert path in {finding.path for finding in report.findings}
    assert {finding.path for finding in report.findings} <= {path} | set(small.paths("answers"))


def test_what_is_wrong_with_many_buckets_of_a_file_is_told_once(small: Small, home: Path) -> None:
    path = small.paths("buckets")[0]
    lose(home, path)
    found = [finding for finding in check_home(str(home)).findings if finding.kind == "buckets"]
    assert [finding.path for finding in found] == [path]
    assert re.search(r"\(\d+ of them\)$", found[0].problem)


def test_rows_that_only_answers_refer_to_are_checked(small: Small, home: Path) -> None:
    """The windows have fired, so that no fire will read the buckets of the first batch again."""
    (path, *_) = [path for path in small.paths("buckets/copies") if "/0-" in path]
    flip(home, path, 300)
    (finding,) = check_home(str(home)).findings
    assert (finding.kind, finding.path) == ("row tables", path)


def test_files_that_nobody_names_are_counted(small: Small, home: Path) -> None:
    small.core.home.write("answers", "x", "answers", [b"of a job that died"])
    report = check_home(str(home))
    assert report.good
    assert report.unnamed == 1


def test_the_command(small: Small, home: Path, tmp_path: Path) -> None:
    run = CliRunner().invoke
    done = run(app, ["check", str(home)])
    assert done.exit_code == 0, done.output
    assert "all good" in done.output
    path = small.paths("answers")[0]
    flip(home, path)
    done = run(app, ["check", str(home)])
    assert done.exit_code == 1
    assert path in done.output
    done = run(app, ["check", str(home), "--json"])
    assert done.exit_code == 1
    body = json.loads(done.output)
    assert body["good"] is False
    assert [item["path"] for item in body["damaged"]] == [path]
    done = run(app, ["check", str(tmp_path / "nowhere")])
    assert done.exit_code == 1
    with pytest.raises(EngineError) as raised:
        check_home(str(tmp_path / "nowhere"))
    assert raised.value.code == "BAD_HOME"
    assert not (tmp_path / "nowhere").exists()
