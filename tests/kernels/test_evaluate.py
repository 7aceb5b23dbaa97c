"""The evaluator without Spark: Arrow types, names, constants, and failures that respect branches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from millstream.kernels.evaluate import Evaluator
from millstream.model.expression import Call, Column, Expression, Literal
from millstream.model.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    decimal,
)
from millstream.sql.functions import UNTYPED, Program, can_fail, failures, translate, typed

TABLE = pa.table(
    {
        "i": pa.array([1, 2**31 - 1, None, 0], pa.int32()),
        "z": pa.array([1, 0, 0, None], pa.int32()),
        "t": pa.array([0, -1, None, 10**15], pa.timestamp("us", tz="UTC")),
        "s": pa.array(["a", None, "7", ""]),
    }
)
N, Z, T, S = Column("i", INTEGER), Column("z", INTEGER), Column("t", TIMESTAMP), Column("s", STRING)
ONE = Literal(1, INTEGER)


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    return Evaluator()


def call(op: str, *args: Expression, to: DataType = UNTYPED, options: tuple[tuple[str, str], ...] = ()) -> Call:
    return typed(Call(op, args, to, options))


def values(evaluator: Evaluator, expression: Expression, table: pa.Table = TABLE) -> list[object]:
    return evaluator.evaluate(table, [expression])[0].to_pylist()


def counts(evaluator: Evaluator, expression: Expression) -> list[int] | None:
    found = evaluator.failures(TABLE, [expression])[0]
    return None if found is None else found.tolist()


DIVIDED = call("Remainder", ONE, Z)  # fails on row 1 and 2


def test_values_have_the_arrow_type_of_the_expression(evaluator: Evaluator) -> None:
    wanted = [
        call("Add", N, ONE), call("Cast", N, to=decimal(12, 2)), call("Cast", T, to=TIMESTAMP_NTZ), call("Upper", S),
        call("Cast", T, to=DATE), call("Window", T, T), call("IsNull", S), Literal(None, DataType("void")),
        Literal("x", STRING), T, S,
    ]  # fmt: skip
    got = evaluator.evaluate(TABLE, wanted)
    assert [array.type for array in got] == [expression.type.arrow for expression in wanted]
    assert all(len(array) == TABLE.num_rows and isinstance(array, pa.Array) for array in got)
    assert got[0].to_pylist() == [2, None, None, 1]


def test_plain_columns_do_not_pass_through_duckdb(evaluator: Evaluator) -> None:
    (got,) = evaluator.evaluate(TABLE, [N])
    assert got.buffers()[1].address == TABLE.column("i").chunk(0).buffers()[1].address


def test_rows_keep_their_order_over_many_chunks(evaluator: Evaluator) -> None:
    table = pa.concat_tables([pa.table({"l": pa.array(range(k * 5000, (k + 1) * 5000))}) for k in range(40)])
    got = values(evaluator, call("Subtract", Column("l", LONG), Literal(1, LONG)), table)
    assert got == list(range(-1, 199_999))


@pytest.mark.parametrize("name", ['a "b"', "A", "#k0", "x y", "select", "ä", "it's", "#c0", "#v0"])
def test_any_column_name_works(evaluator: Evaluator, name: str) -> None:
    table = pa.table({name: pa.array([1, 2], pa.int32()), "a": pa.array([5, 6], pa.int32())})
    expression = call("Add", Column(name, INTEGER), call("Multiply", Column("a", INTEGER), Column(name, INTEGER)))
    assert values(evaluator, expression, table) == [6, 14]


def test_dictionary_and_large_strings_are_read(evaluator: Evaluator) -> None:
    expected = ["A", "B", None, "A"]
    plain = pa.array(["a", "b", None, "a"])
    for column in (plain.dictionary_encode(), plain.cast(pa.large_string()), pa.chunked_array([plain])):
        assert values(evaluator, call("Upper", S), pa.table({"s": column})) == expected
        (got,) = evaluator.evaluate(pa.table({"s": column}), [S])
        assert got.type == pa.string()


def test_a_record_batch_and_an_empty_table_work(evaluator: Evaluator) -> None:
    batch = TABLE.to_batches()[0]
    assert evaluator.evaluate(batch, [call("Add", N, ONE)])[0].to_pylist() == [2, None, None, 1]
    assert len(evaluator.evaluate(TABLE.slice(0, 0), [call("Add", N, ONE)])[0]) == 0


def test_the_window_is_a_struct(evaluator: Evaluator) -> None:
    (got,) = evaluator.evaluate(TABLE.slice(0, 1), [call("Window", T, T)])
    assert got.type == DataType("window").arrow
    assert got.field("start").cast(pa.int64()).to_pylist() == [0]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (Literal(5, INTEGER), 5),
        (call("Cast", Literal("2020-01-01", STRING), to=DATE), 18262),
        (call("Cast", Literal("1969-12-31 23:59:59.5", STRING), to=TIMESTAMP), -500_000),
        (call("Cast", Literal(10, INTEGER), to=decimal(10, 2)), "10.00"),
        (call("Cast", Literal("x", STRING), to=INTEGER), None),
        (call("Divide", Literal(1.0, DOUBLE), Literal(4.0, DOUBLE)), 0.25),
        (call("EqualTo", ONE, ONE), True),
    ],
)
def test_constants_are_folded_to_literal_values(evaluator: Evaluator, expression: Expression, value: object) -> None:
    assert evaluator.constant(expression) == value


def test_an_expression_with_columns_is_no_constant(evaluator: Evaluator) -> None:
    with pytest.raises(ValueError, match="columns i"):
        evaluator.constant(call("Add", N, ONE))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (call("EqualTo", N, Z), None),
        (call("Add", N, ONE), [0, 1, 0, 0]),
        (DIVIDED, [0, 1, 1, 0]),
        (call("TryMod", ONE, Z), None),
        # Both operators fail on their own rows.
        (call("Add", call("Add", N, ONE), DIVIDED), [0, 1, 0, 0]),
        # An operator that occurs twice counts once.
        (call("EqualTo", DIVIDED, DIVIDED), [0, 1, 1, 0]),
        # The branch is taken on row 1 only.
        (call("If", call("GreaterThan", N, ONE), DIVIDED, ONE), [0, 1, 0, 0]),
        (call("If", call("GreaterThan", N, ONE), ONE, DIVIDED), [0, 0, 1, 0]),
        (call("CaseWhen", call("IsNull", N), ONE, call("EqualTo", N, ONE), ONE, DIVIDED), [0, 1, 0, 0]),
        # The second argument is needed where the first is missing.
        (call("Coalesce", N, DIVIDED), [0, 0, 1, 0]),
        (call("And", call("IsNull", N), call("EqualTo", DIVIDED, ONE)), [0, 0, 1, 0]),
        (call("Or", call("IsNull", N), call("EqualTo", DIVIDED, ONE)), [0, 1, 0, 0]),
        # NULL on the left leaves the right side unevaluated.
        (call("EqualTo", N, DIVIDED), [0, 1, 0, 0]),
        (call("In", N, ONE, DIVIDED), [0, 1, 0, 0]),
        # A literal that can be cast is no risk.
        (call("EqualTo", T, call("Cast", Literal("2020-01-01", STRING), to=TIMESTAMP)), None),
    ],
)  # fmt: skip
def test_failures_are_counted_where_spark_would_fail(
    evaluator: Evaluator, expression: Expression, expected: list[int] | None
) -> None:
    assert counts(evaluator, expression) == expected


def test_a_text_that_would_be_too_long_fails_and_is_never_cut(evaluator: Evaluator) -> None:
    """Of N = 1, 2147483647, NULL, 0."""
    ten = Literal("abcdefghij", STRING)
    repeated = call("StringRepeat", ten, N)
    assert values(evaluator, repeated) == ["abcdefghij", None, None, ""]
    assert counts(evaluator, repeated) == [0, 1, 0, 0]
    longest = call("Length", call("StringRepeat", ten, Literal(1_000_000, INTEGER)))
    assert values(evaluator, longest) == [10_000_000] * 4
    assert values(evaluator, call("StringRepeat", Literal("", STRING), N)) == ["", "", None, ""]
    for op in ("StringLPad", "StringRPad"):
        padded = call(op, ten, N, Literal("y", STRING))
        assert values(evaluator, padded) == ["a", None, None, ""]
        assert counts(evaluator, padded) == [0, 1, 0, 0]
        assert counts(evaluator, call(op, ten, Literal(12, INTEGER), Literal("y", STRING))) is None
        assert counts(evaluator, call(op, ten, Literal(10_000_001, INTEGER), Literal("y", STRING))) == [1, 1, 1, 1]


def test_values_and_failures_come_together(evaluator: Evaluator) -> None:
    column, added = evaluator.evaluate_counted(TABLE, [N, call("Add", N, ONE)])
    assert column.failures is None
    assert added.values.to_pylist() == [2, None, None, 1]
    assert added.failures is not None
    assert added.failures.dtype == "int32"


def test_deep_nesting_stays_small(evaluator: Evaluator) -> None:
    """Templates that use an argument many times would double the text at every level."""
    deep: Expression = Column("n", decimal(10, 2))
    for _ in range(12):
        deep = call("Cast", call("Divide", deep, Column("n", decimal(10, 2))), to=decimal(10, 2))
    program = Program()
    assert len(program.select([program.value(deep)], "t")) < 50_000
    table = pa.table({"n": pa.array([3], pa.int64()).cast(pa.decimal128(19, 0)).cast(pa.decimal128(10, 2))})
    assert evaluator.evaluate(table, [deep])[0].type == pa.decimal128(10, 2)


def test_sql_texts_stand_alone(evaluator: Evaluator) -> None:
    import duckdb

    expression = call("Add", N, ONE)
    assert can_fail(expression)
    rows = duckdb.sql(f"SELECT {translate(expression)}, {failures(expression)} FROM (VALUES (1), (2147483647)) v(i)")
    assert rows.fetchall() == [(2, 0), (None, 1)]
    assert failures(call("EqualTo", N, ONE)) is None


def test_booleans_and_nulls_meet_in_three_valued_logic(evaluator: Evaluator) -> None:
    truth = [True, False, None]
    table = pa.table({"p": [a for a in truth for _ in truth], "q": truth * 3})
    p, q = Column("p", BOOLEAN), Column("q", BOOLEAN)
    assert values(evaluator, call("And", p, q), table) == [True, False, None, False, False, False, None, False, None]
    assert values(evaluator, call("Or", p, q), table) == [True, True, True, True, False, None, True, None, None]


@pytest.mark.parametrize("word", ["it's", "\0", "a\0b", "\x010\x02", "%1$s", "{}", "\\1", "$$"])
def test_any_string_constant_comes_back(evaluator: Evaluator, word: str) -> None:
    assert evaluator.constant(call("Concat", Literal(word, STRING), Literal("\x011\x02", STRING))) == word + "\x011\x02"


def sized(rows: int, kind: pa.DataType | None = None) -> pa.Table:
    return pa.table({"i": pa.array(range(rows), kind or pa.int32())})


def test_a_query_is_planned_once_and_reads_the_rows_of_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator = Evaluator()
    planned: list[pa.Schema] = []
    real = evaluator._prepared._new

    def new(query: Any, schema: pa.Schema) -> Any:
        planned.append(schema)
        return real(query, schema)

    monkeypatch.setattr(evaluator._prepared, "_new", new)
    for rows in (3, 1, 900, 0, 3):
        assert values(evaluator, call("Add", N, ONE), sized(rows)) == list(range(1, rows + 1))
    assert len(planned) == 1
    assert values(evaluator, call("Add", N, ONE), sized(4, pa.int16())) == [1, 2, 3, 4], "columns of another type"
    assert len(planned) == 2
    assert all(feed.table.num_rows == 0 for feed in evaluator._prepared._feeds.values()), "no rows are kept"


def test_only_so_many_queries_are_kept_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator = Evaluator()
    longer = [call("Add", N, Literal(number, INTEGER)) for number in range(20)]
    values(evaluator, longer[0], sized(1))
    monkeypatch.setattr("millstream.kernels.evaluate.PREPARED_TEXT", 3 * evaluator._prepared._text + 10)
    for _ in range(2):
        for number, expression in enumerate(longer):
            assert values(evaluator, expression, sized(2)) == [number, number + 1]
            assert len(evaluator._prepared._feeds) <= 3
    monkeypatch.setattr("millstream.kernels.evaluate.PREPARED_TEXT", 0)
    assert values(evaluator, longer[3], sized(1)) == [3]
    assert len(evaluator._prepared._feeds) == 1


def test_a_text_that_names_a_source_is_only_a_text(evaluator: Evaluator) -> None:
    text = Literal("millstream_0 millstream_1", STRING)
    assert values(evaluator, call("Concat", S, text))[0] == "amillstream_0 millstream_1"
