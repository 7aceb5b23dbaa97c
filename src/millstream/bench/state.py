"""How much state an engine holds, against the two layouts one would think of first."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from millstream.bench.jobs import StateSize
from millstream.engine.buckets import Stored
from millstream.engine.core import Core
from millstream.kernels.classes import table_of
from millstream.model import codec

# A cell of a dense layout: a 64-bit count and a 64-bit sum, no key and no label.
DENSE_CELL_BYTES = 16
_EVER = 1 << 62


def state_size(core: Core, stream: str, keys: int) -> StateSize:
    """Measure the buckets of a stream whose due windows have fired, so that closed slices are compacted."""
    pipeline = core.pipelines[stream]
    assert pipeline.watermark is not None
    paths = {(ref.group, ref.version): ref.path for ref in core.metastore.group_versions(stream)}
    stored = [s for group in {g for g, _ in paths} for s in pipeline.buckets.between(group, -_EVER, _EVER)]
    closed = [s for s in stored if s.bucket.end <= pipeline.watermark]
    sizes = {key: version_size(core.home.path(path)) for key, path in paths.items()}
    slices = _slices(closed)
    return StateSize(
        cells=sum(s.bucket.cells for s in closed),
        bytes=sum(s.bucket.length for s in closed),
        open_cells=sum(s.bucket.cells for s in stored) - sum(s.bucket.cells for s in closed),
        slices=len(slices),
        keys=keys,
        by_classes=sum(sizes[group, version][0] * keys for group, version, _, _ in slices),
        by_queries=sum(sizes[group, version][1] * keys for group, version, _, _ in slices),
    )


def _slices(stored: Iterable[Stored]) -> set[tuple[str, int, int, int]]:
    return {(s.bucket.group, s.bucket.version, s.bucket.start, s.bucket.end) for s in stored}


@lru_cache(maxsize=4096)
def version_size(path: str) -> tuple[int, int]:
    """Classes and queries of a group version's file."""
    version = codec.loads(Path(path).read_text(encoding="utf-8"))
    return table_of(version).classes, len(version.members)
