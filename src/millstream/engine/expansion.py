"""Rows of joins built for readers: from the description of an answer to pages of its rows.

A description names the buckets of each leg. The rows of a leg are found through the index of those buckets, and the
join runs in DuckDB as a stream: an answer of any size is read with the memory of its inputs.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from millstream.kernels import rows
from millstream.kernels.expand import Pages
from millstream.kernels.stack import slice_id
from millstream.model.join import JoinQuery
from millstream.model.legs import leg_fields, leg_member
from millstream.runtime.damage import read_cells
from millstream.runtime.fire import BucketRef
from millstream.runtime.home import Home
from millstream.runtime.join_fire import described_legs
from millstream.runtime.loading import load_group

# Row tables that are known to be whole.
VERIFIED = 4096
# Answers that are being read at once without beginning again for each page.
OPEN = 8
# Descriptions whose buckets are known: some hundred KB each.
DESCRIPTIONS = 32

Key = tuple[str, int, int]


@dataclass(frozen=True)
class Described:
    """An answer that is not built yet."""

    query: JoinQuery
    id: str
    description: bytes
    start: int
    end: int


class Expansions:
    """Builds pages; those that readers are likely to ask for next continue where the last ended."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._open: OrderedDict[Key, Pages] = OrderedDict()
        self._lock = threading.Lock()

    def page(self, key: Key, described: Described, left: range, most: int) -> pa.Table:
        """The first of the rows that are left of an answer, at most so many; ``key`` names the answer."""
        with self._lock:
            pages = self._open.pop(key, None)
        if pages is None:
            pages = self._begin(described)
        table = pages.page(left.start, most)
        old: list[Pages] = []
        with self._lock:
            if key in self._open or table.num_rows >= len(left):
                # Another reader of the same answer has come back meanwhile, or this was the last page.
                old.append(pages)
            else:
                self._open[key] = pages
            while len(self._open) > OPEN:
                old.append(self._open.popitem(last=False)[1])
        for one in old:
            one.close()
        return table

    def pages(self, described: Described, most: int) -> Iterator[pa.Table]:
        """All pages of an answer."""
        skip = 0
        with self._begin(described) as pages:
            while (table := pages.page(skip, most)).num_rows:
                skip += table.num_rows
                yield table

    def _begin(self, described: Described) -> Pages:
        return Pages(described.query, leg_tables(self._home, described), described.start, described.end)

    def close(self) -> None:
        with self._lock:
            for pages in self._open.values():
                pages.close()
            self._open.clear()


@dataclass(frozen=True)
class _Leg:
    """The buckets of a leg in the order of their rows, with their starts to find a window's by."""

    versions: Sequence[str]
    buckets: Sequence[BucketRef]
    starts: Sequence[int]

    def between(self, start: int, end: int) -> Sequence[BucketRef]:
        return self.buckets[bisect_left(self.starts, start) : bisect_left(self.starts, end)]


@lru_cache(maxsize=DESCRIPTIONS)
def _legs(description: bytes) -> tuple[_Leg, ...]:
    """Of a whole fire, whose answers are mostly read one after the other."""
    legs = []
    for versions, buckets in described_legs(description):
        ordered = sorted(buckets, key=lambda ref: (ref.start, ref.batch, ref.path, ref.offset))
        legs.append(_Leg(versions, ordered, [ref.start for ref in ordered]))
    return tuple(legs)


def leg_tables(home: Home, described: Described) -> list[pa.Table]:
    """The rows of each leg that the query selects in the window, always in the same order."""
    return [_leg_table(home, described, number, leg) for number, leg in enumerate(_legs(described.description))]


def _leg_table(home: Home, described: Described, number: int, leg: _Leg) -> pa.Table:
    member = leg_member(described.id, number)
    fields = leg_fields(described.query, number)
    columns = [field.name for field in fields]
    found: list[pa.Table] = []
    for ref in leg.between(described.start, described.end):
        group = load_group(home, leg.versions[ref.version])
        if member in group.position and _inside(ref, described):
            cells = read_cells(home, ref, group, index=True)
            if cells.place is not None:
                _verify(home, ref.path, cells.place, cells.rows_checksum)
                table = rows.read_rows(home.read(ref.path), cells.place)
                found.append(rows.selected_rows(group, member, cells, table, columns))
    if found:
        return pa.concat_tables(found)
    return pa.schema([pa.field(field.name, field.type.arrow) for field in fields]).empty_table()


@lru_cache(maxsize=VERIFIED)
def _verify(home: Home, path: str, place: tuple[int, int], checksum: int | None) -> None:
    """Once for each row table, since it never changes and is much larger than what most answers take of it."""
    home.open(path).verify(*place, checksum)


def _inside(ref: BucketRef, described: Described) -> bool:
    late = slice_id(ref.start, ref.end, ref.watermark)[2]
    inside = described.start <= ref.start and ref.end <= described.end
    return inside and (late is None or late < described.end)
