"""Measuring a chunk on its way through ingest."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from millstream.kernels.batch import Batch
from millstream.kernels.bucket import Cells
from millstream.kernels.group import Group
from millstream.model.statistics import DELAY_STEPS, GroupFigures, Moments
from millstream.model.text import written

IntArray = npt.NDArray[np.int64]

# Rows looked at for delays and moments: their error is far below what decisions need.
SAMPLE = 20_000


def delays(times: IntArray, clock: int) -> tuple[float, ...]:
    """Rows by delay; of a large chunk, the sample's counts scaled up."""
    step = max(1, len(times) // SAMPLE)
    millis = np.maximum(clock - times[::step], 0) // 1000
    places = np.minimum(np.ceil(np.log2(millis + 1)).astype(np.int64), DELAY_STEPS - 1)
    counts = np.bincount(places) * (len(times) / max(len(places), 1))
    return tuple(counts.tolist())


def moments(groups: list[Group], batch: Batch) -> dict[str, Moments]:
    """First and second moments of what is summed up."""
    found: dict[str, Moments] = {}
    step = max(1, batch.rows // SAMPLE)
    arguments = dict.fromkeys(m.argument for g in groups for m in g.version.measures if m.kind in ("sum", "fsum"))
    for argument in arguments:
        if argument.type.kind == "decimal" and argument.type.precision > 18:
            continue
        column = batch.number(argument)
        values = column.values[::step].astype(np.float64)
        if argument.type.kind == "decimal":
            values = values / 10.0**argument.type.scale
        good = np.isfinite(values)
        if column.valid is not None:
            good &= column.valid[::step]
        values = values if good.all() else values[good]
        found[written(argument)] = Moments(
            float(len(values) * step), float(values.sum()) * step, float(np.dot(values, values)) * step
        )
    return found


def group_figures(group: Group, cells: Cells) -> GroupFigures:
    """Rows by label of one slice."""
    labels = group.labels.shape[1]
    if cells.at is None:
        rows = cells.rows.reshape(labels, -1).sum(axis=1)
    else:
        rows = np.bincount(cells.label, None if cells.by_row else cells.rows, minlength=labels)
    return GroupFigures(group.version.version, cells.key_count, tuple(rows.astype(np.float64).tolist()))
