"""A real Spark cluster on this machine: a master and two workers with one core each, and a session on it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.runtime.java import ensure_java, ensure_python
from millstream.runtime.session import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 2
# A master starts in seconds on a free machine.
PATIENCE = 180.0


@dataclass(frozen=True)
class Cluster:
    master: str
    hosts: list[int]


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Started on free ports of the loopback interface; all of it ends with the context."""
    processes: list[subprocess.Popen[bytes]] = []
    folder.mkdir()
    try:
        arguments = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        processes.append(_start("master.Master", folder / "master.log", *arguments))
        found = _await(folder / "master.log", r"Starting Spark master at (spark://\S+)")
        for number in range(WORKERS):
            place = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}"))
            processes.append(_start("worker.Worker", folder / f"worker-{number}.log", *arguments, *place, found))
        for number in range(WORKERS):
            _await(folder / f"worker-{number}.log", r"Successfully registered with master (\S+)")
        yield Cluster(found, [process.pid for process in processes[1:]])
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait()


def session(master: str) -> SparkSession:
    """The user's own session on a cluster."""
    from pyspark.sql import SparkSession

    ensure_java()
    ensure_python()
    builder = SparkSession.builder.master(master).appName("millstream on a cluster")
    own = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    for name, value in {**SETTINGS, **own}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _start(kind: str, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    import pyspark

    ensure_java()
    home = Path(pyspark.__file__).parent
    # The Python workers of executors find our sources, which stand for an installed package.
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "SPARK_HOME": str(home), "PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable}
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
    with open(log, "wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, env=environment, start_new_session=True)


def _await(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found[1]
        time.sleep(0.1)
    raise AssertionError(log.read_text(errors="replace"))
