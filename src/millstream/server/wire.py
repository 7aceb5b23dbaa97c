"""Statuses, answers and errors as JSON and Arrow, in both directions.

JSON has no word for some of Spark's values, so: decimals are strings (exact), timestamps and dates ISO 8601 (with ``Z``
where they have a zone), binary is base64, and NaN and the infinities are the strings Spark casts them to.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, TypeVar

import pyarrow as pa
from pydantic import TypeAdapter

from millstream.engine.status import Answer, AnswerPage
from millstream.errors import DamagedFile, EngineError, MillstreamError, Position, SqlError

T = TypeVar("T")


def to_json(value: Any) -> Any:
    """A status, a value of an answer, or any nest of them, as JSON-able data.

    >>> to_json({"price": Decimal("1.50"), "ratio": float("nan"), "at": datetime(2026, 1, 2, tzinfo=UTC)})
    {'price': '1.50', 'ratio': 'NaN', 'at': '2026-01-02T00:00:00Z'}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _not_finite(value)
    if isinstance(value, dict):
        return {str(name): to_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if value.tzinfo else value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if hasattr(value, "__dataclass_fields__"):
        return to_json(asdict(value))
    return str(value)


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


# An adapter is compiled once: that takes longer than any use of it.
_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}


def from_json(kind: type[T], data: Any) -> T:
    """The status that ``to_json`` made ``data`` of."""
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    value: T = _ADAPTERS[kind].validate_python(data)
    return value


def column_names(names: Sequence[str]) -> list[str]:
    """Names that are distinct, so that a row can be an object; Spark lets two columns have one name.

    >>> column_names(["key", "sum", "sum"])
    ['key', 'sum', 'sum_2']
    """
    taken: set[str] = set()
    result = []
    for name in names:
        candidate, count = name, 1
        while candidate in taken:
            count += 1
            candidate = f"{name}_{count}"
        taken.add(candidate)
        result.append(candidate)
    return result


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of an answer as JSON-able objects."""
    named = table.rename_columns(column_names(table.column_names))
    return [to_json(row) for row in named.to_pylist()]


def answer_to_json(answer: Answer) -> dict[str, Any]:
    return {**_about(answer), "rows": rows_of(answer.table)}


def page_to_json(page: AnswerPage) -> dict[str, Any]:
    answers = [answer_to_json(answer) for answer in page.answers]
    return {"answers": answers, "cursor": page.cursor, "finished": page.finished}


def _about(answer: Answer) -> dict[str, Any]:
    return {
        "query": answer.query,
        "window_start": to_json(answer.window_start),
        "window_end": to_json(answer.window_end),
        "partial": answer.partial,
        "batch": answer.batch,
        "cursor": answer.cursor,
        "total_rows": answer.total_rows,
        "offset": answer.offset,
        "incomplete": answer.incomplete,
    }


def page_to_arrow(page: AnswerPage) -> bytes:
    """The page as one Arrow IPC stream: an answer is one record batch, and says what it is in the batch's metadata."""
    if not page.answers:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, page.answers[0].table.schema) as writer:
        for answer in page.answers:
            about = {name: str(value) for name, value in _about(answer).items() if value is not None}
            writer.write_batch(_single_batch(answer.table), custom_metadata=about)
    return bytes(sink.getvalue())


def _single_batch(table: pa.Table) -> pa.RecordBatch:
    columns = [
        pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type) for column in table.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def answers_from_arrow(body: bytes) -> Iterator[Answer]:
    """The answers of a stream that ``page_to_arrow`` wrote."""
    if not body:
        return
    with pa.ipc.open_stream(pa.BufferReader(body)) as reader:
        while True:
            try:
                item = reader.read_next_batch_with_custom_metadata()
            except StopIteration:
                return
            about = {name.decode(): value.decode() for name, value in item.custom_metadata.items()}
            yield _answer(about, pa.Table.from_batches([item.batch]))


def _answer(about: dict[str, str], table: pa.Table) -> Answer:
    def read(name: str, convert: Callable[[str], T]) -> T | None:
        return convert(about[name]) if name in about else None

    return Answer(
        query=about["query"],
        window_start=read("window_start", datetime.fromisoformat),
        window_end=read("window_end", datetime.fromisoformat),
        partial=about["partial"] == "True",
        batch=read("batch", int),
        table=table,
        cursor=about["cursor"],
        total_rows=int(about["total_rows"]),
        offset=int(about["offset"]),
        incomplete=about.get("incomplete"),
    )


def error_to_json(error: MillstreamError) -> dict[str, Any]:
    """The one error shape of HTTP and of ``--json``."""
    return {"error": error.as_dict()}


def error_from_json(body: dict[str, Any], text: str | None = None) -> MillstreamError:
    """The error of a response; ``text`` is the SQL the request carried, for the underlining."""
    error = body["error"]
    if error["code"] == "DAMAGED_FILE":
        path, _, reason = error["message"].partition(" ")
        return DamagedFile(path, reason, hint=error.get("hint"), detail=error.get("detail"), cursor=error.get("cursor"))
    position = error.get("position")
    kind = SqlError if position else EngineError if error["code"] in ("INTERNAL", "NOT_RUNNING") else MillstreamError
    return kind(
        error["code"],
        error["message"],
        hint=error.get("hint"),
        detail=error.get("detail"),
        position=Position(**position) if position else None,
        text=text,
    )
