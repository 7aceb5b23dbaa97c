"""What is wrong with a file is told; what is wrong with the way to it passes, and loses no row."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.errors import SourceError
from millstream.model.stream import Field
from millstream.sources import parquet, text
from millstream.sources.files import file_trouble
from millstream.sources.parquet import read_footer, read_parquet
from millstream.sources.schema import infer_fields


@pytest.mark.parametrize("name", ["EACCES", "EIO", "EMFILE", "ENOMEM", "ESTALE", "ETIMEDOUT", "ECONNRESET"])
def test_faults_of_the_machine_are_raised_again(name: str, tmp_path: Path) -> None:
    fault = OSError(getattr(errno, name), "a fault")
    with pytest.raises(OSError, match="a fault") as raised:
        file_trouble(str(tmp_path / "a.parquet"), fault)
    assert raised.value is fault


@pytest.mark.parametrize(
    "error",
    [
        OSError("Couldn't deserialize thrift"),
        OSError(errno.EINVAL, "a wild offset in a footer"),
        IsADirectoryError(errno.EISDIR, "a directory"),
        pa.ArrowInvalid("no magic bytes"),
    ],
)
def test_what_is_wrong_with_the_file_is_told(error: Exception, tmp_path: Path) -> None:
    told = file_trouble(str(tmp_path / "a.parquet"), error)
    assert told.code == "BAD_FILE"


def test_a_file_that_is_gone_is_told_unless_its_directory_is_gone_with_it(tmp_path: Path) -> None:
    gone = FileNotFoundError(errno.ENOENT, "no such file")
    assert "no such file" in file_trouble(str(tmp_path / "a.parquet"), gone).message
    with pytest.raises(FileNotFoundError):
        file_trouble(str(tmp_path / "away" / "a.parquet"), gone)
    assert file_trouble("s3://bucket/a.parquet", gone).code == "BAD_FILE"


def test_memory_and_the_network_are_nobodys_fault() -> None:
    with pytest.raises(MemoryError):
        file_trouble("/data/a.parquet", pa.ArrowMemoryError("malloc of 2 GB failed"))
    network = OSError("When reading 'a' in 'b': AWS Error NETWORK_CONNECTION during GetObject")
    with pytest.raises(OSError, match="AWS Error"):
        file_trouble("s3://b/a.parquet", network)
    assert file_trouble("s3://b/a.parquet", OSError("Unexpected end of stream")).code == "BAD_FILE"


def test_readers_let_faults_of_the_machine_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1, 2]}), table)
    lines = tmp_path / "a.csv"
    lines.write_text("id\n1\n2\n")
    fields: tuple[Field, ...] = infer_fields(str(table), "parquet")

    def refuse(path: str) -> object:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(parquet, "open_file", refuse)
    monkeypatch.setattr(text, "open_file", refuse)
    with pytest.raises(PermissionError):
        read_footer(str(table))
    with pytest.raises(PermissionError):
        list(read_parquet(str(table), 0, None, fields, ["id"]))
    with pytest.raises(PermissionError):
        list(text.decode_file(str(lines), "csv", 0, None, fields))
    monkeypatch.undo()
    table.write_bytes(table.read_bytes()[:20])
    with pytest.raises(SourceError, match="cannot read"):
        read_footer(str(table))
