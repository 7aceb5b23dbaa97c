"""What the killed process has to do: two streams, a dozen queries, and a script of creates and deletes by round.

    round k:  changes of k ► a batch of purchases (changes in the middle of it) ► a batch of ads ► damage? ► idle?
              ► fire? ► read ► tidy?

All of it follows from a seed. Times are microseconds.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.model.stream import Stream
from millstream.sources.schema import parse_ddl

SECOND = 1_000_000
START = 1_767_225_600 * SECOND
# Event time that passes in a round, and clock time too.
ROUND = 2 * SECOND
LATENESS = SECOND
# A row further ahead of the clock than this is a dead letter.
SKEW = 3600 * SECOND
# A reader comes by every third round at the latest, and once more after a crash.
RETENTION_ROUNDS = 5
# Above what the other joins pair in a fire, below what the offender does.
MOST_PAIRS = 3_000

SCHEMAS = {
    "purchases": "user_id INT, gem_pack INT, price BIGINT, time TIMESTAMP",
    "ads": "user_id INT, gem_pack INT, cost BIGINT, time TIMESTAMP",
}


def _sources(window: str) -> str:
    return (
        f"WITH p AS (SELECT *, window(time, {window}) AS w FROM purchases), "
        f"a AS (SELECT *, window(time, {window}) AS w FROM ads) "
    )


_ON = "ON p.gem_pack = a.gem_pack AND p.w = a.w"
_SELF = (
    "WITH p AS (SELECT *, window(time, '2 seconds') AS w FROM purchases) "
    "SELECT x.price, y.price AS other FROM p x JOIN p y ON x.user_id = y.user_id AND x.w = y.w WHERE y.price < 30"
)

QUERIES: dict[str, str] = {
    "revenue": "SELECT gem_pack, count(*) AS n, sum(price) AS total, window.end AS end FROM purchases "
    "GROUP BY gem_pack, window(time, '4 seconds', '2 seconds')",
    "averages": "SELECT user_id, avg(price) AS mean, max(price) AS best FROM purchases WHERE price > 20 "
    "GROUP BY user_id, window(time, '2 seconds')",
    "busy": "SELECT gem_pack, count(*) AS n FROM purchases WHERE price < 80 "
    "GROUP BY gem_pack, window(time, '6 seconds', '1 second') HAVING count(*) > 3",
    "top": "SELECT user_id, sum(price) AS total, window FROM purchases GROUP BY user_id, window(time, '3 seconds') "
    "QUALIFY row_number() OVER (PARTITION BY window ORDER BY total DESC, user_id) <= 2",
    "costs": "SELECT sum(cost) AS spent, min(cost) AS least FROM ads WHERE gem_pack <> 2 "
    "GROUP BY window(time, '5 seconds', '1 second')",
    "sevens": "SELECT user_id, price * 2 AS twice, time FROM purchases WHERE price % 7 = 0",
    "ratios": "SELECT price / (gem_pack - 1) AS ratio FROM purchases WHERE price > 60",
    "cheap": "SELECT gem_pack, cost FROM ads WHERE cost < 15",
    "pairs": _sources("'2 seconds'") + f"SELECT p.user_id, p.price, a.cost FROM p JOIN a {_ON} WHERE a.cost > 50",
    "unmatched": _sources("'2 seconds'")
    + f"SELECT p.price, a.cost FROM p LEFT JOIN a {_ON} AND a.cost > 90 WHERE p.price > 50",
    "matched": _sources("'3 seconds', '1 second'")
    + f"SELECT p.gem_pack, count(*) AS n, sum(a.cost) AS spent FROM p JOIN a {_ON} GROUP BY p.gem_pack, p.w",
    "self": _SELF,
    "everything": _sources("'8 seconds'") + "SELECT p.price, a.cost FROM p JOIN a ON p.w = a.w AND p.price < a.cost",
    "poison": "SELECT gem_pack, sum(price) AS total FROM purchases WHERE price < 40 "
    "GROUP BY gem_pack, window(time, '4 seconds', '2 seconds')",
    "doomed": "SELECT count(*) AS n FROM purchases WHERE user_id < 5 GROUP BY window(time, '2 seconds', '1 second')",
}
# Pairs every row with every other: stopped by the limit on pairs, in a fire.
OFFENDER = "everything"
# Stopped from outside.
FAILED = "doomed"
# Makes every batch fail that it is part of.
POISON = "poison"
# What is damaged on the way: the bucket files of a batch that can be ingested again, and of one that cannot; compacted
# files; the current group versions.
REBUILT, LOST, COMPACTED, VERSIONS = "rebuilt", "lost", "compacted", "versions"
# All of it happens to this stream, which has a batch in every round.
DAMAGED = "purchases"
# Read by a sink, which keeps its cursor in the metastore. The others are read by clients, which keep their own.
SUNK = "revenue"


@dataclass(frozen=True)
class Action:
    """A create, a delete or a failure of a query, at the beginning of a round or while a batch of a stream runs."""

    round: int
    kind: str
    query: str
    during: str | None = None

    @property
    def key(self) -> str:
        return f"{self.kind} {self.query}"


@dataclass(frozen=True)
class Workload:
    """``batches``: by stream, the (round, first row, last row) of each batch. ``readers``: by query, how many rounds
    lie between two readings, and the limit of a page. ``damages``: the round of each."""

    seed: int
    rounds: int
    batches: dict[str, list[tuple[int, int, int]]]
    actions: list[Action]
    fires: list[int]
    tidies: list[int]
    idles: list[int]
    damages: dict[str, int]
    readers: dict[str, tuple[int, int]]
    tasks: int

    def dumps(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def loads(cls, data: dict[str, Any]) -> Workload:
        return cls(**{**data, "actions": [Action(**one) for one in data["actions"]]})


def streams() -> list[Stream]:
    return [
        Stream(name, parse_ddl(ddl), "time", LATENESS, (("source", "recorded"),), SKEW, SECOND)
        for name, ddl in SCHEMAS.items()
    ]


def make(seed: int, folder: Path, *, rounds: int = 12, rows: int = 40) -> Workload:
    """The workload of a seed; its input is written to the folder."""
    chance = random.Random(seed)
    silent = chance.randrange(4, rounds - 5)
    batches: dict[str, list[tuple[int, int, int]]] = {}
    for name in SCHEMAS:
        table, batches[name] = _input(chance, name, rounds, rows, (silent, silent + 1) if name == "ads" else ())
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=rows)
    return Workload(
        seed=seed,
        rounds=rounds,
        batches=batches,
        actions=_actions(chance, rounds),
        fires=sorted({rounds - 1, *(k for k in range(rounds) if chance.random() < 0.6)}),
        tidies=sorted({rounds - 1, *(k for k in range(3, rounds) if chance.random() < 0.5)}),
        idles=[silent + 1],
        damages=_damages(chance, rounds),
        readers={name: (chance.choice((1, 2, 3)), chance.choice((1, 3, 1000))) for name in QUERIES},
        tasks=chance.choice((1, 2)),
    )


def _actions(chance: random.Random, rounds: int) -> list[Action]:
    """Half of the queries from the beginning, the others later; some are deleted, one so early that its history is
    forgotten before the end."""
    actions: list[Action] = []
    names = [name for name in QUERIES if name not in (FAILED, OFFENDER, SUNK, POISON)]
    chance.shuffle(names)
    for name in (FAILED, OFFENDER, SUNK, *names[: len(names) // 2]):
        actions.append(Action(0, "create", name))
    for name in names[len(names) // 2 :]:
        actions.append(Action(chance.randrange(1, rounds - 4), "create", name, _during(chance)))
    begun = {action.query: action.round for action in actions}
    actions.append(Action(2, "delete", names[0], _during(chance)))
    for name in chance.sample(names[1:], 3):
        actions.append(Action(chance.randrange(begun[name] + 1, rounds), "delete", name, _during(chance)))
    actions.append(Action(chance.randrange(2, rounds - 2), "fail", FAILED))
    actions.append(Action(chance.randrange(2, rounds - 3), "create", POISON))
    return sorted(actions, key=lambda action: (action.round, action.kind, action.query))


def _damages(chance: random.Random, rounds: int) -> dict[str, int]:
    kinds = [REBUILT, LOST, VERSIONS, COMPACTED]
    return dict(zip(kinds, sorted(chance.sample(range(1, rounds - 2), len(kinds))), strict=True))


def _during(chance: random.Random) -> str | None:
    return "purchases" if chance.random() < 0.4 else None


def _input(
    chance: random.Random, name: str, rounds: int, rows: int, silent: tuple[int, ...]
) -> tuple[pa.Table, list[tuple[int, int, int]]]:
    """Rows in the order of arrival: some are late, one has no time, one comes from the far future."""
    times: list[int | None] = []
    batches: list[tuple[int, int, int]] = []
    for number in range(rounds):
        if number in silent:
            continue
        count = chance.randrange(rows // 2, rows)
        batches.append((number, len(times), len(times) + count))
        for _ in range(count):
            late = chance.choice((2, 5, 9)) * SECOND if chance.random() < 0.08 else 0
            times.append(START + number * ROUND + chance.randrange(ROUND) - late)
    times[chance.randrange(len(times))] = None
    times[chance.randrange(len(times))] = START + 100 * SKEW
    value = "price" if name == "purchases" else "cost"
    columns = {
        "user_id": pa.array([chance.randrange(12) for _ in times], pa.int32()),
        "gem_pack": pa.array([chance.randrange(5) for _ in times], pa.int32()),
        value: pa.array([chance.randrange(100) for _ in times], pa.int64()),
        "time": pa.array(times, pa.timestamp("us", tz="UTC")),
    }
    return pa.table(columns), batches
