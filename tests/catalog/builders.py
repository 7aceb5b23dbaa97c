"""Small pieces from which the tests of the metastore are put together. Times are seconds, for short."""

from __future__ import annotations

from millstream.catalog.metastore import Change, GroupVersionRef, LegPlace, Metastore, NewQuery
from millstream.model.expression import Call, Column, Literal
from millstream.model.join import JoinNode, JoinQuery, Leg, leg_column
from millstream.model.plan import AnswerFile, BatchResult, Bucket, BucketFile, IngestPlan
from millstream.model.query import Aggregate, LogicalQuery, Output, WindowSpec, aggregate_column
from millstream.model.stream import Field, Stream
from millstream.model.types import BOOLEAN, LONG, TIMESTAMP

SECOND = 1_000_000
STREAM = "purchases"
ADS = "ads"


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now


def stream(name: str = STREAM, lateness: int = 2) -> Stream:
    fields = (Field("price", LONG), Field("time", TIMESTAMP))
    return Stream(name, fields, "time", lateness * SECOND, (("format", "parquet"),))


def windowed(constant: int = 10, stream: str = STREAM) -> LogicalQuery:
    return LogicalQuery(
        sql=f"SELECT sum(price) FROM {stream} WHERE price > {constant} GROUP BY window(time, '8 seconds')",
        stream=stream,
        where=Call("GreaterThan", (Column("price", LONG), Literal(constant, LONG)), BOOLEAN),
        window=WindowSpec(8 * SECOND, 8 * SECOND),
        keys=(),
        aggregates=(Aggregate("sum", Column("price", LONG), LONG),),
        having=None,
        outputs=(Output("sum(price)", Column(aggregate_column(0), LONG)),),
    )


def unwindowed(stream: str = STREAM) -> LogicalQuery:
    outputs = (Output("price", Column("price", LONG)),)
    return LogicalQuery(f"SELECT price FROM {stream}", stream, None, None, (), (), None, outputs)


def new(id: str, query: LogicalQuery | None = None, *, key: str | None = None, owner: str = "me") -> NewQuery:
    return NewQuery(id, owner, key, query or windowed(), "g1", 0)


def join(*streams: str) -> JoinQuery:
    """Two streams, purchases and ads if none are named, joined on the price."""
    legs = tuple(Leg(name, f"s{number}", None) for number, name in enumerate(streams or (STREAM, ADS)))
    left, right = (Column(leg_column(leg, "price"), LONG) for leg in (0, 1))
    return JoinQuery(
        sql="SELECT s0.price FROM …",
        legs=legs,
        tree=JoinNode("inner", 0, 1, ((left, right),), None),
        where=None,
        window=WindowSpec(8 * SECOND, 8 * SECOND),
        grouped=False,
        keys=(),
        aggregates=(),
        having=None,
        outputs=(Output("price", left),),
    )


def new_join(id: str, *streams: str, key: str | None = None, owner: str = "me") -> NewQuery:
    """A new join whose legs have the places 0 and 1 in the groups g1 and g2."""
    query = join(*streams)
    places = tuple(LegPlace(leg, part.stream, f"g{leg + 1}", leg) for leg, part in enumerate(query.legs))
    return NewQuery(id, owner, key, query, "", 0, places)


def create(*ids: str) -> Change:
    return Change(creates=tuple(new(id) for id in ids))


def version(number: int, *, group: str = "g1", stream: str = STREAM, retired: bool = False) -> GroupVersionRef:
    path = "" if retired else f"groups/{stream}-{group}-{number}"
    return GroupVersionRef(group, stream, number, path, queries=1, classes=2, retired=retired)


def bucket(offset: int, *, group: str = "g1", version: int = 1) -> Bucket:
    return Bucket(group, version, 0, 8 * SECOND, offset, 100, 5)


def bucket_file(path: str, batch: int, *buckets: Bucket, stream: str = STREAM) -> BucketFile:
    return BucketFile(path, stream, batch, None, buckets)


def answer_file(path: str) -> AnswerFile:
    return AnswerFile(path, 10, 20, 30, 1)


def result(max_time: int | None = None, **parts: object) -> BatchResult:
    """What a batch reports whose latest row is at that second."""
    counts = {"rows": 100, "bytes": 1000, "late_rows": 0, "rejected_rows": 0} | parts
    return BatchResult(max_time=None if max_time is None else max_time * SECOND, **counts)  # type: ignore[arg-type]


def plan(store: Metastore, batch: int, stream: str = STREAM) -> IngestPlan:
    return store.plan_batch(stream, batch, f"offsets {batch}", clock=batch)[0]


def run(store: Metastore, batch: int, max_time: int | None = None, stream: str = STREAM, **parts: object) -> int | None:
    """Plan and commit a batch whose latest row is at that second."""
    return store.commit_batch(plan(store, batch, stream), result(max_time, **parts))
