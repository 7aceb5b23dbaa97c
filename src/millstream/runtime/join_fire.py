"""The fire of joins inside a Spark task: read the buckets of every leg, answer windows, describe answers of rows."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Sequence
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
from millstream.runtime.fire import BucketRef, read_slices
from millstream.runtime.home import Home
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
class JoinTask:
    """``stream`` is the name that the joined streams have together."""

    home: Home
    stream: str
    items: tuple[JoinItem, ...]
    limits: Limits = field(default_factory=Limits)


def run_join_fire(task: JoinTask) -> tuple[FireResult, dict[str, float]]:
    """Fire all items; their answers go to one file."""
    hold_process(task.limits.worker_memory)
    parts: list[Part] = []
    refers: set[str] = set()
    fired = JoinFired()
    damaged: list[Damage] = []
    held: list[str] = []
    incomplete: dict[str, int] = {}
    seconds: dict[str, float] = defaultdict(float)
    for item in task.items:
        started = time.perf_counter()
        try:
            sources = [_source(task.home, leg) for leg in item.legs]
        except DamagedFile:
            damaged += [d for leg in item.legs for d in find_damage(task.home, leg.versions, leg.buckets)]
            held += [one.query for one in item.due]
            continue
        read = time.perf_counter()
        seconds["join: read"] += read - started
        mine = _fire_apart(item, item.due, sources, task.limits)
        if any(leg.lost for leg in item.legs):
            incomplete |= _mark(task.home, item, mine)
        seconds["join: answer"] += time.perf_counter() - read
        parts += mine.parts
        if mine.counted:
            described = describe(item.legs, mine.counted)
            parts.append(described)
            refers |= {path for leg in item.legs for path in (*leg.versions, *(ref.path for ref in leg.buckets))}
        for name in COUNTED:
            getattr(fired, name).update(getattr(mine, name))
    started = time.perf_counter()
    answers = tuple(
        replace(file, refers=tuple(sorted(refers)))
        for file in write_answers(task.home, f"{task.stream.replace('&', '+')}-fire", parts)
    )
    seconds["join: write"] += time.perf_counter() - started
    counts = (dict(fired.windows), dict(fired.rows), dict(fired.failures))
    result = FireResult(answers, *counts, fired.broken, groups_by_query=dict(fired.groups))
    whole = replace(result, damaged=tuple(dict.fromkeys(damaged)), held=tuple(held), incomplete_by_query=incomplete)
    return whole, dict(seconds)


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


# What is noted by query.
COUNTED = ("windows", "rows", "groups", "failures", "broken")


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
            for name in COUNTED:
                getattr(together, name).update(getattr(alone, name))
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
