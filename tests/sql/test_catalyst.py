"""Reading Spark's analysed trees: structure, literals, replaced functions, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import SqlError
from millstream.model.expression import Call, Column, Expression, Literal
from millstream.model.types import BOOLEAN, DATE, DOUBLE, INTEGER, LONG, STRING, TIMESTAMP, decimal, parse_type
from millstream.sql.catalyst import Node, literal, read_tree, restore, to_expression

CATALYST = "org.apache.spark.sql.catalyst.expressions."


def item(class_: str, children: int = 0, **fields: Any) -> dict[str, Any]:
    return {"class": CATALYST + class_, "num-children": children, **fields}


def attribute(name: str, kind: str) -> dict[str, Any]:
    return item("AttributeReference", name=name, dataType=kind, exprId={"id": 1, "jvmId": "x"})


def constant(value: str | None, kind: str) -> dict[str, Any]:
    return item("Literal", value=value, dataType=kind)


def column(node: Node) -> Expression | None:
    return (
        Column(node.fields["name"], parse_type(node.fields["dataType"])) if node.name == "AttributeReference" else None
    )


def read(*items: dict[str, Any]) -> Expression:
    return to_expression(read_tree(items), column)


A, L = Column("a", INTEGER), Column("l", LONG)


def test_a_tree_is_read_in_pre_order() -> None:
    tree = read_tree(
        [item("Add", 2), item("Cast", 1, dataType="long"), attribute("a", "integer"), attribute("l", "long")]
    )
    assert [tree.name, *(child.name for child in tree.children)] == ["Add", "Cast", "AttributeReference"]
    assert tree.children[0].children[0].fields["name"] == "a"


def test_every_node_gets_the_type_that_spark_gives_it() -> None:
    got = read(
        item("Alias", 1, name="x"),
        item("Add", 2),
        item("Cast", 1, dataType="long"),
        attribute("a", "integer"),
        attribute("l", "long"),
    )
    assert got == Call("Add", (Call("Cast", (A,), LONG), L), LONG)


def test_a_cast_to_the_same_type_disappears() -> None:
    assert read(item("Cast", 1, dataType="integer"), attribute("a", "integer")) == A


def test_columns_are_asked_first() -> None:
    tree = read_tree([item("Not", 1), item("AggregateExpression", 1), item("Max", 0)])
    got = to_expression(tree, lambda node: Column("#a0", BOOLEAN) if node.name == "AggregateExpression" else None)
    assert got == Call("Not", (Column("#a0", BOOLEAN),), BOOLEAN)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("10", "integer", 10),
        ("-9223372036854775808", "long", -(2**63)),
        ("1.50", "decimal(3,2)", "1.50"),
        ("1E+3", "decimal(10,1)", "1000.0"),
        ("1.0E-7", "double", 1e-7),
        ("-Infinity", "double", float("-inf")),
        ("true", "boolean", True),
        ("1969-12-31", "date", -1),
        ("2020-01-01 00:00:01.5", "timestamp", 1_577_836_801_500_000),
        ("0001-01-01 00:00:00", "timestamp", -62_135_596_800_000_000),
        ("-62135596798500000", "timestamp_ntz", -62_135_596_798_500_000),
        (None, "string", None),
        ("it's", "string", "it's"),
    ],
)  # fmt: skip
def test_literals(text: str | None, kind: str, value: object) -> None:
    assert literal(Node("Literal", {"value": text, "dataType": kind})) == Literal(value, parse_type(kind))  # type: ignore[arg-type]


def test_a_replaced_function_is_read_as_what_replaces_it() -> None:
    got = read(
        item("Nvl", 1, left=[attribute("a", "integer")], replacement=0), item("Coalesce", 2),
        attribute("a", "integer"), constant("2", "integer"),
    )  # fmt: skip
    assert got == Call("Coalesce", (A, Literal(2, INTEGER)), INTEGER)


def test_a_common_expression_is_put_where_it_is_referred_to() -> None:
    reference = item("CommonExpressionRef", id=None, dataType="integer")
    got = read(
        item("Between", 1, replacement=0), item("With", 2), item("And", 2),
        item("GreaterThanOrEqual", 2), reference, constant("1", "integer"),
        item("LessThanOrEqual", 2), reference, constant("3", "integer"),
        item("CommonExpressionDef", 1), attribute("a", "integer"),
    )  # fmt: skip
    low = Call("GreaterThanOrEqual", (A, Literal(1, INTEGER)), BOOLEAN)
    high = Call("LessThanOrEqual", (A, Literal(3, INTEGER)), BOOLEAN)
    assert got == Call("And", (low, high), BOOLEAN)


def test_try_functions_keep_their_name() -> None:
    got = read(item("TryAdd", 1, replacement=0), item("Add", 2), attribute("a", "integer"), constant("1", "integer"))
    assert got == Call("TryAdd", (A, Literal(1, INTEGER)), INTEGER)


def test_intervals_become_options() -> None:
    got = read(
        item("TimestampAddInterval", 2), attribute("t", "timestamp"),
        item("UnaryMinus", 1), constant("86400000000", "interval day"),
    )  # fmt: skip
    assert got == Call("TimestampAddInterval", (Column("t", TIMESTAMP),), TIMESTAMP, (("micros", "-86400000000"),))
    got = read(
        item("DateAdd", 2),
        attribute("d", "date"),
        item("ExtractANSIIntervalDays", 1),
        constant("172800000000", "interval day"),
    )
    assert got == Call("DateAdd", (Column("d", DATE), Literal(2, INTEGER)), DATE)


def test_one_argument_to_date_is_a_cast() -> None:
    got = read(item("ParseToDate", 1, ansiEnabled=True), attribute("s", "string"))
    assert got == Call("Cast", (Column("s", STRING),), DATE)
    got = read(item("ParseToDate", 1, ansiEnabled=False), attribute("s", "string"))
    assert got == Call("TryCast", (Column("s", STRING),), DATE)


def test_decimal_division_follows_sparks_precision_rules() -> None:
    got = read(item("Divide", 2), attribute("a", "decimal(20,2)"), attribute("b", "decimal(20,0)"))
    assert got.type == decimal(38, 20)


class Java:
    """An expression of the JVM, as Py4J shows it."""

    def __init__(self, *below: Java, **values: str) -> None:
        self.below, self.values = below, values

    def children(self) -> Java:
        return self

    def apply(self, index: int) -> Java:
        return self.below[index]

    def evalMode(self) -> Java:
        return self

    def toString(self) -> str:
        return self.values["mode"]

    def escapeChar(self) -> str:
        return self.values["escape"]


def test_what_the_json_lacks_comes_from_the_jvm() -> None:
    like = read_tree([item("Like", 2, escapeChar=None), attribute("s", "string"), constant("a#%", "string")])
    got = to_expression(restore(like, Java(Java(), Java(), escape="#")), column)
    assert isinstance(got, Call)
    assert got.option("escape") == "#"
    cast = read_tree([item("Cast", 1, dataType="double", evalMode=None), attribute("s", "string")])
    assert to_expression(restore(cast, Java(Java(), mode="TRY")), column) == Call(
        "TryCast", (Column("s", STRING),), DOUBLE
    )


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([item("RegExpReplace", 1), attribute("s", "string")], "regexp_replace"),
        ([item("Cast", 1, dataType="string"), attribute("d", "double")], "from double to string"),
        ([item("Like", 2), attribute("s", "string"), attribute("p", "string")], "like is not supported"),
        ([item("Like", 2), attribute("s", "string"), constant("a\\b", "string")], "like is not supported"),
        ([item("Cast", 1, dataType="timestamp"), constant("2020-01-01 Europe/Paris", "string")], "Europe/Paris"),
        ([item("CurrentTimestamp", 0)], "other values every time"),
        ([constant("1", "interval day")], "interval"),
        ([item("Multiply", 2), attribute("a", "decimal(38,10)"), attribute("b", "decimal(38,10)")], "is not supported"),
        ([item("Cast", 1, dataType={"type": "array"}), attribute("s", "string")], "type"),
    ],
)  # fmt: skip
def test_refusals_name_what_is_refused(items: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(SqlError, match=message) as refused:
        read(*items)
    assert refused.value.code == "UNSUPPORTED"


def test_a_refused_function_comes_with_near_ones() -> None:
    with pytest.raises(SqlError) as refused:
        read(item("Levenshtein", 2), attribute("s", "string"), attribute("t", "string"))
    assert refused.value.message == "the function levenshtein is not supported"
    assert refused.value.hint
