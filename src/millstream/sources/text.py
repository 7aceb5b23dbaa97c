"""Reading CSV and JSON lines. One line is one row, as in Spark's readers: a broken row cannot swallow its neighbours.

A block of lines is decoded at once by Arrow. Every field of the stream is checked, not only the columns asked for:
whether a row is rejected must not depend on which queries happen to run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from millstream.model.stream import Field
from millstream.sources.chunk import CHUNK_ROWS, Chunk, Origin, rejected_table
from millstream.sources.csv_lines import CsvDecoder
from millstream.sources.files import file_trouble, open_file
from millstream.sources.json_lines import JsonDecoder
from millstream.sources.lines import Decoded
from millstream.sources.schema import BOM

# Bytes decoded at once: some hundred thousand rows, so that Arrow's fixed costs vanish and memory stays small.
TEXT_BLOCK = 16 << 20


class Decoder(Protocol):
    def decode(self, block: bytes) -> Decoded: ...


def read_text(
    path: str, file_format: str, start: int, stop: int | None, fields: Sequence[Field], columns: Sequence[str]
) -> Iterator[Chunk]:
    """The rows of the lines that begin in ``[start, stop)`` of a file."""
    for decoded, first, offset in decode_file(path, file_format, start, stop, fields):
        origin = Origin(path, first, offset)
        bad = rejected_table([(reason, origin.at(line), raw) for line, reason, raw in decoded.bad])
        table, lines = decoded.table.select(list(columns)), decoded.lines
        for low in range(0, max(table.num_rows, 1), CHUNK_ROWS):
            high = low + CHUNK_ROWS
            place = Origin(path, first + low, offset) if lines is None else replace(origin, positions=lines[low:high])
            yield Chunk(table.slice(low, CHUNK_ROWS), bad if low == 0 else None, place)


def decode_file(
    path: str, file_format: str, start: int, stop: int | None, fields: Sequence[Field]
) -> Iterator[tuple[Decoded, int, int]]:
    """Decoded blocks, each with the number of its first line counted from the byte offset that follows it."""
    try:
        with open_file(path) as source:
            decoder: Decoder
            if file_format == "csv":
                decoder, begin = CsvDecoder.of(path, source, fields)
            else:
                decoder, begin = JsonDecoder(fields), len(BOM) if source.read(len(BOM)) == BOM else 0
            whole = start <= begin
            base, first = 0, 2 if file_format == "csv" else 1
            for offset, block in _blocks(source, begin if whole else start, stop, whole):
                if not whole and base == 0:
                    base, first = offset, 1
                yield decoder.decode(block), first, base
                first += block.count(b"\n")
    except OSError as error:
        raise file_trouble(path, error) from None


def _blocks(source: Any, start: int, stop: int | None, whole: bool) -> Iterator[tuple[int, bytes]]:
    """Offsets and blocks of whole lines. Unless ``whole``, ``start`` may lie inside a line of the split before."""
    size = source.size()
    stop = size if stop is None else min(stop, size)
    position = start if whole else start - 1
    source.seek(position)
    rest = b""
    skip = not whole
    while position < size and (position - len(rest) < stop):
        block = source.read(TEXT_BLOCK)
        if not block:
            break
        position += len(block)
        rest += block
        if skip:
            cut = rest.find(b"\n")
            if cut < 0:
                continue
            rest, skip = rest[cut + 1 :], False
        begin = position - len(rest)
        lines, rest = _whole_lines(rest, position, size, stop)
        if lines:
            yield begin, lines


def _whole_lines(text: bytes, position: int, size: int, stop: int) -> tuple[bytes, bytes]:
    """Cut ``text``, which ends at ``position``, after its last whole line that begins before ``stop``."""
    begin = position - len(text)
    if begin >= stop:
        return b"", b""
    if position >= stop:
        last = text.find(b"\n", max(0, stop - 1 - begin))
        if last >= 0:
            return text[: last + 1], b""
    if position >= size:
        return text, b""
    end = text.rfind(b"\n") + 1
    return text[:end], text[end:]
