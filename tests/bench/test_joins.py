"""The join benchmark: its queries, ratios and targets from made-up measurements, and tiny runs of its parts."""

from __future__ import annotations

import io
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from millstream.bench import join_plain
from millstream.bench.jobs import Digest, Tell
from millstream.bench.join_apart import _aggregation, _Analysing, _in_home, _memory, window_rows
from millstream.bench.join_cells import digest, each_cell
from millstream.bench.join_data import Feed, write_feed
from millstream.bench.join_drain import Budget
from millstream.bench.join_jobs import (
    Aggregation,
    ApartJob,
    ApartResult,
    CellFailed,
    Drained,
    JoinCell,
    JoinResult,
    Memory,
)
from millstream.bench.join_plan import WAYS, Plan, feeds
from millstream.bench.join_plot import draw_joins
from millstream.bench.join_report import JoinMeasurements, join_answers_agree, join_json, join_targets
from millstream.bench.join_sizes import FULL, QUICK, JoinSizes
from millstream.bench.join_tables import print_join_report
from millstream.bench.join_workload import AJOIN, ASTREAM, DEFAULT_SEED, SOURCES, WORKLOADS, chain, common_parts
from millstream.bench.joins import Options, main
from millstream.bench.machine import Machine
from millstream.bench.measure import Throughput
from millstream.bench.process import JobFailed, run_in_process
from millstream.bench.report import Target
from millstream.errors import SpecError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUIET = Machine("a processor", 2, 8 << 30, "a system", 0.1, {"python": "3.11"})
FEED = Feed("data", "AJoin", 20, 6, 20, 1)


def result(queries: int, rate: float, workload: str = "AJoin", drained: Drained | None = None) -> JoinResult:
    """One that took so many rows a second."""
    cell = JoinCell(workload, FEED, 20, 4, queries, 1, drain_rows=1000)
    return JoinResult(
        cell, Throughput(queries, int(rate), 1.0), (), Digest(5, 50), {"join: answer": 2.0}, 10, 1, drained
    )


def everything() -> JoinMeasurements:
    # 2,400,000 rows; reading all answers takes 2.4 seconds, so a million rows a second become half a million.
    read = Drained(1000, 2000, 1.2)
    ours = {1: result(1, 1e6, drained=read), 20: result(20, 8e5, drained=read), 500: result(500, 5e5, drained=read)}
    plain = {1: result(1, 1e5), 20: replace(result(20, 1e4), finished=False)}
    chains = {(n, 1): result(1, 1e6 / n, f"AJoin chain of {n}") for n in (2, 3, 5)}
    apart = ApartResult(
        Aggregation(200_000, 10**8, 0.01, 0.02, 2.0, 0.01, True),
        Memory(10**8, 10**8, True, 1 << 28, 1 << 28, 1 << 29, 0.1, 9.0),
    )
    return JoinMeasurements(
        QUIET,
        {"AJoin": ours},
        {"AJoin": plain},
        {"AJoin": {"memory": plain[1], "rocksdb": plain[1]}},
        {"AJoin": result(1, 1e5)},
        {1: ours[20], 20: ours[20]},
        {"AJoin chains": chains},
        apart,
    )


def by_name(found: JoinMeasurements) -> dict[str, Target]:
    return {target.name: target for target in join_targets(found)}


def test_half_similar_joins_share_one_attribute_with_the_pattern() -> None:
    for text in AJOIN.queries(200, 3):
        found = re.search(r"ON s1\.(a\d) = s2\.(a\d) AND", text)
        assert found is not None
        assert [name == "a1" for name in found.groups()].count(True) == 1


@pytest.mark.parametrize("similarity", [0.25, 0.5, 1.0])
def test_similarity_is_what_was_asked_for(similarity: float) -> None:
    sources, attributes = common_parts(similarity, 2, 1)
    assert sources * attributes / 4 == similarity


@pytest.mark.parametrize("kind", WORKLOADS.values(), ids=lambda kind: kind.name)
def test_fewer_queries_are_the_beginning_of_more(kind: object) -> None:
    workload = WORKLOADS[kind.name]
    assert workload.queries(20, 5)[:3] == workload.queries(3, 5)


def test_the_same_seed_has_the_same_windows_however_many_streams_are_joined() -> None:
    windows = [[re.findall(r"window\(.*?\)", text)[0] for text in chain(n).queries(20, 5)] for n in (2, 3, 5)]
    assert windows[0] == windows[1] == windows[2]


