"""The generators: the same rows for the same seed, whatever the range, with the promised distributions."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import SourceError
from millstream.sources.generators import (
    BLOCK_ROWS,
    DEFAULT_START,
    AJoinGenerator,
    AStreamGenerator,
    BasicGenerator,
    GamingGenerator,
    NexmarkGenerator,
    RowGenerator,
    generator_from,
)
from millstream.sources.splits import GeneratorSplit, read_split, split_range

GENERATORS: list[RowGenerator] = [
    AStreamGenerator(seed=3),
    AStreamGenerator(rate=100, density=7, seed=-1, keys=10, fields_max=3, start=-5, disorder=100),
    GamingGenerator(seed=3),
    GamingGenerator(table="ads", rate=5, users=7, gem_packs=1, disorder=2**33),
    AJoinGenerator(seed=3, attributes_max=5000),
    NexmarkGenerator(seed=3, table="auctions", categories=7),
    NexmarkGenerator(seed=3, open_auctions=30, bids_per_auction=4, bidders=9, price_max=1),
    BasicGenerator(side=1, match_every=3),
]

FIELD1 = [106, 37, 142]
PURCHASES = [
    {"user_id": 60578, "gem_pack": 7, "price": Decimal("71.11")},
    {"user_id": 22819, "gem_pack": 14, "price": Decimal("31.61")},
]

# (generator, number of a row, the row without its time)
ROWS: list[tuple[RowGenerator, int, dict[str, int]]] = [
    (AJoinGenerator(seed=1), 1, {"a1": 151, "a2": 37, "a3": 154, "a4": 318, "a5": 425, "a6": 399}),
    (NexmarkGenerator(seed=1, table="auctions"), 1, {"id": 1, "quantity": 1, "category": 20, "reserve": 2706}),
    (NexmarkGenerator(seed=1), 10_000, {"id": 10_000, "auction": 593, "bidder": 39_725, "price": 7480}),
    (BasicGenerator(side=1), 2, {"number": -7}),
]


@pytest.mark.parametrize("generator", GENERATORS)
@given(start=st.integers(0, 3 * BLOCK_ROWS), rows=st.integers(0, BLOCK_ROWS))
def test_any_range_is_the_same_as_a_slice_of_all(generator: RowGenerator, start: int, rows: int) -> None:
    whole = generator.generate(start - start % BLOCK_ROWS, start + rows)
    part = generator.generate(start, start + rows)
    assert part.equals(whole.slice(start % BLOCK_ROWS))
    assert part.schema.types == [field.type.arrow for field in generator.fields]


@pytest.mark.parametrize("generator", GENERATORS)
def test_a_column_does_not_depend_on_the_others(generator: RowGenerator) -> None:
    whole = generator.generate(10, 100)
    for field in generator.fields:
        assert generator.generate(10, 100, [field.name]).equals(whole.select([field.name]))


@pytest.mark.parametrize("generator", GENERATORS)
def test_description_reads_back(generator: RowGenerator) -> None:
    assert generator_from(generator.describe()) == generator


def test_the_first_rows_never_change() -> None:
    """A recorded seed must give the same rows in later versions."""
    table = AStreamGenerator(seed=1).generate(0, 3)
    assert table["key"].to_pylist() == [0, 1, 2]
    assert table["field1"].to_pylist() == FIELD1
    purchases = GamingGenerator(seed=1).generate(0, 2)
    assert purchases.drop_columns(["time"]).to_pylist() == PURCHASES
    for generator, number, row in ROWS:
        assert generator.generate(number, number + 1).drop_columns(["time"]).to_pylist() == [row]


def test_astream_tuples() -> None:
    table = AStreamGenerator(seed=5).generate(0, 200_000)
    assert table["key"].to_pylist()[998:1002] == [998, 999, 0, 1]
    for i in range(1, 6):
        values = table[f"field{i}"].to_numpy()
        assert (values.min(), values.max()) == (0, 499)
        assert abs(values.mean() - 249.5) < 2
    correlation = np.corrcoef(table["field1"].to_numpy(), table["field2"].to_numpy())[0, 1]
    assert abs(correlation) < 0.02


def test_gaming_keys_are_normal() -> None:
    table = GamingGenerator(seed=5, users=6000).generate(0, 200_000)
    users = table["user_id"].to_numpy()
    assert (users.min() >= 0, users.max() < 6000) == (True, True)
    assert abs(users.mean() - 3000) < 20
    assert abs(users.std() - 1000) < 20
    assert abs(np.mean(np.abs(users - 3000) < 1000) - 0.683) < 0.01
    prices = table["price"].to_pylist()
    assert min(prices) == Decimal("0.99")
    assert max(prices) == Decimal("99.99")


def test_a_single_key() -> None:
    table = GamingGenerator(seed=5, users=1, gem_packs=1).generate(0, 1000)
    assert set(table["user_id"].to_pylist()) == set(table["gem_pack"].to_pylist()) == {0}


def test_ajoin_attributes_are_uniform() -> None:
    table = AJoinGenerator(seed=5).generate(0, 200_000)
    for i in range(1, 7):
        values = table[f"a{i}"].to_numpy()
        assert (values.min(), values.max()) == (0, 499)
        assert abs(values.std() - 500 / 12**0.5) < 1


def test_bids_go_to_recent_auctions() -> None:
    """Ten auctions a second and ninety bids: a bid comes after its auction, by at most as many as are open."""
    auctions = NexmarkGenerator(table="auctions", density=10).generate(0, 30_000)
    bids = NexmarkGenerator(table="bids", density=90, open_auctions=100).generate(0, 200_000)
    assert auctions["id"].to_pylist()[:3] == bids["id"].to_pylist()[:3] == [0, 1, 2]
    behind = np.arange(200_000) // 9 - bids["auction"].to_numpy()
    assert (behind.min() >= 0, behind.max() < 100) == (True, True)
    assert abs(behind.mean() - 50) < 1
    assert abs(behind.std() - 100 / 6) < 1
    known = bids.filter(pc.greater_equal(bids["auction"], 0))
    opened = auctions["time"].cast("int64").to_numpy()[known["auction"].to_numpy()]
    age = (known["time"].cast("int64").to_numpy() - opened) / 1e6
    assert 0 <= age.min() < age.max() < 100 / 10 + 0.1


def test_nexmark_attributes() -> None:
    auctions = NexmarkGenerator(table="auctions", seed=1).generate(0, 200_000)
    assert set(auctions["quantity"].to_pylist()) == set(range(1, 11))
    assert auctions["category"].to_numpy().max() == 49
    bids = NexmarkGenerator(seed=2).generate(0, 200_000)
    for column, bound in ((auctions["reserve"], 10_000), (bids["price"], 10_000), (bids["bidder"], 100_000)):
        assert abs(column.to_numpy().mean() / bound - 1 / 2) < 0.01
        assert abs(column.to_numpy().std() / bound - 1 / 6) < 0.01


def test_one_basic_row_in_ten_thousand_meets_another() -> None:
    left, right = (BasicGenerator(side=side).generate(0, 100_000)["number"].to_pylist() for side in (0, 1))
    assert len(set(left)) == len(set(right)) == 100_000
    assert sorted(set(left) & set(right)) == list(range(0, 100_000, 10_000))


def test_event_times() -> None:
    times = AStreamGenerator(rate=3, start=100).generate(0, 7)["time"].cast("int64").to_pylist()
    assert times == [100, 333_433, 666_766, 1_000_100, 1_333_433, 1_666_766, 2_000_100]
    assert AStreamGenerator().generate(0, 2)["time"].cast("int64").to_pylist() == [DEFAULT_START, DEFAULT_START + 1]
    late = AStreamGenerator(rate=1000, disorder=50_000).generate(0, 10_000)["time"].cast("int64").to_numpy()
    delays = AStreamGenerator(rate=1000).generate(0, 10_000)["time"].cast("int64").to_numpy() - late
    assert 0 <= delays.min() < 100
    assert 49_900 < delays.max() < 50_000
    assert abs(delays.mean() - 25_000) < 1_000


def test_splits() -> None:
    generator = AStreamGenerator()
    lists = split_range(generator, 10, 1_000_010, 3)
    assert [(s.start, s.stop) for part in lists for s in part] == [  # type: ignore[union-attr]
        (10, 333_343),
        (333_343, 666_676),
        (666_676, 1_000_010),
    ]
    assert split_range(generator, 5, 5, 3) == []
    (chunk,) = read_split(GeneratorSplit(generator, 5, 8), generator.fields, ["key"])
    assert chunk.table.to_pydict() == {"key": [5, 6, 7]}
    assert chunk.origin_of(0) == "astream:6"


@pytest.mark.parametrize("bad", [{"rate": 0}, {"density": -1}, {"disorder": -1}, {"keys": 0}])
def test_bad_options(bad: dict[str, int]) -> None:
    with pytest.raises(SourceError, match=next(iter(bad))):
        AStreamGenerator(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "table", "known"), [(GamingGenerator, "purchase", "purchases"), (NexmarkGenerator, "bid", "bids")]
)
def test_unknown_table(kind: type[GamingGenerator | NexmarkGenerator], table: str, known: str) -> None:
    with pytest.raises(SourceError, match=f"no table '{table}'") as caught:
        kind(table=table)
    assert f"'{known}'" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        (AJoinGenerator, {"attributes_max": 0}),
        (NexmarkGenerator, {"bids_per_auction": 0}),
        (NexmarkGenerator, {"open_auctions": 0}),
        (BasicGenerator, {"match_every": 0}),
        (BasicGenerator, {"side": 2}),
    ],
)
def test_bad_options_of_other_kinds(kind: type[RowGenerator], bad: dict[str, int]) -> None:
    with pytest.raises(SourceError, match=next(iter(bad))):
        kind(**bad)
