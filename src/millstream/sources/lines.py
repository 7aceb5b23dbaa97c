"""Blocks of lines: what decoding one gives, and what the decoders of all text formats share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.model.stream import Field
from millstream.sources.chunk import shortened
from millstream.sources.convert import convert_texts

# Line indexes; and a line that cannot be decoded: its index in the block, the reason, the raw text.
Places = npt.NDArray[np.int64]
BadLine = tuple[int, str, str]


@dataclass(frozen=True, slots=True)
class Decoded:
    """The good rows of a block with all fields, and the bad lines as (index in the block, reason, raw text).

    ``lines`` are the good rows' line indexes; None when they are simply counted from 0.
    """

    table: pa.Table
    lines: Places | None = None
    bad: list[BadLine] = field(default_factory=list)


def lines_of(block: bytes) -> list[bytes]:
    lines = block.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def without(block: bytes, dropped: npt.NDArray[np.bool_]) -> tuple[bytes, Places, list[bytes]]:
    lines = lines_of(block)
    kept = np.flatnonzero(~dropped)
    return b"\n".join([lines[i] for i in kept]) + b"\n", kept, lines


@dataclass(frozen=True, slots=True)
class Shape:
    """Where the lines of a block end, which are blank and, for CSV, which hold an odd number of quotes."""

    count: int
    blank: npt.NDArray[np.bool_] | None
    unbalanced: npt.NDArray[np.bool_] | None

    @classmethod
    def of(cls, block: bytes, quotes: bool) -> Shape:
        count = block.count(b"\n") + (not block.endswith(b"\n"))
        has_quotes = quotes and b'"' in block
        if not has_quotes and b"\n\n" not in block and b"\n\r\n" not in block and block[:1] not in (b"\n", b"\r"):
            return cls(count, None, None)
        data = np.frombuffer(block, np.uint8)
        ends = np.flatnonzero(data == ord("\n"))
        if len(ends) < count:
            ends = np.append(ends, len(data))
        starts = np.concatenate(([0], ends[:-1] + 1))
        blank = (ends == starts) | ((ends == starts + 1) & (data[np.minimum(starts, len(data) - 1)] == ord("\r")))
        unbalanced = None
        if has_quotes:
            unbalanced = np.diff(np.searchsorted(np.flatnonzero(data == ord('"')), ends), prepend=0) % 2 == 1
        return cls(count, _some(blank), _some(unbalanced))


def _some(mask: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_] | None:
    return mask if mask is not None and mask.any() else None


def typed_rows(
    table: pa.Table,
    fields: Sequence[Field],
    kept: Places | None,
    bad: list[BadLine],
    block: bytes,
) -> Decoded:
    """Convert columns of text; rows with a value that cannot be converted move to the bad ones."""
    reasons: dict[int, str] = {}
    columns = []
    for wanted in fields:
        column = table[wanted.name]
        failed = None
        if column.type != wanted.type.arrow or wanted.type.kind == "string":
            column, failed = convert_texts(column, wanted.type)
        columns.append(column)
        for row in np.flatnonzero(failed) if failed is not None else ():
            value = table[wanted.name][int(row)].as_py()
            shown = shortened(value)[:60] if isinstance(value, bytes) else str(value)[:60]
            reasons.setdefault(int(row), f"column {wanted.name!r}: {shown!r} is no {wanted.type}")
    typed = pa.table(columns, [f.name for f in fields])
    if not reasons:
        return Decoded(typed, kept, bad)
    lines = lines_of(block)
    place = np.arange(len(lines)) if kept is None else kept
    good = np.ones(len(place), bool)
    good[list(reasons)] = False
    bad = bad + [(int(place[row]), reason, shortened(lines[place[row]])) for row, reason in reasons.items()]
    return Decoded(typed.filter(pa.array(good)), place[good], sorted(bad))
