"""A real PostgreSQL server for the tests: found or installed by ``scripts/postgres.sh``, with data in a temporary
folder, gone with the process that started it, however that ends."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, NullPool, create_engine

from millstream.catalog import tables

SCRIPT = Path(__file__).parents[2] / "scripts" / "postgres.sh"
# Set to any text on machines that shall do without the server; its tests are then skipped.
OPT_OUT = "MILLSTREAM_WITHOUT_POSTGRES"
USER = "millstream"

# Outlives the test run by a moment: at the end of its input, which comes with the death of the run in any form, it
# stops the server at once and removes the folder.
WATCHDOG = 'cat > /dev/null; "$1" -D "$2/data" -m immediate -w stop > /dev/null 2>&1; rm -rf "$2"'


class Unavailable(Exception):
    """There is no server, and none could be installed."""


def programs() -> Path:
    """The directory of the server's programs."""
    found = subprocess.run(["sh", str(SCRIPT), sys.executable], capture_output=True, text=True)
    if found.returncode:
        raise Unavailable(f"{found.stderr.strip()}\nset {OPT_OUT}=1 to leave these tests out on this machine")
    return Path(found.stdout.strip())


def _other_user() -> dict[str, Any]:
    """The server refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name for entry in pwd.getpwall()}
    entry = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


class Server:
    """A server on a free port of this machine. What it has committed is on disk when it says so."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self.programs = programs
        self.port = free_port()
        self._databases = 0
        self._shared: str | None = None
        self._run("initdb", "-D", "data", "-U", USER, "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
        self.start()

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c max_connections=200 -c fsync=on"
        self._run("pg_ctl", "-D", "data", "-l", "log", "-w", "-o", options, "start")

    def crash(self) -> None:
        """Stop it as a power failure would: nothing is written that was not."""
        self._run("pg_ctl", "-D", "data", "-m", "immediate", "-w", "stop")

    def url(self, database: str = "postgres", port: int | None = None) -> str:
        return f"postgresql+psycopg://{USER}@127.0.0.1:{port or self.port}/{database}"

    def new_database(self) -> str:
        """The URL of an empty database."""
        self._databases += 1
        name = f"test{self._databases}"
        self.sql(f"CREATE DATABASE {name}")
        return self.url(name)

    def empty_database(self) -> str:
        """The URL of a database that is empty, or as good as: a metastore's tables without rows, which take a tenth of
        the time."""
        if self._shared is None:
            self._shared = self.new_database()
        engine = create_engine(self._shared, poolclass=NullPool)
        with engine.begin() as connection:
            for name, same in _tables(connection).items():
                connection.exec_driver_sql(f"DELETE FROM {name}" if same else f"DROP TABLE {name}")
        return self._shared

    def sql(self, statement: str, database: str = "postgres") -> str:
        place = ("-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-d", database)
        return self._run("psql", *place, "-AtXq", "-v", "ON_ERROR_STOP=1", "-c", statement)

    def _run(self, program: str, *arguments: str) -> str:
        # Output goes to files: the server inherits it, and a pipe would stay open as long as it runs.
        out = self.folder / "out"
        with open(out, "w+b") as output:
            command = [str(self.programs / program), *arguments]
            code = subprocess.call(command, cwd=self.folder, stdout=output, stderr=output, stdin=-3, **_other_user())
        text = out.read_text(encoding="utf-8", errors="replace")
        if code:
            log = self.folder / "log"
            end = log.read_text(errors="replace")[-2000:] if log.exists() else ""
            raise Unavailable(f"{program} ended with {code}: {text}{end}")
        return text


def _tables(connection: Connection) -> dict[str, bool]:
    """The tables there are, and whether each has the columns of the metastore's."""
    known = {name: {column.name for column in table.columns} for name, table in tables.metadata.tables.items()}
    found: dict[str, set[str]] = {}
    columns = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
    for table, column in connection.exec_driver_sql(columns):
        found.setdefault(table, set()).add(column)
    return {table: names == known.get(table) for table, names in found.items()}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running_server() -> Iterator[Server]:
    """A server that is stopped at the end, also when this process is killed."""
    found = programs()
    folder = Path(tempfile.mkdtemp(prefix="millstream-postgres-"))
    user = _other_user()
    if user:
        os.chown(folder, user["user"], user["group"])
    watchdog = subprocess.Popen(
        ["sh", "-c", WATCHDOG, "sh", str(found / "pg_ctl"), str(folder)],
        stdin=subprocess.PIPE,
        cwd="/",
        start_new_session=True,
        **user,
    )
    assert watchdog.stdin is not None
    try:
        yield Server(folder, found)
    finally:
        watchdog.stdin.close()
        watchdog.wait()
        shutil.rmtree(folder, ignore_errors=True)
