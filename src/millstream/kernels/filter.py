"""Queries without a window: the rows of a chunk that each selects, projected; their unit is (query, micro-batch)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.kernels.batch import Batch
from millstream.kernels.group import Group
from millstream.kernels.ingest import Tally, blame, count_selection_failures


def select_rows(group: Group, batch: Batch, tally: Tally) -> dict[str, tuple[pa.Array, ...]]:
    """The output columns of every query that selects a row; expressions are evaluated once, on rows that some query
    selects."""
    classes = batch.classes(group.table)
    count_selection_failures(group, batch, tally)
    wanted = np.flatnonzero(classes < group.table.classes)
    chosen = batch.only(wanted)
    chosen.prepare(group.projected)
    blame(group, chosen.broken, tally)
    classes = classes[wanted]
    found: dict[str, tuple[pa.Array, ...]] = {}
    for index, member in enumerate(group.version.members):
        mine = np.flatnonzero(group.table.queries[:, index][classes])
        if not len(mine):
            continue
        rows = pa.array(mine)
        found[member.query] = tuple(chosen.value(out.expression).take(rows) for out in member.outputs)
        tally.rows[member.query] += len(mine)
        for expression in dict.fromkeys(out.expression for out in member.outputs):
            failed = chosen.failures(expression)
            if failed is not None:
                tally.failures[member.query] += int(failed[mine].sum())
    return found
