"""NULLs in the bytes of a file: what stands under them."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa


def blanked(column: pa.Array) -> pa.Array:
    """The column with zeros under its NULLs. Arrow leaves there what the memory held before, so that the same rows
    would not give the same bytes twice, as those of a bucket that is made again must. Of texts nothing stands there."""
    kind = column.type
    if not column.null_count or not (pa.types.is_primitive(kind) or pa.types.is_decimal(kind)):
        return column
    valid = np.asarray(column.is_valid())
    if pa.types.is_boolean(kind):
        return pa.array(np.asarray(column.fill_null(False)), mask=~valid)
    filled = column.fill_null(pa.scalar(Decimal(0) if pa.types.is_decimal(kind) else 0, kind))
    return pa.Array.from_buffers(kind, len(column), [pa.array(valid).buffers()[1], filled.buffers()[1]])
