"""Whether the rows of a join were described or written."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from tests.bench.reporting.suites import SQL, result

from millstream.bench.driving.model import QuerySpec, Request, RunResult, Search, Suite
from millstream.bench.reporting.joins import rows_of, rows_of_run
from millstream.bench.reporting.outcomes import Outcome
from millstream.bench.reporting.page import write_page
from millstream.bench.reporting.tables import print_suite, result_row
from millstream.bench.systems.kinds import KINDS
from millstream.bench.workloads.catalogue import WORKLOADS

JOIN = "SELECT a.key FROM a JOIN b ON a.key = b.key"
GROUPED = f"{JOIN} GROUP BY a.key"


def query(sql: str, watched: bool = True) -> QuerySpec:
    return QuerySpec("q", sql, 0, 0, watched=watched)


def run(system: str, *sql: str) -> RunResult:
    return result(workload="gaming-join", system=system, initial=tuple(map(query, sql)))


@pytest.mark.parametrize(
    ("system", "sql", "rows"),
    [
        ("millstream", JOIN, "answered"),
        ("millstream-frame", JOIN, "answered"),
        ("millstream-drained", JOIN, "drained"),
        ("spark", JOIN, "drained"),
        ("spark-merged", JOIN, "drained"),
        ("flink", JOIN, "drained"),
        ("millstream", JOIN.lower(), "answered"),
        ("millstream", GROUPED, None),
        ("millstream", GROUPED.replace("GROUP BY", "group\n  by"), None),
        ("spark", GROUPED, None),
        ("millstream", SQL, None),
        ("spark", "SELECT joiner, group_by FROM joined", None),
        ("millstream", "SELECT a.group_by FROM a JOIN b ON a.key = b.key", "answered"),
        ("millstreams", JOIN, "drained"),
    ],
)
def test_only_joins_have_rows_that_are_answered_or_drained(system: str, sql: str, rows: str | None) -> None:
    assert rows_of(system, sql) == rows


@pytest.mark.parametrize(
    ("workload", "rows"),
    [
        ("astream-join-static", "answered"),
        ("ajoin-20", "answered"),
        ("ajoin-ways-3", None),
        ("gaming-join", "answered"),
        ("gaming-sum", None),
        ("astream-static", None),
        ("astream-complex", None),
        ("nexmark-join", "answered"),
        ("nexmark-hppa", None),
        ("nexmark-hotcat", None),
        ("basic-map", None),
        ("basic-join", "answered"),
    ],
)
def test_the_queries_of_the_catalogue_are_told_apart(workload: str, rows: str | None) -> None:
    (first, *_) = WORKLOADS[workload].make(1, 40.0).initial
    assert rows_of("millstream", first.sql) == rows


def test_every_system_has_an_answer() -> None:
    assert {rows_of(name, JOIN) for name in KINDS} == {"answered", "drained"}


def test_a_run_is_known_by_any_join_whose_answers_count() -> None:
    assert rows_of_run(run("millstream", SQL, JOIN).spec) == "answered"
    assert rows_of_run(run("millstream", SQL, GROUPED).spec) is None
    later = Request(11.0, create=(query(JOIN),))
    assert rows_of_run(result(requests=(later,)).spec) == "answered"
    disturbing = Request(11.0, create=(query(JOIN, watched=False),))
    assert rows_of_run(result(requests=(disturbing,)).spec) is None


def test_tables_and_page_say_it_beside_the_system(tmp_path: Path) -> None:
    ours, drained, plain = (run(name, JOIN) for name in ("millstream", "millstream-drained", "spark"))
    names = ["millstream, answered", "millstream-drained", "spark, drained"]
    assert [result_row(Outcome(one))[1] for one in (ours, drained, plain)] == names
    suite = Suite("s", {}, {}, (Search("t", (ours,)),), (drained, plain))
    stream = io.StringIO()
    print_suite(suite, Console(file=stream, width=240))
    page = write_page(suite, tmp_path).read_text(encoding="utf-8")
    for name in names:
        assert name in stream.getvalue()
        assert f"<td>{name}</td>" in page
        assert f"<p>{name}, 1 query: " in page
    assert "A ratio of the one by the other is not of the same work" in stream.getvalue().replace("\n", " ")
    assert page.count("A ratio of the one by the other is not of the same work") == 1


def test_without_joins_nothing_is_said(tmp_path: Path) -> None:
    page = write_page(Suite("s", {}, {}, runs=(run("spark", SQL), run("millstream", GROUPED))), tmp_path)
    assert "answered" not in page.read_text(encoding="utf-8")
    assert result_row(Outcome(run("spark", SQL)))[1] == "spark"
