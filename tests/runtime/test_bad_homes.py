"""The home directory: homes that cannot be used, who holds one, and files that are not what was written."""

from __future__ import annotations

import errno
import fcntl
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.engine.disks import read_only, small_disk

from millstream import Engine
from millstream.catalog.metastore import Metastore
from millstream.errors import DamagedFile, EngineError
from millstream.kernels.checksum import PAGE, checksum, checksum_of
from millstream.runtime.home import Home, Lock


def refusal(home: Path) -> EngineError:
    with pytest.raises(EngineError) as raised:
        Home(str(home)).create()
    return raised.value


def test_a_home_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("not a directory")
    for place in (tmp_path / "home", tmp_path / "home" / "below"):
        error = refusal(place)
        assert error.code == "BAD_HOME"
        assert f"the home {place} is no directory" in error.message
        assert error.hint


def test_a_read_only_home_is_refused(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1) as disk:
        Home(str(disk / "home")).create()
        with read_only(disk):
            error = refusal(disk / "home")
        assert error.code == "BAD_HOME"
        assert "read-only" in error.message
        Home(str(disk / "home")).create()


# Root may write anywhere, so the attempt is made by another user.
AS_NOBODY = """
import os, sys
from millstream.errors import EngineError
from millstream.runtime.home import Home
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    Home(sys.argv[1]).create()
except EngineError as error:
    print(error.code, error.message)
"""


def test_a_home_without_permission_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        os.chmod(folder, 0o755)
    done = subprocess.run([sys.executable, "-c", AS_NOBODY, str(home)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("BAD_HOME no permission to write")


def test_a_second_engine_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    home = Home(str(tmp_path))
    lock = Lock(home)
    with pytest.raises(EngineError) as raised:
        Lock(home)
    assert raised.value.code == "HOME_IN_USE"
    assert f"{os.uname().nodename} process {os.getpid()} since 20" in (raised.value.detail or "")
    lock.release()
    Lock(home).release()


def test_a_second_engine_is_refused_before_it_starts_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*arguments: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("millstream.engine.engine.Spark", start)
    lock = Lock(Home(str(tmp_path)))
    with pytest.raises(EngineError) as raised:
        Engine(home=tmp_path)
    assert raised.value.code == "HOME_IN_USE"
    lock.release()
    with pytest.raises(AssertionError, match="Spark was started"):
        Engine(home=tmp_path)
    Lock(Home(str(tmp_path))).release()


def test_without_locks_the_fence_stops_the_older_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    home = Home(str(tmp_path))
    first, second = Lock(home), Lock(home)
    older = Metastore.open(home.metastore_url(), holder="the first")
    newer = Metastore.open(home.metastore_url(), holder="the second")
    with pytest.raises(EngineError, match="the second") as raised:
        older.save_cursor("x", "1")
    assert raised.value.code == "FENCED"
    newer.save_cursor("x", "2")
    assert newer.load_cursor("x") == "2"
    older.close()
    newer.close()
    first.release()
    second.release()


def test_a_file_that_cannot_be_written_whole_leaves_nothing(tmp_path: Path) -> None:
    home = Home(str(tmp_path))
    home.create()

    def parts() -> Any:
        yield b"a beginning"
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left") as raised:
        home.write("answers", "x", "answers", parts())
    assert raised.value.filename.startswith(str(tmp_path))
    assert home.files() == []


@pytest.mark.parametrize("size", [0, 1, PAGE - 1, PAGE, PAGE + 1, 10 * PAGE + 7])
def test_a_changed_bit_or_exchanged_pages_change_the_checksum(size: int) -> None:
    data = bytes((7 * i + i // PAGE) % 251 for i in range(size))
    found = checksum(data)
    for place in {0, size // 2, size - 1} if size else ():
        changed = bytearray(data)
        changed[place] ^= 0x10
        assert checksum(bytes(changed)) != found
    if size > 2 * PAGE:
        assert checksum(data[PAGE : 2 * PAGE] + data[:PAGE] + data[2 * PAGE :]) != found
        assert checksum(bytes(PAGE) + data[PAGE:]) != found
    assert checksum_of([data[: size // PAGE * PAGE], data[size // PAGE * PAGE :]]) == found


def test_ranges_of_a_file_are_verified(tmp_path: Path) -> None:
    home = Home(str(tmp_path))
    home.create()
    data = os.urandom(9000)
    path = home.write("answers", "x", "answers", [data], checksum=checksum(data))
    file = home.open(path)
    assert file.whole() == data
    assert file.checked(100, 50, checksum(data[100:150])).to_pybytes() == data[100:150]
    file.verify(0, 9000, checksum(data))
    file.checked(100, 50, None)
    for read in (lambda: file.checked(100, 50, 1), lambda: file.verify(0, 9000, 1)):
        with pytest.raises(DamagedFile, match="is altered"):
            read()
    with pytest.raises(DamagedFile, match="is cut short"):
        file.checked(8990, 20, None)
    (tmp_path / path).write_bytes(data[:-1] + b"?")
    with pytest.raises(DamagedFile, match="is altered"):
        file.whole()
    (tmp_path / path).unlink()
    with pytest.raises(DamagedFile, match="is missing") as raised:
        file.whole()
    again = pickle.loads(pickle.dumps(raised.value))
    assert (again.path, again.reason, again.code) == (path, "is missing", "DAMAGED_FILE")
