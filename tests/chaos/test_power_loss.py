"""After a power loss the answers are the same, or the stream stops because Spark plans another batch.

Files that were written and not synced are torn, names that were not synced are gone, removed files are back, the tail
of SQLite's log is garbage, and Spark's checkpoint, which Spark never syncs, is as it was some batches ago.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from millstream.crashpoints import FILES
from tests.chaos import power_loss
from tests.chaos.conftest import Chaos
from tests.chaos.runs import KILLED, STOPPED, Kill, Run, by_unit, check, together
from tests.chaos.schedule import at_random

SEED = 1
# Places where much is not synced.
TORN = ("created", "written", "synced", "named")
LATE = ("ingest.done:9", "plan_batch.after-commit:9")
T = TypeVar("T")


def each(chaos: Chaos, lose: Callable[[Chaos, T], Run], losses: Iterable[T]) -> None:
    """A run for each loss."""
    # The undisturbed run comes first.
    chaos.reference(SEED)
    chaos.count(together(partial(lose, chaos, loss) for loss in losses))


def test_files_that_were_not_synced_are_lost(chaos: Chaos) -> None:
    each(chaos, _lose_unsynced, FILES)


def _lose_unsynced(chaos: Chaos, folder: str) -> Run:
    reference = chaos.reference(SEED)
    run = chaos.run(reference.prepared)
    chance = random.Random(folder)
    touched = 0
    for step in TORN:
        assert run.start(Kill(f"{folder}.{step}")) == KILLED
        touched += power_loss.lose_files(run, chance)
    run.finish()
    assert touched >= len(TORN) - 1
    check(run.report(), reference.report)
    # A file that was named and not synced would be made again, and the answers would be the same all the same.
    repairs = [name for passes in run.passes() for name, _ in passes if name == "repair.ingested"]
    assert len(repairs) == reference.names.count("repair.ingested")
    return run


def test_removed_files_are_back(chaos: Chaos) -> None:
    each(chaos, _bring_back, ["buckets", "answers", "groups"])


def _bring_back(chaos: Chaos, folder: str) -> Run:
    reference = chaos.reference(SEED)
    run = chaos.run(reference.prepared)
    for passes in (2, 1):
        assert run.start(Kill(f"{folder}.removed:{passes}")) == KILLED
        assert power_loss.lose_files(run, random.Random(passes)) > 0
    run.finish()
    check(run.report(), reference.report)
    return run


def test_power_is_lost_at_random(chaos: Chaos) -> None:
    each(chaos, _lose_at_random, range(3))


def _lose_at_random(chaos: Chaos, seed: int) -> Run:
    reference = chaos.reference(SEED)
    run = chaos.run(reference.prepared)
    chance = random.Random(seed)
    for kill in at_random(len(reference.names), reference.seconds, seed, 6):
        if run.start_well(kill) == KILLED:
            power_loss.lose_files(run, chance)
            power_loss.lose_checkpoint(run, chance)
    run.finish()
    check(run.report(), reference.report)
    return run


def test_the_checkpoint_is_older_than_the_metastore(chaos: Chaos) -> None:
    """Spark plans the same batches again: those that are committed return at once, the others run with their plan."""
    each(chaos, _lose_newest, [(at, commits, batches) for at in LATE for commits, batches in ((1, 0), (0, 1), (2, 3))])


def _lose_newest(chaos: Chaos, lost: tuple[str, int, int]) -> Run:
    at, commits, batches = lost
    reference = chaos.reference(SEED)
    run = chaos.run(reference.prepared)
    assert run.start(Kill(at)) == KILLED
    for stream in ("purchases", "ads"):
        power_loss.lose_commits(run, stream, commits)
        power_loss.lose_batches(run, stream, batches)
    run.finish()
    check(run.report(), reference.report)
    return run


def test_spark_plans_another_batch_under_a_known_number(chaos: Chaos) -> None:
    """The stream stops with the error for it, and nothing is wrong; with its checkpoint back, it goes on. Also where
    the whole checkpoint is lost."""
    each(chaos, _plan_another, [*((at, 1) for at in LATE), ("ingest.done:9", 100)])


def _plan_another(chaos: Chaos, lost: tuple[str, int]) -> Run:
    at, batches = lost
    reference = chaos.reference(SEED)
    run = chaos.run(reference.prepared)
    assert run.start(Kill(at)) == KILLED
    copy = power_loss.keep_checkpoint(run, "purchases")
    power_loss.lose_batches(run, "purchases", batches)
    assert run.start(replan=True) == STOPPED
    assert run.error()["code"] == "REPLAY_MISMATCH"
    expect_no_other_answers(run, reference.report)
    power_loss.put_back(run, "purchases", copy)
    run.finish()
    check(run.report(), reference.report)
    return run


def test_the_metastore_is_older_than_the_checkpoint(chaos: Chaos) -> None:
    """A metastore from a backup without its checkpoint: batches would be missing, so the stream does not run."""
    reference = chaos.reference(SEED)
    run = chaos.run(reference.prepared)
    assert run.start(Kill("ingest.done:9")) == KILLED
    folder = power_loss.checkpoint(run, "purchases")
    newest = max(int(file.name) for file in (folder / "offsets").iterdir() if file.name.isdigit())
    for later in range(newest + 1, newest + 3):
        for part in ("offsets", "commits"):
            (folder / part / str(later)).write_text("[0, 1]")
    assert run.start() == STOPPED
    assert "out of turn" in run.error()["message"]
    expect_no_other_answers(run, reference.report)


def expect_no_other_answers(run: Run, expected: dict[str, dict[str, list[object]]]) -> None:
    """What clients have read so far is the beginning of what they read in the undisturbed run."""
    for query, answers in expected["answers"].items():
        file = run.folder / "client" / f"{query}.pages"
        pages = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        whole = by_unit(answers)
        for window, marks, batch, _, _, rows in (answer for page in pages for answer in page[2]):
            assert whole[f"{window} {batch}"][0] == marks
            assert all(row in whole[f"{window} {batch}"][1] for row in rows)
