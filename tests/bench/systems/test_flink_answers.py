from __future__ import annotations

import os
from pathlib import Path

from millstream.bench.systems.flink_answers import Answers

FIRST, SECOND, THIRD, FOURTH = (f"window_end=1970-01-01 00%3A00%3A0{second}.000" for second in range(1, 5))


def test_a_window_is_told_once_and_when_none_of_its_files_is_hidden(tmp_path: Path) -> None:
    answers = Answers(tmp_path / "out")
    assert answers.fresh() == []
    for window in (FIRST, SECOND):
        (tmp_path / "out" / window).mkdir(parents=True)
    assert answers.fresh() == []
    part, pending = tmp_path / "out" / FIRST / "part-0", tmp_path / "out" / FIRST / ".part-1.inprogress"
    part.touch()
    pending.touch()
    (tmp_path / "out" / SECOND / "part-0").touch()
    assert [end for _, end in answers.fresh()] == [2_000_000]
    last = part.with_name("part-1")
    pending.rename(last)
    assert answers.fresh() == [(max(os.stat(part).st_ctime, os.stat(last).st_ctime), 1_000_000)]
    assert answers.fresh() == []


def test_answers_without_a_window_are_those_of_a_second_that_is_over(tmp_path: Path) -> None:
    answers = Answers(tmp_path, windows=False)
    for second in (FIRST, SECOND, THIRD, FOURTH):
        (tmp_path / second).mkdir()
    (tmp_path / FIRST / "part-0").touch()
    assert answers.fresh() == []
    # A later checkpoint has more of it, beside the first rows of the next second.
    last = tmp_path / FIRST / "part-1"
    last.touch()
    (tmp_path / SECOND / "part-1").touch()
    assert answers.fresh() == []
    # Of what is hidden nobody knows when it comes.
    (tmp_path / THIRD / ".part-2.inprogress").touch()
    assert answers.fresh() == []
    (tmp_path / THIRD / ".part-2.inprogress").rename(tmp_path / THIRD / "part-2")
    assert answers.fresh() == [(os.stat(last).st_ctime, 2_000_000)]
    hidden = tmp_path / SECOND / ".part-2.inprogress"
    hidden.touch()
    (tmp_path / FOURTH / "part-2").touch()
    assert answers.fresh() == []
    hidden.rename(last := hidden.with_name("part-2"))
    assert answers.fresh() == [(os.stat(last).st_ctime, 3_000_000)]
    assert answers.fresh() == []