def test_the_first_astream_join_of_the_default_seed_tumbles_and_keeps_half() -> None:
    text = ASTREAM.queries(1, DEFAULT_SEED)[0]
    length, slide = re.findall(r"'(\d+) seconds', '(\d+) seconds'", text)[0]
    assert length == slide
    for operator, constant in re.findall(r"WHERE \w+ (\S+) (\d+)", text):
        kept = int(constant) / 500 if operator.startswith("<") else 1 - int(constant) / 500
        assert 0.45 < kept < 0.55


def test_streams_have_rows_of_their_own_at_the_same_pace(tmp_path: Path) -> None:
    feed = Feed(str(tmp_path / "feed"), "AJoin", 2, 1, 2, 7)
    write_feed(feed, 2)
    tables = [feed.kind.generator(feed.density, feed.of(s).seed).generate(0, 10) for s in SOURCES[:2]]
    assert tables[0]["time"] == tables[1]["time"]
    assert tables[0]["a1"] != tables[1]["a1"]
    assert len(list(Path(feed.directory, "s1").iterdir())) == 2
    assert feed.rows(2, 2) == 2 * 2 * 1000


def test_every_cell_has_more_than_one_micro_batch_and_whole_files() -> None:
    for sizes in (FULL, QUICK):
        plan = Plan(sizes, "w", 1)
        cells = [c for kind in plan.kinds for c in (*plan.ours(kind).values(), *plan.plain(kind).values())]
        cells += [c for name in WAYS for c in plan.ways(name).values()] + list(plan.sweep().values())
        assert all(cell.files > cell.files_per_batch for cell in cells)
        assert {feed.per_key for feed, _ in feeds(cells)} >= {20}
        # Both systems' input begins with the same rows.
        assert all(plan.checked(kind).feed == plan.plain(kind)[1].feed for kind in plan.kinds)


def test_ratios_and_targets() -> None:
    found = by_name(everything())
    assert found["AJoin, 1 query answered: rows/s of plain Spark"].got == 10.0
    assert found["AJoin, 1 query drained: rows/s of plain Spark"].got == pytest.approx(5.0)
    assert found["AJoin, 20 queries answered: overall of plain Spark"].got == 80.0
    assert found["AJoin, 500 queries answered: rows/s of our own at 1"].got == 0.5
    assert found["AJoin chains, 1 query: 5-way of 2-way"].got == pytest.approx(0.4)
    assert found["aggregated join: time of the pairs in DuckDB"].got == 200.0
    assert found["peak memory, large answer read"].got == 0.5
    assert all(target.met for target in found.values())


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    assert {target.met for target in join_targets(JoinMeasurements(QUIET))} == {None}


def test_answers_are_compared_where_both_systems_finished() -> None:
    found = everything()
    other = {"AJoin": replace(result(1, 1e5), first_query=Digest(5, 51))}
    cut_short = {"AJoin": {1: replace(result(1, 1e5), first_query=None, finished=False)}}
    assert join_answers_agree(found) == {"AJoin": True}
    assert join_answers_agree(replace(found, checked=other)) == {"AJoin": False}
    assert join_answers_agree(replace(found, plain=cut_short)) == {}


@pytest.mark.parametrize(
    "found", [everything(), JoinMeasurements(QUIET, failures=("it broke",))], ids=["all", "nothing"]
)
def test_the_tables_fit_eighty_characters(found: JoinMeasurements) -> None:
    screen = Console(file=io.StringIO(), width=80)
    print_join_report(found, screen)
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "Targets" in text
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_the_json_keeps_raw_numbers_and_the_plot_is_drawn(tmp_path: Path) -> None:
    body = json.loads(json.dumps(join_json(everything(), {"seed": 5})))
    assert body["ours"]["AJoin"]["1"]["answered_rate"] == 1e6
    assert body["ways"]["AJoin chains"]["5 streams, 1 queries"]["cell"]["workload"] == "AJoin chain of 5"
    pytest.importorskip("matplotlib")
    assert draw_joins(everything(), tmp_path / "joins.png")
    assert (tmp_path / "joins.png").read_bytes().startswith(b"\x89PNG")


def test_a_budget_ends_with_the_page_that_reaches_it() -> None:
    budget = Budget(10)
    assert [budget.take(4), budget.take(4), budget.take(4), budget.take(0)] == [True, True, False, False]
    assert budget.taken == 12
    assert Budget(10, until=0.0).take(1) is False


