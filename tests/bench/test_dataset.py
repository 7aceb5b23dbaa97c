"""The files: deterministic, in order, and shown without copying."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.bench.dataset import Dataset, show_files, write_dataset


def written(directory: Path, seed: int = 1) -> Dataset:
    dataset = Dataset(str(directory), files=3, file_rows=2000, density=1000, seed=seed)
    write_dataset(dataset)
    return dataset


def read(dataset: Dataset) -> pa.Table:
    return pa.concat_tables([pq.read_table(dataset.path(number)) for number in range(dataset.files)])


def test_a_seed_makes_the_same_files(tmp_path: Path) -> None:
    first = read(written(tmp_path / "a"))
    assert first.equals(read(written(tmp_path / "b")))
    assert not first.equals(read(written(tmp_path / "c", seed=2)))


def test_rows_are_in_order_and_as_dense_as_asked(tmp_path: Path) -> None:
    dataset = written(tmp_path / "data")
    table = read(dataset)
    times = table["time"].to_pylist()
    assert table.num_rows == dataset.rows == 6000
    assert times == sorted(times)
    assert (times[-1] - times[0]).total_seconds() == 5.999
    assert times[1234] == dataset.time_of(1234)
    assert set(table["key"].to_pylist()) == set(range(1000))


def test_modification_times_ascend_with_the_names(tmp_path: Path) -> None:
    dataset = written(tmp_path / "data")
    moments = [dataset.path(number).stat().st_mtime for number in range(dataset.files)]
    assert moments == sorted(moments)
    assert len(set(moments)) == len(moments)


def test_shown_files_are_links(tmp_path: Path) -> None:
    dataset = written(tmp_path / "data")
    watched = tmp_path / "in"
    watched.mkdir()
    show_files(dataset, 2, watched)
    assert sorted(path.name for path in watched.iterdir()) == [dataset.path(0).name, dataset.path(1).name]
    assert (watched / dataset.path(0).name).samefile(dataset.path(0))
