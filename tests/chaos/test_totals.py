"""After the kills: every crash point had its turn, and there were enough of them. The last file of the suite."""

from __future__ import annotations

from millstream.crashpoints import POINTS
from tests.chaos.conftest import Chaos
from tests.chaos.runs import Kill
from tests.chaos.schedule import ELSEWHERE, every_point, first_pass

SEED = 1
LEAST_DEATHS = 180
POSTGRES_RUNS = 10
# Kills of a run that is made for what was missed.
IN_A_ROW = 4


def test_nothing_was_left_out(chaos: Chaos) -> None:
    _all_points(chaos)
    extra = [Kill(f"*:{3 * n}") for n in range(1, LEAST_DEATHS - chaos.deaths.total() + 1)]
    assert chaos.kill(SEED, [extra[n : n + IN_A_ROW] for n in range(0, len(extra), IN_A_ROW)]) == []
    assert chaos.deaths.total() >= LEAST_DEATHS
    print(f"{chaos.deaths.total()} deaths at {len(chaos.deaths)} places")


def test_one_pass_over_all_crash_points_on_postgres(chaos_on_postgres: Chaos) -> None:
    reference = chaos_on_postgres.reference(SEED)
    chaos_on_postgres.kill(SEED, every_point(reference.names, SEED, 1, POSTGRES_RUNS))
    _all_points(chaos_on_postgres)


def _all_points(chaos: Chaos) -> None:
    """Some kills come too late, because the run is at its end; what they missed has its turn here: several in a run,
    and what is too late even then in one of its own."""
    for number in (IN_A_ROW, 1):
        missing = [name for name in POINTS if name not in chaos.deaths and name not in ELSEWHERE]
        plans = [missing[first : first + number] for first in range(0, len(missing), number)]
        late = chaos.kill(SEED, [[kill for name in plan for kill in first_pass(name)] for plan in plans])
    assert late == []
    assert set(POINTS) - ELSEWHERE <= set(chaos.deaths)
