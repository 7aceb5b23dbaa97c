"""The command of a report, which asks for the same again."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from tests.bench.reporting.suites import result
from typer.testing import CliRunner

from millstream.bench import single, suite
from millstream.bench.driving.model import Suite
from millstream.bench.reporting.command import command_of
from millstream.cli.main import app

RUNS = (result(), result(system="spark"), result())


def of_run(**changes: Any) -> dict[str, str]:
    """The options of a single run, as it keeps them."""
    return {name: str(value) for name, value in asdict(single.Options("gaming-sum", **changes)).items()}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sections": ["single"], "quick": False, "seed": None}, "suite --section=single"),
        ({"sections": ["single", "cores"], "quick": True, "seed": 0, "flink": True},
         "suite --quick --seed=0 --section=single --section=cores --flink"),
        ({"sections": ["single"], "flink": False}, "suite --section=single"),
        (of_run(), "run gaming-sum --system=millstream --system=spark --seconds=20.0 --density=1000000"),
        (of_run(rate=2e6, queries=5, density=0, cores=1, seed=3, profile=True),
         "run gaming-sum --system=millstream --system=spark --rate=2000000.0 --seconds=20.0 --queries=5 --density=0"
         " --cores=1 --seed=3 --profile"),
    ],
)  # fmt: skip
def test_the_options_give_the_command(options: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command = command_of(Suite("s", {}, options, runs=RUNS))
    assert command == f"millstream bench {words}"
    given: list[Any] = []
    for module in (single, suite):
        monkeypatch.setattr(module, "main", lambda options, console: given.append(options) or {"failures": []})
    assert CliRunner().invoke(app, command.split()[1:]).exit_code == 0
    kept = asdict(given[0])
    for name in options.keys() - {"out", "systems"}:
        wanted = tuple(options[name]) if name == "sections" else options[name]
        assert str(kept[name]) == str(wanted)


def test_flink_is_known_by_its_runs_where_no_option_says_it() -> None:
    suite = Suite("s", {}, {"sections": ["single"]}, runs=(result(system="flink"),))
    assert command_of(suite) == "millstream bench suite --section=single --flink"


def test_other_options_are_those_of_no_command() -> None:
    assert command_of(Suite("s", {}, {"seed": 1})) is None
