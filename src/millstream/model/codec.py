"""The model as JSON: what the metastore and group-version files keep of the frozen dataclasses.

A dataclass becomes an object whose ``@`` names its class; fields that hold their default are left out, so adding a
field with a default keeps old texts readable. Tuples are arrays. What JSON has no word for (bytes, NaN, infinities,
dicts) is an object with one ``@…`` key.

>>> from millstream.model.query import WindowSpec
>>> dumps(WindowSpec(8, 4))
'{"@":"WindowSpec","size":8,"slide":4}'
>>> loads(dumps(WindowSpec(8, 4)))
WindowSpec(size=8, slide=4, offset=0)
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections.abc import MutableMapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, TypeVar

from millstream.model import expression, group, join, plan, query, selection, statistics, stream, types

_CLASS = "@"
_BYTES = "@bytes"
_FLOAT = "@float"
_DICT = "@dict"

_NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

_Class = TypeVar("_Class", bound=type[Any])

_classes: dict[str, type[Any]] = {}
# By class: the name and default of each field, in order.
_layouts: dict[type[Any], tuple[tuple[str, object], ...]] = {}


def register(cls: _Class) -> _Class:
    """Let a dataclass be encoded and decoded under its own name; usable as a decorator."""
    if not is_dataclass(cls):
        raise TypeError(f"only dataclasses are encoded, not {cls.__name__}")
    if _classes.setdefault(cls.__name__, cls) is not cls:
        raise ValueError(f"two classes named {cls.__name__!r}")
    _layouts[cls] = tuple((field.name, _default(field)) for field in fields(cls))
    return cls


def _default(field: Field[Any]) -> object:
    return field.default_factory() if field.default_factory is not MISSING else field.default


for _known in (
    types.DataType,
    expression.Column,
    expression.Literal,
    expression.Call,
    stream.Field,
    stream.Stream,
    query.WindowSpec,
    query.Aggregate,
    query.Output,
    query.Order,
    query.Ranking,
    query.LogicalQuery,
    join.Leg,
    join.JoinNode,
    join.JoinQuery,
    statistics.Moments,
    statistics.GroupFigures,
    statistics.Figures,
    plan.IngestPlan,
    plan.Bucket,
    plan.BucketFile,
    plan.AnswerFile,
    plan.Damage,
    plan.Recipe,
    plan.BatchResult,
    plan.FireResult,
    selection.Attribute,
    selection.Leaf,
    selection.AllOf,
    selection.AnyOf,
    group.Measure,
    group.Member,
    group.GroupVersion,
):
    register(_known)


def encode(value: object) -> Any:
    """The value as what ``json.dumps`` takes. Numbers, strings and Booleans are themselves."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    layout = _layouts.get(kind)
    if layout is not None:
        body: dict[str, Any] = {_CLASS: kind.__name__}
        for name, default in layout:
            part = getattr(value, name)
            if not _same(part, default):
                body[name] = encode(part)
        return body
    if isinstance(value, tuple):
        return [encode(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else {_FLOAT: repr(value)}
    if isinstance(value, bytes):
        return {_BYTES: b64encode(value).decode("ascii")}
    if isinstance(value, dict):
        return {_DICT: [[encode(key), encode(part)] for key, part in value.items()]}
    raise TypeError(f"a value of type {kind.__name__} has no JSON form; known classes: {', '.join(sorted(_classes))}")


def _same(value: object, default: object) -> bool:
    """Whether leaving the value out loses nothing: equal and of one type, since 0, -0.0 and False are all equal."""
    return type(value) is type(default) and type(value) is not float and value == default


def decode(data: Any) -> Any:
    """The value that ``encode`` was given."""
    if isinstance(data, dict):
        name = data.get(_CLASS)
        return _decode_marked(data) if name is None else _decode_class(name, data)
    if isinstance(data, list):
        return tuple([decode(part) for part in data])
    return data


def _decode_class(name: str, data: dict[str, Any], decoded: dict[str, Any] | None = None) -> Any:
    """``decoded`` are fields that are known already."""
    cls = _classes.get(name)
    if cls is None:
        raise ValueError(f"unknown class {name!r}; known: {', '.join(sorted(_classes))}")
    return cls(**({key: decode(part) for key, part in data.items() if key != _CLASS} | (decoded or {})))


def _decode_marked(data: dict[str, Any]) -> Any:
    if len(data) == 1:
        (mark, body), *_ = data.items()
        if mark == _BYTES:
            return b64decode(body)
        if mark == _FLOAT:
            return _NONFINITE[body]
        if mark == _DICT:
            return {decode(key): decode(part) for key, part in body}
    raise ValueError(f"an object that encode did not write, with keys {', '.join(map(repr, data))}")


def dumps(value: object) -> str:
    """The value as text. Characters outside ASCII are escaped, so any store keeps them, NUL and lone surrogates too."""
    return json.dumps(encode(value), separators=(",", ":"), allow_nan=False)


def dumps_joined(value: object, field: str, texts: Sequence[str]) -> str:
    """The value as ``dumps`` writes it, but for one field, an empty tuple, whose elements are given as their texts: who
    writes a long tuple again and again keeps the texts.

    >>> dumps_joined(selection.AllOf(()), "items", [dumps(selection.AnyOf(()))])
    '{"@":"AllOf","items":[{"@":"AnyOf","items":[]}]}'
    """
    body = encode(value)
    if body.pop(field) != []:
        raise ValueError(f"the field {field!r} is not empty")
    return f'{json.dumps(body, separators=(",", ":"), allow_nan=False)[:-1]},"{field}":[{",".join(texts)}]}}'


def loads(text: str) -> Any:
    """The value of a text that ``dumps`` wrote."""
    return decode(json.loads(text))


def loads_joined(text: str, field: str, known: MutableMapping[str, Any]) -> Any:
    """The value of a text that ``dumps_joined`` wrote, or ``dumps``. Elements whose text is ``known`` are not decoded
    again, and new ones become known.

    >>> parts: dict[str, Any] = {}
    >>> text = dumps_joined(selection.AllOf(()), "items", [dumps(selection.AnyOf(()))])
    >>> loads_joined(text, "items", parts), parts
    (AllOf(items=(AnyOf(items=()),)), {'{"@":"AnyOf","items":[]}': AnyOf(items=())})
    """
    head, mark, rest = text.partition(f',"{field}":[')
    found = _elements(rest, known) if mark else None
    if found is None:
        return loads(text)
    body = json.loads(head + "}")
    return _decode_class(body[_CLASS], body | {field: ()}, {field: found})


_scan = json.JSONDecoder().raw_decode


def _elements(text: str, known: MutableMapping[str, Any]) -> tuple[Any, ...] | None:
    """The elements of an array that ends an object, and the text; None where something else follows."""
    found = []
    place = 0
    while text[place : place + 1] == "{":
        data, end = _scan(text, place)
        part = text[place:end]
        value = known.get(part)
        if value is None:
            # Others may forget what is known meanwhile.
            value = known[part] = decode(data)
        found.append(value)
        place = end + (text[end : end + 1] == ",")
    return tuple(found) if text[place:] == "]}" else None
