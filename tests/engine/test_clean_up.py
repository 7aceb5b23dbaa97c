"""What the metastore names is there, and nothing else is: after every batch, fire and tidying. No Spark."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from .inprocess import PURCHASES, Small, count, sums


@pytest.mark.parametrize("seed", range(3))
def test_files_and_metastore_agree(home: Path, tmp_path: Path, seed: int) -> None:
    """Of one file, the buckets of a group with short windows are not needed any more, then others are compacted."""
    chance = random.Random(seed)
    small = Small(home, tmp_path / "in", tasks=2)
    small.create("short", count())
    small.create("long", sums(size=8, slide=4))
    for number in range(12):
        small.batch(number)
        if chance.random() < 0.7:
            small.core.firing.fire(small.core.pipelines[PURCHASES])
        assert set(small.core.home.files()) == small.core.metastore.referenced_files()
    assert any("compact" in path for path in small.paths("buckets"))
    small.core.registry.seal([], ["short", "long"])
    small.core.fire_all()
    small.core.tidy(-(10**15), 10**15)
    assert [path for path in small.core.home.files() if not path.startswith("groups")] == []
    assert set(small.core.home.files()) == small.core.metastore.referenced_files()
    small.close()
