"""The fire of joins inside a Spark task: read the buckets of every leg, answer windows, describe answers of rows."""

from __future__ import annotations

import itertools
import json
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from millstream.config import Limits
from millstream.errors import DamagedFile, reason_for
from millstream.kernels.answers import Part, Range
from millstream.kernels.guard import NOBODYS_FAULT, hold_process
from millstream.kernels.join_fire import JoinDue, JoinFired, LegSource, fire_joins
from millstream.model.join import JoinQuery
from millstream.model.legs import leg_member
from millstream.model.plan import Damage, FireResult
from millstream.model.types import DataType
from millstream.runtime.damage import DueWindows, Lost, Window, find_damage, lacking, mark
from millstream.runtime.fire import BucketRef, read_slices, stem_of
from millstream.runtime.home import Home
from millstream.runtime.loading import load_group
from millstream.runtime.worker import evaluator, write_answers


@dataclass(frozen=True)
class JoinLeg:
    """The buckets that due windows need of one source, with the versions of all groups that made them."""

    versions: tuple[str, ...]
    buckets: tuple[BucketRef, ...]
    needed_from: int
    lost: tuple[Lost, ...] = ()


@dataclass(frozen=True)
class JoinItem:
    """Due joins whose legs have the same attributes."""

    forms: tuple[JoinQuery, ...]
    due: tuple[JoinDue, ...]
    legs: tuple[JoinLeg, ...]
    time_type: DataType


@dataclass(frozen=True)
class Pace:
    """How far a step of a fire goes at least: through so many slices, or so many rows of a stack, which has one for
    each label of a slice. What no later window needs is forgotten after each. The stacks of a fire that catches up
    would otherwise fill new memory, which takes longer than adding up what goes there."""

    slices: int = 16
    rows: int = 1600


PACE = Pace()


@dataclass(frozen=True)
class JoinTask:
    """``stream`` is the name that the joined streams have together."""

    home: Home
    stream: str
    items: tuple[JoinItem, ...]
    limits: Limits = field(default_factory=Limits)
    pace: Pace = field(default_factory=lambda: PACE)


def run_join_fire(task: JoinTask) -> tuple[FireResult, dict[str, float]]:
    """Fire all items; their answers go to one file."""
    hold_process(task.limits.worker_memory)
    seconds: dict[str, float] = defaultdict(float)
    found = [_Found(item) for item in task.items]
    longest = max(_longest(item) for item in task.items)
    for low, high in steps(task.items, longest, _most_labels(task), task.pace):
        for one in found:
            if not one.held:
                one.step(task, low, high, high - longest, seconds)
    whole = JoinFired()
    parts: list[Part] = []
    refers: set[str] = set()
    incomplete: dict[str, int] = {}
    for one in (one for one in found if not one.held):
        parts += [*one.fired.parts, *one.described]
        if one.described:
            refers |= {path for leg in one.item.legs for path in (*leg.versions, *(ref.path for ref in leg.buckets))}
        _note(one.fired, whole)
        incomplete |= {query: number for query, number in one.incomplete.items() if query not in one.fired.broken}
    started = time.perf_counter()
    answers = tuple(
        replace(file, refers=tuple(sorted(refers)))
        for file in write_answers(task.home, f"{task.stream.replace('&', '+')}-{stem_of(aside=False)}", parts)
    )
    seconds["join: write"] += time.perf_counter() - started
    counts = (dict(whole.windows), dict(whole.rows), dict(whole.failures))
    result = FireResult(answers, *counts, whole.broken, groups_by_query=dict(whole.groups))
    damaged = dict.fromkeys(damage for one in found for damage in one.damaged)
    held = [due.query for one in found if one.held for due in one.item.due]
    return replace(result, damaged=tuple(damaged), held=tuple(held), incomplete_by_query=incomplete), dict(seconds)


def _longest(item: JoinItem) -> int:
    return max(form.window.size for form in item.forms if form.window)


