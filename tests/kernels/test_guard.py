"""Expressions that take too much memory or time are ended, and the evaluator goes on with the next."""

from __future__ import annotations

import os
import pickle
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.config import Limits
from millstream.errors import EvaluationError
from millstream.kernels import expand
from millstream.kernels.batch import Batch, Broken
from millstream.kernels.evaluate import FEWEST_ROWS, JURY, JURY_ROWS, TRIAL_ROWS, Evaluator, Refused
from millstream.kernels.guard import watched
from millstream.model.expression import Call, Column, Expression, Literal
from millstream.model.types import INTEGER, LONG, STRING

NAME = Column("name", STRING)
PRICE = Column("price", LONG)
MEMORY = "LIMIT_EXCEEDED: expressions need more than 48 MB of memory, the setting evaluation_memory"


def repeated(times: int) -> Expression:
    return Call("StringRepeat", (NAME, Literal(times, INTEGER)), STRING)


def table(rows: int = 10_000) -> pa.Table:
    names = pa.array([f"name {number}" for number in range(rows)])
    return pa.table({"name": names, "price": pa.array(range(rows), pa.int64())})


def slow(times: int = 10_000) -> Expression:
    """Some tenths of a millisecond a row, or as many times that."""
    letters = (Literal("0123456789", STRING), Literal("abcdefghij", STRING))
    return Call("Length", (Call("StringTranslate", (repeated(times), *letters), STRING),), INTEGER)


def test_texts_that_do_not_fit_are_refused_and_the_next_evaluation_works() -> None:
    evaluator = Evaluator(Limits(evaluation_memory=48 << 20))
    for _ in range(2):
        with pytest.raises(EvaluationError, match="more than 48 MB"):
            evaluator.evaluate(table(), [repeated(100_000)])
        assert len(evaluator.evaluate(table(), [repeated(2)])[0]) == 10_000


def test_a_constant_that_does_not_fit_is_refused() -> None:
    evaluator = Evaluator(Limits(evaluation_memory=48 << 20, evaluation_time=60_000_000))
    long = Call("StringRepeat", (Literal("x", STRING), Literal(5_000_000, INTEGER)), STRING)
    with pytest.raises(EvaluationError, match="more than 48 MB"):
        evaluator.constant(Call("Concat", (long,) * 20, STRING))


def test_an_evaluation_that_takes_too_long_is_interrupted_and_the_next_works() -> None:
    evaluator = Evaluator(Limits(evaluation_time=300_000))
    for _ in range(2):
        with pytest.raises(EvaluationError, match=r"more than 0\.3 seconds of processor time"):
            evaluator.evaluate(table(100_000), [slow()])
        assert len(evaluator.evaluate(table(), [repeated(2)])[0]) == 10_000


def test_new_expressions_are_tried_on_a_few_rows_before_a_large_table_pays_for_them() -> None:
    evaluator = Spying(Limits(evaluation_time=2_000_000))
    with pytest.raises(EvaluationError, match="more than 2 seconds"):
        evaluator.evaluate(table(400_000), [repeated(2), slow()])
    assert max(evaluator.sizes) <= JURY_ROWS, "nobody has waited for 400,000 rows"
    evaluator = Spying(Limits(evaluation_time=2_000_000))
    with pytest.raises(EvaluationError, match="more than 2 seconds"):
        evaluator.evaluate(table(400_000), [slow(200_000)])
    assert max(evaluator.sizes[-JURY:]) < TRIAL_ROWS, "the longer a row takes, the fewer are looked at"
    evaluator = Spying(Limits())
    with pytest.raises(EvaluationError, match="more than 1024 MB"):
        evaluator.evaluate(table(400_000), [repeated(1000)])
    assert max(evaluator.sizes) == 1, "one row is enough to see it"
    assert len(evaluator.evaluate(table(400_000), [repeated(2)])[0]) == 400_000
    assert evaluator.sizes[-4:] == [1, FEWEST_ROWS + 1, TRIAL_ROWS + 1, 400_000]
    evaluator.evaluate(table(400_000), [repeated(2)])
    assert evaluator.sizes[-2:] == [400_000, 400_000], "what is known is not tried again"
    evaluator = Spying(Limits(evaluation_time=2_000_000))
    assert len(evaluator.evaluate(table(1000), [slow(2_000)])[0]) == 1000, "a slow stream has the time"
    evaluator = Spying(Limits(evaluation_time=2_000_000))
    evaluator.begin(200_000)
    with pytest.raises(EvaluationError, match="more than 2 seconds"):
        evaluator.evaluate(table(1000), [slow()])


@pytest.mark.parametrize("expression", [repeated(2), Call("Length", (repeated(2000),), INTEGER)], ids=["size", "time"])
def test_one_long_row_condemns_no_expression(expression: Expression) -> None:
    rows = table(60_000)
    names = ["x" * 40_000, *rows["name"].to_pylist()[1:]]
    evaluator = Spying(Limits(evaluation_time=20_000_000))
    assert evaluator._is_suspect(rows.set_column(0, "name", pa.array(names)), (repeated(2),)), "it looks large at first"
    assert len(evaluator.evaluate(rows.set_column(0, "name", pa.array(names)), [expression])[0]) == 60_000


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="nowhere to count threads")
def test_a_database_has_no_threads_of_its_own_that_could_want_memory_while_there_is_none() -> None:
    """One that did ended the process with a segmentation fault."""

    def threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    evaluator = Evaluator()
    evaluator.evaluate(table(10), [repeated(2)])
    before = threads()
    others = [Evaluator(), Evaluator(), expand._Database(1 << 26, None)]
    assert threads() <= before
    for one in others:
        one.close()


