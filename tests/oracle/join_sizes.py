"""How large the answer of a random join can get, so that plain Spark builds it in a fraction of a second."""

from __future__ import annotations

from collections.abc import Sequence

from .grammar import SIZES
from .joins import Joined, Tree
from .queries import MILLISECOND, WindowCase
from .streams import StreamCase

# Rows of an answer, and pairs behind aggregates.
MOST_ANSWER_ROWS = 10_000
MOST_PAIRS = 60_000
# No join comes near to so many pairs, whatever the estimate; sums are exact up to it.
PAIRS_BOUND = 1 << 20


def fitting_part(tree: Tree, streams: Sequence[StreamCase], grouped: bool) -> Tree:
    """The tree without its last sources, where it is too large for every window."""
    while isinstance(tree, Joined) and isinstance(tree.left, Joined) and not _fitting(tree, streams, grouped):
        tree = tree.left
    return tree


def fitting_windows(tree: Tree, streams: Sequence[StreamCase], grouped: bool) -> list[WindowCase]:
    """Windows in which the join is not too large; the smallest there is, if none."""
    return _fitting(tree, streams, grouped) or _windows(streams)[:1]


def _fitting(tree: Tree, streams: Sequence[StreamCase], grouped: bool) -> list[WindowCase]:
    most = MOST_PAIRS if grouped else MOST_ANSWER_ROWS
    span = max(stream.span for stream in streams)
    return [w for w in _windows(streams) if _rows(tree, streams, w.size) * (span / w.slide + 1) <= most]


def _windows(streams: Sequence[StreamCase]) -> list[WindowCase]:
    """Windows whose slide cuts the time of the streams into at most some dozens of pieces, small ones first."""
    span = max(max(stream.span for stream in streams) // MILLISECOND, 1)
    slides = [s for s in SIZES if span / 40 <= s <= span / 3] or [min(SIZES, key=lambda s: abs(s - span / 10))]
    cases = []
    for slide in slides:
        for size in (slide, slide, slide * 2, slide * 3, slide + slide // 2, slide + slide // 4, slide * 5):
            for offset in (0, 0, slide // 2, slide // 10):
                cases.append(WindowCase(size * MILLISECOND, slide * MILLISECOND, offset * MILLISECOND))
    return sorted(cases, key=lambda window: window.size)


def _rows(tree: Tree, streams: Sequence[StreamCase], size: int) -> float:
    """Rows of one window."""
    if isinstance(tree, int):
        stream = streams[tree]
        return max(1.0, min(1.0, size / stream.span) * stream.rows)
    left, right = _rows(tree.left, streams, size), _rows(tree.right, streams, size)
    return left * right * tree.share + left + right
