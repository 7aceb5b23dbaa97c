"""A query whose expression breaks the evaluator is named, and its neighbours' answers stay as they are."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa
import pytest

from millstream.config import Limits
from millstream.kernels.answering import Due
from millstream.kernels.batch import Batch
from millstream.kernels.evaluate import Evaluated, Evaluator
from millstream.kernels.fire import Piece, fire
from millstream.kernels.group import Group, expressions
from millstream.kernels.ingest import Tally, blame, slice_cells
from millstream.model.expression import Call, Column, Expression, Literal
from millstream.model.group import Member
from millstream.model.query import Aggregate, Output, WindowSpec
from millstream.model.selection import EVERYTHING
from millstream.model.types import BOOLEAN, LONG, TIMESTAMP

from .plain import version_of

POISON = Literal(666, LONG)
PRICE = Column("price", LONG)


class Breaking(Evaluator):
    """Fails like a database that ran out of memory, whenever the poison is part of what it evaluates."""

    def evaluate_counted(self, table: pa.Table, expressions: Sequence[Expression]) -> list[Evaluated]:
        if any("666" in repr(e) for e in expressions):
            raise MemoryError("no memory for 666")
        if "#p0" in table.column_names and 666 in table.column("#p0").to_pylist():
            raise MemoryError("no memory for 666")
        return super().evaluate_counted(table, expressions)


class FullDisk(Evaluator):
    """Fails like a database that cannot write what does not fit into memory."""

    def evaluate_counted(self, table: pa.Table, expressions: Sequence[Expression]) -> list[Evaluated]:
        raise duckdb.IOException("IO Error: Could not write file: No space left on device")


def member(name: str, argument: Expression, having: Expression | None = None) -> Member:
    outputs = (Output("total", Column("#a0", LONG)),)
    return Member(name, 0, EVERYTHING, WindowSpec(10, 10), (Aggregate("sum", argument, LONG),), having, outputs)


def batch(evaluator: Evaluator) -> Batch:
    table = pa.table({"price": pa.array([1, 2, 3], pa.int64())})
    times = pa.array([0, 1, 2], pa.int64()).to_numpy()
    return Batch(table, times, evaluator)


def test_in_ingest_the_query_that_uses_the_expression_is_named() -> None:
    group = Group(version_of([member("good", PRICE), member("bad", Call("Add", (PRICE, POISON), LONG))], ()))
    chunk, tally = batch(Breaking()), Tally()
    chunk.prepare(expressions([group]))
    blame(group, chunk.broken, tally)
    assert tally.broken == {"bad": "MemoryError: no memory for 666"}
    (found,) = slice_cells(group, chunk, None, tally)
    fired = fire(
        [Due(group.version.members[0], -100, 100, None)],
        [Piece(group, 0, 10, None, found.cells)],
        TIMESTAMP,
        Breaking(),
    )
    assert fired.parts[0].columns[0].to_pylist() == [6]


def test_in_fire_the_shape_is_run_query_by_query() -> None:
    def above(limit: Literal) -> Expression:
        return Call("GreaterThan", (Column("#a0", LONG), limit), BOOLEAN)

    members = [member("good", PRICE, above(Literal(1, LONG))), member("bad", PRICE, above(POISON))]
    group = Group(version_of(members, ()))
    (found,) = slice_cells(group, batch(Evaluator()), None, Tally())
    due = [Due(m, -100, 100, None) for m in members]
    fired = fire(due, [Piece(group, 0, 10, None, found.cells)], TIMESTAMP, Breaking())
    assert fired.broken == {"bad": "MemoryError: no memory for 666"}
    assert [(r.query, r.rows) for part in fired.parts for r in part.ranges] == [("good", 1)]


def test_answers_and_windows_that_are_too_large_stop_their_queries_alone() -> None:
    above = Call("GreaterThan", (Column("#a0", LONG), Literal(2, LONG)), BOOLEAN)
    members = [member("small", PRICE, above), member("large", PRICE)]
    group = Group(version_of(members, (PRICE,)))
    (found,) = slice_cells(group, batch(Evaluator()), None, Tally())
    due = [Due(m, -100, 100, None) for m in members]
    pieces = [Piece(group, 0, 10, None, found.cells)]

    def fired(limits: Limits) -> tuple[dict[str, str], list[tuple[str, int]]]:
        result = fire(due, pieces, TIMESTAMP, Evaluator(), (), limits)
        assert result.groups == {"small": 3, "large": 3}
        return result.broken, [(r.query, r.rows) for part in result.parts for r in part.ranges]

    assert fired(Limits(query_answer_rows=3, query_groups=3)) == ({}, [("small", 1), ("large", 3)])
    message = "LIMIT_EXCEEDED: a window has 3 answer rows, more than the 2 of the setting query_answer_rows"
    assert fired(Limits(query_answer_rows=2)) == ({"large": message}, [("small", 1)])
    message = "LIMIT_EXCEEDED: a window has 3 groups, more than the 2 of the setting query_groups"
    assert fired(Limits(query_groups=2)) == ({"small": message, "large": message}, [])


@pytest.mark.parametrize("apart", [False, True])
def test_a_full_disk_is_blamed_on_no_expression(apart: bool) -> None:
    group = Group(version_of([member("one", Call("Add", (PRICE, PRICE), LONG)), member("other", PRICE)], ()))
    chunk = Batch(batch(Evaluator()).table, batch(Evaluator()).times, FullDisk(), apart=apart)
    with pytest.raises(duckdb.IOException, match="No space left"):
        chunk.prepare(expressions([group]))
    assert chunk.broken == {}


def test_a_full_disk_is_blamed_on_no_answer() -> None:
    above = Call("GreaterThan", (Column("#a0", LONG), Literal(2, LONG)), BOOLEAN)
    members = [member("one", PRICE, above), member("other", PRICE)]
    group = Group(version_of(members, ()))
    (found,) = slice_cells(group, batch(Evaluator()), None, Tally())
    due = [Due(m, -100, 100, None) for m in members]
    with pytest.raises(duckdb.IOException, match="No space left"):
        fire(due, [Piece(group, 0, 10, None, found.cells)], TIMESTAMP, FullDisk())
