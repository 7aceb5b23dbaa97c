"""The driver without a system: pace, queues, verdicts and the search."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from millstream.bench.driving.feeding import Feeder, Store
from millstream.bench.driving.model import (
    GeneratorProof,
    Latency,
    QuerySpec,
    QueueSample,
    RunResult,
    RunSpec,
    StreamSpec,
    Verdict,
)
from millstream.bench.driving.pace import Pace, pace_of
from millstream.bench.driving.search import search
from millstream.bench.driving.trend import judge
from millstream.sources.generators import DEFAULT_START, MICROS

TUPLES = StreamSpec("tuples", {"source": "astream"}, "")


def spec(rate: float = 1000.0, seconds: float = 20.0, **more: object) -> RunSpec:
    return RunSpec("w", "s", (TUPLES,), (), (), rate, seconds, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("row", [0, 1, 399, 400, 401, 5000])
def test_a_row_is_due_when_the_pace_says_so(row: int) -> None:
    pace = pace_of(spec(100.0, rates=((0.0, 1.0), (4.0, 0.25), (8.0, 2.0)), density=50))
    assert pace.due(pace.moment(row)) == row
    assert pace.moment_of(DEFAULT_START + row * MICROS // 50) == pytest.approx(pace.moment(row))


def test_without_a_density_event_time_is_that_of_the_clock() -> None:
    pace = pace_of(spec(2000.0, density=0))
    assert pace.moment_of(DEFAULT_START + 3 * MICROS) == pytest.approx(3.0)


def test_files_are_released_in_order_and_hold_the_rows_of_the_generator(tmp_path: Path) -> None:
    store = Store(tmp_path / "rows")
    said: list[str] = []
    supply = store.supply(TUPLES, 1000, 1, 40_000.0, 16_000, "parquet", said.append)
    again = store.supply(TUPLES, 1000, 1, 40_000.0, 8_000, "parquet", said.append)
    more = store.supply(TUPLES, 1000, 1, 40_000.0, 24_000, "parquet", said.append)
    assert (supply.directory, supply.files, again.files, more.files) == (more.directory, 4, 2, 6)
    assert len(said) == 2, "files that are there are not made again"
    queue = tmp_path / "queue"
    queue.mkdir()
    feeder = Feeder([supply], [queue], Pace((0.0,), (200_000.0,), 1000))
    feeder.start(time.time())
    deadline = time.monotonic() + 60
    while feeder.released < 16_000 and time.monotonic() < deadline:
        time.sleep(0.01)
    proof = feeder.stop()
    files = sorted(queue.iterdir())
    assert [path.stat().st_mtime for path in files] == sorted(path.stat().st_mtime for path in files)
    table = ds.dataset([str(path) for path in files]).to_table()
    assert table["key"].to_pylist() == [row % 1000 for row in range(16_000)]
    assert (proof.rows, proof.capacity > 0, proof.late >= 0) == (16_000, True, True)
    assert pq.read_metadata(files[0]).num_row_groups == 2


def test_a_store_keeps_what_was_used_last_and_makes_the_rest_again(tmp_path: Path) -> None:
    def ask(store: Store, seed: int) -> Path:
        return store.supply(TUPLES, 1000, seed, 8_000.0, 2_000, "parquet", said.append).path(1)

    said: list[str] = []
    measure = Store(tmp_path / "measure")
    size = sum(path.stat().st_size for path in ask(measure, 1).parent.iterdir())
    store = Store(tmp_path / "rows", most_kept=5 * size // 2)
    paths = [ask(store, seed) for seed in (1, 2, 3, 1)]
    queue = tmp_path / "queue"
    os.link(paths[1], queue)
    assert all(path.exists() for path in paths), "nothing goes during a run"
    store.trim()
    assert [path.exists() for path in paths] == [True, False, True, True]
    assert pq.read_table(queue).num_rows == 1_000, "a queue has what it was given"
    store.trim()
    said.clear()
    assert [ask(store, seed).exists() for seed in (3, 2)] == [True, True]
    assert len(said) == 1, "what is gone is made again"
    pq.read_table(paths[1])


def test_queues_forget_what_was_taken_long_ago(tmp_path: Path) -> None:
    supply = Store(tmp_path / "rows").supply(TUPLES, 1000, 1, 100.0, 4_000, "parquet", lambda words: None)
    queue = tmp_path / "queue"
    queue.mkdir()
    # A file of a thousand rows is due every ten seconds; the run began long ago, so all are released at once.
    feeder = Feeder([supply], [queue], Pace((0.0,), (100.0,), 1000))
    feeder.start(time.time() - 1000)
    deadline = time.monotonic() + 60
    while feeder.released < 4_000 and time.monotonic() < deadline:
        time.sleep(0.01)
    names = [supply.path(number).name for number in range(4)]
    left = []
    for taken in (0, 1_000, 6_000, 8_001, 8_001, 100_000):
        feeder.forget(taken)
        left.append(sorted(path.name for path in queue.iterdir()))
    feeder.stop()
    assert left == [names, names, names, names[2:], names[2:], []]
    assert all(supply.path(number).exists() for number in range(4)), "other runs need them"


def test_streams_share_the_rate_and_stay_together(tmp_path: Path) -> None:
    store = Store(tmp_path / "rows")
    small = StreamSpec("small", {"source": "astream"}, "", share=1.0)
    large = StreamSpec("large", {"source": "astream"}, "", share=3.0)
    supplies = [
        store.supply(small, 250, 1, 10_000.0, 5_000, "parquet", lambda words: None),
        store.supply(large, 750, 2, 30_000.0, 15_000, "parquet", lambda words: None),
    ]
    feeder = Feeder(supplies, [tmp_path, tmp_path], Pace((0.0,), (40_000.0,), 1000))
    moments = {(stream, number): moment for moment, stream, number in feeder._schedule()}
    last = [moments[stream, supply.files - 1] for stream, supply in enumerate(supplies)]
    ends = [supply.files * supply.file_rows / share for supply, share in zip(supplies, (0.25, 0.75), strict=True)]
    assert [round(moment * 40_000) for moment in last] == [round(end) for end in ends]


def samples(taken_share: float, seconds: float = 20.0, rate: float = 1000.0) -> list[QueueSample]:
    """A system that takes a share of the rate, in batches of a second."""
    times = [0.25 * step for step in range(1, int(seconds * 4) + 1)]
    return [QueueSample(at, int(at * rate), int(at * rate), int(int(at) * rate * taken_share), 1, 1) for at in times]


@pytest.mark.parametrize(("share", "sustained"), [(1.0, True), (0.99, True), (0.9, False), (0.5, False)])
def test_a_growing_queue_is_not_sustained(share: float, sustained: bool) -> None:
    verdict = judge(spec(), pace_of(spec()), samples(share), (), ())
    assert verdict.sustained is sustained
    assert verdict.reason.startswith("sustained: the queue" if sustained else "not sustained: the queue")
    assert verdict.queue_slope == pytest.approx(1000.0 * (1 - share), abs=25)


def test_latency_that_grows_is_not_sustained_even_where_the_queue_is_flat() -> None:
    flat, growing = ([Latency(at, 1.0 + grow * at, 0.5, 1) for at in range(5, 20)] for grow in (0.0, 0.2))
    assert judge(spec(), pace_of(spec()), samples(1.0), flat, ()).sustained
    verdict = judge(spec(), pace_of(spec()), samples(1.0), growing, ())
    assert not verdict.sustained
    assert "latency grows by 200 ms a second" in verdict.reason
    assert verdict.latency_slope == pytest.approx(0.2)


def test_what_could_be_noise_is_not_held_against_a_system() -> None:
    """The same slope, as a line and as the chance end of a saw with few teeth."""
    times = [0.25 * step for step in range(1, 81)]
    line = [Latency(at, 1.0 + 0.05 * at, 0.5, 1) for at in times]
    assert not judge(spec(), pace_of(spec()), samples(1.0), line, ()).sustained
    saw = [Latency(at, 1.0 + 0.05 * at + (at + 2) % 6 / 6, 0.5, 1) for at in times]
    few = [QueueSample(at, int(at * 1000), int(at * 1000), int(at / 4) * 4000, 1, 1) for at in times]
    verdict = judge(spec(), pace_of(spec()), few, saw, ())
    assert verdict.latency_slope is not None
    assert verdict.latency_slope > 0.03
    assert verdict.sustained, verdict.reason
    growing = [Latency(one.at, one.event + one.at, 0.5, 1) for one in saw]
    assert not judge(spec(), pace_of(spec()), few, growing, ()).sustained


def test_errors_and_too_few_samples_are_verdicts_too() -> None:
    assert judge(spec(), pace_of(spec()), samples(1.0), (), ("boom\ntrace",)).reason == "not sustained: boom"
    assert "too few samples" in judge(spec(), pace_of(spec()), samples(1.0)[:1], (), ()).reason


def test_a_rate_that_falls_is_judged_by_time_not_by_rows() -> None:
    changing = spec(1000.0, rates=((0.0, 1.0), (10.0, 0.25)))
    pace = pace_of(changing)
    seen = [
        QueueSample(at, pace.due(at), pace.due(at), pace.due(max(0.0, at - 0.5)), 1, 1)
        for at in (0.25 * step for step in range(1, 81))
    ]
    assert judge(changing, pace, seen, (), ()).sustained


def run_of(rate: float, limit: float) -> RunResult:
    """A system that sustains what is at most its limit."""
    good = rate <= limit
    verdict = Verdict(good, "", 0.0 if good else rate - limit, None)
    return RunResult(spec(rate), "", (), (), (), GeneratorProof(1, 1.0, 0.0), verdict, min(rate, limit), 0.0, 0)


@pytest.mark.parametrize("limit", [900.0, 10_000.0, 99_000.0, 340_000.0])
@pytest.mark.parametrize("start", [1_000.0, 100_000.0])
def test_the_search_closes_in_on_the_limit(limit: float, start: float) -> None:
    found = search("t", start, lambda rate: run_of(rate, limit), most_runs=20)
    assert found.best is not None
    assert limit / 1.12 <= found.best.spec.rate <= limit
    assert len(found.runs) <= 16


def test_the_search_ends_where_nothing_is_taken_at_hardly_any_rows() -> None:
    found = search("t", 10_000.0, lambda rate: replace(run_of(rate, 0.0), queue=tuple(samples(0.0))))
    assert [run.spec.rate for run in found.runs] == [10_000.0, 2_500.0, 625.0]
    assert found.best is None


def test_the_search_ends_where_a_system_could_not_begin() -> None:
    found = search("t", 10_000.0, lambda rate: replace(run_of(rate, 0.0), errors=("no Java",)))
    assert [run.errors for run in found.runs] == [("no Java",)]


@pytest.mark.parametrize(
    ("windows", "seconds", "due"),
    [
        # length, slide, watched; the last window counted ends at 10 of 20 seconds, at a pace of two for one.
        (((4, 4, True),), 20.0, 5),
        (((4, 2, True), (5, 5, False), (0, 0, True)), 20.0, 9),
        (((21, 1, True),), 20.0, 0),
        (((4, 4, True),), 60.0, 22),
    ],
)
def test_windows_that_were_over_long_before_the_end_must_have_been_answered(
    windows: tuple[tuple[int, int, bool], ...], seconds: float, due: int
) -> None:
    initial = tuple(QuerySpec("q", "", a * MICROS, b * MICROS, watched=watched) for a, b, watched in windows)
    asked = replace(spec(seconds=seconds), initial=initial, density=500)
    verdict = judge(asked, pace_of(asked), samples(1.0, seconds), (), ())
    assert not verdict.sustained
    told = f"not sustained: no answer, though {due} windows" if due else "not known to be sustained: no window was over"
    assert verdict.reason.startswith(told)
    answered = [Latency(float(at), 1.0, 0.5, 1) for at in range(5, int(seconds))]
    assert judge(asked, pace_of(asked), samples(1.0, seconds), answered, ()).sustained


@pytest.mark.parametrize(
    ("answered", "sustained"),
    [
        # Windows end each two seconds; their latency, as far as there are answers.
        ([1.0] * 9, True),
        ([1.0] * 8, True),
        ([1.0, 3.0, 5.0], False),
        ([5.0], False),
        ([1.0, 1.0, 1.0, 1.0], False),
    ],
)
def test_windows_that_wait_when_the_run_ends_count(answered: list[float], sustained: bool) -> None:
    """The queue is flat, but fires fall behind: what has no answer yet is the slowest."""
    initial = (QuerySpec("q", "", 4 * MICROS, 4 * MICROS),)
    asked = replace(spec(seconds=20.0), initial=initial, density=500)
    ends = [2.0 * number for number in range(1, len(answered) + 1)]
    found = [Latency(end + event, event, 0.5, 1) for end, event in zip(ends, answered, strict=True)]
    verdict = judge(asked, pace_of(asked), samples(1.0), found, ())
    assert verdict.sustained is sustained, verdict.reason
    assert sustained or "latency grows by" in verdict.reason


def test_queries_without_windows_need_no_answers() -> None:
    """A filter that nothing passes."""
    asked = replace(spec(), initial=(QuerySpec("q", "", 0, 0),))
    assert judge(asked, pace_of(asked), samples(1.0), (), ()).sustained


def test_a_flat_queue_may_be_as_old_as_a_quarter_of_the_run() -> None:
    """Micro-batches of 12 seconds, in a run that has several of them and in one that has not."""
    for seconds, sustained in ((72.0, True), (24.0, False)):
        times = [0.25 * step for step in range(1, int(seconds * 4) + 1)]
        seen = [QueueSample(at, int(at * 1000), int(at * 1000), int((at - 12.0) * 1000), 1, 1) for at in times]
        assert judge(spec(seconds=seconds), pace_of(spec()), seen, (), ()).sustained is sustained


@pytest.mark.parametrize(
    ("limit", "rates"),
    [
        (3e6, [8e6, 2.7e6, 4.647580e6]),
        (1e6, [8e6, 2e6, 0.9e6, 1.341641e6]),
        (40e3, [8e6, 2e6, 0.5e6, 0.125e6, 36e3, 67.082039e3]),
        (1e3, [8e6, 2e6, 0.5e6, 0.125e6, 31.25e3, 7.8125e3]),
    ],
)
def test_candidates_that_only_lead_down_are_extra(limit: float, rates: list[float]) -> None:
    """A system that sustains a hundredth of the first rate is measured as closely as one that sustains half of it."""
    found = search("t", 8e6, lambda rate: run_of(rate, limit), most_runs=3)
    assert [run.spec.rate for run in found.runs] == pytest.approx(rates)


def test_the_search_stops_at_the_most_runs() -> None:
    assert len(search("t", 1.0, lambda rate: run_of(rate, 1e12), most_runs=4).runs) == 4
