"""Tidying up: ids used again, failed queries, files when a tidying fails, cursors too far ahead. No Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.errors import MillstreamError
from millstream.runtime.home import Home

from .inprocess import COPIES, PURCHASES, Small, count, expected, pairs, sums

AT_ONCE, NEVER = -(10**15), 10**15


@pytest.fixture
def small(home: Path, tmp_path: Path) -> Iterator[Small]:
    one = Small(home, tmp_path / "in")
    yield one
    one.close()


def delete(small: Small, *ids: str) -> None:
    small.core.registry.seal([], list(ids))
    small.core.fire_all()


#  rows       0 ────────── 7.4 s ──────────────────── 12.4 s
#  "long"     ├─────────────────────────────────────────────────── 20 s: its buckets have the first "a" as a member
#  "a"        ├── all ──┤         ├─ above 1000: nothing ───
def test_an_id_is_not_used_again_while_buckets_know_it(small: Small) -> None:
    small.create("a", sums())
    small.create("long", sums(above=0, size=20))
    for number in range(3):
        small.batch(number)
    small.core.fire_all()
    delete(small, "a")
    small.core.tidy(AT_ONCE, NEVER)
    with pytest.raises(MillstreamError, match="'a' exists already"):
        small.create("a", sums(above=1000, size=4, slide=2))
    delete(small, "long")
    small.core.tidy(AT_ONCE, NEVER)
    small.create("a", sums(above=1000, size=4, slide=2))
    for number in (3, 4):
        small.batch(number)
    small.core.fire_all()
    assert small.totals("a") == {}


def test_an_id_of_a_join_is_not_used_again_while_buckets_of_a_leg_know_it(home: Path, tmp_path: Path) -> None:
    small = Small(home, tmp_path / "in", PURCHASES, COPIES)
    small.create("j", pairs())
    small.create("long", pairs(size=20))
    for number in range(2):
        small.batch(number)
        small.batch(number, COPIES)
    small.core.fire_all()
    delete(small, "j")
    small.core.tidy(AT_ONCE, NEVER)
    assert small.core.registry.known("j")
    delete(small, "long")
    for _ in range(2):
        small.core.tidy(AT_ONCE, NEVER)
    assert not small.core.registry.known("j")
    small.close()


def test_a_failed_query_that_could_not_be_taken_out_is_by_tidying(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.create("a", sums())
    small.create("b", sums(above=10))
    small.core.metastore.set_failed("a", "too large")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Home, "write", full)
        with pytest.raises(OSError, match="No space"):
            small.core.registry.remove(["a"])
    assert small.core.registry.running == 2
    small.core.tidy(NEVER, NEVER)
    assert small.core.registry.running == 1
    assert small.core.registry.group_of("a") is None


@pytest.mark.parametrize("step", ["clean_up", "expire_history", "expire_recipes"])
def test_a_tidying_that_fails_leaves_no_files_behind(small: Small, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    small.create("a", sums())
    small.create("other", count())
    for number in range(3):
        small.batch(number)
    small.core.fire_all()
    delete(small, "other")
    assert small.paths("answers")

    def fail(*_: object) -> None:
        raise RuntimeError(step)

    monkeypatch.setattr(small.core.firing if step == "clean_up" else small.core.metastore, step, fail)
    with pytest.raises(RuntimeError, match=step):
        small.core.tidy(AT_ONCE, NEVER)
    assert small.paths("answers") == []
    assert not small.orphans()


def test_a_cursor_beyond_the_newest_answer_is_refused(small: Small) -> None:
    small.create("a", sums())
    small.create("none", sums(above=10**6))
    assert small.answers("a", "1.0") == [], "the end, before there is any answer"
    for number in range(3):
        small.batch(number)
    small.core.fire_all()
    newest = small.core.metastore.answer_bounds()[1]
    end = f"{newest + 1}.0"
    for id in ("a", "none"):
        query = small.core.metastore.query(id)
        assert small.core.answers.read(query, end, 10) == ([], end)
        assert small.core.answers.read(query, "end", 10) == ([], end)
        for beyond in (f"{newest + 1}.1", f"{newest + 1}.0.5", f"{newest + 2}.0", "1000.0", f"{10**30}.0"):
            with pytest.raises(MillstreamError, match=f"'{beyond}' is beyond the newest answer") as refusal:
                small.core.answers.read(query, beyond, 10)
            assert refusal.value.code == "BAD_CURSOR"
            assert "backup" in (refusal.value.hint or "")
    assert small.totals("a") == expected(0, 2, 4)
    small.core.tidy(AT_ONCE, NEVER)
    assert small.answers("a", end) == [], "its file is gone, and it has read it"
    assert small.answers("a", f"{newest}.1") == []
    with pytest.raises(MillstreamError, match="beyond the newest"):
        small.answers("a", f"{newest + 2}.0")
