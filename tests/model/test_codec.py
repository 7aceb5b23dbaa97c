"""The model as JSON, there and back."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.codec import decode, dumps, dumps_joined, encode, loads, loads_joined, register
from millstream.model.expression import Call, Column, Expression, Literal
from millstream.model.plan import AnswerFile, BatchResult, Bucket, BucketFile, FireResult, IngestPlan
from millstream.model.query import AGGREGATE_FUNCTIONS, Aggregate, LogicalQuery, Output, WindowSpec
from millstream.model.stream import Field, Stream
from millstream.model.types import BOOLEAN, DATE, DOUBLE, LONG, STRING, TIMESTAMP, DataType, decimal

NAMES = st.text(max_size=8)
# Any NaN is the same to us; the one object makes it equal to itself inside tuples.
FLOATS = st.floats().map(lambda value: math.nan if math.isnan(value) else value)
VALUES = st.none() | st.booleans() | st.integers() | FLOATS | st.binary(max_size=8) | NAMES
TYPES = st.sampled_from([BOOLEAN, LONG, DOUBLE, STRING, DATE, TIMESTAMP]) | st.builds(
    decimal, st.integers(1, 38), st.integers(0, 38)
)
LEAVES = st.builds(Column, NAMES, TYPES) | st.builds(Literal, VALUES, TYPES)


def tuples(parts: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(parts, max_size=most).map(tuple)


def calls(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return st.builds(Call, NAMES, tuples(inner), TYPES, tuples(st.tuples(NAMES, NAMES)))


EXPRESSIONS = st.recursive(LEAVES, calls, max_leaves=8)
WINDOWS = st.integers(1, 2**40).flatmap(
    lambda size: st.integers(1, size).flatmap(
        lambda slide: st.builds(WindowSpec, st.just(size), st.just(slide), st.integers(0, slide - 1))
    )
)
AGGREGATES = st.builds(Aggregate, st.sampled_from(AGGREGATE_FUNCTIONS), st.none() | EXPRESSIONS, TYPES)
OUTPUTS = tuples(st.builds(Output, NAMES, EXPRESSIONS))
WINDOWED = st.builds(
    LogicalQuery,
    NAMES,
    NAMES,
    st.none() | EXPRESSIONS,
    WINDOWS,
    tuples(EXPRESSIONS),
    tuples(AGGREGATES),
    st.none() | EXPRESSIONS,
    OUTPUTS,
)
PLAIN = st.builds(
    LogicalQuery,
    NAMES,
    NAMES,
    st.none() | EXPRESSIONS,
    st.none(),
    st.just(()),
    st.just(()),
    st.none(),
    OUTPUTS,
)
STREAMS = st.builds(
    Stream,
    NAMES,
    tuples(st.builds(Field, NAMES.filter(lambda name: name != "t"), TYPES)).map(lambda f: (Field("t", TIMESTAMP), *f)),
    st.just("t"),
    st.integers(0, 2**60),
    tuples(st.tuples(NAMES, NAMES)),
    st.none() | st.integers(),
)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
FILES = st.builds(
    BucketFile,
    NAMES,
    NAMES,
    INTEGERS,
    st.none() | INTEGERS,
    tuples(st.builds(Bucket, NAMES, *[INTEGERS] * 6)),
)
ANSWERS = tuples(st.builds(AnswerFile, NAMES, *[INTEGERS] * 4))
COUNTS = st.dictionaries(NAMES, INTEGERS, max_size=3)
PLANS = st.builds(IngestPlan, NAMES, INTEGERS, INTEGERS, st.none() | INTEGERS, INTEGERS, NAMES)
REASONS = st.dictionaries(NAMES, NAMES, max_size=3)
BATCHES = st.builds(
    BatchResult,
    rows=INTEGERS,
    bytes=INTEGERS,
    max_time=st.none() | INTEGERS,
    late_rows=INTEGERS,
    rejected_rows=INTEGERS,
    files=tuples(FILES),
    answers=ANSWERS,
    rejects=tuples(NAMES),
    late_by_query=COUNTS,
    failures_by_query=COUNTS,
    rows_by_query=COUNTS,
    broken=REASONS,
    seconds_by_phase=st.dictionaries(NAMES, FLOATS, max_size=3),
)
FIRES = st.builds(
    FireResult,
    answers=ANSWERS,
    windows_by_query=COUNTS,
    rows_by_query=COUNTS,
    failures_by_query=COUNTS,
    broken=REASONS,
    compacted=tuples(FILES),
    replaced=tuples(st.tuples(NAMES, INTEGERS)),
)


def types_of(value: object) -> object:
    """The shape of a value by types, since 1, 1.0 and True are equal."""
    if isinstance(value, tuple):
        return tuple(types_of(part) for part in value)
    if isinstance(value, float):
        return repr(value)  # -0.0 is equal to 0.0 too
    return type(value)


@given(VALUES | tuples(VALUES) | tuples(tuples(VALUES)))
def test_plain_values_keep_value_and_type(value: object) -> None:
    again = loads(dumps(value))
    assert again == value or again is value
    assert types_of(again) == types_of(value)


@given(WINDOWED | PLAIN | STREAMS | PLANS | BATCHES | FIRES)
def test_the_model_survives(value: object) -> None:
    text = dumps(value)
    text.encode("ascii")
    assert loads(text) == value
    assert decode(encode(value)) == value


@pytest.mark.parametrize("value", [0, 0.0, -0.0, False, 1, 1.0, True, "", b"", None, math.nan, math.inf, -math.inf])
def test_literals_that_are_equal_stay_apart(value: object) -> None:
    literal = Literal(value, LONG)  # type: ignore[arg-type]
    assert types_of((loads(dumps(literal)).value,)) == types_of((value,))


def test_the_text_is_plain_json_and_leaves_out_defaults() -> None:
    text = dumps(Call("Add", (Column("x", LONG), Literal(math.inf, DOUBLE)), decimal(10, 2)))
    assert json.loads(text) == {
        "@": "Call",
        "op": "Add",
        "args": [
            {"@": "Column", "name": "x", "type": {"@": "DataType", "kind": "long"}},
            {"@": "Literal", "value": {"@float": "inf"}, "type": {"@": "DataType", "kind": "double"}},
        ],
        "type": {"@": "DataType", "kind": "decimal", "precision": 10, "scale": 2},
    }


@pytest.mark.parametrize("value", [[1], {1, 2}, object(), ([],), Literal([1], LONG)])  # type: ignore[arg-type]
def test_what_has_no_json_form_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="has no JSON form"):
        encode(value)


@pytest.mark.parametrize("text", ['{"@":"Nothing"}', '{"a":1}', "{}", '{"@bytes":"","@float":"nan"}'])
def test_what_encode_did_not_write_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"unknown class|did not write"):
        loads(text)


def test_decoding_validates() -> None:
    with pytest.raises(ValueError, match="unknown type 'longish'"):
        loads('{"@":"DataType","kind":"longish"}')


def test_other_dataclasses_can_be_registered() -> None:
    @register
    @dataclass(frozen=True)
    class Pair:
        left: int
        right: DataType = LONG

    assert loads(dumps(Pair(1))) == Pair(1)
    with pytest.raises(TypeError):
        register(int)


@given(st.lists(st.text(max_size=6), max_size=4), st.text(max_size=6))
def test_long_tuples_are_read_element_by_element(names: list[str], extra: str) -> None:
    elements = [Call("Concat", (Column(name, STRING),), STRING) for name in names]
    whole = Call("Coalesce", tuple(elements), STRING)
    text = dumps_joined(Call("Coalesce", (), STRING), "args", [dumps(one) for one in elements])
    known: dict[str, Any] = {}
    assert loads_joined(text, "args", known) == whole == loads(text)
    assert set(known) == {dumps(one) for one in elements}
    more = Call("Concat", (Column(extra, STRING), Literal(',"args":[]}', STRING)), STRING)
    text = dumps_joined(Call("Coalesce", (), STRING), "args", [*map(dumps, elements), dumps(more)])
    again = loads_joined(text, "args", known)
    assert again.args == (*elements, more)
    assert all(known[dumps(one)] is part for one, part in zip(elements, again.args, strict=False)), "known ones"


@pytest.mark.parametrize("text", ['{"@":"Call","args":[{"@":"Column"', '{"@":"Call","args":[1]}', "", "[]x"])
def test_tuples_that_are_cut_off_are_refused(text: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        loads_joined(text, "args", {})
