"""Exact integer sums multiplied by counts: limbs of 32 bits, carried only where int64 could overflow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.kernels.batch import LIMB, LIMB_MASK
from millstream.model.group import Measure

Matrix = npt.NDArray[Any]

# Limbs stay below half of what an int64 holds, so that a carry can be added to any of them.
HEADROOM = 1 << 62
# 38 digits times 2^62 rows need 190 bits: four limbs and a last one of 63.
MOST_LIMBS = 5
# Counts too large for a plain product are multiplied in pieces of so many bits: a limb times a piece has 48.
_PIECE = 16
_PIECE_MASK = (1 << _PIECE) - 1


def exact(measure: Measure) -> bool:
    """Whether a measure's planes are limbs."""
    return measure.kind == "sum" and not measure.argument.type.floating


def largest(limbs: Sequence[Matrix]) -> int:
    """The largest absolute value of any limb."""
    return max((max(-int(limb.min()), int(limb.max())) for limb in limbs if limb.size), default=0)


def fitted(limbs: Sequence[Matrix], factor: int) -> tuple[tuple[Matrix, ...], bool]:
    """Limbs that can be multiplied by counts and added up, ``factor`` in all, and whether that is so; they are carried
    if need be."""
    if largest(limbs) * factor < HEADROOM:
        return tuple(limbs), True
    tight = carried(limbs)
    return tight, largest(tight) * factor < HEADROOM


def carried(limbs: Sequence[Matrix]) -> tuple[Matrix, ...]:
    """The same values, all limbs but the last in [0, 2^32), the last as small unless it is the fifth."""
    low = list(limbs[:MOST_LIMBS])
    if len(limbs) > MOST_LIMBS:
        # Wraps around on the way, but the sum fits; what stands above is a multiple of 2^64 here.
        low[-1] = low[-1] + (limbs[MOST_LIMBS] << LIMB)
    done: list[Matrix] = []
    top = low[0]
    for limb in low[1:]:
        done.append(top & LIMB_MASK)
        top = limb + (top >> LIMB)
    while len(done) < MOST_LIMBS - 1 and largest([top]) > LIMB_MASK:
        done.append(top & LIMB_MASK)
        top = top >> LIMB
    return (*done, top)


def product(limbs: Sequence[Matrix], counts: Matrix) -> tuple[Matrix, ...]:
    """Carried limbs times counts of any size, as five carried limbs."""
    shape = np.broadcast_shapes(limbs[0].shape, counts.shape)
    total = [np.zeros(shape, np.int64) for _ in range(len(limbs) + 3)]
    for piece in range(64 // _PIECE):
        factor = (counts >> (_PIECE * piece)) & _PIECE_MASK
        if not factor.any():
            continue
        for place, limb in enumerate(limbs, start=piece // 2):
            part = limb * factor
            if piece % 2 == 0:
                total[place] += part
            else:
                total[place] += (part & _PIECE_MASK) << _PIECE
                total[place + 1] += part >> _PIECE
    tight = carried(total)
    return (*tight, *(np.zeros(shape, np.int64) for _ in range(MOST_LIMBS - len(tight))))
