"""What sharing costs, in the words of AStream's figure 18."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.bench.reporting.suites import queries, result

from millstream.bench.driving.model import Suite
from millstream.bench.reporting.page import write_page
from millstream.bench.reporting.sharing import Shares, shares_of

AGGREGATION = {"read": 1.0, "evaluate": 1.0, "classes": 1.0, "aggregate": 2.0, "fire: read": 1.0, "fire: classes": 2.0}
WHOLE = {"batch": 100.0, "fire": 50.0}


@pytest.mark.parametrize(
    ("phases", "shares"),
    [
        ({**AGGREGATION, "fire: write": 2.0}, Shares(0.2, 0.2, 0.2)),
        # What contains other phases is not counted once more.
        ({**AGGREGATION, "fire: write": 2.0, **WHOLE}, Shares(0.2, 0.2, 0.2)),
        ({"evaluate": 1.0, "join: read": 1.0, "join: answer": 5.0, "join: write": 1.0}, Shares(0.125, 0.75, 0.125)),
        ({"read": 1.0, "evaluate": 1.0}, Shares(0.5, 0.0, 0.0)),
        # Those of a system that shares nothing.
        ({"addBatch": 2.0, "walCommit": 1.0}, None),
        ({}, None),
    ],
)
def test_shares_are_of_the_sum_of_task_phases(phases: dict[str, float], shares: Shares | None) -> None:
    assert shares_of(result(phases=phases)) == shares


def test_the_rest_is_what_no_part_has() -> None:
    assert Shares(0.2, 0.3, 0.1).rest == pytest.approx(0.4)
    assert Shares(0.2, 0.7, 0.1).rest == pytest.approx(0.0)


def test_the_page_has_the_shares_by_number_of_queries(tmp_path: Path) -> None:
    ours = [
        result(initial=queries(1), phases={"evaluate": 1.0, "read": 9.0}),
        result(initial=queries(100), phases={**AGGREGATION, "fire: write": 2.0}),
    ]
    plain = result(system="spark", phases={"addBatch": 2.0})
    page = write_page(Suite("s", {}, {}, runs=(*ours, plain)), tmp_path).read_text(encoding="utf-8")
    table = page[page.index("What sharing costs") : page.index("Verdicts")]
    for cells in (("1", "10.0 %", "–", "0.0 %", "90.0 %"), ("100", "20.0 %", "≤ 20.0 %", "20.0 %", "≥ 40.0 %")):
        assert "".join(f'<td class="number">{cell}</td>' for cell in cells) in table
    assert "spark" not in table
    assert "not measured by itself" in table
    assert "Not in the sum: the JVM" in table
    assert "millstream: those of its tasks; the JVM and the driver are not in it." in page


def test_without_sharing_there_is_no_such_table(tmp_path: Path) -> None:
    suite = Suite("s", {}, {}, runs=(result(system="spark", phases={"addBatch": 2.0}),))
    assert "What sharing costs" not in write_page(suite, tmp_path).read_text(encoding="utf-8")
