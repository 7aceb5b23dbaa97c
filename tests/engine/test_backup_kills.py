"""A backup or restore that is killed at any step leaves nothing, a whole copy, or one that is refused.

nothing │ draft ─► metastore ─► files ─► checkpoints ─► synced ─► named │ whole
        └─────────────── refused, until it is removed ──────────────────┘
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millstream import Engine
from millstream.catalog.metastore import Metastore
from millstream.engine.backup import back_up, restore
from millstream.engine.check import check_home
from millstream.errors import EngineError
from tests.catalog.builders import STREAM, answer_file, bucket, bucket_file, create, run, stream
from tests.support.postgres import Server

from .test_backup import names, put

# Makes copies in processes that die at the n-th step: a pass of a crash point, or a change of the copy by Python.
DYING = """
import json, os, sys, traceback
from pathlib import Path
from millstream.crashpoints import POINTS, kill, observe
from millstream.engine.backup import back_up, restore

CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.truncate", "sqlite3.connect"}

def run(command, source, target, url, last):
    steps = 0
    def step():
        nonlocal steps
        steps += 1
        if steps == last:
            kill()
    def touched(event, arguments):
        writes = event in CHANGES or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR))
        if writes and str(arguments[0]).startswith(target):
            step()
    def passed(name, about):
        assert name in POINTS, name
        step()
    sys.addaudithook(touched)
    observe(passed)
    {"back_up": back_up, "restore": restore}[command](Path(source), Path(target), url)

for line in sys.stdin:
    process = os.fork()
    if process == 0:
        try:
            run(*json.loads(line))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""

Dying = Callable[..., int]
KILLED = -signal.SIGKILL


@pytest.fixture(scope="module")
def dying() -> Iterator[Dying]:
    """Makes a copy in a process that dies at its n-th step; gives its exit code."""
    source = str(Path(__file__).parents[2] / "src")
    with subprocess.Popen(
        [sys.executable, "-c", DYING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    ) as process:
        asked, told = process.stdin, process.stdout
        assert asked is not None
        assert told is not None

        def call(command: str, source: Path, target: Path, url: str | None, last: int) -> int:
            print(json.dumps([command, str(source), str(target), url, last]), file=asked, flush=True)
            return int(told.readline())

        yield call
        asked.close()


@pytest.fixture
def filled(home: Path) -> Path:
    """A home of one stream with two files and a checkpoint; no engine runs."""
    store = Metastore.open(inside(home), holder="test")
    store.add_stream(stream())
    store.seal(create("q"))
    files = (bucket_file(put(home, "buckets/purchases/b1"), 0, bucket(0)),)
    run(store, 0, max_time=10, files=files, answers=(answer_file(put(home, "answers/a1")),))
    store.close()
    for name in ("offsets/0", "sources/0/0"):
        put(home, f"checkpoints/{STREAM}/{name}")
    return home


def inside(home: Path) -> str:
    return f"sqlite:///{home / 'metastore.db'}"


def metastore(url: str) -> list[object]:
    store = Metastore.look_into(url)
    try:
        return [[query.id for query in store.queries()], store.streams(), sorted(store.referenced_files())]
    finally:
        store.close()


def whole(home: Path, url: str | None) -> bool:
    """Whether a copy is whole; if it is not, nobody takes it for that."""
    draft = home / "metastore.db.draft"
    if draft.exists():
        expect_refused(home, url)
    return not draft.exists() and home.exists() and any(home.iterdir())


def expect_refused(place: Path, url: str | None) -> None:
    other = place.parent / "other"
    attempts: tuple[Callable[[], object], ...] = (
        lambda: Engine(home=place),
        lambda: check_home(str(place), url),
        lambda: restore(place, other),
        lambda: back_up(place, other, url),
        lambda: restore(place.parent / "home", place),
    )
    for attempt in attempts:
        with pytest.raises(EngineError, match=f"{place} is incomplete") as error:
            attempt()
        assert error.value.code == "BAD_HOME"
        assert "remove the directory and run the command again" in (error.value.hint or "")
    assert not other.exists()


def expect_one_change(found: list[bool], least: int) -> None:
    """From some step on the copies are whole; so many steps come before."""
    assert found == sorted(found)
    assert found.count(False) > least
    assert found[-1]


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def test_a_backup_is_whole_or_refused(
    dying: Dying, filled: Path, database: str, request: pytest.FixtureRequest
) -> None:
    source, url, files, rows = filled, None, names(filled), metastore(inside(filled))
    if database == "postgres":
        source, url = filled.parent / "source", request.getfixturevalue("postgres").empty_database()
        restore(filled, source, url)
    found: list[bool] = []
    code = KILLED
    while code == KILLED:
        copy = filled.parent / f"copy-{len(found)}"
        code = dying("back_up", source, copy, url, len(found) + 1)
        found.append(whole(copy, None))
        if found[-1]:
            assert names(copy) == files
            assert metastore(inside(copy)) == rows
    assert code == 0
    expect_one_change(found, 2 * len(files))


@pytest.mark.parametrize("database", ["inside", "sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def test_a_restored_home_is_whole_or_refused(
    dying: Dying, filled: Path, database: str, request: pytest.FixtureRequest
) -> None:
    server: Server | None = request.getfixturevalue("postgres") if database == "postgres" else None
    files, rows = names(filled), metastore(inside(filled))
    found: list[bool] = []
    code = KILLED
    while code == KILLED:
        home = filled.parent / f"home-{len(found)}"
        url = None if database == "inside" else f"sqlite:///{home}.db" if server is None else server.empty_database()
        code = dying("restore", filled, home, url, len(found) + 1)
        found.append(whole(home, url))
        if found[-1]:
            assert names(home) == files - ({"metastore.db"} if url else set())
            assert metastore(url or inside(home)) == rows
    assert code == 0
    expect_one_change(found, 2 * len(files))


def test_what_was_broken_off_is_made_again_when_it_is_removed(dying: Dying, filled: Path, tmp_path: Path) -> None:
    assert dying("back_up", filled, tmp_path / "copy", None, 20) == KILLED
    with pytest.raises(EngineError, match="incomplete"):
        back_up(filled, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy")
    assert back_up(filled, tmp_path / "copy").files == 2
    assert names(tmp_path / "copy") == names(filled)
