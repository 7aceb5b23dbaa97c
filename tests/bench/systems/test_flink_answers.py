from __future__ import annotations

import os
from pathlib import Path

from millstream.bench.systems.flink_answers import Answers

FIRST, SECOND = "window_end=1970-01-01 00%3A00%3A01.000", "window_end=1970-01-01 00%3A00%3A02.000"


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
