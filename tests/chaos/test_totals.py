"""After the kills: every crash point had its turn, and there were enough of them. The last file of the suite."""

from __future__ import annotations

from millstream.crashpoints import POINTS
from tests.chaos.conftest import Chaos
from tests.chaos.runs import Kill, check
from tests.chaos.schedule import ELSEWHERE, every_point, first_pass

SEED = 1
LEAST_DEATHS = 180
POSTGRES_RUNS = 10


def test_nothing_was_left_out(chaos: Chaos) -> None:
    """Some kills come too late, because the run is at its end; what they missed has its turn here."""
    reference = chaos.reference(SEED)
    missing = [name for name in POINTS if name not in chaos.deaths and name not in ELSEWHERE]
    extra = LEAST_DEATHS - chaos.deaths.total() - len(missing)
    for kills in [*map(first_pass, missing), *([Kill(f"*:{3 * n}")] for n in range(1, extra + 1))]:
        run = chaos.run(reference.prepared)
        assert run.finish(kills) == []
        check(run.report(), reference.report)
        chaos.count(run)
    assert set(POINTS) - ELSEWHERE <= set(chaos.deaths)
    assert chaos.deaths.total() >= LEAST_DEATHS
    print(f"{chaos.deaths.total()} deaths at {len(chaos.deaths)} places")


def test_one_pass_over_all_crash_points_on_postgres(chaos_on_postgres: Chaos) -> None:
    reference = chaos_on_postgres.reference(SEED)
    for kills in every_point(reference.names, SEED, 1, POSTGRES_RUNS):
        run = chaos_on_postgres.run(reference.prepared)
        run.finish(kills)
        check(run.report(), reference.report)
        chaos_on_postgres.count(run)
    for name in [name for name in POINTS if name not in chaos_on_postgres.deaths and name not in ELSEWHERE]:
        run = chaos_on_postgres.run(reference.prepared)
        assert run.finish(first_pass(name)) == []
        check(run.report(), reference.report)
        chaos_on_postgres.count(run)
    assert set(POINTS) - ELSEWHERE <= set(chaos_on_postgres.deaths)
