"""Classes: a row's class names exactly the queries that select it, however it is located."""

from __future__ import annotations

import random

import pytest

from millstream.kernels import batch as module
from millstream.kernels.classes import class_table
from millstream.model.group import Member
from millstream.model.query import WindowSpec
from millstream.model.selection import attributes

from .plain import batch_of, is_true
from .test_shared_aggregation import _rows, _selection, _table


@pytest.mark.parametrize("span", [module.TABLE_SPAN, 0])
def test_five_hundred_random_groups_against_each_selection(span: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TABLE_SPAN", span)
    for seed in range(250):
        rng = random.Random(seed)
        members = tuple(
            Member(f"q{i}", i, _selection(rng), WindowSpec(1, 1), (), None, ()) for i in range(rng.randint(1, 5))
        )
        found = tuple(dict.fromkeys(a for m in members for a in attributes(m.selection)))
        table = class_table(found, members)
        rows = _rows(rng, rng.randint(1, 25), 0)
        classes = batch_of(_table(rows)).classes(table)
        assert len({tuple(q) for q in table.queries}) == table.classes, "classes differ in their queries"
        for row, number in zip(rows, classes, strict=True):
            selected = [is_true(member.selection, row) for member in members]
            if number == table.classes:
                assert not any(selected), seed
            else:
                assert list(table.queries[number]) == selected, (seed, row)