def test_a_digest_ties_the_sides_of_a_pair_together(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pairs = {"right": ([1, 2], [3, 4]), "swapped": ([1, 2], [4, 3])}
    for name, (x, y) in pairs.items():
        pq.write_table(pa.table({"k": [0, 0], "x": x, "y": y}), tmp_path / f"{name}.parquet")
    found = [digest([tmp_path / f"{name}.parquet"]) for name in pairs]
    assert found[0].rows == found[1].rows == 2
    assert found[0].total != found[1].total
    assert digest([]) == Digest(0, 0)


def test_a_cell_that_fails_does_not_cost_the_others(tmp_path: Path) -> None:
    cells = [JoinCell("AJoin", FEED, 20, 4, queries, 1) for queries in (1, 5)]

    def run(cell: JoinCell, folder: Path, tell: Tell) -> JoinResult:
        assert folder.is_dir()
        if cell.queries == 1:
            raise RuntimeError("no luck")
        return result(5, 1.0)

    first, second = each_cell(cells, "x-", str(tmp_path), lambda share, words: None, run)
    assert isinstance(first, CellFailed)
    assert "no luck" in first.reason
    assert isinstance(second, JoinResult)
    assert not list(tmp_path.iterdir())


class Streaming:
    """As much of a ``StreamingQuery`` as waiting for it needs: it has committed so many rows."""

    def __init__(self, rows: int) -> None:
        self.recentProgress = [{"numInputRows": rows, "durationMs": {"addBatch": 1}}] if rows else []

    def exception(self) -> None:
        return None


# (rows committed by each of two queries, seconds spent, whether the wait has ended) for a cell of ten seconds
WAITS = [
    ((2_400_000, 2_400_000), 0, True),
    ((5, 5), 11, False),
    # One query has nothing yet: all wait, but not for ever.
    ((5, 0), 41, False),
]


@pytest.mark.parametrize(("rows", "spent", "finished"), WAITS)
def test_plain_spark_is_not_waited_for_without_end(rows: tuple[int, int], spent: float, finished: bool) -> None:
    cell = JoinCell("AJoin", FEED, 20, 1, 2, 1, seconds=10.0)
    running = [Streaming(count) for count in rows]
    assert cell.rows == 2_400_000
    began = time.time() - spent
    assert join_plain._await(running, cell, began, lambda share, words: None) is finished  # type: ignore[arg-type]


def failing(job: ApartJob, tell: Tell) -> int:
    """Run in another process, which finds it by name."""
    tell(0.5, "half")
    raise RuntimeError(f"cannot take {job.keys} keys")


def test_a_function_that_fails_in_its_process_is_told(tmp_path: Path) -> None:
    told: list[tuple[float, str]] = []
    with pytest.raises(JobFailed, match="cannot take 7 keys"):
        run_in_process(failing, ApartJob(7, 1, 1, str(tmp_path)), lambda share, words: told.append((share, words)))
    assert told == [(0.5, "half")]


def test_unknown_parts_are_refused() -> None:
    with pytest.raises(SpecError, match="no part 'way'"):
        Options(parts=("way",))


def test_window_rows_have_every_key_equally_often() -> None:
    table = window_rows(3, 5, 40, Random(1).randrange(9))
    assert sorted(table["k"].to_pylist()) == sorted(list(range(5)) * 40)


def test_the_parts_without_workers_give_right_answers(spark: SparkSession, tmp_path: Path) -> None:
    analysing = _Analysing(spark)
    aggregation = _in_home(str(tmp_path), analysing, lambda core: _aggregation(core, 5, 40))
    assert aggregation.agree
    assert aggregation.pairs == 5 * 40 * 40
    memory = _in_home(str(tmp_path), analysing, lambda core: _memory(core, 400))
    assert memory.answer_rows == memory.read_rows == 160_000
    assert memory.agree


@pytest.mark.slow
def test_a_tiny_run_beside_plain_spark(tmp_path: Path) -> None:
    sizes = JoinSizes(
        # The other workload differs in its queries only, and would start two more Sparks.
        workloads=("AStream",),
        queries=(1, 3),
        plain_queries=(1,),
        stores=("memory",),
        per_key=2,
        batches=3,
        batch_seconds=4,
        plain_seconds=4,
        plain_batch_seconds=2,
        plain_limit=300.0,
        drain_rows=100_000,
    )
    screen = Console(file=io.StringIO(), width=100)
    found = main(Options(out=tmp_path, sizes=sizes, parts=("plain", "ours")), screen)
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert found["failures"] == [], text
    assert found["answers_agree"] == {"AStream": True}, text
    assert set(found["ours"]["AStream"]) == {"1", "3"}
    assert found["checked"]["AStream"]["first_query"]["rows"] > 0
    assert json.loads(Path(found["file"]).read_text(encoding="utf-8"))["targets"]
    assert not list(tmp_path.glob("joins-work-*"))
