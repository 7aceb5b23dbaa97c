"""The Nexmark subset of auctions and bids, and the basic data: the same query so many times, or ad hoc."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, cycle

from millstream.bench.driving.model import QuerySpec, StreamSpec
from millstream.bench.workloads.load import Workload, stream
from millstream.bench.workloads.questions import Item, Join, Leg, Question, Window, first_of_window, rows
from millstream.bench.workloads.scripts import Scripted, ad_hoc, static
from millstream.sources.generators import BasicGenerator, NexmarkGenerator

WINDOW = Window(5, 5)
BIDS_PER_AUCTION = 9
# Of prices around 5000, one standard deviation above: one bid in six passes.
DEAR = 6667
STATIC = (1, 10, 20, 30)
# (added, removed, every so many seconds, fixed) of the runs of the paper, and one with more.
AD_HOC = ((1, 0, 10, 1), (0, 1, 10, 31), (8, 8, 10, 1), (10, 10, 5, 20))

_AUCTION_SHARE = 1 / (BIDS_PER_AUCTION + 1)
BIDS = stream("bids", NexmarkGenerator(table="bids", bids_per_auction=BIDS_PER_AUCTION))
AUCTIONS_AND_BIDS = (
    stream("auctions", NexmarkGenerator(table="auctions"), _AUCTION_SHARE),
    replace(BIDS, share=1 - _AUCTION_SHARE),
)

_LEGS = (Leg("b", "bids"), Leg("a", "auctions"))
_SAME = "b.auction = a.id"
FILTER = rows("bids", ("id", "auction", "price"), f"price > {DEAR}")
JOIN = Join(
    WINDOW, _LEGS, (_SAME,), (Item("b.id", "bid"), Item("b.price", "price"), Item("a.category", "category"))
).question
HPPA = Join(
    WINDOW,
    _LEGS,
    (f"{_SAME} AND b.price > a.reserve",),
    (Item("b.auction", "auction"), Item("MAX(b.price)", "price")),
    ("b.auction",),
).question
HOTCAT = first_of_window(
    Join(WINDOW, _LEGS, (_SAME,), (Item("a.category", "category"), Item("COUNT(*)", "n")), ("a.category",)),
    order="n",
    tie="category",
)
BASIC_MAP = rows("numbers", ("number",))
BASIC_JOIN = Join(
    WINDOW, (Leg("x", "numbers"), Leg("y", "others")), ("x.number = y.number",), (Item("x.number", "number"),)
).question

NEXMARK = {"filter": FILTER, "join": JOIN, "hppa": HPPA, "hotcat": HOTCAT}
TITLES = {
    "filter": "dear bids",
    "join": "bids joined with auctions",
    "hppa": "highest price for each auction",
    "hotcat": "category with most bids",
}


def workloads() -> Iterator[Workload]:
    for name, question in NEXMARK.items():
        streams = (BIDS,) if name == "filter" else AUCTIONS_AND_BIDS
        yield from _repeated(f"nexmark-{name}", f"Nexmark: {TITLES[name]}", streams, question)
    numbers, others = (stream(s, BasicGenerator(side=n), 0.5) for n, s in enumerate(("numbers", "others")))
    yield from _repeated("basic-map", "basic data: rows as they are", (replace(numbers, share=1.0),), BASIC_MAP)
    title = "basic data: join where one row in ten thousand meets another"
    yield from _repeated("basic-join", title, (numbers, others), BASIC_JOIN)
    for cell in AD_HOC:
        for kind in ("join", "hppa", "hotcat", None):
            yield ad_hoc_workload(kind, *cell)


def ad_hoc_workload(kind: str | None, add: int, remove: int, every: int, fixed: int) -> Workload:
    """Ad-hoc runs of one query of Nexmark, or of all of them in turn."""
    questions = (NEXMARK[kind],) if kind else tuple(NEXMARK.values())
    name = f"nexmark{f'-{kind}' if kind else ''}-adhoc-{add}-{remove}-{every}-{fixed}"
    title = f"Nexmark: {TITLES[kind] if kind else 'all queries in turn'}, a:{add} r:{remove} w:{every} f:{fixed}"
    return _workload(name, title, AUCTIONS_AND_BIDS, questions, ad_hoc(add, remove, every, fixed))


_AD_HOC_NAME = re.compile(rf"nexmark(?:-({'|'.join(NEXMARK)}))?-adhoc-(\d+)-(\d+)-([1-9]\d*)-([1-9]\d*)")


def ad_hoc_named(name: str) -> Workload | None:
    """The run of a name as ``nexmark-hppa-adhoc-10-10-5-20``: added, removed, seconds between, fixed."""
    found = _AD_HOC_NAME.fullmatch(name)
    if not found:
        return None
    add, remove, every, fixed = (int(text) for text in found.groups()[1:])
    return ad_hoc_workload(found[1], add, remove, every, fixed)


def _repeated(name: str, title: str, streams: tuple[StreamSpec, ...], question: Question) -> Iterator[Workload]:
    for times in STATIC:
        cell, many = (name, "") if times == 1 else (f"{name}-{times}", f", {times} times")
        yield _workload(cell, title + many, streams, (question,), static(times))


def _workload(
    name: str, title: str, streams: tuple[StreamSpec, ...], questions: tuple[Question, ...], script: Scripted
) -> Workload:
    def draw(seed: int) -> Iterator[QuerySpec]:
        """The same for every seed."""
        for number, question in zip(count(), cycle(questions), strict=False):
            yield question.spec(f"q{number:05}")

    return Workload(name, title, streams, draw, script)
