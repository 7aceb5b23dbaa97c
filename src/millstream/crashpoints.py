"""Crash points: the places where dying could matter, each with the reason why it does not.

``crash_point("ingest.job-done")`` stands at the place itself and does nothing, unless the environment says where to
die:

    MILLSTREAM_CRASH_AT=commit_batch.after-commit      at the first pass
    MILLSTREAM_CRASH_AT=buckets.written:7              at the seventh pass in this process
    MILLSTREAM_CRASH_AT=*:120                          at the 120th pass of any point
    MILLSTREAM_CRASH_ONCE=/tmp/marker                  only if that file is not there yet; it is made first

The process then dies by SIGKILL, as it would when the machine's memory runs out. Spark's Python workers inherit the
environment, so the switch reaches them too; the marker keeps those that Spark starts in their place alive. For tests
alone: an engine in service never sets these variables.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Mapping

CRASH_AT = "MILLSTREAM_CRASH_AT"
CRASH_ONCE = "MILLSTREAM_CRASH_ONCE"
ANY = "*"

# Told the name of each point that is passed, and what it is about (the path of a file, or nothing).
Observer = Callable[[str, str], None]

# By transaction of the metastore: why it is safe to die before its commit, and after it.
TRANSACTIONS: dict[str, tuple[str, str]] = {
    "open": (
        "The database is as the last engine left it. The next start takes it over.",
        "Older engines are fenced off. The next start raises the incarnation again; numbers left out mean nothing.",
    ),
    "migrate": (
        "The tables are those of the older version. The next start takes the same step.",
        "The step is taken and the version says so. The next start takes the step after it.",
    ),
    "add_stream": (
        "There is no such stream. The caller has no answer and asks again.",
        "The stream is there without batches. The next start runs it; a caller that asks again is told that it exists.",
    ),
    "seal": (
        "The epoch is not sealed and nobody was told. The group versions written for it are orphans, which the sweep "
        "removes; a client repeats its request.",
        "The epoch is sealed with its cut. A client that was not told repeats its request: the client key finds the "
        "query, and a second delete is told that the first has happened.",
    ),
    "plan_batch": (
        "The batch has no plan. Spark plans the same batch again from the offsets it has written.",
        "The batch has its plan. Spark repeats it and it runs with this plan: same epoch, watermark and clock.",
    ),
    "begin_trial": (
        "The trial is not written down and did not run. The batch is tried again, from what is written.",
        "The trial is written down without an outcome. It is tried again; one death in it says nothing of any query.",
    ),
    "end_trial": (
        "The trial has no outcome. It is tried again; the files that it wrote are orphans.",
        "The trial has its outcome. Where it passed, its files are gone with the process, and it is run again.",
    ),
    "forget_trials": (
        "The trials are still there. Whoever forgets them does so again.",
        "The trials are forgotten. The batch is tried from the beginning.",
    ),
    "begin_fire_trial": (
        "The fire is not written down and did not run. It is due again.",
        "The fire is written down. The next start counts a death; several of them, alone, are needed to stop a query.",
    ),
    "end_fire_trials": (
        "The fire has passed and is still written down. The next start counts a death too many; a query is stopped by "
        "that only if it was alone in it and two engines had died in it alone before.",
        "The fire is forgotten. Its answers were published before.",
    ),
    "settle_fire_trials": (
        "The fires of the engine before are not judged yet. The next start does so, and counts them as deaths.",
        "The fires of the engine before are deaths, or gone. Doing so again has no effect.",
    ),
    "commit_batch": (
        "The batch is not committed. It runs again; the files of this run are orphans.",
        "The batch is committed with its files, watermark and counters. Spark repeats it, and it returns at once.",
    ),
    "flush_stream": (
        "The stream has not ended. Whoever flushes it does so again.",
        "All time of the stream is closed. Flushing again has no effect.",
    ),
    "advance_idle": (
        "The watermark has not moved. The stream is found idle again.",
        "The watermark has moved, as an event of its own between two batches. Doing so again has no effect.",
    ),
    "save_figures": (
        "The figures before are kept. No answer depends on them.",
        "The figures are kept. No answer depends on them.",
    ),
    "commit_fire": (
        "No frontier has moved. The same windows are due at the next start; the files of this fire are orphans.",
        "Frontiers, answers and compacted buckets are in force together. The windows are not due any more; files that "
        "the compaction emptied are orphans.",
    ),
    "exchange_buckets": (
        "The damaged buckets are still named. The next fire finds the damage again; the rebuilt files are orphans.",
        "The rebuilt buckets are named instead of the damaged ones. The files of those are orphans.",
    ),
    "lose_buckets": (
        "The buckets count as good. The next fire finds the damage again.",
        "The buckets are lost for good. The next fire answers without them, and its answers say so.",
    ),
    "expire_recipes": (
        "The recipes are still there. The next tidying forgets them.",
        "Recipes that no bucket file needs are forgotten.",
    ),
    "drop_files": (
        "The buckets are still named. The next clean-up finds them unneeded again.",
        "The files are forgotten and nobody reads them. The sweep removes them.",
    ),
    "expire_answers": (
        "The answers are still named. The next tidying finds them too old again.",
        "The answers are forgotten. The sweep removes their files.",
    ),
    "expire_history": (
        "The queries are still there. The next tidying finds them too old again.",
        "The queries are forgotten. No file depends on them.",
    ),
    "forget_versions": (
        "The group versions are still named. The next tidying finds them unneeded again.",
        "The group versions are forgotten, or some of them. The sweep removes their files; the next tidying finds the "
        "rest.",
    ),
    "set_failed": (
        "The query runs on. What was wrong with it is found again.",
        "The query is stopped with its reason. The next start takes it out of its group.",
    ),
    "record_stop": (
        "The stop is not noted. The next start tells of a crash, and writes its first fires down as after one.",
        "The stop is noted, and there is nothing left to do.",
    ),
    "save_cursor": (
        "The reader's old cursor is kept. It reads again what it has read since.",
        "The new cursor is kept. The reader goes on from there.",
    ),
    "drop_cursor": (
        "The cursor is still there. Dropping it again removes it.",
        "The cursor is gone.",
    ),
    "copy_metastore": (
        "The database is empty. The backup or home that is being made has its draft and is refused.",
        "The metastore is copied. The backup or home that is being made still has its draft and is refused.",
    ),
}

# Files of the home, by folder. Which transaction names them:
FILES: dict[str, str] = {
    "buckets": "the commit of their batch, of the fire that compacts them, or of the exchange for damaged ones",
    "answers": "the commit of their batch or fire",
    "groups": "the seal of their epoch, or the beginning of their trial",
    "dead": "the commit of their batch",
}

# What happens to every file of the home. ``{by}`` is the transaction that names it.
FILE_STEPS: dict[str, str] = {
    "created": "The file is empty and nothing names it: {by} has not happened. The sweep removes it.",
    "written": "The file may be torn, and nothing names it: {by} has not happened. The sweep removes it.",
    "synced": "The file is whole but its name may be lost, and nothing names it: {by} has not happened.",
    "named": "The file is on disk under its name. Nothing names it yet: {by} comes next.",
    "removing": "The file is forgotten or was never named. The sweep removes it.",
    "removed": "The file is gone, and a transaction had forgotten it before. Other files that were to go are swept.",
}

STEPS: dict[str, str] = {
    "home.created": "The folders of the home are there. Nothing else has changed.",
    "lock.taken": "The system takes the lock back when the process dies.",
    "start.loaded": "Nothing has changed but that failed queries may have left their groups, an epoch of its own.",
    "sweep.found": "Files that no transaction names are still there. The next start finds them again.",
    "sweep.done": "The home holds what the metastore names. The next start finds nothing to sweep.",
    "ingest.job-done": "The files of the batch are on disk and not named: the batch runs again, and they are swept.",
    "ingest.done": "The batch is committed. Spark has not been told, repeats it, and it returns at once.",
    "changelog.acknowledging": "The epoch is sealed and the caller was not told. It repeats its request.",
    "changelog.acknowledged": "The epoch is sealed and the caller was told. It is in force at the next start.",
    "fire.job-done": "The answers are on disk and not named: the same windows are due again, and the files are swept.",
    "fire.done": "The answers are published. Readers find them from their cursors. Heavier groups of the stream may "
    "still be due, and fire at the next start.",
    "join.job-done": "As for other fires: the same windows are due again, and the files are swept.",
    "join.done": "The answers are published. What they are built from is named and stays.",
    "repair.ingested": "The batch is ingested again, its files are not named. The next fire finds the damage again.",
    "exchange.ready": "The damaged file is in its place, the whole one is an orphan. The damage is found again.",
    "exchange.renamed": "The whole file is in its place. After a power loss, the damaged one may be there again.",
    "exchange.done": "The whole file is in the place of the damaged one, with the bytes that the metastore speaks of.",
    "tidy.forgotten": "What is too old is forgotten. The sweep removes the files.",
    "tidy.done": "What is too old is forgotten and its files are gone.",
    "endpoint.written": "The address is in a draft that nobody reads. The next start writes it again.",
    "endpoint.announced": "The file names a process that is gone, which clients check. The next start replaces it.",
    "copy.begun": "The backup or home has nothing but the draft of a metastore, by which it is refused.",
    "copy.drafted": "The metastore is in the draft, files may be missing. By the draft the copy is refused.",
    "copy.copied": "A file is in its place, others may be missing. By the draft the copy is refused.",
    "copy.synced": "All is on disk, the metastore in the draft. By the draft the copy is refused.",
    "copy.named": "The copy is whole. After a power loss the draft may be there again, by which it is refused.",
    "copy.done": "The copy is whole and on disk.",
}


def _points() -> dict[str, str]:
    points = dict(STEPS)
    for name, (before, after) in TRANSACTIONS.items():
        points |= {f"{name}.before-commit": before, f"{name}.after-commit": after}
    for folder, by in FILES.items():
        points |= {f"{folder}.{step}": why.format(by=by) for step, why in FILE_STEPS.items()}
    return points


# Every crash point, with the reason why dying there is safe.
POINTS: dict[str, str] = _points()

_observer: Observer | None = None


def crash_point(name: str, about: str = "") -> None:
    """A place where dying could matter. ``about`` is the path of the file in question, if there is one."""
    if _observer is not None:
        _observer(name, about)


def observe(observer: Observer | None) -> None:
    """Have every crash point told to the observer from now on; None ends that."""
    global _observer
    _observer = observer


def kill() -> None:
    """Die as if killed from outside: no handler, no clean-up, no buffer written."""
    os.kill(os.getpid(), signal.SIGKILL)


class Switch:
    """Dies at the ``at``-th pass of a point, counted over all threads of the process. A point that is not registered
    is an error."""

    def __init__(self, name: str, at: int = 1, once: str | None = None) -> None:
        if name != ANY and name not in POINTS:
            raise ValueError(f"no crash point {name!r}; existing: {', '.join(sorted(POINTS))}")
        self._name = name
        self._at = at
        self._once = once
        self._passes: Counter[str] = Counter()
        self._lock = threading.Lock()

    @classmethod
    def parse(cls, text: str, once: str | None = None) -> Switch:
        """The switch of ``name``, ``name:n`` or ``*:n``."""
        name, _, at = text.partition(":")
        return cls(name, int(at or 1), once)

    def __call__(self, name: str, about: str) -> None:
        if name not in POINTS:
            raise ValueError(f"the crash point {name!r} is not registered")
        with self._lock:
            self._passes.update((name, ANY))
            if self._passes[self._name] == self._at and self._name in (name, ANY) and self._first():
                kill()

    def _first(self) -> bool:
        """Whether nobody has died by this switch before."""
        if self._once is None:
            return True
        try:
            os.close(os.open(self._once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


def from_environment(environment: Mapping[str, str]) -> Switch | None:
    """The switch that the environment asks for."""
    text = environment.get(CRASH_AT)
    return Switch.parse(text, environment.get(CRASH_ONCE)) if text else None


observe(from_environment(os.environ))
