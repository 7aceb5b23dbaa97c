"""Deterministic generators of the benchmark streams. Any range of rows can be made without those before it.

Each (column, block of rows) has its own Philox stream, keyed by the seed, and only the raw 64-bit words of it are
used, with integer arithmetic: NumPy keeps raw words the same in all versions, but not its distributions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.config import nearest
from millstream.errors import SourceError
from millstream.model.stream import Field
from millstream.model.types import INTEGER, LONG, TIMESTAMP, decimal

Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

# Rows that share a Philox key: starting a stream costs some microseconds, throwing away half a block a little more.
BLOCK_ROWS = 1 << 16
MICROS = 1_000_000
# Event time of row 0 unless given: a fixed moment, so that a seed alone determines the rows (2026-01-01 UTC).
DEFAULT_START = 1_767_225_600 * MICROS
_WORD = 2**64
# Columns of a block get neighbouring keys; no generator has more than this.
_COLUMN_KEYS = 64
# Sum of eight 16-bit uniform numbers: mean, and standard deviation 65536 * sqrt(8 / 12).
_LANES = 8
_LANE_MEAN = _LANES * 65_535 / 2
_LANE_DEVIATION = 65_536 * (_LANES / 12) ** 0.5
# Normal keys put this many standard deviations on each side inside the range; the rest is clipped to its edges.
_DEVIATIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGenerator(ABC):
    """``density`` is rows for each second of event time, ``rate`` rows for each second of the clock (None: unpaced).

    Row i has event time ``start + i / density``, minus a random delay below ``disorder`` microseconds.
    """

    rate: int | None = None
    density: int = 0
    seed: int = 0
    start: int = DEFAULT_START
    disorder: int = 0

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        if self.density == 0:
            object.__setattr__(self, "density", self.rate or MICROS)
        for name in ("rate", "density"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise SourceError("BAD_STREAM", f"generator {name} is {getattr(self, name)}, but must be at least 1")
        if self.disorder < 0:
            raise SourceError("BAD_STREAM", f"generator disorder is {self.disorder}, but must be at least 0")

    @property
    @abstractmethod
    def fields(self) -> tuple[Field, ...]:
        """The columns; the last is the event time."""

    @abstractmethod
    def column(self, name: str, block: int, first: int, rows: int) -> pa.Array:
        """A column of the rows ``first …`` of a block, counted from its start; not the event time."""

    def generate(self, start: int, stop: int, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows ``start … stop - 1``."""
        names = [field.name for field in self.fields] if columns is None else list(columns)
        pieces: dict[str, list[pa.Array]] = {name: [] for name in names}
        for block in range(start // BLOCK_ROWS, -(-stop // BLOCK_ROWS)):
            base = block * BLOCK_ROWS
            first, last = max(start - base, 0), min(stop - base, BLOCK_ROWS)
            for name in names:
                make = self._times if name == "time" else self.column
                pieces[name].append(make(name, block, first, last - first))
        types = {field.name: field.type.arrow for field in self.fields}
        return pa.table([pa.chunked_array(pieces[name], types[name]) for name in names], names)

    def _times(self, name: str, block: int, first: int, rows: int) -> pa.Array:
        row = _numbers(block, first, rows)
        # Whole seconds apart, so that the product cannot overflow.
        times = self.start + row // self.density * MICROS + row % self.density * MICROS // self.density
        if self.disorder:
            times -= self._uniform(name, block, first, rows, self.disorder)
        return pa.array(times).view(TIMESTAMP.arrow)

    def _words(self, name: str, block: int, words: int) -> Words:
        index = next(i for i, field in enumerate(self.fields) if field.name == name)
        key = np.array([self.seed % _WORD, (block * _COLUMN_KEYS + index) % _WORD], dtype=np.uint64)
        raw: Words = np.random.Philox(key=key).random_raw(words)
        return raw

    def _uniform(self, name: str, block: int, first: int, rows: int, bound: int) -> Ints:
        """Uniform in [0, bound), up to a bias below bound / 2**32."""
        halves = self._words(name, block, (first + rows + 1) // 2).view(np.uint32)[first : first + rows]
        if bound < 2**31:
            scaled: Words = (halves.astype(np.uint64) * np.uint64(bound)) >> np.uint64(32)
        else:
            scaled = self._words(name, block, first + rows)[first:] % np.uint64(bound)
        whole: Ints = scaled.astype(np.int64)
        return whole

    def _normal(self, name: str, block: int, first: int, rows: int, bound: int) -> Ints:
        """About normally distributed around the middle of [0, bound): a sum of eight uniform numbers."""
        lanes = self._words(name, block, 2 * (first + rows))[2 * first :].view(np.uint16)
        total = lanes[0::_LANES].astype(np.int64)
        for lane in range(1, _LANES):
            total += lanes[lane::_LANES]
        scaled = bound / 2 + (total - _LANE_MEAN) * (bound / (2 * _DEVIATIONS * _LANE_DEVIATION))
        clipped: Ints = np.clip(np.floor(scaled), 0, bound - 1).astype(np.int64)
        return clipped

    def describe(self) -> dict[str, str]:
        """Text from which :func:`generator_from` builds the same generator."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"source": self.kind} | {name: str(value) for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class AStreamGenerator(RowGenerator):
    """Tuples of the AStream workload: ``key`` counts up modulo ``keys``, five fields uniform in [0, fields_max)."""

    keys: int = 1000
    fields_max: int = 500

    kind: ClassVar[str] = "astream"

    def __post_init__(self) -> None:
        RowGenerator.__post_init__(self)
        _at_least_one(self, "keys", "fields_max")

    @property
    def fields(self) -> tuple[Field, ...]:
        numbers = (Field(f"field{i}", INTEGER) for i in range(1, 6))
        return (Field("key", LONG), *numbers, Field("time", TIMESTAMP))

    def column(self, name: str, block: int, first: int, rows: int) -> pa.Array:
        if name == "key":
            begin = block * BLOCK_ROWS + first
            return pa.array((np.arange(rows, dtype=np.int64) + begin % self.keys) % self.keys)
        return pa.array(self._uniform(name, block, first, rows, self.fields_max).astype(np.int32))


# Cents of a purchase: uniform from one gem to the largest pack.
_PRICE_LOW, _PRICE_HIGH = 99, 9_999


@dataclass(frozen=True, slots=True, kw_only=True)
class GamingGenerator(RowGenerator):
    """``PURCHASES(user_id, gem_pack, price, time)`` or ``ADS(user_id, gem_pack, time)``, keys normally distributed.

    Prices are DECIMAL(10,2): they are money, their sums must be exact, and analysts write ``price > 9.99``.
    """

    table: str = "purchases"
    users: int = 100_000
    gem_packs: int = 20

    kind: ClassVar[str] = "gaming"

    def __post_init__(self) -> None:
        RowGenerator.__post_init__(self)
        _at_least_one(self, "users", "gem_packs")
        _one_of(self, "purchases", "ads")

    @property
    def fields(self) -> tuple[Field, ...]:
        price = (Field("price", decimal(10, 2)),) if self.table == "purchases" else ()
        return (Field("user_id", LONG), Field("gem_pack", INTEGER), *price, Field("time", TIMESTAMP))

    def column(self, name: str, block: int, first: int, rows: int) -> pa.Array:
        if name == "user_id":
            return pa.array(self._normal(name, block, first, rows, self.users))
        if name == "gem_pack":
            return pa.array(self._normal(name, block, first, rows, self.gem_packs).astype(np.int32))
        cents = self._uniform(name, block, first, rows, _PRICE_HIGH - _PRICE_LOW + 1) + _PRICE_LOW
        return _decimals(cents, decimal(10, 2).arrow)


@dataclass(frozen=True, slots=True, kw_only=True)
class AJoinGenerator(RowGenerator):
    """Tuples of the AJoin workload: six attributes, each uniform in [0, attributes_max)."""

    attributes_max: int = 500

    kind: ClassVar[str] = "ajoin"

    def __post_init__(self) -> None:
        RowGenerator.__post_init__(self)
        _at_least_one(self, "attributes_max")

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*(Field(f"a{i}", INTEGER) for i in range(1, 7)), Field("time", TIMESTAMP))

    def column(self, name: str, block: int, first: int, rows: int) -> pa.Array:
        return pa.array(self._uniform(name, block, first, rows, self.attributes_max).astype(np.int32))


# Pieces of an auction: uniform from 1 to this many.
_QUANTITY_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class NexmarkGenerator(RowGenerator):
    """``AUCTIONS(id, quantity, category, reserve, time)`` or ``BIDS(id, auction, bidder, price, time)``.

    Ids are row numbers. Categories, reserves, bidders and prices are normally distributed. A bid goes to one of the
    last ``open_auctions`` auctions, those in the middle most often: auctions are supposed to come at a rate that is
    ``bids_per_auction`` times lower than that of the bids, which tells how many there have been. Those that opened
    before the first row have negative ids.
    """

    table: str = "bids"
    categories: int = 50
    bidders: int = 100_000
    price_max: int = 10_000
    open_auctions: int = 1000
    bids_per_auction: int = 9

    kind: ClassVar[str] = "nexmark"

    def __post_init__(self) -> None:
        RowGenerator.__post_init__(self)
        _at_least_one(self, "categories", "bidders", "price_max", "open_auctions", "bids_per_auction")
        _one_of(self, "auctions", "bids")

    @property
    def fields(self) -> tuple[Field, ...]:
        if self.table == "auctions":
            own = (Field("quantity", INTEGER), Field("category", INTEGER), Field("reserve", INTEGER))
        else:
            own = (Field("auction", LONG), Field("bidder", LONG), Field("price", INTEGER))
        return (Field("id", LONG), *own, Field("time", TIMESTAMP))

    def column(self, name: str, block: int, first: int, rows: int) -> pa.Array:
        if name == "id":
            return pa.array(_numbers(block, first, rows))
        if name == "quantity":
            return pa.array((self._uniform(name, block, first, rows, _QUANTITY_MAX) + 1).astype(np.int32))
        if name == "auction":
            newest = _numbers(block, first, rows) // self.bids_per_auction
            return pa.array(newest - self._normal(name, block, first, rows, self.open_auctions))
        if name == "bidder":
            return pa.array(self._normal(name, block, first, rows, self.bidders))
        bound = self.categories if name == "category" else self.price_max
        return pa.array(self._normal(name, block, first, rows, bound).astype(np.int32))


@dataclass(frozen=True, slots=True, kw_only=True)
class BasicGenerator(RowGenerator):
    """``(number, time)``: every ``match_every``-th row has a number that one row of the other ``side`` has too, at the
    same place; no other number occurs twice."""

    side: int = 0
    match_every: int = 10_000

    kind: ClassVar[str] = "basic"

    def __post_init__(self) -> None:
        RowGenerator.__post_init__(self)
        _at_least_one(self, "match_every")
        if self.side not in (0, 1):
            raise SourceError("BAD_STREAM", f"generator side is {self.side}, but must be 0 or 1")

    @property
    def fields(self) -> tuple[Field, ...]:
        return (Field("number", LONG), Field("time", TIMESTAMP))

    def column(self, name: str, block: int, first: int, rows: int) -> pa.Array:
        row = _numbers(block, first, rows)
        # Numbers that meet are not negative; the others are, even on one side and odd on the other.
        alone = -2 - 2 * row - self.side
        return pa.array(np.where(row % self.match_every == 0, row, alone))


def _numbers(block: int, first: int, rows: int) -> Ints:
    """The numbers of the rows ``first …`` of a block."""
    begin = block * BLOCK_ROWS + first
    return np.arange(begin, begin + rows, dtype=np.int64)


def _decimals(scaled: Ints, arrow: pa.DataType) -> pa.Array:
    """Non-negative scaled integers as 128-bit decimals: the high word of each is 0."""
    words = np.zeros((len(scaled), 2), np.int64)
    words[:, 0] = scaled
    return pa.Array.from_buffers(arrow, len(scaled), [None, pa.py_buffer(words)])


def _at_least_one(generator: RowGenerator, *names: str) -> None:
    for name in names:
        if getattr(generator, name) < 1:
            raise SourceError("BAD_STREAM", f"generator {name} is {getattr(generator, name)}, but must be at least 1")


def _one_of(generator: GamingGenerator | NexmarkGenerator, *tables: str) -> None:
    if generator.table not in tables:
        hint = nearest(generator.table, tables)
        message = f"the {generator.kind} generator has no table {generator.table!r}"
        raise SourceError("BAD_STREAM", message, hint=hint)


GENERATORS: dict[str, type[RowGenerator]] = {
    kind.kind: kind for kind in (AStreamGenerator, GamingGenerator, AJoinGenerator, NexmarkGenerator, BasicGenerator)
}


def generator_from(description: dict[str, str]) -> RowGenerator:
    """Build a generator from its description; keys that are not the generator's own are left to the caller."""
    kind = GENERATORS[description["source"]]
    values: dict[str, Any] = {}
    for field in fields(kind):
        if field.name in description:
            text = description[field.name]
            values[field.name] = text if field.name == "table" else int(text)
    return kind(**values)