def steps(items: Sequence[JoinItem], longest: int, labels: int, pace: Pace) -> Iterator[tuple[int, int]]:
    """Spans of time, from the earliest due window to the latest: windows that end in one of them are fired together.
    All items go through them in step, because they share stacks; the highest has so many ``labels``."""
    ends = sorted({ref.end for item in items for leg in item.legs for ref in leg.buckets})
    due = [one for item in items for one in item.due]
    first, last = min(one.after for one in due), max(one.upto for one in due)
    before = bisect_right(ends, first)
    # Windows of many slices would be put together again and again in short steps.
    most = max((place + 1 - bisect_right(ends, end - longest) for place, end in enumerate(ends)), default=0)
    step = max(pace.slices, most, pace.rows // max(labels, 1))
    marks = [ends[place] for place in range(before + step - 1, len(ends), step) if ends[place] < last]
    yield from itertools.pairwise([first, *marks, last])


def _most_labels(task: JoinTask) -> int:
    """Of any group; those whose version is damaged will be found out when they are read."""
    most = 1
    for path in {path for item in task.items for leg in item.legs for path in leg.versions}:
        with suppress(DamagedFile):
            most = max(most, load_group(task.home, path).labels.shape[1])
    return most


@dataclass
class _Found:
    """What the windows of an item have given so far. Nothing of it counts once a file could not be read: its queries
    are ``held``. ``described`` are the answers whose rows are built later."""

    item: JoinItem
    fired: JoinFired = field(default_factory=JoinFired)
    described: list[Part] = field(default_factory=list)
    incomplete: Counter[str] = field(default_factory=Counter)
    held: bool = False
    damaged: list[Damage] = field(default_factory=list)

    def step(self, task: JoinTask, low: int, high: int, needed_from: int, seconds: dict[str, float]) -> None:
        """Fire the windows that end after ``low`` and not after ``high``; the next step needs the slices from
        ``needed_from`` on."""
        due = tuple(
            replace(one, after=max(one.after, low), upto=min(one.upto, high))
            for one in self.item.due
            if one.after < high and low < one.upto and one.query not in self.fired.broken
        )
        if not due:
            return
        legs = tuple(_between(leg, low - _longest(self.item), high, needed_from) for leg in self.item.legs)
        item = replace(self.item, due=due, legs=legs)
        started = time.perf_counter()
        try:
            sources = [_source(task.home, leg) for leg in legs]
        except DamagedFile:
            self.held = True
            self.damaged = [d for leg in legs for d in find_damage(task.home, leg.versions, leg.buckets)]
            return
        read = time.perf_counter()
        seconds["join: read"] += read - started
        mine = _fire_apart(item, due, sources, task.limits)
        if any(leg.lost for leg in legs):
            self.incomplete.update(_mark(task.home, item, mine))
        seconds["join: answer"] += time.perf_counter() - read
        if mine.counted:
            self.described.append(describe(legs, mine.counted))
        self.fired.parts += mine.parts
        _note(mine, self.fired)


def _between(leg: JoinLeg, low: int, high: int, needed_from: int) -> JoinLeg:
    """The buckets that windows between two times need; the next step needs those from ``needed_from`` on."""
    buckets = tuple(ref for ref in leg.buckets if low < ref.end and ref.start < high)
    return replace(leg, buckets=buckets, needed_from=min(leg.needed_from, needed_from))


def _note(mine: JoinFired, whole: JoinFired) -> None:
    for counts, more in ((whole.windows, mine.windows), (whole.rows, mine.rows), (whole.failures, mine.failures)):
        counts.update(more)
    for query, groups in mine.groups.items():
        whole.groups[query] = max(groups, whole.groups.get(query, 0))
    whole.broken |= mine.broken


def _mark(home: Home, item: JoinItem, fired: JoinFired) -> dict[str, int]:
    """Mark the answers that lack lost buckets of any leg, those too whose rows are built later."""
    windows: dict[Window, list[str]] = {}
    due: list[DueWindows] = []
    for number, leg in enumerate(item.legs):
        mine = [
            DueWindows(d.query, leg_member(d.query, number), form.window, d.after, d.upto, d.partial_until)
            for d in item.due
            if (form := item.forms[d.form]).window is not None
        ]
        for window, reasons in lacking(home, mine, leg.lost).items():
            known = windows.setdefault(window, [])
            known += [reason for reason in reasons if reason not in known]
        due += mine
    return mark(fired, windows, due, fired.counted)


def _source(home: Home, leg: JoinLeg) -> LegSource:
    stacks, pieces = read_slices(home, leg.versions, leg.buckets, leg.needed_from)
    return LegSource(tuple(stacks), tuple(pieces))


def _fire_apart(item: JoinItem, due: Sequence[JoinDue], sources: Sequence[LegSource], limits: Limits) -> JoinFired:
    """All together; if that fails, each query alone, so that the one that cannot be answered stops nobody else."""
    try:
        return fire_joins(due, item.forms, sources, item.time_type, evaluator(limits), limits)
    except NOBODYS_FAULT:
        raise
    except Exception as error:
        if len(due) == 1:
            return JoinFired(broken={due[0].query: reason_for(error)})
        together = JoinFired()
        for one in due:
            alone = _fire_apart(item, [one], sources, limits)
            together.parts += alone.parts
            together.counted += alone.counted
            _note(alone, together)
        return together


def describe(legs: Sequence[JoinLeg], counted: Sequence[Range]) -> Part:
    """The buckets that the rows of these answers are built from."""
    described = [{"versions": leg.versions, "buckets": [asdict(ref) for ref in leg.buckets]} for leg in legs]
    text = json.dumps({"legs": described}, separators=(",", ":"))
    return Part((), tuple(counted), text.encode())


def described_legs(data: bytes) -> list[tuple[list[str], list[BucketRef]]]:
    """The versions and buckets of each leg of a description."""
    found: dict[str, Any] = json.loads(data)
    return [(leg["versions"], [BucketRef(**bucket) for bucket in leg["buckets"]]) for leg in found["legs"]]
