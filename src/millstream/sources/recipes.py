"""Splits as text: what the tasks of a batch read, kept so that they can read it again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from millstream.sources.generators import generator_from
from millstream.sources.splits import FileSplit, GeneratorSplit, Split

_DEFAULTS = {field.name: field.default for field in fields(FileSplit)}


def splits_text(tasks: Sequence[Sequence[Split]]) -> str:
    """The splits of each task.

    >>> splits_text([[FileSplit("/in/a.parquet", "parquet", 0, 25)]])
    '[[{"path":"/in/a.parquet","format":"parquet","rows":25}]]'
    """
    return json.dumps([[_written(split) for split in task] for task in tasks], separators=(",", ":"))


def _written(split: Split) -> dict[str, Any]:
    if isinstance(split, GeneratorSplit):
        return {"generator": split.generator.describe(), "start": split.start, "stop": split.stop}
    return {name: value for name, value in asdict(split).items() if value != _DEFAULTS[name]}


def splits_from(text: str) -> list[list[Split]]:
    """The splits of a text that ``splits_text`` wrote."""
    return [[_read(split) for split in task] for task in json.loads(text)]


def _read(split: dict[str, Any]) -> Split:
    if "generator" in split:
        return GeneratorSplit(generator_from(split["generator"]), split["start"], split["stop"])
    return FileSplit(**split)
