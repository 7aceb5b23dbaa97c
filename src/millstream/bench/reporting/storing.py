"""A suite as files: ``suite.json``, and for each run a file with every raw sample.

Machine and options hold JSON values: a tuple in them comes back as a list, and NaN as text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from millstream.bench.driving.model import Claim, RunResult, Search, Suite
from millstream.bench.reporting.claims import claim_json
from millstream.bench.reporting.outcomes import Cell, all_runs
from millstream.errors import SpecError
from millstream.server.wire import from_json, to_json

FORMAT = "millstream benchmark"
# Goes up when older files can no longer be read.
VERSION = 2
SUITE = "suite.json"
RUNS = "runs"
# Of a run's file name: enough to tell it by, short enough for any file system.
NAME_LENGTH = 80
MEASURE_AGAIN = "take another copy of the directory, or measure again"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _StoredSearch:
    title: str
    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _StoredSuite:
    """A suite with the names of files in place of its runs."""

    name: str
    machine: dict[str, Any]
    options: dict[str, Any]
    searches: tuple[_StoredSearch, ...]
    runs: tuple[str, ...]
    claims: tuple[Claim, ...]
    failures: tuple[str, ...]


def save(suite: Suite, directory: Path) -> Path:
    """Write all of it, in place of what was there; gives the path of ``suite.json``."""
    (directory / RUNS).mkdir(parents=True, exist_ok=True)
    names: dict[int, str] = {}
    for number, run in enumerate(all_runs(suite), start=1):
        names[id(run)] = f"{RUNS}/{number:03d}-{_slug(run)}.json"
        _write(directory / names[id(run)], "run", run)
    searches = tuple(_StoredSearch(one.title, tuple(names[id(run)] for run in one.runs)) for one in suite.searches)
    runs = tuple(names[id(run)] for run in suite.runs)
    stored = _StoredSuite(
        suite.name, suite.machine, suite.options, searches, runs, claims=suite.claims, failures=suite.failures
    )
    # With their verdicts, which are not read back: they follow from the claims.
    _write(directory / SUITE, "suite", to_json(stored) | {"claims": [claim_json(one) for one in suite.claims]})
    # What was saved there before had fewer runs, and other numbers for them.
    for old in (directory / RUNS).glob("*.json"):
        if f"{RUNS}/{old.name}" not in names.values():
            old.unlink()
    return directory / SUITE


def load(directory: Path) -> Suite:
    """What `save` wrote there."""
    if not (directory / SUITE).is_file():
        hint = f"name a directory that a benchmark has written: it holds {SUITE}"
        raise SpecError("BAD_FILE", f"there are no results of a benchmark in {directory}", hint=hint)
    stored = _read(directory / SUITE, "suite", _StoredSuite)
    names = dict.fromkeys([*(name for search in stored.searches for name in search.runs), *stored.runs])
    runs = {name: _read(directory / name, "run", RunResult) for name in names}
    return Suite(
        stored.name,
        stored.machine,
        stored.options,
        tuple(Search(one.title, tuple(runs[name] for name in one.runs)) for one in stored.searches),
        tuple(runs[name] for name in stored.runs),
        stored.claims,
        stored.failures,
    )


def _slug(run: RunResult) -> str:
    cell = Cell.of(run.spec)
    return re.sub(r"[^a-z0-9]+", "-", f"{cell.workload} {cell.system} {cell.queries}q".lower())[:NAME_LENGTH].strip("-")


def _write(path: Path, key: str, value: Any) -> None:
    body = {"format": FORMAT, "version": VERSION, key: to_json(value)}
    path.write_text(json.dumps(body, ensure_ascii=False), encoding="utf-8")


def _read(path: Path, key: str, kind: type[T]) -> T:
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError("BAD_FILE", f"cannot read {path}", detail=error.strerror, hint=MEASURE_AGAIN) from None
    except ValueError as error:
        # Of a file that was cut short, or is no text at all.
        raise SpecError("BAD_FILE", f"{path} is no JSON, or cut short", detail=str(error), hint=MEASURE_AGAIN) from None
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise SpecError(
            "BAD_FILE", f"{path} is not a result of this benchmark", hint=f'its "format" should be "{FORMAT}"'
        )
    if body.get("version") != VERSION:
        words = f"{path} is of version {body.get('version')}, and this Millstream reads version {VERSION}"
        raise SpecError("BAD_FILE", words, hint="read it with the Millstream that wrote it, or measure again")
    try:
        return from_json(kind, body.get(key))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or key
        raise SpecError(
            "BAD_FILE", f"{path} lacks part of a {key}", detail=f"{where}: {first['msg']}", hint=MEASURE_AGAIN
        ) from None
