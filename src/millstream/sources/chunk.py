"""What reading a split gives: a piece of the stream in Arrow, the rows that could not be decoded, and their origin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.sources.files import local_path, open_file

# Rows of a chunk: large enough that the fixed cost of a kernel call vanishes, small enough for a worker's memory.
CHUNK_ROWS = 1 << 20
# Characters kept of a row that cannot be decoded; its origin tells where the whole of it stands.
RAW_LIMIT = 16_384
# Bytes read at once to count the lines before an offset.
_COUNT_BLOCK = 16 << 20

REJECTED = pa.schema([("reason", pa.string()), ("origin", pa.string()), ("raw", pa.string())])


@dataclass(frozen=True, slots=True)
class Unread:
    """A column of times that need not be read where the smallest and the largest of them, in microseconds, are
    enough."""

    column: str
    enough: Callable[[int, int], bool]


@dataclass(frozen=True, slots=True)
class Chunk:
    """``rejected`` has the schema ``REJECTED``, or is None when every row was decoded. ``span``: the smallest and the
    largest time, where these were enough and the column was not read."""

    table: pa.Table
    rejected: pa.Table | None
    origin: Origin
    span: tuple[int, int] | None = None

    @property
    def rows(self) -> int:
        return int(self.table.num_rows) + (self.rejected.num_rows if self.rejected is not None else 0)

    def origin_of(self, row: int) -> str:
        """Where a row of ``table`` stands: ``path:line`` for text, ``path:row`` for Parquet, both counted from 1."""
        return self.origin.of(row)


@dataclass(frozen=True, slots=True)
class Origin:
    """The place of a chunk: ``first`` is the number of its first row, counted from byte ``offset`` of the file.

    ``positions`` are the rows' places relative to ``first`` when rows between them are missing.
    """

    name: str
    first: int
    offset: int = 0
    positions: npt.NDArray[np.int64] | None = None

    def of(self, row: int) -> str:
        return self.at(row if self.positions is None else int(self.positions[row]))

    def at(self, position: int) -> str:
        before = lines_before(self.name, self.offset) if self.offset else 0
        return f"{local_path(self.name) or self.name}:{before + self.first + position}"


@lru_cache(maxsize=64)
def lines_before(path: str, offset: int) -> int:
    """Line ends in the first ``offset`` bytes; asked only when a row has to be named, since it reads them all."""
    lines = 0
    with open_file(path) as source:
        while offset > 0 and (block := source.read(min(offset, _COUNT_BLOCK))):
            lines += block.count(b"\n")
            offset -= len(block)
    return lines


def rejected_table(rows: Sequence[tuple[str, str, str]]) -> pa.Table | None:
    """A table of (reason, origin, raw) rows; None for none."""
    if not rows:
        return None
    reasons, origins, raws = zip(*rows, strict=True)
    return pa.table(
        [pa.array(reasons, pa.string()), pa.array(origins, pa.string()), pa.array(raws, pa.string())], REJECTED
    )


def shortened(raw: bytes) -> str:
    """The text of a bad row, cut and made valid for the dead letters."""
    return raw[: 4 * RAW_LIMIT].rstrip(b"\r\n").decode("utf-8", "replace")[:RAW_LIMIT]
