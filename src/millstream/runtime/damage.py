"""Damaged files in a fire: finding all that is damaged, and answering without data that are lost for good.

A task that meets a damaged bucket or group version answers none of the queries that need it, and says what is damaged.
The driver mends it, or declares the buckets lost; then the queries fire, and windows that lack something say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.errors import DamagedFile
from millstream.kernels import bucket
from millstream.kernels.answering import Fired
from millstream.kernels.answers import Part, Range
from millstream.kernels.bucket import Cells
from millstream.kernels.checksum import Altered
from millstream.kernels.group import Group
from millstream.kernels.stack import slice_id
from millstream.model.plan import Damage
from millstream.model.query import WindowSpec
from millstream.runtime.home import Home
from millstream.runtime.loading import load_group
from millstream.runtime.versions import read_version

if TYPE_CHECKING:
    from millstream.runtime.fire import BucketRef

# Reasons that an incomplete answer gives at most: a whole disk can be gone.
MOST_REASONS = 3


@dataclass(frozen=True)
class Lost:
    """A bucket whose bytes are gone for good; ``version`` is the path of the group version that made it."""

    version: str
    start: int
    end: int
    watermark: int | None
    reason: str


@dataclass(frozen=True)
class DueWindows:
    """The windows of a query that a fire answers, as far as incomplete answers need to know of them. ``member`` is its
    name in the groups whose buckets are looked at."""

    query: str
    member: str
    window: WindowSpec
    after: int
    upto: int
    partial_until: int | None


# (query, window start, window end)
Window = tuple[str, int, int]


def read_cells(home: Home, ref: BucketRef, group: Group, *, index: bool = False) -> Cells:
    """A bucket's cells, verified; DamagedFile if they are not what was written."""
    file = home.open(ref.path)
    body = ref.length if ref.body is None else ref.body
    data = file.checked(ref.offset, body, ref.checksum)
    if index and body < ref.length:
        data = file.slice(ref.offset, ref.length)
    try:
        return bucket.decode(data, len(group.version.measures), index=index)
    except Altered:
        raise DamagedFile(ref.path, "is altered: the checksum of an index is another one") from None
    except (pa.ArrowException, OSError, KeyError, IndexError, ValueError) as error:
        if ref.checksum is not None:
            raise  # these are the bytes that were written
        raise DamagedFile(ref.path, f"cannot be decoded: {error}") from None


def version_damage(home: Home, path: str) -> Damage | None:
    """What is wrong with the file of a group version, whatever this process still knows of it."""
    try:
        read_version(home, path)
    except DamagedFile as error:
        return Damage(path, None, error.reason)
    return None


def find_damage(home: Home, versions: Sequence[str], buckets: Iterable[BucketRef]) -> list[Damage]:
    """Everything that is damaged among group versions and buckets, so that it is mended at once."""
    groups: dict[int, Group] = {}
    found: list[Damage] = []
    for number, path in enumerate(versions):
        try:
            groups[number] = load_group(home, path)
        except DamagedFile as error:
            found.append(Damage(path, None, error.reason))
    for ref in buckets:
        try:
            if ref.version in groups:
                read_cells(home, ref, groups[ref.version])
            else:
                home.open(ref.path).checked(ref.offset, ref.body or ref.length, ref.checksum)
        except DamagedFile as error:
            found.append(Damage(ref.path, ref.offset, error.reason))
    return found


def lacking(home: Home, due: Iterable[DueWindows], lost: Sequence[Lost]) -> dict[Window, list[str]]:
    """For each due window that would have read lost buckets, the reasons why they are lost."""
    found: dict[Window, list[str]] = {}
    for one in due:
        for bucket_ in lost:
            if _concerns(home, one, bucket_):
                for end in _ends(one, bucket_):
                    reasons = found.setdefault((one.query, end - one.window.size, end), [])
                    if bucket_.reason not in reasons:
                        reasons.append(bucket_.reason)
    return found


def _concerns(home: Home, one: DueWindows, lost: Lost) -> bool:
    try:
        return one.member in load_group(home, lost.version).position
    except DamagedFile:
        return True  # nobody knows any more whose data they were


def _ends(one: DueWindows, lost: Lost) -> Iterable[int]:
    """The ends of the due windows that contain the lost slice and that its batch was not late for."""
    window = one.window
    late = slice_id(lost.start, lost.end, lost.watermark)[2]
    first = window.end_after(max(one.after, lost.end - 1 if late is None else max(late, lost.end - 1)))
    return range(first, min(one.upto, lost.start + window.size) + 1, window.slide)


def mark(
    fired: Fired,
    windows: Mapping[Window, list[str]],
    due: Iterable[DueWindows],
    counted: list[Range] | None = None,
) -> dict[str, int]:
    """Mark the answers of windows that lack something, ``counted`` ones too, and add an empty answer where nothing is
    left; gives the number of such windows by query."""
    if not windows:
        return {}
    texts = {window: _text(reasons) for window, reasons in windows.items()}
    answered: set[Window] = set()
    for number, part in enumerate(fired.parts):
        fired.parts[number] = replace(part, ranges=_marked(part.ranges, texts, answered))
    if counted is not None:
        counted[:] = _marked(counted, texts, answered)
    partial_until = {one.query: one.partial_until for one in due}
    empty = []
    for query, start, end in sorted(set(texts) - answered):
        if query in fired.broken:
            continue
        until = partial_until[query]
        partial = until is not None and start <= until
        empty.append(Range(query, start, end, partial, 0, 0, incomplete=texts[query, start, end]))
        fired.windows[query] += 1
    if empty:
        fired.parts.append(Part((), tuple(empty)))
    counts: dict[str, int] = {}
    for query, _, _ in texts:
        if query not in fired.broken:
            counts[query] = counts.get(query, 0) + 1
    return counts


def _marked(ranges: Sequence[Range], texts: Mapping[Window, str], answered: set[Window]) -> tuple[Range, ...]:
    """The ranges with their reasons; those that have one are added to ``answered``."""
    marked = []
    for one in ranges:
        window = (one.query, one.start or 0, one.end or 0)
        if one.end is not None and window in texts:
            answered.add(window)
            marked.append(replace(one, incomplete=texts[window]))
        else:
            marked.append(one)
    return tuple(marked)


def _text(reasons: Sequence[str]) -> str:
    more = len(reasons) - MOST_REASONS
    return "; ".join(reasons[:MOST_REASONS]) + (f"; and {more} more" if more > 0 else "")
