"""Which process dies where: a few passes of every crash point, dealt out to runs with several deaths each."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence

from millstream.crashpoints import ANY, FILES, POINTS
from tests.chaos.runs import Kill

# Passed by every process at its start. They matter most in a home that a crash has left behind.
AT_START = (
    "home.created",
    "lock.taken",
    "open.before-commit",
    "open.after-commit",
    "start.loaded",
    "sweep.found",
    "sweep.done",
    "endpoint.written",
    "endpoint.announced",
)
# Dead letters are removed by the sweep, when it finds those of a batch that was not committed. Trials are forgotten
# when the first was cut short. Fires are written down after a death, and judged after the next.
AFTER_A_CRASH = {
    "dead.removing": "dead.named",
    "dead.removed": "dead.named",
    "forget_trials.before-commit": "begin_trial.after-commit",
    "forget_trials.after-commit": "begin_trial.after-commit",
    "begin_fire_trial.before-commit": "commit_fire.before-commit",
    "begin_fire_trial.after-commit": "commit_fire.before-commit",
    "end_fire_trials.before-commit": "commit_fire.before-commit",
    "end_fire_trials.after-commit": "commit_fire.before-commit",
    "settle_fire_trials.before-commit": "begin_fire_trial.after-commit",
    "settle_fire_trials.after-commit": "begin_fire_trial.after-commit",
}
# Passed by the first start after an upgrade: tests/catalog/test_migrations.py kills there.
AFTER_AN_UPGRADE = ("migrate.before-commit", "migrate.after-commit")
# Passed by backup and restore, which are no part of an engine's run: tests/engine/test_backup_kills.py kills there.
IN_A_COPY = tuple(name for name in POINTS if name.startswith(("copy.", "copy_metastore.")))
ELSEWHERE = {*AFTER_AN_UPGRADE, *IN_A_COPY}


def every_point(passes: Sequence[str], seed: int, each: int, runs: int) -> list[list[Kill]]:
    """Kills at ``each`` passes of every point that an undisturbed process passes, dealt out to runs in the order of the
    passes. A process counts from its own start, so a kill asks for the passes since the one before it."""
    chance = random.Random(seed)
    places: dict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(passes):
        places[name].append(place)
    chosen = [
        (chance.randrange(len(passes)) if name in AT_START else chance.choice(found), name)
        for name, found in places.items()
        for _ in range(each)
    ]
    dealt = [sorted(chosen)[number::runs] for number in range(runs)]
    return [_counted(passes, mine) for mine in dealt]


def _counted(passes: Sequence[str], chosen: Sequence[tuple[int, str]]) -> list[Kill]:
    kills: list[Kill] = []
    before = 0
    for place, name in chosen:
        count = 1 if name in AT_START else Counter(passes[before : place + 1])[name]
        kills.append(Kill(f"{name}:{max(1, count)}"))
        before = place + 1
        folder, _, step = name.partition(".")
        if folder in FILES and step == "named":
            # The sweep of what this one leaves behind dies as well.
            kills.append(Kill(f"{folder}.{'removing' if len(kills) % 2 else 'removed'}"))
    return kills


def first_pass(name: str) -> list[Kill]:
    """Kills that surely reach a point, in a run of their own."""
    before = first_pass(AFTER_A_CRASH[name]) if name in AFTER_A_CRASH else []
    return [*before, Kill(name)]


def at_random(passes: int, seconds: float, seed: int, deaths: int) -> list[Kill]:
    """Kills at any pass and at any moment of a run that makes so many passes in so many seconds."""
    chance = random.Random(seed)
    kills = []
    for _ in range(deaths):
        if chance.random() < 0.3:
            kills.append(Kill(after=chance.random() * 2 * seconds / deaths))
        else:
            kills.append(Kill(f"{ANY}:{chance.randrange(1, 2 * passes // deaths)}"))
    return kills