class Spying(Evaluator):
    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.sizes: list[int] = []

    def _query(self, table, expressions, counting):  # type: ignore[no-untyped-def]
        self.sizes.append(table.num_rows)
        return super()._query(table, expressions, counting)


def test_a_process_that_waits_takes_no_time() -> None:
    interrupts: list[int] = []
    with watched(lambda: interrupts.append(1), 0.2, lambda: interrupts.append(2)):
        time.sleep(1.0)
    assert interrupts == []


def test_where_an_interrupt_has_no_effect_the_last_resort_is_taken() -> None:
    interrupted, ended = threading.Event(), threading.Event()
    with watched(interrupted.set, 0.05, ended.set):
        while not ended.is_set():
            sum(range(1000))
    assert interrupted.is_set()


def test_a_forked_process_watches_its_own_evaluations() -> None:
    evaluator = Evaluator(Limits(evaluation_time=300_000))
    evaluator.evaluate(table(10), [repeated(2)])
    child = os.fork()
    if child == 0:
        ended = threading.Event()
        with watched(lambda: None, 0.05, ended.set):
            while not ended.is_set():
                sum(range(1000))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


class Counting(Evaluator):
    calls: list[int]

    def evaluate_counted(self, table, expressions):  # type: ignore[no-untyped-def]
        self.calls.append(len(expressions))
        return super().evaluate_counted(table, expressions)


@pytest.mark.parametrize("apart", [False, True])
def test_an_expression_breaks_alone_and_once_for_all_chunks_of_a_task(apart: bool) -> None:
    evaluator = Counting(Limits(evaluation_memory=48 << 20))
    evaluator.calls = []
    good = Call("Add", (PRICE, Literal(1, LONG)), LONG)
    broken = Broken()
    for number in range(3):
        times = pa.array(range(10_000), pa.int64()).to_numpy()
        chunk = Batch(table(), times, evaluator, broken, apart)
        chunk.prepare([good, repeated(100_000)])
        assert chunk.value(good).to_pylist()[:3] == [1, 2, 3]
        assert chunk.value(repeated(100_000)).null_count == 10_000
        assert chunk.broken == {repeated(100_000): MEMORY}
        if number == 0:
            assert evaluator.calls == ([1, 1] if apart else [2, 1]), "the others go on together"
    assert sum(evaluator.calls) == (4 if apart else 5), "in later chunks it is not evaluated again"


def test_what_was_weighed_on_rows_of_a_task_is_not_weighed_again_on_fewer_of_them() -> None:
    evaluator = Spying(Limits(evaluation_time=2_000_000))
    evaluator.begin(200_000)
    for rows, most_tries in ((20_000, 100), (2_000, 3)):
        before = len(evaluator.sizes)
        with pytest.raises(EvaluationError, match="more than 2 seconds") as refused:
            evaluator.evaluate(table(rows), [repeated(2), slow()])
        assert isinstance(refused.value, Refused)
        assert set(refused.value.guilty) == {slow()}, "the other is not to blame"
        assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)
        assert len(evaluator.sizes) - before <= most_tries
    for other_rows in (lambda: evaluator.begin(200_000), evaluator.weigh_anew):
        other_rows()
        before = len(evaluator.sizes)
        with pytest.raises(Refused):
            evaluator.evaluate(table(2_000), [repeated(2), slow()])
        assert len(evaluator.sizes) - before > 3, "rows of another task, or query, are weighed anew"


def test_all_that_would_take_too_long_are_refused_at_once_and_what_breaks_a_trial_is_named() -> None:
    evaluator = Evaluator(Limits(evaluation_memory=48 << 20, evaluation_time=2_000_000))
    large = [repeated(1_000_000), Call("Concat", (repeated(1_000_000),) * 10, STRING)]
    with pytest.raises(Refused) as refused:
        evaluator.evaluate(table(), [*large, repeated(2), slow(100_000)])
    assert {e: error.code for e, error in refused.value.guilty.items()} == dict.fromkeys(
        [*large, slow(100_000)], "LIMIT_EXCEEDED"
    )
    assert len(evaluator.evaluate(table(), [repeated(2)])[0]) == 10_000


def test_what_breaks_on_selected_rows_is_not_held_against_those_that_need_all() -> None:
    evaluator = Evaluator(Limits(evaluation_memory=48 << 20))
    times = pa.array(range(10_000), pa.int64()).to_numpy()
    chunk = Batch(table(), times, evaluator)
    some = chunk.only(times)
    some.prepare([repeated(100_000)])
    assert some.broken == {repeated(100_000): MEMORY}
    assert chunk.broken == {}
