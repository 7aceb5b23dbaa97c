"""``millstream bench run``: one workload on some systems, at a rate or in search of the sustainable one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from millstream.bench.campaign import DEFAULT_SECONDS, Asked, Campaign
from millstream.bench.driving.model import Suite
from millstream.bench.machine import describe_machine
from millstream.bench.suite import keep, start_of
from millstream.bench.systems.kinds import MILLSTREAM, system_kind
from millstream.bench.workloads.catalogue import find


@dataclass(frozen=True)
class Options:
    """``rate`` None searches. ``queries`` and ``seed`` None and ``cores`` 0 take what workload and machine have."""

    workload: str
    out: Path = Path("bench-results")
    systems: tuple[str, ...] = (MILLSTREAM,)
    rate: float | None = None
    seconds: float = DEFAULT_SECONDS
    queries: int | None = None
    density: int = 1_000_000
    cores: int = 0
    seed: int | None = None
    profile: bool = False

    def __post_init__(self) -> None:
        find(self.workload)
        for system in self.systems:
            system_kind(system)


def main(options: Options, console: Console | None = None) -> dict[str, Any]:
    """Run it on each system in turn; the result says where the report is. A profile is that of a run after the search,
    at the rate that was found."""
    screen = console or Console(stderr=True, highlight=False)
    machine = describe_machine()
    began = datetime.now(UTC)
    directory = options.out / f"{options.workload}-{began:%Y%m%dT%H%M%SZ}"
    steps = len(options.systems) * (2 if options.profile and options.rate is None else 1)
    with Campaign(directory, screen, steps, profile=options.profile).opened() as campaign:
        for system in options.systems:
            asked = Asked(
                options.workload,
                system,
                options.seconds,
                options.queries,
                options.density,
                options.seed,
                options.cores,
            )
            if options.rate is None:
                best = campaign.search(asked, start_of(asked)).best
                if options.profile and best is not None:
                    campaign.run(asked, best.spec.rate)
            else:
                campaign.run(asked, options.rate)
    asked_for = {name: str(value) for name, value in asdict(options).items()} | {"began": began.isoformat()}
    suite = Suite(
        name=options.workload,
        machine=asdict(machine),
        options=asked_for,
        searches=tuple(campaign.searches),
        runs=tuple(campaign.runs),
        failures=tuple(campaign.failures),
    )
    return keep(suite, directory, screen)
