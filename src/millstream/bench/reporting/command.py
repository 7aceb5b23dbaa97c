"""The command that a suite was asked for by, from its options."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from millstream.bench.driving.model import Suite
from millstream.bench.reporting.outcomes import all_runs

# Of a single run, what a number or a flag of the command is called; its options are kept as text.
NUMBERS = ("rate", "seconds", "queries", "density", "cores", "seed")
NOT_GIVEN = ("None", "0")
# The density of the command where none is asked for, so that 0 is one that was.
OWN_ZERO = "density"
FLINK = "flink"


def command_of(suite: Suite) -> str | None:
    """None where the options are not those of a command."""
    if "sections" in suite.options:
        return shlex.join(["millstream", "bench", "suite", *_of_sections(suite)])
    if "workload" in suite.options:
        return shlex.join(["millstream", "bench", "run", *_of_workload(suite)])
    return None


def _of_sections(suite: Suite) -> Iterator[str]:
    options = suite.options
    if options.get("quick"):
        yield "--quick"
    if options.get("seed") is not None:
        yield f"--seed={options['seed']}"
    for section in options["sections"]:
        yield f"--section={section}"
    # Reports of before this was an option of theirs have its runs.
    if options.get("flink", any(run.spec.system == FLINK for run in all_runs(suite))):
        yield "--flink"


def _of_workload(suite: Suite) -> Iterator[str]:
    options: Mapping[str, Any] = suite.options
    yield str(options["workload"])
    for system in dict.fromkeys(run.spec.system for run in all_runs(suite)):
        yield f"--system={system}"
    for name in NUMBERS:
        value = str(options.get(name))
        if value not in NOT_GIVEN or (name == OWN_ZERO and value == "0"):
            yield f"--{name}={value}"
    if str(options.get("profile")) == "True":
        yield "--profile"
