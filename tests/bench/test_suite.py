"""The suite: its figures from runs, its options, and a run from the command to the page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from millstream.bench import campaign, single, suite
from millstream.bench.campaign import Asked, Campaign
from millstream.bench.driving.model import Deployment, GeneratorProof, QueueSample, Request, RunResult, RunSpec, Verdict
from millstream.bench.driving.pace import pace_of
from millstream.bench.driving.trend import windows_due
from millstream.bench.effects import requests_a_second, requests_wait_longer, sharing_share, visitors_effect
from millstream.bench.reporting.storing import load
from millstream.bench.suite import SECTIONS, modest
from millstream.bench.workloads.catalogue import WORKLOADS
from millstream.errors import MillstreamError

SPEC = Asked("astream-double", "millstream", seconds=20.0, queries=2).spec(1000.0)
RUN = RunResult(
    SPEC, "", (), (), (), GeneratorProof(1, 1.0, 0.0), Verdict(True, "", 0.0, None), 0.0, 0.0, 0
)  # fmt: skip


def taken(rate_before: float, rate_after: float, change: float) -> tuple[QueueSample, ...]:
    samples = []
    for at in range(21):
        rows = min(at, change) * rate_before + max(0, at - change) * rate_after
        samples.append(QueueSample(float(at), 10**9, 10**9, int(rows), 2, 2))
    return tuple(samples)


def test_the_effect_of_newcomers_is_the_share_of_the_rate_that_is_lost() -> None:
    arrival = SPEC.requests[0].at
    assert visitors_effect(replace(RUN, queue=taken(1000, 900, arrival)), arrival) == pytest.approx(0.1, abs=0.02)
    assert visitors_effect(replace(RUN, queue=taken(1000, 1000, arrival)), arrival) == pytest.approx(0.0, abs=0.01)
    assert visitors_effect(RUN, arrival) is None
    steps = [(0, 0), (2, 1000), (7, 7000), (11, 11_800), (15, 16_600), (19, 21_160)]
    queue = [
        QueueSample(at / 4, 10**9, 10**9, max(rows for end, rows in steps if 4 * end <= at), 2, 2) for at in range(81)
    ]
    effect = visitors_effect(replace(RUN, queue=tuple(queue)), arrival)
    assert effect == pytest.approx(0.05, abs=0.001), "1200 rows a second before, 1140 after, in steps of seconds"


def test_requests_count_from_the_first_that_was_due_after_the_warm_up() -> None:
    """Ten seconds, a create and a delete each second from the first on; the last are acknowledged too late or never."""
    requests = tuple(Request(float(at)) for at in range(1, 10))
    spec = replace(SPEC, seconds=10.0, requests=requests)
    deployments = [Deployment(kind, "q", at, at + 0.1, None) for at in range(1, 9) for kind in ("create", "delete")]
    deployments += [Deployment("create", "q", 9.0, 10.1, None), Deployment("delete", "q", 9.0, None, None)]
    assert requests_a_second(replace(RUN, spec=spec, deployments=tuple(deployments))) == pytest.approx(12 / 7)
    assert requests_a_second(replace(RUN, spec=replace(SPEC, requests=()))) is None


@pytest.mark.parametrize(
    ("waits", "longer"),
    [
        ([0.1, 0.1, 0.1, 0.1, 0.1, 0.1], False),
        ([0.1, 0.4, 0.1, 0.5, 0.1, 0.4], False),
        ([0.1, 0.3, 0.5, 0.7, 0.9, 1.1], True),
        # Never acknowledged: they have waited until the end.
        ([0.1, 0.5, 1.0, 1.5, 2.5, None], True),
    ],
)
def test_requests_that_wait_longer_and_longer_are_too_many(waits: list[float | None], longer: bool) -> None:
    """Ten seconds, a request each second from the third on."""
    spec = replace(SPEC, seconds=10.0)
    made = [
        Deployment("create", "q", at, None if wait is None else at + wait, None) for at, wait in enumerate(waits, 3)
    ]
    assert requests_wait_longer(replace(RUN, spec=spec, deployments=tuple(made))) is longer


def test_the_cost_of_sharing_is_a_share_of_the_time_in_tasks() -> None:
    phases = {"read": 4.0, "classes": 1.0, "evaluate": 1.0, "aggregate": 4.0, "batch": 100.0}
    assert sharing_share(replace(RUN, phases=phases)) == pytest.approx(0.2)
    assert sharing_share(RUN) is None


def test_unknown_names_are_refused_with_the_nearest_ones() -> None:
    with pytest.raises(MillstreamError, match="no section 'singel'") as refused:
        suite.Options(sections=("singel",))
    assert "single" in (refused.value.hint or "")
    with pytest.raises(MillstreamError, match="no workload 'astream-sttic'"):
        single.Options("astream-sttic")
    with pytest.raises(MillstreamError, match="no system 'sprk'"):
        single.Options("astream-static", systems=("sprk",))
    assert suite.Options().chosen == tuple(SECTIONS) == tuple(suite.STEPS)
    assert set(SECTIONS) - set(suite.Options(quick=True).chosen) == {"workloads"}
    assert suite.Options(quick=True, sections=("workloads",)).chosen == ("workloads",)


def test_a_cell_takes_the_seed_of_its_workload_unless_another_is_asked_for() -> None:
    own, other = (Asked("astream-static", "spark", queries=3, seed=seed).spec(1.0) for seed in (None, 5))
    assert own.seed != other.seed == 5
    assert [query.sql for query in own.initial] != [query.sql for query in other.initial]
    assert Asked("astream-static", "spark", queries=1).title == "plain Spark: astream-static, 1 query"


def test_a_loop_of_creates_and_deletes_keeps_its_number() -> None:
    spec = Asked("poison-loop", "millstream", seconds=30.0).spec(1.0)
    alive: set[str] = set()
    sizes = []
    for request in spec.requests:
        assert isinstance(request, Request)
        alive |= {query.id for query in request.create}
        assert set(request.delete) <= alive
        alive -= set(request.delete)
        sizes.append(len(alive))
    assert (max(sizes), sizes[-1], len(spec.initial)) == (100, 100, 100)
    assert len({query.sql for request in spec.requests for query in request.create}) > 900
    assert all(query.watched for query in spec.initial)
    assert not any(query.watched for request in spec.requests for query in request.create)


@dataclass
class Order:
    """What a campaign would run, in its order; no process is started. Runs at some rates fail or are ended, and a
    system sustains what is below its limit."""

    started: list[str] = field(default_factory=list)
    done: list[tuple[int, RunSpec, bool]] = field(default_factory=list)
    failing: set[float] = field(default_factory=lambda: {2.0})
    interrupted: set[float] = field(default_factory=set)
    limits: dict[str, float] = field(default_factory=dict)
    queue: tuple[QueueSample, ...] = (QueueSample(1.0, 10, 10, 10, 2, 2),)

    @contextmanager
    def process(self, asked: Asked) -> Iterator[int]:
        self.started.append(asked.system)
        yield len(self.started)

    def run(self, spec: RunSpec, system: int, step: object, profiled: bool = True) -> RunResult:
        self.done.append((system, spec, profiled))
        if spec.rate in self.interrupted:
            raise KeyboardInterrupt
        failed = spec.rate in self.failing
        verdict = Verdict(not failed and spec.rate <= self.limits.get(spec.system, spec.rate), "", 0.0, None)
        return replace(RUN, spec=spec, errors=("gone",) if failed else (), queue=self.queue, verdict=verdict)


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> Order:
    order = Order()
    monkeypatch.setattr(Campaign, "_system", lambda self, asked: order.process(asked))
    monkeypatch.setattr(Campaign, "_run", lambda self, *args, **more: order.run(*args, **more))
    return order


def test_a_suite_that_is_ended_early_keeps_the_sections_that_are_complete_and_every_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: Order
) -> None:
    def first(bench: suite._Bench) -> None:
        bench.claim("first", 2.0, 3.0, "×", "")

    def second(bench: suite._Bench) -> None:
        bench.claim("second", 2.0, 1.0, "×", "")
        bench.campaign.run_together([(bench.asked("astream-double"), 1e6), (bench.asked("astream-double"), 3e6)])

    sections = {"first": first, "second": second}
    monkeypatch.setattr(suite, "SECTIONS", sections)
    monkeypatch.setattr(suite, "STEPS", dict.fromkeys(sections, 1))
    order.interrupted = {3e6}
    with pytest.raises(KeyboardInterrupt):
        suite.main(suite.Options(tmp_path), Console(quiet=True))
    (directory,) = tmp_path.iterdir()
    found = load(directory)
    assert [claim.name for claim in found.claims] == ["first"]
    assert found.options["sections"] == ["first"]
    assert found.options["ended in"] == "second"
    assert [run.spec.rate for run in found.runs] == [1e6]
    assert "first" in (directory / "index.html").read_text(encoding="utf-8")
    assert not list(directory.glob("work-*")), "rows and homes are gone"


@pytest.mark.parametrize(("workload", "requests"), [("astream-churn", True), ("poison-groups", False)])
def test_a_warm_up_has_the_requests_of_its_workload_but_nobody_who_disturbs(
    tmp_path: Path, order: Order, workload: str, requests: bool
) -> None:
    Campaign(tmp_path, Console(quiet=True), steps=1).run(Asked(workload, "millstream", seconds=40.0), 5e6)
    (_, warm_up, profiled), (_, measured, _) = order.done
    assert not profiled
    assert bool(warm_up.requests) is requests
    assert all(one.at < warm_up.seconds < measured.seconds for one in warm_up.requests)
    assert measured.requests
    assert (warm_up.rate, measured.rate) == (1e6, 5e6)


@pytest.mark.parametrize("name", [name for name in WORKLOADS if not name.startswith("poison-")])
def test_windows_of_every_workload_close_in_its_run(name: str) -> None:
    """Those of the longest window of it, long before the end."""
    cell, rate = modest(Asked(name, "millstream", seconds=16.0))
    spec = cell.spec(rate)
    queries = [*spec.initial, *(query for request in spec.requests for query in request.create)]
    longest = max(queries, key=lambda query: query.length + query.slide)
    pace = pace_of(spec)
    assert not longest.slide or windows_due(replace(spec, initial=(longest,), requests=()), pace, 6.0) > 0
    assert 4_000 <= spec.density <= 1_000_000


def test_a_search_goes_on_with_a_fresh_process_where_a_candidate_has_failed(tmp_path: Path, order: Order) -> None:
    asked = Asked("astream-double", "millstream", seconds=24.0, queries=2)
    bench = Campaign(tmp_path, Console(quiet=True), steps=1)
    order.failing = {4e6}
    found = bench.search(asked, 4e6, most_runs=3)
    rates = [(system, spec.rate) for system, spec, _ in order.done if spec.seconds == 24.0]
    assert rates == [(1, 4e6), (2, 1e6), (2, 2e6)]
    assert not any(profiled for _, _, profiled in order.done), "a rate would be that of a profiled system"
    assert [run.verdict.sustained for run in found.runs] == [False, True, True]
    assert bench.failures == [], "a system that gives up at a rate is a result"


def test_a_system_that_cannot_begin_ends_its_search_with_the_reason(tmp_path: Path, order: Order) -> None:
    order.queue = ()
    order.failing = {1.0}
    asked = Asked("astream-double", "millstream", seconds=20.0, queries=2)
    bench = Campaign(tmp_path, Console(quiet=True), steps=1)
    found = bench.search(asked, 1.0, most_runs=3)
    assert [profiled for _, _, profiled in order.done] == [False], "the warm-up says it already"
    assert [(run.spec.rate, run.spec.seconds, run.errors) for run in found.runs] == [(1.0, 20.0, ("gone",))]
    assert bench.failures == ["Millstream: astream-double, 2 queries: gone"]


def test_runs_together_share_a_process_until_one_fails(tmp_path: Path, order: Order) -> None:
    several = Campaign(tmp_path, Console(quiet=True), steps=4)
    asked = Asked("astream-double", "millstream", seconds=20.0, queries=2)
    several.run_together((asked, rate) for rate in (1.0, 2.0, 3.0, 4.0))
    assert order.started == ["millstream"] * 2
    warm_up = False
    assert [(system, spec.rate, profiled) for system, spec, profiled in order.done] == [
        (1, 1.0, warm_up), (1, 1.0, True), (1, 2.0, True), (2, 3.0, warm_up), (2, 3.0, True), (2, 4.0, True)
    ]  # fmt: skip
    assert [run.spec.rate for run in several.runs] == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(("free", "told"), [(39, True), (41, False)])
def test_a_disk_that_may_be_too_small_is_said_before_the_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, told: bool
) -> None:
    monkeypatch.setattr(campaign.shutil, "disk_usage", lambda path: SimpleNamespace(free=free * 10**9))
    screen = Console(file=StringIO(), width=200)
    with Campaign(tmp_path, screen, steps=1).opened():
        assert isinstance(screen.file, StringIO)
        assert ("39 GB are free" in screen.file.getvalue()) is told


@pytest.mark.parametrize("held", [True, False])
def test_a_latency_beside_others_of_a_run_that_was_not_sustained_is_missed(
    tmp_path: Path, order: Order, held: bool
) -> None:
    order.limits = {} if held else {"millstream": suite.MODEST / 2}
    bench = suite._Bench(Campaign(tmp_path, Console(quiet=True), steps=8), suite.Options(tmp_path))
    SECTIONS["poison"](bench)
    assert len(bench.claims) == 7
    assert {claim.held for claim in bench.claims} == {held}


@pytest.mark.parametrize("faster", ["spark", "spark-memory"])
def test_plain_spark_has_the_faster_of_its_state_stores(tmp_path: Path, order: Order, faster: str) -> None:
    order.limits = {"millstream": 40e6, "spark": 9e6, "spark-memory": 9e6} | {faster: 20e6}
    bench = suite._Bench(Campaign(tmp_path, Console(quiet=True), steps=8), suite.Options(tmp_path))
    SECTIONS["single"](bench)
    first = bench.claims[0]
    assert first.got is not None
    assert 40 / 20 / 1.12 <= first.got <= 40 / 20 * 1.12
    asked = [spec.system for _, spec, _ in order.done if spec.seconds == 24.0]
    assert asked[-1] == faster, "once more at the end"
    SECTIONS["queries"](bench)
    more = {spec.system for _, spec, _ in order.done if len(spec.initial) > 1}
    assert more == {"millstream", faster}


@pytest.mark.parametrize(("rate", "profiled"), [(None, [8e6]), (3e6, [3e6])])
def test_a_profile_is_of_the_run_at_the_rate(
    tmp_path: Path, order: Order, monkeypatch: pytest.MonkeyPatch, rate: float | None, profiled: list[float]
) -> None:
    """After a search that of a run more, at the rate that was found."""
    monkeypatch.setattr(single, "start_of", lambda asked: 8e6)
    monkeypatch.setattr(campaign, "find_profiler", lambda: "py-spy")
    order.limits = {"millstream": 8e6}
    found = single.main(single.Options("astream-single", tmp_path, rate=rate, profile=True), Console(quiet=True))
    runs = load(Path(found["directory"])).runs
    assert [run.spec.rate for run in runs] == profiled
    assert [spec.rate for _, spec, wanted in order.done if wanted] == profiled


@pytest.mark.slow
def test_a_run_from_its_options_to_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "WARM_UP_SECONDS", 4.0)
    options = single.Options(
        "astream-sc2-10", tmp_path, rate=20_000.0, seconds=10.0, queries=10, density=20_000, profile=True
    )
    result = single.main(options, Console(quiet=True))
    directory = Path(result["directory"])
    assert result["failures"] == []
    found = load(directory)
    (run,) = found.runs
    assert run.errors == ()
    assert run.queue[-1].taken > 0
    assert {one.kind for one in run.deployments} == {"create", "delete"}
    page = (directory / "index.html").read_text(encoding="utf-8")
    assert "astream-sc2-10" in page
    # Where the system does not allow py-spy to look into other processes, the run says so and goes on.
    assert run.profiles or run.system["profile"].startswith("no profile:")
    assert not list(directory.glob("work-*")), "rows and homes are gone"
