"""The comparison itself: whatever is lost, doubled or changed is seen."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.chaos.runs import check

WINDOW = ["00:00", "00:02"]


def good() -> dict[str, Any]:
    answers = [
        [WINDOW, False, None, 0, 3, [["1"], ["2"]]],
        [WINDOW, False, None, 2, 3, [["3"]]],
        [["00:02", "00:04"], True, None, 0, 1, [["4"]]],
    ]
    return {
        "answers": {"sums": answers},
        "kept": {"sums": answers[2:]},
        "figures": {"sums": {"windows": 2, "late_rows": 1}},
        "streams": {"purchases": {"rows": 10}},
        "dead": ["a row"],
        "running": ["sums"],
        "members": 1,
        "files": ["answers/a"],
        "named": ["answers/a"],
    }


def test_the_same_answers_in_another_order_are_the_same() -> None:
    other = good()
    other["answers"]["sums"][0][5].reverse()
    check(other, good())


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r["answers"]["sums"].pop(0),
        lambda r: r["answers"]["sums"].pop(1),
        lambda r: r["answers"]["sums"].append(r["answers"]["sums"][2]),
        lambda r: r["answers"]["sums"].insert(1, r["answers"]["sums"][0]),
        lambda r: r["answers"]["sums"][0][5][0].append("more"),
        lambda r: r["answers"]["sums"][2].__setitem__(1, False),
        lambda r: r["kept"]["sums"][0].__setitem__(5, [["5"]]),
        lambda r: r["kept"].__setitem__("sums", r["answers"]["sums"][:2]),
        lambda r: r["figures"]["sums"].__setitem__("late_rows", 2),
        lambda r: r["streams"]["purchases"].__setitem__("rows", 11),
        lambda r: r["dead"].clear(),
        lambda r: r["running"].append("ghost"),
        lambda r: r.__setitem__("members", 2),
        lambda r: r["files"].append("answers/orphan"),
        lambda r: r["named"].append("answers/missing"),
    ],
)
def test_every_difference_is_seen(change: Callable[[dict[str, Any]], Any]) -> None:
    report = copy.deepcopy(good())
    change(report)
    with pytest.raises(AssertionError):
        check(report, good())
