"""The demo's picture, drawn without an engine."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
from rich.console import Console
from rich.text import Text
from tests.server.fake import FakeEngine, answer

from millstream.cli.demo_queries import TEMPLATES, random_query
from millstream.cli.demo_screen import Frame, Tracked, line, ordered_values, picture


def frame(home: Path) -> Frame:
    waiting = Tracked("q-1", "finance", "SELECT 1")
    answered = Tracked("q-2", "you", "SELECT gem_pack, …", visitor=True)
    answered.take(answer("q-2", 0))
    ticker = [Text("+ q-2  you  SELECT")]
    return Frame(FakeEngine(home).status(), 12.0, 0.25, [waiting, answered], ticker, "millstream query create …")


def test_the_picture_shows_figures_queries_and_changelog(home: Path) -> None:
    console = Console(width=140, height=30, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(picture(frame(home), 30))
    text = console.export_text()
    for expected in (
        "rows/s",
        "latency",
        "epoch",
        "q-1",
        "waiting",
        "q-2",
        "◐",
        "changelog",
        "millstream query create …",
    ):
        assert expected in text


def test_a_line_for_each_second(home: Path) -> None:
    assert line(frame(home)).split("  ")[1:4] == ["12 s", "100 rows/s", "latency 0.2 s"]


def test_bars_follow_the_order_of_the_key() -> None:
    table = pa.table({"gem_pack": [3, 1, 2], "revenue": [30.0, 10.0, 20.0]})
    assert ordered_values(table) == [10.0, 20.0, 30.0]
    assert ordered_values(pa.table({"name": ["a"]})) == []


def test_a_query_without_keys_shows_its_last_windows() -> None:
    item = Tracked("q", "", "SELECT COUNT(*) …")
    for number in (5, 7):
        full = answer("q", 0)
        item.take(
            type(full)(**{name: getattr(full, name) for name in full.__slots__} | {"table": pa.table({"n": [number]})})
        )
    assert list(item.history) == [5.0, 7.0]


def test_random_queries_use_every_template() -> None:
    random = Random(1)
    texts = [random_query(random, 20, 99)[0] for _ in range(300)]
    for template in TEMPLATES:
        start = template.split(" FROM")[0]
        assert any(text.startswith(start) for text in texts)
    assert len(set(texts)) > 250
