"""The page: whole, escaped, and with everything on it."""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.bench.reporting.suites import SQL, deployed, queries, result, sweep

from millstream.bench.campaign import Asked
from millstream.bench.driving.model import Deployment, Search, Suite
from millstream.bench.reporting import plots
from millstream.bench.reporting.markup import VOID
from millstream.bench.reporting.page import write_page


class Reader(HTMLParser):
    """Collects text, names and links, and fails at a tag that is closed by another."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "xlink:href", "src"):
                self.references.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_page(sweep(), tmp_path_factory.mktemp("page")).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def reader(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


def test_every_tag_is_closed(reader: Reader) -> None:
    assert reader.open == []
    assert "svg" in reader.tags


def test_the_page_needs_nothing_else(reader: Reader, page: str) -> None:
    assert not reader.tags & {"script", "link", "img", "iframe", "object"}
    assert all(reference.startswith("#") for reference in reader.references)
    assert {reference[1:] for reference in reader.references} <= set(reader.ids)
    assert not re.findall(r"@import|url\((?!#)", page)


def test_names_are_unique_over_all_drawings(reader: Reader, page: str) -> None:
    assert len(reader.ids) == len(set(reader.ids))
    assert set(re.findall(r"url\(#([^)]*)\)", page)) <= set(reader.ids)


def test_text_is_escaped(reader: Reader, page: str) -> None:
    text = "".join(reader.text)
    for shown in ("A <b>suite</b>", SQL, "<script>alert('x')</script> & more", "setting <x>", "astream-sc1 <100>"):
        assert shown in text
        assert escape(shown) in page
        assert shown not in page
    assert "b" not in reader.tags


def test_what_a_reader_looks_for_is_there(reader: Reader) -> None:
    text = " ".join("".join(reader.text).split())
    for words in (
        "1 of 4 figures to reach were reached",
        "1,240 ×",
        "missed: 0.45 of at most 0.3, 50 % over",
        "missed: not sustained; 230 of 200",
        "not measured",
        "flink: not there",
        "astream-sc2",
        "highest sustained of 2 rates",
        "none of 1 rate sustained",
        "the queue grew all the time",
        "At 10 rows/s the queue grew by +5 rows/s",
        "fast enough",
        "8.0 GiB",
        "millstream bench suite --quick --seed=1 --section=single '--section=<b>'",
        "a system, commit abc1234+",
        "deployment, acknowledged",
        "slowest data throughput",
        "overall data throughput",
    ):
        assert words in text


def test_claims_come_before_results(page: str) -> None:
    assert page.index("figures to reach") < page.index('id="results"') < page.index('id="workload-astream-sc1"')


def test_drawings_take_the_colour_of_the_page(page: str, tmp_path: Path) -> None:
    assert "currentColor" in page
    assert "#24292f" not in page
    write_page(sweep(), tmp_path)
    names = {path.name for path in (tmp_path / "plots").iterdir()}
    assert {"astream-sc1-throughput.svg", "astream-sc1-sharing-millstream.svg", "astream-sc1-queue-1.svg"} <= names
    assert {"astream-sc2-fluctuation-1.svg", "astream-sc2-deployment.svg", "astream-sc2-breakdown.svg"} <= names


def test_other_densities_and_cores_have_plots_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And are no lines of one point, and no bars, among those of the number of queries."""
    shared: list[tuple[int, int]] = []
    monkeypatch.setattr(
        plots, "sharing", lambda runs, path: shared.extend((run.spec.density, run.spec.cores) for run in runs)
    )
    suite = sweep()
    odd = [result(rate=500.0, density=100_000), result(rate=2500.0, cores=1), result(rate=9000.0, density=0)]
    odd += [result(rate=800.0, system="flink", density=20_000)]
    more = [Search("odd", (run,)) for run in odd]
    write_page(replace(suite, searches=(*suite.searches, *more)), tmp_path)
    drawn = {name: (tmp_path / "plots" / f"astream-sc1-{name}.svg").read_text() for name in ("throughput", "density")}
    assert "density" not in drawn["throughput"]
    assert "core" not in drawn["throughput"]
    assert "100k" in drawn["density"]
    assert "flink" not in drawn["density"], "a point makes no line"
    assert "queries" not in drawn["density"]
    assert (tmp_path / "plots" / "astream-sc1-cores.svg").exists()
    assert len(shared) > 1
    assert len(set(shared)) == 1


def test_a_number_of_queries_is_shown_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several searches the highest sustained rate, and no run under overload."""
    shown: dict[str, list[tuple[int, float]]] = {"throughput": [], "sharing": []}
    for name, drawn in shown.items():
        monkeypatch.setattr(
            plots,
            name,
            lambda runs, path, drawn=drawn: drawn.extend((len(run.spec.initial), run.spec.rate) for run in runs),
        )
    phases = {"read": 1.0, "classes": 1.0}
    searches = [
        Search("t", (result(rate=rate, initial=queries(number), phases=phases),))
        for number, rate in ((1, 900.0), (5, 700.0), (1, 800.0), (5, 750.0))
    ]
    overload = result(rate=9000.0, sustained=False, initial=queries(5), phases=phases)
    write_page(Suite("s", {}, {}, tuple(searches), (overload,)), tmp_path)
    assert shown == {"throughput": [(1, 900.0), (5, 750.0)], "sharing": [(1, 900.0), (5, 750.0)]}


def test_profiles_of_the_report_alone_are_shown(tmp_path: Path) -> None:
    run = replace(result(), profiles=("profiles/driver.svg", "javascript:alert(1)", "../../etc/passwd", "/etc/passwd"))
    reader = Reader()
    reader.feed(write_page(Suite("s", {}, {}, runs=(run,)), tmp_path).read_text(encoding="utf-8"))
    assert [one for one in reader.references if not one.startswith("#")] == ["profiles/driver.svg"] * 2


def test_an_empty_suite_has_a_page(tmp_path: Path) -> None:
    reader = Reader()
    reader.feed(write_page(Suite("nothing", {}, {}), tmp_path).read_text(encoding="utf-8"))
    assert reader.open == []
    assert "Nothing was measured." in reader.text


def test_a_figure_that_was_not_sustained_is_a_bad_card(page: str) -> None:
    cards = re.findall(r'<article class="card[^"]*">.*?</article>', page)
    kinds = [re.findall(r'class="card([^"]*)"', card)[0].strip() for card in cards]
    assert kinds == ["good", "bad", "", "bad"]
    assert '<p class="value">230 /s</p>' in cards[3]


def test_requests_that_the_run_ended_on_are_counted(tmp_path: Path) -> None:
    never = (Deployment("create", "q8", 20.0, None, None), Deployment("create", "q9", 20.0, 21.0, None))
    run = result(deployments=(*deployed(0.1, 0.2), *never))
    text = " ".join(write_page(Suite("s", {}, {}, runs=(run,)), tmp_path).read_text(encoding="utf-8").split())
    assert "Of 4 requests, before the run ended: never acknowledged 1, never in effect 2." in text
    assert "never acknowledged" not in write_page(sweep(), tmp_path).read_text(encoding="utf-8")


def test_a_result_says_how_often_requests_came(tmp_path: Path) -> None:
    """SC2 has ten each ten seconds; in a short run they come faster."""
    spec = Asked("astream-sc2-10", "millstream", seconds=24.0).spec(1e6)
    page = write_page(Suite("s", {}, {}, runs=(replace(result(), spec=spec),)), tmp_path).read_text(encoding="utf-8")
    assert "4 times, each 4.8 s in 24 s: up to 10 creates and 10 deletes" in page
