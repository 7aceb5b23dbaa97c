"""Cursors: places in the answers of a query, as texts that readers keep and give back."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.errors import CatalogError

# Words that stand for a cursor: before the newest answer there is, and after it.
NEWEST = "newest"
END = "end"


@dataclass(frozen=True, slots=True)
class Cursor:
    """So many answers of a unit (a fire's file, or all files of one micro-batch) have been read, and so many rows of
    the next."""

    seq: int
    answers: int = 0
    rows: int = 0

    def __str__(self) -> str:
        return f"{self.seq}.{self.answers}.{self.rows}" if self.rows else f"{self.seq}.{self.answers}"


def parse_cursor(cursor: str | None) -> Cursor:
    """
    >>> parse_cursor("12.3"), str(parse_cursor("12.3.500")), parse_cursor(None)
    (Cursor(seq=12, answers=3, rows=0), '12.3.500', Cursor(seq=1, answers=0, rows=0))
    """
    if cursor is None:
        return Cursor(1)
    parts = cursor.split(".")
    if not (2 <= len(parts) <= 3 and all(part.isascii() and part.isdigit() for part in parts)):
        hint = f"give back the cursor of an answer as it was, {NEWEST} or {END}, or none to read from the beginning"
        raise CatalogError("BAD_CURSOR", f"{cursor!r} is not a cursor", hint=hint)
    return Cursor(*map(int, parts))


def after_answer(cursor: str) -> str:
    """The cursor after the whole answer, of one that lies after a piece of it.

    >>> after_answer("12.3.500"), after_answer("12.4")
    ('12.4', '12.4')
    """
    at = parse_cursor(cursor)
    return str(Cursor(at.seq, at.answers + 1)) if at.rows else cursor
