"""``make chaos``: random workloads, killed and robbed at random, until the time is over or an answer is wrong.

Everything follows from the seed but kills by time, which fall where they fall.
"""

from __future__ import annotations

import argparse
import random
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from millstream.catalog import tables
from millstream.catalog.database import writer
from millstream.runtime.session import build_session
from tests.chaos import power_loss
from tests.chaos.compiled import compile_queries
from tests.chaos.forks import ForkServers
from tests.chaos.runs import AT_ONCE, DONE, KILLED, Run, check, prepare, together, undisturbed
from tests.chaos.schedule import at_random

# Runs of each workload beside the undisturbed one.
RUNS = 6
MOST_DEATHS = 12


@dataclass
class Total:
    seeds: int = 0
    runs: int = 0
    deaths: int = 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, help="do the runs of this seed alone")
    parser.add_argument("--metastore", help="URL of a PostgreSQL database, which is emptied")
    chosen = parser.parse_args(arguments)
    session = build_session()
    queries = compile_queries(session)
    session.stop()
    end = time.monotonic() + chosen.minutes * 60
    total = Total()
    folder = Path(tempfile.mkdtemp(prefix="millstream-chaos-"))
    with ForkServers(AT_ONCE) as servers:
        while True:
            seed = secrets.randbelow(10**9) if chosen.seed is None else chosen.seed
            mine = folder / str(seed)
            if not one_seed(servers, mine, queries, seed, chosen.metastore, total):
                return 1
            shutil.rmtree(mine)
            left = end - time.monotonic()
            done = f"{total.seeds} seeds, {total.runs} runs, {total.deaths} deaths"
            print(f"  {done}; {max(0.0, left / 60):.1f} min left", flush=True)
            if chosen.seed is not None or left <= 0:
                break
    shutil.rmtree(folder)
    print("every answer was right")
    return 0


def one_seed(
    servers: ForkServers, folder: Path, queries: dict[str, str], seed: int, url: str | None, total: Total
) -> bool:
    """All runs of a seed; False if one of them differs from the undisturbed one."""
    chance = random.Random(seed)
    rounds, rows = chance.randrange(10, 20), chance.randrange(10, 80)
    print(f"seed {seed}: {rounds} rounds of up to {rows} rows", flush=True)
    total.seeds += 1
    try:
        prepared = prepare(folder / "input", queries, seed, rounds=rounds, rows=rows)
        started = time.monotonic()
        run = _new_run(servers, folder / "undisturbed", prepared, url)
        expected = undisturbed(run)
        seconds, passes = time.monotonic() - started, len(run.passes()[0])
        # What one of them draws must not depend on which is faster.
        chances = [random.Random(chance.randrange(10**9)) for _ in range(RUNS)]

        def disturbed(number: int) -> Run:
            run = _new_run(servers, folder / f"run-{number}", prepared, url)
            with _told(run):
                robbed = disturb(run, chances[number], passes, seconds)
                check(run.report(), expected)
            print(f"  {'robbed' if robbed else 'killed'}: {', '.join(run.deaths) or 'too late'}", flush=True)
            shutil.rmtree(run.folder)
            return run

        jobs = [partial(disturbed, number) for number in range(RUNS)]
        # There is one database, for one run at a time.
        runs = together(jobs) if url is None else [job() for job in jobs]
        total.runs += len(runs)
        total.deaths += sum(len(run.deaths) for run in runs)
    except (AssertionError, OSError) as error:
        print(f"WRONG in {folder}\n{error}\nrepeat with: make chaos SEED={seed}", file=sys.stderr)
        return False
    return True


@contextmanager
def _told(run: Run) -> Iterator[None]:
    """Say which run it was that failed."""
    try:
        yield
    except (AssertionError, OSError) as error:
        raise AssertionError(f"after {', '.join(run.deaths) or 'no death'}, in {run.folder}: {error}") from error


def _new_run(servers: ForkServers, folder: Path, prepared: Path, url: str | None) -> Run:
    if url is not None:
        engine = writer(url)
        tables.metadata.drop_all(engine)
        engine.dispose()
    return Run(servers, folder, prepared, url)


def disturb(run: Run, chance: random.Random, passes: int, seconds: float) -> bool:
    """Kill the run some times, with or without the power, then let it finish; gives whether the power was lost."""
    robbed = chance.random() < 0.4
    for kill in at_random(passes, seconds, chance.randrange(10**9), chance.randrange(2, MOST_DEATHS)):
        code = run.start_well(kill)
        if code == DONE:
            break
        if code == KILLED and robbed:
            power_loss.lose_files(run, chance)
            power_loss.lose_checkpoint(run, chance)
    run.finish()
    return robbed


if __name__ == "__main__":
    sys.exit(main())
