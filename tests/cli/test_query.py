"""``millstream query`` over an engine in memory."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from tests.server.fake import FakeEngine
from typer.testing import Result

from millstream.cli.options import connect
from millstream.cli.watch import follow, watch_table
from millstream.engine.status import QueryRequest

Millstream = Callable[..., Result]
SQL = "SELECT gem_pack, SUM(price) AS revenue FROM purchases GROUP BY gem_pack, window(time, '4 seconds')"


def create(engine: FakeEngine, id: str = "q", windows: int = 0, owner: str = "marketing") -> None:
    engine.create_queries([QueryRequest(SQL, owner, id)])
    if windows:
        engine.fire(id, windows)


def test_create_says_id_epoch_and_time(millstream: Millstream, engine: FakeEngine) -> None:
    result = millstream("query", "create", SQL, "--owner", "marketing")
    assert re.fullmatch(r"created q-0000  epoch 12  in \d+\.\d+ s\n", result.stdout)
    assert engine.query("q-0000").status().owner == "marketing"


def test_create_reads_a_file_or_standard_input(millstream: Millstream, engine: FakeEngine, tmp_path: Path) -> None:
    (tmp_path / "revenue.sql").write_text(SQL + "\n")
    assert millstream("query", "create", "--file", str(tmp_path / "revenue.sql"), "--id", "a").exit_code == 0
    assert millstream("query", "create", "-", "--id", "b", input=SQL + "\n").exit_code == 0
    assert engine.query("a").status().sql == engine.query("b").status().sql == SQL


def test_create_as_json(millstream: Millstream, engine: FakeEngine) -> None:
    body = json.loads(millstream("query", "create", SQL, "--json").stdout)
    assert (body["id"], body["epoch"], body["cut"]) == ("q-0000", 12, {"purchases": 3})


@pytest.mark.parametrize("arguments", [(), (SQL, "--file", "x.sql")])
def test_create_wants_one_text(millstream: Millstream, engine: FakeEngine, arguments: tuple[str, ...]) -> None:
    assert millstream("query", "create", *arguments).exit_code == 2


def test_a_missing_file_is_named(millstream: Millstream, engine: FakeEngine) -> None:
    result = millstream("query", "create", "--file", "nowhere.sql")
    assert result.exit_code == 1
    assert "BAD_FILE: cannot read nowhere.sql: No such file or directory" in result.stderr


def test_a_refused_query_is_shown_with_its_place(millstream: Millstream, engine: FakeEngine) -> None:
    result = millstream("query", "create", "SELECT\n  prize\nFROM purchases")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "UNKNOWN_COLUMN: no column 'prize'",
        "  line 2, column 3",
        "      prize",
        "      ^^^^^",
        "hint: did you mean price?",
    ]


def test_a_refused_query_as_json(millstream: Millstream, engine: FakeEngine) -> None:
    result = millstream("query", "create", "SELECT prize", "--json")
    assert result.exit_code == 1
    error = json.loads(result.stderr)["error"]
    assert (error["code"], error["position"]["column"]) == ("UNKNOWN_COLUMN", 8)


def test_list_hides_deleted_queries_unless_asked(millstream: Millstream, engine: FakeEngine) -> None:
    create(engine, "a", windows=3)
    create(engine, "b", owner="finance")
    engine.delete_queries(["b"])
    shown = millstream("query", "list").stdout
    assert re.search(r"^a +marketing +running +3 +6 +0 +0 +SELECT gem_pack", shown, re.MULTILINE)
    assert "finance" not in shown
    assert "finance" in millstream("query", "list", "--all").stdout
    body = json.loads(millstream("query", "list", "--json", "--state", "deleted").stdout)
    assert [item["id"] for item in body["queries"]] == ["b"]
    assert "0 queries" in millstream("query", "list", "--owner", "nobody").stdout


def test_show(millstream: Millstream, engine: FakeEngine) -> None:
    create(engine, windows=2)
    shown = millstream("query", "show", "q").stdout
    assert "purchases from batch 3" in shown
    assert "revenue decimal(20,2)" in shown
    assert SQL in shown
    assert json.loads(millstream("query", "show", "q", "--json").stdout)["windows"] == 2


def test_watch_into_a_pipe_prints_tab_separated_lines(millstream: Millstream, engine: FakeEngine) -> None:
    create(engine, windows=2)
    result = millstream("query", "watch", "q", "--limit", "2")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "window_start\twindow_end\tpartial\tgem_pack\trevenue\tmean",
        "2026-01-01T00:00:00Z\t2026-01-01T00:00:04Z\ttrue\t1\t10.50\tNaN",
        "2026-01-01T00:00:00Z\t2026-01-01T00:00:04Z\ttrue\t2\tNULL\t1.5",
        "2026-01-01T00:00:04Z\t2026-01-01T00:00:08Z\tfalse\t1\t10.50\tNaN",
        "2026-01-01T00:00:04Z\t2026-01-01T00:00:08Z\tfalse\t2\tNULL\t1.5",
    ]


def test_watch_as_json_gives_one_line_for_each_answer(millstream: Millstream, engine: FakeEngine) -> None:
    create(engine, windows=3)
    lines = [
        json.loads(text) for text in millstream("query", "watch", "q", "--json", "--limit", "2").stdout.splitlines()
    ]
    assert [item["cursor"] for item in lines] == ["c1", "c2"]
    rest = millstream("query", "watch", "q", "--json", "--limit", "1", "--cursor", "c2").stdout
    assert json.loads(rest)["cursor"] == "c3"


def test_watch_says_what_an_answer_lacks(millstream: Millstream, engine: FakeEngine) -> None:
    create(engine, windows=2)
    engine.known["q"].log[1] = replace(engine.known["q"].log[1], incomplete="buckets/x is missing")
    engine.known["q"].state = replace(engine.known["q"].state, incomplete=1)
    result = millstream("query", "watch", "q", "--limit", "2")
    assert len(result.stdout.splitlines()) == 1 + 4
    assert "00:00:04 – 2026-01-01 00:00:08  incomplete: buckets/x is missing" in result.stderr
    lines = millstream("query", "watch", "q", "--json", "--limit", "2").stdout.splitlines()
    assert [json.loads(line)["incomplete"] for line in lines] == [None, "buckets/x is missing"]
    assert "1 windows" in millstream("query", "show", "q").stdout
    with connect(engine.home, None) as client:
        console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
        watch_table(client, client.query("q"), None, 1, console)
    shown = console.export_text()
    assert "incomplete" in shown
    assert "buckets/x is missing" in shown


def test_watch_goes_on_behind_a_damaged_answer(millstream: Millstream, engine: FakeEngine) -> None:
    create(engine, windows=3)
    engine.known["q"].damaged = {1}
    result = millstream("query", "watch", "q", "--json", "--limit", "2")
    assert [json.loads(line)["cursor"] for line in result.stdout.splitlines()] == ["c1", "c3"]
    assert "DAMAGED_FILE: answers/x.answers is altered" in result.stderr


def test_a_watched_answer_in_pieces_counts_once(millstream: Millstream, engine: FakeEngine) -> None:
    create(engine)
    engine.fire_pieces("q")
    engine.fire("q")
    assert len(millstream("query", "watch", "q", "--limit", "1").stdout.splitlines()) == 1 + 5
    lines = [
        json.loads(text) for text in millstream("query", "watch", "q", "--json", "--limit", "2").stdout.splitlines()
    ]
    assert [(item["offset"], len(item["rows"]), item["total_rows"]) for item in lines] == [
        (0, 2, 5),
        (2, 2, 5),
        (4, 1, 5),
        (0, 2, 2),
    ]


def test_the_live_table_takes_the_first_rows_of_each_answer(engine: FakeEngine) -> None:
    create(engine, windows=1)
    engine.fire_pieces("q")
    with connect(engine.home, None) as client:
        taken = list(follow(client, "q", "newest", 1, first_rows=True))
        console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
        watch_table(client, client.query("q"), None, 1, console)
    # The fake gives all pieces in one page; the engine ends a page with each that is not the last.
    assert (taken[0].offset, taken[0].total_rows) == (0, 5)
    assert "5 rows, 3 not shown" in console.export_text()


def test_explain(millstream: Millstream, engine: FakeEngine) -> None:
    create(engine)
    lines = millstream("query", "explain", "q").stdout.splitlines()
    assert lines == list(engine.explain("q").tree)
    assert "   └─ a: ads" in lines
    assert "      group g-2 version 9, with 7 other queries: q-1, q-2, q-3, q-4, q-5, …" in lines
    assert json.loads(millstream("query", "explain", "q", "--json").stdout)["join"]["estimated_rows"] == 3600


def test_watch_of_new_answers_ends_with_the_query(millstream: Millstream, engine: FakeEngine) -> None:
    create(engine, windows=2)
    # After the watcher has found out where the end is: a window, then the end of the query.
    engine.known["q"].script += [lambda: engine.fire("q"), lambda: engine.delete_queries(["q"])]
    lines = millstream("query", "watch", "q", "--lines", "--new").stdout.splitlines()
    assert [text.split("\t")[0] for text in lines] == ["window_start", *["2026-01-01T00:00:08Z"] * 2]


def test_delete_many_with_one_mistake(millstream: Millstream, engine: FakeEngine) -> None:
    create(engine, "a", windows=1)
    create(engine, "b")
    result = millstream("query", "delete", "a", "nope", "b")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "deleted a  1 windows fired  2 answer rows",
        "deleted b  0 windows fired  0 answer rows",
    ]
    assert "UNKNOWN_QUERY: no query 'nope'" in result.stderr
    again = millstream("query", "delete", "a", "--json")
    assert again.exit_code == 1
    assert json.loads(again.stdout)["queries"][0]["error"]["code"] == "QUERY_DELETED"


@pytest.mark.parametrize("command", ["show", "explain", "watch", "delete"])
def test_an_unknown_query_is_an_error(millstream: Millstream, engine: FakeEngine, command: str) -> None:
    result = millstream("query", command, "nope")
    assert result.exit_code == 1
    assert "UNKNOWN_QUERY" in result.stderr
