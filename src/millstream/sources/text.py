"""Reading CSV and JSON lines. One line is one row, as in Spark's readers: a broken row cannot swallow its neighbours.

A block of lines is decoded at once by Arrow. Every field of the stream is checked, not only the columns asked for:
whether a row is rejected must not depend on which queries happen to run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from millstream.model.stream import Field
from millstream.sources.chunk import Chunk, Origin, rejected_table
from millstream.sources.csv_lines import CsvDecoder
from millstream.sources.files import bad_file, open_file
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
        origin = Origin(path, first, offset, decoded.lines)
        bad = rejected_table([(reason, origin.at(line), raw) for line, reason, raw in decoded.bad])
        yield Chunk(decoded.table.select(list(columns)), bad, origin)


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
            base = start if start > begin else 0
            first = 1 + (file_format == "csv" and base == 0)
            for block in _blocks(source, max(start, begin), stop, whole=base == 0):
                yield decoder.decode(block), first, base
                first += block.count(b"\n")
    except OSError as error:
        raise bad_file(path, error) from None


def _blocks(source: Any, start: int, stop: int | None, whole: bool) -> Iterator[bytes]:
    """Blocks of whole lines. Unless ``whole``, ``start`` may lie inside a line, which belongs to the split before."""
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
        lines, rest = _whole_lines(rest, position, size, stop)
        if lines:
            yield lines


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
