"""A chunk of a micro-batch on its way through the groups: every expression, location and key coding is done once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import reason_for
from millstream.kernels import compiled
from millstream.kernels.classes import ClassTable, Cuts
from millstream.kernels.evaluate import Evaluated, Refused
from millstream.kernels.guard import NOBODYS_FAULT
from millstream.kernels.keys import Keys, code_keys
from millstream.kernels.slices import Slicer
from millstream.model.expression import Expression
from millstream.model.types import LONG_DIGITS

IntArray = npt.NDArray[np.int64]
# Cells of rows, in any type of integer that holds them.
Codes = npt.NDArray[np.integer[Any]]

# A column whose values span at most this many integers is located by table look-up, 20 times faster than by search.
TABLE_SPAN = 1 << 16

# Rows for each slice from which rows that come slice by slice are taken so: with fewer, calling a kernel for each slice
# takes longer than numbering the slices of all rows.
STRETCH_ROWS = 4096

# Rows that an expression is evaluated on at a time when it is under suspicion.
STEP_ROWS = 64

# Doubles hold integers exactly up to here; np.bincount adds its weights as doubles.
EXACT = 1 << 53
# … and compiled loops as integers of 64 bits, half of which is left for what doubles round and for numbers of rows.
EXACT_COMPILED = 1 << 62
# Exact sums are kept in limbs of so many bits: over 2^21 rows, more than a chunk has, a limb's sum is exact in a
# double.
LIMB = 32
LIMB_MASK = (1 << LIMB) - 1


class Evaluates(Protocol):
    """What the kernels need of the expression evaluator."""

    def evaluate_counted(self, table: pa.Table, expressions: Sequence[Expression]) -> list[Evaluated]: ...

    def weigh_anew(self) -> None:
        """Other rows follow: what was found of an expression does not hold for them."""


@dataclass(frozen=True)
class Numbers:
    """A column as NumPy sees it: 64-bit values, and where they are valid (None: everywhere)."""

    values: npt.NDArray[Any]
    valid: npt.NDArray[np.bool_] | None


def numbers(column: pa.Array) -> Numbers:
    """Integers, dates, timestamps, Booleans and short decimals as int64 (or their own width), floats as float64.

    Invalid places hold zero.
    """
    valid = None if column.null_count == 0 else np.asarray(column.is_valid())
    kind = column.type
    if pa.types.is_decimal(kind):
        return Numbers(_low_words(column), valid)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_date32(kind):
        column = column.view(pa.int32())
    elif pa.types.is_timestamp(kind):
        column = column.view(pa.int64())
    elif pa.types.is_float32(kind):
        column = column.cast(pa.float64())
    if valid is not None:
        column = pc.fill_null(column, pa.scalar(0, column.type))
    return Numbers(np.asarray(column), valid)


def words(column: pa.Array) -> npt.NDArray[np.int64]:
    """The 128-bit integers behind a decimal column as an (n, 2) array of low and high words."""
    data = column.buffers()[1]
    return np.frombuffer(data, dtype=np.int64).reshape(-1, 2)[column.offset : column.offset + len(column)]


def _low_words(column: pa.Array) -> npt.NDArray[np.int64]:
    low = np.ascontiguousarray(words(column)[:, 0])
    return low if column.null_count == 0 else np.where(np.asarray(column.is_valid()), low, 0)


def limbs(column: pa.Array, plain: Numbers) -> list[npt.NDArray[np.float64]]:
    """Value = Σ limb[i] · 2^(32 i); one limb where the sums of whole values stay exact in a double."""
    if pa.types.is_decimal(column.type) and column.type.precision > LONG_DIGITS:
        pairs = words(column)
        if column.null_count:
            pairs = np.where(np.asarray(column.is_valid())[:, None], pairs, 0)
        low, high = pairs[:, 0], pairs[:, 1]
        parts = [low & LIMB_MASK, (low >> LIMB) & LIMB_MASK, high & LIMB_MASK, high >> LIMB]
        return [part.astype(np.float64) for part in parts]
    values = plain.values
    largest = max(abs(int(values.min())), abs(int(values.max()))) if len(values) else 0
    if largest * len(values) < EXACT:
        return [values.astype(np.float64)]
    wide = values.astype(np.int64, copy=False)
    return [(wide & LIMB_MASK).astype(np.float64), (wide >> LIMB).astype(np.float64)]


@dataclass(frozen=True)
class Broken:
    """Expressions that could not be evaluated, with the reason: on the rows of a chunk, and on those that queries
    without a window select. They are NULL, and their queries are stopped. The chunks of a task share them, so that an
    expression breaks once and not in every chunk."""

    everywhere: dict[Expression, str] = field(default_factory=dict)
    selected: dict[Expression, str] = field(default_factory=dict)


# Weights of rows and a shift: see ``Batch.packed``.
Packed = tuple[npt.NDArray[Any], int]


class Arguments(Protocol):
    """Rows whose values are aggregated."""

    @property
    def rows(self) -> int: ...

    def value(self, expression: Expression) -> pa.Array: ...

    def number(self, expression: Expression) -> Numbers: ...

    def weights(self, expression: Expression) -> list[npt.NDArray[np.float64]]: ...

    def packed(self, expression: Expression) -> Packed | None: ...


# The start of a slice, the first of its rows, and the first that is not.
Run = tuple[int, int, int]


@dataclass(frozen=True)
class Stretch:
    """The rows ``first`` to ``last`` of a chunk, all of them in the slice that begins at ``start``."""

    batch: Arguments
    start: int
    first: int
    last: int

    @property
    def rows(self) -> int:
        return self.last - self.first

    @property
    def places(self) -> slice:
        return slice(self.first, self.last)

    def value(self, expression: Expression) -> pa.Array:
        return self.batch.value(expression).slice(self.first, self.rows)

    def number(self, expression: Expression) -> Numbers:
        whole = self.batch.number(expression)
        return Numbers(whole.values[self.places], None if whole.valid is None else whole.valid[self.places])

    def weights(self, expression: Expression) -> list[npt.NDArray[np.float64]]:
        return [limb[self.places] for limb in self.batch.weights(expression)]

    def packed(self, expression: Expression) -> Packed | None:
        whole = self.batch.packed(expression)
        return None if whole is None else (whole[0][self.places], whole[1])


class Batch:
    """One chunk. ``prepare`` evaluates what the groups will ask for, in a single pass over the rows."""

    def __init__(
        self,
        table: pa.Table,
        times: IntArray,
        evaluator: Evaluates,
        broken: Broken | None = None,
        apart: bool = False,
    ) -> None:
        self.table = table
        self.times = times
        self._broken = broken or Broken()
        self.broken = self._broken.everywhere
        self._apart = apart
        self._evaluator = evaluator
        self._values: dict[Expression, Evaluated] = {}
        self._numbers: dict[Expression, Numbers] = {}
        self._weights: dict[Expression, list[npt.NDArray[np.float64]]] = {}
        self._packed: dict[Expression, Packed | None] = {}
        self._located: dict[Cuts, IntArray] = {}
        self._keys: dict[tuple[Expression, ...], Keys] = {}
        self._slices: dict[Slicer, tuple[IntArray, IntArray]] = {}
        self._runs: dict[Slicer, list[Run] | None] = {}
        # Seconds spent on finding the classes of rows: what sharing the selection costs.
        self.seconds_in_classes = 0.0

    @property
    def rows(self) -> int:
        return len(self.times)

    def prepare(self, expressions: Iterable[Expression]) -> None:
        missing = [e for e in dict.fromkeys(expressions) if e not in self._values]
        good = [e for e in missing if e not in self.broken]
        self._values.update({e: self._nothing(e) for e in missing if e in self.broken})
        if self._apart:
            self._values.update({e: self._alone(e) for e in good})
        elif good:
            self._values.update(self._evaluate(good))

    def _evaluate(self, expressions: list[Expression]) -> dict[Expression, Evaluated]:
        """All at once, but for those that are refused; if that fails, one by one, so that a query whose expression
        breaks the evaluator breaks alone."""
        try:
            return dict(zip(expressions, self._evaluator.evaluate_counted(self.table, expressions), strict=True))
        except NOBODYS_FAULT:
            raise
        except Refused as refused:
            self.broken.update({e: reason_for(error) for e, error in refused.guilty.items()})
            good = [e for e in expressions if e not in refused.guilty]
            return {e: self._nothing(e) for e in refused.guilty} | (self._evaluate(good) if good else {})
        except Exception:
            return {e: self._alone(e) for e in expressions}

    def _alone(self, expression: Expression) -> Evaluated:
        """In small steps, since an evaluation can be interrupted only between two of them."""
        steps = pa.Table.from_batches(self.table.to_batches(max_chunksize=STEP_ROWS), self.table.schema)
        try:
            return self._evaluator.evaluate_counted(steps, [expression])[0]
        except NOBODYS_FAULT:
            raise
        except Exception as error:
            self.broken[expression] = reason_for(error)
            return self._nothing(expression)

    def _nothing(self, expression: Expression) -> Evaluated:
        return Evaluated(pa.nulls(self.table.num_rows, expression.type.arrow), None)

    def only(self, rows: IntArray) -> Batch:
        """Some rows of the chunk."""
        self._evaluator.weigh_anew()
        table = self.table.take(pa.array(rows))
        return Batch(table, self.times[rows], self._evaluator, Broken(self._broken.selected), self._apart)

    def value(self, expression: Expression) -> pa.Array:
        self.prepare((expression,))
        return self._values[expression].values

    def failures(self, expression: Expression) -> npt.NDArray[np.int32] | None:
        """How many operators failed in each row; None when none can."""
        self.prepare((expression,))
        return self._values[expression].failures

    def number(self, expression: Expression) -> Numbers:
        if expression not in self._numbers:
            self._numbers[expression] = numbers(self.value(expression))
        return self._numbers[expression]

    def weights(self, expression: Expression) -> list[npt.NDArray[np.float64]]:
        """An integer or decimal column as limbs for ``np.bincount``, whose sums over this chunk are exact."""
        if expression not in self._weights:
            self._weights[expression] = limbs(self.value(expression), self.number(expression))
        return self._weights[expression]

    def packed(self, expression: Expression) -> Packed | None:
        """Weights ``1 + value · 2^shift`` and the shift, so that one pass over the rows gives the number of rows and
        the sum of a cell; None where that would not be exact. They are integers where a compiled loop adds them up,
        and doubles for ``np.bincount``."""
        if expression not in self._packed:
            pack = self._packed_integers if compiled.pays(self.rows) else self._packed_doubles
            self._packed[expression] = pack(expression, max(1, self.rows.bit_length()))
        return self._packed[expression]

    def _packed_integers(self, expression: Expression, shift: int) -> Packed | None:
        if self._is_long(expression):
            return None
        values = self.number(expression).values
        # No cell can have more than all rows together; their sum is asked only where the cheaper bound is too high.
        most: float = max(abs(int(values.min())), abs(int(values.max()))) * self.rows
        if most * 2.0**shift > EXACT_COMPILED:
            most = float(np.abs(values, dtype=np.float64).sum())
        return None if most * 2.0**shift > EXACT_COMPILED else ((values.astype(np.int64) << shift) + 1, shift)

    def _packed_doubles(self, expression: Expression, shift: int) -> Packed | None:
        weights = self.weights(expression)
        fits = len(weights) == 1 and float(np.abs(weights[0]).sum()) * 2.0**shift < EXACT - self.rows
        return (1.0 + weights[0] * 2.0**shift, shift) if fits else None

    def _is_long(self, expression: Expression) -> bool:
        """Whether a value has more than 64 bits."""
        kind = self.value(expression).type
        return bool(pa.types.is_decimal(kind)) and kind.precision > LONG_DIGITS

    def keys(self, expressions: tuple[Expression, ...]) -> Keys:
        if expressions not in self._keys:
            self.prepare(expressions)
            self._keys[expressions] = code_keys([self.value(e) for e in expressions], self.rows)
        return self._keys[expressions]

    def slices(self, slicer: Slicer) -> tuple[IntArray, IntArray]:
        if slicer not in self._slices:
            self._slices[slicer] = slicer.locate(self.times)
        return self._slices[slicer]

    def stretches(self, slicer: Slicer) -> list[Stretch] | None:
        """The rows of each slice, where they come slice by slice and each has many; else None."""
        if slicer not in self._runs:
            self._runs[slicer] = self._find_runs(slicer)
        runs = self._runs[slicer]
        # Made anew each time: kept here, batch and stretches would hold each other until somebody looks for circles.
        return None if runs is None else [Stretch(self, *run) for run in runs]

    def _find_runs(self, slicer: Slicer) -> list[Run] | None:
        most = max(1, self.rows // STRETCH_ROWS)
        if self._in_order:
            starts, edges = slicer.edges(self.times, most)
        else:
            starts, slice_of = self.slices(slicer)
            if (slice_of[1:] < slice_of[:-1]).any():
                return None
            edges = np.searchsorted(slice_of, np.arange(len(starts) + 1))
        return (
            None if len(starts) > most else list(zip(starts.tolist(), edges.tolist(), edges[1:].tolist(), strict=False))
        )

    @cached_property
    def _in_order(self) -> bool:
        return bool((self.times[1:] >= self.times[:-1]).all())

    def classes(self, table: ClassTable, step: int = 1) -> IntArray:
        """The class of every row times ``step``; ``table.classes`` is the class of rows that no query wants."""
        started = time.perf_counter()
        found: IntArray = self._classes(table, table.grid * step)
        self.seconds_in_classes += time.perf_counter() - started
        return found

    def codes(self, table: ClassTable, keys: Keys) -> Codes:
        """The cell of every row, class by class and key by key."""
        started = time.perf_counter()
        found = self._codes(table, keys) if compiled.pays(self.rows) else None
        self.seconds_in_classes += time.perf_counter() - started
        if found is None:
            found = self.classes(table, keys.count)
            found += keys.codes
        return found

    def _codes(self, table: ClassTable, keys: Keys) -> Codes | None:
        """By a compiled loop, where one attribute with few integers decides the class."""
        if len(table.cuts) != 1 or (table.classes + 1) * keys.count >= compiled.MOST_CODES:
            return None
        cuts = table.cuts[0]
        if cuts.attribute.domain == "string":
            return None
        column = self.number(cuts.attribute.expression)
        span = None if column.valid is not None else _span(column.values)
        if span is None:
            return None
        low, high = span
        return compiled.locate(column.values, low, _meanings(cuts, low, high, table.grid * keys.count), keys.codes)

    def labels(self, table: ClassTable) -> npt.NDArray[Any]:
        """The class of every row in the smallest type that holds it."""
        started = time.perf_counter()
        found = self._classes(table, table.grid.astype(np.min_scalar_type(table.classes)))
        self.seconds_in_classes += time.perf_counter() - started
        return found

    def _classes(self, table: ClassTable, meaning: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if not table.cuts:
            return np.full(self.rows, meaning[0], meaning.dtype)
        if len(table.cuts) == 1:
            return self._locate(table.cuts[0], meaning)
        point = np.zeros(self.rows, np.int64)
        for cut, stride in zip(table.cuts, table.strides, strict=True):
            point += self._interval(cut) * stride
        return meaning.take(point)

    def _interval(self, cuts: Cuts) -> IntArray:
        if cuts not in self._located:
            self._located[cuts] = self._locate(cuts, np.arange(cuts.intervals))
        return self._located[cuts]

    def _locate(self, cuts: Cuts, meaning: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """``meaning[interval]`` of every row, by one gather where the values span few integers."""
        if cuts.attribute.domain == "string":
            return self._locate_text(cuts, meaning)
        column = self.number(cuts.attribute.expression)
        located = _gather(cuts, column.values, meaning)
        if column.valid is not None:
            located = np.where(column.valid, located, meaning[0])
        return located

    def _locate_text(self, cuts: Cuts, meaning: npt.NDArray[Any]) -> npt.NDArray[Any]:
        coded = self.value(cuts.attribute.expression).dictionary_encode()
        texts = np.array(coded.dictionary.to_pylist(), dtype=object)
        thresholds = np.array(cuts.thresholds, dtype=object)
        found = 1 + np.searchsorted(thresholds, texts, side="right") if len(texts) else np.empty(0, np.int64)
        meaning_of_code = np.append(meaning[found], meaning[0])
        return meaning_of_code.take(np.asarray(coded.indices.fill_null(len(texts)), dtype=np.int64))


def _gather(cuts: Cuts, values: npt.NDArray[Any], meaning: npt.NDArray[Any]) -> npt.NDArray[Any]:
    span = _span(values)
    if span is None:
        return meaning[1 + np.searchsorted(cuts.array(), values, side="right")]
    low, high = span
    table = _meanings(cuts, low, high, meaning)
    # Indexing takes less than half the time of ``take``, which makes 64-bit numbers of the values first.
    return table[values if low == 0 else values.astype(np.int64, copy=False) - low]


def _span(values: npt.NDArray[Any]) -> tuple[int, int] | None:
    """The smallest and the largest value where a table of all between them is small."""
    if values.dtype.kind not in "iu" or not len(values):
        return None
    low, high = int(values.min()), int(values.max())
    return (low, high) if high - low < TABLE_SPAN else None


def _meanings(cuts: Cuts, low: int, high: int, meaning: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """``meaning[interval]`` of each value from ``low`` to ``high``."""
    # Counted from zero: a range up to the largest long integer ends beyond what NumPy keeps as an integer.
    every = low + np.arange(high - low + 1)
    found: npt.NDArray[Any] = meaning[1 + np.searchsorted(cuts.array(), every, side="right")]
    return found
