"""The verified table against Spark: every entry, over edge values, in values, types and failures."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.sql.function_cases import Case, cases, views

from millstream.kernels.evaluate import Evaluated, Evaluator
from millstream.model.expression import Call, Column, Expression, columns, walk
from millstream.model.types import parse_type
from millstream.sql.catalyst import Node, read_tree, restore, to_expression
from millstream.sql.functions import check, supported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Columns of one oracle query; Spark compiles much wider ones slowly.
PART = 60
# Powers and logarithms come from other libraries than Java's; they agree in all but the last digits.
CLOSE = 1e-14

CASES = cases()
VIEWS = views()


@dataclass(frozen=True)
class Proof:
    case: Case
    expression: Expression
    wanted: pa.Array
    got: Evaluated


def column(node: Node) -> Expression | None:
    return (
        Column(node.fields["name"], parse_type(node.fields["dataType"])) if node.name == "AttributeReference" else None
    )


def analyse(spark: SparkSession, view: str, texts: list[str]) -> list[Expression]:
    listed = ", ".join(f"{text} AS x{i}" for i, text in enumerate(texts))
    plan = spark.sql(f"SELECT {listed} FROM {view}")._jdf.queryExecution().analyzed()
    trees = [read_tree(items) for items in json.loads(plan.toJSON())[0]["projectList"]]
    lossy = [i for i, text in enumerate(texts) if "try_cast" in text or "ESCAPE" in text]
    for i in lossy:
        trees[i] = restore(trees[i], plan.projectList().apply(i))
    return [to_expression(tree, column) for tree in trees]


def oracle(spark: SparkSession, view: str, texts: list[str]) -> list[pa.Array]:
    listed = ", ".join(f"{text} AS x{i}" for i, text in enumerate(texts))
    table = spark.sql(f"SELECT id, {listed} FROM {view}").toArrow().sort_by("id")
    return [table.column(f"x{i}").combine_chunks() for i in range(len(texts))]


def prove(spark: SparkSession, view: str) -> list[Proof]:
    chosen = [case for case in CASES if case.view == view]
    table = VIEWS[view]
    rows = table.append_column("id", pa.array(range(table.num_rows)))
    # Not a local relation: the optimizer would evaluate that without generated code.
    spark.createDataFrame(rows).repartition(1).createOrReplaceTempView(view)
    expressions = analyse(spark, view, [case.text for case in chosen])
    wanted: list[pa.Array] = []
    for start in range(0, len(chosen), PART):
        wanted += oracle(spark, view, [case.oracle for case in chosen[start : start + PART]])
    got = Evaluator().evaluate_counted(table, expressions)
    return [Proof(*items) for items in zip(chosen, expressions, wanted, got, strict=True)]


def plain(array: pa.Array) -> list[Any]:
    """Python values; times as numbers, because Python's own end at the year 9999."""
    if pa.types.is_timestamp(array.type):
        return array.view(pa.int64()).to_pylist()
    return array.view(pa.int32()).to_pylist() if pa.types.is_date(array.type) else array.to_pylist()


def same(wanted: Any, got: Any, close: bool) -> bool:
    """Equal, NaN to NaN and the zeros by their sign."""
    if isinstance(wanted, float) and isinstance(got, float):
        if math.isnan(wanted) or math.isnan(got):
            return math.isnan(wanted) and math.isnan(got)
        if close and wanted != got:
            return math.isclose(wanted, got, rel_tol=CLOSE)
        return wanted == got and math.copysign(1, wanted) == math.copysign(1, got)
    return bool(wanted == got)


def differences(proof: Proof) -> list[str]:
    table = VIEWS[proof.case.view]
    found = []
    if proof.wanted.type != proof.got.values.type:
        return [f"{proof.case}: Spark gives {proof.wanted.type}, not {proof.got.values.type}"]
    for row, (wanted, got) in enumerate(zip(plain(proof.wanted), plain(proof.got.values), strict=True)):
        if not same(wanted, got, proof.case.close):
            values = ", ".join(f"{name} = {table.column(name)[row]}" for name in table.column_names)
            found.append(f"{proof.case} with {values}: Spark gives {wanted!r}, not {got!r}")
    return found[:3]


def miscounts(proof: Proof) -> list[str]:
    """One operator fails on a row iff all its columns have values and its oracle has none."""
    table = VIEWS[proof.case.view]
    present = [table.column(name).is_valid().to_pylist() for name in columns(proof.expression)]
    missing = proof.wanted.is_null().to_pylist()
    expected = [int(m and all(valid[row] for valid in present)) for row, m in enumerate(missing)]
    counted = [0] * len(missing) if proof.got.failures is None else proof.got.failures.tolist()
    return [] if counted == expected else [f"{proof.case}: failures {counted} instead of {expected}"]


@pytest.mark.parametrize("view", list(VIEWS))
def test_values_types_and_failures_are_those_of_spark(spark: SparkSession, view: str) -> None:
    proofs = prove(spark, view)
    assert proofs
    problems = [line for proof in proofs for line in differences(proof)]
    problems += [line for proof in proofs if proof.case.single for line in miscounts(proof)]
    assert not problems, "\n".join(problems)
    for proof in proofs:
        check(proof.expression)


def test_every_entry_of_the_table_is_proved(spark: SparkSession) -> None:
    proved = {"Window"}
    for view in VIEWS:
        spark.createDataFrame(VIEWS[view].slice(0, 1)).createOrReplaceTempView(view)
        for expression in analyse(spark, view, [case.text for case in CASES if case.view == view]):
            proved |= {node.op for node in walk(expression) if isinstance(node, Call)}
    assert {op for _, op, _ in supported()} - proved == set()
